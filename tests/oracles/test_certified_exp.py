# SPDX-License-Identifier: Apache-2.0
"""The certified exponential against mpmath and Arb, and planted errors that they must find."""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
import torch

from assay.oracles import certified_exp
from assay.oracles.arrays import NUMPY, arrays_of
from assay.oracles.certified_exp import (
    COARSE,
    CUT,
    CUT_FINE,
    CUT_TERM,
    CUT_TERM_FINE,
    EXP_ERROR,
    EXP_ERROR_FINE,
    FINE,
    TOP,
    exp_double_double,
    exp_elements,
    exp_pair,
    exp_row_sums,
)
from assay.oracles.double_double import quick_two_sum, two_sum
from assay.oracles.exp_table import STEPS, constants, constants_on
from assay.oracles.multiprecision import context, from_fraction

CTX = context(200)
LEVELS = pytest.mark.parametrize("fine", [False, True], ids=["pair", "double_double"])

# What the proof arrives at before it is rounded up to the claim.
PROVED = {False: 2.0**-62.1, True: 2.0**-86.4}


def level(fine):
    """As it is now: a test may have planted an error in it."""
    return certified_exp.FINE if fine else certified_exp.COARSE


def function(fine):
    return exp_double_double if fine else exp_pair


def heads(seed=1):
    """Arguments from CUT to TOP."""
    rng = np.random.default_rng(seed)
    step = math.log(2.0) / STEPS
    lowest, highest = math.ceil(CUT / step), math.floor(TOP / step)
    # Each entry of the table twice, at any power of two, anywhere in its interval.
    j = np.tile(np.arange(STEPS), 2)
    powers = rng.integers(-1009, 1022, j.size)
    entries = (STEPS * powers + j + rng.uniform(-0.5, 0.5, j.size)) * step
    # Where k changes, from both sides.
    half = (rng.integers(lowest, highest, 2000) + 0.5) * step
    near_zero = (np.arange(-64, 64) + 0.5) * step
    half = np.concatenate([half, near_zero])
    half = np.concatenate([half, np.nextafter(half, -np.inf), np.nextafter(half, np.inf)])
    whole = np.arange(-64, 65) * step
    binades = np.ldexp(rng.uniform(1.0, 2.0, (72, 40)), np.arange(-62, 10)[:, None]).ravel()
    tiny = np.ldexp(1.0, np.arange(-1074, -62, 12))
    signed = np.concatenate([binades, -binades, tiny, -tiny])
    edges = [0.0, -0.0, 1.0, -1.0, math.log(2.0), -math.log(2.0), *np.arange(-700.0, 710.0)]
    for edge in (CUT, CUT_FINE, TOP):
        inside = math.copysign(0.5, edge) * rng.random(99)
        edges += [edge, np.nextafter(edge, 0.0), *(edge - inside)]
    found = np.concatenate([entries, half, whole, signed, edges])
    return found[(found >= CUT) & (found <= TOP)]


def with_tails(t_high, seed=2):
    """Low words of every size up to half an ulp, which they reach in both directions; and none."""
    rng = np.random.default_rng(seed)
    half_ulp = np.spacing(np.abs(t_high)) * 0.5
    tail = half_ulp * rng.uniform(-1.0, 1.0, t_high.size)
    edge = half_ulp * rng.choice([-1.0, 1.0], t_high.size)
    which = rng.integers(0, 8, t_high.size)
    return np.choose(which, [tail, tail, tail, tail, tail * 2.0**-30, edge, edge, 0.0 * tail])


class Points:
    """Arguments with mpmath's exponentials of them."""

    def __init__(self):
        self.high = heads()
        self.low = with_tails(self.high)
        self.exact = [
            CTX.exp(CTX.mpf(h) + CTX.mpf(l))
            for h, l in zip(self.high.tolist(), self.low.tolist(), strict=True)
        ]

    def errors(self, fine):
        """Relative errors of a level at the points that it promises something about."""
        h, l = function(fine)(self.high, self.low)
        promised = self.high >= (CUT_FINE if fine else CUT)
        return np.array(
            [
                float(abs(CTX.mpf(a) + CTX.mpf(b) - e) / e)
                for a, b, e, p in zip(h.tolist(), l.tolist(), self.exact, promised, strict=True)
                if p
            ]
        )


