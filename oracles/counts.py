# SPDX-License-Identifier: Apache-2.0
"""Value counts: what lets mpmath judge inputs of any length.

A reduction that does not care about positions is a function of the distinct values and how often
each comes: of 65536 counts for a 16-bit input, of as many as the pool has for a generated float32
input. mpmath then evaluates one term a distinct value, whether n is 2**10 or 2**30.

Counting works on numpy arrays and on torch tensors where they lie.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.oracles.arrays import arrays_of
from assay.oracles.formats import BF16, FP16, Float64, Format, decode
from assay.oracles.generators import (
    POOL,
    POOL_ABOVE,
    POOL_STREAM,
    STRUCTURED,
    generate,
    pool_of,
)
from assay.oracles.portable_random import integers
from assay.oracles.torch_random import index_chunks


@dataclass(frozen=True)
class Counted:
    """Distinct values as float64, rising, and how often each comes (int64)."""

    values: Float64
    counts: np.ndarray[Any, np.dtype[np.int64]]

    @property
    def n(self) -> int:
        return int(self.counts.sum())


def count_values(x: Any) -> Counted:
    """Counts of a vector of any float dtype, numpy or torch; zeros of either sign are one value.

    16-bit values are counted by their bit patterns, others by sorting.
    """
    if arrays_of(x).name == "torch":
        return _count_torch(x)
    x = np.ascontiguousarray(x).reshape(-1)
    if x.dtype == np.float16:
        return _from_patterns(np.bincount(x.view(np.uint16), minlength=1 << 16), FP16)
    values, counts = np.unique(x, return_counts=True)
    return _merged(values.astype(np.float64), counts.astype(np.int64))


def _count_torch(x: Any) -> Counted:
    import torch

    x = x.reshape(-1)
    if x.dtype in (torch.float16, torch.bfloat16):
        patterns = x.view(torch.int16)
        counts = np.zeros(1 << 16, dtype=np.int64)
        chunk = arrays_of(x).chunk
        for first in range(0, x.numel(), chunk):
            part = patterns[first : first + chunk].to(torch.int64) & 0xFFFF
            counts += torch.bincount(part, minlength=1 << 16).cpu().numpy()
        return _from_patterns(counts, FP16 if x.dtype == torch.float16 else BF16)
    values, found = torch.unique(x, return_counts=True)
    return _merged(values.cpu().numpy().astype(np.float64), found.cpu().numpy())


def _from_patterns(counts: Any, fmt: Format) -> Counted:
    present = np.flatnonzero(counts)
    return _merged(decode(present.astype(np.uint16), fmt), counts[present].astype(np.int64))


def _merged(values: Float64, counts: Any) -> Counted:
    """Rising, with zeros of either sign and all NaN put together."""
    unique, where = np.unique(values + 0.0, return_inverse=True)
    total = np.zeros(len(unique), dtype=np.int64)
    np.add.at(total, where, counts)
    present = total > 0
    return Counted(unique[present], total[present])


def generate_counted(
    family: str, n: int, seed: int, fmt: Format, device: Any = None
) -> tuple[Any, Counted]:
    """A generated vector and its value counts, without sorting anything.

    device: a torch device to generate on, None for numpy. The values are those of
    `generators.generate`, bit for bit; on a device as a tensor of `fmt`'s dtype.
    Raises ValueError for an unknown family.
    """
    if n <= POOL_ABOVE or family in STRUCTURED:
        if device is not None and family in _ONE_VALUE:
            value = generate(family, 1, min(n, 1), seed, fmt)[0]
            import torch

            x = torch.full((n,), value.sum(), dtype=_torch_dtype(fmt), device=device)
            return x, Counted(value, np.full(len(value), n))
        x = generate(family, 1, n, seed, fmt)[0]
        counted = count_values(x)
        return (x if device is None else _on(x, fmt, device)), counted
    pool = pool_of(family, seed, fmt)
    if device is None:
        index = integers(seed, POOL_STREAM, n, POOL)
        return pool[index], _merged(pool, np.bincount(index, minlength=POOL))
    return _generate_on(pool, n, seed, fmt, device)


# Families of one value wherever one looks.
_ONE_VALUE = ("constant", "ones")


def _generate_on(pool: Float64, n: int, seed: int, fmt: Format, device: Any) -> tuple[Any, Counted]:
    import torch

    table = _on(pool, fmt, device)
    x = torch.empty(n, dtype=table.dtype, device=device)
    counts = np.zeros(POOL, dtype=np.int64)
    for first, index in index_chunks(seed, POOL_STREAM, n, POOL, device):
        x[first : first + len(index)] = table[index]
        counts += torch.bincount(index, minlength=POOL).cpu().numpy()
    return x, _merged(pool, counts)


def _torch_dtype(fmt: Format) -> Any:
    import torch

    return getattr(torch, fmt.name)


def _on(values: Float64, fmt: Format, device: Any) -> Any:
    """Values that `fmt` holds, as a tensor of its dtype."""
    import torch

    return torch.from_numpy(np.ascontiguousarray(values)).to(device, _torch_dtype(fmt))
