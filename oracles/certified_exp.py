# SPDX-License-Identifier: Apache-2.0
"""exp of float64 numbers with a proved relative error, and its sums over rows.

Only float64 + - *, rint, table look-up and scaling by powers of two are used, one rounding each
(no fused multiply-add, no flush of subnormals): numpy, and torch in eager mode. The method is
Tang's (ACM TOMS 15, 1989) with a larger table and the result kept as an unadded pair.

Notation: u = 2**-53; an operation whose result is below 2**m in magnitude errs by at most
2**(m - 54), half an ulp of the binade below 2**m.
t = t_high + t_low with |t_low| <= ulp(t_high)/2 and t_high from the level's cut (at least -700) to
709, so that |t_low| <= 2**-44. L = ln 2 / 1024 = 2**-10.528...
T = 2**(j/1024), 1 <= T < 2, is tabulated as TH + TL, right to 2**-106: |TL| <= u TH.

Both levels: exp(t) = 2**e T exp(r)
-----------------------------------
with k = rint(fl(t_high * per_step)), per_step = fl(1/L), e = floor(k / 1024), j = k - 1024 e,
r = t - k L.
 (a) |t_high / L| < 2**20, per_step and the product are each off by a factor 1 + u at most, and
     t_low / L is below 2**-33: |t / L - k| <= 1/2 + 2**-31. So |t - k L| <= rho = 2**-11.52, and
     |k| < 2**20, -1010 <= e <= 1022 (e >= -982 from -680 on).
 (b) k L1 is exact: 20 and 32 bits. a = t_high - k L1 is exact. For k = 0 it is t_high. Otherwise
     |t_high| > 0.49 L > 2**-12; both terms are multiples of w = min(ulp(t_high), 2**-42), which is
     2**-64 or more, and |a| <= rho + 2**20 |L - L1| < 2**-11: a/w is an integer below 2**53.

`exp_pair`
----------
With c = fl(t_low - fl(k L')), L' = step_rest = fl(L - L1), and r = fl(a + c);
p = fl(r + q), q = r r (1/2 + r (1/6 + r (1/24 + r/120))) by Horner;
H = TH, Lo = fl(TL + fl(TH p)); the result is 2**e H, fl(2**e Lo).
Errors relative to exp(t), in units of 2**-65:
 1. k L' is below 2**-23: L' is off by 2**-96, times 2**20, and fl(k L') by 2**-77; c is below
    2**-22 and off by 2**-76. Together below 2**-74.4.                                       0.002
 2. r, below 2**-11, is off by 2**-65.                                                       1
 3. The series is cut: r**6 (1 + r)/720 <= 2**-78.6.                                         0.001
 4. q < 2**-24.0 (1 + 2**-12): three roundings of relative u (the last sum, two products), those
    further in come in scaled by r/3 and less: 3.1 u 2**-24 = 2**-75.3.                      0.001
 5. p, |p| <= 2**-11.51, is off by 2**-65.                                                   1
 6. T (1 + p) - (TH + TL + TH p) = TL p + T 2**-106: u 2**-11.51 = 2**-64.51.                1.405
 7. fl(TH p): 2**-64.51. fl(TL + TH p), at most TH (2**-11.51 + u): 2**-64.5.                2.82
 8. 2**e H is exact: it is at least 2**-1010. fl(2**e Lo) may be subnormal and off by 2**-1075,
    while exp(t) >= 2**-1010 (1 - rho).                                                      1.0004
Their sum is below 7.24, and the factors by which one error scales another (1 + 2**-11 at most)
leave it below 7.25: 2**-62.1 < EXP_ERROR / 4.

`exp_double_double`
-------------------
With b = k L2, exact as k L1 is; (s, f) = two_sum(a, -b); d = fl(f + fl(t_low - fl(k L3)));
(rh, rl) = two_sum(s, d); (x, y) = two_product(rh, rh); q = x/2, ql = fl(y/2 + fl(rh rl));
c = fl(fl(rh x) g), g = 1/6 + rh (1/24 + rh (1/120 + rh/720)) by Horner;
(w, v) = two_sum(rh, q); low = fl(fl(v + fl(rl + ql)) + c); (m, n) = two_sum(1, w);
z = fl(n + low); (h, l) = quick_two_sum(P, fl(Q + fl(fl(TH z) + fl(TL m)))) with
(P, Q) = two_product(TH, m); the result is 2**e h, fl(2**e l).
Errors relative to exp(t), in units of 2**-91:
 1. |k L3| < 2**-56: L3 off by 2**-129, times 2**20, and the product by 2**-110. f is at most half
    an ulp of s, 2**-65, and t_low at most 2**-44: two sums below 2**-43 are off by 2**-97 each.
    Together below 2**-95.9.                                                                 0.04
 2. rl <= 2**-65. In ql, rounding errors below 2**-128; rl**2/2 is left out: 2**-131.        0
    two_product is exact unless rh**2 < 2**-969, and then q, ql and all they lose are below
    2**-960.
 3. c takes rh for r: r**2/2 rl <= 2**-89.04. The series is cut: r**7 (1 + r)/5040 < 2**-92.9.
                                                                                             4.2
 4. c has five roundings of relative u (x, rh x, fl(1/6), the last sum of g, the product), those
    further in scaled by r/4 and less: 5.03 u 2**-37.14 (1 + r/4) = 2**-87.80.               9.2
 5. v <= 2**-65 and rl, ql: rounding errors below 2**-116. low, below 2**-37, is off by 2**-91; z,
    |n| <= u, is below 2**-37 too.                                                           2
 6. TL z is left out, fl(TH z) is rounded, so is its sum with TL m (which errs by 2**-106) and the
    sum with Q, |Q| <= u P: four times u 2**-37.12; T is off by 2**-106.                     7.4
 7. 2**e h is exact. fl(2**e l) may be off by 2**-1075, while exp(t) >= 2**-982 (1 - rho): here
    the cut is nearer, for a pair near exp(-700) cannot hold 85 bits.                        0.3
Their sum is below 23.2: 2**-86.4 < EXP_ERROR_FINE.

Sums
----
The terms computed are added without error, so that their sum C and the sum S of the exponentials
not cut obey |C - S| <= error * S. Exponentials cut add at most CUT_TERM each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from assay.oracles.arrays import Arrays, arrays_of
from assay.oracles.double_double import multiply, two_product, two_sum
from assay.oracles.exact import exact_sum
from assay.oracles.exp_table import STEPS, STEPS_LOG2, Constants, constants_on

EXP_ERROR = 2.0**-60
EXP_ERROR_FINE = 2.0**-85

# 700 / ln 2 is 1009.9, and 680 / ln 2 is 981.03.
CUT = -700.0
CUT_TERM = 2.0**-1009
CUT_FINE = -680.0
CUT_TERM_FINE = 2.0**-981

# The largest whole number whose exponential a float64 holds.
TOP = 709.0

_SMALLEST_CHUNK = 1 << 16


class Level(NamedTuple):
    """What is proved of one of the two functions.

    error: relative error of an exponential from `cut` on.
    cut: arguments with t_high below it give (0, 0).
    cut_term: more than the exponential of any of those.
    """

    error: float
    cut: float
    cut_term: float
    evaluate: Callable[[Arrays, Constants, Any, Any], tuple[Any, Any]]


def exp_pair(t_high: Any, t_low: Any) -> tuple[Any, Any]:
    """exp(t_high + t_low) as an unadded pair (H, L), relative error at most `EXP_ERROR`.

    t_high, t_low: float64 arrays of one shape, numpy or torch, |t_low| <= ulp(t_high)/2.
    H and L are of that shape. |L| <= 2**-11 H: they overlap, and `quick_two_sum(H, L)` normalises.
    t = 0 gives exactly (1, 0). t_high below `CUT`, -inf too, gives (0, 0) whatever t_low is; the
    exponential is then less than `CUT_TERM`.
    Raises ValueError if t_high exceeds `TOP` or is NaN.
    """
    return _evaluate(COARSE, t_high, t_low)


def exp_double_double(t_high: Any, t_low: Any) -> tuple[Any, Any]:
    """exp(t_high + t_low) as a normalised pair (h, l), relative error at most `EXP_ERROR_FINE`.

    Everything else is as for `exp_pair`, with `CUT_FINE` and `CUT_TERM_FINE`.
    """
    return _evaluate(FINE, t_high, t_low)


def exp_elements(x: Any, maxima: Any, *, fine: bool = False) -> tuple[Any, Any]:
    """exp(x - maxima) of a matrix, as a pair of float64 matrices of its shape and backend.

    x: (rows, n), any format that float64 contains, numpy or torch; neither NaN nor +inf.
    maxima: (rows,), finite float64 on the host. Any shift will do that leaves no difference above
    `TOP`, and differences are exact whatever their size.
    The pairs are those of `exp_double_double` if `fine`, else those of `exp_pair`.
    Raises ValueError if an operand is not as described.
    """
    arrays = arrays_of(x)
    high, low = arrays.float64(x), arrays.float64(x)
    for place, block, maximum in _blocks(arrays, x, maxima):
        t_high, t_low = _shifted(arrays, block, maximum)
        high[place], low[place] = _evaluate(_level(fine), t_high, t_low)
    return high, low


class RowSums(NamedTuple):
    """What is known of the sum S of exp(x - maximum) over each row.

    sums: exact sums of the pairs computed.
    cut: how many terms of each row were cut. Those of x = -inf are exactly zero and do not count.
    level: the claims that hold.
    """

    sums: list[Fraction]
    cut: list[int]
    level: Level

    def interval(self, row: int) -> tuple[Fraction, Fraction]:
        """Two numbers with S between them."""
        error, computed = Fraction(self.level.error), self.sums[row]
        lost = self.cut[row] * Fraction(self.level.cut_term)
        return computed / (1 + error), computed / (1 - error) + lost


def exp_row_sums(x: Any, maxima: Any, *, fine: bool = False) -> RowSums:
    """Sums of exp(x - maxima) over the rows of a matrix, with nothing lost in adding.

    Operands and errors are those of `exp_elements`. It works on a chunk at a time.
    """
    arrays, level = arrays_of(x), _level(fine)
    sums = [Fraction(0)] * x.shape[0]
    cut = np.zeros(x.shape[0], dtype=np.int64)
    for (rows, _), block, maximum in _blocks(arrays, x, maxima):
        t_high, t_low = _shifted(arrays, block, maximum)
        high, low = _evaluate(level, t_high, t_low)
        if float(t_high.min()) < level.cut:
            # A finite difference may overflow to -inf, so x is asked which terms are zero.
            cut[rows] += arrays.host(((t_high < level.cut) & (block > -np.inf)).sum(1))
        parts = zip(exact_sum(high), exact_sum(low), strict=True)
        for row, (h, l) in enumerate(parts, rows.start):
            sums[row] += h + l
    return RowSums(sums, cut.tolist(), level)


def _level(fine: bool) -> Level:
    return FINE if fine else COARSE


def _blocks(arrays: Arrays, x: Any, maxima: Any) -> Iterator[tuple[tuple[slice, slice], Any, Any]]:
    """Places of x that hold about a chunk of elements each, with those and their maxima."""
    maxima = np.asarray(maxima, dtype=np.float64)
    if len(x.shape) != 2 or maxima.shape != (x.shape[0],):
        raise ValueError(
            f"expected a matrix and one maximum for each of its rows, got shapes {tuple(x.shape)} "
            f"and {maxima.shape}"
        )
    if not np.isfinite(maxima).all():
        raise ValueError("expected finite maxima, got NaN or infinity: rows like that have no sum")
    rows, n = x.shape
    if rows * n == 0:
        return
    # A device's chunks are large: its temporaries shall stay below a small input's size.
    chunk = min(arrays.chunk, max(_SMALLEST_CHUNK, rows * n >> 5))
    height = max(1, chunk // n)
    for first in range(0, rows, height):
        here = slice(first, min(first + height, rows))
        maximum = arrays.constant(maxima[here, None])
        for column in range(0, n, chunk):
            place = here, slice(column, column + chunk)
            yield place, x[place], maximum


def _shifted(arrays: Arrays, block: Any, maximum: Any) -> tuple[Any, Any]:
    """block - maximum as an exact pair; -inf and an unspecified low word where that overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        return two_sum(arrays.float64(block), -maximum)


