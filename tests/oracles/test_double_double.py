# SPDX-License-Identifier: Apache-2.0
"""Pairs of float64 against rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from assay.oracles.double_double import (
    PRODUCT_ERROR,
    QUOTIENT_ERROR,
    divide,
    multiply,
    quick_two_sum,
    two_product,
    two_sum,
)
from assay.oracles.formats import FP64, decode

# The edges of the range that two_product documents.
_LARGEST_FACTOR_LOG2 = 996
_SMALLEST_PRODUCT_LOG2 = -969


def wide(count, seed, low, high):
    """Random signs and significands, exponents from low to high - 1."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(1.0, 2.0, count) * rng.choice([-1.0, 1.0], count)
    return np.ldexp(values, rng.integers(low, high, count))


def awkward(count, seed):
    """Values near 1 of few or nearly all bits: 2**-k apart from a power of two."""
    rng = np.random.default_rng(seed)
    return (1.0 + rng.choice([-1.0, 1.0], count) * np.ldexp(1.0, -rng.integers(1, 53, count))) * (
        rng.choice([-1.0, 1.0], count)
    )


def pairs(count, seed, low=-30, high=30):
    """Normalised pairs (h, l), |l| <= ulp(h)/2, with tails of every size down to none."""
    rng = np.random.default_rng(seed)
    h = np.where(rng.random(count) < 0.5, wide(count, seed, low, high), awkward(count, seed + 1))
    shrink = rng.choice([0, 0, 0, 1, 5, 30, 50], count)
    _, e = np.frexp(h)
    l = np.ldexp(rng.uniform(-0.5, 0.5, count), e - 53 - shrink)
    l = np.where(rng.random(count) < 0.1, 0.0, l)
    total = h + l
    return total, l - (total - h)


def exact_pair(h, l):
    return Fraction(float(h)) + Fraction(float(l))


def test_two_sum_is_exact():
    rng = np.random.default_rng(1)
    words = rng.integers(0, 2**64, size=(2, 4000), dtype=np.uint64)
    values = decode(words, FP64)
    # Halves, so that no sum overflows; NaN patterns become 1.
    a, b = np.where(np.isfinite(values), values, 1.0) * 0.5
    near = wide(2000, 2, -20, 20)
    a = np.concatenate([a, near, near, [2.0**53, 1.0, 0.0, -0.0, 5e-324]])
    b = np.concatenate(
        [b, -near * (1 + 2.0**-50), near[::-1], [1.0, 2.0**-53, 0.0, -0.0, 2.0**-1022]]
    )
    s, e = two_sum(a, b)
    assert (s == a + b).all(), "the head is the rounded sum"
    for i in range(a.size):
        assert exact_pair(s[i], e[i]) == Fraction(float(a[i])) + Fraction(float(b[i])), (
            f"two_sum({a[i]!r}, {b[i]!r}) = ({s[i]!r}, {e[i]!r}) is not exact"
        )


def test_quick_two_sum_is_exact_with_the_larger_first():
    a, b = wide(4000, 11, -20, 20), wide(4000, 12, -80, 20)
    a, b = np.where(np.abs(a) >= np.abs(b), [a, b], [b, a])
    a = np.concatenate([a, [0.0, 1.0, 1.0]])
    b = np.concatenate([b, [0.0, -1.0, 2.0**-54]])
    for x, y in zip(quick_two_sum(a, b), two_sum(a, b), strict=True):
        assert (x == y).all()


def test_two_sum_does_not_depend_on_which_is_larger():
    a, b = wide(2000, 3, -100, 100), wide(2000, 4, -100, 100)
    assert all((x == y).all() for x, y in zip(two_sum(a, b), two_sum(b, a), strict=True)), (
        "two_sum is symmetric (Knuth's, not Dekker's which needs |a| >= |b|)"
    )


def test_two_product_is_exact_in_its_range():
    low = _SMALLEST_PRODUCT_LOG2 // 2 + 1
    a = np.concatenate(
        [
            wide(3000, 5, low, -low),
            awkward(3000, 6),
            wide(200, 7, _LARGEST_FACTOR_LOG2 - 3, _LARGEST_FACTOR_LOG2),
            [0.0, -0.0],
        ]
    )
    b = np.concatenate(
        [
            wide(3000, 8, low, -low),
            awkward(3000, 9),
            wide(200, 10, _SMALLEST_PRODUCT_LOG2, 0),
            [3.0, -5.0],
        ]
    )
    p, e = two_product(a, b)
    assert (p == a * b).all(), "the head is the rounded product"
    for i in range(a.size):
        assert exact_pair(p[i], e[i]) == Fraction(float(a[i])) * Fraction(float(b[i])), (
            f"two_product({a[i]!r}, {b[i]!r}) = ({p[i]!r}, {e[i]!r}) is not exact"
        )


