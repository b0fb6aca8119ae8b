# SPDX-License-Identifier: Apache-2.0
"""softmax: exp(x_i - m) / sum_j exp(x_j - m) over each row, m the row's maximum.

Bound, derived
--------------
Let t_i = x_i - m exactly, p_i = softmax_i. `exponentials` has the errors of one exponential, a_i,
and of the sum S of all, s. Division errs by d: y^_i = p_i (1 + a_i)(1 + d) / (1 + s).

To first order with the compiled figures, one pass, relative to p_i:
u (2.224 |t_i| + 2.224 sum_j p_j |t_j| + h + 12). It grows with the distance from the maximum.
Where an exponential or the quotient is subnormal, absolute spacings come on top.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from assay.oracles.arrays import arrays_of
from assay.oracles.bounds import compounded
from assay.oracles.certified_exp import (
    CUT,
    CUT_FINE,
    CUT_TERM,
    CUT_TERM_FINE,
    EXP_ERROR,
    EXP_ERROR_FINE,
    exp_elements,
)
from assay.oracles.double_double import QUOTIENT_ERROR, divide, quick_two_sum
from assay.oracles.enclosure import Enclosure, from_fractions, with_relative_error
from assay.oracles.exact import exact_sum
from assay.oracles.exponentials import Kinds, element_error, sum_error, sum_growth
from assay.oracles.formats import FP64, Float64, Format
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

# Below, tails are lost near float64's own underflow: an absolute radius far below float32's.
_TAILS_KEPT = 2.0**-880
_ABSOLUTE = 2.0**-940


def _masked_value(policies: Policies) -> float:
    return 0.0 if policies["masked_row"] == "zero" else NAN


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
    fine = level != "fast" or out_format is FP64
    exact = _quotients(only(inputs["x"], plain), x[plain], found.largest[plain], fine)
    for target, source in (
        (center, exact.center), (tail, exact.tail), (radius, exact.radius)
    ):  # fmt: skip
        target[plain] = source
    # 1/k in each of k places is a rational number: no rung could decide a tie of it otherwise.
    counts = (x == found.largest[:, None]).sum(axis=1)
    level_rows = plain & (counts + np.isneginf(x).sum(axis=1) == x.shape[1])
    for i in np.flatnonzero(level_rows):
        share = from_fractions([Fraction(1, int(counts[i]))])
        top = x[i] == found.largest[i]
        center[i], tail[i], radius[i] = (
            np.where(top, part, 0.0) for part in (share.center, share.tail, share.radius)
        )
    return Enclosure(center, tail, radius)


def _quotients(stored: Any, x: Float64, maxima: Float64, fine: bool) -> Enclosure:
    """Enclosure of softmax for rows with a finite maximum, as they are stored and as float64."""
    error = EXP_ERROR_FINE if fine else EXP_ERROR
    cut_term = CUT_TERM_FINE if fine else CUT_TERM
    high, low = exp_elements(stored, maxima, fine=fine)
    sums = [h + l for h, l in zip(exact_sum(high), exact_sum(low), strict=True)]
    with np.errstate(invalid="ignore", over="ignore"):
        far = (x - maxima[:, None]) < (CUT_FINE if fine else CUT)
    vanished = np.isneginf(x)
    cut = (far & ~vanished).sum(axis=1)
    totals = from_fractions(sums)
    off = [sum_error(s, int(k), error, cut_term) for s, k in zip(sums, cut, strict=True)]
    arrays = arrays_of(high)
    divisor, divisor_tail = (arrays.constant(p[:, None]) for p in (totals.center, totals.tail))
    h, l = map(arrays.host, divide(*quick_two_sum(high, low), divisor, divisor_tail))
    relative_error = error + np.array(off)[:, None] * (1.0 + 2.0**-40) + 2.0 * QUOTIENT_ERROR
    found = with_relative_error(h, l, relative_error)
    radius = np.where(h < _TAILS_KEPT, found.radius + _ABSOLUTE, found.radius)
    # exp(-inf) is zero exactly; every other exponential that was cut is below the radius.
    return Enclosure(found.center, found.tail, np.where(vanished, 0.0, radius))


def _row(values: list[float], counts: list[int], policies: Policies, bits: int) -> list[Any]:
    ctx = context(bits)
    row = [ctx.mpf(v) for v in values]
    if any(ctx.isnan(v) or v == INF for v in row):
        return [ctx.nan] * len(row)
    if all(v == -INF for v in row):
        return [ctx.mpf(_masked_value(policies))] * len(row)
    terms = [ctx.exp(v) for v in row]
    total = ctx.fsum(t * k for t, k in zip(terms, counts, strict=True))
    return [t / total for t in terms]


def reference(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, bits: int = BITS
) -> list[Any]:
    results: list[Any] = []
    for row in inputs["x"].tolist():
        results += _row(row, [1] * len(row), policies, bits) if row else []
    return results


def counted(
    values: list[float], counts: list[int], params: Params, policies: Policies, out_format: Format,
    bits: int = BITS,
) -> list[Any]:  # fmt: skip
    return _row(values, counts, policies, bits) if values else []


def before(inputs: Inputs, exact: Enclosure, out_format: Format, claim: Claim) -> Float64:
    x = on_host(inputs["x"])
    if x.size == 0:
        return np.zeros_like(x)
    arithmetic = claim.arithmetic
    found = facts(x)
    plain = Kinds.of(found, x.shape[1]).plain[:, None]
    shown = np.where(plain, x, 0.0)
    with np.errstate(over="ignore"):
        t = np.where(plain, found.largest[:, None], 0.0) - shown
    p = np.where(plain, np.maximum(exact.center, 0.0), 0.0)
    a = element_error(t, claim)
    with np.errstate(invalid="ignore"):
        distance = np.where(p > 0.0, p * t, 0.0).sum(axis=1, keepdims=True) * (1.0 + 2.0**-20)
    s = sum_growth(distance, x.shape[1], claim)
    floor = arithmetic.exp_floor * (claim.rescales + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        # A factor of 1 / (1 - s); what it is above 1.
        lost = np.where(s < 1.0, s / (1.0 - s), np.inf)
        relative_error = compounded(a, arithmetic.division, lost)
        # The quotient itself may be subnormal: two more spacings.
        absolute = 2.0 * floor * (1.0 + element_error(np.zeros(()), claim)) * (1.0 + lost)
        absolute = absolute * (1.0 + arithmetic.division)
        result = np.where(p > 0.0, p * relative_error, 0.0) + absolute
    # exp(-inf) is zero, and zero divided by the sum is zero.
    return np.where(np.isneginf(x), 0.0, result)


def condition(inputs: Inputs, exact: Enclosure, params: Params, policies: Policies) -> Float64:
    """(1 - p_i) |x_i| + sum_(j != i) p_j |x_j|; no division, the change is relative by itself."""
    x = on_host(inputs["x"])
    p = np.where(exact.finite, exact.center, 0.0)
    with np.errstate(invalid="ignore"):
        weighted = np.where(p > 0.0, p * np.abs(x), 0.0)
        moved = np.abs(x) - 2.0 * weighted + weighted.sum(axis=1, keepdims=True)
        return relative(np.maximum(moved, 0.0) * p, exact)


def torch_form(operands: Mapping[str, Any], params: Params) -> Any:
    return operands["x"].softmax(dim=-1)


_OPERATION = Operation(
    name="softmax",
    formula="exp(x_i - m) / sum_j exp(x_j - m), m = max_j x_j",
    kind="row",
    operands=(Operand("x", "matrix"),),
    outputs=(Output("y", "element"),),
    params={},
    policies=(
        Policy(
            "masked_row",
            ("nan", "zero"),
            "a row that is -inf as a whole gives NaN in every place, as torch does, or 0",
        ),
    ),
    families=("normal", "uniform", "constant", "wide_logits", "negative", "masked", "integers"),
    empty=None,
    special_values=(
        SpecialValue((-INF, -INF, -INF), (NAN, NAN, NAN)),
        SpecialValue(
            (-INF, -INF, -INF),
            (0.0, 0.0, 0.0),
            {"masked_row": "zero"},
            torch=(NAN, NAN, NAN),
            why="torch has no such choice",
        ),
        SpecialValue((0.0, -INF, 1.0), (None, 0.0, None)),
        SpecialValue((0.0, INF, 1.0), (NAN, NAN, NAN)),
        SpecialValue((INF, -INF, 0.0), (NAN, NAN, NAN)),
        SpecialValue((NAN, 1.0, 2.0), (NAN, NAN, NAN)),
        SpecialValue((-0.0, -0.0, -0.0), (None, None, None)),
        SpecialValue((2e19, 2e19, 1.0), (0.5, 0.5, 0.0)),
        SpecialValue((3e38, 3e38, -3e38), (0.5, 0.5, 0.0)),
    ),
    enclose=enclose,
    reference=reference,
    counted=counted,
    before=before,
    condition=condition,
    torch=torch_form,
)

OPERATIONS = (_OPERATION,)