def _evaluate(level: Level, t_high: Any, t_low: Any) -> tuple[Any, Any]:
    arrays = arrays_of(t_high)
    if 0 in t_high.shape:
        return arrays.float64(t_high), arrays.float64(t_high)
    # A NaN is neither below nor above anything, and is the maximum of what contains it.
    if not float(t_high.max()) <= TOP:
        raise ValueError(f"expected arguments up to {TOP}, got one above it or NaN")
    some_cut = float(t_high.min()) < level.cut
    if some_cut:
        cut = t_high < level.cut
        t_high, t_low = arrays.where(cut, 0.0, t_high), arrays.where(cut, 0.0, t_low)
    high, low = level.evaluate(arrays, constants_on(arrays), t_high, t_low)
    if some_cut:
        high, low = arrays.where(cut, 0.0, high), arrays.where(cut, 0.0, low)
    return high, low


def _nearest_step(arrays: Arrays, c: Constants, t_high: Any) -> tuple[Any, Any, Any, Any, Any]:
    """k as float64, TH, TL, 2**e, and a = t_high - k L1."""
    k = arrays.rint(t_high * c.per_step)
    whole = arrays.int64(k)
    j = whole & (STEPS - 1)
    whole >>= STEPS_LOG2  # rounds down, as j >= 0 needs
    a = t_high - k * c.step[0]
    high, low = arrays.take(c.table_high, j), arrays.take(c.table_low, j)
    return k, high, low, arrays.power_of_two(whole), a


