# SPDX-License-Identifier: Apache-2.0
"""Facts about rows, and what the exponential operations share beside the sum itself."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from oracle_inputs import FORMATS, by_name

from assay.oracles.arrays import NUMPY
from assay.oracles.exponentials import FARTHEST, Kinds, log_sums, mean_distance
from assay.oracles.formats import FP32
from assay.oracles.generators import generate
from assay.oracles.rows import facts, only, sum_of_magnitudes

NAN, INF = np.nan, np.inf
ROWS = np.array(
    [
        [1.0, -2.0, 0.0, -0.0, 5e-324],
        [NAN, 3.0, -3.0, 0.0, 0.0],
        [INF, 1.0, 2.0, 3.0, 4.0],
        [-INF, 1.0, 2.0, 3.0, 4.0],
        [INF, -INF, NAN, 0.0, 0.0],
        [-INF, -INF, -INF, -INF, -INF],
        [NAN, NAN, NAN, NAN, NAN],
        [NAN, -INF, -INF, NAN, -INF],
        [0.0, -0.0, 0.0, -0.0, 0.0],
    ]
)


def test_facts_by_hand():
    found = facts(ROWS)
    assert found.nan.tolist() == [False, True, False, False, True, False, True, True, False]
    assert np.flatnonzero(found.positive_infinity).tolist() == [2, 4]
    assert np.flatnonzero(found.negative_infinity).tolist() == [3, 4, 5, 7]
    assert found.largest.tolist() == [1.0, 3.0, INF, 4.0, INF, -INF, -INF, -INF, 0.0]
    assert found.smallest.tolist() == [-2.0, -3.0, 1.0, -INF, -INF, -INF, INF, -INF, 0.0]
    assert found.nonzero.tolist() == [3, 3, 5, 5, 3, 5, 5, 5, 0]
    assert np.flatnonzero(found.finite).tolist() == [0, 8]


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 1 << 16])
def test_chunks_of_any_size_give_the_same_facts(chunk, monkeypatch):
    expected, total = facts(ROWS), sum_of_magnitudes(ROWS[[0, 8]])
    monkeypatch.setattr(type(NUMPY), "chunk", chunk)
    found = facts(ROWS)
    for name, values in vars(expected).items():
        assert np.array_equal(getattr(found, name), values), f"{name} in chunks of {chunk}"
    assert (sum_of_magnitudes(ROWS[[0, 8]]) == total).all(), f"in chunks of {chunk}"
    t = mean_distance(ROWS[[0]], np.array([1.0]), np.array([1.5]))
    monkeypatch.undo()
    whole = mean_distance(ROWS[[0]], np.array([1.0]), np.array([1.5]))
    # The order of adding five terms: four roundings each.
    assert (abs(t - whole) <= 8 * 2.0**-53 * whole).all(), f"in chunks of {chunk}"


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_facts_of_nothing(shape):
    found = facts(np.zeros(shape))
    assert found.finite.all() and not found.nonzero.any()
    assert (found.largest == -INF).all() and (found.smallest == INF).all()
    assert not sum_of_magnitudes(np.zeros(shape)).any()


def test_chosen_rows():
    chosen = np.array([True, False] * 4 + [True])
    assert np.array_equal(only(ROWS, chosen), ROWS[chosen], equal_nan=True)
    assert only(ROWS, np.ones(9, dtype=bool)) is ROWS, "all rows are no copy"
    torch = pytest.importorskip("torch")
    found = only(torch.from_numpy(ROWS), chosen)
    assert np.array_equal(found.numpy(), ROWS[chosen], equal_nan=True)


@pytest.mark.parametrize("fmt", FORMATS, ids=by_name)
@pytest.mark.parametrize("family", ["normal", "wide", "cancelling", "ladder", "tiny"])
def test_sums_of_magnitudes_are_upper_bounds_and_near(family, fmt):
    x = generate(family, 3, 700, 1, fmt)
    for got, row in zip(sum_of_magnitudes(x).ravel().tolist(), x.tolist(), strict=True):
        exact = sum(Fraction(abs(v)) for v in row)
        assert exact <= Fraction(got) <= exact * (1 + Fraction(700, 2**51)), f"{family}: {got}"


def test_kinds_of_rows_part_them():
    for n in (5, 0):
        x = ROWS[:, :n]
        kinds = Kinds.of(facts(x), n)
        parts = (kinds.nan, kinds.infinite, kinds.masked, kinds.plain)
        assert (sum(part.astype(int) for part in parts) == (1 if n else 0)).all(), f"{n} columns"
    kinds = Kinds.of(facts(ROWS), 5)
    assert np.flatnonzero(kinds.infinite).tolist() == [2], "a NaN beside it makes it NaN"
    assert np.flatnonzero(kinds.masked).tolist() == [5]
    assert np.flatnonzero(kinds.plain).tolist() == [0, 3, 8]


@pytest.mark.parametrize("family", ["normal", "wide_logits", "negative", "constant", "masked"])
def test_a_mean_distance_is_an_upper_bound_and_near(family):
    """Lbar of mpmath, which the bounds of all exponential operations rest on."""
    x = generate(family, 3, 60, 2, FP32)
    maxima = x.max(axis=1)
    log_sum = np.array([s.high for s in log_sums(x, maxima, fine=False)])
    got = mean_distance(x, maxima, log_sum).ravel()
    ctx = mpmath.MPContext()
    ctx.prec = 120
    for value, row, m in zip(got.tolist(), x.tolist(), maxima.tolist(), strict=True):
        t = [ctx.mpf(m) - v for v in row if v > -INF]
        total = ctx.fsum(ctx.exp(-a) for a in t)
        exact = ctx.fsum(a * ctx.exp(-a) for a in t) / total
        assert exact <= value <= exact * (1 + ctx.ldexp(1, -19)), f"{family}: {value}, {exact}"


def test_terms_farther_than_the_cap_add_nothing():
    x = np.array([[0.0, -FARTHEST - 1.0, -1e300, -INF]])
    assert mean_distance(x, np.array([0.0]), np.array([0.0])).ravel().tolist() == [0.0]


@pytest.mark.parametrize("fine", [False, True])
@pytest.mark.parametrize("family", ["normal", "wide_logits", "negative", "constant", "masked"])
def test_log_sums_are_as_near_as_they_say(family, fine):
    x = generate(family, 4, 60, 2, FP32)
    maxima = x.max(axis=1)
    ctx = mpmath.MPContext()
    ctx.prec = 300
    claimed = 2.0**-84 if fine else 2.0**-59
    for found, row, m in zip(log_sums(x, maxima, fine=fine), x.tolist(), maxima, strict=True):
        exact = ctx.log(ctx.fsum(ctx.exp(ctx.mpf(v) - float(m)) for v in row))
        off = abs(ctx.mpf(found.high) + found.low - exact)
        assert off <= found.error <= claimed, f"{family}: off by {off}, said {found.error}"
        assert abs(found.low) <= abs(found.high) * 2.0**-53, f"{family}: {found} is no pair"
