# SPDX-License-Identifier: Apache-2.0
"""Mean and variance of each row in two passes over registers, for rows that fit one tile."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from assay.kernels.arguments import MAX_ROW
from assay.kernels.record import Kernel
from assay.kernels.row_tiles import configs, reduce_rows
from assay.oracles.depth import Tile


@triton.jit
def mean_variance_kernel(
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
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    offsets = rows[:, None] * x_row_stride + cols[None, :] * x_col_stride
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=1) / n_cols
    # Padding was the identity of the sum, but it deviates from the mean: masked once more.
    deviation = tl.where(mask, x - mean[:, None], 0.0)
    variance = tl.sum(deviation * deviation, axis=1) / (n_cols - correction)
    # Without a degree of freedom there is no variance, and 0 / 0 need not be NaN on every device.
    variance = tl.where(n_cols > correction, variance, float("nan"))
    tl.store(mean_ptr + rows, mean.to(mean_ptr.dtype.element_ty), mask=rows < n_rows)
    tl.store(variance_ptr + rows, variance.to(variance_ptr.dtype.element_ty), mask=rows < n_rows)


def mean_variance(
    x: torch.Tensor,
    *,
    correction: float = 0.0,
    BLOCK_M: int = 4,
    BLOCK_N: int | None = None,
    num_warps: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean over the last axis of x, and mean squared deviation from it, in float32, x's dtype.

    x: (..., N), float32, float16 or bfloat16, any strides, N up to 2**17.
    correction: the sum of squares is divided by N - correction; NaN where that is not positive.
    Raises TypeError for another dtype; ValueError for another device, a negative or fractional
    correction, a longer row or a tile that does not fit.
    """
    if correction < 0 or correction != int(correction):
        raise ValueError(
            f"mean_variance: correction must be a whole number of at least 0, got {correction}"
        )
    mean, variance = reduce_rows(
        mean_variance_kernel, x, int(correction), name="mean_variance", dtypes=(None, None),
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, num_warps=num_warps,
    )  # fmt: skip
    return mean, variance


KERNELS = [
    Kernel(
        name="mean_variance.one_tile",
        operation="mean_variance",
        function=mean_variance,
        order=Tile("BLOCK_N"),
        deterministic=True,
        policies={"algorithm": "two_pass", "range": "naive"},
        configs=configs,
        max_n=MAX_ROW,
    )
]