def _horner(r: Any, coefficients: tuple[float, ...]) -> Any:
    """Polynomial in r, the highest coefficient first and at least two of them."""
    first, second, *rest = coefficients
    q = r * first
    q += second
    for coefficient in rest:
        q *= r
        q += coefficient
    return q


def _coarse(arrays: Arrays, c: Constants, t_high: Any, t_low: Any) -> tuple[Any, Any]:
    k, high, low, scale, r = _nearest_step(arrays, c, t_high)
    k *= c.step_rest
    r += t_low - k
    q = _horner(r, c.inverse_factorial[5:1:-1])
    q *= r
    q *= r
    q += r
    q *= high
    low += q
    high *= scale
    low *= scale
    return high, low


def _fine(arrays: Arrays, c: Constants, t_high: Any, t_low: Any) -> tuple[Any, Any]:
    k, t, t_rest, scale, a = _nearest_step(arrays, c, t_high)
    s, f = two_sum(a, k * -c.step[1])
    k *= c.step[2]
    rh, rl = two_sum(s, f + (t_low - k))
    x, y = two_product(rh, rh)
    cubic = (rh * x) * _horner(rh, c.inverse_factorial[6:2:-1])
    w, v = two_sum(rh, x * 0.5)
    low = (v + (rl + (y * 0.5 + rh * rl))) + cubic
    m, n = two_sum(w, 1.0)
    high, low = multiply(t, t_rest, m, n + low)
    high *= scale
    low *= scale
    return high, low


COARSE = Level(EXP_ERROR, CUT, CUT_TERM, _coarse)
FINE = Level(EXP_ERROR_FINE, CUT_FINE, CUT_TERM_FINE, _fine)