@pytest.fixture(scope="module")
def points():
    return Points()


def log2(x):
    return math.log2(x) if x else -math.inf


@LEVELS
def test_error_is_below_the_claim_and_below_what_was_proved(points, fine):
    errors = points.errors(fine)
    worst = float(errors.max())
    print(f"{function(fine).__name__}: {errors.size} points, worst error 2**{log2(worst):.2f}")
    assert errors.size >= 15000
    assert worst <= PROVED[fine] < level(fine).error


def test_claims():
    assert (EXP_ERROR, EXP_ERROR_FINE) == (2.0**-60, 2.0**-85)
    assert (COARSE.error, COARSE.cut, COARSE.cut_term) == (EXP_ERROR, CUT, CUT_TERM)
    assert (FINE.error, FINE.cut, FINE.cut_term) == (EXP_ERROR_FINE, CUT_FINE, CUT_TERM_FINE)
    for each in (COARSE, FINE):
        assert CTX.exp(each.cut) < each.cut_term


def test_points_use_every_entry_of_the_table(points):
    k = np.rint(points.high * constants().per_step).astype(np.int64)
    for cut in (CUT, CUT_FINE):
        assert set((k[points.high >= cut] % STEPS).tolist()) == set(range(STEPS))


@LEVELS
def test_error_is_below_the_claim_by_arb(points, fine):
    flint = pytest.importorskip("flint")
    chosen = slice(None, None, 3)
    t_high, t_low = points.high[chosen], points.low[chosen]
    h, l = function(fine)(t_high, t_low)
    before = flint.ctx.prec
    flint.ctx.prec = 256
    try:
        error = flint.arb(level(fine).error)
        for i in np.flatnonzero(t_high >= level(fine).cut).tolist():
            exact = (flint.arb(float(t_high[i])) + flint.arb(float(t_low[i]))).exp()
            found = flint.arb(float(h[i])) + flint.arb(float(l[i]))
            assert abs(found - exact) <= error * exact, f"exp({t_high[i]!r} + {t_low[i]!r})"
    finally:
        flint.ctx.prec = before


@LEVELS
def test_shape_of_the_pairs(points, fine):
    h, l = function(fine)(points.high, points.low)
    promised = points.high >= level(fine).cut
    assert (h[promised] >= 2.0**-1011).all() and np.isfinite(h).all()
    if fine:
        assert (h + l == h).all(), "the pair is normalised"
    else:
        assert (np.abs(l) <= 2.0**-11 * h).all()


@LEVELS
def test_zero_gives_exactly_one(fine):
    h, l = function(fine)(np.array([0.0, -0.0]), np.zeros(2))
    assert h.tolist() == [1.0, 1.0] and l.tolist() == [0.0, 0.0]


@LEVELS
def test_arguments_below_the_cut_give_zero(fine):
    cut = level(fine).cut
    below = np.array([np.nextafter(cut, -np.inf), cut - 1.0, -1e300, -np.inf, cut])
    h, l = function(fine)(below, np.array([0.0, 0.0, 0.0, np.nan, 0.0]))
    assert (h[:-1] == 0.0).all() and (l[:-1] == 0.0).all()
    assert h[-1] > 0.0, "the cut itself still counts as an argument"


@LEVELS
@pytest.mark.parametrize("bad", [np.nan, np.inf, np.nextafter(TOP, np.inf)])
def test_arguments_that_no_pair_can_answer_are_refused(fine, bad):
    with pytest.raises(ValueError, match=r"expected arguments up to 709\.0"):
        function(fine)(np.array([0.0, bad, -1.0]), np.zeros(3))


@LEVELS
def test_operands_are_left_alone(points, fine):
    high, low = points.high.copy(), points.low.copy()
    function(fine)(high, low)
    assert high.tobytes() == points.high.tobytes() and low.tobytes() == points.low.tobytes()


