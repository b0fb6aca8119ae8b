# SPDX-License-Identifier: Apache-2.0
"""logsumexp: log(sum_j exp(x_j)) of the whole array.

Bound, derived
--------------
The kernel computes m + log(S^), see `exponentials` for S^ and its logarithm, whose absolute error
is E, and rounds the sum: |y^ - y| <= E (1 + u) + u |y|. The bound is absolute: where y is near 0
its relative condition has no limit.

To first order with the compiled figures: u (2.224 Lbar + h + 4 + 4 max(log 2, log S) + |y|).

Under infinite_max=nan a kernel subtracts an infinite maximum from itself and gives NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from assay.oracles.double_double import two_sum
from assay.oracles.enclosure import Enclosure, column
from assay.oracles.exponentials import Kinds, log_error, log_sums, mean_distance, sum_growth
from assay.oracles.formats import Float64, Format
from assay.oracles.multiprecision import BITS, context
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
    relative,
)
from assay.oracles.rows import facts, on_host, only

NAN, INF = float("nan"), float("inf")


def enclose(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, level: Level = "fast"
) -> Enclosure:
    x = inputs["x"]
    found = facts(x)
    kinds = Kinds.of(found, int(x.shape[1]))
    infinite = NAN if policies["infinite_max"] == "nan" else INF
    special = np.where(kinds.nan, NAN, np.where(kinds.infinite, infinite, -infinite))
    if x.shape[1] == 0:
        special = np.full(len(special), -INF)
    plain = kinds.plain
    maxima = found.largest[plain]
    logs = log_sums(only(x, plain), maxima, fine=level != "fast") if plain.any() else []
    high, low = np.array([s.high for s in logs]), np.array([s.low for s in logs])
    error = np.array([s.error for s in logs])
    y, rest = two_sum(maxima, high)
    tail = rest + low
    radius = error + np.where(tail != 0.0, 2.0**-52 * (np.abs(rest) + np.abs(low)), 0.0)
    return column(Enclosure(y + 0.0, tail, radius), plain, special)


# Precision is raised until the result has so many good bits, or this many are spent.
_GOOD_BITS, _MOST_BITS = 170, 3000


def _log_sum(ctx: Any, pairs: list[tuple[Any, int]]) -> Any:
    return ctx.log(ctx.fsum(ctx.exp(v) * k for v, k in pairs))


def _adapted(pairs: list[tuple[float, int]], bits: int) -> Any:
    """log(sum k exp(v)) to 170 good bits, also near zero."""
    while True:
        ctx = context(bits)
        if any(math.isnan(v) for v, _ in pairs):
            return ctx.nan
        value = _log_sum(ctx, [(ctx.mpf(v), k) for v, k in pairs])
        size = max((abs(v) for v, _ in pairs if math.isfinite(v)), default=0.0)
        enough = abs(value) >= ctx.ldexp(1.0 + size, _GOOD_BITS + 20 - bits)
        if not ctx.isfinite(value) or enough or bits >= _MOST_BITS:
            return value
        bits *= 2


def reference(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, bits: int = BITS
) -> list[Any]:
    return [
        _by_policy(_adapted([(v, 1) for v in row], bits), bool(row), policies)
        for row in inputs["x"].tolist()
    ]


def counted(
    values: list[float], counts: list[int], params: Params, policies: Policies, out_format: Format,
    bits: int = BITS,
) -> list[Any]:  # fmt: skip
    pairs = list(zip(values, counts, strict=True))
    return [_by_policy(_adapted(pairs, bits), bool(values), policies)]


def _by_policy(value: Any, elements: bool, policies: Policies) -> Any:
    ctx = context()
    if elements and ctx.isinf(value) and policies["infinite_max"] == "nan":
        return ctx.nan
    return value


def before(inputs: Inputs, exact: Enclosure, out_format: Format, claim: Claim) -> Float64:
    x = inputs["x"]
    n = int(x.shape[1])
    result = np.zeros(exact.shape)
    plain = exact.finite[:, 0]
    if n == 0 or not plain.any():
        return result
    maxima = facts(x).largest[plain]
    y = exact.center[plain, 0]
    log_sum = np.maximum(0.0, (y - maxima) + exact.tail[plain, 0])
    s = sum_growth(mean_distance(only(x, plain), maxima, log_sum), n, claim)
    off = log_error(log_sum[:, None], s, claim)
    u = claim.u
    result[plain] = off * (1.0 + u) + u * np.abs(y)[:, None]
    return result


def condition(inputs: Inputs, exact: Enclosure, params: Params, policies: Policies) -> Float64:
    """sum_j p_j |x_j| / |y|."""
    x = on_host(inputs["x"])
    with np.errstate(invalid="ignore", over="ignore"):
        weight = np.exp(np.where(exact.finite, x - exact.center, -INF))
        moved = np.where(weight > 0.0, weight * np.abs(x), 0.0).sum(axis=1, keepdims=True)
    return relative(moved, exact)


def torch_form(operands: Mapping[str, Any], params: Params) -> Any:
    return operands["x"].logsumexp(dim=-1)


_NAIVE = {"infinite_max": "nan"}

OPERATIONS = (
    Operation(
        name="logsumexp",
        formula="m + log(sum_j exp(x_j - m)), m = max_j x_j",
        kind="whole",
        operands=(Operand("x", "matrix"),),
        outputs=(Output("y", "row"),),
        params={},
        policies=(
            Policy(
                "infinite_max",
                ("limit", "nan"),
                "limit: an array that is -inf as a whole gives -inf, one with +inf gives +inf, as "
                "torch does; nan: both give NaN",
            ),
        ),
        families=(
            "normal", "uniform", "constant", "wide_logits", "negative", "masked", "integers",
            "near_zero_logsumexp",
        ),
        empty=-INF,
        special_values=(
            SpecialValue((-INF, -INF, -INF), (-INF,)),
            SpecialValue((-INF, -INF, -INF), (NAN,), _NAIVE, torch=(-INF,), why="the limit"),
            SpecialValue((0.0, -INF, 1.0), (None,)),
            SpecialValue((0.0, INF, 1.0), (INF,)),
            SpecialValue((0.0, INF, 1.0), (NAN,), _NAIVE, torch=(INF,), why="the limit"),
            SpecialValue((INF, -INF, 0.0), (INF,)),
            SpecialValue((NAN, 1.0, INF), (NAN,)),
            SpecialValue((-0.0, -0.0, -0.0), (None,)),
            SpecialValue((3e38, 3e38, -3e38), (None,)),
        ),
        enclose=enclose,
        reference=reference,
        counted=counted,
        before=before,
        condition=condition,
        torch=torch_form,
    ),
)  # fmt: skip
