# SPDX-License-Identifier: Apache-2.0
"""Matrix product: a K-long reduction for each cell, in tiles that `tl.dot` multiplies and adds."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from assay.kernels.arguments import (
    MAX_ROW,
    require_power_of_two,
    require_same_device,
    require_tensor,
    short,
)
from assay.kernels.record import Kernel
from assay.oracles.depth import DotLoop


@triton.jit
def matmul_kernel(
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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    # One axis of programs: the second axis of a grid ends at 65535.
    across = tl.cdiv(n_cols, BLOCK_N)
    rows = (tl.program_id(0) // across).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (tl.program_id(0) % across).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in range(0, n_inner, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K).to(tl.int64)
        x_mask = (rows[:, None] < n_rows) & (inner[None, :] < n_inner)
        w_mask = (inner[:, None] < n_inner) & (cols[None, :] < n_cols)
        x_offsets = rows[:, None] * x_row_stride + inner[None, :] * x_col_stride
        w_offsets = inner[:, None] * w_row_stride + cols[None, :] * w_col_stride
        # Both factors are masked: 0 times whatever lies past the end of the other may be NaN.
        x = tl.load(x_ptr + x_offsets, mask=x_mask, other=0.0)
        w = tl.load(w_ptr + w_offsets, mask=w_mask, other=0.0)
        if UPCAST:
            x, w = x.to(tl.float32), w.to(tl.float32)
        total = tl.dot(x, w, total, input_precision=PRECISION)
    out_mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    out_offsets = rows[:, None] * out_row_stride + cols[None, :]
    tl.store(out_ptr + out_offsets, total.to(out_ptr.dtype.element_ty), mask=out_mask)


def launch(
    kernel: Any,
    x: torch.Tensor,
    w: torch.Tensor,
    *,
    input_precision: str = "ieee",
    BLOCK_M: int = 16,
    BLOCK_N: int = 16,
    BLOCK_K: int = 32,
    num_warps: int = 4,
) -> torch.Tensor:
    """Run a kernel with matmul_kernel's signature on x and w."""
    require_tensor("x", x, kernel="matmul")
    require_tensor("w", w, kernel="matmul")
    require_same_device("w", w, x, kernel="matmul")
    if x.ndim != 2 or w.ndim != 2 or x.shape[1] != w.shape[0]:
        raise ValueError(
            "matmul: x must be (M, K) and w (K, N), got shapes "
            f"{tuple(x.shape)} and {tuple(w.shape)}"
        )
    if w.dtype != x.dtype:
        raise TypeError(f"matmul: w must have x's dtype {short(x.dtype)}, got {short(w.dtype)}")
    if input_precision not in ("ieee", "tf32"):
        raise ValueError(
            f"matmul: input_precision must be 'ieee' or 'tf32', got {input_precision!r}"
        )
    for name, value in (("BLOCK_M", BLOCK_M), ("BLOCK_N", BLOCK_N), ("BLOCK_K", BLOCK_K)):
        require_power_of_two(name, value, kernel="matmul")
        if value < 16:
            raise ValueError(f"matmul: {name} must be at least 16, as tl.dot asks, got {value}")
    m, n = x.shape[0], w.shape[1]
    out = torch.empty((m, n), dtype=x.dtype, device=x.device)
    if out.numel():
        kernel[(triton.cdiv(m, BLOCK_M) * triton.cdiv(n, BLOCK_N),)](
            x,
            w,
            out,
            m,
            n,
            x.shape[1],
            *x.stride(),
            *w.stride(),
            out.stride(0),
            PRECISION=input_precision,
            # The interpreter multiplies bfloat16 as the integers that it keeps them in.
            UPCAST=x.dtype == torch.bfloat16 and not x.is_cuda,
            BLOCK_M=BLOCK_M,
            BLOCK_N=BLOCK_N,
            BLOCK_K=BLOCK_K,
            num_warps=num_warps,
        )
    return out


def matmul(
    x: torch.Tensor, w: torch.Tensor, *, input_precision: str = "ieee", **config: int
) -> torch.Tensor:
    """x @ w in float32 accumulators, in x's dtype.

    x: (M, K), w: (K, N), both float32, float16 or bfloat16, any strides.
    input_precision: "ieee" or "tf32", for float32 only; 16-bit inputs lose nothing.
    config: BLOCK_M, BLOCK_N, BLOCK_K, num_warps.
    Raises TypeError for another or a mixed dtype; ValueError for another device, shapes that do not
    go together, another precision or a tile that is no power of two of at least 16.
    """
    return launch(matmul_kernel, x, w, input_precision=input_precision, **config)


def configs(m: int, n: int, dtype: str) -> list[dict[str, int]]:
    """Launch configurations: small tiles, and larger ones along each axis."""
    return [
        {"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 32, "num_warps": 4},
        {"BLOCK_M": 32, "BLOCK_N": 16, "BLOCK_K": 16, "num_warps": 2},
        {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 64, "num_warps": 4},
    ]


# Claimed up to MAX_ROW inner elements, though longer ones run: tl.dot promises no order, so that
# the bound thins out with K and is gone at 2**24.
KERNELS = [
    Kernel(
        name="matmul.tiles",
        operation="matmul",
        function=matmul,
        dtypes=("float32",),
        order=DotLoop("BLOCK_K"),
        deterministic=True,
        policies={"input_precision": "ieee", "accumulation": "nearest", "range": "naive"},
        configs=configs,
        max_n=MAX_ROW,
    ),
    Kernel(
        name="matmul.tiles_16_bit",
        operation="matmul",
        function=matmul,
        dtypes=("float16", "bfloat16"),
        order=DotLoop("BLOCK_K"),
        deterministic=True,
        # 16-bit products are made by tensor cores, which do not round to nearest.
        policies={"input_precision": "ieee", "accumulation": "truncated", "range": "naive"},
        configs=configs,
        max_n=MAX_ROW,
    ),
    Kernel(
        name="matmul.tiles_tf32",
        operation="matmul",
        function=partial(matmul, input_precision="tf32"),
        dtypes=("float32",),
        order=DotLoop("BLOCK_K"),
        deterministic=True,
        policies={"input_precision": "tf32", "accumulation": "truncated", "range": "naive"},
        configs=configs,
        max_n=MAX_ROW,
    ),
]
