# SPDX-License-Identifier: Apache-2.0
"""Building blocks of the error bounds: gamma, and what the last rounding adds.

The bound of each operation stands with the operation, in `oracles/operations/`, with its
derivation. All of them are proved for IEEE arithmetic with the primitive errors of `Arithmetic`;
a result outside its bound is a defect of the kernel or of a claim, never bad luck.

The float64 arithmetic that evaluates a bound rounds as well. `ROUND_UP` covers it: each bound is a
sum or product of fewer than 2**10 rounded terms of one sign, so its relative error is below 2**-42.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from assay.oracles.enclosure import Enclosure
from assay.oracles.formats import Float64, Format, round_nearest, ulp
from assay.oracles.platform import Arithmetic

ROUND_UP = 1.0 + 2.0**-40


def gamma(h: float, u: float) -> float:
    """gamma_h = h u / (1 - h u), infinite once h u >= 1.

    A sum of v_i whose longest path has h rounded additions is off by at most gamma_h * sum |v_i|,
    in whatever order they are made (Higham, Accuracy and Stability of Numerical Algorithms, 2nd
    ed., sec. 4.2).
    """
    if h * u >= 1.0:
        return np.inf
    return h * u / (1.0 - h * u)


def statistical_gamma(h: float, u: float, confidence: float) -> float:
    """What gamma_h becomes for roundings that are independent in the mean, with high probability.

    exp(confidence * sqrt(h) * u + h u**2 / (1 - u)) - 1 bounds the relative growth along one path
    of h roundings with probability at least 1 - 2 exp(-confidence**2 (1 - u)**2 / 2) (Higham and
    Mary, "A new approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41, 2019,
    theorem 2.4).
    The model is wrong for constant data and once partial sums all round the same way: whoever uses
    this has seen it hold for the family and the range of N, see `assay.oracles.tolerances`.
    """
    exponent = confidence * math.sqrt(h) * u + h * u * u / (1.0 - u)
    return math.expm1(exponent) if exponent < 700.0 else math.inf


def compounded(*errors: Float64 | float) -> Any:
    """(1 + e_1)(1 + e_2) ... - 1 for e >= 0, numbers or arrays.

    1 + e is never formed: in float64 it would be 1 for the u of a float64 accumulator.
    """
    total: Any = 0.0
    for error in errors:
        total = total + error * (1.0 + total)
    return total


def allowed(
    before: Float64, exact: Enclosure, out_format: Format, arithmetic: Arithmetic
) -> Float64:
    """Largest |out - y| when the kernel's value before the final cast is within `before` of y.

    The cast errs by at most 1/2 ulp (1 ulp where it truncates) of the value that is cast, and that
    value can lie in the binade above y's. A value that is exactly y, and that the format holds, is
    not changed by any cast: a maximum must be equal. The enclosure's own radius is added, since the
    distance is measured from its center.
    """
    reach = exact.magnitude() + before
    finite = np.isfinite(reach)
    step = ulp(np.where(finite, reach, 0.0), out_format)
    cast = np.where(finite, arithmetic.cast(out_format) * step, np.inf)
    held = (exact.tail == 0.0) & (exact.radius == 0.0)
    held &= round_nearest(exact.center, out_format) == exact.center
    cast = np.where(held & (before == 0.0), 0.0, cast)
    floor = arithmetic.cast_floor(out_format)
    if floor:
        lowest = np.maximum(0.0, np.abs(exact.center) - before)
        cast = np.where(finite & (lowest < out_format.smallest_normal), cast + floor, cast)
    return (before + cast + exact.radius) * ROUND_UP
