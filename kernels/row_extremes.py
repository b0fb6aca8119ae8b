# SPDX-License-Identifier: Apache-2.0
"""Largest and smallest element of each row, and where the largest is, for rows of one tile.

`tl.max` and `tl.min` drop NaN, on a GPU and in the interpreter. `nan="propagate"` asks for NaN
apart and puts it back, as torch has it.
"""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl

from assay.kernels.arguments import MAX_ROW
from assay.kernels.record import Kernel
from assay.kernels.row_tiles import configs, reduce_rows
from assay.oracles.depth import Tile


@triton.jit
def row_extreme_kernel(
    x_ptr,
    out_ptr,
    n_rows,
    n_cols,
    x_row_stride,
    x_col_stride,
    LARGEST: tl.constexpr,
    PROPAGATE_NAN: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    offsets = rows[:, None] * x_row_stride + cols[None, :] * x_col_stride
    # The identity of the maximum is -inf, not 0 and not the lowest finite value.
    fill: tl.constexpr = -float("inf") if LARGEST else float("inf")
    x = tl.load(x_ptr + offsets, mask=mask, other=fill).to(tl.float32)
    out = tl.max(x, axis=1) if LARGEST else tl.min(x, axis=1)
    if PROPAGATE_NAN:
        has_nan = tl.max((x != x).to(tl.int32), axis=1)
        out = tl.where(has_nan != 0, float("nan"), out)
    tl.store(out_ptr + rows, out.to(out_ptr.dtype.element_ty), mask=rows < n_rows)


@triton.jit
def row_argmax_kernel(
    x_ptr,
    out_ptr,
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
    x = tl.load(x_ptr + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    # A NaN compares false with everything, so it is looked for by itself. Padding comes last, so
    # that even a row of -inf finds its own first element.
    is_nan = (x != x).to(tl.int32)
    number = tl.argmax(tl.where(is_nan != 0, -float("inf"), x), axis=1, tie_break_left=True)
    first_nan = tl.argmax(is_nan, axis=1, tie_break_left=True)
    index = tl.where(tl.max(is_nan, axis=1) != 0, first_nan, number)
    tl.store(out_ptr + rows, index.to(tl.int64), mask=rows < n_rows)


def row_max(
    x: torch.Tensor,
    *,
    nan: str = "drop",
    BLOCK_M: int = 4,
    BLOCK_N: int | None = None,
    num_warps: int | None = None,
) -> torch.Tensor:
    """Largest element along the last axis of x, in x's dtype; -inf for empty rows.

    x: (..., N), float32, float16 or bfloat16, any strides, N up to 2**17.
    nan: "drop" passes NaN over, "propagate" makes it the result.
    Raises TypeError for another dtype; ValueError for another device, a longer row or a tile that
    does not fit.
    """
    return _extreme(x, "row_max", nan, BLOCK_M, BLOCK_N, num_warps)


def row_min(
    x: torch.Tensor,
    *,
    nan: str = "drop",
    BLOCK_M: int = 4,
    BLOCK_N: int | None = None,
    num_warps: int | None = None,
) -> torch.Tensor:
    """Smallest element along the last axis of x; as `row_max`, and inf for empty rows."""
    return _extreme(x, "row_min", nan, BLOCK_M, BLOCK_N, num_warps)


def _extreme(
    x: torch.Tensor, name: str, nan: str, block_m: int, block_n: int | None, warps: int | None
) -> torch.Tensor:
    if nan not in ("drop", "propagate"):
        raise ValueError(f"{name}: nan must be 'drop' or 'propagate', got {nan!r}")
    (out,) = reduce_rows(
        row_extreme_kernel, x, name=name, LARGEST=name == "row_max",
        PROPAGATE_NAN=nan == "propagate", BLOCK_M=block_m, BLOCK_N=block_n, num_warps=warps,
    )  # fmt: skip
    return out


def row_argmax(
    x: torch.Tensor, *, BLOCK_M: int = 4, BLOCK_N: int | None = None, num_warps: int | None = None
) -> torch.Tensor:
    """Index of the first NaN, else of the first largest element, along the last axis; int64.

    x and errors are those of `row_max`. Empty rows have no such index and get 0.
    """
    (out,) = reduce_rows(
        row_argmax_kernel, x, name="row_argmax", dtypes=(torch.int64,), BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N, num_warps=num_warps,
    )  # fmt: skip
    return out


def _kernel(name: str, function: object, **policies: str) -> Kernel:
    return Kernel(
        name=name,
        operation=name.partition(".")[0],
        function=function,  # type: ignore[arg-type]
        order=Tile("BLOCK_N"),
        deterministic=True,
        policies=policies,
        configs=configs,
        max_n=MAX_ROW,
    )


KERNELS = [
    _kernel("row_max.one_tile", row_max, nan="drop"),
    _kernel("row_max.one_tile_nan", partial(row_max, nan="propagate"), nan="propagate"),
    _kernel("row_min.one_tile", row_min, nan="drop"),
    _kernel("row_min.one_tile_nan", partial(row_min, nan="propagate"), nan="propagate"),
    _kernel("row_argmax.one_tile", row_argmax, nan="propagate", ties="first"),
]
