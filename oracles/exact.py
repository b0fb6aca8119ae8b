# SPDX-License-Identifier: Apache-2.0
"""Exact sums of floating-point numbers, by error-free extraction.

The rows of a matrix are summed at once, and the result is a `Fraction` for each row: no rounding
happens anywhere.

Extraction (after Rump, Ogita, Oishi, "Accurate floating-point summation", SIAM J. Sci. Comput. 31,
2008): for n <= 2**(L-1) numbers with |y| < 2**e take s = 1.5 * 2**(e+L) and q = (y + s) - s.
Adding s rounds y to a multiple of the unit w = ulp(s) = 2**(e+L-52), so q is a multiple of w, and
y - q is exact.
Any partial sum of the q is a multiple of w of magnitude at most 2**(L-1) * 2**e = 2**51 * w, which
a float64 holds exactly: *any order* of summation of the q is exact.
The remainder y - q is at most w/2, so each pass strips 52 - L + 1 bits off the largest magnitude,
and the loop ends when all remainders are zero.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from assay.oracles.double_double import two_product
from assay.oracles.formats import Float64

# 2**16 float64 values are half a megabyte: the temporaries of a pass stay in the cache.
_CHUNK_LOG2 = 16
_CHUNK = 1 << _CHUNK_LOG2
_L = _CHUNK_LOG2 + 1

# Magnitudes from here on would overflow the extraction constant; they are scaled down first.
_BIG_EXPONENT = 900
_SCALE_DOWN = 200


def exact_sum(values: Float64) -> list[Fraction]:
    """Exact sum of each row of a (rows, n) float64 matrix of finite numbers.

    A one-dimensional array counts as one row.
    Raises ValueError if a value is not finite: a sum with NaN or infinity has no exact value, and
    the callers decide by policy what it should be.
    """
    matrix = _as_matrix(values)
    totals = [Fraction(0)] * matrix.shape[0]
    for block, first in _row_blocks(matrix):
        for column in range(0, block.shape[1], _CHUNK):
            for part in _extract(block[:, column : column + _CHUNK]):
                for i, fraction in enumerate(part):
                    totals[first + i] += fraction
    return totals


def exact_sum_of_squares(values: Float64) -> list[Fraction]:
    """Exact sum of the squares of each row of a (rows, n) float64 matrix of finite numbers."""
    matrix = _as_matrix(values)
    return exact_dot(matrix, matrix)


def exact_dot(a: Float64, b: Float64) -> list[Fraction]:
    """Exact sum of a * b along each row of two (rows, n) float64 matrices of finite numbers.

    Products of float32 or narrower values fit a float64, and are summed directly.
    Wider significands go through TwoProduct, and magnitudes for which TwoProduct is not exact
    through rational arithmetic.
    """
    a, b = _as_matrix(a), _as_matrix(b)
    if a.shape != b.shape:
        raise ValueError(f"expected two matrices of one shape, got {a.shape} and {b.shape}")
    if a.size == 0:
        return [Fraction(0)] * a.shape[0]
    if _fits_float32(a) and _fits_float32(b):
        return exact_sum(a * b)
    if _two_product_is_exact(a) and _two_product_is_exact(b):
        high, low = two_product(a, b)
        return [h + l for h, l in zip(exact_sum(high), exact_sum(low), strict=True)]
    return [
        sum((Fraction(x) * Fraction(y) for x, y in zip(ra, rb, strict=True)), Fraction(0))
        for ra, rb in zip(a.tolist(), b.tolist(), strict=True)
    ]


def _as_matrix(values: Float64) -> Float64:
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim == 1:
        matrix = matrix[None, :]
    if matrix.ndim != 2:
        raise ValueError(f"expected a vector or a matrix of rows, got shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError("an exact sum needs finite values, got NaN or infinity")
    return matrix


def _row_blocks(matrix: Float64):  # type: ignore[no-untyped-def]
    """Blocks of whole rows holding about one chunk of elements each, with their first row."""
    rows = max(1, _CHUNK // max(1, matrix.shape[1]))
    for first in range(0, matrix.shape[0], rows):
        yield matrix[first : first + rows], first


def _fits_float32(values: Float64) -> bool:
    # A product of two 24-bit significands has at most 48 bits, and its exponent lies between
    # -298 and 256: exact in float64.
    with np.errstate(over="ignore"):
        return bool((values.astype(np.float32).astype(np.float64) == values).all())


def _two_product_is_exact(values: Float64) -> bool:
    magnitude = np.abs(values)
    nonzero = magnitude[magnitude > 0]
    return nonzero.size == 0 or bool(nonzero.max() < 2.0**490 and nonzero.min() > 2.0**-480)


def _extract(block: Float64) -> list[list[Fraction]]:
    """Exact parts of the row sums of a block of at most 2**16 columns."""
    y = np.array(block, dtype=np.float64)
    if y.size == 0:
        return []
    if np.abs(y).max() >= 2.0**_BIG_EXPONENT:
        # Scaling is exact for the big values; the others wait for their own call.
        big = np.abs(y) >= 1.0
        scaled = np.where(big, y, 0.0) * 2.0**-_SCALE_DOWN
        factor = Fraction(2) ** _SCALE_DOWN
        parts = [[f * factor for f in part] for part in _extract(scaled)]
        return parts + _extract(np.where(big, 0.0, y))
    parts = []
    while True:
        largest = np.abs(y).max(axis=1)
        if not largest.any():
            return parts
        _, e = np.frexp(largest)  # |y| < 2**e
        e = np.where(largest == 0.0, -1100, e)
        # Where e + L <= -1021 every value is a multiple of 2**-1074 and n values stay below
        # 2**53 of those, so that a plain sum is exact. No constant could round such values anyhow.
        plain = e + _L <= -1021
        s = np.ldexp(1.5, np.where(plain, 0, e + _L))[:, None]
        q = np.where(plain[:, None], y, (y + s) - s)
        y -= q
        parts.append([Fraction(v) for v in q.sum(axis=1).tolist()])
