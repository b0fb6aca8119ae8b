# SPDX-License-Identifier: Apache-2.0
"""Orders of summation, as kernels claim them, and the depth h that follows.

h is the number of additions on the longest path from an input to the result.
It belongs to the kernel, the launch configuration, the device and the Triton version.

How `tl.sum` adds up a tile of B elements along one axis, read in PTX compiled for sm_90:

* Triton 3.6 and 3.7 add the R values that one thread holds one after another, R - 1 additions;
  Triton 3.8 and 3.9 add them pairwise, log2 R.
* Then come shuffles within the warp and a pass over the warps, log2 of the threads along the axis.
* A thread holds R = B / (32 * num_warps) values of the axis, but never fewer than one vector of
  16 bytes, if the tile is that wide.

The interpreter adds with numpy: along the last axis pairwise, over runs of up to 128 values with 8
running sums (15 additions in a run of 128 and 3 to join them).
`tests/oracles/test_depth.py` checks both against the PTX of the Triton at hand and against inputs
that make the depth visible.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from assay.oracles.formats import format_named
from assay.oracles.platform import Platform

_PAIRWISE_IN_THREAD_SINCE = (3, 8)
_VECTOR_BYTES = 16
_WARP = 32
_NUMPY_RUN = 128


class Order(Protocol):
    """A claimed order of summation."""

    def depth(self, n: int, config: Mapping[str, int], dtype: str, platform: Platform) -> int:
        """h for a reduction over n stored elements of `dtype` under a launch configuration."""
        ...

    def atomics(self, n: int, config: Mapping[str, int]) -> int:
        """Float atomic additions into one result."""
        ...

    def describe(self) -> str:
        """The claim in a few words."""
        ...


@dataclass(frozen=True)
class Tile:
    """One program holds the whole reduced axis in one tile and calls `tl.sum` once."""

    block: str = "BLOCK_N"

    def depth(self, n: int, config: Mapping[str, int], dtype: str, platform: Platform) -> int:
        return tile_depth(_entry(config, self.block), config, dtype, platform)

    def atomics(self, n: int, config: Mapping[str, int]) -> int:
        return 0

    def describe(self) -> str:
        return f"one tile of {self.block}"


@dataclass(frozen=True)
class TileThenAtomics:
    """Each program sums a tile of `block` elements and adds its partial to one scalar atomically.

    The atomics come in any order, so the claim is not bitwise repeatable, and h counts all of them.
    """

    block: str = "BLOCK"

    def depth(self, n: int, config: Mapping[str, int], dtype: str, platform: Platform) -> int:
        return tile_depth(_entry(config, self.block), config, dtype, platform) + self.atomics(
            n, config
        )

    def atomics(self, n: int, config: Mapping[str, int]) -> int:
        return math.ceil(n / _entry(config, self.block))

    def describe(self) -> str:
        return f"tiles of {self.block}, then one atomic addition a program"


@dataclass(frozen=True)
class Sequential:
    """No claim at all: n - 1 additions, the depth that no order of summation exceeds."""

    def depth(self, n: int, config: Mapping[str, int], dtype: str, platform: Platform) -> int:
        return max(0, n - 1)

    def atomics(self, n: int, config: Mapping[str, int]) -> int:
        # With no claim about atomics, each addition could be one.
        return max(0, n - 1)

    def describe(self) -> str:
        return "any order (nothing claimed)"


def _entry(config: Mapping[str, int], name: str) -> int:
    try:
        return config[name]
    except KeyError:
        raise ValueError(
            f"the claimed order of summation needs {name} in the launch configuration, "
            f"got {dict(config)}"
        ) from None


def tile_depth(
    block: int,
    config: Mapping[str, int],
    dtype: str,
    platform: Platform,
    *,
    contiguous: bool = True,
) -> int:
    """h of one `tl.sum` over `block` elements loaded as `dtype`; see the module's text.

    contiguous: the summed axis has stride 1 in memory, as in every case that the suite builds.
        Where it has not, the compiler lays threads across the rows of the tile first, and a thread
        may hold all of its elements in one row.
    """
    if block <= 1:
        return 0
    if platform.is_interpreter:
        return numpy_depth(block)
    warps = config.get("num_warps", 4)
    vector = _VECTOR_BYTES // (format_named(dtype).width // 8)
    elements = block if contiguous else block * config.get("BLOCK_M", 1)
    held = min(block, max(vector, math.ceil(elements / (_WARP * warps))))
    across = math.ceil(math.log2(math.ceil(block / held)))
    if platform.triton_release >= _PAIRWISE_IN_THREAD_SINCE:
        return math.ceil(math.log2(held)) + across
    return held - 1 + across


def numpy_depth(n: int) -> int:
    """h of `numpy.sum` over n contiguous float32 values along the last axis."""
    if n < 8:
        return max(0, n - 1)
    if n <= _NUMPY_RUN:
        # Eight running sums of n // 8 values, three additions to join them, then the rest singly.
        return n // 8 - 1 + 3 + n % 8
    # numpy halves at a multiple of 8, so the right part can be up to 8 longer than the left.
    half = n // 2
    half -= half % 8
    return 1 + max(numpy_depth(half), numpy_depth(n - half))
