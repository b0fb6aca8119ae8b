# SPDX-License-Identifier: Apache-2.0
"""softmax, log_softmax and RMSNorm whose error does not grow with the range of the row.

What the simplest forms lose, and how it comes back here:

* The rounding of x - max is what TwoSum gives beside the difference.
* The rounding of its product with log2(e) is what a fused multiply-add gives, together with the
  second word of log2(e). Both go back into the power of two q as q + q * correction * ln 2, since
  2**c = 1 + c ln 2 to second order and c is below 2**-16.
* The sums are float64, one rounding for a row.

What is left is the instruction ex2.approx itself, 2 ulp. One reciprocal a row serves all elements:
a division for each would cost more than it gains.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from assay.kernels.arguments import MAX_ROW
from assay.kernels.record import Kernel
from assay.kernels.rms_norm import DEFAULT_EPS
from assay.kernels.rms_norm import configs as rms_configs
from assay.kernels.rms_norm import launch as rms_launch
from assay.kernels.row_tiles import configs, map_rows
from assay.oracles.depth import RoundedOnce

# log2(e) in two words: the first is its float32, the second what that leaves.
LOG2E = tl.constexpr(float.fromhex("0x1.715476p+0"))
LOG2E_LOW = tl.constexpr(float.fromhex("0x1.4ae0c0p-26"))
LN2 = tl.constexpr(float.fromhex("0x1.62e430p-1"))


@triton.jit
def difference(x, shift):
    """x - shift and the error of that, 0 where the difference is infinite or NaN."""
    t = x - shift
    bb = t - x
    low = (x - (t - bb)) - (shift + bb)
    return t, tl.where(tl.abs(t) < float("inf"), low, 0.0)


@triton.jit
def exp_of_pair(t, low):
    """exp(t + low) for t <= 0, as good as the power-of-two instruction."""
    p = t * LOG2E
    correction = tl.fma(t, LOG2E, -p) + tl.fma(t, LOG2E_LOW, low * LOG2E)
    q = tl.exp2(p)
    # Where the power is 0 the correction may be inf - inf; a NaN in t goes through q.
    return tl.where(q == 0.0, q, q + q * (correction * LN2))


@triton.jit
def accurate_softmax_kernel(
    x_ptr,
    out_ptr,
    n_rows,
    n_cols,
    x_row_stride,
    x_col_stride,
    out_row_stride,
    LOG: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    offsets = rows[:, None] * x_row_stride + cols[None, :] * x_col_stride
    x = tl.load(x_ptr + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    row_max = tl.where(rows < n_rows, tl.max(x, axis=1), 0.0)
    t, low = difference(x, row_max[:, None])
    q = exp_of_pair(t, low)
    row_sum = tl.where(rows < n_rows, tl.sum(q.to(tl.float64), axis=1), 1.0)
    if LOG:
        # log in float32 of a sum in float64: the sum is S (1 + c), and log(S (1 + c)) = log S + c.
        rounded = row_sum.to(tl.float32)
        rest = ((row_sum - rounded.to(tl.float64)) / row_sum).to(tl.float32)
        rest = tl.where(tl.abs(rest) < float("inf"), rest, 0.0)
        log_sum = tl.log(rounded)
        out = t - log_sum[:, None] + (low - rest[:, None])
    else:
        out = q * (1.0 / row_sum).to(tl.float32)[:, None]
    out_offsets = rows[:, None] * out_row_stride + cols[None, :]
    tl.store(out_ptr + out_offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


def accurate_softmax(
    x: torch.Tensor, *, BLOCK_M: int = 4, BLOCK_N: int | None = None, num_warps: int | None = None
) -> torch.Tensor:
    """softmax over the last axis of x, in x's dtype and shape; as `assay.kernels.softmax.softmax`.

    A row that is -inf as a whole gives NaN.
    """
    return map_rows(
        accurate_softmax_kernel, x, name="softmax", LOG=False, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
        num_warps=num_warps, enable_fp_fusion=False,
    )  # fmt: skip


def accurate_log_softmax(
    x: torch.Tensor, *, BLOCK_M: int = 4, BLOCK_N: int | None = None, num_warps: int | None = None
) -> torch.Tensor:
    """log_softmax over the last axis of x, in x's dtype and shape; errors are those of softmax."""
    return map_rows(
        accurate_softmax_kernel, x, name="log_softmax", LOG=True, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
        num_warps=num_warps, enable_fp_fusion=False,
    )  # fmt: skip


@triton.jit
def accurate_rms_norm_kernel(
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
    # Sums and squares of float32 numbers neither overflow nor underflow in float64. By way of
    # float32: the interpreter has no cast from bfloat16 to float64.
    wide = x.to(tl.float32).to(tl.float64)
    if HAS_RESIDUAL:
        residual_offsets = row * residual_row_stride + cols * residual_col_stride
        residual = tl.load(residual_ptr + residual_offsets, mask=mask, other=0.0)
        wide += residual.to(tl.float32).to(tl.float64)
    root = tl.sqrt(tl.sum(wide * wide, axis=0) / n_cols + eps)
    # Divided in float64 a row of 1e-30 keeps its reciprocal, which float32 has no room for.
    out = (wide * (1.0 / root)).to(tl.float32)
    if CAST_BEFORE_WEIGHT:
        out = out.to(out_ptr.dtype.element_ty).to(tl.float32)
    if HAS_WEIGHT:
        out *= tl.load(weight_ptr + cols * weight_stride, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * out_row_stride + cols, out.to(out_ptr.dtype.element_ty), mask=mask)


def accurate_rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    *,
    eps: float = DEFAULT_EPS,
    BLOCK_N: int | None = None,
    num_warps: int | None = None,
) -> torch.Tensor:
    """RMSNorm of the rows of x with float64 sums; as `assay.kernels.rms_norm.rms_norm`."""
    return rms_launch(
        accurate_rms_norm_kernel, x, weight, residual, eps=eps, BLOCK_N=BLOCK_N,
        num_warps=num_warps,
    )  # fmt: skip


KERNELS = [
    Kernel(
        name="softmax.accurate",
        operation="softmax",
        function=accurate_softmax,
        order=RoundedOnce(),
        deterministic=True,
        compensated_exponent=True,
        configs=configs,
        max_n=MAX_ROW,
    ),
    Kernel(
        name="log_softmax.accurate",
        operation="log_softmax",
        function=accurate_log_softmax,
        order=RoundedOnce(),
        deterministic=True,
        compensated_exponent=True,
        configs=configs,
        max_n=MAX_ROW,
    ),
    Kernel(
        name="rms_norm.accurate",
        operation="rms_norm",
        function=accurate_rms_norm,
        order=RoundedOnce(),
        deterministic=True,
        policies={"cast": "end", "residual": "exact", "range": "scaled"},
        configs=rms_configs,
        max_n=MAX_ROW,
    ),
]
