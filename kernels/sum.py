# SPDX-License-Identifier: Apache-2.0
"""Sum of a whole array: one partial a program, joined by atomics."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from assay.kernels.atomic import accumulate, configs
from assay.kernels.record import Kernel
from assay.oracles.depth import TileThenAtomics


@triton.jit
def sum_kernel(x_ptr, scratch_ptr, n, x_stride, BLOCK: tl.constexpr):
    # 64-bit offsets: arrays pass 2**31 elements.
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets * x_stride, mask=offsets < n, other=0.0).to(tl.float32)
    tl.atomic_add(scratch_ptr, tl.sum(x, axis=0))


def sum(x: torch.Tensor, *, BLOCK: int = 1024, num_warps: int = 4) -> torch.Tensor:  # noqa: A001
    """Sum of all elements of x, added in float32, a scalar of x's dtype.

    x: any shape, float32, float16 or bfloat16; a vector may have a stride.
    The order of the atomics is not fixed, so the last bits vary from run to run.
    Raises TypeError for another dtype and ValueError for another device or a BLOCK that is no
    power of two.
    """
    return accumulate(sum_kernel, x, name="sum", BLOCK=BLOCK, num_warps=num_warps)[0].to(x.dtype)


KERNELS = [
    Kernel(
        name="sum.atomic",
        operation="sum",
        function=sum,
        order=TileThenAtomics("BLOCK"),
        deterministic=False,
        policies={"range": "naive"},
        configs=configs,
        casts_on_host=True,
    )
]
