# SPDX-License-Identifier: Apache-2.0
"""Row sums by `tl.sum` under Triton's interpreter, as a program of its own.

Run by `test_depth.py`: Triton becomes an interpreter when it is imported, once for a process.
Arguments: `.npy` files with one float32 matrix of power-of-two sides each. The sums go to a
file beside, with .sums.npy at its end.
"""

from __future__ import annotations

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
import triton
import triton.language as tl


@triton.jit
def sum_rows(x_ptr, out_ptr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.arange(0, ROWS)
    x = tl.load(x_ptr + rows[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :])
    tl.store(out_ptr + rows, tl.sum(x, axis=1))


def main() -> None:
    for name in sys.argv[1:]:
        x = torch.from_numpy(np.load(name))
        out = torch.empty(x.shape[0])
        sum_rows[(1,)](x, out, ROWS=x.shape[0], BLOCK=x.shape[1])
        np.save(f"{name}.sums.npy", out.numpy())


if __name__ == "__main__":
    main()
