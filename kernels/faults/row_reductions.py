# SPDX-License-Identifier: Apache-2.0
"""Wrong sums, means and extremes of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from assay.kernels.faults.planted import Mistaken, fault
from assay.kernels.row_tiles import reduce_rows


@triton.jit
def _row_sum_kernel(
    x_ptr,
    out_ptr,
    n_rows,
    n_cols,
    x_row_stride,
    x_col_stride,
    MEAN: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MISTAKE: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    if MISTAKE == "whole_vectors":
        mask = mask & (cols[None, :] < n_cols // 4 * 4)
    if MISTAKE == "contiguous":
        offsets = rows[:, None] * n_cols + cols[None, :]
    else:
        offsets = rows[:, None] * x_row_stride + cols[None, :] * x_col_stride
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    if MISTAKE == "added_in_half":
        total = tl.sum(x.to(tl.float16), axis=1).to(tl.float32)
    else:
        total = tl.sum(x.to(tl.float32), axis=1)
    if MISTAKE == "of_stored_sum":
        total = total.to(out_ptr.dtype.element_ty).to(tl.float32)
    if MEAN:
        if MISTAKE == "over_tile":
            total = total / BLOCK_N
        elif MISTAKE == "zero_for_empty":
            total = total / tl.maximum(n_cols, 1)
        else:
            total = total / n_cols
    if MISTAKE == "store_without_mask":
        tl.store(out_ptr + rows, total.to(out_ptr.dtype.element_ty))
    else:
        tl.store(out_ptr + rows, total.to(out_ptr.dtype.element_ty), mask=rows < n_rows)


@triton.jit
def _row_extreme_kernel(
    x_ptr,
    out_ptr,
    n_rows,
    n_cols,
    x_row_stride,
    x_col_stride,
    LARGEST: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MISTAKE: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    offsets = rows[:, None] * x_row_stride + cols[None, :] * x_col_stride
    if MISTAKE == "other_zero":
        fill = 0.0
    elif MISTAKE == "from_lowest_finite":
        fill = -3.4028234663852886e38
    elif MISTAKE == "fill_of_maximum":
        fill = -float("inf")
    else:
        fill = -float("inf") if LARGEST else float("inf")
    x = tl.load(x_ptr + offsets, mask=mask, other=fill).to(tl.float32)
    out = tl.max(x, axis=1) if LARGEST else tl.min(x, axis=1)
    tl.store(out_ptr + rows, out.to(out_ptr.dtype.element_ty), mask=rows < n_rows)


@triton.jit
def _row_argmax_kernel(
    x_ptr,
    out_ptr,
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
    if MISTAKE == "other_zero":
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    else:
        x = tl.load(x_ptr + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    is_nan = (x != x).to(tl.int32)
    numbers = tl.where(is_nan != 0, -float("inf"), x)
    largest = mask & (numbers == tl.max(numbers, axis=1)[:, None])
    if MISTAKE == "last_of_ties":
        index = tl.max(tl.where(largest, cols[None, :], 0), axis=1)
    elif MISTAKE == "ties_added":
        index = tl.sum(tl.where(largest, cols[None, :], 0), axis=1)
    else:
        index = tl.argmax(numbers, axis=1, tie_break_left=True)
    if MISTAKE != "nan_passed_over":
        first_nan = tl.argmax(is_nan, axis=1, tie_break_left=True)
        index = tl.where(tl.max(is_nan, axis=1) != 0, first_nan, index)
    tl.store(out_ptr + rows, index.to(tl.int64), mask=rows < n_rows)


def _row(
    kernel: Any, mistake: str, *, result: torch.dtype | None = None, **constants: Any
) -> Callable[..., torch.Tensor]:
    """The kernel over rows, with one mistake; result: dtype of its result, None for x's."""

    def reduce(x: torch.Tensor, **config: Any) -> torch.Tensor:
        (out,) = reduce_rows(
            Mistaken(kernel, mistake), x, name="row", dtypes=(result,), **constants, **config
        )
        return out

    return reduce


def _row_sum(mistake: str) -> Callable[..., torch.Tensor]:
    return _row(_row_sum_kernel, mistake, MEAN=False)


def _row_mean(mistake: str) -> Callable[..., torch.Tensor]:
    return _row(_row_sum_kernel, mistake, MEAN=True)


def _row_max(mistake: str) -> Callable[..., torch.Tensor]:
    return _row(_row_extreme_kernel, mistake, LARGEST=True)