@LEVELS
def test_numpy_and_torch_agree_in_every_bit(points, fine):
    here = function(fine)(points.high, points.low)
    there = function(fine)(torch.tensor(points.high), torch.tensor(points.low))
    for a, b in zip(here, there, strict=True):
        assert a.tobytes() == b.numpy().tobytes()


def families():
    rng = np.random.default_rng(5)
    normal = rng.normal(size=(3, 257))
    big = np.finfo(np.float64).max
    return {
        "float64": normal,
        "float32": normal.astype(np.float32),
        "float16": (normal * 8).astype(np.float16),
        "wide": rng.uniform(-750.0, 0.0, (3, 257)),
        "near_the_cuts": rng.choice([0.0, *np.linspace(-702, -678, 49)], (2, 200)),
        "constant": np.full((2, 100), 0.1),
        "masked": np.where(rng.random((3, 257)) < 0.5, -np.inf, normal),
        "far_apart": rng.normal(size=(3, 257)).astype(np.float32) * np.float32(1e30),
        "cancelling": 2.0**60 + np.arange(257.0)[None, :] * 256,
        "offset": (1e6 + normal).astype(np.float32),
        "overflowing": np.array([[big, -big, big / 2, -np.inf]]),
        "tiny": normal * 2.0**-1060,
        "one": np.array([[-3.5]]),
    }


def maxima_of(x):
    return x.astype(np.float64).max(axis=1)


def exact_terms(row, maximum):
    return [
        CTX.exp(CTX.mpf(v) - maximum) if v > -math.inf else CTX.mpf(0)
        for v in row.astype(np.float64).tolist()
    ]


def sums_are_enclosed(x, fine):
    """Whether the interval of each row contains mpmath's sum and is as narrow as claimed."""
    maxima = maxima_of(x)
    found = exp_row_sums(x, maxima, fine=fine)
    for i, row in enumerate(x):
        # 200 bits hold the terms below the cut only in part, and do not need to.
        exact = CTX.fsum(exact_terms(row, float(maxima[i])))
        low, high = (from_fraction(CTX, bound) for bound in found.interval(i))
        slack = exact * CTX.mpf(2) ** -190
        narrow = high - low <= 3 * found.level.error * exact
        if not (narrow and low - slack <= exact <= high + slack):
            return False
    return True


@LEVELS
@pytest.mark.parametrize("name", families())
def test_sums_are_enclosed(name, fine):
    assert sums_are_enclosed(families()[name], fine)


@LEVELS
@pytest.mark.parametrize("name", families())
def test_sums_do_not_depend_on_chunks_or_backend(name, fine, monkeypatch):
    x = families()[name]
    maxima = maxima_of(x)
    whole = exp_row_sums(x, maxima, fine=fine)
    there = exp_row_sums(torch.tensor(x), maxima, fine=fine)
    assert there == whole
    monkeypatch.setattr(certified_exp, "_SMALLEST_CHUNK", 64)
    assert exp_row_sums(x, maxima, fine=fine) == whole
    monkeypatch.setattr(certified_exp, "_SMALLEST_CHUNK", 600)
    assert exp_row_sums(x, maxima, fine=fine) == whole


@LEVELS
def test_the_sum_is_that_of_the_elements(fine):
    for x in families().values():
        h, l = exp_elements(x, maxima_of(x), fine=fine)
        sums = [
            sum((Fraction(a) for a in [*hs, *ls]), Fraction(0))
            for hs, ls in zip(h.tolist(), l.tolist(), strict=True)
        ]
        assert exp_row_sums(x, maxima_of(x), fine=fine).sums == sums


def elements_are_right(x, fine):
    """Whether the elements not cut are as near to mpmath's as claimed."""
    h, l = exp_elements(x, maxima_of(x), fine=fine)
    assert h.shape == l.shape == x.shape
    for i, maximum in enumerate(maxima_of(x).tolist()):
        for a, b, e in zip(h[i].tolist(), l[i].tolist(), exact_terms(x[i], maximum), strict=True):
            error = abs(CTX.mpf(a) + CTX.mpf(b) - e)
            cut_off = a == 0.0 and e < level(fine).cut_term
            if not (cut_off or error <= level(fine).error * e):
                return False
    return True


