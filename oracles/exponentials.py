# SPDX-License-Identifier: Apache-2.0
"""What softmax, log_softmax and logsumexp share: the sum of exponentials of a row.

With m the row's maximum, t_j = x_j - m, S = sum exp(t_j) >= 1 and p_j = exp(t_j) / S.

Oracle
------
Exponentials come from `certified_exp` and are added exactly. The c elements equal to m give exactly
1 each, so S differs from the computed sum F by at most error * (F - c), and by what the terms that
were cut may hold.

Bound, derived
--------------
u is the accumulator's roundoff, e the constant and k the growing part of exp's error
(`Arithmetic`).

* One pass: the argument is t_j (1 + d), |d| <= u, so its exponential is off by a factor
  exp(u |t_j|), and exp itself by exp(k |t_j|) + e. Together E_j = exp(t_j) (1 + a_j) with
  a_j <= exp((u + k) |t_j|) (1 + e) - 1.
* Each of r rescalings (online softmax, split rows) multiplies by exp(m_old - m_new): another
  argument, another exponential, one product. The arguments of one element add up to t_j, so the
  growing parts together stay what they were, and the rest is (1 + e)**(r + 1) (1 + u)**r.
* The terms are not negative: S^ = S (1 + s), |s| <= (1 + sum_j p_j a_j) (1 + g) - 1, g the
  growth of the additions (`Claim.relative_sum_error`). sum_j p_j a_j is bounded with
  exp(z) - 1 <= z exp(z_max), z_max at |t| = 800, beyond which p_j vanishes, so that it needs only
  Lbar = sum_j p_j |t_j|. An exponential that is subnormal adds an absolute error, n (r + 1) times,
  and atomic additions what they flush.
* log S^ - log S is at most -log(1 - s) in magnitude, and the logarithm errs by `Arithmetic.log`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.oracles.arrays import arrays_of
from assay.oracles.bounds import compounded
from assay.oracles.certified_exp import exp_row_sums
from assay.oracles.enclosure import Mask
from assay.oracles.formats import Float64
from assay.oracles.multiprecision import context, from_fraction
from assay.oracles.operation import Claim
from assay.oracles.rows import Facts

# exp(-800) is below 2**-1150: less than anything a float64 holds.
FARTHEST = 800.0


@dataclass(frozen=True)
class Kinds:
    """Rows by what they come to, whatever the policy; `plain` has a finite maximum.

    nan: NaN goes in, or infinity minus infinity. infinite: +inf goes in and no NaN.
    masked: every element is -inf.
    """

    nan: Mask
    infinite: Mask
    masked: Mask
    plain: Mask

    @staticmethod
    def of(found: Facts, n: int) -> Kinds:
        infinite = found.positive_infinity & ~found.nan
        masked = np.isneginf(found.largest) & ~found.nan & (n > 0)
        return Kinds(found.nan, infinite, masked, ~(found.nan | infinite | masked) & (n > 0))


@dataclass(frozen=True)
class LogSum:
    """log S of one row as a pair, with its absolute error."""

    high: float
    low: float
    error: float


def log_sums(x: Any, maxima: Float64, *, fine: bool) -> list[LogSum]:
    """log S for each row of x, whose maxima are finite."""
    found = exp_row_sums(x, maxima, fine=fine)
    ctx = context()
    results = []
    for total, cut in zip(found.sums, found.cut, strict=True):
        error = sum_error(total, cut, found.level.error, found.level.cut_term)
        value = ctx.log(from_fraction(ctx, total))
        high = float(value)
        # 200 bits of a number near 1 leave the logarithm 2**-198 absolute; -log(1 - e) <= e + e**2.
        off = error * (1.0 + 2.0**-50)
        results.append(LogSum(high, float(value - high), off + (2.0**-190 if total != 1 else 0.0)))
    return results


def sum_error(total: Fraction, cut: int, error: float, cut_term: float) -> float:
    """Relative error of a computed sum of exponentials, of which at least one is exactly 1."""
    return float((total - 1) / total) * error * (1.0 + 2.0**-50) + cut * cut_term


def mean_distance(x: Any, maxima: Float64, log_sum: Float64) -> Float64:
    """Lbar = sum_j p_j (m - x_j) for each row, in plain float64 and rounded up; (rows, 1).

    log_sum: log S of each row. A relative 2**-20 on top covers the roundings here, which are below
    n * 2**-50 for any n that fits a machine, and the rounding of the kernel's own argument.
    """
    rows, n = int(x.shape[0]), int(x.shape[1])
    arrays = arrays_of(x)
    total = np.zeros(rows)
    step = max(1, arrays.chunk // max(1, rows))
    m = arrays.constant(maxima.reshape(-1, 1))
    shift = arrays.constant(log_sum.reshape(-1, 1))
    for column in range(0, n, step):
        t = m - arrays.float64(x[:, column : column + step])
        t = arrays.where(t < FARTHEST, t, FARTHEST)
        weight = arrays.exp(-t - shift)
        total += arrays.row_sum(arrays.where(t < FARTHEST, weight * t, 0.0))
    return np.asarray((total * (1.0 + 2.0**-20))[:, None])


def element_error(t: NDArray[np.float64], claim: Claim) -> Float64:
    """a_j for |t_j| = t, capped at `FARTHEST`."""
    arithmetic = claim.arithmetic
    t_up = np.minimum(t, FARTHEST) * (1.0 + 2.0**-20)
    once = compounded(np.expm1(arithmetic.shift_growth * t_up), arithmetic.exp(t_up))
    return np.asarray(compounded(once, _each_rescale(claim)))


def _each_rescale(claim: Claim) -> float:
    # A factor for the constants of exp and one for the product, each time; what it is above 1.
    once = np.log1p(claim.arithmetic.exp_constant) + np.log1p(claim.u)
    return float(np.expm1(claim.rescales * once))


def sum_growth(distance: Float64, n: int, claim: Claim) -> Float64:
    """s for rows whose mean distance is Lbar."""
    arithmetic = claim.arithmetic
    k = arithmetic.shift_growth + arithmetic.exp_growth
    steep = np.exp(k * FARTHEST)
    constant = compounded(arithmetic.exp_constant, _each_rescale(claim))
    floor = n * (claim.rescales + 1) * arithmetic.exp_floor * (1.0 + constant)
    floor += claim.atomics * arithmetic.atomic_flush
    terms = compounded(k * steep * distance, constant) + floor
    return np.asarray(compounded(terms, claim.relative_sum_error()))


def log_error(log_sum: Float64, s: Float64, claim: Claim) -> Float64:
    """Absolute error of the computed log S."""
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = np.where(s < 1.0, -np.log1p(-np.minimum(s, 1.0)), np.inf)
        return moved + claim.arithmetic.log(np.exp(log_sum) * (1.0 + np.minimum(s, 1.0)))
