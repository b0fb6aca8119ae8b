# SPDX-License-Identifier: Apache-2.0
"""How whole-array kernels of the simplest form are launched: tiles, then atomics into one scalar.

Each program loads one tile, reduces it in registers and adds its partial to a zeroed scalar with
one atomic. What is not linear comes after the combine, once, on the host.
"""

from __future__ import annotations

from typing import Any

import torch
import triton

from assay.kernels.arguments import MAX_TILE, require_power_of_two, require_tensor


def accumulate(
    kernel: Any,
    x: torch.Tensor,
    *extra: Any,
    name: str,
    BLOCK: int = 1024,
    num_warps: int = 4,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Add up `kernel`'s partials of the array x in one zeroed element, and return that.

    kernel(x_ptr, scratch_ptr, *extra, n, x_stride, BLOCK) adds a partial to the scratch atomically.
    name: the operation, for messages. dtype: that of the scratch.
    """
    require_tensor("x", x, kernel=name)
    require_power_of_two("BLOCK", BLOCK, kernel=name)
    if BLOCK > MAX_TILE:
        raise ValueError(f"{name}: BLOCK must be at most {MAX_TILE}, got {BLOCK}")
    flat = x if x.ndim == 1 else x.reshape(-1)
    # Zeroed for each call: atomics add to whatever is there.
    scratch = torch.zeros(1, dtype=dtype, device=x.device)
    n = flat.numel()
    if n:
        kernel[(triton.cdiv(n, BLOCK),)](
            flat, scratch, *extra, n, flat.stride(0), BLOCK=BLOCK, num_warps=num_warps
        )
    return scratch


def configs(m: int, n: int, dtype: str) -> list[dict[str, int]]:
    """Launch configurations: the default, a small tile with more atomics, a large one."""
    return [
        {"BLOCK": 1024, "num_warps": 4},
        {"BLOCK": 256, "num_warps": 2},
        {"BLOCK": 4096, "num_warps": 8},
    ]
