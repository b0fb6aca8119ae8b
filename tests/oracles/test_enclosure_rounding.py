# SPDX-License-Identifier: Apache-2.0
"""Rounding an enclosure: the right neighbour, and no certainty where there is none.

Everything is compared with rational arithmetic on the exact end points.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from assay.oracles.enclosure import Enclosure, exactly
from assay.oracles.formats import BF16, FP16, FP32, FP64, ulp

ALL = (FP64, FP32, FP16, BF16)
SINGLE_OR_LESS = (FP32, FP16, BF16)


def by_name(fmt):
    return fmt.name


def enclosure(*elements):
    """Enclosure of (center, tail, radius) triples, as a vector."""
    center, tail, radius = np.array(elements, dtype=np.float64).reshape(-1, 3).T
    return Enclosure(center.copy(), tail.copy(), radius.copy())


def as_pair(y):
    """(center, tail) of a rational, None if two float64 do not hold it."""
    try:
        center = float(y)
    except OverflowError:
        return None
    tail = float(y - Fraction(center))
    return (center, tail) if Fraction(center) + Fraction(tail) == y else None


def binade(y, fmt):
    """The e with 2**e <= |y| < 2**(e+1), floored at emin."""
    y = abs(y)
    e = y.numerator.bit_length() - y.denominator.bit_length()
    if y < Fraction(2) ** e:
        e -= 1
    return max(e, fmt.emin)


def exact_ulp(y, fmt):
    e = binade(y, fmt) if y else fmt.emin
    return Fraction(2) ** (min(e, fmt.emax) - fmt.precision + 1)


def rounded(y, fmt):
    """A rational rounded to nearest, ties to even, as float64; overflow becomes infinity."""
    if y == 0:
        return 0.0
    step = Fraction(2) ** (binade(y, fmt) - fmt.precision + 1)
    nearest = round(y / step) * step  # Python rounds half to even
    if abs(nearest) > Fraction(fmt.largest):
        return float(np.copysign(np.inf, float(y)))
    return float(nearest)


def interesting_values(fmt):
    """Values of the format from its corners, with their upper neighbours' distance."""
    one, last = 1.0, 2.0 - 2.0 ** (1 - fmt.precision)
    even, odd = 1.0 + 2.0 ** (2 - fmt.precision), 1.0 + 2.0 ** (1 - fmt.precision)
    tiny, normal = fmt.smallest_subnormal, fmt.smallest_normal
    values = [one, odd, even, last, 2.0**10 * odd, 0.1875, 0.0, tiny, 2 * tiny, 3 * tiny]
    values += [normal, normal - tiny, normal + tiny, 0.5 * fmt.largest]
    if fmt is not FP64:  # above the largest float64 there is no float64 to be the center
        values.append(fmt.largest)
    return [(Fraction(v), exact_ulp(Fraction(v), fmt)) for v in values]


def test_rounded_here_is_right():
    assert rounded(Fraction(2**24 + 1), FP32) == 2.0**24, "a tie goes to even"
    assert rounded(Fraction(2**24 + 3), FP32) == 2.0**24 + 4, "a tie goes to even"
    assert rounded(Fraction(65520), FP16) == np.inf, "the overflow threshold of float16"
    assert rounded(Fraction(65520) - Fraction(1, 2**40), FP16) == 65504.0, "just below it"
    assert rounded(Fraction(3, 2**26), FP16) == 2.0**-24, "a subnormal"
    assert rounded(Fraction(-3, 2**25), FP16) == -(2.0**-23), "a subnormal tie goes to even"


# --- rounding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1, -1], ids=["positive", "negative"])
@pytest.mark.parametrize("fmt", SINGLE_OR_LESS, ids=by_name)
def test_exact_values_round_as_rationals_do(fmt, sign):
    offsets = [Fraction(k, 8) for k in range(9)]
    offsets += [Fraction(1, 2) + s * Fraction(1, 2**k) for s in (1, -1) for k in (10, 20, 27)]
    ys = [sign * (v + f * step) for v, step in interesting_values(fmt) for f in offsets]
    ys = [y for y in ys if Fraction(float(y)) == y]
    got, decided = exactly(np.array([float(y) for y in ys])).round(fmt)
    for y, value, sure in zip(ys, got.tolist(), decided.tolist(), strict=True):
        assert value == rounded(y, fmt), (
            f"{fmt.name}: {float(y).hex()} rounds to {value!r}, should be {rounded(y, fmt)!r}"
        )
        assert sure, f"{fmt.name}: {float(y).hex()} is known exactly, a tie included: decided"


def pairs_off_a_tie(fmt, bits, factors=(1,)):
    """Rationals near a tie of the format with their pairs: off it by factor / 2**k of a step."""
    for value, step in interesting_values(fmt):
        for sign in (1, -1):
            tie = sign * (value + step / 2)
            for k in bits:
                for off in [side * Fraction(f) / 2**k for f in factors for side in (1, -1)]:
                    y = tie + off * step
                    pair = as_pair(y)
                    if pair is not None:
                        yield y, pair