def _row_min(mistake: str) -> Callable[..., torch.Tensor]:
    return _row(_row_extreme_kernel, mistake, LARGEST=False)


def _row_argmax(mistake: str) -> Callable[..., torch.Tensor]:
    return _row(_row_argmax_kernel, mistake, result=torch.int64)


FAULTS = [
    fault(
        "row_sum.one_tile",
        "added_in_half",
        _row_sum("added_in_half"),
        "LOWP-ACC",
        ("accuracy",),
        "adds in float16 what is stored in float32",
        dtypes=("float32",),
    ),
    fault(
        "row_sum.one_tile",
        "contiguous",
        _row_sum("contiguous"),
        "STRIDE",
        ("accuracy", "poison"),
        "reads x as if rows followed one another without gap",
    ),
    fault(
        "row_sum.one_tile",
        "whole_vectors",
        _row_sum("whole_vectors"),
        "COVERAGE",
        ("accuracy", "permutation", "zero_padding"),
        "adds vectors of 4 and forgets what is left of the row",
    ),
    fault(
        "row_sum.one_tile",
        "store_without_mask",
        _row_sum("store_without_mask"),
        "STORE-OOB",
        ("canaries",),
        "stores a result for rows past the end",
        isolated=True,
    ),
    fault(
        "row_mean.one_tile",
        "over_tile",
        _row_mean("over_tile"),
        "PAD-IDENTITY",
        ("accuracy",),
        "divides the sum by BLOCK_N instead of N",
    ),
    fault(
        "row_mean.one_tile",
        "of_stored_sum",
        _row_mean("of_stored_sum"),
        "LOWP-ACC",
        ("accuracy",),
        "rounds the sum to the storage format before it divides",
        dtypes=(
            "float16",
            "bfloat16",
        ),
    ),
    fault(
        "row_mean.one_tile",
        "zero_for_empty",
        _row_mean("zero_for_empty"),
        "EMPTY",
        ("special_values",),
        "guards the division of empty rows and returns 0 for NaN",
    ),
    fault(
        "row_max.one_tile",
        "other_zero",
        _row_max("other_zero"),
        "PAD-IDENTITY",
        ("accuracy", "zero_padding"),
        "fills masked lanes with 0",
    ),
    fault(
        "row_max.one_tile",
        "from_lowest_finite",
        _row_max("from_lowest_finite"),
        "PAD-IDENTITY",
        ("special_values",),
        "starts from the lowest finite number, which a row of -inf never reaches",
        dtypes=("float32",),
    ),
    fault(
        "row_max.one_tile_nan",
        "nan_dropped",
        _row_max("none"),
        "NAN-MINMAX",
        ("special_values",),
        "promises to propagate NaN and leaves it to tl.max, which drops it",
    ),
    fault(
        "row_min.one_tile",
        "other_zero",
        _row_min("other_zero"),
        "PAD-IDENTITY",
        ("accuracy", "zero_padding"),
        "fills masked lanes with 0",
    ),
    fault(
        "row_min.one_tile",
        "fill_of_maximum",
        _row_min("fill_of_maximum"),
        "PAD-IDENTITY",
        ("accuracy", "zero_padding"),
        "keeps the fill of the maximum that it was copied from",
    ),
    fault(
        "row_min.one_tile_nan",
        "nan_dropped",
        _row_min("none"),
        "NAN-MINMAX",
        ("special_values",),
        "promises to propagate NaN and leaves it to tl.min, which drops it",
    ),
    fault(
        "row_argmax.one_tile",
        "last_of_ties",
        _row_argmax("last_of_ties"),
        "ARG-TIES",
        ("accuracy",),
        "looks for the maximum by comparison and keeps the last index",
    ),
    fault(
        "row_argmax.one_tile",
        "ties_added",
        _row_argmax("ties_added"),
        "ARG-TIES",
        ("accuracy",),
        "adds the indices of all elements that equal the maximum",
    ),
    fault(
        "row_argmax.one_tile",
        "other_zero",
        _row_argmax("other_zero"),
        "PAD-IDENTITY",
        ("accuracy", "zero_padding"),
        "fills masked lanes with 0 and finds an index past the row",
    ),
    fault(
        "row_argmax.one_tile",
        "nan_passed_over",
        _row_argmax("nan_passed_over"),
        "NAN-MINMAX",
        ("special_values",),
        "promises the index of a NaN and gives that of the largest number",
    ),
]
