# SPDX-License-Identifier: Apache-2.0
"""Wrong log_softmaxes."""

from __future__ import annotations

from functools import partial

import triton
import triton.language as tl

from assay.kernels.faults.planted import Mistaken, fault
from assay.kernels.record import Fault
from assay.kernels.row_tiles import map_rows


@triton.jit
def _log_softmax_kernel(
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
    x = tl.load(x_ptr + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    row_max = tl.where(rows < n_rows, tl.max(x, axis=1), 0.0)
    if MISTAKE == "no_max":
        row_max = tl.zeros_like(row_max)
    shifted = x - row_max[:, None]
    if MISTAKE == "padding_again":
        shifted = tl.where(mask, shifted, 0.0)  # meant to be tidy: exp(0) is 1
    row_sum = tl.where(rows < n_rows, tl.sum(tl.exp(shifted), axis=1), 1.0)
    if MISTAKE == "log_of_softmax":
        out = tl.log(tl.exp(shifted) / row_sum[:, None])
    else:
        out = shifted - tl.log(row_sum)[:, None]
    if MISTAKE == "nan_as_masked":
        out = tl.where(out == out, out, -float("inf"))
    out_offsets = rows[:, None] * out_row_stride + cols[None, :]
    tl.store(out_ptr + out_offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


def _wrong(mistake: str, pitfall: str, caught_by: tuple[str, ...], text: str) -> Fault:
    function = partial(map_rows, Mistaken(_log_softmax_kernel, mistake), name="log_softmax")
    return fault("log_softmax.one_tile", mistake, function, pitfall, caught_by, text)


FAULTS = [
    _wrong(
        "log_of_softmax",
        "EXP-RANGE",
        ("accuracy",),
        "takes the logarithm of the softmax, of which small elements have vanished",
    ),
    _wrong("no_max", "EXP-RANGE", ("accuracy", "shift"), "does not subtract the row maximum"),
    _wrong(
        "padding_again",
        "PAD-REENTRY",
        ("accuracy", "zero_padding"),
        "sets padding to 0 ahead of the exponential",
    ),
    _wrong(
        "nan_as_masked",
        "NAN-LAUNDER",
        ("special_values",),
        "turns every NaN into -inf, as if its element were masked",
    ),
]
