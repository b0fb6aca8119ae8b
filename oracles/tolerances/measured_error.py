# SPDX-License-Identifier: Apache-2.0
"""What a measured curve says about the error at one N: a standard deviation with its uncertainty.

A curve is used where it can be trusted, and refused with a sentence where not:

* The claimed depth is the recorded one, or the curve is of another kernel than the one at hand.
* The points around the depth asked for have at least `FEWEST` trials together.
* Their signed errors show no bias. For errors that are symmetric about zero the sum of the errors,
  each divided by its point's rms, over the square root of their number exceeds t in size with
  probability at most 2 exp(-t**2 / 2) (Hoeffding, given the magnitudes), whatever their
  distribution.
* The fitted slope does not exclude 1/2 from below: errors that grow faster than the square root of
  the depth go the same way.

Points at a smaller depth are scaled up with the square root of the depth, or with the upper end of
the slope's interval where that is less; deeper points are taken as they are. Each is then no
smaller in the mean than what is asked for, and the pooled mean square has a chi-square limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

from assay.oracles.tolerances.curve_files import CurvePoint, MeasuredCurve
from assay.oracles.tolerances.family_scale import normal_quantile

# Eight errors that all go one way are the fewest at which the test for bias can reject.
FEWEST = 8
BIAS_LEVEL = 0.05
# Points within this factor of the depth are pooled; extrapolation takes the range of the fit.
NEAR, FITTED_RANGE = 8, 64
# A fit that explains nothing is widened by this much when it is extrapolated: over 64 times the
# measured range, constants of three families missed by 0.65 to 2.2 (docs/tolerances.md).
WIDENED = 2.5
_UPPER = 0.975
_TAIL = 0.001

BIAS_LIMIT = math.sqrt(2.0 * math.log(2.0 / BIAS_LEVEL))


class Refused(Exception):
    """The curve cannot be used here; the message is a sentence without its full stop."""


@dataclass(frozen=True)
class Evidence:
    """The measured error at one depth, in ulps of the output.

    rms: pooled and scaled to the depth asked for; upper: its limit, with what follows from heavy
    tails and from the neighbouring points.
    drift: the statistic of the test for bias, against `BIAS_LIMIT`.
    exponent: the power of the depth by which points were scaled.
    tails: how much larger than the rms of all elements that of a row's worst one was taken.
    """

    rms: float
    upper: float
    trials: int
    sizes: tuple[int, ...]
    depths: tuple[int, int]
    drift: float
    exponent: float
    tails: float
    extrapolated: bool
    widened: bool


def chi_square_quantile(freedom: int, level: float) -> float:
    """Quantile of the chi-square distribution by Wilson and Hilferty's cube root (1931).

    At the 2.5 % level it is low by 7 % for 4 degrees of freedom and by 0.5 % for 12, so that an
    upper limit of a variance made from it errs to the safe side.
    """
    z = NormalDist().inv_cdf(level)
    spread = 2.0 / (9.0 * freedom)
    return float(freedom * max(0.0, 1.0 - spread + z * math.sqrt(spread)) ** 3)


def drift(points: list[CurvePoint]) -> float:
    """Sum over trials of their mean error, in units of the rms, over the root of their number.

    For one result a trial that is the sum of the normalised errors. Where a trial has many results
    their mean counts: a bias that is small beside the rms is part of the rms.
    """
    count = sum(len(p.errors) for p in points)
    return abs(math.fsum(len(p.errors) * p.mean / p.rms for p in points)) / math.sqrt(count)


def evidence(
    curve: MeasuredCurve,
    n: int,
    depth: int,
    depth_of: Callable[[int, int], int],
    *,
    extrapolate: bool = False,
) -> Evidence:
    """The error that `curve` shows at N = n, where the kernel adds along `depth` additions.

    depth_of: the claimed depth for (rows of a launch, N).
    Raises Refused where the curve says nothing about it.
    """
    first, last = curve.measured
    usable = [p for p in curve.points if any(p.errors)]
    if not usable:
        raise Refused("no error was ever measured, so there is none to go by")
    for p in curve.points:
        if not math.isfinite(p.rms):
            raise Refused(f"some results at N = {p.n:,} were not finite")
        claimed = depth_of(max(1, p.rows // p.trials), p.n)
        if claimed != p.depth:
            raise Refused(
                f"it was measured with h = {p.depth:,} at N = {p.n:,} where the kernel claims "
                f"h = {claimed:,} now"
            )
    outside = n > last or n < first
    near = [p for p in usable if _within(p.depth, depth, NEAR) and _within(p.n, n, NEAR**2)]
    trials = sum(len(p.errors) for p in near)
    if not outside and trials >= FEWEST:
        return _pooled(curve, near, n, depth)
    if not extrapolate:
        if outside:
            raise Refused(f"N = {n:,} is outside its range, {first:,} to {last:,}")
        raise Refused(f"only {trials} trials lie near N = {n:,}, too few to see a bias")
    if n < first:
        raise Refused(f"N = {n:,} is below its range, {first:,} to {last:,}")
    deepest = max(p.depth for p in usable)
    far = [p for p in usable if p.depth * FITTED_RANGE >= deepest]
    if curve.fit is None or sum(len(p.errors) for p in far) < FEWEST:
        raise Refused("its depth or its trials do not suffice for a slope to extrapolate with")
    return _pooled(curve, far, n, depth, beyond=True)


def _within(a: int, b: int, factor: int) -> bool:
    return max(1, a) <= factor * max(1, b) and max(1, b) <= factor * max(1, a)


def _pooled(
    curve: MeasuredCurve, points: list[CurvePoint], n: int, depth: int, *, beyond: bool = False
) -> Evidence:
    fit, widened = curve.fit, False
    exponent = 0.5
    if beyond:
        assert fit is not None
        if fit.low <= 0.5 <= fit.high:
            exponent = 0.5
        elif fit.low <= 1.0 <= fit.high:
            exponent = 1.0
        else:
            exponent, widened = max(0.0, fit.slope), True
    elif fit is not None:
        if fit.low > 0.5:
            raise Refused(
                f"its slope {show_slope(curve)} excludes 1/2: the roundings go the same way"
            )
        exponent = min(0.5, max(0.0, fit.high))
    pull = drift(points)
    if pull > BIAS_LIMIT and exponent < 1.0:
        raise Refused(
            f"its signed errors are biased: {pull:.2f} standard errors from zero, where chance "
            f"gives at most {BIAS_LIMIT:.2f}"
        )
    squares, count = 0.0, 0
    for p in points:
        ratio = max(1.0, max(1, depth) / max(1, p.depth)) ** exponent
        squares += ratio * ratio * math.fsum(e * e for e in p.errors)
        count += len(p.errors)
    rms = math.sqrt(squares / count)
    upper = rms * math.sqrt(count / chi_square_quantile(count, 1.0 - _UPPER))
    neighbours = _neighbours(points, n)
    upper = max(upper, *(p.rms for p in neighbours))
    tails = max(_tail(p) for p in neighbours)
    upper *= tails * (WIDENED if widened else 1.0)
    depths = [p.depth for p in points]
    return Evidence(
        rms=rms,
        upper=upper,
        trials=count,
        sizes=tuple(p.n for p in points),
        depths=(min(depths), max(depths)),
        drift=pull,
        exponent=exponent,
        tails=tails,
        extrapolated=beyond,
        widened=widened,
    )


def _neighbours(points: list[CurvePoint], n: int) -> list[CurvePoint]:
    """The nearest point at or below N and the nearest at or above it."""
    below = [p for p in points if p.n <= n]
    above = [p for p in points if p.n >= n]
    return [*below[-1:], *above[:1]]


def _tail(p: CurvePoint) -> float:
    """How far the errors spread beyond a normal distribution of the same rms.

    1 where the largest of all elements is one that normal errors could give. Otherwise elements
    differ in their spread, and the worst kind, of which there is one in each row at least, has that
    of which `largest` is the median of the largest of `rows` draws.
    """
    if p.rms == 0.0 or p.largest <= p.rms * normal_quantile(_TAIL / p.elements):
        return 1.0
    return max(1.0, p.largest / (p.rms * normal_quantile(1.0 - 0.5 ** (1.0 / p.rows))))


def show_slope(curve: MeasuredCurve) -> str:
    if curve.fit is None:
        return "(none)"
    f = curve.fit
    return f"{f.slope:.2f} [{f.low:.2f}, {f.high:.2f}]"
