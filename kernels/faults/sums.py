# SPDX-License-Identifier: Apache-2.0
"""Wrong sums, means and L1 norms of a whole array."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from assay.kernels.atomic import accumulate
from assay.kernels.faults.planted import Mistaken, fault
from assay.kernels.sum import sum_kernel


@triton.jit
def _sum_kernel(
    x_ptr, scratch_ptr, n, x_stride, BLOCK: tl.constexpr, MISTAKE: tl.constexpr
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    if MISTAKE == "last_left_out":
        mask = offsets < n - 1
    else:
        mask = offsets < n
    x = tl.load(x_ptr + offsets * x_stride, mask=mask, other=0.0)
    if MISTAKE == "added_in_storage":
        total = tl.sum(x, axis=0).to(tl.float32)
    else:
        total = tl.sum(x.to(tl.float32), axis=0)
    if MISTAKE == "mean_of_means":
        total = total / tl.minimum(BLOCK, n - program * BLOCK)
    if MISTAKE == "stored_partials":
        tl.store(scratch_ptr, total)  # the last program to come wins
    else:
        tl.atomic_add(scratch_ptr, total)


@triton.jit
def _l1_norm_kernel(
    x_ptr, scratch_ptr, n, x_stride, BLOCK: tl.constexpr, MISTAKE: tl.constexpr
):  # fmt: skip
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets * x_stride, mask=offsets < n, other=0.0).to(tl.float32)
    if MISTAKE == "magnitude_of_sum":
        total = tl.abs(tl.sum(x, axis=0))
    elif MISTAKE == "root_of_square":
        total = tl.sum(tl.sqrt(x * x), axis=0)
    elif MISTAKE == "positive_part":
        total = tl.sum(tl.where(x > 0.0, x, 0.0), axis=0)
    else:  # nan_as_zero
        total = tl.sum(tl.where(x == x, tl.abs(x), 0.0), axis=0)
    tl.atomic_add(scratch_ptr, total)


def _sum(mistake: str) -> Any:
    def sum(x: torch.Tensor, **config: Any) -> torch.Tensor:  # noqa: A001
        total = accumulate(Mistaken(_sum_kernel, mistake), x, name="sum", **config)
        return total[0].to(x.dtype)

    return sum


def _l1_norm(mistake: str) -> Any:
    def l1_norm(x: torch.Tensor, **config: Any) -> torch.Tensor:
        total = accumulate(Mistaken(_l1_norm_kernel, mistake), x, name="l1_norm", **config)
        return total[0].to(x.dtype)

    return l1_norm


def fresh_scratch(x: torch.Tensor, *, BLOCK: int = 1024, num_warps: int = 4) -> torch.Tensor:
    scratch = torch.empty(1, dtype=torch.float32, device=x.device)  # holds whatever was there
    flat = x.reshape(-1)
    if flat.numel():
        sum_kernel[(triton.cdiv(flat.numel(), BLOCK),)](
            flat, scratch, flat.numel(), flat.stride(0), BLOCK=BLOCK, num_warps=num_warps
        )
    return scratch[0].to(x.dtype)


def mean_over_lanes(x: torch.Tensor, *, BLOCK: int = 1024, num_warps: int = 4) -> torch.Tensor:
    total = accumulate(sum_kernel, x, name="mean", BLOCK=BLOCK, num_warps=num_warps)
    lanes: int = triton.cdiv(x.numel(), BLOCK) * BLOCK
    return (total[0] / lanes).to(x.dtype)


def mean_of_means(x: torch.Tensor, *, BLOCK: int = 1024, num_warps: int = 4) -> torch.Tensor:
    means = accumulate(
        Mistaken(_sum_kernel, "mean_of_means"), x, name="mean", BLOCK=BLOCK, num_warps=num_warps
    )
    programs: int = triton.cdiv(x.numel(), BLOCK)
    return (means[0] / programs).to(x.dtype)  # the last block weighs too much


def mean_of_stored_sum(x: torch.Tensor, **config: Any) -> torch.Tensor:
    total = accumulate(sum_kernel, x, name="mean", **config)[0].to(x.dtype)
    return total / x.numel()


def mean_zero_for_empty(x: torch.Tensor, **config: Any) -> torch.Tensor:
    total = accumulate(sum_kernel, x, name="mean", **config)
    return (total[0] / max(1, x.numel())).to(x.dtype)


FAULTS = [
    fault(
        "sum.atomic",
        "added_in_storage",
        _sum("added_in_storage"),
        "LOWP-ACC",
        ("accuracy",),
        "adds a tile in the storage format",
        dtypes=("float16",),
    ),
    fault(
        "sum.atomic",
        "stored_partials",
        _sum("stored_partials"),
        "RACE",
        ("accuracy", "launch_configurations", "permutation"),
        "stores each program's partial in one place instead of adding it",
    ),
    fault(
        "sum.atomic",
        "last_left_out",
        _sum("last_left_out"),
        "MASK-BOUND",
        ("accuracy", "permutation", "zero_padding"),
        "masks with n - 1 where n is meant",
    ),
    fault(
        "sum.atomic",
        "fresh_scratch",
        fresh_scratch,
        "SCRATCH-STALE",
        ("accuracy", "poison"),
        "adds into memory that was never zeroed",
    ),
    fault(
        "mean.atomic",
        "over_lanes",
        mean_over_lanes,
        "PAD-IDENTITY",
        ("accuracy", "launch_configurations"),
        "divides by the lanes that were launched, padding included",
    ),
    fault(
        "mean.atomic",
        "mean_of_means",
        mean_of_means,
        "COMBINE",
        ("accuracy", "launch_configurations", "permutation"),
        "averages the programs' means, a short last block like a full one",
    ),
    fault(
        "mean.atomic",
        "of_stored_sum",
        mean_of_stored_sum,
        "LOWP-ACC",
        ("accuracy",),
        "rounds the sum to the storage format before it divides",
        dtypes=("float16", "bfloat16"),
    ),
    fault(
        "mean.atomic",
        "zero_for_empty",
        mean_zero_for_empty,
        "EMPTY",
        ("special_values",),
        "guards the division of an empty array and returns 0 for NaN",
    ),
    fault(
        "l1_norm.atomic",
        "magnitude_of_sum",
        _l1_norm("magnitude_of_sum"),
        "COMBINE",
        ("accuracy", "launch_configurations"),
        "takes the magnitude of each program's sum instead of each element's",
    ),
    fault(
        "l1_norm.atomic",
        "root_of_square",
        _l1_norm("root_of_square"),
        "SQ-RANGE",
        ("accuracy",),
        "takes the root of the square for the magnitude",
        dtypes=("float32", "bfloat16"),
    ),
    fault(
        "l1_norm.atomic",
        "positive_part",
        _l1_norm("positive_part"),
        "COVERAGE",
        ("accuracy", "sign_flip"),
        "leaves negative elements out",
    ),
    fault(
        "l1_norm.atomic",
        "nan_as_zero",
        _l1_norm("nan_as_zero"),
        "NAN-LAUNDER",
        ("special_values",),
        "counts a NaN as zero",
    ),
]
