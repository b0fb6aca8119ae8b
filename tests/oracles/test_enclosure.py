# SPDX-License-Identifier: Apache-2.0
"""Enclosures: errors measured against the truth, common points, and how they are made.

Everything is compared with rational arithmetic on the exact end points.
How they round is in test_enclosure_rounding.py.
"""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest

from assay.oracles.enclosure import (
    Enclosure,
    exactly,
    from_fractions,
    from_mpf,
    with_relative_error,
)
from assay.oracles.formats import FP16, FP32, FP64

# A rounding of a float64 evaluation is a factor of at most 1 + 2**-53.
ONE_ROUNDING = Fraction(1, 2**53)


def enclosure(*elements):
    """Enclosure of (center, tail, radius) triples, as a vector."""
    center, tail, radius = np.array(elements, dtype=np.float64).reshape(-1, 3).T
    return Enclosure(center.copy(), tail.copy(), radius.copy())


# --- errors ---------------------------------------------------------------------------------------


def test_error_agrees_with_rational_arithmetic():
    rng = np.random.default_rng(1)
    n = 4000
    center = np.ldexp(rng.uniform(-2.0, 2.0, n), rng.integers(-60, 60, n))
    tail = center * rng.uniform(-1.0, 1.0, n) * 2.0**-54
    off = np.where(rng.random(n) < 0.2, 0.0, 2.0 ** -rng.integers(1, 53, n).astype(float))
    out = center * (1.0 + off * rng.choice([-1.0, 1.0], n))
    error = Enclosure(center, tail, np.zeros(n)).error(out)
    for i in range(n):
        true = abs(Fraction(out[i]) - Fraction(center[i]) - Fraction(tail[i]))
        # Two subtractions: each rounds once, and the first is exact unless it is the larger part.
        assert abs(Fraction(error[i]) - true) <= 3 * ONE_ROUNDING * true, (
            f"error of {out[i]!r} against {center[i]!r} + {tail[i]!r}: {error[i]!r}, by rational "
            f"arithmetic {float(true)!r}"
        )


def test_errors_of_hand_made_examples():
    third = Fraction(1, 3)
    center = 1.0 / 3.0
    exact = enclosure((center, float(third - Fraction(center)), 2.0**-108))
    out = np.array([float(np.float32(center))])
    true = abs(Fraction(out[0]) - third) / Fraction(2) ** -25
    assert exact.ulp(FP32)[0] == 2.0**-25, "1/3 lies in [1/4, 1/2)"
    assert abs(Fraction(exact.ulps(out, FP32)[0]) - true) <= 3 * ONE_ROUNDING * true, (
        "1/3 rounded to float32 is off by a third of an ulp"
    )
    assert true == third, "by hand: float32(1/3) = 11184811/2**25, and 1/3 * 2**25 is 1/3 less"
    nearest, decided = exact.round(FP32)
    assert decided[0] and nearest[0] == out[0], "and it is the correctly rounded value"
    assert exact.excess(out, FP32, FP32)[0] == 0.0, "an error below half an ulp is rounding alone"


def test_excess_is_what_lies_beyond_the_last_rounding():
    exact = exactly(np.array([1.0, 1.0, 1.0]))
    out = np.array([1.0, 1.0 + 2.0**-10, 1.0 + 3 * 2.0**-10])
    # ulp of float16 at 1 is 2**-10, and 2**13 ulps of float32.
    assert exact.ulps(out, FP16).tolist() == [0.0, 1.0, 3.0], "errors in ulps of float16"
    assert exact.excess(out, FP16, FP32).tolist() == [0.0, 2.0**12, 5 * 2.0**12], (
        "what half an ulp of float16 does not explain, in ulps of float32"
    )


def test_errors_of_special_values_are_infinite_unless_expected():
    exact = enclosure((1.0, 0.0, 0.0), (np.inf, 0.0, 0.0), (np.nan, 0.0, 0.0))
    for out in (np.nan, np.inf, -np.inf):
        assert exact.error(np.full(3, out))[0] == np.inf, f"{out} where 1 is expected"
    assert np.isinf(exact.error(np.ones(3))[1:]).all(), "1 where infinity or NaN is expected"


