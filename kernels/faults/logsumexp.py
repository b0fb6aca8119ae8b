# SPDX-License-Identifier: Apache-2.0
"""Wrong logsumexps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from assay.kernels.atomic import accumulate
from assay.kernels.faults.planted import fault
from assay.kernels.logsumexp import logsumexp_kernel


@triton.jit
def other_zero_kernel(x_ptr, scratch_ptr, shift_ptr, n, x_stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets * x_stride, mask=offsets < n, other=0.0).to(tl.float32)
    # Each padded lane adds exp(-max).
    tl.atomic_add(scratch_ptr, tl.sum(tl.exp(x - tl.load(shift_ptr)), axis=0))


@triton.jit
def log_per_program_kernel(x_ptr, scratch_ptr, shift_ptr, n, x_stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    fill = -float("inf")
    x = tl.load(x_ptr + offsets * x_stride, mask=offsets < n, other=fill).to(tl.float32)
    # The logarithm of a product, where that of a sum is meant.
    tl.atomic_add(scratch_ptr, tl.log(tl.sum(tl.exp(x - tl.load(shift_ptr)), axis=0)))


def _finite_maximum(x: torch.Tensor) -> torch.Tensor:
    maximum = x.amax().float()
    return torch.where(maximum.isinf(), 0.0, maximum)


def _zero(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros((), dtype=torch.float32, device=x.device)


def _unguarded_maximum(x: torch.Tensor) -> torch.Tensor:
    return x.amax().float()


def _finite_magnitude(x: torch.Tensor) -> torch.Tensor:
    return _finite_maximum(x.abs())


def logsumexp(
    x: torch.Tensor,
    *,
    shifted_by: Callable[[torch.Tensor], torch.Tensor] = _finite_maximum,
    kernel: Any = logsumexp_kernel,
    after: Callable[[torch.Tensor], torch.Tensor] = torch.log,
    adds_back: bool = True,
    **config: Any,
) -> torch.Tensor:
    if x.numel() == 0:
        return x.new_full((), -float("inf"))
    shift = shifted_by(x)
    total = after(accumulate(kernel, x, shift, name="logsumexp", **config)[0])
    return (total + shift if adds_back else total).to(x.dtype)


_TWIN = "logsumexp.atomic"

FAULTS = [
    fault(
        _TWIN,
        "no_max",
        partial(logsumexp, shifted_by=_zero),
        "EXP-RANGE",
        ("accuracy",),
        "does not subtract the maximum",
    ),
    fault(
        _TWIN,
        "largest_magnitude",
        partial(logsumexp, shifted_by=_finite_magnitude),
        "EXP-RANGE",
        ("accuracy", "shift"),
        "subtracts the largest magnitude, under which all exponentials of negative data vanish",
    ),
    fault(
        _TWIN,
        "other_zero",
        partial(logsumexp, kernel=other_zero_kernel),
        "PAD-IDENTITY",
        ("accuracy", "shift", "zero_padding"),
        "fills masked lanes with 0 ahead of the exponential",
    ),
    fault(
        _TWIN,
        "log_per_program",
        partial(logsumexp, kernel=log_per_program_kernel, after=torch.clone),
        "COMBINE",
        ("accuracy", "launch_configurations"),
        "takes the logarithm in each program, before the atomic",
    ),
    fault(
        _TWIN,
        "infinite_max",
        partial(logsumexp, shifted_by=_unguarded_maximum),
        "POS-INF",
        ("special_values",),
        "subtracts an infinite maximum from itself and promises the limit",
    ),
    fault(
        _TWIN,
        "max_left_out",
        partial(logsumexp, adds_back=False),
        "EXP-RANGE",
        ("accuracy", "shift"),
        "forgets to add the maximum to the logarithm",
    ),
]