def test_two_product_at_the_smallest_product():
    a = wide(2000, 11, _SMALLEST_PRODUCT_LOG2 + 500, _SMALLEST_PRODUCT_LOG2 + 501)
    b = wide(2000, 12, -500, -499)
    p, e = two_product(a, b)
    for i in range(a.size):
        assert exact_pair(p[i], e[i]) == Fraction(float(a[i])) * Fraction(float(b[i])), (
            f"two_product({a[i]!r}, {b[i]!r}): the documented lower end of the range does not hold"
        )


def worst(h, l, truth):
    """Largest relative error of the pairs (h, l), as a Fraction, with its index."""
    errors = [
        abs(exact_pair(h[i], l[i]) - t) / abs(t) if t else abs(exact_pair(h[i], l[i]))
        for i, t in enumerate(truth)
    ]
    index = max(range(len(errors)), key=errors.__getitem__)
    return errors[index], index


@pytest.mark.parametrize("seed", [20, 30])
def test_product_error_is_within_the_claim(seed):
    (ah, al), (bh, bl) = pairs(6000, seed), pairs(6000, seed + 1)
    h, l = multiply(ah, al, bh, bl)
    truth = [exact_pair(ah[i], al[i]) * exact_pair(bh[i], bl[i]) for i in range(ah.size)]
    error, i = worst(h, l, truth)
    assert error <= Fraction(PRODUCT_ERROR), (
        f"({ah[i]!r}, {al[i]!r}) * ({bh[i]!r}, {bl[i]!r}) is off by {float(error)!r} relative, "
        f"claimed {PRODUCT_ERROR!r}"
    )
    assert (np.abs(l) <= np.spacing(np.abs(h)) / 2).all(), "the product is a normalised pair"


@pytest.mark.parametrize("seed", [40, 50])
def test_quotient_error_is_within_the_claim(seed):
    (ah, al), (bh, bl) = pairs(6000, seed), pairs(6000, seed + 1)
    h, l = divide(ah, al, bh, bl)
    truth = [exact_pair(ah[i], al[i]) / exact_pair(bh[i], bl[i]) for i in range(ah.size)]
    error, i = worst(h, l, truth)
    assert error <= Fraction(QUOTIENT_ERROR), (
        f"({ah[i]!r}, {al[i]!r}) / ({bh[i]!r}, {bl[i]!r}) is off by {float(error)!r} relative, "
        f"claimed {QUOTIENT_ERROR!r}"
    )
    assert (np.abs(l) <= np.spacing(np.abs(h)) / 2).all(), "the quotient is a normalised pair"


def test_divisor_may_be_plain_floats_for_numpy_and_torch():
    (ah, al), (bh, bl) = pairs(500, 9), (3.0, 2.0**-55)
    expected = divide(ah, al, np.full_like(ah, bh), np.full_like(ah, bl))
    found = divide(ah, al, bh, bl)
    there = divide(torch.tensor(ah), torch.tensor(al), bh, bl)
    for e, f, t in zip(expected, found, there, strict=True):
        assert (e == f).all() and (e == t.numpy()).all()


def test_exact_cases_come_out_exact():
    one, zero = np.array([1.0]), np.array([0.0])
    h, l = multiply(np.array([3.0]), zero, np.array([7.0]), zero)
    assert (h[0], l[0]) == (21.0, 0.0), "3 * 7"
    h, l = divide(np.array([21.0]), zero, np.array([7.0]), zero)
    assert (h[0], l[0]) == (3.0, 0.0), "21 / 7"
    h, l = multiply(zero, zero, one, zero)
    assert (h[0], l[0]) == (0.0, 0.0), "0 * 1"
    h, l = divide(zero, zero, one, zero)
    assert (h[0], l[0]) == (0.0, 0.0), "0 / 1"
    tail = np.array([2.0**-60])
    h, l = divide(one, tail, one, tail)
    assert (h[0], l[0]) == (1.0, 0.0), "a pair divided by itself"
