# SPDX-License-Identifier: Apache-2.0
"""mean and row_mean: the sum divided by the number of elements.

Triton has no `tl.mean`: a kernel sums and divides by N, the real number of elements, not the width
of its tile.

Bound, derived
--------------
The sum errs by at most E (see `sums`). It is divided by n, or multiplied by a reciprocal of n: one
division and two roundings in all, n itself rounded to the accumulator included, so
|y^ - y| <= (E / n) (1 + d) + |y| d with d = (1 + division)(1 + u)**2 - 1. The result may be
subnormal: the floor of a division and a spacing of a product more. (A reciprocal of n is
normal: n is below 2**126.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from assay.oracles.bounds import compounded
from assay.oracles.enclosure import Enclosure, column, from_fractions
from assay.oracles.exact import exact_sum
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
    SpecialValue,
    relative,
)
from assay.oracles.operations import sums
from assay.oracles.operations.sums import INF, NAN, RANGE, special_sum, sum_before, unless_overflow
from assay.oracles.rows import facts, only, sum_of_magnitudes


def enclose(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, level: Level = "fast"
) -> Enclosure:
    x = inputs["x"]
    n = int(x.shape[1])
    found = facts(x)
    if n == 0:
        return column(from_fractions([]), np.zeros(len(found.nan), bool), found.largest * NAN)
    plain = found.finite
    totals = exact_sum(only(x, plain)) if plain.any() else []
    return column(from_fractions([t / n for t in totals]), plain, special_sum(found))


def reference(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, bits: int = BITS
) -> list[Any]:
    ctx = context(bits)
    totals = sums.reference(inputs, params, policies, out_format)
    n = inputs["x"].shape[1]
    return [ctx.fdiv(t, n) if n else ctx.nan for t in totals]


def counted(
    values: list[float], counts: list[int], params: Params, policies: Policies, out_format: Format,
    bits: int = BITS,
) -> list[Any]:  # fmt: skip
    ctx = context(bits)
    (total,) = sums.counted(values, counts, params, policies, out_format)
    return [ctx.fdiv(total, sum(counts)) if counts else ctx.nan]


def mean_before(total_error: Float64, mean: Float64, n: int, claim: Claim) -> Float64:
    """Bound of the mean from that of its sum; mean: magnitude of the exact one."""
    arithmetic = claim.arithmetic
    d = compounded(arithmetic.division, arithmetic.u, arithmetic.u)
    floor = arithmetic.division_floor + arithmetic.accumulator.smallest_subnormal
    return np.asarray(total_error / n * (1.0 + d) + mean * d + floor)


def before(inputs: Inputs, exact: Enclosure, out_format: Format, claim: Claim) -> Float64:
    x = inputs["x"]
    n = max(1, int(x.shape[1]))
    magnitude = np.where(exact.finite, exact.magnitude(), 0.0)
    total = np.where(exact.finite, sum_of_magnitudes(x), 0.0)
    with np.errstate(over="ignore"):
        error = sum_before(magnitude * n, total, claim)
    special = unless_overflow(x, exact, claim)
    return np.where(exact.finite, mean_before(error, magnitude, n, claim), special)


def condition(inputs: Inputs, exact: Enclosure, params: Params, policies: Policies) -> Float64:
    """That of the sum: sum |x_j| / |sum x_j|."""
    total = sum_of_magnitudes(inputs["x"]) / max(1, int(inputs["x"].shape[1]))
    return relative(total, exact)


def torch_form(operands: Mapping[str, Any], params: Params) -> Any:
    return operands["x"].mean(dim=-1)


SPECIAL_VALUES = (
    SpecialValue((-INF, -INF, -INF), (-INF,)),
    SpecialValue((0.0, INF, 1.0), (INF,)),
    SpecialValue((INF, -INF, 0.0), (NAN,)),
    SpecialValue((NAN, 1.0, INF), (NAN,)),
    SpecialValue((-0.0, -0.0, -0.0), (0.0,)),
    SpecialValue((1e-40, 2e-40, 3e-40), (None,)),
    SpecialValue(
        (3e38, 3e38, 3e38),
        (None,),
        torch=(INF,),
        why="the sum overflows float32, the mean does not",
    ),
)


def _operation(name: str, kind: Literal["whole", "row"]) -> Operation:
    return Operation(
        name=name,
        formula="sum_j x_j / n",
        kind=kind,
        operands=(Operand("x", "matrix"),),
        outputs=(Output("mean", "row"),),
        params={},
        policies=(RANGE,),
        families=(
            "normal", "uniform", "constant", "wide", "integers", "cancelling", "offset", "tiny",
            "huge",
        ),
        empty=NAN,
        special_values=SPECIAL_VALUES,
        enclose=enclose,
        reference=reference,
        counted=counted,
        before=before,
        condition=condition,
        torch=torch_form,
    )  # fmt: skip


OPERATIONS = (_operation("mean", "whole"), _operation("row_mean", "row"))
