# SPDX-License-Identifier: Apache-2.0
"""Wrong softmaxes, and one equivalent mutant."""

from __future__ import annotations

from functools import partial

import triton
import triton.language as tl

from assay.kernels.arguments import MAX_ROW
from assay.kernels.faults.planted import Mistaken
from assay.kernels.record import Fault, Kernel
from assay.kernels.row_tiles import configs
from assay.kernels.softmax import launch
from assay.oracles.depth import Tile


@triton.jit
def _softmax_kernel(
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
    MISTAKE: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_N)
    if MISTAKE == "column_mask_le":
        mask = (rows[:, None] < n_rows) & (cols[None, :] <= n_cols)
    else:
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    offsets = rows[:, None] * x_row_stride + cols[None, :] * x_col_stride
    if MISTAKE == "other_zero":
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    else:
        x = tl.load(x_ptr + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    row_max = tl.max(x, axis=1)
    if MISTAKE != "no_row_guard":
        row_max = tl.where(rows < n_rows, row_max, 0.0)
    if MISTAKE == "no_max":
        row_max = tl.zeros_like(row_max)
    if MISTAKE == "sign_slip":
        p = tl.exp(row_max[:, None] - x)
    else:
        p = tl.exp(x - row_max[:, None])
    row_sum = tl.sum(p, axis=1)
    out = p / row_sum[:, None]
    if MISTAKE == "nan_to_zero":
        out = tl.where(out == out, out, 0.0)
    out_offsets = rows[:, None] * out_row_stride + cols[None, :]
    if MISTAKE == "store_without_mask":
        tl.store(out_ptr + out_offsets, out.to(out_ptr.dtype.element_ty))
    elif MISTAKE == "even_columns":
        pairs = mask & (cols[None, :] < n_cols // 2 * 2)
        tl.store(out_ptr + out_offsets, out.to(out_ptr.dtype.element_ty), mask=pairs)
    else:
        tl.store(out_ptr + out_offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


def _kernel(mistake: str, *, name: str | None = None, masked_row: str = "nan") -> Kernel:
    return Kernel(
        name=f"softmax.{name or mistake}",
        operation="softmax",
        function=partial(launch, Mistaken(_softmax_kernel, mistake)),
        order=Tile("BLOCK_N"),
        deterministic=True,
        policies={"masked_row": masked_row},
        configs=configs,
        max_n=MAX_ROW,
    )


# A mutant that no test can kill: rows past M are never stored, and without the guard they hold NaN
# in lanes that nobody reads. It spares the hardware an invalid operation and nothing else.
EQUIVALENT_MUTANT = _kernel("no_row_guard")


FAULTS = [
    Fault(
        _kernel("other_zero"),
        "PAD-IDENTITY",
        ("accuracy", "row_sum"),
        "softmax.one_tile",
        "fills masked lanes with 0 ahead of the row maximum",
    ),
    Fault(
        _kernel("no_max"),
        "EXP-RANGE",
        ("accuracy", "shift", "range"),
        "softmax.one_tile",
        "does not subtract the row maximum",
    ),
    Fault(
        _kernel("sign_slip"),
        "EXP-RANGE",
        ("accuracy", "order"),
        "softmax.one_tile",
        "takes exp(max - x) for exp(x - max)",
    ),
    Fault(
        _kernel("even_columns"),
        "COVERAGE",
        ("written", "accuracy"),
        "softmax.one_tile",
        "stores pairs of columns and forgets the last one of an odd row",
    ),
    Fault(
        _kernel("column_mask_le"),
        "MASK-BOUND",
        ("accuracy", "poison"),
        "softmax.one_tile",
        "masks columns with <= where < is meant",
        isolated=True,
    ),
    Fault(
        _kernel("store_without_mask"),
        "STORE-OOB",
        ("canaries",),
        "softmax.one_tile",
        "stores the whole tile, padding included",
        isolated=True,
    ),
    Fault(
        _kernel("none", name="nan_for_masked_row", masked_row="zero"),
        "NEG-INF-ROW",
        ("special_values",),
        "softmax.one_tile_masked_zero",
        "promises 0 for a row masked as a whole and gives NaN",
    ),
    Fault(
        _kernel("nan_to_zero"),
        "NAN-LAUNDER",
        ("special_values",),
        "softmax.one_tile",
        "turns every NaN of the result into 0",
    ),
    Fault(
        _kernel("nan_to_zero", name="nan_to_zero_masked_zero", masked_row="zero"),
        "NAN-LAUNDER",
        ("special_values",),
        "softmax.one_tile_masked_zero",
        "gives 0 for a masked row, as promised, and for rows with a NaN",
    ),
]
