# SPDX-License-Identifier: Apache-2.0
"""Orders of summation, carried out step by step as the claims of `assay.oracles.depth` read.

A schedule is one of those claims with a launch configuration; here the reduction is made in just
that order, so that the depth which the claim computes is put to the test as well. Within a tile
the order is that of the platform: numpy's for the interpreter, threads one after another and then
pairs before Triton 3.8, pairs throughout since.

What is folded is a state, a tuple of (rows, n) tensors with an operation that joins two of them:
one tensor for a plain sum, sum and low word for a compensated one, count, mean and squared
deviations for a variance. Rows are independent, thousands of them in one call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from assay.oracles.depth import (
    GridStride,
    Order,
    Sequential,
    Tile,
    TileLoop,
    TileThenAtomics,
    TwoStage,
)
from assay.oracles.formats import format_named
from assay.oracles.platform import Platform
from assay.oracles.simulation.arithmetic import Tensor, flushed

State = tuple[Tensor, ...]
Join = Callable[[State, State], State]


@dataclass(frozen=True)
class Schedule:
    """A claimed order and the launch configuration in which it is simulated.

    flush: atomic additions flush subnormals, as float32 ones do on NVIDIA.
    """

    name: str
    order: Order
    config: Mapping[str, int] = field(default_factory=dict)
    flush: bool = False

    def launched(self, n: int) -> Mapping[str, int]:
        """The configuration for n elements: one tile is as wide as it has to be."""
        if isinstance(self.order, Tile):
            width = 1 << max(0, n - 1).bit_length()
            return {self.order.block: width, "num_warps": 1} | dict(self.config)
        return self.config

    def partials(self, n: int) -> int:
        """Atomic additions, whose order is free."""
        return 0 if isinstance(self.order, Sequential) else self.order.atomics(n, self.launched(n))


# Small blocks and one warp: many steps of every kind in rows that are short enough to search.
SCHEDULES = (
    Schedule("sequential", Sequential()),
    Schedule("sequential, flushing", Sequential(), flush=True),
    Schedule("tile", Tile("BLOCK_N")),
    Schedule("tile, then atomics", TileThenAtomics("BLOCK"), {"BLOCK": 16, "num_warps": 1}),
    Schedule(
        "tile, then atomics that flush",
        TileThenAtomics("BLOCK"),
        {"BLOCK": 16, "num_warps": 1},
        flush=True,
    ),
    Schedule("tile loop", TileLoop("BLOCK_N"), {"BLOCK_N": 16, "num_warps": 1}),
    Schedule(
        "grid stride, then tile",
        GridStride(combine="tile"),
        {"BLOCK": 8, "PROGRAMS": 4, "BLOCK_PARTIALS": 4, "num_warps": 1},
    ),
    Schedule(
        "grid stride, then atomics",
        GridStride(combine="atomics"),
        {"BLOCK": 8, "PROGRAMS": 8, "num_warps": 1},
    ),
    Schedule(
        "two stage", TwoStage(), {"BLOCK": 8, "BLOCK_PARTIALS": 4, "num_warps": 1}
    ),
    Schedule("compensated tile", Tile("BLOCK_N", compensated=True)),
    Schedule(
        "compensated tile loop",
        TileLoop("BLOCK_N", compensated=True),
        {"BLOCK_N": 16, "num_warps": 1},
    ),
    Schedule(
        "compensated grid stride",
        GridStride(combine="tile", compensated=True),
        {"BLOCK": 8, "PROGRAMS": 4, "BLOCK_PARTIALS": 4, "num_warps": 1},
    ),
    Schedule(
        "compensated two stage",
        TwoStage(compensated=True),
        {"BLOCK": 8, "BLOCK_PARTIALS": 4, "num_warps": 1},
    ),
    Schedule("online tile loop", TileLoop("BLOCK_N", online=True), {"BLOCK_N": 8, "num_warps": 1}),
    Schedule(
        "online split rows",
        GridStride(combine="tile", online=True),
        {"BLOCK": 4, "PROGRAMS": 4, "BLOCK_PARTIALS": 4, "num_warps": 1},
    ),
)  # fmt: skip


def schedule_named(name: str) -> Schedule:
    """The schedule called `name`; ValueError lists the known ones otherwise."""
    for schedule in SCHEDULES:
        if schedule.name == name:
            return schedule
    known = ", ".join(s.name for s in SCHEDULES)
    raise ValueError(f"unknown schedule {name!r}: expected one of {known}")


@dataclass(frozen=True)
class Folder:
    """Folds states in the order of a schedule on a platform.

    dtype: name of the stored dtype, which decides how many values a thread holds.
    places: (rows, partials) int64, in which order each row's atomic additions arrive.
    """

    schedule: Schedule
    platform: Platform
    dtype: str = "float32"
    places: Tensor | None = None

    def fold(self, state: State, join: Join, zero: tuple[float, ...]) -> State:
        """The whole reduction of (rows, n) tensors, to (rows,) tensors."""
        n = int(state[0].shape[1])
        order, config = self.schedule.order, self.schedule.launched(n)
        if isinstance(order, Sequential):
            return self._one_by_one(state, join, None)
        if isinstance(order, Tile):
            return self.tile(tiles_of(state, zero, config[order.block], 1), join)
        if isinstance(order, TwoStage):
            block, second = config[order.block], config[order.second]
            partials = self.tile(tiles_of(state, zero, block), join)
            return self.tile(lanes(tiles_of(partials, zero, second), join), join)
        if isinstance(order, TileLoop):
            return self.tile(lanes(tiles_of(state, zero, config[order.block]), join), join)
        if isinstance(order, GridStride):
            partials = self.tile(self.running(state, join, zero), join)
            if order.combine == "tile":
                width = config[order.combined]
                return self.tile(tiles_of(partials, zero, width, 1), join)
            return self._atomics(partials, join, zero)
        if isinstance(order, TileThenAtomics):
            return self._atomics(self.tile(tiles_of(state, zero, config[order.block]), join),
                                 join, zero)  # fmt: skip
        raise TypeError(f"no simulation of {type(order).__name__}")

    def running(self, state: State, join: Join, zero: tuple[float, ...]) -> State:
        """(rows, programs, block) lanes after a grid-stride loop."""
        order = self.schedule.order
        assert isinstance(order, GridStride)
        config = self.schedule.launched(int(state[0].shape[1]))
        block, programs = config[order.block], config[order.programs]
        wide = tiles_of(state, zero, block * programs)
        shape = (*wide[0].shape[:2], programs, block)
        return lanes(tuple(s.reshape(shape) for s in wide), join)

    def tile(self, state: State, join: Join) -> State:
        """One `tl.sum` along the last axis."""
        width = int(state[0].shape[-1])
        if self.platform.is_interpreter:
            return _as_numpy(state, join)
        if self.platform.triton_release < (3, 8):
            vector = 16 // (format_named(self.dtype).width // 8)
            warps = self.schedule.launched(width).get("num_warps", 4)
            held = min(width, max(vector, math.ceil(width / (32 * warps))))
            threads = tuple(s.reshape(*s.shape[:-1], width // held, held) for s in state)
            state = _along_last(threads, join)
        return _pairs(state, join)

    def _one_by_one(self, state: State, join: Join, zero: tuple[float, ...] | None) -> State:
        # From zero, or from the first element.
        first = tuple(s[:, 0] for s in state)
        total = first
        start = 1
        if zero is not None:
            total = tuple(s.new_full(s[:, 0].shape, z) for s, z in zip(state, zero, strict=True))
            start = 0
        kept = _flushed if self.schedule.flush else _unchanged
        total = kept(total)
        for k in range(start, int(state[0].shape[1])):
            total = kept(join(total, kept(tuple(s[:, k] for s in state))))
        return total

    def _atomics(self, partials: State, join: Join, zero: tuple[float, ...]) -> State:
        if self.places is not None:
            kept = self.places.shape[1]
            partials = tuple(p[:, :kept].gather(1, self.places) for p in partials)
        return self._one_by_one(partials, join, zero)


def tiles_of(
    state: State, zero: tuple[float, ...], block: int, most: int | None = None
) -> State:  # fmt: skip
    """(rows, tiles, block) from (rows, n), the last tile filled up; (rows, block) for most = 1."""
    rows, n = (int(k) for k in state[0].shape)
    tiles = max(1, math.ceil(n / block))
    padded = []
    for s, z in zip(state, zero, strict=True):
        wide = s.new_full((rows, tiles * block), z)
        wide[:, :n] = s
        padded.append(wide if most == 1 else wide.reshape(rows, tiles, block))
    return tuple(padded)


def lanes(state: State, join: Join) -> State:
    """Running totals along axis 1, one for each lane; the first tile is where they start."""
    total = tuple(s[:, 0] for s in state)
    for k in range(1, int(state[0].shape[1])):
        total = join(total, tuple(s[:, k] for s in state))
    return total


def _flushed(state: State) -> State:
    return tuple(flushed(s, format_named(str(s.dtype).removeprefix("torch."))) for s in state)


def _unchanged(state: State) -> State:
    return state


def _along_last(state: State, join: Join) -> State:
    total = tuple(s[..., 0] for s in state)
    for k in range(1, int(state[0].shape[-1])):
        total = join(total, tuple(s[..., k] for s in state))
    return total


def _pairs(state: State, join: Join) -> State:
    while int(state[0].shape[-1]) > 1:
        state = join(tuple(s[..., ::2] for s in state), tuple(s[..., 1::2] for s in state))
    return tuple(s[..., 0] for s in state)


def _as_numpy(state: State, join: Join) -> State:
    """numpy's sum along a contiguous axis: eight running sums in runs of up to 128, then halves."""
    n = int(state[0].shape[-1])
    if n < 8:
        return _along_last(state, join)
    if n <= 128:
        whole = n - n % 8
        runs = tuple(
            s[..., :whole].reshape(*s.shape[:-1], whole // 8, 8).transpose(-1, -2) for s in state
        )
        total = _pairs(_along_last(runs, join), join)
        for k in range(whole, n):
            total = join(total, tuple(s[..., k] for s in state))
        return total
    half = n // 2
    half -= half % 8
    left, right = tuple(s[..., :half] for s in state), tuple(s[..., half:] for s in state)
    return join(_as_numpy(left, join), _as_numpy(right, join))
