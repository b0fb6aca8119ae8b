# SPDX-License-Identifier: Apache-2.0
"""Wrong means and variances of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from assay.kernels.faults.planted import Mistaken, fault
from assay.kernels.row_tiles import reduce_rows


@triton.jit
def _mean_variance_kernel(
    x_ptr,
    mean_ptr,
    variance_ptr,
    correction,
    n_rows,
    n_cols,
    x_row_stride,
    x_col_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MISTAKE: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    offsets = rows[:, None] * x_row_stride + cols[None, :] * x_col_stride
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=1) / n_cols
    deviation = x - mean[:, None]
    if MISTAKE != "padding_again":
        deviation = tl.where(mask, deviation, 0.0)
    free = n_cols - correction
    if MISTAKE == "correction_ignored":
        free = n_cols
    if MISTAKE == "over_tile":
        free = BLOCK_N - correction
    if MISTAKE == "moments":
        moments = tl.sum(x * x, axis=1) / n_cols - mean * mean
        variance = moments * n_cols / free
    else:
        variance = tl.sum(deviation * deviation, axis=1) / free
    variance = tl.where(free > 0, variance, float("nan"))
    if MISTAKE == "clamped":
        variance = tl.where(variance > 0.0, variance, 0.0)  # NaN is not above 0
    tl.store(mean_ptr + rows, mean.to(mean_ptr.dtype.element_ty), mask=rows < n_rows)
    tl.store(variance_ptr + rows, variance.to(variance_ptr.dtype.element_ty), mask=rows < n_rows)


def _wrong(mistake: str) -> Callable[..., tuple[torch.Tensor, ...]]:
    def mean_variance(
        x: torch.Tensor, *, correction: float = 0.0, **config: Any
    ) -> tuple[torch.Tensor, ...]:
        return reduce_rows(
            Mistaken(_mean_variance_kernel, mistake), x, int(correction), name="mean_variance",
            dtypes=(None, None), **config,
        )  # fmt: skip

    return mean_variance


_TWIN = "mean_variance.one_tile"

FAULTS = [
    fault(
        _TWIN,
        "padding_again",
        _wrong("padding_again"),
        "PAD-REENTRY",
        ("accuracy",),
        "adds up the deviations of padding from the mean",
    ),
    fault(
        _TWIN,
        "moments",
        _wrong("moments"),
        "VAR-CANCEL",
        ("accuracy", "range"),
        "subtracts the squared mean from the mean of squares and claims two passes",
    ),
    fault(
        _TWIN,
        "correction_ignored",
        _wrong("correction_ignored"),
        "DOF-N1",
        ("accuracy", "special_values"),
        "divides by N whatever the correction",
    ),
    fault(
        _TWIN,
        "over_tile",
        _wrong("over_tile"),
        "PAD-IDENTITY",
        ("accuracy",),
        "divides the sum of squares by the width of the tile",
    ),
    fault(
        _TWIN,
        "clamped",
        _wrong("clamped"),
        "NAN-LAUNDER",
        ("special_values",),
        "clamps the variance at 0, which makes 0 of NaN",
    ),
]
