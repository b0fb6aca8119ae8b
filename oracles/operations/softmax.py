# SPDX-License-Identifier: Apache-2.0
"""softmax: exp(x_i - m) / sum_j exp(x_j - m) over each row, m the row's maximum.

Bound, derived
--------------
Let t_i = x_i - m exactly, p_i = softmax_i, S = sum exp(t_j) >= 1, u the accumulator's roundoff.

* The kernel's argument is t_i (1 + d), |d| <= u (m is exact). exp of it is exp(t_i) times
  exp(t_i d), at most exp(u |t_i|) off, and the exp routine errs by a relative e(t), see
  `Arithmetic.exp`. Together E_i = exp(t_i)(1 + a_i), |a_i| <= exp(u|t_i|)(1 + e(t_i)) - 1, plus an
  absolute error where the exponential is subnormal.
* The sum of the E_i is S (1 + s) with |s| <= (1 + sum_j p_j |a_j|)(1 + gamma_h) - 1: the terms are
  not negative.
* Division errs by d. y^_i = p_i (1 + a_i)(1 + d) / (1 + s).

To first order with the compiled figures, relative to p_i:
u (2.224 |t_i| + 2.224 sum_j p_j |t_j| + h + 12). It grows with the distance from the maximum.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from assay.oracles.bounds import gamma
from assay.oracles.double_double import QUOTIENT_ERROR, divide
from assay.oracles.enclosure import Enclosure, with_relative_error
from assay.oracles.formats import Float64, Format
from assay.oracles.multiprecision import context
from assay.oracles.operation import Claim, Inputs, Operand, Operation, Params, Policies, Policy

# exp(-800) is below 2**-1150: less than anything a float64 holds.
_CUT = -800.0


def _row_kinds(x: Float64) -> tuple[Any, Any]:
    """(rows whose result is NaN whatever the policy, rows masked as a whole)."""
    nan = np.isnan(x).any(axis=1) | np.isposinf(x).any(axis=1)
    masked = np.isneginf(x).all(axis=1) if x.shape[1] else np.zeros(x.shape[0], dtype=bool)
    return nan, masked


def _masked_value(policies: Policies) -> float:
    return 0.0 if policies["masked_row"] == "zero" else np.nan


def enclose(inputs: Inputs, params: Params, policies: Policies, out_format: Format) -> Enclosure:
    x = inputs["x"]
    center, tail, radius = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    if x.size == 0:
        return Enclosure(center, tail, radius)
    nan, masked = _row_kinds(x)
    center[nan] = np.nan
    center[masked] = _masked_value(policies)
    for i in np.flatnonzero(~(nan | masked)):
        # One exponential for each distinct value is enough.
        values, where, counts = np.unique(x[i], return_inverse=True, return_counts=True)
        evaluate = _distinct if len(values) > _CACHED_VALUES else _distinct_cached
        c, t, r = evaluate(values.tobytes(), counts.tobytes())
        center[i], tail[i], radius[i] = c[where], t[where], r[where]
    return Enclosure(center, tail, radius)


def _distinct(values_: bytes, counts_: bytes) -> tuple[Float64, Float64, Float64]:
    """center, tail and radius of softmax at the distinct values of a row, given in rising order."""
    values = np.frombuffer(values_, dtype=np.float64)
    counts = np.frombuffer(counts_, dtype=np.int64)
    ctx = context()
    maximum = float(values[-1])
    total = ctx.mpf(0)
    heads, tails = np.zeros(len(values)), np.zeros(len(values))
    cut = 0
    for k, value in enumerate(values.tolist()):
        if value - maximum < _CUT:
            cut += int(counts[k])
            continue
        e = ctx.exp(ctx.mpf(value) - maximum)
        heads[k] = float(e)
        tails[k] = float(e - heads[k])
        total += e * int(counts[k])
    s_head = float(total)
    s_tail = float(total - s_head)
    h, l = divide(heads, tails, np.full_like(heads, s_head), np.full_like(heads, s_tail))
    # The terms cut off are each below 2**-1150 beside a sum of at least 1.
    found = with_relative_error(h, l, QUOTIENT_ERROR + cut * 2.0**-1000)
    # Near float64's own underflow tails get lost: an absolute radius far below float32's.
    radius = np.where(found.center < 2.0**-880, found.radius + 2.0**-1000, found.radius)
    # exp(-inf) is zero exactly; every other exponential that was cut is below the radius.
    return found.center, found.tail, np.where(np.isneginf(values), 0.0, radius)


# A row comes again under permutation, and in other checks of one case. 2048 rows of 2048 values are
# 100 MB at most.
_CACHED_VALUES = 2048
_distinct_cached = lru_cache(maxsize=2048)(_distinct)


def reference(inputs: Inputs, params: Params, policies: Policies, out_format: Format) -> list[Any]:
    ctx = context()
    results: list[Any] = []
    x = inputs["x"]
    nan, masked = _row_kinds(x)
    for i, row in enumerate(x.tolist()):
        if nan[i] or masked[i]:
            value = np.nan if nan[i] else _masked_value(policies)
            results.extend([ctx.mpf(value)] * len(row))
            continue
        terms = [ctx.exp(ctx.mpf(v)) for v in row]
        total = ctx.fsum(terms)
        results.extend(t / total for t in terms)
    return results


def before(inputs: Inputs, exact: Enclosure, out_format: Format, claim: Claim) -> Float64:
    x = inputs["x"]
    if x.size == 0:
        return np.zeros_like(x)
    arithmetic, u = claim.arithmetic, claim.arithmetic.u
    nan, masked = _row_kinds(x)
    plain = ~(nan | masked)[:, None]
    shown = np.where(plain, x, 0.0)
    t = np.minimum(shown.max(axis=1, keepdims=True) - shown, -_CUT)
    p = np.where(plain, np.maximum(exact.center, 0.0), 0.0)
    # t is rounded to float64 here and the kernel's t to its accumulator: 2**-20 covers both.
    t_up = t * (1.0 + 2.0**-20)
    a = np.exp(u * t_up) * (1.0 + arithmetic.exp(-t_up)) - 1.0
    floor = arithmetic.exp_floor
    n = x.shape[1]
    s = (1.0 + (p * a).sum(axis=1, keepdims=True) + n * floor) * (1.0 + gamma(claim.depth, u)) - 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        lost = np.where(s < 1.0, 1.0 / (1.0 - s), np.inf)
        relative = (1.0 + a) * (1.0 + arithmetic.division) * lost - 1.0
        # The quotient itself may be subnormal: two more spacings.
        absolute = 2.0 * floor * (1.0 + arithmetic.division) * lost
        result = np.where(p > 0.0, p * relative, 0.0) + absolute
    # exp(-inf) is zero, and zero divided by the sum is zero.
    return np.where(np.isneginf(x), 0.0, result)


OPERATION = Operation(
    name="softmax",
    formula="exp(x_i - m) / sum_j exp(x_j - m), m = max_j x_j",
    kind="row",
    operands=(Operand("x", "matrix"),),
    params={},
    policies=(
        Policy(
            "masked_row",
            ("nan", "zero"),
            "a row that is -inf as a whole gives NaN in every place, as torch does, or 0",
        ),
    ),
    families=("normal", "uniform", "constant", "wide_logits", "negative", "masked", "integers"),
    empty="an empty row stays empty",
    enclose=enclose,
    reference=reference,
    before=before,
)
