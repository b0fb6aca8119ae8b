# SPDX-License-Identifier: Apache-2.0
"""How row kernels of the simplest form are launched: BLOCK_M whole rows a program, in registers."""

from __future__ import annotations

from typing import Any

import torch
import triton

from assay.kernels.arguments import (
    MAX_TILE,
    as_rows,
    require_power_of_two,
    require_tensor,
    row_block,
    warps_for,
)


def reduce_rows(
    kernel: Any,
    x: torch.Tensor,
    *extra: Any,
    name: str,
    dtypes: tuple[torch.dtype | None, ...] = (None,),
    BLOCK_M: int = 4,
    BLOCK_N: int | None = None,
    num_warps: int | None = None,
    **constants: Any,
) -> tuple[torch.Tensor, ...]:
    """Numbers for each row of x, of shape x.shape[:-1]: one tensor for each of `dtypes`.

    kernel(x_ptr, *out_ptrs, *extra, n_rows, n_cols, x_row_stride, x_col_stride, **constants,
    BLOCK_M, BLOCK_N) writes one element of each output a row.
    name: the operation, for messages. dtypes: of the outputs, None for x's own.
    """
    rows, block_n = _checked(x, name, BLOCK_M, BLOCK_N)
    m, n = rows.shape
    outs = tuple(torch.empty(m, dtype=d or x.dtype, device=x.device) for d in dtypes)
    if m:
        kernel[(triton.cdiv(m, BLOCK_M),)](
            rows,
            *outs,
            *extra,
            m,
            n,
            *rows.stride(),
            **constants,
            BLOCK_M=BLOCK_M,
            BLOCK_N=block_n,
            num_warps=num_warps or warps_for(block_n * BLOCK_M),
        )
    return tuple(out.reshape(x.shape[:-1]) for out in outs)


def map_rows(
    kernel: Any,
    x: torch.Tensor,
    *,
    name: str,
    BLOCK_M: int = 4,
    BLOCK_N: int | None = None,
    num_warps: int | None = None,
    **constants: Any,
) -> torch.Tensor:
    """A number for each element of x, in x's dtype and shape.

    kernel(x_ptr, out_ptr, n_rows, n_cols, x_row_stride, x_col_stride, out_row_stride, **constants,
    BLOCK_M, BLOCK_N) writes as many elements as it reads.
    """
    rows, block_n = _checked(x, name, BLOCK_M, BLOCK_N)
    m, n = rows.shape
    out = torch.empty((m, n), dtype=x.dtype, device=x.device)
    if out.numel():
        kernel[(triton.cdiv(m, BLOCK_M),)](
            rows,
            out,
            m,
            n,
            *rows.stride(),
            out.stride(0),
            **constants,
            BLOCK_M=BLOCK_M,
            BLOCK_N=block_n,
            num_warps=num_warps or warps_for(block_n * BLOCK_M),
        )
    return out.reshape(x.shape)


def _checked(
    x: torch.Tensor, name: str, block_m: int, block_n: int | None
) -> tuple[torch.Tensor, int]:
    """x as a matrix of rows and the width of a tile for it; TypeError or ValueError otherwise."""
    require_tensor("x", x, kernel=name)
    require_power_of_two("BLOCK_M", block_m, kernel=name)
    rows = as_rows("x", x, kernel=name)
    return rows, row_block(rows.shape[1], block_n, kernel=name, block_m=block_m)


def configs(m: int, n: int, dtype: str) -> list[dict[str, int]]:
    """Launch configurations for N = n: one row a program, several, and other numbers of warps."""
    block_n = triton.next_power_of_2(max(1, n))
    chosen = []
    for block_m, asked in ((4, None), (1, 4), (16, 8), (1, 1)):
        if block_m * block_n > MAX_TILE or (asked == 1 and block_n > 4096):
            continue
        # A thread that holds more than 256 values spills and takes minutes to compile.
        least = min(32, block_m * block_n // (256 * 32))
        warps = max(asked or warps_for(block_n * block_m), least)
        chosen.append({"BLOCK_M": block_m, "BLOCK_N": block_n, "num_warps": warps})
    # Long rows: four of them in one program would spill.
    if block_n > 8192:
        chosen = [c for c in chosen if c["BLOCK_M"] == 1]
    return chosen
