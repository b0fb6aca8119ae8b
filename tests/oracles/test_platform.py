# SPDX-License-Identifier: Apache-2.0
"""The error that is claimed for each primitive, and how platforms compare."""

from __future__ import annotations

import math

import mpmath
import numpy as np

from assay.oracles.formats import FP32, FP64
from assay.oracles.platform import Platform

F32 = np.float32
U = FP32.u
INTERPRETER = Platform("interpreter", "", "", "3.7.1", "", "")
CUDA = Platform("cuda", "", "sm_90", "3.7.1", "", "")


def test_float32_exp_of_numpy_is_within_its_claim():
    """The claim for the interpreter: 2.52 ulp where the result is normal, two spacings below."""
    t = np.concatenate(
        [
            -np.random.default_rng(11).random(3000) * 104.0,
            np.linspace(-104.0, -87.0, 1000),
            -np.exp2(np.arange(-30.0, 6.0)),
            [0.0],
        ]
    ).astype(F32)
    got = np.exp(t).astype(np.float64)
    ctx = mpmath.MPContext()
    ctx.prec = 100
    exact = [ctx.exp(float(v)) for v in t]
    arithmetic = INTERPRETER.arithmetic()
    relative = arithmetic.exp(t.astype(np.float64))
    for k, y in enumerate(exact):
        limit = y * relative[k] if y >= FP32.smallest_normal else arithmetic.exp_floor
        assert abs(ctx.mpf(got[k]) - y) <= limit, (
            f"numpy's exp({float(t[k]).hex()}) = {got[k].hex()} is off by "
            f"{float(abs(ctx.mpf(got[k]) - y) / y / U)}u, claimed {relative[k] / U}u"
        )


def test_log2e_in_float32_is_off_by_what_the_bound_says():
    ctx = mpmath.MPContext()
    ctx.prec = 100
    log2e = 1 / ctx.log(2)
    off = abs(ctx.mpf(float(F32(math.log2(math.e)))) / log2e - 1) / ctx.mpf(U)
    # exp(t) is 2**(t log2 e (1 + off u) (1 + u)): an error of (1 + off) u |t|, to first order.
    claimed = CUDA.arithmetic().exp(np.array([1.0]))[0] - 4.0 * U
    first_order = (1 + off) * U * (1 + U)
    assert first_order <= claimed, f"fl(log2 e) is off by {float(off)}u, more than the bound allows"


def test_arithmetic_of_a_wider_accumulator_uses_its_own_roundoff():
    single, double = CUDA.arithmetic(FP32), CUDA.arithmetic(FP64)
    assert double.u == FP64.u, "u belongs to the accumulator"
    assert double.division / FP64.u == single.division / FP32.u == 4.0, "2 ulp are 4u"
    assert math.isclose(double.rsqrt / FP64.u, single.rsqrt / FP32.u, rel_tol=FP64.u), "rsqrt too"
    assert double.cast(FP32) == 0.5, "and the cast to float32 rounds"
    assert INTERPRETER.arithmetic().atomic_flush == 0.0, "numpy flushes nothing"
    assert single.atomic_flush >= FP32.smallest_normal, "atomics in global memory flush"


def test_triton_versions_compare_as_numbers():
    assert CUDA.triton_release == (3, 7), "3.7.1"
    later = Platform("cuda", "", "", "3.10.0+git1234", "", "")
    assert later.triton_release > CUDA.triton_release, "3.10 comes after 3.7"
