# SPDX-License-Identifier: Apache-2.0
"""Whole-array sums that are as accurate as the chip allows: no float atomics, the same bits always.

A fixed number of programs walks over the array. Every lane keeps its own sum over all of its tiles;
the lanes are joined once, each program leaves one partial, and the program that arrives last adds
the partials in a fixed order and takes the non-linear step. One launch, nothing to zero.

Two ways to keep what additions lose:

* float64 lanes, where the chip has float64 arithmetic to spare. Squares of float32 values neither
  overflow nor underflow there.
* compensated float32 lanes, for chips where float64 is slow: each addition's error (TwoSum) and
  each square's (a fused multiply-add) goes to a low word. Only the join of lanes and partials, a
  few thousand additions, is float64. For squares the values are sorted by size into three
  accumulators with scales of their own (Blue, "A portable Fortran program to find the Euclidean
  norm of a vector", ACM TOMS 4, 1978), so that no square leaves the range in which its error is
  exact. TwoSum needs additions that are not fused with the products before them: fusion is off.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from assay.kernels import device
from assay.kernels.arguments import MAX_TILE, require_power_of_two, require_tensor
from assay.kernels.record import Kernel
from assay.oracles.depth import GridStride

# What is added up, and what happens to the total.
TRANSFORMS = {"sum": 0, "mean": 0, "l1_norm": 1, "l2_norm": 2}
_FINISH = {"sum": 0, "mean": 1, "l1_norm": 0, "l2_norm": 2}

# A square above 2**120 or below 2**-100 is computed on a scaled value: the error of a square
# needs 2**-149 to be below its last place, and sums need room above.
BIG = tl.constexpr(2.0**60)
SMALL = tl.constexpr(2.0**-50)
SCALE_DOWN = tl.constexpr(2.0**-70)
SCALE_UP = tl.constexpr(2.0**90)


@triton.jit
def two_sum(a, b):
    s = a + b
    bb = s - a
    return s, (a - (s - bb)) + (b - bb)


@triton.jit
def add_square(high, low, x):
    """(high, low) + x * x with the errors of the product and of the addition in low."""
    p = x * x
    s, e = two_sum(high, p)
    # Beyond the range the error of the sum is inf - inf: the infinity alone is the result.
    e = tl.where(tl.abs(s) == float("inf"), 0.0, e + tl.fma(x, x, -p))
    return s, low + e


@triton.jit
def add_value(high, low, x):
    s, e = two_sum(high, x)
    return s, low + tl.where(tl.abs(s) == float("inf"), 0.0, e)


@triton.jit
def arrive(partials_ptr, counter_ptr, total, PROGRAMS: tl.constexpr):
    """Leave this program's partial; whether this is the last program to do so."""
    tl.store(partials_ptr + tl.program_id(0), total)
    # Release what was stored, acquire what the others stored.
    arrived = tl.atomic_add(counter_ptr, 1, sem="acq_rel")
    return arrived == PROGRAMS - 1


@triton.jit
def combine(
    partials_ptr, counter_ptr, out_ptr, n, FINISH: tl.constexpr, PROGRAMS: tl.constexpr,
    BLOCK_PARTIALS: tl.constexpr,
):  # fmt: skip
    which = tl.arange(0, BLOCK_PARTIALS)
    # Past the L1 cache, which other programs' stores do not reach.
    partials = tl.load(partials_ptr + which, mask=which < PROGRAMS, other=0.0, cache_modifier=".cg")
    total = tl.sum(partials, axis=0)
    if FINISH == 1:
        total = total / n
    if FINISH == 2:
        total = tl.sqrt(total)
    # By way of float32, as the compiler does: the interpreter has no float64 to bfloat16.
    tl.store(out_ptr, total.to(tl.float32).to(out_ptr.dtype.element_ty))
    # For the next call: nothing is left to zero.
    tl.store(counter_ptr, 0)


