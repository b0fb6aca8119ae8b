# SPDX-License-Identifier: Apache-2.0
"""Sum and mean of each row, for rows that fit one tile.

Triton has no `tl.mean`. The mean of a tile would count its padding: the sum is divided by N.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from assay.kernels.arguments import MAX_ROW
from assay.kernels.record import Kernel
from assay.kernels.row_tiles import configs, reduce_rows
from assay.oracles.depth import Tile


@triton.jit
def row_sum_kernel(
    x_ptr,
    out_ptr,
    n_rows,
    n_cols,
    x_row_stride,
    x_col_stride,
    MEAN: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    offsets = rows[:, None] * x_row_stride + cols[None, :] * x_col_stride
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    total = tl.sum(x, axis=1)
    if MEAN:
        total = total / n_cols
    tl.store(out_ptr + rows, total.to(out_ptr.dtype.element_ty), mask=rows < n_rows)


def row_sum(
    x: torch.Tensor, *, BLOCK_M: int = 4, BLOCK_N: int | None = None, num_warps: int | None = None
) -> torch.Tensor:
    """Sum over the last axis of x, added in float32, in x's dtype.

    x: (..., N), float32, float16 or bfloat16, any strides, N up to 2**17.
    Raises TypeError for another dtype; ValueError for another device, a longer row or a tile that
    does not fit.
    """
    (out,) = reduce_rows(
        row_sum_kernel, x, name="row_sum", MEAN=False, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
        num_warps=num_warps,
    )  # fmt: skip
    return out


def row_mean(
    x: torch.Tensor, *, BLOCK_M: int = 4, BLOCK_N: int | None = None, num_warps: int | None = None
) -> torch.Tensor:
    """Mean over the last axis of x; as `row_sum`, and NaN for empty rows."""
    (out,) = reduce_rows(
        row_sum_kernel, x, name="row_mean", MEAN=True, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
        num_warps=num_warps,
    )  # fmt: skip
    return out


KERNELS = [
    Kernel(
        name=f"{function.__name__}.one_tile",
        operation=function.__name__,
        function=function,
        order=Tile("BLOCK_N"),
        deterministic=True,
        policies={"range": "naive"},
        configs=configs,
        max_n=MAX_ROW,
    )
    for function in (row_sum, row_mean)
]
