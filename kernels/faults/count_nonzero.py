# SPDX-License-Identifier: Apache-2.0
"""Wrong counts."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from assay.kernels.atomic import accumulate
from assay.kernels.faults.planted import Mistaken, fault


@triton.jit
def _count_kernel(
    x_ptr, scratch_ptr, n, x_stride, BLOCK: tl.constexpr, MISTAKE: tl.constexpr
):  # fmt: skip
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets * x_stride, mask=offsets < n, other=0.0)
    if MISTAKE == "nan_left_out":
        counts = (x > 0.0) | (x < 0.0)
    elif MISTAKE == "bits_compared":
        counts = x.to(tl.int32, bitcast=True) != 0
    elif MISTAKE == "subnormal_as_zero":
        counts = tl.abs(x) >= 2.0**-126
    else:
        counts = x != 0.0
    if MISTAKE == "half_counter":
        tl.atomic_add(scratch_ptr, tl.sum(counts.to(tl.float16), axis=0))
    else:
        tl.atomic_add(scratch_ptr, tl.sum(counts.to(tl.int32), axis=0).to(tl.int64))


def _count(mistake: str, counter: torch.dtype = torch.int64) -> Any:
    def count_nonzero(x: torch.Tensor, **config: Any) -> torch.Tensor:
        found = accumulate(
            Mistaken(_count_kernel, mistake), x, name="count_nonzero", dtype=counter, **config
        )
        return found[0].to(torch.int64)

    return count_nonzero


_TWIN = "count_nonzero.atomic"

FAULTS = [
    fault(
        _TWIN,
        "nan_left_out",
        _count("nan_left_out"),
        "NAN-MINMAX",
        ("accuracy", "special_values"),
        "counts what is above or below zero, which no NaN is",
    ),
    fault(
        _TWIN,
        "half_counter",
        _count("half_counter", torch.float16),
        "INT-ACC",
        ("accuracy",),
        "counts in float16, where 2048 + 1 is 2048",
    ),
    fault(
        _TWIN,
        "bits_compared",
        _count("bits_compared"),
        "SIGNED-ZERO",
        ("accuracy", "sign_flip"),
        "compares bit patterns, in which -0.0 differs from 0.0",
        dtypes=("float32",),
    ),
    fault(
        _TWIN,
        "subnormal_as_zero",
        _count("subnormal_as_zero"),
        "APPROX-FTZ",
        ("accuracy",),
        "calls everything below the smallest normal number zero",
        dtypes=("float32",),
    ),
]
