# SPDX-License-Identifier: Apache-2.0
"""Number of elements that differ from zero: a sum with a predicate inside the tile.

Counts are integers all the way: a float32 counter stops at 2**24, an int32 one at 2**31.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from assay.kernels.atomic import accumulate, configs
from assay.kernels.record import Kernel
from assay.oracles.depth import TileThenAtomics


@triton.jit
def count_nonzero_kernel(x_ptr, scratch_ptr, n, x_stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets * x_stride, mask=offsets < n, other=0.0)
    # As stored, without an upcast: NaN differs from zero and -0.0 does not.
    tl.atomic_add(scratch_ptr, tl.sum((x != 0.0).to(tl.int32), axis=0).to(tl.int64))


def count_nonzero(x: torch.Tensor, *, BLOCK: int = 1024, num_warps: int = 4) -> torch.Tensor:
    """Number of elements of x that differ from zero (NaN does), an int64 scalar.

    x and errors are those of `assay.kernels.sum.sum`. Integer atomics: any order gives the same.
    """
    found = accumulate(
        count_nonzero_kernel,
        x,
        name="count_nonzero",
        BLOCK=BLOCK,
        num_warps=num_warps,
        dtype=torch.int64,
    )
    return found[0]


KERNELS = [
    Kernel(
        name="count_nonzero.atomic",
        operation="count_nonzero",
        function=count_nonzero,
        order=TileThenAtomics("BLOCK"),
        deterministic=True,
        configs=configs,
    )
]
