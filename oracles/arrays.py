# SPDX-License-Identifier: Apache-2.0
"""The few array operations that the fast oracles need, for numpy and for torch.

The oracles' algorithms are written once, on top of these names, and run on numpy arrays (rung R2)
and on torch tensors of any device (rung R3).
Everything here is IEEE float64, one rounding an operation: no fused multiply-add, no
reassociation. On torch that means eager mode only, never `torch.compile`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np


class NumpyArrays:
    """numpy, on the CPU."""

    name = "numpy"
    # 2**16 float64 values are half a megabyte: the temporaries of a pass stay in the cache.
    chunk = 1 << 16

    def float64(self, a: Any) -> Any:
        """A float64 copy; of float32 and narrower inputs without loss."""
        return np.array(a, dtype=np.float64)

    def int64(self, a: Any) -> Any:
        return a.astype(np.int64)

    def constant(self, values: Any) -> Any:
        """Host values as an array of this backend."""
        return np.asarray(values)

    def rint(self, a: Any) -> Any:
        return np.rint(a)

    def exp(self, a: Any) -> Any:
        """exp without a proved error: for bounds, with room, never for a center."""
        return np.exp(a)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        return np.where(condition, a, b)

    def take(self, table: Any, index: Any) -> Any:
        return table[index]

    def power_of_two(self, e: Any) -> Any:
        """2.0**e for int64 e between -1022 and 1023."""
        return ((e + 1023) << 52).view(np.float64)

    def all_finite(self, a: Any) -> bool:
        return bool(np.isfinite(a).all())

    def row_max(self, a: Any) -> Any:
        """Largest element of each row, as a numpy vector."""
        return a.max(axis=1)

    def row_sum(self, a: Any) -> Any:
        """Sum of each row in some order, as a numpy vector."""
        return a.sum(axis=1)

    def host(self, a: Any) -> Any:
        """As a numpy array."""
        return a


class TorchArrays:
    """torch in eager mode, on the device of its tensors."""

    name = "torch"

    def __init__(self, device: Any) -> None:
        import torch

        self.torch = torch
        self.device = torch.device(device)
        # Kernel launches cost microseconds, so chunks are large where there is memory for them.
        self.chunk = 1 << 24 if self.device.type == "cuda" else 1 << 16

    def float64(self, a: Any) -> Any:
        return a.to(self.torch.float64, copy=True)

    def int64(self, a: Any) -> Any:
        return a.to(self.torch.int64)

    def constant(self, values: Any) -> Any:
        return self.torch.as_tensor(np.asarray(values), device=self.device)

    def rint(self, a: Any) -> Any:
        return self.torch.round(a)  # halves to even

    def exp(self, a: Any) -> Any:
        return self.torch.exp(a)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        return self.torch.where(condition, a, b)

    def take(self, table: Any, index: Any) -> Any:
        return table[index]

    def power_of_two(self, e: Any) -> Any:
        return ((e + 1023) << 52).view(self.torch.float64)

    def all_finite(self, a: Any) -> bool:
        return bool(self.torch.isfinite(a).all())

    def row_max(self, a: Any) -> Any:
        # numpy has no bfloat16; float64 holds every element.
        return a.amax(dim=1).to(self.torch.float64).cpu().numpy()

    def row_sum(self, a: Any) -> Any:
        return a.sum(dim=1).cpu().numpy()

    def host(self, a: Any) -> Any:
        return a.cpu().numpy()


Arrays = NumpyArrays | TorchArrays

NUMPY = NumpyArrays()


class FlushesSubnormals(RuntimeError):
    """float64 arithmetic here loses subnormal numbers, so nothing exact can be computed with it."""


@cache
def _torch_arrays(device: str) -> TorchArrays:
    found = TorchArrays(device)
    tiny = found.constant([2.0**-1074])
    if float((tiny * 1.0)[0]) == 0.0 or float((found.constant([2.0**-1022]) * 0.5)[0]) == 0.0:
        raise FlushesSubnormals(
            f"torch flushes float64 subnormals to zero on {device}: expected IEEE arithmetic. "
            "torch.set_flush_denormal(True) or a library built with fast-math turns it on; turn "
            "it off, or use numpy arrays."
        )
    return found


def arrays_of(a: Any) -> Arrays:
    """The backend of an array: numpy for anything that is not a torch tensor.

    Raises FlushesSubnormals where torch's float64 arithmetic is not IEEE's.
    """
    if type(a).__module__.partition(".")[0] == "torch":
        return _torch_arrays(str(a.device))
    return NUMPY
