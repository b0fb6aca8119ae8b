# SPDX-License-Identifier: Apache-2.0
"""Exact sums of floating-point numbers once more: integer significands in a bin per exponent.

This is slower than `assay.oracles.exact`, shares no code with it and never adds two floating-point
numbers, so that each can be checked against the other at sizes where rational arithmetic takes
too long.

A finite float64 with exponent field E and significand field F is +-(2**52 + F) * 2**(E - 1075) for
E > 0, and +-F * 2**(1 - 1075) for E = 0 (IEEE 754-2019, 3.4). The signed integers of equal E are
added, 26 low bits and the at most 27 bits above them apart. Both halves are below 2**27 in
magnitude, so int64 holds any sum of fewer than 2**36 of them. The bins are put together as Python
integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

_CHUNK = 1 << 16
_HALF_BITS = 26
_LOW = (1 << _HALF_BITS) - 1
_MOST_COLUMNS = 1 << 36

_FRACTION_BITS = 52
_EXPONENTS = 1 << 11
_NOT_FINITE = _EXPONENTS - 1
# What the unit of significands with exponent field 1 is: 2**_FIRST.
_FIRST = -1074


def sum_by_exponent(values: Any) -> list[Fraction]:
    """Exact sum of each row of a (rows, n) numpy matrix of finite numbers; a vector is one row.

    dtypes: float64 and whatever converts to it without loss; the conversion is done by chunks.
    Raises ValueError if a value is not finite, for other numbers of dimensions, and for 2**36
    columns and more, which could overflow a bin.
    """
    matrix = np.asarray(values)
    if matrix.ndim == 1:
        matrix = matrix[None, :]
    if matrix.ndim != 2:
        raise ValueError(f"expected a vector or a matrix of rows, got shape {matrix.shape}")
    n = matrix.shape[1]
    if n >= _MOST_COLUMNS:
        raise ValueError(f"expected fewer than 2**36 columns, got {n}: add parts of the rows")
    # As many rows at once as keep the bins no larger than a few chunks.
    height = max(1, _CHUNK // max(n, _EXPONENTS))
    totals: list[Fraction] = []
    for first in range(0, matrix.shape[0], height):
        rows = matrix[first : first + height]
        low, high = (np.zeros((len(rows), _EXPONENTS), np.int64) for _ in range(2))
        for column in range(0, n, _CHUNK):
            _fill(low, high, rows[:, column : column + _CHUNK])
        totals += _combine(low, high)
    return totals


def _fill(low: Integers, high: Integers, part: Any) -> None:
    """Add the halves of the significands of (rows, m) values to the bins, (rows, exponents)."""
    exponent, significand = _decode(part)
    if (exponent == _NOT_FINITE).any():
        raise ValueError("an exact sum needs finite values, got NaN or infinity")
    rows = np.arange(len(part))[:, None] * _EXPONENTS
    index = (rows + exponent).ravel()
    for bins, half in zip((low, high), _split(significand), strict=True):
        # Wraps around on overflow; the module's docstring says why there is none.
        np.add.at(bins.reshape(-1), index, half.ravel())


def _decode(part: Any) -> tuple[Integers, Integers]:
    """Exponent fields, subnormals' raised to 1, and signed integer significands."""
    with np.errstate(invalid="ignore"):  # a signalling NaN is refused later
        bits = np.array(part, dtype=np.float64, order="C").view(np.int64)
    exponent = (bits >> _FRACTION_BITS) & _NOT_FINITE
    fraction = bits & ((1 << _FRACTION_BITS) - 1)
    size = np.where(exponent > 0, fraction | (1 << _FRACTION_BITS), fraction)
    return np.maximum(exponent, 1), np.where(bits < 0, -size, size)


def _split(significand: Integers) -> tuple[Integers, Integers]:
    """(l, h) with l + h * 2**26 the significand, 0 <= l < 2**26 and |h| <= 2**27."""
    return significand & _LOW, significand >> _HALF_BITS


def _combine(low: Integers, high: Integers) -> Iterator[Fraction]:
    """The value of each row of bins."""
    for l_row, h_row in zip(low, high, strict=True):
        used = np.flatnonzero((l_row != 0) | (h_row != 0))
        if used.size == 0:
            yield Fraction(0)
            continue
        base = int(used[0])
        total = sum(
            (l + (h << _HALF_BITS)) << (e - base)
            for e, l, h in zip(
                used.tolist(), l_row[used].tolist(), h_row[used].tolist(), strict=True
            )
        )
        unit = base - 1 + _FIRST
        yield Fraction(total << unit) if unit >= 0 else Fraction(total, 1 << -unit)
