# SPDX-License-Identifier: Apache-2.0
"""mpmath with a precision of our own.

The global `mpmath.mp` belongs to the user: nothing here reads or changes it.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import mpmath

# 200 bits are 60 decimal digits. Every formula evaluated with it here is well conditioned (sums are
# exact or of positive terms), so 50 good digits remain with some 30 bits to spare.
BITS = 200
RELATIVE_ERROR = 2.0**-170


@cache
def context(bits: int = BITS) -> Any:
    """An mpmath context of `bits` bits, always the same one: its precision must stay what it is."""
    ctx = mpmath.MPContext()
    ctx.prec = bits
    return ctx


def exact_context() -> Any:
    """A context wide enough that sums and products of two float64 numbers lose nothing.

    Products are multiples of 2**-2148 below 2**2048, and 2**32 of them add 32 bits.
    """
    return context(4300)


def from_fraction(ctx: Any, value: Fraction) -> Any:
    """A Fraction rounded once to the context's precision."""
    return ctx.mpf(value.numerator) / value.denominator
