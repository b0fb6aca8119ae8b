# SPDX-License-Identifier: Apache-2.0
"""Unevaluated pairs of float64: error-free transforms and the few operations the oracles need.

A pair (h, l) stands for h + l with |l| <= ulp(h)/2.
Error bounds are those of Joldes, Muller, Popescu, "Tight and rigorous error bounds for basic
building blocks of double-word arithmetic" (ACM TOMS 44, 2017), with u = 2**-53:
product (without FMA) 5u**2 here taken as 2**-100, quotient 9.8u**2 here taken as 2**-98.
They hold while no intermediate result leaves the normal range of float64.
"""

from __future__ import annotations

from assay.oracles.formats import Float64

PRODUCT_ERROR = 2.0**-100
QUOTIENT_ERROR = 2.0**-98

_SPLIT = 2.0**27 + 1.0


def two_sum(a: Float64, b: Float64 | float) -> tuple[Float64, Float64]:
    """(s, e) with s = fl(a + b) and s + e = a + b exactly (Knuth)."""
    s = a + b
    bb = s - a
    return s, (a - (s - bb)) + (b - bb)


def _split(a: Float64 | float) -> tuple[Float64 | float, Float64 | float]:
    c = _SPLIT * a
    high = c - (c - a)
    return high, a - high


def two_product(a: Float64, b: Float64 | float) -> tuple[Float64, Float64]:
    """(p, e) with p = fl(a * b) and p + e = a * b exactly (Dekker).

    Exact while |a|, |b| < 2**996 and the product is zero or above 2**-969.
    """
    p = a * b
    ah, al = _split(a)
    bh, bl = _split(b)
    return p, al * bl - (((p - ah * bh) - al * bh) - ah * bl)


def quick_two_sum(a: Float64, b: Float64) -> tuple[Float64, Float64]:
    """(s, e) with s = fl(a + b) and s + e = a + b exactly, where a = 0 or |a| >= |b| (Dekker)."""
    s = a + b
    return s, b - (s - a)


def multiply(ah: Float64, al: Float64, bh: Float64, bl: Float64) -> tuple[Float64, Float64]:
    """Product of two pairs, relative error at most `PRODUCT_ERROR`."""
    p, e = two_product(ah, bh)
    return quick_two_sum(p, e + (ah * bl + al * bh))


def divide(
    ah: Float64, al: Float64, bh: Float64 | float, bl: Float64 | float
) -> tuple[Float64, Float64]:
    """Quotient of two pairs, relative error at most `QUOTIENT_ERROR`; the divisor is not zero.

    The divisor may be two plain floats, for arrays of any backend.
    """
    q = ah / bh
    p, e = two_product(q, bh)
    ph, pl = quick_two_sum(p, e + q * bl)
    rh, rl = two_sum(ah, -ph)
    return quick_two_sum(q, (rh + (rl + (al - pl))) / bh)
