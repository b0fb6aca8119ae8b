# SPDX-License-Identifier: Apache-2.0
"""Exact sums of floating-point numbers, by error-free extraction.

The rows of a matrix are summed at once, and the result is a `Fraction` for each row: no rounding
happens anywhere. The same lines run on numpy arrays and on torch tensors of any device, in IEEE
float64 (`assay.oracles.arrays`).

The matrix is read in blocks of about one chunk. A first sweep finds each block's largest
magnitude, and whether all is finite; a second one extracts. Only blocks are converted to float64,
so that a float32 matrix of any size costs a few chunks of memory beside itself.

Extraction (after Rump, Ogita, Oishi, "Accurate floating-point summation part I", SIAM J. Sci.
Comput. 31, 2008, with the constant that Demmel and Nguyen use for reproducible sums)
----------------------------------------------------------------------------------------------
Let |y| <= 2**e, s = 1.5 * 2**(e+L) with L >= 1 and w = ulp(s) = 2**(e+L-52).
Take q = (y + s) - s and r = y - q.

* y + s lies between 2**(e+L) and 2**(e+L+1), where the float64 numbers are the multiples of w. So
  the addition rounds y to a nearest multiple of w, q; the subtraction of s is exact, both being
  multiples of w less than 2**52 * w apart.
* 2**e is a multiple of w, and rounding is monotone, so |q| <= 2**e = 2**(52-L) * w.
* r is the rounding error of an addition, negated. It is a float64 number, so y - q is exact, and
  |r| <= w/2 = 2**(e+L-53): the next pass takes this as its 2**e, 53 - L bits lower.
* Every partial sum of n of the q, in any order, is a multiple of w of magnitude at most
  n * 2**(52-L) * w. For n <= 2**(L+1) that is at most 2**53 * w, which a float64 holds, so by
  induction no addition rounds. *Any* order is exact: numpy's pairwise sums and a GPU's trees alike.

A block is summed in groups of `_GROUP` = 2**(L+1) values. The groups' sums, divided by w, are
integers of at most 54 bits. From here on all is integer arithmetic: see `_units` and `_Totals`.
The loop ends where q equals y in the whole block: nothing is left.

Ends of the range: where e + L <= -1022, s would be subnormal and could round nothing; but then the
values are multiples of 2**-1074, and 2**(L+1) of them add up to at most 2**(e+L+1) <= 2**-1021 =
2**53 * 2**-1074, so a plain sum is exact. And where e is so large that s or a sum could overflow,
the magnitudes from 1 on are scaled by a power of two, which loses nothing, and the others summed
by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from assay.oracles.arrays import NUMPY, Arrays, arrays_of
from assay.oracles.double_double import two_product

# A group is what is added in floating point, and the headroom L goes with it.
_GROUP_LOG2 = 10
_GROUP = 1 << _GROUP_LOG2
_L = _GROUP_LOG2 - 1

# The exponent of the smallest positive float64, and that of the smallest normal one.
_LAST = -1074
_SMALLEST_NORMAL = -1022

# Larger exponents would overflow the constant or a sum; such values are scaled down first.
_BIG_EXPONENT = 1000
_BIG = 1.0
_SCALE_DOWN = 200

# A chunk need not be smaller than this for the sake of memory.
_SMALL_CHUNK = 1 << 16

# TwoProduct (Dekker) is exact while factors stay below 2**996 and the product above 2**-969.
_LARGEST = 2.0**960
_SMALLEST = 2.0**-960
# Exponents of the products for which it is not are taken in bands of this width.
_BAND = 256

# Products of two of these have at most 48 bits and exponents between -298 and 256.
_PRODUCTS_FIT = {"float32", "float16", "bfloat16", "int16", "int8", "uint8", "bool"}
_INTEGERS = {"int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool"}
_DTYPES = {"float64"} | _PRODUCTS_FIT | _INTEGERS


def exact_sum(values: Any) -> list[Fraction]:
    """Exact sum of each row of a (rows, n) matrix of finite numbers; a vector is one row.

    `values`: a numpy array or torch tensor of float64, float32, float16, bfloat16 or integers.
    Raises ValueError if a value is not finite (a sum with NaN or infinity has no exact value, and
    the callers decide by policy what it should be), for integers of 2**53 and more, and for other
    numbers of dimensions; TypeError for other dtypes.
    """
    x = _operand(values)
    totals, scratch = _Totals(x.rows), _Scratch(x.arrays)
    for block, (y,), (e,) in _blocks([x], scratch):
        totals.add_all(block, _extract(scratch, y, e))
    return totals.fractions()


def exact_sum_of_magnitudes(values: Any) -> list[Fraction]:
    """Exact sum of |x| over each row; arguments, result and errors as those of `exact_sum`."""
    x = _operand(values)
    totals, scratch = _Totals(x.rows), _Scratch(x.arrays)
    for block, (y,), (e,) in _blocks([x], scratch):
        totals.add_all(block, _extract(scratch, abs(y), e))
    return totals.fractions()


def exact_sum_of_squares(values: Any) -> list[Fraction]:
    """Exact sum of x * x over each row; arguments, result and errors as those of `exact_sum`."""
    return _sum_of_products([_operand(values)])


def exact_dot(a: Any, b: Any) -> list[Fraction]:
    """Exact sum of a * b over each row of two matrices of one shape, as `exact_sum`.

    Products of float32 or narrower values fit a float64, and are summed directly: known from the
    dtype, or from the values of a block of float64.
    Wider significands go through TwoProduct, and the elements for which TwoProduct is not exact
    are split into significand and exponent first.
    Raises ValueError also if the shapes differ, and TypeError if a is numpy's and b torch's.
    """
    left, right = _operand(a), _operand(b)
    if left.matrix.shape != right.matrix.shape:
        raise ValueError(
            "expected two matrices of one shape, got "
            f"{tuple(left.matrix.shape)} and {tuple(right.matrix.shape)}"
        )
    if left.arrays is not right.arrays:
        raise TypeError("expected two arrays of one library and device: move one of them first")
    return _sum_of_products([left, right])


@dataclass(frozen=True)
class _Operand:
    matrix: Any
    arrays: Arrays
    dtype: str

    @property
    def rows(self) -> int:
        return int(self.matrix.shape[0])


def _operand(values: Any) -> _Operand:
    arrays = arrays_of(values)
    matrix = np.asarray(values) if arrays is NUMPY else values.detach()
    dtype = getattr(matrix.dtype, "name", str(matrix.dtype).removeprefix("torch."))
    if dtype not in _DTYPES:
        raise TypeError(f"expected values that float64 can hold, got dtype {dtype}")
    if matrix.ndim == 1:
        matrix = matrix[None, :]
    if matrix.ndim != 2:
        raise ValueError(f"expected a vector or a matrix of rows, got shape {tuple(matrix.shape)}")
    return _Operand(matrix, arrays, dtype)


class _Scratch:
    """Arrays that are kept from block to block.

    Fresh memory for the temporaries of each pass would cost more time than the pass itself.
    """

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self._kept: dict[str, Any] = {}

    def copy(self, name: str, a: Any) -> Any:
        """A float64 copy of `a`, in the array of that name if it has the shape."""
        kept = self._kept.get(name)
        if kept is None or kept.shape != a.shape:
            kept = self._kept[name] = self.arrays.float64(a)
        else:
            kept[...] = a
        return kept


@dataclass(frozen=True)
class _Block:
    """The rows from `first` on, and some of their columns."""

    first: int
    where: tuple[slice, slice]


def _divide(rows: int, n: int, chunk: int) -> list[_Block]:
    """Blocks of whole rows, or of parts of one row, holding about one chunk of elements each."""
    if rows == 0 or n == 0:
        return []
    width = min(n, chunk)
    height = max(1, chunk // n)
    return [
        _Block(row, (slice(row, row + height), slice(column, column + width)))
        for row in range(0, rows, height)
        for column in range(0, n, width)
    ]


def _blocks(
    operands: list[_Operand], scratch: _Scratch
) -> Iterator[tuple[_Block, list[Any], list[int]]]:
    """Each block that is not zero, with every operand's float64 copy y and e: |y| < 2**e.

    The copies may be overwritten, and are by the next block.
    """
    rows, n = operands[0].matrix.shape
    chunk = min(operands[0].arrays.chunk, max(_SMALL_CHUNK, rows * n // 8))
    blocks = _divide(rows, n, chunk)
    exponents = [_exponents(x, blocks) for x in operands]
    for i, block in enumerate(blocks):
        tops = [e[i] for e in exponents]
        # A block with an operand of zeros adds nothing.
        known = [e for e in tops if e is not None]
        if len(known) == len(tops):
            parts = [x.matrix[block.where] for x in operands]
            yield block, [scratch.copy(f"{j}", part) for j, part in enumerate(parts)], known


def _exponents(x: _Operand, blocks: list[_Block]) -> list[int | None]:
    """For each block the least e with |x| < 2**e, None if all is zero; ValueError if not finite."""
    with np.errstate(invalid="ignore"):
        # On a GPU nothing waits here: the results are fetched afterwards.
        parts = (x.matrix[b.where] for b in blocks)
        if x.dtype == "float16":
            parts = (x.arrays.float64(part) for part in parts)  # numpy compares these slowly
        extremes = [(part.max(), part.min()) for part in parts]
    found = [_exponent(float(largest), float(smallest)) for largest, smallest in extremes]
    if x.dtype in _INTEGERS and any(e is not None and e > 53 for e in found):
        raise ValueError("an exact sum needs integers below 2**53: convert them to Python's")
    return found


def _exponent(largest: float, smallest: float) -> int | None:
    # Both libraries' max and min return NaN if there is one.
    if not (math.isfinite(largest) and math.isfinite(smallest)):
        raise ValueError("an exact sum needs finite values, got NaN or infinity")
    magnitude = max(largest, -smallest)
    return math.frexp(magnitude)[1] if magnitude else None


# The parts of a block's row sums: the exponent of a unit, and an integer number of units per row.
_Parts = Iterator[tuple[int, list[int]]]


def _extract(scratch: _Scratch, y: Any, e: int, scaled: int = 0) -> _Parts:
    """Exact parts of the row sums of y * 2**scaled, a float64 block with |y| <= 2**e.

    y is overwritten.
    """
    arrays = scratch.arrays
    if e > _BIG_EXPONENT:
        big = abs(y) >= _BIG
        down = arrays.where(big, y, 0.0) * 2.0**-_SCALE_DOWN
        yield from _extract(scratch, down, e - _SCALE_DOWN, scaled + _SCALE_DOWN)
        yield from _extract(scratch, arrays.where(big, 0.0, y), 0, scaled)
        return
    while not _is_plain(e):
        unit = e + _L - 52
        s = math.ldexp(1.5, e + _L)
        q = scratch.copy("q", y)
        q += s
        q -= s
        sums = _group_sums(arrays, q)
        yield unit + scaled, _units(sums, unit)
        if _same(y, q):
            return
        y -= q
        # A pass that found nothing says that the largest value is far below: find out how far.
        below = unit - 1 if sums.any() else _exponent(float(y.max()), float(y.min()))
        assert below is not None, "a remainder that is zero has ended the loop"
        e = below
    yield _LAST + scaled, _units(_group_sums(arrays, y), _LAST)


def _is_plain(e: int) -> bool:
    """Whether values of magnitude 2**e at most can be added as they are."""
    return e + _L <= _SMALLEST_NORMAL


def _same(y: Any, q: Any) -> bool:
    # Where a look at a few elements shows a difference, the others need not be read.
    return bool((y[:1, :256] == q[:1, :256]).all()) and bool((y == q).all())


def _group_sums(arrays: Arrays, q: Any) -> Any:
    """Floating-point sums over at most `_GROUP` values each, as a numpy (rows, groups) array."""
    rows, n = q.shape
    whole = n // _GROUP * _GROUP
    parts = []
    if whole:
        parts.append(arrays.host(q[:, :whole].reshape(rows, -1, _GROUP).sum(-1)))
    if whole < n:
        parts.append(arrays.host(q[:, whole:].sum(-1)[:, None]))
    return np.concatenate(parts, axis=1)


def _units(sums: Any, unit: int) -> list[int]:
    """Row sums, in units of 2**unit, of multiples of it of magnitude up to 2**53 units.

    `sums`: float64, (rows, groups). High and low 32 bits are added apart: halves of at most 32
    bits, so that int64 holds the sums of up to 2**31 groups.
    """
    whole = np.ldexp(sums, -unit).astype(np.int64)
    if whole.shape[1] == 1:
        return list(whole[:, 0].tolist())
    high, low = (whole >> 32).sum(axis=1), (whole & 0xFFFFFFFF).sum(axis=1)
    return [(h << 32) + l for h, l in zip(high.tolist(), low.tolist(), strict=True)]


class _Totals:
    """Row sums as Python integers, in units of a power of two that all rows share."""

    # How far the unit is lowered beyond what is needed, so that this is rare.
    spare = 64

    def __init__(self, rows: int) -> None:
        self.unit: int | None = None
        self.sums = [0] * rows

    def add_all(self, block: _Block, parts: _Parts) -> None:
        for unit, counts in parts:
            shift = self._shift(unit)
            for row, count in enumerate(counts, block.first):
                self.sums[row] += count << shift

    def _shift(self, unit: int) -> int:
        if self.unit is None:
            self.unit = unit - self.spare
        if unit < self.unit:
            lower = unit - self.spare
            self.sums = [total << (self.unit - lower) for total in self.sums]
            self.unit = lower
        return unit - self.unit

    def fractions(self) -> list[Fraction]:
        unit = self.unit or 0
        if unit >= 0:
            return [Fraction(total << unit) for total in self.sums]
        denominator = 1 << -unit
        return [Fraction(total, denominator) for total in self.sums]


def _sum_of_products(operands: list[_Operand]) -> list[Fraction]:
    """Exact row sums of the products of two operands, or of the squares of one."""
    totals, scratch = _Totals(operands[0].rows), _Scratch(operands[0].arrays)
    fit = [x.dtype in _PRODUCTS_FIT for x in operands]
    for block, values, exponents in _blocks(operands, scratch):
        a, b = values[0], values[-1]
        e = exponents[0] + exponents[-1]
        if all(known or _is_narrow(y) for known, y in zip(fit, values, strict=True)):
            a *= b
            totals.add_all(block, _extract(scratch, a, e))
        else:
            totals.add_all(block, _wide_products(scratch, a, b, e))
    return totals.fractions()


def _is_narrow(y: Any) -> bool:
    """Whether all values have at most 24 bits and are zero or between 2**-149 and 2**128.

    Veltkamp's splitting (Boldo, "Pitfalls of a full floating-point proof", 2006) rounds to 24 bits.
    """
    size = abs(y)
    if not bool((((size >= 2.0**-149) & (size < 2.0**128)) | (size == 0.0)).all()):
        return False
    c = y * (2.0**29 + 1.0)
    return bool((c - (c - y) == y).all())


def _wide_products(scratch: _Scratch, a: Any, b: Any, e: int) -> _Parts:
    """Exact parts of the row sums of a * b for float64 blocks with |a * b| < 2**e."""
    arrays = scratch.arrays
    trusted = _two_product_is_exact(a, b)
    odd = arrays.host(~trusted & (a != 0.0) & (b != 0.0))
    if odd.any():
        yield from _in_bands(np.where(odd, arrays.host(a), 0.0), np.where(odd, arrays.host(b), 0.0))
    high, low = two_product(arrays.where(trusted, a, 0.0), arrays.where(trusted, b, 0.0))
    e = min(e, math.frexp(_LARGEST)[1])
    yield from _extract(scratch, high, e)
    # The error of a product below 2**e is at most half an ulp there.
    yield from _extract(scratch, low, e - 53)


def _two_product_is_exact(a: Any, b: Any) -> Any:
    """Element by element; False where the product is zero, which TwoProduct need not see."""
    with np.errstate(over="ignore", under="ignore"):
        size = abs(a * b)
    return (size >= _SMALLEST) & (size <= _LARGEST) & (abs(a) <= _LARGEST) & (abs(b) <= _LARGEST)


def _in_bands(a: Any, b: Any) -> _Parts:
    """Exact parts of the row sums of a * b for numpy blocks of any finite float64.

    TwoProduct is exact for the significands, between 1/2 and 1. Products whose exponents lie in
    one band are scaled to between 2**-2 and 2**_BAND, their errors to multiples of 2**-106.
    """
    scratch = _Scratch(NUMPY)
    (a, ea), (b, eb) = np.frexp(a), np.frexp(b)
    high, low = two_product(a, b)
    band, e = np.divmod(ea + eb, _BAND)
    for k in np.unique(band[high != 0.0]).tolist():
        for part in (high, low):
            y = np.ldexp(np.where(band == k, part, 0.0), e)
            yield from _extract(scratch, y, _BAND, k * _BAND)
