# SPDX-License-Identifier: Apache-2.0
"""Binary floating-point formats: exact conversion, rounding to nearest, and the ulp.

Everything is vectorised over numpy float64 arrays.
A float64 holds every value of the narrower formats exactly, so `decode` loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Bits = NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class Format:
    """An IEEE-style binary format.

    `precision` counts significand bits with the hidden one, so the unit roundoff is 2**-precision.
    `emin` and `emax` bound the exponent e of a normal number 2**e <= |x| < 2**(e+1).
    """

    name: str
    precision: int
    emin: int
    emax: int
    width: int

    @property
    def u(self) -> float:
        """Unit roundoff: the largest relative error of rounding to nearest in the normal range."""
        return 2.0**-self.precision

    @property
    def largest(self) -> float:
        """The largest finite value."""
        return (2.0 - 2.0 ** (1 - self.precision)) * 2.0**self.emax

    @property
    def smallest_normal(self) -> float:
        return 2.0**self.emin

    @property
    def smallest_subnormal(self) -> float:
        return 2.0 ** (self.emin - self.precision + 1)

    @property
    def quiet_nan(self) -> int:
        """Bits of the positive quiet NaN without payload."""
        exponent_bits = self.width - self.precision
        return ((1 << (exponent_bits + 1)) - 1) << (self.precision - 2)

    @property
    def bits_dtype(self) -> np.dtype[np.unsignedinteger]:
        return np.dtype(f"u{self.width // 8}")


FP64 = Format("float64", 53, -1022, 1023, 64)
FP32 = Format("float32", 24, -126, 127, 32)
FP16 = Format("float16", 11, -14, 15, 16)
BF16 = Format("bfloat16", 8, -126, 127, 16)

FORMATS: dict[str, Format] = {f.name: f for f in (FP64, FP32, FP16, BF16)}


def format_named(name: str) -> Format:
    """The format called `name`; ValueError lists the known names otherwise."""
    try:
        return FORMATS[name]
    except KeyError:
        raise ValueError(f"unknown dtype {name!r}: expected one of {', '.join(FORMATS)}") from None


def exponent(values: Float64) -> NDArray[np.int64]:
    """The e with 2**e <= |x| < 2**(e+1); a very negative number for zero; of |x| finite only."""
    mantissa, exp = np.frexp(np.abs(values))
    return np.where(mantissa == 0.0, -100_000, exp.astype(np.int64) - 1)


def ulp(values: Float64, fmt: Format) -> Float64:
    """Unit in the last place of `fmt` at each real value, in Goldberg's form.

    ulp(y) = 2**(max(e, emin) - p + 1) for 2**e <= |y| < 2**(e+1): below the normal range it stays
    at the spacing of the subnormals, and it stays at the top binade's spacing above `largest`.
    """
    e = np.clip(exponent(values), fmt.emin, fmt.emax)
    return np.ldexp(1.0, (e - fmt.precision + 1).astype(np.int32))


def round_nearest(values: Float64, fmt: Format) -> Float64:
    """Each float64 rounded to `fmt`, ties to even, overflow to infinity, as float64."""
    values = np.asarray(values, dtype=np.float64)
    if fmt is FP64:
        return values.copy()
    finite = np.where(np.isfinite(values), values, 0.0)
    step = ulp(finite, fmt)
    # Division and product by a power of two are exact here: |value / step| < 2**53 holds whenever
    # rounding has anything to do, and larger quotients are whole numbers already.
    rounded = np.rint(finite / step) * step
    overflow = np.abs(rounded) > fmt.largest
    rounded = np.where(overflow, np.copysign(np.inf, values), rounded)
    # rint loses no sign of zero, but the multiplication keeps it only for finite values.
    return np.where(np.isfinite(values), np.copysign(rounded, values), values)


def decode(bits: Bits, fmt: Format) -> Float64:
    """Stored bit patterns as the float64 values they stand for (exact)."""
    bits = np.ascontiguousarray(bits, dtype=fmt.bits_dtype)
    if fmt is FP64:
        return bits.view(np.float64).copy()
    if fmt is FP32:
        return _widen(bits.view(np.float32))
    if fmt is FP16:
        return _widen(bits.view(np.float16))
    return _widen((bits.astype(np.uint32) << np.uint32(16)).view(np.float32))


def _widen(values: NDArray[np.floating]) -> Float64:
    # A signalling NaN raises the invalid flag when it is widened; that is no event of interest.
    with np.errstate(invalid="ignore"):
        return values.astype(np.float64)


def encode(values: Float64, fmt: Format) -> Bits:
    """Bit patterns of float64 values rounded to nearest in `fmt` (NaN becomes the quiet NaN)."""
    rounded = round_nearest(values, fmt)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        bits: Bits
        if fmt is FP64:
            bits = rounded.view(np.uint64)
        elif fmt is FP16:
            bits = rounded.astype(np.float16).view(np.uint16)
        else:
            bits = rounded.astype(np.float32).view(np.uint32)
            if fmt is BF16:
                bits = (bits >> np.uint32(16)).astype(np.uint16)
    # Conversions keep a NaN's payload, and a signalling one may stay what it is.
    return np.where(np.isnan(rounded), fmt.bits_dtype.type(fmt.quiet_nan), bits)


def hex_with_bits(value: float, fmt: Format) -> str:
    """A value as a hex float with its stored bits, `0x1.8p-3 (0x3e400000)`."""
    bits = int(encode(np.asarray([value]), fmt)[0])
    text = float(value).hex() if np.isfinite(value) else str(float(value))
    return f"{_short_hex(text)} (0x{bits:0{fmt.width // 4}x})"


def _short_hex(text: str) -> str:
    if "p" not in text:
        return text
    head, exp = text.split("p")
    if "." in head:
        head = head.rstrip("0").rstrip(".")
    return f"{head}p{exp}"
