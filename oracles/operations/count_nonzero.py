# SPDX-License-Identifier: Apache-2.0
"""count_nonzero: how many elements of the whole array differ from zero.

NaN differs from zero; -0.0 does not.

Bound, derived
--------------
None is needed: a count is a whole number and must be exact. A float32 counter stops at 2**24, where
adding 1 no longer changes it; an int32 one overflows at 2**31.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from assay.oracles.enclosure import Enclosure, exactly
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
)
from assay.oracles.rows import facts

NAN, INF = float("nan"), float("inf")


def enclose(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, level: Level = "fast"
) -> Enclosure:
    return exactly(facts(inputs["x"]).nonzero.astype(np.float64)[:, None])


def reference(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, bits: int = BITS
) -> list[Any]:
    ctx = context(bits)
    return [ctx.mpf(sum(ctx.mpf(v) != 0 for v in row)) for row in inputs["x"].tolist()]


def counted(
    values: list[float], counts: list[int], params: Params, policies: Policies, out_format: Format,
    bits: int = BITS,
) -> list[Any]:  # fmt: skip
    ctx = context(bits)
    return [ctx.mpf(sum(k for v, k in zip(values, counts, strict=True) if ctx.mpf(v) != 0))]


def before(inputs: Inputs, exact: Enclosure, out_format: Format, claim: Claim) -> Float64:
    return np.zeros(exact.shape)


def condition(inputs: Inputs, exact: Enclosure, params: Params, policies: Policies) -> Float64:
    """0: no small relative change makes a number zero."""
    return np.zeros(exact.shape)


def torch_form(operands: Mapping[str, Any], params: Params) -> Any:
    import torch

    return torch.count_nonzero(operands["x"], dim=-1)


OPERATIONS = (
    Operation(
        name="count_nonzero",
        formula="sum_j [x_j != 0]",
        kind="whole",
        operands=(Operand("x", "matrix"),),
        outputs=(Output("count", "row", "integer"),),
        params={},
        policies=(),
        families=("sparse", "integers", "normal", "tiny", "masked"),
        empty=0.0,
        special_values=(
            SpecialValue((-INF, -INF, -INF), (3.0,)),
            SpecialValue((0.0, INF, 1.0), (2.0,)),
            SpecialValue((-INF, 0.0, INF), (2.0,)),
            SpecialValue((NAN, 0.0, 1.0), (2.0,)),
            SpecialValue((-0.0, -0.0, 0.0), (0.0,)),
            SpecialValue((2.0**-149, -(2.0**-149), 0.0), (2.0,)),
        ),
        enclose=enclose,
        reference=reference,
        counted=counted,
        before=before,
        condition=condition,
        torch=torch_form,
    ),
)  # fmt: skip