def test_misrounded_counts_what_is_certainly_wrong():
    tie = 1.0 + 2.0**-24
    up = 1.0 + 2.0**-23
    exact = enclosure(
        (1.0, 0.0, 0.0),
        (1.0, 0.0, 0.0),
        (tie, 0.0, 0.0),
        (tie, 0.0, 0.0),
        (tie, 0.0, 2.0**-90),
        (np.nan, 0.0, 0.0),
        (np.inf, 0.0, 0.0),
        (np.inf, 0.0, 0.0),
    )
    out = np.array([1.0, up, 1.0, up, up, np.nan, np.inf, FP32.largest])
    wrong, open_ = exact.misrounded(out, FP32)
    assert wrong.tolist() == [False, True, False, True, False, False, False, True], (
        "wrong: another neighbour, the odd side of an exact tie, a number for an infinity"
    )
    assert open_.tolist() == [False] * 4 + [True] + [False] * 3, "undecided ties are reported apart"


def test_a_misrounding_across_the_overflow_threshold_is_seen():
    exact = exactly(np.array([65519.0, 65520.0, 65520.0]))
    wrong, open_ = exact.misrounded(np.array([np.inf, np.inf, 65504.0]), FP16)
    assert wrong.tolist() == [True, False, True] and not open_.any(), (
        "65520 is the first value that float16 rounds to infinity"
    )


# --- size and containment -------------------------------------------------------------------------


def random_enclosure(n, seed):
    rng = np.random.default_rng(seed)
    center = np.ldexp(rng.uniform(-2.0, 2.0, n), rng.integers(-300, 300, n))
    tail = center * rng.uniform(-1.0, 1.0, n) * 2.0**-54
    radius = np.abs(center) * np.where(rng.random(n) < 0.3, 0.0, rng.random(n) * 2.0**-60)
    return Enclosure(center, tail, radius)


def test_magnitude_is_an_upper_bound_and_not_by_much():
    exact = random_enclosure(2000, seed=2)
    size = exact.magnitude()
    for i in range(2000):
        lo, hi = exact.interval(i)
        top = max(abs(lo), abs(hi))
        assert top <= Fraction(size[i]), f"{size[i]!r} is below the enclosure's end {float(top)!r}"
        # The code adds 2**-50; a tail of the other sign and three roundings are 2**-51 at most.
        assert Fraction(size[i]) <= top * (1 + Fraction(1, 2**49)), "and it is a tight bound"
    wide = enclosure((0.0, 0.0, 3.0), (1.0, 0.5, 0.25), (-1.0, -0.5, 0.25), (1.0, 2.0**-54, 0.0))
    for i, top in enumerate((Fraction(3), Fraction(7, 4), Fraction(7, 4), 1 + Fraction(1, 2**54))):
        assert top <= Fraction(wide.magnitude()[i]), "tail and radius count, however large they are"
    special = exactly(np.array([np.nan, np.inf])).magnitude()
    assert np.isnan(special[0]) and np.isinf(special[1]), "NaN and infinity stay"


def test_interval_and_contains():
    exact = enclosure((1.0, 2.0**-60, 2.0**-70), (np.nan, 0.0, 0.0))
    lo, hi = exact.interval(0)
    middle = 1 + Fraction(1, 2**60)
    assert (lo, hi) == (middle - Fraction(1, 2**70), middle + Fraction(1, 2**70)), "the end points"
    assert exact.contains(lo, 0) and exact.contains(hi, 0), "the end points belong to it"
    step = Fraction(1, 2**200)
    assert not exact.contains(lo - step, 0) and not exact.contains(hi + step, 0), "no more"
    with pytest.raises(ValueError, match="nan"):
        exact.interval(1)


def test_intersects_where_there_is_a_common_point():
    r = 2.0**-60
    cases = (
        ("touch at an end", (1.0, 0.0, r), (1.0, 2 * r, r), True),
        ("overlap", (1.0, 0.0, r), (1.0, r, r), True),
        ("one inside the other", (1.0, 0.0, r), (1.0, r / 4, r / 8), True),
        ("the same point", (1.0, r, 0.0), (1.0, r, 0.0), True),
        (
            "the same point written in two ways",
            (1.0 + 2.0**-52, -(2.0**-53), 0.0),
            (1.0, 2.0**-53, 0.0),
            True,
        ),
        ("apart by a radius", (1.0, 0.0, r), (1.0, 3 * r, r), False),
        ("apart by a last bit of the tail", (1.0, r, 0.0), (1.0, r * (1 + 2.0**-40), 0.0), False),
        ("apart in float64", (1.0, 0.0, r), (1.0 + 2.0**-52, 0.0, r), False),
        ("opposite signs", (1.0, 0.0, r), (-1.0, 0.0, r), False),
        ("both NaN", (np.nan, 0.0, 0.0), (np.nan, 0.0, 0.0), True),
        ("both infinite", (np.inf, 0.0, 0.0), (np.inf, 0.0, 0.0), True),
        ("infinities of two signs", (np.inf, 0.0, 0.0), (-np.inf, 0.0, 0.0), False),
        ("NaN and a number", (np.nan, 0.0, 0.0), (1.0, 0.0, r), False),
        ("infinity and a number", (np.inf, 0.0, 0.0), (FP64.largest, 0.0, r), False),
        ("NaN and infinity", (np.nan, 0.0, 0.0), (np.inf, 0.0, 0.0), False),
    )
    left = enclosure(*(a for _, a, _, _ in cases))
    right = enclosure(*(b for _, _, b, _ in cases))
    for one, other in ((left, right), (right, left)):
        for (what, _, _, expected), got in zip(cases, one.intersects(other), strict=True):
            assert got == expected, f"{what}: intersects says {bool(got)}"


