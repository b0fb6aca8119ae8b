# SPDX-License-Identifier: Apache-2.0
"""Wrong min-max normalisations."""

from __future__ import annotations

from functools import partial

import triton
import triton.language as tl

from assay.kernels.faults.planted import Mistaken, fault
from assay.kernels.record import Fault
from assay.kernels.row_tiles import map_rows


@triton.jit
def _min_max_kernel(
    x_ptr,
    out_ptr,
    n_rows,
    n_cols,
    x_row_stride,
    x_col_stride,
    out_row_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MISTAKE: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    offsets = rows[:, None] * x_row_stride + cols[None, :] * x_col_stride
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    if MISTAKE == "seed_padding":
        lo = tl.min(x, axis=1)  # padding is an element like the others: lo <= 0 <= hi
        hi = tl.max(x, axis=1)
    else:
        lo = tl.min(tl.where(mask, x, float("inf")), axis=1)
        hi = tl.max(tl.where(mask, x, -float("inf")), axis=1)
    if MISTAKE != "nan_dropped":
        has_nan = tl.max((x != x).to(tl.int32), axis=1)
        lo = tl.where(has_nan != 0, float("nan"), lo)
    if MISTAKE == "epsilon":
        out = (x - lo[:, None]) / (hi - lo + 2.0**-20)[:, None]
    elif MISTAKE == "reciprocal":
        out = (x - lo[:, None]) * (1.0 / (hi - lo))[:, None]
    else:
        out = (x - lo[:, None]) / (hi - lo)[:, None]
    if MISTAKE == "clamped":
        out = tl.where(out > 0.0, tl.where(out < 1.0, out, 1.0), 0.0)  # NaN is not above 0
    out_offsets = rows[:, None] * out_row_stride + cols[None, :]
    tl.store(out_ptr + out_offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


def _wrong(
    mistake: str,
    pitfall: str,
    caught_by: tuple[str, ...],
    text: str,
    dtypes: tuple[str, ...] | None = None,
) -> Fault:
    function = partial(map_rows, Mistaken(_min_max_kernel, mistake), name="min_max")
    return fault("min_max.one_tile", mistake, function, pitfall, caught_by, text, dtypes=dtypes)


FAULTS = [
    _wrong(
        "seed_padding",
        "PAD-IDENTITY",
        ("accuracy", "shift"),
        "fills masked lanes with 0 for the minimum and the maximum alike",
    ),
    _wrong(
        "epsilon",
        "DEGENERATE-DIV",
        ("accuracy", "special_values"),
        "adds an epsilon to the range: rows of equal elements give 0 where NaN is claimed",
    ),
    _wrong(
        "reciprocal",
        "DEGENERATE-DIV",
        ("accuracy",),
        "multiplies by the reciprocal of the range, which overflows where the range is subnormal",
        dtypes=("float32",),
    ),
    _wrong(
        "nan_dropped",
        "NAN-MINMAX",
        ("special_values",),
        "leaves NaN to tl.min and tl.max, which drop it, and normalises the numbers beside it",
    ),
    _wrong(
        "clamped",
        "NAN-LAUNDER",
        ("special_values",),
        "clamps the result to [0, 1], which makes 0 of NaN",
    ),
]
