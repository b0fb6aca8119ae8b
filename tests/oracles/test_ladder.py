# SPDX-License-Identifier: Apache-2.0
"""The ladder decides roundings where the first rung cannot; the record takes any length."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.oracles.enclosure import Enclosure
from assay.oracles.formats import BF16, FP16, FP32, FP64, round_nearest
from assay.oracles.generators import generate
from assay.oracles.ladder import MOST_DIRECT, decide, record, record_enclosure, round_fraction
from assay.oracles.operation import operation_named, operations

ALL = (FP64, FP32, FP16, BF16)


def by_name(value):
    return getattr(value, "name", None) or str(value)


def decided(op, x, fmt, exact=None, **policies):
    return decide(op, {"x": x}, op.params, op.check_policies(policies), fmt, exact)


# --- rounding a rational number -------------------------------------------------------------------


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(ALL))
def test_a_rational_is_rounded_as_a_float64_is(value, fmt):
    expected = float(round_nearest(np.array([value]), fmt)[0])
    assert round_fraction(Fraction(value), fmt) == expected


@pytest.mark.parametrize("fmt", ALL, ids=by_name)
def test_ties_go_to_even_and_overflow_to_infinity(fmt):
    one = Fraction(1)
    half = one / 2**fmt.precision
    assert round_fraction(one + half, fmt) == 1.0, "down to the even neighbour"
    above = one + 2 * half
    assert round_fraction(above + half, fmt) == float(above + 2 * half), "up to the even neighbour"
    least = one / 10**30
    assert round_fraction(one + half + least, fmt) == float(above), "just above the midpoint"
    end = Fraction(fmt.largest)
    gap = end * Fraction(fmt.u) / (2 - Fraction(2) ** (1 - fmt.precision))
    assert round_fraction(end + gap / 2, fmt) == fmt.largest
    assert round_fraction(-(end + 2 * gap), fmt) == -np.inf
    smallest = Fraction(fmt.smallest_subnormal)
    assert round_fraction(smallest / 2, fmt) == 0.0, "half of the smallest is a tie with zero"
    assert round_fraction(smallest * 3 / 4, fmt) == fmt.smallest_subnormal


# --- deciding -------------------------------------------------------------------------------------


def blurred(exact: Enclosure, relative: float) -> Enclosure:
    """The same enclosure, too wide to decide anything."""
    return replace(exact, radius=np.where(exact.finite, np.abs(exact.center) * relative, 0.0))


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_what_the_fast_rung_leaves_open_is_decided_by_the_next(op):
    if op.integer:
        pytest.skip("indices and counts are exact")
    rows = 1 if op.whole else 3
    x = generate("normal", rows, 40, 5, FP32)
    inputs = {
        o.name: generate("uniform", 40, 2, 6, FP32) for o in op.operands if o.shape == "second"
    }
    inputs["x"] = x
    policies = op.default_policies()
    exact = op.enclose(inputs, op.params, policies, FP32)
    sharp = decide(op, inputs, op.params, policies, FP32, exact)
    assert not sharp.undecided.any() and not sharp.asked, "40 normal values are no hard case"
    wide = decide(op, inputs, op.params, policies, FP32, blurred(exact, 2.0**-20))
    assert wide.asked["fine"] > 0, "a wide enclosure leaves something open"
    assert not wide.undecided.any()
    assert np.array_equal(wide.nearest, sharp.nearest)


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_the_record_decides_where_no_enclosure_can(op, monkeypatch):
    if op.integer:
        pytest.skip("indices and counts are exact")
    rows = 1 if op.whole else 2
    inputs = {
        o.name: generate("uniform", 9, 2, 6, FP32) for o in op.operands if o.shape == "second"
    }
    inputs["x"] = generate("uniform", rows, 9, 5, FP32)
    policies = op.default_policies()
    exact = op.enclose(inputs, op.params, policies, FP32)
    sharp = decide(op, inputs, op.params, policies, FP32, exact)
    blind = replace(op, enclose=lambda *a: blurred(op.enclose(*a), 2.0**-20))
    found = decide(blind, inputs, op.params, policies, FP32)
    assert found.asked["record"] > 0, "both rungs were blind"
    assert not found.undecided.any()
    assert np.array_equal(found.nearest, sharp.nearest)


def test_hard_cases_reach_the_rung_that_can_tell():
    """A root beside a midpoint of two float32 numbers, and one on it."""
    op = operation_named("l2_norm")
    # sqrt(m**2 + tiny) for a midpoint m: above it by tiny / 2m.
    middle = 2.0**24 + 1.0
    x = np.array([[middle, 2.0**-100]])
    found = decided(op, x, FP32)
    assert found.nearest[0, 0] == 2.0**24 + 2.0 and not found.undecided.any()
    tie = decided(op, np.array([[3.0 * middle, 4.0 * middle]]), FP32)
    assert tie.nearest[0, 0] == round_nearest(np.array([5.0 * middle]), FP32)[0]
    assert not tie.undecided.any(), "5 m is rational: the root is known exactly"


def test_a_constant_row_of_softmax_is_rational():
    op = operation_named("softmax")
    for n in (1, 3, 4, 7, 1 << 12):
        found = decided(op, np.full((2, n), 0.1), FP32)
        assert (found.nearest == round_fraction(Fraction(1, n), FP32)).all()
        assert not found.undecided.any() and not found.asked


def test_integers_are_exact_at_once():
    op = operation_named("count_nonzero")
    found = decided(op, np.array([[0.0, 1.0, -0.0, np.nan]]), FP64)
    assert found.nearest[0, 0] == 2.0 and not found.undecided.any() and not found.asked


# --- the record -----------------------------------------------------------------------------------


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_value_counts_give_what_the_direct_form_gives(op):
    if op.counted is None:
        pytest.skip("positions or other operands matter")
    for policies in ({}, *({p.name: v} for p in op.policies for v in p.values[1:])):
        chosen = op.check_policies(policies)
        for family in ("integers", "masked", "sparse"):
            x = generate(family, 1, 200, 3, FP32)
            counted = record(op, {"x": x}, op.params, chosen, FP32)
            direct = op.reference({"x": x}, op.params, chosen, FP32)
            assert len(counted) == len(direct)
            for a, b in zip(counted, direct, strict=True):
                same = (a != a and b != b) or a == b or abs(a - b) <= abs(b) * 2.0**-165
                assert same, f"{op.name} {family} {policies}: {a} and {b}"


def test_the_record_takes_any_length_of_few_values():
    op = operation_named("logsumexp")
    n = 1 << 18
    x = generate("normal", 1, n, 3, FP32)
    exact = op.enclose({"x": x}, op.params, op.default_policies(), FP32)
    found = record_enclosure(op, {"x": x}, op.params, op.default_policies(), FP32)
    assert found.shape == exact.shape == (1, 1)
    assert found.intersects(exact).all()


def test_the_record_refuses_what_would_take_hours():
    op = operation_named("matmul")
    x = np.ones((1, MOST_DIRECT + 1))
    inputs = {"x": x, "w": x.T}
    with pytest.raises(ValueError, match=r"up to 65536 elements.*ask the certified oracle"):
        record(op, inputs, {}, op.default_policies(), FP32)
    op = operation_named("sum")
    distinct = np.arange(MOST_DIRECT + 1, dtype=np.float64)[None, :]
    with pytest.raises(ValueError, match=r"up to 65536 distinct values.*got 65537"):
        record(op, {"x": distinct}, {}, op.default_policies(), FP32)
