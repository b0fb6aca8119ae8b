# SPDX-License-Identifier: Apache-2.0
"""Wrong RMSNorms."""

from __future__ import annotations

from functools import partial

import triton
import triton.language as tl

from assay.kernels.arguments import MAX_ROW
from assay.kernels.faults.planted import Mistaken
from assay.kernels.record import Fault, Kernel
from assay.kernels.rms_norm import configs, launch
from assay.oracles.depth import Tile


@triton.jit
def _rms_norm_kernel(
    x_ptr,
    weight_ptr,
    residual_ptr,
    out_ptr,
    n_cols,
    x_row_stride,
    x_col_stride,
    residual_row_stride,
    residual_col_stride,
    weight_stride,
    out_row_stride,
    eps,
    HAS_WEIGHT: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    CAST_BEFORE_WEIGHT: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MISTAKE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_N)
    mask = cols < n_cols
    if MISTAKE == "contiguous_x":
        x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0)
    else:
        x = tl.load(x_ptr + row * x_row_stride + cols * x_col_stride, mask=mask, other=0.0)
    if MISTAKE == "square_in_storage":
        mean_square = tl.sum((x * x).to(tl.float32), axis=0) / n_cols
        x = x.to(tl.float32)
    else:
        x = x.to(tl.float32)
        if HAS_RESIDUAL:
            if MISTAKE != "residual_dropped" or n_cols == BLOCK_N:
                residual_offsets = row * residual_row_stride + cols * residual_col_stride
                x += tl.load(residual_ptr + residual_offsets, mask=mask, other=0.0).to(tl.float32)
        if MISTAKE == "mean_over_block":
            mean_square = tl.sum(x * x, axis=0) / BLOCK_N
        else:
            mean_square = tl.sum(x * x, axis=0) / n_cols
    if MISTAKE == "eps_outside_root":
        out = x / (tl.sqrt(mean_square) + eps)
    else:
        out = x * tl.rsqrt(mean_square + eps)
    if CAST_BEFORE_WEIGHT:
        out = out.to(out_ptr.dtype.element_ty).to(tl.float32)
    if HAS_WEIGHT:
        out *= tl.load(weight_ptr + cols * weight_stride, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * out_row_stride + cols, out.to(out_ptr.dtype.element_ty), mask=mask)


def _fault(
    mistake: str,
    pitfall: str,
    caught_by: tuple[str, ...],
    text: str,
    *,
    name: str | None = None,
    cast: str = "end",
    claimed_cast: str = "end",
    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16"),
    operands: tuple[str, ...] | None = None,
    isolated: bool = False,
) -> Fault:
    kernel = Kernel(
        name=f"rms_norm.{name or mistake}",
        operation="rms_norm",
        function=partial(launch, Mistaken(_rms_norm_kernel, mistake), cast=cast),
        dtypes=dtypes,
        order=Tile("BLOCK_N"),
        deterministic=True,
        policies={"cast": claimed_cast, "residual": "exact", "range": "naive"},
        configs=configs,
        max_n=MAX_ROW,
        operands=operands,
    )
    twin = "rms_norm.one_tile" if claimed_cast == "end" else "rms_norm.one_tile_cast_first"
    return Fault(kernel, pitfall, caught_by, twin, text, isolated)


_NARROW = ("float16", "bfloat16")

FAULTS = [
    _fault(
        "mean_over_block",
        "PAD-IDENTITY",
        ("accuracy", "launch_configurations"),
        "divides the sum by BLOCK_N instead of N",
    ),
    _fault("eps_outside_root", "EPS-FORMULA", ("accuracy",), "adds eps outside the root"),
    _fault(
        "square_in_storage",
        "LOWP-ACC",
        ("accuracy",),
        "squares in the storage format",
        dtypes=("float16",),
        operands=("x", "weight"),
    ),
    _fault(
        "residual_dropped",
        "COVERAGE",
        ("accuracy", "residual"),
        "adds the residual only where N is a power of two",
    ),
    _fault(
        "contiguous_x",
        "STRIDE",
        ("accuracy", "poison"),
        "reads x as if rows followed one another without gap",
    ),
    _fault(
        "none",
        "NORM-CONV",
        ("accuracy",),
        "casts before the weight and claims to cast at the end",
        name="casts_before_weight",
        cast="before_weight",
        dtypes=_NARROW,
    ),
    _fault(
        "none",
        "NORM-CONV",
        ("accuracy",),
        "casts at the end and claims to cast before the weight",
        name="casts_at_end",
        claimed_cast="before_weight",
        dtypes=_NARROW,
    ),
]
