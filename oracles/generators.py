# SPDX-License-Identifier: Apache-2.0
"""Data families: named ways to fill a (rows, n) matrix from a seed, the same bits anywhere.

Values come back as float64 that the format holds exactly.
Above `POOL_ABOVE` elements the random families draw from a pool of `POOL` distinct values, so that
mpmath, which needs one evaluation for each distinct value, stays usable at any size.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from assay.oracles.formats import Float64, Format, round_nearest
from assay.oracles.portable_random import integers, log, normal, raw_bits, uniform

POOL = 4096
POOL_ABOVE = 8192
# 1/10 and relatives: no short significand, so that every addition of a constant rounds.
_CONSTANTS = (0.1, 1.0 / 3.0, 0.7, 1.0 + 2.0**-10, 123.456)

Family = Callable[[int, int, Format], Float64]

FAMILIES: dict[str, tuple[Family, str]] = {}


def _family(meaning: str) -> Callable[[Family], Family]:
    def register(function: Family) -> Family:
        FAMILIES[function.__name__.lstrip("_")] = (function, meaning)
        return function

    return register


@_family("standard normal")
def _normal(seed: int, count: int, fmt: Format) -> Float64:
    return normal(seed, 1, count)


@_family("uniform on (0, 1)")
def _uniform(seed: int, count: int, fmt: Format) -> Float64:
    return uniform(seed, 1, count)


@_family("one value everywhere, chosen by the seed: all roundings go the same way")
def _constant(seed: int, count: int, fmt: Format) -> Float64:
    return np.full(count, _CONSTANTS[seed % len(_CONSTANTS)])


@_family("1 everywhere: the simplest input there is")
def _ones(seed: int, count: int, fmt: Format) -> Float64:
    return np.ones(count)


@_family("random sign, magnitude 2**-20 to 2**20 (2**-8 to 2**8 in float16)")
def _wide(seed: int, count: int, fmt: Format) -> Float64:
    reach = 8 if fmt.emax < 16 else 20
    e = integers(seed, 3, count, 2 * reach + 1) - reach
    return np.ldexp(normal_sign(seed, count) * (1.0 + uniform(seed, 1, count)), e.astype(np.int32))


@_family("whole numbers from -8 to 8: sums and sums of squares are exact in any order")
def _integers(seed: int, count: int, fmt: Format) -> Float64:
    return integers(seed, 1, count, 17).astype(np.float64) - 8.0


@_family("normal times 30: a long way from the maximum, as with sharp attention")
def _wide_logits(seed: int, count: int, fmt: Format) -> Float64:
    return 30.0 * normal(seed, 1, count)


@_family("normal - 100: far below zero, so that zero padding wins a maximum")
def _negative(seed: int, count: int, fmt: Format) -> Float64:
    return normal(seed, 1, count) - 100.0


@_family("normal with a quarter of the elements -inf")
def _masked(seed: int, count: int, fmt: Format) -> Float64:
    return np.where(integers(seed, 5, count, 4) == 0, -np.inf, normal(seed, 1, count))


@_family("normal with one element in 64 a hundred times larger, as real models have")
def _outliers(seed: int, count: int, fmt: Format) -> Float64:
    return normal(seed, 1, count) * np.where(integers(seed, 5, count, 64) == 0, 100.0, 1.0)


@_family("normal scaled so that squares are near or below the smallest float32")
def _tiny(seed: int, count: int, fmt: Format) -> Float64:
    # 2**-70 squares to 2**-140; float16 has no such values, its subnormals must do.
    return normal(seed, 1, count) * (2.0**-70 if fmt.emin < -100 else 2.0**-20)


@_family("normal scaled so that squares are near or above the largest float32")
def _huge(seed: int, count: int, fmt: Format) -> Float64:
    return normal(seed, 1, count) * (2.0**62 if fmt.emax > 100 else 2.0**13)


@_family("second half cancels the first but for the last bits: an ill-conditioned sum")
def _cancelling(seed: int, count: int, fmt: Format) -> Float64:
    half = count // 2
    first = round_nearest(_wide(seed, half, fmt), fmt)
    order = np.argsort(raw_bits(seed, 11, half), kind="stable")
    small = 2.0 ** (4 - fmt.precision)
    noise = normal(seed, 13, half) * small
    rest = np.full(count - 2 * half, small)
    return np.concatenate([first, -first[order] * (1.0 + noise), rest])


@_family("one element that absorbs ones: 2**precision among ones, its place chosen by the seed")
def _absorbing(seed: int, count: int, fmt: Format) -> Float64:
    values = np.ones(count)
    if count:
        values[(0, count - 1, count // 2, seed % count)[seed % 4]] = 2.0 ** min(
            fmt.precision, fmt.emax
        )
    return values


@_family("powers of two over all exponents but the highest 24")
def _ladder(seed: int, count: int, fmt: Format) -> Float64:
    lowest = fmt.emin - fmt.precision + 1
    top = fmt.emax - (24 if fmt.emax > 100 else 10)
    return np.ldexp(1.0, ((np.arange(count) + seed) % (top - lowest) + lowest).astype(np.int32))


@_family("normal + 1024: a mean far above the deviation")
def _offset(seed: int, count: int, fmt: Format) -> Float64:
    return normal(seed, 1, count) + 1024.0


@_family("whole numbers from -1 to 2: most elements have equals")
def _ties(seed: int, count: int, fmt: Format) -> Float64:
    return integers(seed, 1, count, 4).astype(np.float64) - 1.0


@_family("three in four zero, of either sign, and a few subnormals")
def _sparse(seed: int, count: int, fmt: Format) -> Float64:
    kind = integers(seed, 5, count, 8)
    small = np.where(kind == 7, fmt.smallest_subnormal, normal(seed, 1, count))
    return np.where(kind < 6, np.copysign(0.0, normal_sign(seed, count)), small)


@_family("near -log(count): a logsumexp near zero, where its relative condition has no limit")
def _near_zero_logsumexp(seed: int, count: int, fmt: Format) -> Float64:
    least = -log(np.array([float(max(1, count))]))
    return np.asarray(least + normal(seed, 1, count) * 2.0**-12)


# Families whose elements go together: each row is made by itself.
TOGETHER = ("cancelling", "absorbing", "ladder", "near_zero_logsumexp")
# Drawing those from a pool would undo what they are for, and a pool of one value is needless.
STRUCTURED = ("constant", "ones", *TOGETHER)
# From the seed of one row to that of the next: another place, another stream.
_NEXT_ROW = 2**32 + 1
# The stream that says which of the pool comes where.
POOL_STREAM = 7


def normal_sign(seed: int, count: int) -> Float64:
    """Random signs, +1 or -1."""
    return np.where(raw_bits(seed, 9, count) >> np.uint64(63) == 0, 1.0, -1.0)


def family_named(family: str) -> Family:
    """The function of a data family; ValueError lists the known ones otherwise."""
    try:
        return FAMILIES[family][0]
    except KeyError:
        raise ValueError(
            f"unknown data family {family!r}: expected one of {', '.join(FAMILIES)}"
        ) from None


def pool_of(family: str, seed: int, fmt: Format) -> Float64:
    """The `POOL` values that a long input of the family is drawn from."""
    return _kept_finite(round_nearest(family_named(family)(seed, POOL, fmt), fmt), family, fmt)


def _kept_finite(values: Float64, family: str, fmt: Format) -> Float64:
    if fmt.emax < 16:
        # float16 ends at 65504; keep what a family meant as finite finite.
        largest = np.copysign(fmt.largest, values)
        values = np.where(np.isinf(values) & (family != "masked"), largest, values)
    return values


def generate(family: str, rows: int, n: int, seed: int, fmt: Format) -> Float64:
    """A (rows, n) matrix of the family, rounded to `fmt`; ValueError for an unknown family."""
    function = family_named(family)
    count = rows * n
    if family in TOGETHER:
        made = [function(seed + i * _NEXT_ROW, n, fmt) for i in range(rows)]
        values = np.concatenate([np.zeros(0), *made])
        values = _kept_finite(round_nearest(values, fmt), family, fmt)
    elif count > POOL_ABOVE and family not in STRUCTURED:
        values = pool_of(family, seed, fmt)[integers(seed, POOL_STREAM, count, POOL)]
    else:
        values = _kept_finite(round_nearest(function(seed, count, fmt), fmt), family, fmt)
    return values.reshape(rows, n)
