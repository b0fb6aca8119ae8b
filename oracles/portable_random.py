# SPDX-License-Identifier: Apache-2.0
"""Random numbers that come out bit for bit the same on every machine and numpy version.

numpy promises stable raw bits of its bit generators but not stable distributions, and libm's
functions differ between machines. So only raw Philox bits are used, and the transforms consist of
operations that IEEE 754 rounds correctly (+ - * / sqrt), which numpy applies one at a time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from assay.oracles.formats import Float64

_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")


def raw_bits(seed: int, stream: int, count: int) -> NDArray[np.uint64]:
    """`count` random 64-bit words; different streams of one seed are independent."""
    key = np.array([seed & (2**64 - 1), stream & (2**64 - 1)], dtype=np.uint64)
    return np.random.Philox(key=key).random_raw(count).astype(np.uint64, copy=False)


def integers(seed: int, stream: int, count: int, below: int) -> NDArray[np.int64]:
    """Integers in [0, below), below <= 2**32, by multiply and shift (bias under 2**-32)."""
    words = raw_bits(seed, stream, count) >> np.uint64(32)
    return ((words * np.uint64(below)) >> np.uint64(32)).astype(np.int64)


def uniform(seed: int, stream: int, count: int) -> Float64:
    """Uniform on (0, 1): odd multiples of 2**-53."""
    words = raw_bits(seed, stream, count) >> np.uint64(12)
    return (words.astype(np.float64) + 0.5) * 2.0**-52


def log(x: Float64) -> Float64:
    """Natural logarithm, good to a few ulps: ln m = 2 artanh((m-1)/(m+1)) plus the exponent."""
    mantissa, exponent = np.frexp(x)
    small = mantissa < 0.7071067811865476
    mantissa = np.where(small, mantissa * 2.0, mantissa)
    e = (exponent - small).astype(np.float64)
    z = (mantissa - 1.0) / (mantissa + 1.0)
    square = z * z
    series = np.zeros_like(z)
    for k in range(23, 0, -2):
        series = series * square + 1.0 / k
    return e * _LN2_HIGH + (2.0 * z * series + e * _LN2_LOW)


def _cos_turn(x: Float64) -> Float64:
    """cos(2 pi x) for 0 <= x <= 1, good to about 2**-48, by folding to an eighth and Taylor."""
    folded = np.where(x > 0.5, 1.0 - x, x)
    negative = folded > 0.25
    folded = np.where(negative, 0.5 - folded, folded)
    angle = folded * (2.0 * np.pi)
    square = angle * angle
    series = np.zeros_like(angle)
    for k in range(20, 0, -2):
        series = 1.0 - square * series / float(k * (k - 1))
    return np.where(negative, -series, series)


def normal(seed: int, stream: int, count: int) -> Float64:
    """Standard normal by Box and Muller's transform."""
    radius = np.sqrt(-2.0 * log(uniform(seed, 2 * stream, count)))
    return radius * _cos_turn(uniform(seed, 2 * stream + 1, count))
