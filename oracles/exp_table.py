# SPDX-License-Identifier: Apache-2.0
"""The numbers that `certified_exp` computes with: 2**(j/1024), ln 2 / 1024 in parts, 1/n!.

They come from mpmath, once in a process, and every bound on them is one of a rounding: nothing is
fitted.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from assay.oracles.arrays import Arrays
from assay.oracles.multiprecision import context

# exp is reduced to steps of ln 2 / 2**STEPS_LOG2.
STEPS_LOG2 = 10
STEPS = 1 << STEPS_LOG2


class Constants(NamedTuple):
    """Numbers of both levels; the tables are float64 arrays of `STEPS` entries.

    per_step: fl(1024 / ln 2).
    step: (L1, L2, L3) with L = ln 2 / 1024 = L1 + L2 + L3 up to 2**-129.
        L1 is a multiple of 2**-42 and L2 one of 2**-75, both nearest: they have at most 32
        significant bits, so that k * L1 and k * L2 are exact for integers |k| < 2**20.
        |L - L1| <= 2**-43 and |L3| <= 2**-76.
    step_rest: fl(L - L1), at most 2**-43 and right to 2**-96.
    table_high, table_low: the pair T = 2**(j / 1024), 1 <= T < 2, right to 2**-106.
    inverse_factorial: fl(1 / n!) at index n, for n up to 6.
    """

    per_step: float
    step: tuple[float, float, float]
    step_rest: float
    table_high: Any
    table_low: Any
    inverse_factorial: tuple[float, ...]


@cache
def constants() -> Constants:
    """The constants with their tables as numpy arrays."""
    ctx = context()
    step = ctx.ln2 / STEPS

    def nearest_multiple(value: Any, exponent: int) -> Any:
        return ctx.ldexp(ctx.nint(ctx.ldexp(value, -exponent)), exponent)

    l1 = nearest_multiple(step, -42)
    l2 = nearest_multiple(step - l1, -75)
    powers = [ctx.power(2, ctx.mpf(j) / STEPS) for j in range(STEPS)]
    high = [float(p) for p in powers]
    low = [float(p - h) for p, h in zip(powers, high, strict=True)]
    return Constants(
        per_step=float(1 / step),
        step=(float(l1), float(l2), float(step - l1 - l2)),
        step_rest=float(step - l1),
        table_high=np.array(high),
        table_low=np.array(low),
        inverse_factorial=tuple(float(1 / ctx.factorial(n)) for n in range(7)),
    )


@cache
def constants_on(arrays: Arrays) -> Constants:
    """The constants with their tables as arrays of a backend."""
    found = constants()
    return found._replace(
        table_high=arrays.constant(found.table_high), table_low=arrays.constant(found.table_low)
    )
