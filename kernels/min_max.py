# SPDX-License-Identifier: Apache-2.0
"""Min-max normalisation of rows that fit one tile: (x - lo) / (hi - lo)."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from assay.kernels.arguments import MAX_ROW
from assay.kernels.record import Kernel
from assay.kernels.row_tiles import configs, map_rows
from assay.oracles.depth import Tile


@triton.jit
def min_max_kernel(
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
    # Two reductions with two identities: one fill value cannot serve both.
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    lo = tl.min(tl.where(mask, x, float("inf")), axis=1)
    hi = tl.max(tl.where(mask, x, -float("inf")), axis=1)
    # tl.min and tl.max drop NaN; a row that holds one is NaN as a whole.
    has_nan = tl.max((x != x).to(tl.int32), axis=1)
    lo = tl.where(has_nan != 0, float("nan"), lo)
    # Rows past the end are never stored; they are kept clear of invalid operations.
    lo = tl.where(rows < n_rows, lo, 0.0)
    hi = tl.where(rows < n_rows, hi, 1.0)
    shifted = tl.where(mask, x - lo[:, None], 0.0)
    out = shifted / (hi - lo)[:, None]
    out_offsets = rows[:, None] * out_row_stride + cols[None, :]
    tl.store(out_ptr + out_offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


def min_max(
    x: torch.Tensor, *, BLOCK_M: int = 4, BLOCK_N: int | None = None, num_warps: int | None = None
) -> torch.Tensor:
    """(x - lo) / (hi - lo) over the last axis of x, in float32, in x's dtype and shape.

    x: (..., N), float32, float16 or bfloat16, any strides, N up to 2**17. A row of equal elements
    gives NaN, and so does one with a NaN.
    Raises TypeError for another dtype; ValueError for another device, a longer row or a tile that
    does not fit.
    """
    return map_rows(
        min_max_kernel, x, name="min_max", BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, num_warps=num_warps
    )


KERNELS = [
    Kernel(
        name="min_max.one_tile",
        operation="min_max",
        function=min_max,
        order=Tile("BLOCK_N"),
        deterministic=True,
        policies={"constant_row": "nan", "range": "naive"},
        configs=configs,
        max_n=MAX_ROW,
    )
]