@LEVELS
@pytest.mark.parametrize("name", families())
def test_elements(name, fine):
    assert elements_are_right(families()[name], fine)


@LEVELS
def test_terms_cut_are_counted(fine):
    cut = level(fine).cut
    x = np.array([[0.0, cut, np.nextafter(cut, -np.inf), -1e4, -np.inf], [1e4, 0, 1e4, 1e4, 1e4]])
    found = exp_row_sums(x, maxima_of(x), fine=fine)
    assert found.cut == [2, 1]
    assert found.sums[1] == 4
    assert found.interval(1)[1] == 4 / (1 - Fraction(found.level.error)) + Fraction(
        found.level.cut_term
    )


def test_bfloat16():
    x = torch.tensor(np.random.default_rng(7).normal(size=(2, 500)) * 30).to(torch.bfloat16)
    wide = x.to(torch.float64).numpy()
    assert exp_row_sums(x, maxima_of(wide)) == exp_row_sums(wide, maxima_of(wide))


def test_empty():
    assert exp_row_sums(np.zeros((2, 0)), np.zeros(2)).sums == [0, 0]
    assert exp_row_sums(np.zeros((0, 5)), np.zeros(0)).cut == []
    assert exp_elements(np.zeros((2, 0)), np.zeros(2))[0].shape == (2, 0)
    assert exp_pair(np.zeros(0), np.zeros(0))[0].shape == (0,)


def test_operands_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="one maximum for each of its rows"):
        exp_row_sums(np.zeros((2, 3)), np.zeros(3))
    with pytest.raises(ValueError, match="one maximum for each of its rows"):
        exp_elements(np.zeros(3), np.zeros(1))
    with pytest.raises(ValueError, match="expected finite maxima"):
        exp_row_sums(np.zeros((2, 3)), np.array([0.0, np.inf]))
    with pytest.raises(ValueError, match="or NaN"):
        exp_row_sums(np.array([[0.0, np.nan]]), np.zeros(1))
    with pytest.raises(ValueError, match="expected arguments up to"):
        exp_row_sums(np.array([[0.0, 800.0]]), np.zeros(1))


@LEVELS
def test_memory_stays_below_three_times_the_input(fine):
    x = np.random.default_rng(8).normal(size=(1, 1 << 22)).astype(np.float32)
    maxima = maxima_of(x)
    tracemalloc.start()
    try:
        exp_row_sums(x, maxima, fine=fine)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    print(f"{peak / x.nbytes:.2f} times the input")
    assert x.nbytes + peak < 3 * x.nbytes


# Errors planted. Each test says by which check the error is found; the checks pass above.


def plant(monkeypatch, **changes):
    """Other constants for both levels."""
    monkeypatch.setattr(
        certified_exp, "constants_on", lambda arrays: constants_on(arrays)._replace(**changes)
    )


def is_found(points, fine):
    return points.errors(fine).max() > level(fine).error


def changed(values, index, value):
    found = list(values) if isinstance(values, tuple) else values.copy()
    found[index] = value
    return tuple(found) if isinstance(values, tuple) else found


def test_planting_nothing_is_found_by_nothing(points, monkeypatch):
    plant(monkeypatch)
    assert not is_found(points, False) and not is_found(points, True)


@LEVELS
@pytest.mark.parametrize("towards", [0.0, 3.0])
@pytest.mark.parametrize("j", [0, 1, 511, 512, 700, 1023])
def test_one_entry_off_by_an_ulp_is_found(points, monkeypatch, fine, j, towards):
    table = constants().table_high
    plant(monkeypatch, table_high=changed(table, j, np.nextafter(table[j], towards)))
    assert is_found(points, fine)
    # Nowhere but where that entry is used.
    k = np.rint(points.high * constants().per_step).astype(np.int64)
    hit = (k % STEPS == j)[points.high >= level(fine).cut]
    wrong = points.errors(fine) > level(fine).error
    assert (wrong == hit).all()


