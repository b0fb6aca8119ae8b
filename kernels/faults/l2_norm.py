# SPDX-License-Identifier: Apache-2.0
"""Wrong L2 norms."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from assay.kernels.atomic import accumulate
from assay.kernels.faults.planted import fault
from assay.kernels.l2_norm import l2_norm_kernel


@triton.jit
def sqrt_per_program_kernel(x_ptr, scratch_ptr, n, x_stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets * x_stride, mask=offsets < n, other=0.0).to(tl.float32)
    tl.atomic_add(scratch_ptr, tl.sqrt(tl.sum(x * x, axis=0)))  # sqrt(a) + sqrt(b)


@triton.jit
def square_of_sum_kernel(x_ptr, scratch_ptr, n, x_stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets * x_stride, mask=offsets < n, other=0.0).to(tl.float32)
    tl.atomic_add(scratch_ptr, tl.sum(x, axis=0) * tl.sum(x, axis=0))


@triton.jit
def other_one_kernel(x_ptr, scratch_ptr, n, x_stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets * x_stride, mask=offsets < n, other=1.0).to(tl.float32)
    tl.atomic_add(scratch_ptr, tl.sum(x * x, axis=0))  # each padded lane adds 1


@triton.jit
def square_in_storage_kernel(x_ptr, scratch_ptr, n, x_stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets * x_stride, mask=offsets < n, other=0.0)
    tl.atomic_add(scratch_ptr, tl.sum(x * x, axis=0).to(tl.float32))  # squared as it was stored


@triton.jit
def positive_only_kernel(x_ptr, scratch_ptr, n, x_stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets * x_stride, mask=offsets < n, other=0.0).to(tl.float32)
    x = tl.maximum(x, 0.0)  # meant as a guard, and drops every negative element
    tl.atomic_add(scratch_ptr, tl.sum(x * x, axis=0))


def sqrt_per_program(x: torch.Tensor, **config: Any) -> torch.Tensor:
    return accumulate(sqrt_per_program_kernel, x, name="l2_norm", **config)[0].to(x.dtype)


def _with_root(kernel: Any) -> Callable[..., torch.Tensor]:
    def l2_norm(x: torch.Tensor, **config: Any) -> torch.Tensor:
        return torch.sqrt(accumulate(kernel, x, name="l2_norm", **config)[0]).to(x.dtype)

    return l2_norm


_scratch: dict[torch.device, torch.Tensor] = {}


def stale_scratch(x: torch.Tensor, *, BLOCK: int = 1024, num_warps: int = 4) -> torch.Tensor:
    # Allocated once and zeroed once: the first call works, later calls add to what it left.
    scratch = _scratch.setdefault(x.device, torch.zeros(1, dtype=torch.float32, device=x.device))
    flat = x.reshape(-1)
    if flat.numel():
        l2_norm_kernel[(triton.cdiv(flat.numel(), BLOCK),)](
            flat, scratch, flat.numel(), flat.stride(0), BLOCK=BLOCK, num_warps=num_warps
        )
    return torch.sqrt(scratch[0]).to(x.dtype)


def unzeroed_scratch(x: torch.Tensor, *, BLOCK: int = 1024, num_warps: int = 4) -> torch.Tensor:
    scratch = torch.empty(1, dtype=torch.float32, device=x.device)  # whatever memory held before
    flat = x.reshape(-1)
    if flat.numel():
        l2_norm_kernel[(triton.cdiv(flat.numel(), BLOCK),)](
            flat, scratch, flat.numel(), flat.stride(0), BLOCK=BLOCK, num_warps=num_warps
        )
    return torch.sqrt(scratch[0]).to(x.dtype)


_fault = partial(fault, "l2_norm.atomic")

FAULTS = [
    _fault(
        "sqrt_per_program",
        sqrt_per_program,
        "COMBINE",
        ("accuracy", "launch_configurations", "permutation"),
        "takes the square root in each program, before the atomic",
    ),
    _fault(
        "square_of_sum",
        _with_root(square_of_sum_kernel),
        "COMBINE",
        ("accuracy", "launch_configurations"),
        "squares the sum instead of summing the squares",
    ),
    _fault(
        "other_one",
        _with_root(other_one_kernel),
        "PAD-IDENTITY",
        ("accuracy", "zero_padding", "scaling"),
        "fills masked lanes with 1 under the square",
    ),
    _fault(
        "square_in_storage",
        _with_root(square_in_storage_kernel),
        "LOWP-ACC",
        ("accuracy",),
        "squares and sums in the storage format",
        dtypes=("float16",),
    ),
    _fault(
        "positive_only",
        _with_root(positive_only_kernel),
        "COVERAGE",
        ("accuracy", "sign_flip"),
        "clamps at 0 ahead of the square",
    ),
    _fault(
        "stale_scratch",
        stale_scratch,
        "SCRATCH-STALE",
        ("repeat",),
        "keeps its scratch between calls without zeroing it",
    ),
    _fault(
        "unzeroed_scratch",
        unzeroed_scratch,
        "SCRATCH-STALE",
        ("poison", "accuracy"),
        "adds into memory that was never zeroed",
    ),
]
