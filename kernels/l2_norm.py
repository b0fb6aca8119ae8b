# SPDX-License-Identifier: Apache-2.0
"""L2 norm of a whole array: a sum with the square folded into the tile, and one root at the end.

Each element is loaded once and squared in registers; one atomic addition a program goes to a
zeroed float32 scalar. The square root is not linear, so it comes after the combine, once, on the
host.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from assay.kernels.atomic import accumulate, configs
from assay.kernels.record import Kernel
from assay.oracles.depth import TileThenAtomics


@triton.jit
def l2_norm_kernel(x_ptr, scratch_ptr, n, x_stride, BLOCK: tl.constexpr):
    # 64-bit offsets: arrays pass 2**31 elements.
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    # 0 is the identity of the sum and stays 0 under the square.
    x = tl.load(x_ptr + offsets * x_stride, mask=offsets < n, other=0.0).to(tl.float32)
    tl.atomic_add(scratch_ptr, tl.sum(x * x, axis=0))


def l2_norm(x: torch.Tensor, *, BLOCK: int = 1024, num_warps: int = 4) -> torch.Tensor:
    """sqrt(sum of squares) of all elements of x, a scalar of x's dtype.

    x: any shape, float32, float16 or bfloat16; a vector may have a stride. Accumulates in float32:
    |x| above 1.8e19 overflows to infinity and |x| below 2**-63 or so counts as 0.
    The order of the atomics is not fixed, so the last bits vary from run to run.
    Raises TypeError for another dtype and ValueError for another device or a BLOCK that is no
    power of two.
    """
    scratch = accumulate(l2_norm_kernel, x, name="l2_norm", BLOCK=BLOCK, num_warps=num_warps)
    return torch.sqrt(scratch[0]).to(x.dtype)


KERNELS = [
    Kernel(
        name="l2_norm.atomic",
        operation="l2_norm",
        function=l2_norm,
        order=TileThenAtomics("BLOCK"),
        deterministic=False,
        policies={"range": "naive"},
        configs=configs,
        casts_on_host=True,
    )
]
