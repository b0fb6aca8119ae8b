# SPDX-License-Identifier: Apache-2.0
"""logsumexp of a whole array: its maximum first, then exp(x - max) inside the tile.

The data is read twice. The logarithm comes after the combine, on the host, with the maximum added.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from assay.kernels.arguments import require_tensor
from assay.kernels.atomic import accumulate, configs
from assay.kernels.record import Kernel
from assay.oracles.depth import TileThenAtomics


@triton.jit
def logsumexp_kernel(x_ptr, scratch_ptr, shift_ptr, n, x_stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    # exp(-inf) = 0 is the identity of the sum, whatever is subtracted.
    fill = -float("inf")
    x = tl.load(x_ptr + offsets * x_stride, mask=offsets < n, other=fill).to(tl.float32)
    tl.atomic_add(scratch_ptr, tl.sum(tl.exp(x - tl.load(shift_ptr)), axis=0))


def logsumexp(x: torch.Tensor, *, BLOCK: int = 1024, num_warps: int = 4) -> torch.Tensor:
    """log(sum(exp(x))) over all elements of x, in float32, a scalar of x's dtype.

    -inf for an empty x and one that is -inf as a whole, +inf where x holds +inf, as torch has it.
    x, order and errors are those of `assay.kernels.sum.sum`.
    """
    require_tensor("x", x, kernel="logsumexp")
    if x.numel() == 0:
        return x.new_full((), -float("inf"))
    maximum = x.amax().float()
    # An infinite maximum subtracted from itself would be NaN; exp gives 0 or inf by itself there.
    shift = torch.where(maximum.isinf(), 0.0, maximum)
    total = accumulate(
        logsumexp_kernel, x, shift, name="logsumexp", BLOCK=BLOCK, num_warps=num_warps
    )
    return (torch.log(total[0]) + shift).to(x.dtype)


KERNELS = [
    Kernel(
        name="logsumexp.atomic",
        operation="logsumexp",
        function=logsumexp,
        order=TileThenAtomics("BLOCK"),
        deterministic=False,
        policies={"infinite_max": "limit"},
        configs=configs,
        casts_on_host=True,
    )
]
