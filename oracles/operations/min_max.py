# SPDX-License-Identifier: Apache-2.0
"""min_max: (x_i - lo) / (hi - lo) over each row, lo and hi the row's smallest and largest element.

Bound, derived
--------------
lo and hi are exact. Each difference is rounded once, so the quotient is
y (1 + a) / (1 + b) (1 + d), |a|, |b| <= u, d the division. A kernel that multiplies by a
reciprocal rounds once more: relative error at most (1 + u)**2 (1 + division) / (1 - u) - 1. A
difference is a multiple of the smallest subnormal and never underflows; the quotient may: two
spacings. The reciprocal itself loses digits where hi - lo is above 2**126 and overflows where it is
below 2**-128: a kernel that promises this bound divides there, or scales first.

Under range=naive nothing is promised where hi - lo reaches the overflow threshold of the
accumulator. Under range=scaled both are halved first, which costs an element below the normal range
half a spacing, relative to hi - lo: below the bound wherever hi - lo needs the scaling.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from assay.oracles.bounds import compounded, gamma
from assay.oracles.double_double import QUOTIENT_ERROR, divide, two_sum
from assay.oracles.enclosure import Enclosure, with_relative_error
from assay.oracles.formats import Float64, Format, exponent
from assay.oracles.multiprecision import BITS, exact_context
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
from assay.oracles.operations.extremes import INF, NAN
from assay.oracles.rows import facts, on_host

# Below, the quotient's pair may lose what underflows on the way: a few 2**-1074 over hi - lo.
_TAILS_KEPT = 2.0**-900
_ABSOLUTE = 2.0**-1012


def _constant_value(policies: Policies) -> float:
    return 0.0 if policies["constant_row"] == "zero" else NAN


def enclose(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, level: Level = "fast"
) -> Enclosure:
    x = on_host(inputs["x"])
    if x.size == 0:
        return Enclosure(np.zeros_like(x), np.zeros_like(x), np.zeros_like(x))
    found = facts(x)
    lo, hi = found.smallest[:, None], found.largest[:, None]
    plain = found.finite[:, None] & (lo < hi)
    # Scaled so that the largest magnitude is near 1: hi - lo, 2**-53 at least, cannot overflow, and
    # only float64 data loses anything, 2**-1074 in places.
    low, high = np.where(plain, lo, 0.0), np.where(plain, hi, 1.0)
    e = -exponent(np.maximum(np.abs(low), np.abs(high))).astype(np.int32)
    shown, low, high = (np.ldexp(v, e) for v in (np.where(plain, x, 0.0), low, high))
    nh, nl = two_sum(shown, -np.broadcast_to(low, x.shape))
    dh, dl = two_sum(high, -low)
    h, l = divide(nh, nl, np.broadcast_to(dh, x.shape), np.broadcast_to(dl, x.shape))
    exact = with_relative_error(h, l, QUOTIENT_ERROR)
    radius = np.where(np.abs(h) < _TAILS_KEPT, exact.radius + _ABSOLUTE, exact.radius)
    ends = (x == lo) | (x == hi)
    with np.errstate(invalid="ignore", over="ignore"):
        special = (x - lo) / (hi - lo)
    special = np.where(found.finite[:, None], _constant_value(policies), special)
    special = np.where(found.nan[:, None], NAN, special)
    center = np.where(ends, np.where(x == hi, 1.0, 0.0), exact.center)
    return Enclosure(
        np.where(plain, center, special),
        np.where(plain & ~ends, exact.tail, 0.0),
        np.where(plain & ~ends, radius, 0.0),
    )


def _row(ctx: Any, values: list[Any], constant: float) -> list[Any]:
    if any(ctx.isnan(v) for v in values):
        return [ctx.nan] * len(values)
    lo, hi = min(values), max(values)
    if lo == hi:
        # By IEEE rules an infinity minus itself is NaN, whatever the policy for 0 / 0.
        return [ctx.mpf(constant) if ctx.isfinite(lo) else ctx.nan] * len(values)
    width = hi - lo
    if ctx.isinf(width):
        return [ctx.mpf(0) if ctx.isfinite(v - lo) else ctx.nan for v in values]
    return [(v - lo) / width for v in values]


def reference(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, bits: int = BITS
) -> list[Any]:
    ctx = exact_context()
    results: list[Any] = []
    for row in inputs["x"].tolist():
        if row:
            results += _row(ctx, [ctx.mpf(v) for v in row], _constant_value(policies))
    return results


def counted(
    values: list[float], counts: list[int], params: Params, policies: Policies, out_format: Format,
    bits: int = BITS,
) -> list[Any]:  # fmt: skip
    ctx = exact_context()
    return _row(ctx, [ctx.mpf(v) for v in values], _constant_value(policies)) if values else []


def before(inputs: Inputs, exact: Enclosure, out_format: Format, claim: Claim) -> Float64:
    arithmetic, u = claim.arithmetic, claim.u
    acc = arithmetic.accumulator
    relative = compounded(u, u, arithmetic.division, gamma(1.0, u))
    size = np.where(exact.finite, exact.magnitude(), 0.0)
    result = np.where(size > 0.0, size * relative + 2.0 * acc.smallest_subnormal, 0.0)
    if claim.policies["range"] == "naive":
        found = facts(on_host(inputs["x"]))
        with np.errstate(invalid="ignore", over="ignore"):
            width = (found.largest - found.smallest)[:, None] * (1.0 + u)
        reached = found.finite[:, None] & (width >= 2.0 * 2.0**acc.emax)
        result = np.where(reached, NAN, result)
        return np.where(exact.finite | reached, result, 0.0)
    return np.where(exact.finite, result, 0.0)


def condition(inputs: Inputs, exact: Enclosure, params: Params, policies: Policies) -> Float64:
    """(|x| + (1 - y) |lo| + y |hi|) / (y (hi - lo)): x, lo and hi moved by one relative change."""
    x = on_host(inputs["x"])
    if x.size == 0:
        return np.zeros_like(x)
    found = facts(x)
    lo, hi = found.smallest[:, None], found.largest[:, None]
    y = exact.center
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        value = (np.abs(x) + (1.0 - y) * np.abs(lo) + y * np.abs(hi)) / (y * (hi - lo))
    return np.where(exact.finite & (y > 0.0) & ~np.isnan(value), value, INF)


def torch_form(operands: Mapping[str, Any], params: Params) -> Any:
    x = operands["x"]
    lo, hi = x.amin(dim=-1, keepdim=True), x.amax(dim=-1, keepdim=True)
    return (x - lo) / (hi - lo)


OPERATIONS = (
    Operation(
        name="min_max",
        formula="(x_i - lo) / (hi - lo), lo = min_j x_j, hi = max_j x_j",
        kind="row",
        operands=(Operand("x", "matrix"),),
        outputs=(Output("y", "element"),),
        params={},
        policies=(
            Policy(
                "constant_row",
                ("nan", "zero"),
                "a row of equal elements gives NaN (0 / 0, as the formula in torch does), or 0",
            ),
            Policy(
                "range",
                ("scaled", "naive"),
                "scaled: right wherever the elements are finite; naive: hi - lo may overflow in "
                "the accumulator",
            ),
        ),
        families=("normal", "uniform", "constant", "negative", "offset", "wide", "integers"),
        empty=None,
        special_values=(
            SpecialValue((-INF, -INF, -INF), (NAN, NAN, NAN)),
            SpecialValue((0.0, -INF, 1.0), (NAN, NAN, NAN)),
            SpecialValue((0.0, INF, 1.0), (0.0, NAN, 0.0)),
            SpecialValue((INF, -INF, 0.0), (NAN, NAN, NAN)),
            SpecialValue((NAN, 1.0, 2.0), (NAN, NAN, NAN)),
            SpecialValue((3.0, 3.0, 3.0), (NAN, NAN, NAN)),
            SpecialValue(
                (3.0, 3.0, 3.0),
                (0.0, 0.0, 0.0),
                {"constant_row": "zero"},
                torch=(NAN, NAN, NAN),
                why="the formula in torch is 0 / 0",
            ),
            SpecialValue((-0.0, 0.0, -0.0), (NAN, NAN, NAN)),
            SpecialValue((2e19, 2e19, 1.0), (1.0, 1.0, 0.0)),
            SpecialValue((1e-40, 2e-40, 0.0), (None, 1.0, 0.0)),
            SpecialValue(
                (3e38, 3e38, -3e38),
                (1.0, 1.0, 0.0),
                torch=(NAN, NAN, 0.0),
                why="hi - lo overflows float32",
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
