# SPDX-License-Identifier: Apache-2.0
"""L1 norm of a whole array: a sum with the magnitude taken inside the tile."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from assay.kernels.atomic import accumulate, configs
from assay.kernels.record import Kernel
from assay.oracles.depth import TileThenAtomics


@triton.jit
def l1_norm_kernel(x_ptr, scratch_ptr, n, x_stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets * x_stride, mask=offsets < n, other=0.0).to(tl.float32)
    tl.atomic_add(scratch_ptr, tl.sum(tl.abs(x), axis=0))


def l1_norm(x: torch.Tensor, *, BLOCK: int = 1024, num_warps: int = 4) -> torch.Tensor:
    """Sum of the magnitudes of all elements of x, added in float32, a scalar of x's dtype.

    x, order and errors are those of `assay.kernels.sum.sum`.
    """
    total = accumulate(l1_norm_kernel, x, name="l1_norm", BLOCK=BLOCK, num_warps=num_warps)
    return total[0].to(x.dtype)


KERNELS = [
    Kernel(
        name="l1_norm.atomic",
        operation="l1_norm",
        function=l1_norm,
        order=TileThenAtomics("BLOCK"),
        deterministic=False,
        policies={"range": "naive"},
        configs=configs,
        casts_on_host=True,
    )
]