@pytest.mark.parametrize("fmt", SINGLE_OR_LESS, ids=by_name)
@pytest.mark.parametrize(
    "bits",
    [range(2, 30), range(30, 52), range(52, 60), range(60, 75)],
    ids=["near a tie", "in the tail", "at the last bit of the offset", "below the last bit"],
)
def test_exact_pairs_round_as_rationals_do(fmt, bits):
    """A pair known exactly is rounded right, however little its tail takes it off a midpoint."""
    cases = list(pairs_off_a_tie(fmt, bits))
    got, decided = enclosure(*((*pair, 0.0) for _, pair in cases)).round(fmt)
    wrong = [
        (pair, value, rounded(y, fmt))
        for (y, pair), value, sure in zip(cases, got.tolist(), decided.tolist(), strict=True)
        if sure and value != rounded(y, fmt)
    ]
    assert not wrong, (
        f"{fmt.name}: {len(wrong)} of {len(cases)} exact pairs beside a tie are said to be decided "
        "and go to the wrong side, first center {}, tail {}, radius 0: got {}, should be {}".format(
            *(v.hex() for v in (*wrong[0][0], *wrong[0][1:]))
        )
    )


def distance_to_tie(y, fmt):
    """Distance of a rational from the nearest midpoint of two neighbours of the format."""
    step = Fraction(2) ** (binade(y, fmt) - fmt.precision + 1)
    ratio = abs(y) / step
    return abs(ratio - ratio.numerator // ratio.denominator - Fraction(1, 2)) * step


@pytest.mark.parametrize(
    ("fmt", "bits"),
    [(f, range(2, 50, 6)) for f in ALL] + [(f, range(50, 74, 2)) for f in SINGLE_OR_LESS],
    ids=lambda v: getattr(v, "name", None) or f"2**-{v.start} of a step",
)
def test_decided_means_the_whole_enclosure_rounds_to_one_value(fmt, bits):
    """Radii about as large as the distance to the midpoint, a little less and a little more."""
    shares = [Fraction(k, 8) for k in (2, 7, 9, 10, 24)]
    triples = [
        (*pair, float(distance_to_tie(y, fmt) * share))
        for y, pair in pairs_off_a_tie(fmt, bits, factors=(1, Fraction(3, 2)))
        for share in shares
    ]
    exact = enclosure(*triples)
    got, decided = exact.round(fmt)
    wrong = []
    for i in np.flatnonzero(decided):
        lo, hi = exact.interval(i)
        if not rounded(lo, fmt) == rounded(hi, fmt) == got[i]:
            wrong.append((triples[i], got[i], rounded(lo, fmt), rounded(hi, fmt)))
    assert not wrong, (
        f"{fmt.name}: {len(wrong)} of {len(triples)} roundings are said to be decided though the "
        "enclosure reaches across a midpoint, first center {}, tail {}, radius {}: decided as {}, "
        "the ends round to {} and {}".format(
            *(float(v).hex() for v in (*wrong[0][0], *wrong[0][1:]))
        )
    )
    assert decided.any() and not decided.all(), f"{fmt.name}: the radii give both answers"


@pytest.mark.parametrize("fmt", ALL, ids=by_name)
def test_wide_enclosures_are_decided_when_both_ends_round_alike(fmt):
    """Radii up to a whole step, at and beside powers of two too, where the steps change."""
    triples = []
    for value, step in interesting_values(fmt):
        for offset in (-3, -2, -1, 0, 1, 2, 3, 6, 7):
            y = value + offset * step / 8
            pair = as_pair(y)
            if pair is not None:
                radii = (
                    float(share * exact_ulp(y, fmt) / 32) for share in (1, 3, 7, 9, 13, 15, 18)
                )
                triples += [(*pair, radius) for radius in radii]
    triples += [(-center, -tail, radius) for center, tail, radius in triples]
    exact = enclosure(*triples)
    got, decided = exact.round(fmt)
    for i, triple in enumerate(triples):
        lo, hi = (rounded(end, fmt) for end in exact.interval(i))
        text = f"{fmt.name}: center, tail, radius {[v.hex() for v in triple]}"
        if decided[i]:
            assert lo == hi == got[i], f"{text}: said to be {got[i].hex()}, the ends {lo} and {hi}"
        else:
            assert lo != hi, f"{text}: rounds to {lo.hex()} throughout, so it is decided"


def test_hand_made_decisions_of_float32():
    tie = 1.0 + 2.0**-24
    up = 1.0 + 2.0**-23
    exact = enclosure(
        (tie, 0.0, 0.0),  # the tie itself, known exactly: even
        (tie, 0.0, 2.0**-90),  # it may lie on either side
        (tie, 2.0**-60, 2.0**-61),  # the tail says up
        (tie, -(2.0**-60), 2.0**-61),  # the tail says down
        (tie, 2.0**-60, 2.0**-59),  # the tail says up, the radius says perhaps
        (up + 2.0**-24, 0.0, 0.0),  # the tie above: even is up
        (1.0, 2.0**-54, 2.0**-100),  # far from any tie
    )
    got, decided = exact.round(FP32)
    assert got[[0, 2, 3, 5, 6]].tolist() == [1.0, up, 1.0, up + 2.0**-23, 1.0], (
        "ties to even, and the tail chooses the side"
    )
    assert decided.tolist() == [True, False, True, True, False, True, True], (
        "decided unless the enclosure reaches across a midpoint"
    )


@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["positive", "negative"])
@pytest.mark.parametrize("fmt", SINGLE_OR_LESS, ids=by_name)
def test_rounding_overflows_at_the_threshold(fmt, sign):
    threshold = fmt.largest + float(exact_ulp(Fraction(fmt.largest), fmt)) / 2
    tail = threshold * 2.0**-60
    exact = enclosure(
        (sign * fmt.largest, 0.0, 0.0),
        (sign * threshold, -sign * tail, 0.0),
        (sign * threshold, 0.0, 0.0),
        (sign * threshold, sign * tail, 0.0),
        (sign * threshold, 0.0, tail),
    )
    got, decided = exact.round(fmt)
    expected = [fmt.largest, fmt.largest, np.inf, np.inf]
    assert (sign * got[:4]).tolist() == expected, (
        f"{fmt.name}: at the overflow threshold the even neighbour is 2**(emax+1), so infinity; a "
        "tail below it keeps the largest finite value"
    )
    assert decided.tolist() == [True, True, True, True, False], (
        f"{fmt.name}: undecided only where the enclosure reaches across the threshold"
    )


