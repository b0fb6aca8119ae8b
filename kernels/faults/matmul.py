# SPDX-License-Identifier: Apache-2.0
"""Wrong matrix products."""

from __future__ import annotations

from functools import partial

import triton
import triton.language as tl

from assay.kernels.faults.planted import Mistaken, fault
from assay.kernels.matmul import launch
from assay.kernels.record import Fault


@triton.jit
def wrong_kernel(
    x_ptr,
    w_ptr,
    out_ptr,
    n_rows,
    n_cols,
    n_inner,
    x_row_stride,
    x_col_stride,
    w_row_stride,
    w_col_stride,
    out_row_stride,
    PRECISION: tl.constexpr,
    UPCAST: tl.constexpr,
    MISTAKE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    across = tl.cdiv(n_cols, BLOCK_N)
    rows = (tl.program_id(0) // across).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (tl.program_id(0) % across).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    end = n_inner
    if MISTAKE == "whole tiles":
        end = n_inner // BLOCK_K * BLOCK_K  # the last tile, which is not full, is left out
    for start in range(0, end, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K).to(tl.int64)
        x_mask = (rows[:, None] < n_rows) & (inner[None, :] < n_inner)
        w_mask = (inner[:, None] < n_inner) & (cols[None, :] < n_cols)
        if MISTAKE == "one factor masked":
            # The zeros of x are thought to cancel what lies past the end of w.
            w_mask = (inner[:, None] >= 0) & (cols[None, :] < n_cols)
        x_offsets = rows[:, None] * x_row_stride + inner[None, :] * x_col_stride
        w_offsets = inner[:, None] * w_row_stride + cols[None, :] * w_col_stride
        x = tl.load(x_ptr + x_offsets, mask=x_mask, other=0.0)
        w = tl.load(w_ptr + w_offsets, mask=w_mask, other=0.0)
        if UPCAST:
            x, w = x.to(tl.float32), w.to(tl.float32)
        total = tl.dot(x, w, total, input_precision=PRECISION)
        if MISTAKE == "stored accumulator":
            total = total.to(tl.float16).to(tl.float32)  # kept as it will be stored
    out_mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    out_offsets = rows[:, None] * out_row_stride + cols[None, :]
    tl.store(out_ptr + out_offsets, total.to(out_ptr.dtype.element_ty), mask=out_mask)


def _fault(
    name: str, mistake: str, pitfall: str, caught_by: tuple[str, ...], text: str,
    twin: str = "matmul.tiles", dtypes: tuple[str, ...] | None = None,
) -> Fault:  # fmt: skip
    function = partial(launch, Mistaken(wrong_kernel, mistake))
    return fault(twin, name, function, pitfall, caught_by, text, dtypes=dtypes)


FAULTS = [
    _fault(
        "one_factor_masked",
        "one factor masked",
        "MASK-OTHER",
        ("accuracy", "poison"),
        "masks the reduced axis of one factor only, and 0 times NaN is NaN",
    ),
    _fault(
        "whole_tiles",
        "whole tiles",
        "COVERAGE",
        ("accuracy", "launch_configurations"),
        "leaves out the last tile of the reduced axis where it is not full",
    ),
    _fault(
        "stored_accumulator",
        "stored accumulator",
        "LOWP-ACC",
        ("accuracy",),
        "rounds the accumulator to float16 after each tile",
        "matmul.tiles_16_bit",
        ("float16",),
    ),
]
