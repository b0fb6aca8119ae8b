# SPDX-License-Identifier: Apache-2.0
"""log_softmax over rows that fit one tile: (x - max) - log(sum(exp(x - max)))."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from assay.kernels.arguments import MAX_ROW
from assay.kernels.record import Kernel
from assay.kernels.row_tiles import configs, map_rows
from assay.oracles.depth import Tile


@triton.jit
def log_softmax_kernel(
    x_ptr,
    out_ptr,
    n_rows,
    n_cols,
    x_row_stride,
    x_col_stride,
    out_row_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    offsets = rows[:, None] * x_row_stride + cols[None, :] * x_col_stride
    x = tl.load(x_ptr + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    row_max = tl.where(rows < n_rows, tl.max(x, axis=1), 0.0)
    # Not log(p): that of a small p would have lost its digits, or be -inf.
    shifted = x - row_max[:, None]
    row_sum = tl.where(rows < n_rows, tl.sum(tl.exp(shifted), axis=1), 1.0)
    out = shifted - tl.log(row_sum)[:, None]
    out_offsets = rows[:, None] * out_row_stride + cols[None, :]
    tl.store(out_ptr + out_offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


def log_softmax(
    x: torch.Tensor, *, BLOCK_M: int = 4, BLOCK_N: int | None = None, num_warps: int | None = None
) -> torch.Tensor:
    """log_softmax over the last axis of x, in float32, returned in x's dtype and shape.

    x: (..., N), float32, float16 or bfloat16, any strides, N up to 2**17. A row that is -inf as a
    whole gives NaN, as torch has it.
    Raises TypeError for another dtype; ValueError for another device, a longer row or a tile that
    does not fit.
    """
    return map_rows(
        log_softmax_kernel, x, name="log_softmax", BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
        num_warps=num_warps,
    )  # fmt: skip


KERNELS = [
    Kernel(
        name="log_softmax.one_tile",
        operation="log_softmax",
        function=log_softmax,
        order=Tile("BLOCK_N"),
        deterministic=True,
        policies={"masked_row": "nan", "form": "shifted"},
        configs=configs,
        max_n=MAX_ROW,
    )
]
