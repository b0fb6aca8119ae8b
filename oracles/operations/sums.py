# SPDX-License-Identifier: Apache-2.0
"""sum and row_sum: the sum of the whole array, or of each row.

Bound, derived
--------------
Whatever the order, the computed sum is sum x_j (1 + t_j) with |t_j| <= gamma_h, h the additions on
the longest path (Higham, Accuracy and Stability, sec. 4.2), so the error is at most
gamma_h * sum |x_j|: relative to the result, gamma_h times the condition number. Additions never
underflow: the sum of two floats is a multiple of the smaller one's last place. float32 atomics
flush subnormals, an absolute error for each of them, which the additions after it pass on. With
compensated additions: see `Claim.sum_error`.

Under range=naive a partial sum may overflow where sum |x_j| reaches the overflow threshold of the
accumulator, and then infinity minus infinity is NaN: nothing is promised there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from assay.oracles.enclosure import Enclosure, column, from_fractions
from assay.oracles.exact import exact_sum
from assay.oracles.formats import Float64, Format
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
from assay.oracles.rows import Facts, facts, on_host, only, sum_of_magnitudes

NAN, INF = float("nan"), float("inf")

RANGE = Policy(
    "range",
    ("scaled", "naive"),
    "scaled: right wherever the result itself is finite; naive: partial sums may overflow in the "
    "accumulator although the result would not",
)


def special_sum(found: Facts) -> Float64:
    """NaN or an infinity for each row that holds one, by IEEE addition; 0 elsewhere."""
    both = found.positive_infinity & found.negative_infinity
    infinite = np.where(found.positive_infinity, INF, np.where(found.negative_infinity, -INF, 0.0))
    return np.where(found.nan | both, NAN, infinite)


def enclose(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, level: Level = "fast"
) -> Enclosure:
    x = inputs["x"]
    found = facts(x)
    plain = found.finite
    exact = from_fractions(exact_sum(only(x, plain)) if plain.any() else [])
    return column(exact, plain, special_sum(found))


def reference(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, bits: int = BITS
) -> list[Any]:
    # A sum of float64 numbers is a multiple of 2**-1074 below 2**1100 or so: nothing is rounded.
    ctx = exact_context()
    return [sum((ctx.mpf(v) for v in row), ctx.mpf(0)) for row in inputs["x"].tolist()]


def counted(
    values: list[float], counts: list[int], params: Params, policies: Policies, out_format: Format,
    bits: int = BITS,
) -> list[Any]:  # fmt: skip
    ctx = exact_context()
    return [sum((ctx.mpf(v) * k for v, k in zip(values, counts, strict=True)), ctx.mpf(0))]


def flush_error(claim: Claim) -> float:
    """What the atomic additions of a sum lose by flushing, absolute."""
    if not claim.atomics:
        return 0.0
    flushed = claim.atomics * claim.arithmetic.atomic_flush
    return flushed * (1.0 + claim.relative_sum_error()) if flushed else 0.0


def sum_before(
    magnitude: Float64, total: Float64, claim: Claim, *, products: bool = False
) -> Float64:
    """Bound of the error of a sum that the operations with sums share; NaN where it may overflow.

    total: sum of the magnitudes of the terms; products: each term is a product of stored values.
    """
    acc = claim.arithmetic.accumulator
    with np.errstate(over="ignore", invalid="ignore"):
        error = claim.sum_error(magnitude, total, products=products)
        error = error + flush_error(claim)
        if claim.policies.get("range") == "naive":
            reached = (total + error) >= 2.0 * 2.0**acc.emax
            error = np.where(reached, NAN, error)
    return np.asarray(error)


def unless_overflow(x: Any, exact: Enclosure, claim: Claim) -> Float64:
    """0 for a special sum, NaN where an infinity may meet one of the other sign; (rows, 1).

    Under range=naive a partial sum of the finite elements may have overflowed before the infinity
    of the row comes. exact: of the sum or the mean.
    """
    result = np.zeros(exact.shape)
    infinite = np.isinf(exact.center[:, 0])
    if claim.policies.get("range") == "naive" and infinite.any():
        values = np.abs(on_host(only(x, infinite)))
        with np.errstate(over="ignore"):
            finite = np.where(np.isfinite(values), values, 0.0).sum(axis=1)
            reached = finite * (1.0 + claim.gamma()) >= 2.0 * 2.0**claim.arithmetic.accumulator.emax
        result[infinite] = np.where(reached, NAN, 0.0)[:, None]
    return result


def before(inputs: Inputs, exact: Enclosure, out_format: Format, claim: Claim) -> Float64:
    total = sum_of_magnitudes(inputs["x"])
    error = sum_before(exact.magnitude(), np.where(exact.finite, total, 0.0), claim)
    return np.where(exact.finite, error, unless_overflow(inputs["x"], exact, claim))


def condition(inputs: Inputs, exact: Enclosure, params: Params, policies: Policies) -> Float64:
    """sum |x_j| / |sum x_j|."""
    return relative(sum_of_magnitudes(inputs["x"]), exact)


def torch_form(operands: Mapping[str, Any], params: Params) -> Any:
    return operands["x"].sum(dim=-1)


SPECIAL_VALUES = (
    SpecialValue((-INF, -INF, -INF), (-INF,)),
    SpecialValue((0.0, -INF, 1.0), (-INF,)),
    SpecialValue((0.0, INF, 1.0), (INF,)),
    SpecialValue((INF, -INF, 0.0), (NAN,)),
    SpecialValue((NAN, 1.0, INF), (NAN,)),
    SpecialValue((-0.0, -0.0, -0.0), (0.0,)),
    SpecialValue((1.0, -1.0, 0.0), (0.0,)),
    SpecialValue((1e-40, 2e-40, 3e-40), (None,)),
    SpecialValue(
        (3e38, 3e38, -3e38), (None,), torch=(INF,), why="the first partial sum overflows float32"
    ),
)


def _operation(name: str, kind: Literal["whole", "row"]) -> Operation:
    return Operation(
        name=name,
        formula="sum_j x_j",
        kind=kind,
        operands=(Operand("x", "matrix"),),
        outputs=(Output("sum", "row"),),
        params={},
        policies=(RANGE,),
        families=(
            "normal", "uniform", "constant", "wide", "integers", "cancelling", "absorbing",
            "ladder", "tiny", "huge",
        ),
        empty=0.0,
        special_values=SPECIAL_VALUES,
        enclose=enclose,
        reference=reference,
        counted=counted,
        before=before,
        condition=condition,
        torch=torch_form,
    )  # fmt: skip


OPERATIONS = (_operation("sum", "whole"), _operation("row_sum", "row"))