@LEVELS
def test_a_lost_low_word_of_the_table_is_found(points, monkeypatch, fine):
    table = constants().table_low
    plant(monkeypatch, table_low=changed(table, 700, 0.0))
    assert is_found(points, fine)
    plant(monkeypatch, table_low=np.zeros_like(table))
    assert is_found(points, fine)


@pytest.mark.parametrize(
    ("fine", "changes"),
    [
        (False, {"step_rest": 0.0}),
        (True, {"step": changed(constants().step, 1, 0.0)}),
        (True, {"step": changed(constants().step, 2, 0.0)}),
    ],
    ids=["pair_second", "double_double_second", "double_double_third"],
)
def test_a_lost_word_of_the_step_is_found(points, monkeypatch, fine, changes):
    plant(monkeypatch, **changes)
    assert is_found(points, fine)


# (level, n, change of 1/n!): |r|**n times the change is a few times the claim. The last term of
# exp_pair is below the claim as a whole: only a coefficient that is far too large is one that
# matters.
@pytest.mark.parametrize(
    ("fine", "n", "change"),
    [
        (False, 2, 2.0**-35),
        (False, 3, 2.0**-24),
        (False, 4, 2.0**-12),
        (False, 5, 1.0),
        (True, 3, 2.0**-49),
        (True, 4, 2.0**-37),
        (True, 5, 2.0**-26),
        (True, 6, 2.0**-14),
    ],
)
def test_a_wrong_coefficient_is_found(points, monkeypatch, fine, n, change):
    right = constants().inverse_factorial
    plant(monkeypatch, inverse_factorial=changed(right, n, right[n] + change))
    assert is_found(points, fine)


def set_level(monkeypatch, fine, **changes):
    name = "FINE" if fine else "COARSE"
    monkeypatch.setattr(certified_exp, name, level(fine)._replace(**changes))


@LEVELS
def test_a_dropped_low_word_of_the_argument_is_found(points, monkeypatch, fine):
    right = level(fine).evaluate
    set_level(monkeypatch, fine, evaluate=lambda a, c, h, l: right(a, c, h, l * 0.0))
    assert is_found(points, fine)
    assert not elements_are_right(families()["float64"], fine)


@LEVELS
def test_a_difference_rounded_to_one_word_is_found(monkeypatch, fine):
    monkeypatch.setattr(certified_exp, "two_sum", lambda a, b: (a + b, 0.0 * a))
    assert not elements_are_right(families()["float64"], fine)
    assert not sums_are_enclosed(families()["float64"], fine)


@LEVELS
@pytest.mark.parametrize("wrong_by", [50.0, 2.0])
def test_a_cut_too_early_is_found(points, monkeypatch, fine, wrong_by):
    set_level(monkeypatch, fine, cut=level(fine).cut + wrong_by)
    assert is_found(points, fine)
    assert not elements_are_right(families()["near_the_cuts"], fine)


def test_a_cut_too_late_is_found(points, monkeypatch):
    # The low words that exp_double_double needs are no longer there.
    set_level(monkeypatch, True, cut=CUT)
    h, l = exp_double_double(points.high, points.low)
    worst = max(
        float(abs(CTX.mpf(a) + CTX.mpf(b) - e) / e)
        for a, b, e in zip(h.tolist(), l.tolist(), points.exact, strict=True)
    )
    assert worst > EXP_ERROR_FINE


@LEVELS
def test_an_element_lost_is_found(monkeypatch, fine):
    right = certified_exp.exact_sum
    monkeypatch.setattr(certified_exp, "exact_sum", lambda values: right(values[:, 1:]))
    assert not sums_are_enclosed(families()["float64"], fine)


def test_pairs_normalise(points):
    h, l = quick_two_sum(*exp_pair(points.high, points.low))
    assert (h + l == h).all()
    s, e = two_sum(*exp_pair(points.high, points.low))
    assert (s == h).all() and (e == l).all()


def test_tables_are_not_shared_between_backends():
    assert constants_on(NUMPY).table_high is constants().table_high
    assert isinstance(constants_on(arrays_of(torch.zeros(1))).table_high, torch.Tensor)
