# SPDX-License-Identifier: Apache-2.0
"""Enclosures: what an oracle returns, and how a computed result is measured against it.

An enclosure states, for each output element, that the exact result lies within
[center + tail - radius, center + tail + radius].
center and tail are float64 and carry some 106 bits between them, so that an error of a float32 or
even a float64 result is known to far below one ulp.
A NaN or infinite center means that the expected result is that special value, and then tail and
radius are zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.oracles.formats import FP64, Float64, Format, exponent

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Enclosure:
    """Arrays of one shape: |exact - (center + tail)| <= radius for each element."""

    center: Float64
    tail: Float64
    radius: Float64

    def __post_init__(self) -> None:
        if not self.center.shape == self.tail.shape == self.radius.shape:
            raise ValueError(
                "center, tail and radius need one shape, got "
                f"{self.center.shape}, {self.tail.shape}, {self.radius.shape}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        return self.center.shape

    @property
    def finite(self) -> Mask:
        """Where the expected result is a finite number."""
        return np.isfinite(self.center)

    def __getitem__(self, index: Any) -> Enclosure:
        return Enclosure(
            np.asarray(self.center[index]),
            np.asarray(self.tail[index]),
            np.asarray(self.radius[index]),
        )

    def reshape(self, *shape: int) -> Enclosure:
        return Enclosure(
            self.center.reshape(*shape), self.tail.reshape(*shape), self.radius.reshape(*shape)
        )

    def interval(self, index: Any = ()) -> tuple[Fraction, Fraction]:
        """The exact end points of one element's enclosure; ValueError if it is special."""
        center = float(self.center[index])
        if not np.isfinite(center):
            raise ValueError(f"the expected result is {center}, not a number with end points")
        middle = Fraction(center) + Fraction(float(self.tail[index]))
        radius = Fraction(float(self.radius[index]))
        return middle - radius, middle + radius

    def contains(self, value: Fraction, index: Any = ()) -> bool:
        lo, hi = self.interval(index)
        return lo <= value <= hi

    def intersects(self, other: Enclosure) -> Mask:
        """Where two enclosures of the same quantity have a point in common.

        Two oracles that are both right intersect everywhere; special values must be the same.
        """
        same_special = (np.isnan(self.center) & np.isnan(other.center)) | (
            self.center == other.center
        )
        both = self.finite & other.finite
        with np.errstate(invalid="ignore"):
            gap = np.abs((self.center - other.center) + (self.tail - other.tail))
            # The subtraction above rounds; two relative units of 2**-52 of the tails cover it.
            slack = 2.0**-51 * (np.abs(self.tail) + np.abs(other.tail) + gap)
            near = gap <= self.radius + other.radius + slack
        return np.where(both, near, same_special)

    def _binade(self) -> NDArray[np.int64]:
        """Exponent e of the exact value, 2**e <= |y| < 2**(e+1), taking the tail into account."""
        center = np.where(self.finite, self.center, 0.0)
        e = exponent(center)
        mantissa, _ = np.frexp(np.abs(center))
        # center = RN(y) may be a power of two with y just below it.
        below = (mantissa == 0.5) & (self.tail * np.sign(center) < 0.0)
        return np.where(below, e - 1, e)

    def ulp(self, fmt: Format) -> Float64:
        """ulp of `fmt` at the exact value (Goldberg's form, subnormal floor)."""
        e = np.clip(self._binade(), fmt.emin, fmt.emax)
        return np.ldexp(1.0, (e - fmt.precision + 1).astype(np.int32))

    def magnitude(self) -> Float64:
        """An upper bound of |y| in float64; infinite or NaN where the result is."""
        with np.errstate(invalid="ignore", over="ignore"):
            value = (np.abs(self.center) + np.abs(self.tail) + self.radius) * (1.0 + 2.0**-50)
        return np.where(self.finite, value, self.center)

    def error(self, out: Float64) -> Float64:
        """|out - y| in float64, accurate to a few units of 2**-53 relative plus `radius`.

        Infinite where out is infinite or NaN and the expected result is finite, or the reverse.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            distance = np.abs((out - self.center) - self.tail)
        return np.where(np.isfinite(out) & self.finite, distance, np.inf)

    def ulps(self, out: Float64, fmt: Format) -> Float64:
        """Error of `out` in ulps of `fmt` at the exact value; correctly rounded is <= 0.5."""
        return self.error(out) / self.ulp(fmt)

    def excess(self, out: Float64, out_format: Format, accumulator: Format) -> Float64:
        """Error beyond the final rounding, max(0, |out - y| - ulp_out/2), in accumulator ulps.

        A lower bound of the error that the kernel had before it rounded to its output format.
        """
        beyond = np.maximum(0.0, self.error(out) - 0.5 * self.ulp(out_format))
        return beyond / self.ulp(accumulator)

    def round(self, fmt: Format) -> tuple[Float64, Mask]:
        """The exact value rounded to nearest, ties to even, and where that is decided.

        The rounding is undecided where the enclosure reaches across a midpoint of two neighbours:
        a tighter oracle must be asked there (Ziv's strategy).
        """
        step = self.ulp(fmt)
        half = 0.5 * step
        finite = self.finite
        center = np.where(finite, self.center, 0.0)
        nearest = center if fmt is FP64 else np.rint(center / step) * step
        # center - nearest and its distance to a midpoint are exact: all are multiples of one unit
        # near each other. That distance is zero or at least twice the tail, so adding the tail
        # leaves the right sign; where center sits on a midpoint, the tail says which is nearer.
        offset = center - nearest
        up = (offset - half) + self.tail > 0.0
        down = (offset + half) + self.tail < 0.0
        with np.errstate(over="ignore"):
            nearest = np.where(up, nearest + step, np.where(down, nearest - step, nearest))
        offset = np.where(np.isinf(nearest), np.copysign(half, -center), center - nearest)
        # Below a power of two the neighbours lie half as far apart.
        e = self._binade()
        power = (np.abs(nearest) == np.ldexp(1.0, np.clip(e, -1074, 1023).astype(np.int32))) & (
            e > fmt.emin
        )
        above = np.where(power & (nearest < 0.0), 0.5 * half, half)
        below = np.where(power & (nearest > 0.0), 0.5 * half, half)
        margin = np.minimum(
            np.abs((above - offset) - self.tail), np.abs((below + offset) + self.tail)
        )
        decided = margin * (1.0 - 2.0**-51) > self.radius
        # A midpoint known exactly is a decided tie: rint has already chosen the even neighbour.
        exact_tie = (self.radius == 0.0) & (margin == 0.0)
        overflow = np.abs(nearest) > fmt.largest
        nearest = np.where(overflow, np.copysign(np.inf, center), nearest)
        return np.where(finite, nearest, self.center), np.where(finite, decided | exact_tie, True)

    def misrounded(self, out: Float64, fmt: Format) -> tuple[Mask, Mask]:
        """(where out is not the correctly rounded result, where that could not be decided)."""
        nearest, decided = self.round(fmt)
        same = (out == nearest) | (np.isnan(out) & np.isnan(nearest))
        return ~same & decided, ~decided


def exactly(values: Float64) -> Enclosure:
    """The enclosure of values that are known exactly, special values included."""
    center = np.asarray(values, dtype=np.float64)
    return Enclosure(center, np.zeros_like(center), np.zeros_like(center))


def from_mpf(values: Iterable[Any], *, relative_error: float) -> Enclosure:
    """Enclosure of mpmath numbers known to `relative_error`, as a vector.

    Values beyond float64's range become infinite; NaN and infinities are kept.
    """
    center, tail = [], []
    for value in values:
        head = float(value)
        center.append(head)
        tail.append(float(value - head) if np.isfinite(head) else 0.0)
    c, t = np.array(center, dtype=np.float64), np.array(tail, dtype=np.float64)
    return with_relative_error(c, t, relative_error)


def with_relative_error(
    center: Float64, tail: Float64, relative_error: float | Float64
) -> Enclosure:
    """Enclosure of pairs known to a relative error, with what storing a pair itself loses.

    The stored tail is rounded to 53 bits, 2**-53 of it, and below 2**-1074 it vanishes.
    """
    with np.errstate(invalid="ignore"):
        radius = np.abs(center) * relative_error * (1 + 2.0**-50) + np.abs(tail) * 2.0**-52
        radius = radius + 2.0**-1074
    finite = np.isfinite(center)
    return Enclosure(center, np.where(finite, tail, 0.0), np.where(finite, radius, 0.0))


def from_fractions(values: list[Fraction]) -> Enclosure:
    """Enclosure of rational numbers, as a vector: a pair each, exact where the pair holds it.

    Values beyond float64's range become infinite, as they round to in every format.
    """
    center, tail, radius = [], [], []
    for value in values:
        try:
            head = float(value)
        except OverflowError:
            head = np.inf if value > 0 else -np.inf
        rest = value - Fraction(head) if np.isfinite(head) else Fraction(0)
        low = float(rest)
        center.append(head)
        tail.append(low)
        exact = rest == Fraction(low)
        radius.append(0.0 if exact else abs(low) * 2.0**-53 + 2.0**-1074)
    return Enclosure(
        np.array(center, dtype=np.float64),
        np.array(tail, dtype=np.float64),
        np.array(radius, dtype=np.float64),
    )


def column(exact: Enclosure, plain: Mask, special: Float64) -> Enclosure:
    """A (rows, 1) enclosure: `exact` in order for the rows that are `plain`, else `special`."""
    found = exactly(np.asarray(special, dtype=np.float64).copy())
    for target, source in (
        (found.center, exact.center),
        (found.tail, exact.tail),
        (found.radius, exact.radius),
    ):
        target[plain] = source
    return found.reshape(-1, 1)