@triton.jit
def persistent_kernel(
    x_ptr,
    partials_ptr,
    counter_ptr,
    out_ptr,
    n,
    x_stride,
    rounds,
    TRANSFORM: tl.constexpr,
    FINISH: tl.constexpr,
    BLOCK: tl.constexpr,
    PROGRAMS: tl.constexpr,
    BLOCK_PARTIALS: tl.constexpr,
):
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float64)
    for i in range(rounds):
        # 64-bit offsets: arrays pass 2**31 elements.
        tile = tl.program_id(0).to(tl.int64) + i * PROGRAMS
        offsets = tile * BLOCK + lanes
        x = tl.load(x_ptr + offsets * x_stride, mask=offsets < n, other=0.0).to(tl.float64)
        if TRANSFORM == 1:
            x = tl.abs(x)
        if TRANSFORM == 2:
            x = x * x
        total += x
    partial_sum = tl.sum(total, axis=0)
    if arrive(partials_ptr, counter_ptr, partial_sum, PROGRAMS):
        combine(partials_ptr, counter_ptr, out_ptr, n, FINISH, PROGRAMS, BLOCK_PARTIALS)


@triton.jit
def compensated_kernel(
    x_ptr,
    partials_ptr,
    counter_ptr,
    out_ptr,
    n,
    x_stride,
    rounds,
    TRANSFORM: tl.constexpr,
    FINISH: tl.constexpr,
    BLOCK: tl.constexpr,
    PROGRAMS: tl.constexpr,
    BLOCK_PARTIALS: tl.constexpr,
):
    lanes = tl.arange(0, BLOCK)
    high = tl.zeros([BLOCK], dtype=tl.float32)
    low = tl.zeros([BLOCK], dtype=tl.float32)
    big_high = tl.zeros([BLOCK], dtype=tl.float32)
    big_low = tl.zeros([BLOCK], dtype=tl.float32)
    small_high = tl.zeros([BLOCK], dtype=tl.float32)
    small_low = tl.zeros([BLOCK], dtype=tl.float32)
    for i in range(rounds):
        tile = tl.program_id(0).to(tl.int64) + i * PROGRAMS
        offsets = tile * BLOCK + lanes
        x = tl.load(x_ptr + offsets * x_stride, mask=offsets < n, other=0.0).to(tl.float32)
        if TRANSFORM == 1:
            x = tl.abs(x)
        if TRANSFORM == 2:
            size = tl.abs(x)
            is_big = size > BIG
            is_small = size < SMALL
            # NaN compares false twice and goes to the middle.
            high, low = add_square(high, low, tl.where(is_big | is_small, 0.0, x))
            scaled = tl.where(is_big, x * SCALE_DOWN, 0.0)
            big_high, big_low = add_square(big_high, big_low, scaled)
            scaled = tl.where(is_small, x * SCALE_UP, 0.0)
            small_high, small_low = add_square(small_high, small_low, scaled)
        else:
            high, low = add_value(high, low, x)
    partial_sum = tl.sum(high.to(tl.float64) + low.to(tl.float64), axis=0)
    if TRANSFORM == 2:
        down: tl.constexpr = SCALE_DOWN * SCALE_DOWN
        up: tl.constexpr = SCALE_UP * SCALE_UP
        partial_sum += tl.sum(big_high.to(tl.float64) + big_low.to(tl.float64), axis=0) / down
        partial_sum += tl.sum(small_high.to(tl.float64) + small_low.to(tl.float64), axis=0) / up
    if arrive(partials_ptr, counter_ptr, partial_sum, PROGRAMS):
        combine(partials_ptr, counter_ptr, out_ptr, n, FINISH, PROGRAMS, BLOCK_PARTIALS)


# One counter for each stream, zero between calls: the last program of a call resets it.
_counters: dict[tuple[torch.device, int], torch.Tensor] = {}


def counter_for(x: torch.Tensor) -> torch.Tensor:
    """The arrival counter for the current stream of x's device."""
    stream = torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else 0
    key = (x.device, stream)
    if key not in _counters:
        _counters[key] = torch.zeros(1, dtype=torch.int32, device=x.device)
    return _counters[key]


