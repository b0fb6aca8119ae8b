# SPDX-License-Identifier: Apache-2.0
"""mean_variance: the mean of each row and the mean squared deviation from it.

Two results a row, side by side: the mean, and sum_j (x_j - mean)**2 / (n - correction), with
correction 0 (population) or 1 (sample).

Bound, derived
--------------
Q = sum (x_j - mu)**2, mu the exact mean, D the bound of the computed mean m^ (see `means`),
M = max |x_j|, h the depth, u the accumulator's roundoff, div the division's error,
d = (1 + div)(1 + u)**2 - 1 for the last division. Squares that underflow add half a subnormal
spacing each, and the last division its floor.

* algorithm=two_pass: each x_j - m^ is rounded once, squared with one rounding and added, so the
  computed sum is sum (x_j - m^)**2 (1 + t), |t| <= gamma_(h+3), and
  sum (x_j - m^)**2 = Q + n (mu - m^)**2 <= Q + n D**2 exactly. Error: gamma_(h+3) (Q + n D**2) +
  n D**2.
* algorithm=welford (also Chan's merges of partial means and sums M2, of elements or of tiles that
  were done in two passes). A merge of na and nb elements with delta = mean_b - mean_a makes
  mean = mean_a + delta r, r = nb / n, and M2 = M2a + M2b + w delta**2, w = na nb / n.

  Mean: a convex combination of the two passes their errors on without growth. The roundings of
  delta, of r (div and that of n) and of the product add c u r |delta|, c = 3 + div/u, and the
  addition u M. Along a path of h merges the r |delta| add up to at most 2 M h; also, since
  r**2 <= w nb / (n na) <= w and sum w delta**2 = Q over all merges, to at most sqrt(h Q) (Cauchy
  and Schwarz), merges into an empty state apart, where w = 0: a path has three at most, the starts
  of a lane, a program and the combine, each with r |delta| <= M. A tile in two passes has h' of the
  h additions and a division, (c + 1) u M. So E = u ((h + c + 1) M + c min(2 M h, sqrt(h Q) + 3 M)),
  times 1 + gamma_(3 c h) for delta being that of means with errors, and half a spacing a product.
  This is the mean's bound as well: partial means may be far larger than sum |x_j| / n.

  M2: all terms are positive; two additions a level and at most c + 4 roundings of an increment:
  gamma_(2h + c + 4) Q. A delta is off by at most 2 E, an increment by w (4 |delta| E + 4 E**2), or
  by less in Welford's form delta (x - mean) for a single element. With W >= sum w, Cauchy and
  Schwarz give 4 E sqrt(Q W) + 4 E**2 W, times 1 + gamma. Subtrees of one level are disjoint and
  w <= n / 4, hence W = n h / 4; and w <= min(na, nb), which any element is among at most log2 n
  times, hence W = n log2(n) / 2.
* algorithm=moments: mean of squares minus squared mean: gamma_(h+2) sum x**2 / n for the first,
  2 |mu| D + D**2 + u (|mu| + D)**2 for the second, u for the difference, times
  n / (n - correction). It may come out negative.

Under range=naive nothing is promised where sum |x_j| or sum x_j**2 (moments) or Q reaches the
overflow threshold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from assay.oracles.bounds import compounded, gamma
from assay.oracles.enclosure import Enclosure, column, from_fractions
from assay.oracles.exact import exact_sum, exact_sum_of_squares
from assay.oracles.formats import Float64, Format
from assay.oracles.multiprecision import BITS, context, exact_context
from assay.oracles.operation import (
    Claim,
    Inputs,
    Level,
    Operand,
    Operation,
    Output,
    Params,
    Policies,
    Policy,
    SpecialValue,
)
from assay.oracles.operations.means import mean_before
from assay.oracles.operations.sums import (
    INF,
    NAN,
    RANGE,
    flush_error,
    special_sum,
    sum_before,
    unless_overflow,
)
from assay.oracles.rows import facts, only, sum_of_magnitudes


def _variances(
    sums: list[Fraction], squares: list[Fraction], n: int, correction: int
) -> list[Fraction]:
    return [(q - s * s / n) / (n - correction) for s, q in zip(sums, squares, strict=True)]


def enclose(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, level: Level = "fast"
) -> Enclosure:
    x = inputs["x"]
    n, correction = int(x.shape[1]), int(params["correction"])
    found = facts(x)
    none = np.zeros(len(found.nan), dtype=bool)
    plain = found.finite & (n > 0)
    kept = only(x, plain)
    sums = exact_sum(kept) if plain.any() else []
    mean_special = special_sum(found) if n else np.full(len(none), NAN)
    mean = column(from_fractions([s / n for s in sums]), plain, mean_special)
    if n > correction and plain.any():
        values = _variances(sums, exact_sum_of_squares(kept), n, correction)
        variance = column(from_fractions(values), plain, np.full(len(none), NAN))
    else:
        variance = column(from_fractions([]), none, np.full(len(none), NAN))
    return Enclosure(
        np.hstack([mean.center, variance.center]),
        np.hstack([mean.tail, variance.tail]),
        np.hstack([mean.radius, variance.radius]),
    )


def reference(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, bits: int = BITS
) -> list[Any]:
    # The definition itself, with room for x - mean to cancel.
    ctx = context(max(bits, 700))
    results = []
    for row in inputs["x"].tolist():
        n, free = len(row), len(row) - int(params["correction"])
        if n == 0:
            results += [ctx.nan, ctx.nan]
            continue
        mean = ctx.fsum(ctx.mpf(v) for v in row) / n
        if free <= 0 or not ctx.isfinite(mean):
            results += [mean, ctx.nan]
            continue
        results += [mean, ctx.fsum((ctx.mpf(v) - mean) ** 2 for v in row) / free]
    return results


def counted(
    values: list[float], counts: list[int], params: Params, policies: Policies, out_format: Format,
    bits: int = BITS,
) -> list[Any]:  # fmt: skip
    wide, ctx = exact_context(), context(bits)
    pairs = list(zip(map(wide.mpf, values), counts, strict=True))
    n = sum(counts)
    free = n - int(params["correction"])
    if n == 0:
        return [ctx.nan, ctx.nan]
    mean = sum((v * k for v, k in pairs), wide.mpf(0)) / n
    if free <= 0 or not wide.isfinite(mean):
        return [mean, ctx.nan]
    return [mean, sum(((v - mean) ** 2 * k for v, k in pairs), wide.mpf(0)) / free]


def _deviations(x: Any, variance: Enclosure, free: int) -> Float64:
    """An upper bound of sum_j (x_j - mean)**2, from the variance where there is one."""
    if free > 0:
        return np.where(variance.finite, variance.magnitude(), 0.0) * free
    return np.zeros((int(x.shape[0]), 1))


def _merged_mean_error(x: Any, q: Float64, n: int, claim: Claim) -> Float64:
    """E, for means that are merged; q: Q."""
    found, u, h = facts(x), claim.u, claim.depth
    size = np.maximum(np.abs(found.largest), np.abs(found.smallest))[:, None]
    c = 3.0 + claim.arithmetic.division / u
    moved = np.minimum(2.0 * size * h, np.sqrt(h * q) + 3.0 * size)
    spacings = (h + 2.0) * claim.arithmetic.accumulator.smallest_subnormal
    spacings += claim.arithmetic.division_floor
    off = u * ((h + c + 1.0) * size + c * moved) + spacings
    return np.asarray(off * (1.0 + gamma(3.0 * c * (h + 1.0), u)))


def before(inputs: Inputs, exact: Enclosure, out_format: Format, claim: Claim) -> Float64:
    x = inputs["x"]
    rows, n = int(x.shape[0]), int(x.shape[1])
    correction = int(claim.params["correction"])
    result = np.zeros((rows, 2))
    if n == 0:
        return result
    mean, variance = exact[:, :1], exact[:, 1:]
    acc, u = claim.arithmetic.accumulator, claim.u
    mu = np.where(mean.finite, mean.magnitude(), 0.0)
    total = np.where(mean.finite, sum_of_magnitudes(x), 0.0)
    d = compounded(claim.arithmetic.division, u, u)
    with np.errstate(over="ignore", invalid="ignore"):
        algorithm = claim.policies["algorithm"]
        q = np.where(mean.finite, _deviations(x, variance, n - correction), 0.0)
        if algorithm == "welford":
            mean_error = _merged_mean_error(x, q, n, claim)
        else:
            mean_error = mean_before(sum_before(mu * n, total, claim), mu, n, claim)
        result[:, :1] = np.where(mean.finite, mean_error, unless_overflow(x, mean, claim))
        if n <= correction:
            return result
        squares = q + n * mu * mu
        lost = n * acc.smallest_subnormal
        if algorithm == "two_pass":
            shifted = n * mean_error**2
            sums = q + shifted
            error = claim.sum_error(sums, sums, products=True, extra=2.0) + shifted
        elif algorithm == "welford":
            h = claim.depth
            merges = n * min(h / 4.0, math.log2(n) / 2.0)
            growth = gamma(2 * h + 7.0 + claim.arithmetic.division / u, u)
            moved = 4.0 * mean_error * np.sqrt(q * merges) + 4.0 * mean_error**2 * merges
            error = growth * q + moved * (1.0 + growth)
            lost += merges * acc.smallest_subnormal
        else:
            extra = 1.0 + claim.arithmetic.division / u
            first = claim.sum_error(squares, squares, products=True, extra=extra)
            second = n * (2.0 * mu * mean_error + mean_error**2 + u * (mu + mean_error) ** 2)
            error = (first + second) * (1.0 + u) + u * q
            lost += n * (claim.arithmetic.division_floor + acc.smallest_subnormal)
        grown = 1.0 + claim.relative_sum_error(products=True, extra=2.0)
        error = error + (lost * grown + flush_error(claim)) * (1.0 + d)
        limit = error / (n - correction) * (1.0 + d) + q / (n - correction) * d
        limit = limit + claim.arithmetic.division_floor + acc.smallest_subnormal
        if claim.policies["range"] == "naive":
            reached = squares if algorithm == "moments" else q
            limit = np.where(reached + error >= 2.0 * 2.0**acc.emax, NAN, limit)
    # NaN for a special row is expected; where the mean overflows nothing is promised.
    result[:, 1:] = np.where(variance.finite, limit, 0.0)
    return result


def condition(inputs: Inputs, exact: Enclosure, params: Params, policies: Policies) -> Float64:
    """sum |x_j| / |sum x_j| for the mean, 2 sqrt(1 + mean**2 / variance) for the variance.

    The latter is what 2 sum |x_j - mean| |x_j| / sum (x_j - mean)**2 is at most (Chan and Lewis,
    "Computing standard deviations: accuracy", CACM 22, 1979).
    """
    x = inputs["x"]
    n = max(1, int(x.shape[1]))
    mean, variance = exact.center[:, :1], exact.center[:, 1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        first = sum_of_magnitudes(x) / n / np.abs(mean)
        population = variance * (n - params["correction"]) / n
        second = 2.0 * np.sqrt(1.0 + mean**2 / population)
    both = np.hstack([first, second])
    return np.where(np.isnan(both), INF, both)


def torch_form(operands: Mapping[str, Any], params: Params) -> Any:
    x = operands["x"]
    return x.mean(dim=-1), x.var(dim=-1, correction=int(params["correction"]))


OPERATIONS = (
    Operation(
        name="mean_variance",
        formula="m = sum_j x_j / n, sum_j (x_j - m)^2 / (n - correction)",
        kind="row",
        operands=(Operand("x", "matrix"),),
        outputs=(Output("mean", "row"), Output("variance", "row")),
        params={"correction": 0.0},
        policies=(
            Policy(
                "algorithm",
                ("two_pass", "welford", "moments"),
                "two_pass: the mean first, then squared deviations; welford: partial means and "
                "sums of squares merged (Welford, Chan); moments: mean of squares minus squared "
                "mean, which loses all digits where the mean is large",
            ),
            RANGE,
        ),
        families=(
            "normal",
            "uniform",
            "constant",
            "wide",
            "integers",
            "offset",
            "outliers",
            "tiny",
        ),
        empty=NAN,
        special_values=(
            SpecialValue((-INF, -INF, -INF), (-INF, NAN)),
            SpecialValue((0.0, INF, 1.0), (INF, NAN)),
            SpecialValue((INF, -INF, 0.0), (NAN, NAN)),
            SpecialValue((NAN, 1.0, 2.0), (NAN, NAN)),
            SpecialValue((3.0, 3.0, 3.0), (3.0, 0.0)),
            SpecialValue((-0.0, -0.0, -0.0), (0.0, 0.0)),
            SpecialValue(
                (3e38, 3e38, -3e38),
                (None, INF),
                torch=(INF, INF),
                why="the sum overflows float32, the mean does not",
            ),
        ),
        enclose=enclose,
        reference=reference,
        counted=counted,
        before=before,
        condition=condition,
        torch=torch_form,
    ),
)
