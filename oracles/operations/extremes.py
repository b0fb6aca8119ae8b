# SPDX-License-Identifier: Apache-2.0
"""row_max, row_min and row_argmax: the largest and smallest element of each row, and where it is.

Bound, derived
--------------
None is needed: the result is an element of the row, or its index, and must be exact. Zeros of
either sign are equal.

Under nan=drop a row that holds nothing but NaN has no result: nothing is promised there. Nor is
there one for an empty row_argmax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from assay.oracles.enclosure import Enclosure, Mask, exactly
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
)
from assay.oracles.rows import facts, on_host

NAN, INF = float("nan"), float("inf")

NAN_POLICY = Policy(
    "nan",
    ("propagate", "drop"),
    "propagate: a NaN in the row is the result, as torch has it; drop: NaN is passed over, as "
    "`tl.max` does by itself",
)
TIES = Policy(
    "ties",
    ("first", "any"),
    "first: the lowest index among equals, which Triton's tie_break_left gives; any: whichever of "
    "them, which is all that torch promises",
)


def _enclose(largest: bool) -> Callable[..., Enclosure]:
    def enclose(
        inputs: Inputs,
        params: Params,
        policies: Policies,
        out_format: Format,
        level: Level = "fast",
    ) -> Enclosure:
        found = facts(inputs["x"])
        value = found.largest if largest else found.smallest
        # A row of nothing but NaN has neither; under nan=drop it has no result.
        nothing = found.nan & (found.largest == -INF) & (found.smallest == INF)
        spoilt = found.nan if policies["nan"] == "propagate" else nothing
        return exactly(np.where(spoilt, NAN, value)[:, None])

    return enclose


def _reference(largest: bool) -> Callable[..., list[Any]]:
    def reference(
        inputs: Inputs, params: Params, policies: Policies, out_format: Format, bits: int = BITS
    ) -> list[Any]:
        results = []
        for row in inputs["x"].tolist():
            results += _counted(largest)(row, [1] * len(row), params, policies, out_format, bits)
        return results

    return reference


def _counted(largest: bool) -> Callable[..., list[Any]]:
    def counted(
        values: list[float], counts: list[int], params: Params, policies: Policies,
        out_format: Format, bits: int = BITS,
    ) -> list[Any]:  # fmt: skip
        ctx = context(bits)
        best = ctx.mpf(-INF if largest else INF)
        numbers = 0
        for v in map(ctx.mpf, values):
            if ctx.isnan(v):
                if policies["nan"] == "propagate":
                    return [ctx.nan]
                continue
            numbers += 1
            if v > best if largest else v < best:
                best = v
        return [best if numbers or not values else ctx.nan]

    return counted


def _before(inputs: Inputs, exact: Enclosure, out_format: Format, claim: Claim) -> Float64:
    if claim.policies["nan"] == "propagate":
        return np.zeros(exact.shape)
    return np.where(np.isnan(exact.center), NAN, 0.0)


def _condition(inputs: Inputs, exact: Enclosure, params: Params, policies: Policies) -> Float64:
    """1: the result moves with the element that it is."""
    return np.where(exact.finite & (exact.center != 0.0), 1.0, INF)


def enclose_index(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, level: Level = "fast"
) -> Enclosure:
    x = on_host(inputs["x"])
    if x.shape[1] == 0:
        return exactly(np.full((x.shape[0], 1), NAN))
    nan = np.isnan(x)
    # numpy's argmax takes the first of equals; NaN counts as the largest or as the smallest.
    index = np.where(nan, INF if policies["nan"] == "propagate" else -INF, x).argmax(axis=1)
    if policies["nan"] == "propagate":
        first = nan.argmax(axis=1)
        index = np.where(nan.any(axis=1), first, index)
    else:
        # -inf beside NaN: the first element that is a number.
        low = np.where(nan, -INF, x).max(axis=1) == -INF
        index = np.where(low, (~nan).argmax(axis=1), index)
    result = index.astype(np.float64)
    return exactly(np.where(nan.all(axis=1) & (policies["nan"] == "drop"), NAN, result)[:, None])


def reference_index(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, bits: int = BITS
) -> list[Any]:
    ctx = context(bits)
    results = []
    for row in inputs["x"].tolist():
        best = None
        for j, v in enumerate(map(ctx.mpf, row)):
            if ctx.isnan(v):
                if policies["nan"] == "propagate":
                    best = j
                    break
            elif best is None or v > row[best]:
                best = j
        results.append(ctx.nan if best is None else ctx.mpf(best))
    return results


def accepts_index(inputs: Inputs, out: Float64, exact: Enclosure, policies: Policies) -> Mask:
    """Any index of an element equal to the largest, under ties=any."""
    x = on_host(inputs["x"])
    if policies["ties"] == "first" or x.shape[1] == 0:
        return np.zeros(out.shape, dtype=bool)
    valid = (out >= 0) & (out < x.shape[1]) & (out == np.floor(out)) & exact.finite
    index = np.where(valid, out, 0).astype(np.int64)
    right = np.where(exact.finite, exact.center, 0).astype(np.int64)
    taken = np.take_along_axis(x, index, axis=1)
    best = np.take_along_axis(x, right, axis=1)
    return np.asarray(valid & ((taken == best) | (np.isnan(taken) & np.isnan(best))))


def _condition_index(
    inputs: Inputs, exact: Enclosure, params: Params, policies: Policies
) -> Float64:
    """0 where one element is largest; infinite for a tie, which any change breaks."""
    x = on_host(inputs["x"])
    if x.shape[1] == 0:
        return np.zeros(exact.shape)
    ties = (x == np.max(x, axis=1, keepdims=True)).sum(axis=1, keepdims=True)
    return np.where(ties > 1, INF, 0.0)


def _torch_max(operands: Mapping[str, Any], params: Params) -> Any:
    return operands["x"].amax(dim=-1)


def _torch_min(operands: Mapping[str, Any], params: Params) -> Any:
    return operands["x"].amin(dim=-1)


def _torch_argmax(operands: Mapping[str, Any], params: Params) -> Any:
    return operands["x"].argmax(dim=-1)


_FAMILIES = ("normal", "negative", "constant", "ties", "masked", "wide", "integers")
_DROP = {"nan": "drop"}


def _special(sign: float) -> tuple[SpecialValue, ...]:
    return (
        SpecialValue((-INF, -INF, -INF), (-INF,)),
        SpecialValue((INF, INF, INF), (INF,)),
        SpecialValue((0.0, sign * INF, 1.0), (sign * INF,)),
        SpecialValue((NAN, 1.0, 2.0), (NAN,)),
        SpecialValue((NAN, 1.0, 1.0), (1.0,), _DROP, torch=(NAN,), why="torch propagates NaN"),
        SpecialValue((NAN, NAN, NAN), (NAN,)),
        SpecialValue((NAN, -INF, -INF), (-INF,), _DROP, torch=(NAN,), why="torch propagates NaN"),
        SpecialValue((-0.0, 0.0, 0.0), (0.0,)),
    )


def _extreme(name: str, largest: bool) -> Operation:
    return Operation(
        name=name,
        formula=f"{'max' if largest else 'min'}_j x_j",
        kind="row",
        operands=(Operand("x", "matrix"),),
        outputs=(Output("value", "row"),),
        params={},
        policies=(NAN_POLICY,),
        families=_FAMILIES,
        empty=-INF if largest else INF,
        special_values=_special(1.0 if largest else -1.0),
        enclose=_enclose(largest),
        reference=_reference(largest),
        counted=_counted(largest),
        before=_before,
        condition=_condition,
        torch=_torch_max if largest else _torch_min,
    )


ROW_ARGMAX = Operation(
    name="row_argmax",
    formula="the least i with x_i = max_j x_j",
    kind="row",
    operands=(Operand("x", "matrix"),),
    outputs=(Output("index", "row", "integer"),),
    params={},
    policies=(NAN_POLICY, TIES),
    families=_FAMILIES,
    empty=NAN,
    special_values=(
        SpecialValue((-INF, -INF, -INF), (0.0,)),
        SpecialValue((0.0, INF, 1.0), (1.0,)),
        SpecialValue((1.0, NAN, NAN), (1.0,)),
        SpecialValue((1.0, NAN, 2.0), (2.0,), _DROP, torch=(1.0,), why="torch propagates NaN"),
        SpecialValue((NAN, -INF, -INF), (1.0,), _DROP, torch=(0.0,), why="torch propagates NaN"),
        SpecialValue((-0.0, 0.0, 0.0), (0.0,)),
        SpecialValue((3.0, 5.0, 5.0), (1.0,)),
    ),
    enclose=enclose_index,
    reference=reference_index,
    before=_before,
    condition=_condition_index,
    accepts=accepts_index,
    torch=_torch_argmax,
)

OPERATIONS = (_extreme("row_max", True), _extreme("row_min", False), ROW_ARGMAX)
