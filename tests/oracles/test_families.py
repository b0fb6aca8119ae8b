# SPDX-License-Identifier: Apache-2.0
"""What each of the hard data families is for: the property that makes it hard."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from oracle_inputs import STORED, by_name, enclose, with_x

from assay.oracles.formats import BF16, FP16, FP32, FP64
from assay.oracles.generators import generate
from assay.oracles.operation import operation_named

SEEDS = range(8)


def condition(name, x, fmt=FP32):
    op = operation_named(name)
    inputs = with_x(op, x)
    exact = enclose(op, inputs, fmt=fmt)
    return op.condition(inputs, exact, op.params, op.default_policies())


@pytest.mark.parametrize(("fmt", "least"), [(FP32, 2.0**10), (FP64, 2.0**39)], ids=by_name)
@pytest.mark.parametrize("n", [2, 64, 65, 1000, 20_000])
def test_cancelling_sums_are_ill_conditioned_in_every_row(fmt, least, n):
    """The noise is 2**4 ulps: what is left is some 2**-20 of float32's magnitudes, or more."""
    for seed in SEEDS:
        found = condition("row_sum", generate("cancelling", 3, n, seed, fmt), fmt)
        assert (found > least).all(), f"seed {seed}, n = {n}: condition {found.ravel()}"


def test_plain_summation_loses_a_cancelling_sum():
    x = generate("cancelling", 1, 1000, 3, FP32)
    exact = enclose(operation_named("sum"), {"x": x})
    plain = float(x.astype(np.float32).cumsum(dtype=np.float32)[-1])
    assert abs(plain - exact.center[0, 0]) > 2.0**-10 * abs(exact.center[0, 0]), (
        f"float32 gives {plain}, exactly {exact.center[0, 0]}: too easy"
    )


@pytest.mark.parametrize("fmt", STORED, ids=by_name)
def test_absorbing_rows_have_one_element_that_takes_no_ones(fmt):
    places = set()
    for seed in range(16):
        for row in generate("absorbing", 3, 40, seed, fmt):
            (place,) = np.flatnonzero(row != 1.0)
            places.add(int(place))
            assert row[place] == 2.0**fmt.precision, "the first whole number with a gap above it"
            assert fmt is not FP32 or np.float32(row[place]) + np.float32(1.0) == row[place]
    assert {0, 39, 20} <= places, f"at the start, the end and between: {sorted(places)}"


@pytest.mark.parametrize("fmt", STORED, ids=by_name)
def test_a_ladder_has_every_exponent(fmt):
    lowest = fmt.emin - fmt.precision + 1
    span = fmt.emax - (24 if fmt.emax > 100 else 10) - lowest
    values = generate("ladder", 2, span, 5, fmt)
    for row in values:
        mantissa, e = np.frexp(row)
        assert (mantissa == 0.5).all(), "powers of two"
        assert np.array_equal(np.sort(e - 1), np.arange(lowest, lowest + span)), "each once"
    total = sum(map(Fraction, values[0].tolist()))
    assert total < Fraction(fmt.largest), "whose sum the format holds"
    assert total.numerator.bit_length() == span, "with a bit for each"
    # 1000 elements repeat the ladder: still no overflow.
    assert generate("ladder", 1, 1000, 5, fmt).sum() < fmt.largest, "nor that of many"


def test_offset_has_a_mean_far_above_its_deviation():
    x = generate("offset", 2, 4000, 3, FP32)
    exact = enclose(operation_named("mean_variance"), {"x": x})
    mean, variance = exact.center.T
    # A mean of 4000 normal values strays by 1/63, their variance by 1/45; six times that.
    assert (np.abs(mean - 1024.0) < 6.0 / 63.0).all(), f"means {mean}"
    assert (np.abs(variance - 1.0) < 6.0 / 44.0).all(), f"variances {variance}"
    kappa = condition("mean_variance", x)[:, 1]
    assert (kappa > 2.0**10).all(), "the mean of squares loses twice these bits"


def test_ties_has_equals_of_the_largest():
    for fmt in (*STORED, FP64):
        x = generate("ties", 3, 40, 1, fmt)
        assert np.unique(x).tolist() == [-1.0, 0.0, 1.0, 2.0], fmt.name
        assert ((x == x.max(axis=1, keepdims=True)).sum(axis=1) > 1).all(), "in every row"


@pytest.mark.parametrize("fmt", STORED, ids=by_name)
def test_sparse_has_zeros_of_both_signs_and_subnormals(fmt):
    x = generate("sparse", 1, 4000, 3, fmt).ravel()
    zero = x == 0.0
    # 4000 yes-or-no events: a share strays by 1/126 at most; six times that.
    assert abs(zero.mean() - 0.75) < 6.0 / 126.0, f"{zero.mean()} are zero"
    assert 0.4 < np.signbit(x[zero]).mean() < 0.6, "half of them negative"
    least = np.abs(x) == fmt.smallest_subnormal
    assert abs(least.mean() - 0.125) < 6.0 / 126.0, f"{least.mean()} are subnormal"
    assert (~zero).sum() == enclose(operation_named("count_nonzero"), {"x": x[None]}).center[0, 0]


@pytest.mark.parametrize("n", [2, 100, 5000])
def test_a_logsumexp_near_zero_has_no_relative_condition(n):
    """In float32; 16-bit formats hold -log(n) too coarsely."""
    for seed in SEEDS:
        x = generate("near_zero_logsumexp", 2, n, seed, FP32)
        for row in x:
            found = enclose(operation_named("logsumexp"), {"x": row[None]})
            # log of a mean of exp(2**-12 normal): 2**-12 times six at most, and a rounding.
            limit = 6.0 * 2.0**-12 + FP32.u * np.log(n)
            assert abs(found.center[0, 0]) < limit, f"seed {seed}, n = {n}: {found.center}"
            cond = condition("logsumexp", row[None])
            assert (cond > 2.0**8).all(), f"seed {seed}, n = {n}: condition {cond}"


def test_16_bit_rows_near_zero_stay_so():
    for fmt in (FP16, BF16):
        x = generate("near_zero_logsumexp", 3, 300, 1, fmt)
        found = enclose(operation_named("logsumexp"), {"x": x}, fmt=fmt).center
        # -log(300) = -5.7 rounds to half a last place, 2**2 u.
        assert (np.abs(found) < 4.0 * fmt.u + 2.0**-9).all(), f"{fmt.name}: {found.ravel()}"