def reduce_array(
    kernel: Any,
    x: torch.Tensor,
    *,
    name: str,
    BLOCK: int | None = None,
    PROGRAMS: int | None = None,
    BLOCK_PARTIALS: int | None = None,
    num_warps: int | None = None,
    **options: Any,
) -> torch.Tensor:
    """A persistent kernel's result for the array x, a scalar of x's dtype.

    name: the operation, which says what is added and how it ends. options: of the compiler.
    """
    require_tensor("x", x, kernel=name)
    flat = x if x.ndim == 1 else x.reshape(-1)
    n = flat.numel()
    chosen = configs(1, n, "")[0]
    block, programs = BLOCK or chosen["BLOCK"], PROGRAMS or chosen["PROGRAMS"]
    width = BLOCK_PARTIALS or triton.next_power_of_2(programs)
    for label, value in (("BLOCK", block), ("BLOCK_PARTIALS", width)):
        require_power_of_two(label, value, kernel=name)
    if block > MAX_TILE:
        raise ValueError(f"{name}: BLOCK must be at most {MAX_TILE}, got {block}")
    if not 1 <= programs <= width:
        raise ValueError(
            f"{name}: PROGRAMS must lie between 1 and BLOCK_PARTIALS = {width}, got {programs}"
        )
    out = torch.empty((), dtype=x.dtype, device=x.device)
    partials = torch.empty(programs, dtype=torch.float64, device=x.device)
    kernel[(programs,)](
        flat,
        partials,
        counter_for(x),
        out,
        n,
        flat.stride(0),
        triton.cdiv(n, block * programs),
        TRANSFORM=TRANSFORMS[name],
        FINISH=_FINISH[name],
        BLOCK=block,
        PROGRAMS=programs,
        BLOCK_PARTIALS=width,
        num_warps=num_warps or chosen["num_warps"],
        **options,
    )
    return out


# Programs a multiprocessor in the large configuration.
_PROGRAMS_PER_SM = 2
_INTERPRETED_PROGRAMS = 3


def configs(m: int, n: int, dtype: str) -> list[dict[str, int]]:
    """Launch configurations: the default for N = n, fewer lanes, one program."""
    if device.select() == "interpreter":
        shapes = [(512, _INTERPRETED_PROGRAMS, 4), (128, 2, 2), (1024, 1, 4)]
    else:
        most = _PROGRAMS_PER_SM * torch.cuda.get_device_properties().multi_processor_count
        shapes = [(4096, 4 * most, 4), (8192, most, 8), (1024, 32, 4)]
        if n > 1 << 22:
            shapes[0], shapes[1] = shapes[1], shapes[0]
    chosen = []
    for block, programs, warps in shapes:
        used = max(1, min(programs, triton.cdiv(n, block)))
        chosen.append(
            {
                "BLOCK": block,
                "PROGRAMS": used,
                "BLOCK_PARTIALS": triton.next_power_of_2(used),
                "num_warps": warps,
            }
        )
    return chosen


def _kernels() -> list[Kernel]:
    found = []
    for name in TRANSFORMS:
        for variant, kernel in (
            ("persistent", persistent_kernel),
            ("compensated", compensated_kernel),
        ):
            compensated = variant == "compensated"
            # What TwoSum adds must not be fused with the product before it.
            options: dict[str, Any] = {"enable_fp_fusion": False} if compensated else {}
            found.append(
                Kernel(
                    name=f"{name}.{variant}",
                    operation=name,
                    function=partial(reduce_array, kernel, name=name, **options),
                    accumulator="float32" if compensated else "float64",
                    order=GridStride(compensated=compensated),
                    deterministic=True,
                    policies={"range": "naive" if compensated and name != "l2_norm" else "scaled"},
                    configs=configs,
                )
            )
    return found


KERNELS = _kernels()
