# SPDX-License-Identifier: Apache-2.0
"""Kernels simulated step by step, to put the bounds of the operations to the test.

A simulated kernel is the arithmetic of an honest kernel, one rounding at a time, on torch tensors
of any device: an algorithm (`KERNELS`), an order of summation (`assay.oracles.simulation.orders`)
and primitives (`assay.oracles.simulation.arithmetic`). It gives the value ahead of the final cast,
and the claim that such a kernel makes, so that |value - y| can be held against the operation's
bound. Rows are independent: thousands of inputs in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from assay.oracles.depth import GridStride, Sequential, Tile, TileLoop
from assay.oracles.formats import FP32, FP64, Format
from assay.oracles.operation import Claim, Operation, operation_named
from assay.oracles.platform import Platform
from assay.oracles.simulation.arithmetic import (
    Primitives,
    Tensor,
    dtype_of,
    product_error,
    two_sum,
)
from assay.oracles.simulation.orders import (
    SCHEDULES,
    Folder,
    Schedule,
    State,
    lanes,
    tiles_of,
)

INTERPRETER = Platform("interpreter", "", "", "3.7.1", "", "")
PAIRWISE = Platform("cuda", "", "sm_90", "3.9.0", "", "")
IN_THREADS = Platform("cuda", "", "sm_90", "3.7.1", "", "")

Operands = Mapping[str, Tensor]


@dataclass(frozen=True)
class Machine:
    """What a simulated kernel computes with: primitives, an order, parameters and policies."""

    primitives: Primitives
    folder: Folder
    params: Mapping[str, float]
    policies: Mapping[str, str]
    stored: Format

    @property
    def compensated(self) -> bool:
        return self.folder.schedule.order.compensated

    def sum(self, terms: Tensor, low: Tensor | None = None) -> Tensor:
        """Sum of each row; low: the errors of the terms, which a compensated sum adds as well."""
        if not self.compensated:
            return self.folder.fold((terms,), _add, (0.0,))[0]
        words = (terms, filled(terms, 0.0) if low is None else low)
        high, rest = self.folder.fold(words, _add_compensated, (0.0, 0.0))
        return high + rest

    def sum_of_products(self, a: Tensor, b: Tensor) -> Tensor:
        product = a * b
        return self.sum(product, product_error(a, b, product) if self.compensated else None)

    def exponentials(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(maximum, sum, numerators) of each row, exp(x - max); online where the order says so."""
        order = self.folder.schedule.order
        if isinstance(order, TileLoop) and order.online:
            return self._tile_by_tile(x, order)
        if isinstance(order, GridStride) and order.online:
            return self._split(x, order)
        # A row of -inf alone has no maximum to be moved from.
        m = x.amax(dim=1).clamp(min=_LOWEST)
        p = self.primitives.exp(x - m[:, None])
        return m, self.sum(p), p

    def one_by_one(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same, element after element, each of which may move the running sum."""
        m, total = self.folder.fold((x, ones(x)), self._join, (-float("inf"), 0.0))
        total = total.where(m != -float("inf"), 0.0)
        m = m.clamp(min=_LOWEST)
        return m, total, self.primitives.exp(x - m[:, None])

    def _join(self, a: State, b: State) -> State:
        m = a[0].maximum(b[0])
        # -inf beside -inf: no distance.
        first = self.primitives.exp((a[0] - m).where(a[0] != m, 0.0))
        second = self.primitives.exp((b[0] - m).where(b[0] != m, 0.0))
        return m, a[1] * first + b[1] * second

    def _joined(self, m: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        """Lanes with maxima of their own, brought to one maximum and added as a tile."""
        top = m.amax(dim=-1)
        moved = total * self.primitives.exp(m - top[..., None])
        return top, self.folder.tile((moved,), _add)[0]

    def _tile_by_tile(self, x: Tensor, order: TileLoop) -> tuple[Tensor, Tensor, Tensor]:
        """One running maximum and sum over the tiles of a row."""
        block = self.folder.schedule.config[order.block]
        (tiles,) = tiles_of((x,), (-float("inf"),), block)
        m = tiles[:, 0].amax(dim=-1).clamp(min=_LOWEST)
        total = self.folder.tile((self.primitives.exp(tiles[:, 0] - m[:, None]),), _add)[0]
        for k in range(1, int(tiles.shape[1])):
            new = m.maximum(tiles[:, k].amax(dim=-1))
            p = self.primitives.exp(tiles[:, k] - new[:, None])
            total = total * self.primitives.exp(m - new) + self.folder.tile((p,), _add)[0]
            m = new
        return m, total, self.primitives.exp(x - m[:, None])

    def _split(self, x: Tensor, order: GridStride) -> tuple[Tensor, Tensor, Tensor]:
        """Lanes with their own running maxima in several programs, whose partials are joined.

        The numerators were stored relative to their program's maximum and are moved once.
        """
        config = self.folder.schedule.config
        block, programs, n = config[order.block], config[order.programs], int(x.shape[1])
        (wide,) = tiles_of((x,), (-float("inf"),), block * programs)
        shape = (*wide.shape[:2], programs, block)
        m, total = lanes((wide.reshape(shape), ones(wide.reshape(shape))), self._join)
        total = total.where(m != -float("inf"), 0.0)
        own, partial = self._joined(m.clamp(min=_LOWEST), total)
        top, total = self._joined(own, partial)
        t = wide.reshape(shape) - own[:, None, :, None]
        moved = self.primitives.exp(own - top[:, None])[:, None, :, None]
        p = self.primitives.exp(t) * moved
        return top, total, p.reshape(p.shape[0], -1)[:, :n]


_LOWEST = -FP32.largest


def filled(like: Tensor, value: float) -> Tensor:
    """A constant beside a tensor: its shape, dtype and device."""
    import torch

    return torch.full_like(like, value)


def ones(like: Tensor) -> Tensor:
    return filled(like, 1.0)


def _add(a: State, b: State) -> State:
    return (a[0] + b[0],)


def _add_compensated(a: State, b: State) -> State:
    total, error = two_sum(a[0], b[0])
    return total, (a[1] + b[1]) + error


def _larger(a: State, b: State) -> State:
    return (a[0].maximum(b[0]),)


def _smaller(a: State, b: State) -> State:
    return (a[0].minimum(b[0]),)


def _first_larger(a: State, b: State) -> State:
    """(value, index), the lower index of equals."""
    right = (b[0] > a[0]) | ((b[0] == a[0]) & (b[1] < a[1]))
    return b[0].where(right, a[0]), b[1].where(right, a[1])


Algorithm = Callable[[Operands, Machine], Tensor]


@dataclass(frozen=True)
class SimulatedKernel:
    """An algorithm for an operation, and what it claims beside its order.

    exact: integers or comparisons: no order and no primitive changes the result.
    ordered: the order of summation matters.
    online: one element after another may move the running sum, for orders that claim nothing.
    stored: format of the inputs and the output; None for the accumulator's.
    merges: partial results that are not plain sums, which atomics and low words cannot join.
    """

    operation: str
    name: str
    run: Algorithm
    policies: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, float] = field(default_factory=dict)
    operands: tuple[str, ...] = ("x",)
    stored: Format | None = None
    exact: bool = False
    ordered: bool = True
    online: bool = False
    merges: bool = False
    casts_on_host: bool = False

    @property
    def takes_exponentials(self) -> bool:
        return self.operation in ("softmax", "log_softmax", "logsumexp")

    def runs(self, schedule: Schedule) -> bool:
        """Whether the algorithm can be carried out in an order."""
        order = schedule.order
        moves = getattr(order, "online", False)
        if not self.ordered:
            return isinstance(order, Tile) and not order.compensated
        if self.online:
            return isinstance(order, Sequential) and not schedule.flush
        if moves:
            return self.takes_exponentials
        if self.merges or self.exact:
            if schedule.flush:
                return False
            atomic = order.atomics(1000, schedule.launched(1000)) > 0
            return not order.compensated and (isinstance(order, Sequential) or not atomic)
        return True


@dataclass(frozen=True)
class Simulated:
    """A simulated kernel on a platform: algorithm, order, accumulator, primitives.

    stored_as: format of the inputs and the output, where it is not the algorithm's usual one.
    """

    kernel: SimulatedKernel
    schedule: Schedule
    platform: Platform = INTERPRETER
    accumulator: Format = FP32
    at_limit: bool = False
    stored_as: Format | None = None

    @property
    def operation(self) -> Operation:
        return operation_named(self.kernel.operation)

    @property
    def primitives(self) -> str:
        """A few words for the primitives and where they run."""
        where = self.platform.device
        if where == "cuda":
            where += f", Triton {'.'.join(map(str, self.platform.triton_release))}"
        how = "at the limit" if self.at_limit else "correctly rounded"
        return f"{self.accumulator.name} {how}, {where}"

    def __str__(self) -> str:
        return f"{self.kernel.name}; {self.schedule.name}; {self.primitives}"

    def policies(self) -> dict[str, str]:
        """All policies of the operation; range=naive unless the kernel says otherwise."""
        op = self.operation
        naive = {p.name: "naive" for p in op.policies if p.name == "range"}
        return op.check_policies(naive | dict(self.kernel.policies))

    def params(self) -> dict[str, float]:
        return dict(self.operation.params) | dict(self.kernel.params)

    @property
    def stored(self) -> Format:
        """Format of the inputs and of the output."""
        return self.stored_as or self.kernel.stored or self.accumulator

    def claim(self, n: int, confidence: float | None = None) -> Claim:
        """What a kernel of this kind claims for rows of n stored elements."""
        order, config = self.schedule.order, self.schedule.launched(n)
        return Claim(
            depth=order.depth(n, config, self.stored.name, self.platform),
            atomics=order.atomics(n, config),
            arithmetic=self.platform.arithmetic(self.accumulator, self.kernel.casts_on_host),
            policies=self.policies(),
            params=self.params(),
            rescales=order.rescales(n, config),
            compensated=order.compensated,
            confidence=confidence,
        )

    def run(
        self,
        inputs: Operands,
        sides: Mapping[str, Tensor] | None = None,
        places: Tensor | None = None,
    ) -> Tensor:
        """The results ahead of the final cast, (rows, columns) in the accumulator's dtype.

        inputs: tensors by operand, x (rows, n); converted to the accumulator, which must hold them.
        sides, places: see `Primitives` and `Folder`.
        """
        kept = {name: t.to(dtype_of(self.accumulator)) for name, t in inputs.items()}
        machine = Machine(
            Primitives(self.platform, self.accumulator, self.at_limit, sides or {}),
            Folder(self.schedule, self.platform, self.stored.name, places),
            self.params(),
            self.policies(),
            self.stored,
        )
        return self.kernel.run(kept, machine)


def _rounded_alike(kernel: SimulatedKernel) -> bool:
    """No primitive but additions, products and a root: there is nothing to err at a limit."""
    return kernel.exact or kernel.operation in ("sum", "row_sum", "l1_norm", "matmul")


def catalogue(operation: str | None = None) -> Iterator[Simulated]:
    """Every algorithm in every order that can carry it out, with every set of primitives."""
    from assay.oracles.simulation.kernels import KERNELS

    for kernel in KERNELS:
        if operation not in (None, kernel.operation):
            continue
        for schedule in SCHEDULES:
            if not kernel.runs(schedule):
                continue
            places = () if schedule.flush else ((INTERPRETER, FP32), (INTERPRETER, FP64))
            for platform, accumulator in (*places, (PAIRWISE, FP32), (IN_THREADS, FP32)):
                if accumulator is FP64 and (kernel.exact or kernel.stored is not None):
                    continue
                limits = (False,) if _rounded_alike(kernel) else (False, True)
                if platform.device == "cuda":
                    limits = limits[-1:]
                for at_limit in limits:
                    yield Simulated(kernel, schedule, platform, accumulator, at_limit)
