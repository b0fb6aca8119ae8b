# SPDX-License-Identifier: Apache-2.0
"""gamma, and what the last rounding may add; the bounds themselves are in test_bounds_*."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from assay.oracles.bounds import ROUND_UP, allowed, gamma
from assay.oracles.enclosure import Enclosure, exactly
from assay.oracles.formats import BF16, FP16, FP32, FP64, round_nearest, ulp
from assay.oracles.platform import Platform

U = FP32.u
INTERPRETER = Platform("interpreter", "", "", "3.7.1", "", "")
CUDA = Platform("cuda", "", "sm_90", "3.7.1", "", "")


def test_gamma_is_h_u_over_one_less_h_u():
    for h in (0, 1, 2, 3, 38, 1000, 2**20, 2**23, 2**24 - 1):
        exact = Fraction(h) * Fraction(U) / (1 - Fraction(h) * Fraction(U))
        got = gamma(h, U)
        assert exact <= Fraction(got) * Fraction(ROUND_UP), f"gamma({h}) = {got!r} is too small"
        # Three roundings of float64, one of them of the difference 1 - h u, which is exact here.
        assert Fraction(got) <= exact * (1 + Fraction(3, 2**53)), (
            f"gamma({h}) = {got!r} is too large"
        )


def test_gamma_is_infinite_from_h_u_of_one_on():
    assert gamma(2**24, U) == np.inf, "h u = 1"
    assert gamma(2**30, U) == np.inf, "h u = 64"
    assert gamma(2**11, FP16.u) == np.inf, "h u = 1 in float16"
    assert np.isfinite(gamma(2**24 - 1, U)), "just below"
    assert np.isfinite(gamma(2**24, FP64.u)), "in float64 there is room"


def test_an_exact_value_that_the_format_holds_must_be_equal():
    values = np.array([1.0, 0.0, -2.0, 1.0 + U])
    exact = exactly(values)
    for platform in (CUDA, INTERPRETER):
        for fmt in (FP16, BF16):
            limit = allowed(np.zeros(4), exact, fmt, platform.arithmetic())
            normal = [limit[0], limit[2]]
            assert normal == [0.0, 0.0], f"{fmt.name}: nothing is left to round"
            assert limit[3] > 0.0, f"{fmt.name} does not hold 1 + u"
    off = allowed(np.full(4, U), exact, FP16, CUDA.arithmetic())
    assert (off >= 0.5 * ulp(values, FP16)).all(), "a value that may be off is rounded as well"
    wide = Enclosure(values, np.zeros(4), np.full(4, 2.0**-60))
    assert (allowed(np.zeros(4), wide, FP16, CUDA.arithmetic()) > 0.0).all(), "not known exactly"


def test_allowed_adds_what_the_cast_may_do():
    # float32 holds it, float16 and bfloat16 do not.
    one = exactly(np.array([1.0 + 2.0**-20]))
    zero, gpu, host = np.zeros(1), CUDA.arithmetic(), INTERPRETER.arithmetic(FP32, True)
    truncating = INTERPRETER.arithmetic()
    for what, arithmetic, fmt, ulps in (
        ("float32 is stored as it is", gpu, FP32, 0.0),
        ("float16 rounds to nearest", gpu, FP16, 0.5),
        ("bfloat16 rounds to nearest", gpu, BF16, 0.5),
        ("float16 in the interpreter", truncating, FP16, 0.5),
        ("bfloat16 is truncated in the interpreter", truncating, BF16, 1.0),
        ("but not when torch casts", host, BF16, 0.5),
    ):
        got = float(allowed(zero, one, fmt, arithmetic)[0])
        assert got == ulps * float(ulp(np.ones(1), fmt)[0]) * ROUND_UP, f"{what}: {got}"


def test_allowed_looks_into_the_binade_above():
    below_two = exactly(np.array([2.0 - 2.0**-20]))
    step = 2.0**-10  # of float16 in [1, 2)
    near = allowed(np.array([2.0**-21]), below_two, FP16, CUDA.arithmetic())[0]
    over = allowed(np.array([2.0**-19]), below_two, FP16, CUDA.arithmetic())[0]
    assert near < 0.75 * step, "half an ulp of y's binade, as long as the value stays there"
    assert over >= step, "half an ulp of the binade above, if the value may reach it"


def test_allowed_is_infinite_with_the_bound():
    got = allowed(np.array([np.inf]), exactly(np.array([1.0])), FP16, CUDA.arithmetic())
    assert np.isinf(got).all(), "an infinite bound stays infinite"


def test_allowed_covers_the_two_roundings_of_a_float64():
    """float64 goes to 16 bits by way of float32, which can make a tie of what was none."""
    for fmt in (FP16, BF16):
        step = float(ulp(np.ones(1), fmt)[0])
        y = np.array([1.0 + 0.5 * step + 0.49 * 2.0**-23, 1.0 + 1.5 * step - 0.49 * 2.0**-23])
        out = round_nearest(round_nearest(y, FP32), fmt)
        assert (out != round_nearest(y, fmt)).all(), f"{fmt.name}: the second rounding is a tie"
        exact = exactly(y)
        limit = allowed(np.zeros(2), exact, fmt, CUDA.arithmetic(FP64))
        assert (exact.error(out) <= limit).all(), f"{fmt.name}: {exact.error(out)}, allowed {limit}"


def test_allowed_holds_for_every_value_that_the_kernel_may_have():
    """Values at the ends of y +- before, cast to nearest, against a center off by the radius."""
    rng = np.random.default_rng(9)
    n = 20_000
    for fmt in (FP16, BF16):
        y = np.ldexp(rng.uniform(-2.0, 2.0, n), rng.integers(fmt.emin - 12, 6, n))
        y[::4] = np.exp2(np.rint(np.log2(np.abs(y[::4]))))  # powers of two
        before = np.abs(y) * 2.0 ** -rng.integers(3, 40, n).astype(float)
        radius = np.where(rng.random(n) < 0.5, 0.0, np.abs(y) * 2.0**-20)
        center = y + radius * rng.choice([-1.0, 1.0], n)
        limit = allowed(before, Enclosure(center, np.zeros(n), radius), fmt, CUDA.arithmetic())
        for side in (-1.0, 1.0):
            # Towards y by a last bit, for the rounding of this very addition.
            value = np.nextafter(y + side * before, y)
            error = np.abs(round_nearest(value, fmt) - center)
            wrong = error > limit
            assert not wrong.any(), (
                f"{fmt.name}: y = {y[wrong][:1]}, before = {before[wrong][:1]}, value = "
                f"{value[wrong][:1]}: error {error[wrong][:1]}, allowed {limit[wrong][:1]}"
            )
