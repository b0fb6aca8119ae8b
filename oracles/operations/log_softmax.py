# SPDX-License-Identifier: Apache-2.0
"""log_softmax: (x_i - m) - log(sum_j exp(x_j - m)) over each row, m the row's maximum.

Bound, derived
--------------
E is the absolute error of the computed log S, see `exponentials`; t_i = x_i - m, u the
accumulator's roundoff.

* form=shifted: t_i is rounded once, u |t_i|, and the difference once: u |t_i| + E, times 1 + u, and
  u |y_i|.
* form=direct, x_i - (m + log S): the logsumexp is rounded, u |lse|, instead of t_i, which loses the
  size of the maximum: u |lse| + E, times 1 + u, and u |y_i|.

The bound is absolute. The logarithm of a computed softmax is another algorithm, which loses all
digits of small results, and no honest way to claim this operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from assay.oracles.double_double import two_sum
from assay.oracles.enclosure import Enclosure
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


def _masked_value(policies: Policies) -> float:
    return -INF if policies["masked_row"] == "minus_infinity" else NAN


def enclose(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, level: Level = "fast"
) -> Enclosure:
    x = on_host(inputs["x"])
    center, tail, radius = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    if x.size == 0:
        return Enclosure(center, tail, radius)
    found = facts(inputs["x"])
    kinds = Kinds.of(found, x.shape[1])
    center[kinds.nan | kinds.infinite] = NAN
    center[kinds.masked] = _masked_value(policies)
    plain = kinds.plain
    if not plain.any():
        return Enclosure(center, tail, radius)
    rows, maxima = x[plain], found.largest[plain]
    logs = log_sums(only(inputs["x"], plain), maxima, fine=level != "fast")
    high, low, error = (
        np.array([[getattr(s, name)] for s in logs]) for name in ("high", "low", "error")
    )
    with np.errstate(invalid="ignore", over="ignore"):
        t, rest = two_sum(rows, np.broadcast_to(-maxima[:, None], rows.shape))
        y, gap = two_sum(t, np.broadcast_to(-high, t.shape))
        y_tail = gap + (rest - low)
        slack = 2.0**-51 * (np.abs(gap) + np.abs(rest) + np.abs(low))
    finite = np.isfinite(y)
    center[plain] = y
    tail[plain] = np.where(finite, y_tail, 0.0)
    radius[plain] = np.where(finite, error + np.where(y_tail != 0.0, slack, 0.0), 0.0)
    return Enclosure(center, tail, radius)


# As for logsumexp: the largest element's result may be as small as exp(-100).
_GOOD_BITS, _MOST_BITS = 170, 3000


def _row(values: list[float], counts: list[int], policies: Policies, bits: int) -> list[Any]:
    while True:
        ctx = context(bits)
        row = [ctx.mpf(v) for v in values]
        if any(ctx.isnan(v) for v in row) or max(row) == INF:
            return [ctx.nan] * len(row)
        if max(row) == -INF:
            return [ctx.mpf(_masked_value(policies))] * len(row)
        if sum(k for v, k in zip(row, counts, strict=True) if v > -INF) == 1:
            # log(exp(v)) is v, which no precision would tell.
            return [ctx.mpf(0) if v > -INF else ctx.ninf for v in row]
        total = ctx.log(ctx.fsum(ctx.exp(v) * k for v, k in zip(row, counts, strict=True)))
        results = [v - total for v in row]
        size = 1.0 + max(abs(v) for v in values if abs(v) < INF)
        least = ctx.ldexp(size, _GOOD_BITS + 20 - bits)
        if bits >= _MOST_BITS or all(abs(y) >= least for y in results):
            return results
        bits *= 2


def reference(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, bits: int = BITS
) -> list[Any]:
    results: list[Any] = []
    for row in inputs["x"].tolist():
        if row:
            results += _row(row, [1] * len(row), policies, bits)
    return results


def counted(
    values: list[float], counts: list[int], params: Params, policies: Policies, out_format: Format,
    bits: int = BITS,
) -> list[Any]:  # fmt: skip
    return _row(values, counts, policies, bits) if values else []


def before(inputs: Inputs, exact: Enclosure, out_format: Format, claim: Claim) -> Float64:
    x = on_host(inputs["x"])
    result = np.zeros(x.shape)
    if x.size == 0:
        return result
    found = facts(x)
    plain = Kinds.of(found, x.shape[1]).plain
    if not plain.any():
        return result
    rows, maxima = x[plain], found.largest[plain]
    y = np.where(np.isfinite(exact.center[plain]), exact.center[plain], -INF)
    log_sum = np.maximum(0.0, -y.max(axis=1))
    s = sum_growth(mean_distance(rows, maxima, log_sum), x.shape[1], claim)
    off, u = log_error(log_sum[:, None], s, claim), claim.u
    with np.errstate(invalid="ignore", over="ignore"):
        if claim.policies["form"] == "direct":
            moved = u * (np.abs(maxima + log_sum)[:, None] + off)
        else:
            moved = u * (maxima[:, None] - rows)
        limit = (moved + off) * (1.0 + u) + u * np.abs(y)
    # exp(-inf) is 0 and its logarithm -inf, exactly.
    result[plain] = np.where(np.isneginf(rows), 0.0, limit)
    return result


def condition(inputs: Inputs, exact: Enclosure, params: Params, policies: Policies) -> Float64:
    """((1 - p_i) |x_i| + sum_(j != i) p_j |x_j|) / |y_i|."""
    x = on_host(inputs["x"])
    with np.errstate(invalid="ignore"):
        p = np.where(np.isfinite(exact.center), np.exp(exact.center), 0.0)
        weighted = np.where(p > 0.0, p * np.abs(x), 0.0)
        moved = np.abs(x) - 2.0 * weighted + weighted.sum(axis=1, keepdims=True)
    return relative(np.maximum(moved, 0.0), exact)


def torch_form(operands: Mapping[str, Any], params: Params) -> Any:
    return operands["x"].log_softmax(dim=-1)


OPERATIONS = (
    Operation(
        name="log_softmax",
        formula="(x_i - m) - log(sum_j exp(x_j - m)), m = max_j x_j",
        kind="row",
        operands=(Operand("x", "matrix"),),
        outputs=(Output("y", "element"),),
        params={},
        policies=(
            Policy(
                "masked_row",
                ("nan", "minus_infinity"),
                "a row that is -inf as a whole gives NaN in every place, as torch does, or "
                "minus_infinity",
            ),
            Policy(
                "form",
                ("shifted", "direct"),
                "shifted: (x - m) - log(sum); direct: x - logsumexp, which loses the size of the "
                "maximum",
            ),
        ),
        families=("normal", "uniform", "constant", "wide_logits", "negative", "masked", "integers"),
        empty=None,
        special_values=(
            SpecialValue((-INF, -INF, -INF), (NAN, NAN, NAN)),
            SpecialValue(
                (-INF, -INF, -INF),
                (-INF, -INF, -INF),
                {"masked_row": "minus_infinity"},
                torch=(NAN, NAN, NAN),
                why="torch has no such choice",
            ),
            SpecialValue((0.0, -INF, 1.0), (None, -INF, None)),
            SpecialValue((0.0, INF, 1.0), (NAN, NAN, NAN)),
            SpecialValue((INF, -INF, 0.0), (NAN, NAN, NAN)),
            SpecialValue((NAN, 1.0, 2.0), (NAN, NAN, NAN)),
            SpecialValue((-0.0, -0.0, -0.0), (None, None, None)),
            SpecialValue((3e38, 3e38, -3e38), (None, None, -INF)),
        ),
        enclose=enclose,
        reference=reference,
        counted=counted,
        before=before,
        condition=condition,
        torch=torch_form,
    ),
)
