# SPDX-License-Identifier: Apache-2.0
"""rms_norm: h_i / sqrt(mean_j h_j^2 + eps) * w_i over each row, with h = x or h = x + residual.

Bound, derived
--------------
u is the accumulator's roundoff; every step is relative.

* h: a residual is added with one rounding, h_i (1 + d). The inputs are exact, so nothing cancels
  beyond that. Under residual=stored the sum is rounded to the storage format first, the oracle
  rounds it the same way, and the kernel's h is exact.
* Sum of squares: (1 + d)**2 from h, then gamma_(H+1) for squares and H additions, all terms
  positive.
* Mean: one division. Plus eps: eps is passed in float32, u, and the addition rounds, u.
  v^ = v (1 + b) with 1 + b the product of all of these. Squares and mean may be subnormal, and
  atomics flush: an absolute error, taken relative to v.
* 1/sqrt: (1 - b)**(-1/2), times the rsqrt instruction's own error.
* Two products, u each; each may be subnormal.

Under cast=before_weight the normalised value is rounded to the output format and then multiplied
by the weight. The oracle rounds likewise; where the kernel's accumulated error could make that
rounding go the other way, the bound allows both neighbours.

Under range=scaled h is divided by a scale first, one division more in h, and eps by its square.
The ratio may be subnormal: the floor of a division, times a reciprocal root of at most sqrt(n).

Under range=naive: where the squares may overflow, the result may be anything between 0 and 2y, or,
compensated, NaN; where x + residual overflows or v falls below the smallest argument of rsqrt,
nothing is promised.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from assay.oracles.bounds import compounded
from assay.oracles.double_double import PRODUCT_ERROR, multiply, two_product, two_sum
from assay.oracles.enclosure import Enclosure, exactly, with_relative_error
from assay.oracles.exact import exact_dot, exact_sum_of_squares
from assay.oracles.formats import Float64, Format, round_nearest, ulp
from assay.oracles.multiprecision import context, from_fraction
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
from assay.oracles.rows import on_host

# Two double-double products and the rounding of the reciprocal root to a pair.
_RELATIVE_ERROR = 2 * PRODUCT_ERROR + 2.0**-104


def _summed(inputs: Inputs, policies: Policies, out_format: Format) -> tuple[Float64, Float64]:
    """h as an exact pair."""
    x = on_host(inputs["x"])
    residual = inputs.get("residual")
    if residual is None:
        return x, np.zeros_like(x)
    residual = on_host(residual)
    with np.errstate(invalid="ignore", over="ignore"):
        high, low = two_sum(x, residual)
    low = np.where(np.isfinite(high), low, 0.0)
    if policies["residual"] == "stored":
        pair = Enclosure(high, low, np.zeros_like(high))
        rounded, _ = pair.round(out_format)
        return rounded, np.zeros_like(rounded)
    return high, low


def _mean_square(high: Float64, low: Float64) -> list[Fraction]:
    total = exact_sum_of_squares(high)
    if low.any():
        cross, square = exact_dot(high, low), exact_sum_of_squares(low)
        total = [a + 2 * b + c for a, b, c in zip(total, cross, square, strict=True)]
    n = max(1, high.shape[1])
    return [t / n for t in total]


def _normalised(
    high: Float64, low: Float64, eps: float
) -> tuple[Float64, Float64, Float64, Float64]:
    """(h * r as a pair, v, r) for finite h; r is infinite where v = 0."""
    ctx = context()
    v = [m + Fraction(eps) for m in _mean_square(high, low)]
    r_head, r_tail = [], []
    for value in v:
        if value == 0:
            r_head.append(np.inf)
            r_tail.append(0.0)
            continue
        r = 1 / ctx.sqrt(from_fraction(ctx, value))
        head = float(r)
        r_head.append(head)
        r_tail.append(float(r - head))
    rh, rt = np.array(r_head)[:, None], np.array(r_tail)[:, None]
    safe = np.where(np.isfinite(rh), rh, 0.0)
    t, tt = multiply(high, low, np.broadcast_to(safe, high.shape), np.broadcast_to(rt, high.shape))
    return t, tt, np.array([_as_float(f) for f in v])[:, None], rh


def _as_float(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:  # squares of float64 data
        return np.inf


def _weight(inputs: Inputs) -> Float64:
    x = inputs["x"]
    weight = inputs.get("weight")
    given = np.ones(x.shape[1]) if weight is None else on_host(weight)
    return np.broadcast_to(given, tuple(x.shape))


def enclose(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, level: Level = "fast"
) -> Enclosure:
    high, low = _summed(inputs, policies, out_format)
    weight = _weight(inputs)
    finite_rows = np.isfinite(high).all(axis=1, keepdims=True)
    h, l = np.where(finite_rows, high, 0.0), np.where(finite_rows, low, 0.0)
    w = np.where(np.isfinite(weight), weight, 1.0)
    t, tt, _, r = _normalised(h, l, params["eps"])
    sign = np.sign(high)
    if policies["cast"] == "before_weight":
        normalised = with_relative_error(t, tt, _RELATIVE_ERROR)
        stored, decided = normalised.round(out_format)
        stored = np.where(np.isfinite(stored), stored, 0.0)
        sign = np.sign(stored)  # it may have been rounded to zero
        y, yt = two_product(stored, w)
        exact = exactly(y)
        exact = Enclosure(
            exact.center, yt, np.where(decided, 0.0, np.abs(w) * normalised.ulp(out_format))
        )
    else:
        y, yt = multiply(t, tt, w, np.zeros_like(w))
        exact = with_relative_error(y, yt, _RELATIVE_ERROR)
    with np.errstate(invalid="ignore", over="ignore"):
        # By IEEE rules from here on: an infinite mean gives r = 0, v = 0 gives r = infinity.
        nan_row = np.isnan(high).any(axis=1, keepdims=True)
        factor = np.where(nan_row, np.nan, np.where(finite_rows, r, 0.0))
        head = np.where(finite_rows & np.isfinite(r), sign, high * factor)
        special = head * weight
    plain = finite_rows & np.isfinite(r) & np.isfinite(weight)
    return Enclosure(
        np.where(plain, exact.center, special),
        np.where(plain, exact.tail, 0.0),
        np.where(plain, exact.radius, 0.0),
    )


def reference(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, bits: int = 700
) -> list[Any]:
    # x + residual may need 2**127 beside 2**-149: 300 bits hold every sum of two float32 values.
    ctx = context(max(700, bits))
    x, weight = inputs["x"], _weight(inputs)
    residual = inputs.get("residual")
    results: list[Any] = []
    for i in range(x.shape[0]):
        h = [ctx.mpf(v) for v in x[i].tolist()]
        if residual is not None:
            h = [a + ctx.mpf(b) for a, b in zip(h, residual[i].tolist(), strict=True)]
            if policies["residual"] == "stored":
                h = [_round_mpf(ctx, v, out_format) for v in h]
        v = ctx.fsum(h, squared=True) / max(1, len(h)) + ctx.mpf(params["eps"])
        root = ctx.sqrt(v)
        for a, w in zip(h, weight[i].tolist(), strict=True):
            # By IEEE rules 0 / 0 is NaN; mpmath raises instead.
            t = a / root if v != 0 else ctx.nan
            if policies["cast"] == "before_weight":
                t = _round_mpf(ctx, t, out_format)
            results.append(t * ctx.mpf(w))
    return results


def _round_mpf(ctx: Any, value: Any, fmt: Format) -> Any:
    """mpf rounded to nearest in `fmt` through integers, independent of the numpy code."""
    if value == 0 or not ctx.isfinite(value):
        return value
    e = max(int(ctx.floor(ctx.log(abs(value), 2))), fmt.emin)
    if abs(value) >= ctx.ldexp(1, e + 1):  # the logarithm may land one too low
        e += 1
    step = ctx.ldexp(1, e - fmt.precision + 1)
    rounded = ctx.nint(value / step) * step
    return rounded if abs(rounded) <= fmt.largest else ctx.sign(value) * ctx.inf


def before(inputs: Inputs, exact: Enclosure, out_format: Format, claim: Claim) -> Float64:
    x = inputs["x"]
    if x.size == 0:
        return np.zeros_like(x)
    arithmetic, u = claim.arithmetic, claim.arithmetic.u
    acc = arithmetic.accumulator
    policies, eps = claim.policies, claim.params["eps"]
    naive = policies["range"] == "naive"
    high, low = _summed(inputs, policies, out_format)
    finite_rows = np.isfinite(high).all(axis=1, keepdims=True)
    h, l = np.where(finite_rows, high, 0.0), np.where(finite_rows, low, 0.0)
    weight = np.abs(_weight(inputs))
    t, tt, v, _ = _normalised(h, l, eps)
    n = x.shape[1]
    added = u if "residual" in inputs and policies["residual"] == "exact" else 0.0
    if not naive:
        # h is divided by a scale, and eps by its square.
        added = compounded(added, arithmetic.division)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        division = arithmetic.division
        squares = compounded(added, added, claim.relative_sum_error(products=True))
        b: Float64 | float = compounded(squares, division, u, u)
        if not naive:
            b = compounded(b, division, u)
        if naive:
            # The mean of n squares, each off by at most a subnormal spacing (its error may be kept
            # and be lost too), what the sum flushes, and the division.
            off = acc.smallest_subnormal
            off += claim.atomics * arithmetic.atomic_flush / n + arithmetic.division_floor
            b = b + np.where(v > 0.0, off * (1.0 + b) / v, 0.0)
        b = np.broadcast_to(b, v.shape)
        # A factor of 1 / sqrt(1 - b); what it is above 1.
        root = np.where(b < 1.0, np.expm1(-0.5 * np.log1p(-np.minimum(b, 1.0))), np.inf)
        relative = compounded(added, root, arithmetic.rsqrt, u)
        norm = np.abs(t) + np.abs(tt)
        spacing = acc.smallest_subnormal
        if not naive:
            # The largest ratio is 1, so that their mean square is at least 1 / n; a little more for
            # the roundings of the root itself.
            spacing += 2.0 * math.sqrt(n) * arithmetic.division_floor
        if policies["cast"] == "before_weight":
            off = norm * relative + spacing
            above = round_nearest(norm + off, out_format)
            low_end = np.maximum(0.0, norm - off)
            below = round_nearest(low_end, out_format)
            if arithmetic.cast(out_format) > 0.5:  # the cast truncates
                below = np.where(below > low_end, below - ulp(low_end, out_format), below)
            stored = np.where(np.isfinite(above), above, out_format.largest)
            floor = np.where(
                low_end < out_format.smallest_normal, arithmetic.cast_floor(out_format), 0.0
            )
            result = weight * (above - below + floor) + weight * stored * u + spacing
        else:
            relative = compounded(relative, u)
            result = norm * weight * relative + weight * spacing + acc.smallest_subnormal
        unjudged = np.zeros_like(finite_rows)
        if naive:
            mean_up = v * (1.0 + b)
            overflow = mean_up * n >= 2.0 * 2.0**acc.emax
            result = np.where(overflow, np.maximum(result, exact.magnitude()), result)
            if claim.compensated:
                # TwoSum takes an infinity from itself.
                result = np.where(overflow, np.nan, result)
            tiny = v * (1.0 - b) <= arithmetic.rsqrt_smallest_argument
            lost = (np.abs(h) * (1.0 + 2.0 * u) >= 2.0 * 2.0**acc.emax).any(axis=1, keepdims=True)
            result = np.where(tiny | lost, np.nan, result)
            # An infinite weight meets a factor of 0 or infinity there: no special value is sure.
            unjudged = finite_rows & (overflow | tiny | lost)
        # Nor where the normalised value may round to zero ahead of the weight.
        first = out_format if policies["cast"] == "before_weight" else acc
        unjudged = unjudged | (finite_rows & (norm <= 2.0 * first.smallest_subnormal))
    return np.where(exact.finite, result, np.where(unjudged, np.nan, 0.0))


def counted(
    values: list[float], counts: list[int], params: Params, policies: Policies, out_format: Format,
    bits: int = 700,
) -> list[Any]:  # fmt: skip
    # Without weight and residual: those go with positions, not with values.
    ctx = context(max(700, bits))
    pairs = list(zip(map(ctx.mpf, values), counts, strict=True))
    v = ctx.fsum(h**2 * k for h, k in pairs) / max(1, sum(counts)) + ctx.mpf(params["eps"])
    normalised = [h / ctx.sqrt(v) if v != 0 else ctx.nan for h, _ in pairs]
    if policies["cast"] == "before_weight":
        return [_round_mpf(ctx, t, out_format) for t in normalised]
    return normalised


def condition(inputs: Inputs, exact: Enclosure, params: Params, policies: Policies) -> Float64:
    """1 + r_i (1 - c_i) + sum_(j != i) r_j c_j with c_i = h_i**2 / sum_j (h_j**2 + eps).

    The 1 is the weight's, if there is one; r_j = (|x_j| + |residual_j|) / |h_j| is how x + residual
    amplifies.
    """
    x = on_host(inputs["x"])
    if x.size == 0:
        return np.zeros(x.shape)
    residual = on_host(inputs["residual"]) if "residual" in inputs else np.zeros(())
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        h = x + residual
        moved = np.abs(x) + np.abs(residual)
        total = (h * h).sum(axis=1, keepdims=True) + x.shape[1] * params["eps"]
        c = h * h / total
        # r_j c_j without the division by h_j, which may be zero.
        weighted = moved * np.abs(h) / total
        value = moved / np.abs(h) * (1.0 - c) + weighted.sum(axis=1, keepdims=True) - weighted
        value = np.maximum(value, 0.0) + (1.0 if "weight" in inputs else 0.0)
    return np.where(exact.finite & (exact.center != 0.0) & ~np.isnan(value), value, np.inf)


def torch_form(operands: Mapping[str, Any], params: Params) -> Any:
    import torch

    x = operands["x"] if "residual" not in operands else operands["x"] + operands["residual"]
    shape = (x.shape[-1],)
    return torch.nn.functional.rms_norm(x, shape, operands.get("weight"), params["eps"])


NAN, INF = float("nan"), float("inf")

_OPERATION = Operation(
    name="rms_norm",
    formula="h_i / sqrt(mean_j h_j^2 + eps) * w_i, h = x or x + residual",
    kind="row",
    operands=(
        Operand("x", "matrix"),
        Operand("weight", "columns", default="ones"),
        Operand("residual", "matrix", default="none"),
    ),
    outputs=(Output("y", "element"),),
    params={"eps": 1e-6},
    policies=(
        Policy(
            "cast",
            ("end", "before_weight"),
            "end: one cast after the weight; before_weight: the normalised value is cast to the "
            "output dtype, then multiplied by the weight",
        ),
        Policy(
            "residual",
            ("exact", "stored"),
            "exact: x + residual is added in the accumulator; stored: rounded to x's dtype first",
        ),
        Policy(
            "range",
            ("scaled", "naive"),
            "scaled: right at every size of x; naive: squares may overflow or underflow in the "
            "accumulator",
        ),
    ),
    families=("normal", "uniform", "constant", "wide", "outliers", "tiny", "huge", "integers"),
    empty=None,
    special_values=(
        SpecialValue((-INF, -INF, -INF), (NAN, NAN, NAN)),
        SpecialValue((0.0, -INF, 1.0), (0.0, NAN, 0.0)),
        SpecialValue((0.0, INF, 1.0), (0.0, NAN, 0.0)),
        SpecialValue((INF, -INF, 0.0), (NAN, NAN, 0.0)),
        SpecialValue((NAN, 1.0, 2.0), (NAN, NAN, NAN)),
        SpecialValue((-0.0, -0.0, -0.0), (0.0, 0.0, 0.0)),
        SpecialValue((3.0, 3.0, 3.0), (None, None, None)),
        SpecialValue((1e-40, 2e-40, 0.0), (None, None, 0.0)),
        SpecialValue(
            (2e19, 2e19, 1.0),
            (None, None, None),
            torch=(0.0, 0.0, 0.0),
            why="torch squares in float32, range=naive",
        ),
    ),
    enclose=enclose,
    reference=reference,
    counted=counted,
    before=before,
    condition=condition,
    torch=torch_form,
)

OPERATIONS = (_OPERATION,)
