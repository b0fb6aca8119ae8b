# SPDX-License-Identifier: Apache-2.0
"""matmul: each cell of x @ w is a reduction over the K columns of x.

Bound, derived
--------------
A cell is sum_k a_k b_k. With each product rounded and h additions on the longest path the error is
at most gamma_(h+1) sum |a_k b_k| (Higham, Accuracy and Stability, sec. 3.1); products that
underflow add half a subnormal spacing each.

* input_precision=ieee: the inputs enter as stored.
* input_precision=tf32: float32 inputs are cut to 10 explicit significand bits, a relative error of
  at most 2**-10 (truncation) in each factor, and of at most tf32's subnormal spacing, 2**-136,
  where the factor is subnormal, times the other factor. 16-bit inputs fit tf32 and lose nothing but
  the range that bfloat16 and tf32 share with float32.
* accumulation=truncated: tensor cores add with truncation and align the addends of one step to the
  largest (Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ
  Comput. Sci. 7, 2021): of four products (on Volta, more since) and the accumulator all but the
  largest lose up to 2u of it, and the sum that is cut once more 2u of itself. So there are 5 errors
  of 2u for 4 products, 2.5 K u in all, in units of the sum of magnitudes so far.

Under range=naive nothing is promised where sum |a_k b_k| reaches the overflow threshold.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from assay.oracles.bounds import compounded
from assay.oracles.enclosure import Enclosure, exactly, from_fractions
from assay.oracles.exact import exact_dot
from assay.oracles.formats import FP32, Float64, Format
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
    relative,
)
from assay.oracles.operations.sums import INF, NAN, RANGE, flush_error
from assay.oracles.rows import on_host

# Truncating a 24-bit significand to tf32's 11 bits, and the spacing of tf32's subnormals.
_TF32_TRUNCATION = 2.0**-10
_TF32_SPACING = 2.0**-136
# The fewest products that a tensor core adds at once.
_STEP = 4


def enclose(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, level: Level = "fast"
) -> Enclosure:
    x = on_host(inputs["x"])
    w = on_host(inputs["w"])
    rows, columns = x.shape[0], w.shape[1]
    special = np.zeros((rows, columns))
    rows_finite = np.asarray(np.isfinite(x).all(axis=1))
    columns_finite = np.asarray(np.isfinite(w).all(axis=0))
    finite = rows_finite[:, None] & columns_finite[None, :]
    exact = exactly(special)
    for j in range(columns):
        chosen = np.flatnonzero(finite[:, j])
        if chosen.size:
            dots = exact_dot(x[chosen], np.broadcast_to(w[:, j], (chosen.size, w.shape[0])))
            found = from_fractions(dots)
            exact.center[chosen, j] = found.center
            exact.tail[chosen, j] = found.tail
            exact.radius[chosen, j] = found.radius
    if not finite.all():
        # By IEEE rules: 0 * inf is NaN, inf - inf is NaN. Finite products stand in as their signs,
        # so that they cannot overflow into an infinity of their own.
        a, b = _signs(x), _signs(w)
        with np.errstate(invalid="ignore"):
            terms = (a[:, :, None] * b[None, :, :]).sum(axis=1)
        exact.center[~finite] = terms[~finite]
    return exact


def _signs(values: Float64) -> Float64:
    return np.where(np.isfinite(values), np.sign(values), values)


def reference(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, bits: int = BITS
) -> list[Any]:
    ctx = exact_context()
    rows = [[ctx.mpf(v) for v in row] for row in inputs["x"].tolist()]
    columns = [[ctx.mpf(v) for v in column] for column in on_host(inputs["w"]).T.tolist()]
    return [
        sum((a * b for a, b in zip(row, column, strict=True)), ctx.mpf(0))
        for row in rows
        for column in columns
    ]


def _magnitudes(x: Any, w: Any) -> Float64:
    """An upper bound of sum_k |a_k b_k| for each cell."""
    a, b = np.abs(on_host(x)), np.abs(on_host(w))
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray((a @ b) * (1.0 + (a.shape[1] + 2) * 2.0**-52))


def _factors(x: Any, w: Any) -> Float64:
    """An upper bound of sum_k (|a_k| + |b_k| + spacing) for each cell."""
    a, b = np.abs(on_host(x)), np.abs(on_host(w))
    n = a.shape[1]
    both = a.sum(axis=1)[:, None] + b.sum(axis=0)[None, :]
    return np.asarray((both + n * _TF32_SPACING) * (1.0 + (n + 2) * 2.0**-52))


def before(inputs: Inputs, exact: Enclosure, out_format: Format, claim: Claim) -> Float64:
    acc = claim.arithmetic.accumulator
    total = np.where(exact.finite, _magnitudes(inputs["x"], inputs["w"]), 0.0)
    magnitude = np.where(exact.finite, exact.magnitude(), 0.0)
    n = int(inputs["x"].shape[1])
    extra = 0.0
    if claim.policies["accumulation"] == "truncated":
        # What counts is the truncations, not the additions of the claimed order.
        extra = max(0.0, 2.0 * (n + math.ceil(n / _STEP)) - claim.depth)
    with np.errstate(over="ignore", invalid="ignore"):
        error = claim.sum_error(magnitude, total, products=True, extra=extra)
        if claim.policies["input_precision"] == "tf32" and out_format is FP32:
            cut = compounded(_TF32_TRUNCATION, _TF32_TRUNCATION)
            moved = cut * total + _TF32_SPACING * _factors(inputs["x"], inputs["w"])
            moved = np.where(exact.finite, moved, 0.0)
            error = (
                claim.sum_error(magnitude + moved, total + moved, products=True, extra=extra)
                + moved
            )
        lost = n if claim.compensated else math.ceil(0.5 * n)
        growth = 1.0 + claim.relative_sum_error(products=True, extra=extra)
        error = error + lost * acc.smallest_subnormal * growth
        error = error + flush_error(claim)
        special = np.zeros(exact.shape)
        if claim.policies["range"] == "naive":
            threshold = 2.0 * 2.0**acc.emax
            error = np.where(total + error >= threshold, NAN, error)
            # Finite products may overflow beside an infinity of the other sign.
            finite = [np.where(np.isfinite(v), v, 0.0) for v in map(on_host, inputs.values())]
            beside = _magnitudes(*finite) * growth >= threshold
            special = np.where(np.isinf(exact.center) & beside, NAN, 0.0)
    return np.where(exact.finite, error, special)


def condition(inputs: Inputs, exact: Enclosure, params: Params, policies: Policies) -> Float64:
    """2 sum |a_k b_k| / |sum a_k b_k|: both factors move."""
    return relative(2.0 * _magnitudes(inputs["x"], inputs["w"]), exact)


def torch_form(operands: Mapping[str, Any], params: Params) -> Any:
    return operands["x"] @ operands["w"]


OPERATIONS = (
    Operation(
        name="matmul",
        formula="sum_k x_ik w_kj",
        kind="row",
        operands=(Operand("x", "matrix"), Operand("w", "second")),
        outputs=(Output("y", "cell"),),
        params={},
        policies=(
            Policy(
                "input_precision",
                ("ieee", "tf32"),
                "ieee: float32 inputs enter whole; tf32: cut to 10 explicit bits, as `tl.dot` does "
                "by default",
            ),
            Policy(
                "accumulation",
                ("nearest", "truncated"),
                "nearest: additions round to nearest; truncated: tensor cores cut what does not "
                "fit, up to 2u an addition",
            ),
            RANGE,
        ),
        families=("normal", "uniform", "constant", "wide", "integers", "cancelling"),
        empty=0.0,
        # One column of w, all ones: a cell is then the row's sum.
        special_values=(
            SpecialValue((-INF, -INF, -INF), (-INF,)),
            SpecialValue((-INF, 0.0, 1.0), (-INF,)),
            SpecialValue((INF, -INF, 0.0), (NAN,)),
            SpecialValue((NAN, 1.0, INF), (NAN,)),
            SpecialValue((-0.0, -0.0, -0.0), (0.0,)),
            SpecialValue((1.0, -1.0, 0.0), (0.0,)),
        ),
        enclose=enclose,
        reference=reference,
        before=before,
        condition=condition,
        torch=torch_form,
    ),
)
