# SPDX-License-Identifier: Apache-2.0
"""Condition numbers: against finite differences of exact results, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from condition_checks import assert_conditions_hold, condition
from oracle_inputs import by_name, enclose, every_family, inputs_of, operand_choices

from assay.oracles.formats import BF16, FP16
from assay.oracles.operation import operation_named, operations

# Infinite elements have no relative change, and indices no derivative.
CASES = [
    pytest.param(op, family, id=f"{op.name}-{family}")
    for op, family in every_family()
    if family != "masked" and not op.integer
]


@pytest.mark.parametrize(("op", "family"), CASES)
def test_results_change_as_much_as_the_condition_number_says(op, family):
    for fmt, n in ((FP16, 6), (BF16, 3)):
        for inputs in operand_choices(op, family, 1, n, fmt, 17):
            with_ties = family in ("constant", "integers", "ties")
            if with_ties and op.name in ("min_max", "row_max", "row_min"):
                # A change parts the equals of an end; 2**-4 apart they keep their places.
                inputs["x"] = inputs["x"] + np.arange(n) * 2.0**-4
            assert_conditions_hold(op, inputs)


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_a_result_of_zero_or_none_has_no_condition(op):
    inputs = inputs_of(op, "normal", 2, 4, FP16, 3) | {"x": np.array([[0.0] * 4, [np.nan] * 4])}
    exact = enclose(op, inputs)
    cond = op.condition(inputs, exact, op.params, op.default_policies())
    judged = exact.finite & (exact.center != 0.0)
    if not op.integer:
        assert np.isinf(cond[~judged]).all(), f"{op.name}: {cond} for results {exact.center}"
    assert not np.isnan(cond).any(), f"{op.name}: {cond}"


def by_hand(name, row, **operands):
    return condition(operation_named(name), {"x": np.array([row])} | operands)[1]


@pytest.mark.parametrize(
    ("name", "row", "expected"),
    [
        ("sum", [3.0, -2.0, -0.5], [5.5 / 0.5]),
        ("mean", [3.0, -2.0, -0.5], [5.5 / 0.5]),
        ("l2_norm", [3.0, 4.0], [1.0]),  # magnitudes cannot cancel
        ("row_max", [3.0, 7.0], [1.0]),
        ("row_argmax", [3.0, 7.0], [0.0]),
        ("row_argmax", [7.0, 7.0], [np.inf]),  # any change breaks the tie
        # |1| + |0| / 2 + |2| / 2 over y (hi - lo) = 1; 0 stays 0 by cancellation only.
        ("min_max", [0.0, 1.0, 2.0], [np.inf, 2.0, 2.0]),
        ("mean_variance", [1.0, -1.0], [np.inf, 2.0]),  # a variance of squares
        ("softmax", [0.0, 0.0], [0.0, 0.0]),  # zeros have no relative change
        ("logsumexp", [2.0], [1.0]),
    ],
)
def test_condition_numbers_by_hand(name, row, expected):
    found = by_hand(name, row)
    # Computed in float64 with upper bounds of sums: a few roundings more.
    assert np.array_equal(np.round(found, 10), expected), f"{name} of {row}: {found}"


def test_both_factors_of_a_product_move():
    found = by_hand("matmul", [3.0, -1.0], w=np.array([[1.0], [2.0]]))
    assert np.round(found, 10) == 2.0 * 5.0 / 1.0


def test_a_weight_moves_only_where_there_is_one():
    row = [3.0, -1.0, 0.5]
    without, given = by_hand("rms_norm", row), by_hand("rms_norm", row, weight=np.ones(3))
    assert np.array_equal(np.round(given - without, 10), [1.0] * 3)
