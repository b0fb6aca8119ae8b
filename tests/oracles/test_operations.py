# SPDX-License-Identifier: Apache-2.0
"""Operations: mpmath of record, arb's balls and the enclosures agree, for all that is declared.

The comparison itself is in oracle_agreement.py, and test_planted_errors.py shows what it finds.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from oracle_agreement import assert_counts_agree, assert_meets_balls, assert_rungs_agree
from oracle_inputs import (
    FORMATS,
    SAME_RESULT,
    by_name,
    enclose,
    every_family,
    inputs_of,
    operand_choices,
    params_of,
    policy_combinations,
)

from assay.oracles.formats import FP32
from assay.oracles.generators import generate
from assay.oracles.operation import operations

CASES = [
    pytest.param(op, family, fmt, id=f"{op.name}-{family}-{fmt.name}")
    for op, family in every_family()
    for fmt in FORMATS
]
FAMILIES = [pytest.param(op, family, id=f"{op.name}-{family}") for op, family in every_family()]
COUNTED = [case for case in FAMILIES if case.values[0].counted]


@pytest.mark.parametrize(("op", "family", "fmt"), CASES)
def test_the_rungs_agree_for_every_policy_and_operand(op, family, fmt):
    for rows, n, seed in ((2, 13, 5), (1, 1, 6)):
        for inputs in operand_choices(op, family, rows, n, fmt, seed):
            # A policy of an operand that is left out changes nothing.
            without = {o.name for o in op.operands} - set(inputs)
            for policies in policy_combinations(op, leave_out=SAME_RESULT | without):
                for params in params_of(op):
                    assert_rungs_agree(op, inputs, policies, fmt, params)


@pytest.mark.parametrize(("op", "family"), FAMILIES)
def test_the_rungs_agree_for_long_rows(op, family):
    """Longer than a run, a tile or what one thread holds."""
    assert_rungs_agree(op, inputs_of(op, family, 1, 4096, FP32, 3), op.default_policies(), FP32)


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_rows_longer_than_a_pool_agree(op):
    inputs = inputs_of(op, op.families[0], 1, 2**13 + 1, FP32, 3)
    assert_rungs_agree(op, inputs, op.default_policies(), FP32, balls=False)


@pytest.mark.parametrize(("op", "family"), COUNTED)
def test_counts_of_values_give_what_all_values_give(op, family):
    for policies in policy_combinations(op, leave_out=SAME_RESULT):
        for params in params_of(op):
            for fmt in FORMATS:
                x = generate(family, 2, 40, 8, fmt)
                x[1, :20] = x[1, 20:]  # families of numbers that differ have equals too
                assert_counts_agree(op, x, policies, fmt, params)


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_policies_about_the_way_leave_the_result_alone(op):
    """A kernel's range or algorithm changes what it may get wrong, not what is right."""
    inputs = inputs_of(op, "wide", 2, 30, FP32, 4)
    default = enclose(op, inputs)
    others = {p.name for p in op.policies} - SAME_RESULT
    for policies in policy_combinations(op, leave_out=others):
        exact = enclose(op, inputs, policies)
        for part in ("center", "tail", "radius"):
            same = np.array_equal(getattr(exact, part), getattr(default, part), equal_nan=True)
            assert same, f"{op.name}: {part} depends on {policies}"


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_finer_levels_are_not_wider(op):
    inputs = inputs_of(op, op.families[0], 2, 30, FP32, 4)
    fast, fine, record = (enclose(op, inputs, level=v).radius for v in ("fast", "fine", "record"))
    assert (fine <= fast).all(), f"{op.name}: fine is wider than fast"
    assert (record <= fine).all(), f"{op.name}: record is wider than fine"


def test_arb_has_an_opinion_on_every_operation():
    """Without python-flint two rungs are compared instead of three."""
    pytest.importorskip("flint", reason="needs python-flint, an extra of `dev`")
    import arb_forms

    lacking = set(operations()) - set(arb_forms.FORMS)
    assert not lacking, f"write {sorted(lacking)} in arb_forms.py"
    found = enclose(operations()["sum"], {"x": np.ones((1, 3))}).reshape(-1)
    off = ((3, 0), (3, 0)), ((3, 1), (3, 1))
    assert_meets_balls("1 + 1 + 1", found, [mpmath.mpf(3)], off[:1])
    with pytest.raises(AssertionError, match="arb says 6"):
        assert_meets_balls("1 + 1 + 1", found, [mpmath.mpf(3)], off[1:])
