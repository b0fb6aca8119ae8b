# SPDX-License-Identifier: Apache-2.0
"""RMSNorm over rows that fit one tile, with the residual addition fused in: one program a row."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from assay.kernels.arguments import (
    MAX_ROW,
    as_rows,
    require_same,
    require_same_device,
    require_tensor,
    row_block,
    warps_for,
)
from assay.kernels.record import Kernel
from assay.oracles.depth import Tile

# torch's and most models' choice for the constant under the root.
DEFAULT_EPS = 1e-6


@triton.jit
def rms_norm_kernel(
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
):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_N)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_row_stride + cols * x_col_stride, mask=mask, other=0.0)
    x = x.to(tl.float32)
    if HAS_RESIDUAL:
        residual_offsets = row * residual_row_stride + cols * residual_col_stride
        x += tl.load(residual_ptr + residual_offsets, mask=mask, other=0.0).to(tl.float32)
    # The padding is 0 and adds nothing to the sum; the mean divides by N, not by BLOCK_N.
    # (Triton has no tl.mean.)
    mean_square = tl.sum(x * x, axis=0) / n_cols
    out = x * tl.rsqrt(mean_square + eps)
    if CAST_BEFORE_WEIGHT:
        out = out.to(out_ptr.dtype.element_ty).to(tl.float32)
    if HAS_WEIGHT:
        out *= tl.load(weight_ptr + cols * weight_stride, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * out_row_stride + cols, out.to(out_ptr.dtype.element_ty), mask=mask)


def launch(
    kernel: Any,
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    eps: float = DEFAULT_EPS,
    cast: str = "end",
    BLOCK_N: int | None = None,
    num_warps: int | None = None,
) -> torch.Tensor:
    """Run a kernel with rms_norm_kernel's signature over the rows of x."""
    name = "rms_norm"
    require_tensor("x", x, kernel=name)
    if cast not in ("end", "before_weight"):
        raise ValueError(f"rms_norm: cast must be 'end' or 'before_weight', got {cast!r}")
    if not eps >= 0.0:
        raise ValueError(f"rms_norm: eps must not be negative, got {eps}")
    rows = as_rows("x", x, kernel=name)
    m, n = rows.shape
    if weight is not None:
        require_tensor("weight", weight, kernel=name)
        require_same_device("weight", weight, x, kernel=name)
        if weight.shape != (n,):
            raise ValueError(
                f"rms_norm: weight must have shape ({n},), one value a column, got "
                f"{tuple(weight.shape)}"
            )
    added = None
    if residual is not None:
        require_tensor("residual", residual, kernel=name)
        require_same("residual", residual, x, kernel=name)
        added = as_rows("residual", residual, kernel=name)
    block_n = row_block(n, BLOCK_N, kernel=name)
    out = torch.empty((m, n), dtype=x.dtype, device=x.device)
    if out.numel():
        kernel[(m,)](
            rows,
            rows if weight is None else weight,
            rows if added is None else added,
            out,
            n,
            rows.stride(0),
            rows.stride(1),
            0 if added is None else added.stride(0),
            0 if added is None else added.stride(1),
            0 if weight is None else weight.stride(0),
            out.stride(0),
            eps,
            HAS_WEIGHT=weight is not None,
            HAS_RESIDUAL=added is not None,
            CAST_BEFORE_WEIGHT=cast == "before_weight",
            BLOCK_N=block_n,
            num_warps=num_warps or warps_for(block_n),
        )
    return out.reshape(x.shape)


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    eps: float = DEFAULT_EPS,
    cast: str = "end",
    BLOCK_N: int | None = None,
    num_warps: int | None = None,
) -> torch.Tensor:
    """h / sqrt(mean(h**2) + eps) * weight over the last axis, h = x + residual, in x's dtype.

    x: (..., N), float32, float16 or bfloat16, any strides, N up to 2**17.
    weight: (N,), any of the three dtypes; none means ones. residual: x's shape; none means zeros.
    Arithmetic is float32. cast: "end" rounds once, after the weight; "before_weight" rounds the
    normalised value to x's dtype first, as many model implementations do.
    Raises TypeError for another dtype; ValueError for another device, a wrong shape, a longer row
    or a negative eps.
    """
    return launch(
        rms_norm_kernel,
        x,
        weight,
        residual,
        eps=eps,
        cast=cast,
        BLOCK_N=BLOCK_N,
        num_warps=num_warps,
    )


def configs(m: int, n: int, dtype: str) -> list[dict[str, int]]:
    """Launch configurations for N = n: the default, other numbers of warps, a wider tile."""
    block = triton.next_power_of_2(max(1, n))
    warps = warps_for(block)
    chosen = [
        {"BLOCK_N": block, "num_warps": warps},
        {"BLOCK_N": block, "num_warps": 2 * warps if warps < 32 else 16},
    ]
    if 2 * block <= MAX_ROW:
        chosen.append({"BLOCK_N": 2 * block, "num_warps": warps_for(2 * block)})
    return chosen


def _kernel(name: str, function: Any, cast: str) -> Kernel:
    return Kernel(
        name=name,
        operation="rms_norm",
        function=function,
        order=Tile("BLOCK_N"),
        deterministic=True,
        policies={"cast": cast, "residual": "exact", "range": "naive"},
        configs=configs,
        max_n=MAX_ROW,
    )


KERNELS = [
    _kernel("rms_norm.one_tile", rms_norm, "end"),
    _kernel(
        "rms_norm.one_tile_cast_first", partial(rms_norm, cast="before_weight"), "before_weight"
    ),
]
