# SPDX-License-Identifier: Apache-2.0
"""l1_norm: the sum of the magnitudes of the whole array.

Bound, derived
--------------
Magnitudes are exact, and the terms are not negative: gamma_h of the result, and what atomics flush
(see `sums`). With compensated additions: see `Claim.sum_error`.

Under range=naive nothing is promised about the size where the sum reaches the overflow threshold of
the accumulator; it is never NaN, unless compensated, since TwoSum takes an infinity from itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from assay.oracles.enclosure import Enclosure, column, from_fractions
from assay.oracles.exact import exact_sum_of_magnitudes
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
    SpecialValue,
)
from assay.oracles.operations.sums import INF, NAN, RANGE, sum_before
from assay.oracles.rows import Facts, facts, only


def special_norm(found: Facts) -> Float64:
    """NaN for a row with a NaN, infinity for one with an infinity (NaN wins), 0 elsewhere."""
    infinite = found.positive_infinity | found.negative_infinity
    return np.where(found.nan, NAN, np.where(infinite, INF, 0.0))


def enclose(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, level: Level = "fast"
) -> Enclosure:
    x = inputs["x"]
    found = facts(x)
    plain = found.finite
    exact = from_fractions(exact_sum_of_magnitudes(only(x, plain)) if plain.any() else [])
    return column(exact, plain, special_norm(found))


def reference(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, bits: int = BITS
) -> list[Any]:
    ctx = exact_context()
    return [sum((abs(ctx.mpf(v)) for v in row), ctx.mpf(0)) for row in inputs["x"].tolist()]


def counted(
    values: list[float], counts: list[int], params: Params, policies: Policies, out_format: Format,
    bits: int = BITS,
) -> list[Any]:  # fmt: skip
    ctx = exact_context()
    return [sum((abs(ctx.mpf(v)) * k for v, k in zip(values, counts, strict=True)), ctx.mpf(0))]


def before(inputs: Inputs, exact: Enclosure, out_format: Format, claim: Claim) -> Float64:
    norm = np.where(exact.finite, exact.magnitude(), 0.0)
    error = sum_before(norm, norm, claim)
    # Sums of magnitudes may overflow, but never meet an infinity of the other sign.
    overflow = NAN if claim.compensated else INF
    return np.where(exact.finite, np.where(np.isnan(error), overflow, error), 0.0)


def condition(inputs: Inputs, exact: Enclosure, params: Params, policies: Policies) -> Float64:
    """1: each term is a magnitude."""
    return np.where(exact.finite & (exact.center > 0.0), 1.0, INF)


def torch_form(operands: Mapping[str, Any], params: Params) -> Any:
    import torch

    return torch.linalg.vector_norm(operands["x"], ord=1, dim=-1)


OPERATIONS = (
    Operation(
        name="l1_norm",
        formula="sum_j |x_j|",
        kind="whole",
        operands=(Operand("x", "matrix"),),
        outputs=(Output("norm", "row"),),
        params={},
        policies=(RANGE,),
        families=(
            "normal", "uniform", "constant", "wide", "integers", "absorbing", "ladder", "tiny",
        ),
        empty=0.0,
        special_values=(
            SpecialValue((-INF, -INF, -INF), (INF,)),
            SpecialValue((-INF, 0.0, 1.0), (INF,)),
            SpecialValue((INF, -INF, 0.0), (INF,)),
            SpecialValue((NAN, 1.0, INF), (NAN,)),
            SpecialValue((-0.0, -0.0, -0.0), (0.0,)),
            SpecialValue((1e-40, -2e-40, 3e-40), (None,)),
        ),
        enclose=enclose,
        reference=reference,
        counted=counted,
        before=before,
        condition=condition,
        torch=torch_form,
    ),
)  # fmt: skip
