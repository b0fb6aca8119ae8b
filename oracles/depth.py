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
from typing import Literal

from assay.oracles.formats import format_named
from assay.oracles.operation import Claim
from assay.oracles.platform import Arithmetic, Platform

_PAIRWISE_IN_THREAD_SINCE = (3, 8)
_VECTOR_BYTES = 16
_WARP = 32
_NUMPY_RUN = 128


class Order:
    """A claimed order of summation.

    compensated: the rounding error of each addition is kept in a low word and added as well.
    """

    compensated: bool = False

    def depth(self, n: int, config: Mapping[str, int], dtype: str, platform: Platform) -> int:
        """h for a reduction over n stored elements of `dtype` under a launch configuration."""
        raise NotImplementedError

    def atomics(self, n: int, config: Mapping[str, int]) -> int:
        """Float atomic additions into one result."""
        return 0

    def rescales(self, n: int, config: Mapping[str, int]) -> int:
        """Times that a running sum of exponentials is moved to a new maximum, on one path."""
        return 0

    def describe(self) -> str:
        """The claim in a few words."""
        raise NotImplementedError

    def claim(
        self,
        n: int,
        config: Mapping[str, int],
        dtype: str,
        platform: Platform,
        arithmetic: Arithmetic,
        policies: Mapping[str, str],
        params: Mapping[str, float],
        confidence: float | None = None,
    ) -> Claim:
        """What a kernel of this order claims for one launch, as `Operation.before` takes it."""
        return Claim(
            depth=self.depth(n, config, dtype, platform),
            atomics=self.atomics(n, config),
            arithmetic=arithmetic,
            policies=policies,
            params=params,
            rescales=self.rescales(n, config),
            compensated=self.compensated,
            confidence=confidence,
        )


@dataclass(frozen=True)
class Tile(Order):
    """One program holds the whole reduced axis in one tile and calls `tl.sum` once."""

    block: str = "BLOCK_N"
    compensated: bool = False

    def depth(self, n: int, config: Mapping[str, int], dtype: str, platform: Platform) -> int:
        return tile_depth(_entry(config, self.block), config, dtype, platform)

    def describe(self) -> str:
        return f"one tile of {self.block}"


@dataclass(frozen=True)
class TileThenAtomics(Order):
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
class TileLoop(Order):
    """One program walks over its axis in tiles of `block` elements.

    Each lane keeps a running sum over the tiles, ceil(n / block) additions into a zero, and
    `tl.sum` joins the lanes at the end. online: the running sum is one number (or one for each
    lane) that moves to a new maximum with every tile.
    """

    block: str = "BLOCK_N"
    online: bool = False
    compensated: bool = False

    def depth(self, n: int, config: Mapping[str, int], dtype: str, platform: Platform) -> int:
        block = _entry(config, self.block)
        return tile_depth(block, config, dtype, platform) + math.ceil(n / block)

    def rescales(self, n: int, config: Mapping[str, int]) -> int:
        # One for each tile, and one where lanes that hold their own maxima are joined.
        return math.ceil(n / _entry(config, self.block)) + 1 if self.online else 0

    def describe(self) -> str:
        return f"running sums over tiles of {self.block}, joined by one tl.sum"


@dataclass(frozen=True)
class GridStride(Order):
    """A grid of `programs` programs, each with running sums over every programs-th tile.

    combine: "tile", the partials are read back and added as one tile of `combined` elements (a
    power of two, at least the number of programs); "atomics", each partial goes to one scalar.
    """

    block: str = "BLOCK"
    programs: str = "PROGRAMS"
    combine: Literal["tile", "atomics"] = "tile"
    combined: str = "BLOCK_PARTIALS"
    online: bool = False
    compensated: bool = False

    def depth(self, n: int, config: Mapping[str, int], dtype: str, platform: Platform) -> int:
        block, programs = _entry(config, self.block), _entry(config, self.programs)
        inside = math.ceil(n / (block * programs)) + tile_depth(block, config, dtype, platform)
        if self.combine == "atomics":
            return inside + self.atomics(n, config)
        width = _entry(config, self.combined)
        if width < programs:
            raise ValueError(
                f"a tile of {self.combined} = {width} does not hold the partials of "
                f"{self.programs} = {programs} programs"
            )
        return inside + tile_depth(width, config, "float32", platform)

    def atomics(self, n: int, config: Mapping[str, int]) -> int:
        if self.combine == "tile":
            return 0
        return min(_entry(config, self.programs), math.ceil(n / _entry(config, self.block)))

    def rescales(self, n: int, config: Mapping[str, int]) -> int:
        if not self.online:
            return 0
        tiles = math.ceil(n / (_entry(config, self.block) * _entry(config, self.programs)))
        return tiles + 2

    def describe(self) -> str:
        last = f"one tile of {self.combined}" if self.combine == "tile" else "atomics"
        return f"running sums in {self.programs} programs of {self.block}, partials by {last}"


@dataclass(frozen=True)
class TwoStage(Order):
    """One partial for each tile of `block`, then a second launch adds the partials in a loop.

    The second launch is one program with running sums over tiles of `second` partials.
    """

    block: str = "BLOCK"
    second: str = "BLOCK_PARTIALS"
    compensated: bool = False

    def depth(self, n: int, config: Mapping[str, int], dtype: str, platform: Platform) -> int:
        partials = math.ceil(n / _entry(config, self.block))
        width = _entry(config, self.second)
        return (
            tile_depth(_entry(config, self.block), config, dtype, platform)
            + math.ceil(partials / width)
            + tile_depth(width, config, "float32", platform)
        )

    def describe(self) -> str:
        return f"a partial for each tile of {self.block}, added by a second launch"


@dataclass(frozen=True)
class DotLoop(Order):
    """`tl.dot` over tiles of `block` along the reduced axis, added to one accumulator.

    Nothing is known of the order inside `tl.dot`, padding included: an addition for each element of
    each tile, no atomics.
    """

    block: str = "BLOCK_K"

    def depth(self, n: int, config: Mapping[str, int], dtype: str, platform: Platform) -> int:
        block = _entry(config, self.block)
        return math.ceil(n / block) * block

    def describe(self) -> str:
        return f"tl.dot over tiles of {self.block}"


@dataclass(frozen=True)
class RoundedOnce(Order):
    """Added in float64 and rounded to float32 once, for terms that are not negative.

    Fewer than 2**24 terms are off by less than 2**-29 there, half a float32 unit once more at the
    rounding: less than two float32 additions lose.
    """

    def depth(self, n: int, config: Mapping[str, int], dtype: str, platform: Platform) -> int:
        return 2

    def describe(self) -> str:
        return "in float64, rounded once"


@dataclass(frozen=True)
class Sequential(Order):
    """No claim at all: n - 1 additions, the depth that no order of summation exceeds.

    Nor are float atomics or rescalings excluded: each element could take one.
    """

    def depth(self, n: int, config: Mapping[str, int], dtype: str, platform: Platform) -> int:
        return max(0, n - 1)

    def atomics(self, n: int, config: Mapping[str, int]) -> int:
        # Into a zero: the first one is no rounded addition, yet it may flush.
        return max(0, n)

    def rescales(self, n: int, config: Mapping[str, int]) -> int:
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