def test_special_results_round_to_themselves():
    for fmt in ALL:
        got, decided = exactly(np.array([np.nan, np.inf, -np.inf])).round(fmt)
        assert np.isnan(got[0]) and got[1:].tolist() == [np.inf, -np.inf], f"{fmt.name}: specials"
        assert decided.all(), f"{fmt.name}: an expected NaN or infinity is decided"


def test_the_largest_float64_is_rounded_without_a_warning():
    exact = enclosure((FP64.largest, 0.0, 0.0), (FP64.largest, 2.0**900, 0.0))
    got, decided = exact.round(FP64)
    assert (got == FP64.largest).all() and decided.all(), "it stays the largest float64"


def test_float64_rounds_to_the_center():
    got, decided = enclosure((1.0, 2.0**-54, 2.0**-100), (1.0, 2.0**-53, 2.0**-100)).round(FP64)
    assert got[0] == 1.0, "center is the nearest float64 by construction"
    assert decided.tolist() == [True, False], "a tail of half an ulp is a tie of float64"


# --- the binade of the exact value ----------------------------------------------------------------


@pytest.mark.parametrize("fmt", ALL, ids=by_name)
def test_a_tail_below_a_power_of_two_means_the_lower_binade(fmt):
    step = float(exact_ulp(Fraction(1), fmt))
    exact = enclosure((1.0, 2.0**-60, 0.0), (1.0, 0.0, 0.0), (1.0, -(2.0**-60), 0.0))
    for sign in (1.0, -1.0):
        signed = Enclosure(sign * exact.center, sign * exact.tail, exact.radius)
        assert signed.ulp(fmt).tolist() == [step, step, step / 2], (
            f"{fmt.name}: the ulp is that of the exact value, which lies below {sign}"
        )
    ulps = exact.ulps(np.full(3, 1.0 + step), fmt)
    assert ulps[2] > ulps[0], f"{fmt.name}: so the same error counts twice as many ulps"


@pytest.mark.parametrize("fmt", ALL, ids=by_name)
def test_the_floor_of_the_ulp_holds_below_the_normal_range(fmt):
    normal, tiny = fmt.smallest_normal, fmt.smallest_subnormal
    exact = enclosure(
        (normal, 0.0, 0.0), (normal, -tiny * 2.0**-30, 0.0), (tiny, 0.0, 0.0), (0.0, 0.0, 0.0)
    )
    assert (exact.ulp(fmt) == tiny).all(), f"{fmt.name}: the spacing of the subnormals"


@pytest.mark.parametrize("fmt", ALL, ids=by_name)
def test_ulp_of_exact_values_is_the_formats_ulp(fmt):
    values = np.array([float(v) for v, _ in interesting_values(fmt)])
    assert (exactly(values).ulp(fmt) == ulp(values, fmt)).all(), (
        f"{fmt.name}: without a tail the two ulps are the same function"
    )
