# SPDX-License-Identifier: Apache-2.0
"""Softmax over rows that fit one tile: BLOCK_M rows of BLOCK_N columns a program, read once."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from assay.kernels.arguments import MAX_ROW
from assay.kernels.record import Kernel
from assay.kernels.row_tiles import configs, map_rows
from assay.oracles.depth import Tile


@triton.jit
def softmax_kernel(
    x_ptr,
    out_ptr,
    n_rows,
    n_cols,
    x_row_stride,
    x_col_stride,
    out_row_stride,
    MASKED_ROW_ZERO: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    offsets = rows[:, None] * x_row_stride + cols[None, :] * x_col_stride
    # -inf is the identity of the maximum, and exp(-inf) the identity of the sum.
    x = tl.load(x_ptr + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    row_max = tl.max(x, axis=1)
    # Rows past the end hold -inf alone. Their lanes are never stored; this and the next guard keep
    # the invalid operations -inf minus -inf and 0 / 0 out of them.
    row_max = tl.where(rows < n_rows, row_max, 0.0)
    if MASKED_ROW_ZERO:
        row_max = tl.where(row_max == -float("inf"), 0.0, row_max)
    p = tl.exp(x - row_max[:, None])
    row_sum = tl.sum(p, axis=1)
    row_sum = tl.where(rows < n_rows, row_sum, 1.0)
    if MASKED_ROW_ZERO:
        # Compared with 0 and not with a threshold: a NaN sum must stay NaN.
        row_sum = tl.where(row_sum == 0.0, 1.0, row_sum)
    out = p / row_sum[:, None]
    out_offsets = rows[:, None] * out_row_stride + cols[None, :]
    tl.store(out_ptr + out_offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


def launch(
    kernel: Any,
    x: torch.Tensor,
    *,
    masked_row: str = "nan",
    BLOCK_M: int = 4,
    BLOCK_N: int | None = None,
    num_warps: int | None = None,
) -> torch.Tensor:
    """Run a kernel with softmax_kernel's signature over the rows of x."""
    if masked_row not in ("nan", "zero"):
        raise ValueError(f"softmax: masked_row must be 'nan' or 'zero', got {masked_row!r}")
    return map_rows(
        kernel,
        x,
        name="softmax",
        MASKED_ROW_ZERO=masked_row == "zero",
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        num_warps=num_warps,
    )


def softmax(
    x: torch.Tensor,
    *,
    masked_row: str = "nan",
    BLOCK_M: int = 4,
    BLOCK_N: int | None = None,
    num_warps: int | None = None,
) -> torch.Tensor:
    """softmax over the last axis of x, in float32, returned in x's dtype and shape.

    x: (..., N), float32, float16 or bfloat16, any strides, N up to 2**17.
    masked_row: a row that is -inf as a whole gives "nan" (as torch does) or "zero".
    Raises TypeError for another dtype; ValueError for another device, a longer row or a tile that
    does not fit.
    """
    return launch(
        softmax_kernel,
        x,
        masked_row=masked_row,
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        num_warps=num_warps,
    )


KERNELS = [
    Kernel(
        name="softmax.one_tile",
        operation="softmax",
        function=softmax,
        order=Tile("BLOCK_N"),
        deterministic=True,
        policies={"masked_row": "nan"},
        configs=configs,
        max_n=MAX_ROW,
    ),
    Kernel(
        name="softmax.one_tile_masked_zero",
        operation="softmax",
        function=partial(softmax, masked_row="zero"),
        order=Tile("BLOCK_N"),
        deterministic=True,
        policies={"masked_row": "zero"},
        configs=configs,
        max_n=MAX_ROW,
    ),
]
