# SPDX-License-Identifier: Apache-2.0
"""Mean of a whole array: the sum's kernel, and one division on the host.

Triton has no `tl.mean`: a mean inside a kernel would be that of a tile, padding included. The sum
is divided by the number of elements.
"""

from __future__ import annotations

import torch

from assay.kernels.atomic import accumulate, configs
from assay.kernels.record import Kernel
from assay.kernels.sum import sum_kernel
from assay.oracles.depth import TileThenAtomics


def mean(x: torch.Tensor, *, BLOCK: int = 1024, num_warps: int = 4) -> torch.Tensor:
    """Mean of all elements of x, added in float32, a scalar of x's dtype; NaN for an empty x.

    x, order and errors are those of `assay.kernels.sum.sum`.
    """
    total = accumulate(sum_kernel, x, name="mean", BLOCK=BLOCK, num_warps=num_warps)
    # Divided in float32: the sum may lie outside float16 where the mean does not.
    return (total[0] / x.numel()).to(x.dtype)


KERNELS = [
    Kernel(
        name="mean.atomic",
        operation="mean",
        function=mean,
        order=TileThenAtomics("BLOCK"),
        deterministic=False,
        policies={"range": "naive"},
        configs=configs,
        casts_on_host=True,
    )
]