def test_intersects_never_misses_a_common_point():
    a = random_enclosure(3000, seed=3)
    rng = np.random.default_rng(4)
    # A neighbour whose end touches a's end as nearly as float64 can say.
    radius = np.abs(a.center) * rng.random(3000) * 2.0**-60
    sign = rng.choice([-1.0, 1.0], 3000)
    b = Enclosure(a.center, a.tail + sign * (a.radius + radius), radius)
    meets = a.intersects(b)
    for i in range(3000):
        (alo, ahi), (blo, bhi) = a.interval(i), b.interval(i)
        if alo <= bhi and blo <= ahi:
            assert meets[i], f"{(alo, ahi)} and {(blo, bhi)} have a point in common"


# --- making them ----------------------------------------------------------------------------------


def as_fraction(value):
    sign, mantissa, exponent, _ = value._mpf_
    return (-1) ** sign * Fraction(int(mantissa)) * Fraction(2) ** exponent


def test_from_mpf_encloses_what_it_was_given():
    ctx = mpmath.MPContext()
    ctx.prec = 200
    values = [
        ctx.sqrt(2),
        -ctx.pi,
        ctx.mpf(0),
        ctx.ldexp(ctx.sqrt(3), -600),
        ctx.exp(-708),
        ctx.exp(-720),
        ctx.exp(-745),
        ctx.exp(-800),
        ctx.ldexp(1, 1000) / 3,
    ]
    exact = from_mpf(values, relative_error=2.0**-170)
    for i, value in enumerate(values):
        y = as_fraction(value)
        for claimed in (y, y * (1 + Fraction(1, 2**170)), y * (1 - Fraction(1, 2**170))):
            assert exact.contains(claimed, i), (
                f"{float(y)!r} with its claimed error is not in {exact.interval(i)}"
            )


def test_from_mpf_keeps_special_values():
    ctx = mpmath.MPContext()
    exact = from_mpf([ctx.nan, ctx.inf, -ctx.inf, ctx.ldexp(1, 5000)], relative_error=0.0)
    assert np.isnan(exact.center[0]) and exact.center[1:].tolist() == [np.inf, -np.inf, np.inf], (
        "NaN, infinities, and a value beyond float64 that becomes infinite"
    )
    assert not exact.tail.any() and not exact.radius.any(), "special values have no tail or radius"


def test_with_relative_error_covers_the_error():
    pairs = random_enclosure(1000, seed=5)
    exact = with_relative_error(pairs.center, pairs.tail, 2.0**-98)
    for i in range(1000):
        y = Fraction(pairs.center[i]) + Fraction(pairs.tail[i])
        for end in (y * (1 + Fraction(1, 2**98)), y * (1 - Fraction(1, 2**98))):
            assert exact.contains(end, i), "a value off by the whole relative error is enclosed"


def test_a_pair_of_fractions_is_good_to_twice_53_bits():
    fractions = [Fraction(1, 3), Fraction(-2, 7), Fraction(0), Fraction(10**30, 7), Fraction(5)]
    found = from_fractions(fractions)
    center, tail = found.center, found.tail
    for f, c, t in zip(fractions, center, tail, strict=True):
        assert c == float(f), "center is the nearest float64"
        assert abs(Fraction(c) + Fraction(t) - f) <= abs(f) * ONE_ROUNDING**2, "tail is the rest"


def test_shapes():
    exact = exactly(np.arange(6.0).reshape(2, 3))
    assert exact.shape == (2, 3) and exact[1].shape == (3,) and exact[1, 2].shape == (), "indexing"
    assert float(exact[1, 2].center) == 5.0, "indexing picks the element"
    assert exact.reshape(3, 2).center.tolist() == [[0, 1], [2, 3], [4, 5]], "reshape"
    with pytest.raises(ValueError, match=r"one shape.*\(2,\), \(3,\), \(2,\)"):
        Enclosure(np.zeros(2), np.zeros(3), np.zeros(2))
