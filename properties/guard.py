# SPDX-License-Identifier: Apache-2.0
"""Guarded memory: poison in all that a kernel must not read, canaries in all it must not write.

Each operand lies inside a larger allocation that is filled with a poison pattern: in front of it,
behind it, and in the gaps between strided rows. After the launch every byte must still be what it
was, the operand included.

Memory that the kernel's launcher allocates itself (outputs, scratch) is caught on the way: while
`FreshMemory` is active, torch.empty and its relatives return memory full of poison, torch.zeros and
its relatives memory full of zeros, both between guard zones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from assay.oracles.formats import BF16, FP16, FP32, FP64, Format

# Wide enough that a store of one tile past the end of the test shapes stays inside.
ZONE_BYTES = 1 << 16

# A quiet NaN with a payload that no arithmetic produces, and a finite value near the largest.
POISONS: dict[str, dict[str, int]] = {
    "nan": {
        FP64.name: 0x7FF8_DEAD_BEEF_5A5A,
        FP32.name: 0x7FC5_A5A5,
        FP16.name: 0x7E5A,
        BF16.name: 0x7FE5,
    },
    "huge": {
        FP64.name: 0x7FE5_A5A5_5A5A_A5A5,
        FP32.name: 0x7F5A_A5A5,
        FP16.name: 0x7B5A,
        BF16.name: 0x7F5A,
    },
}

SIGNED = {16: torch.int16, 32: torch.int32, 64: torch.int64}
_TORCH = {
    FP64.name: torch.float64,
    FP32.name: torch.float32,
    FP16.name: torch.float16,
    BF16.name: torch.bfloat16,
}
_FORMAT = {torch.float64: FP64, torch.float32: FP32, torch.float16: FP16, torch.bfloat16: BF16}


def torch_dtype(fmt: Format) -> torch.dtype:
    return _TORCH[fmt.name]


def format_of(dtype: torch.dtype) -> Format | None:
    return _FORMAT.get(dtype)


def _as_signed(pattern: int, width: int) -> int:
    return pattern - (1 << width) if pattern >> (width - 1) else pattern


@dataclass
class Block:
    """One guarded allocation: `zone` elements of guard, the payload's span, `zone` elements."""

    name: str
    whole: torch.Tensor  # flat, an integer dtype of the element's width
    view: torch.Tensor  # what the kernel gets
    zone: int
    pattern: int
    before: torch.Tensor | None = None  # a copy to compare with, for operands

    def damage(self) -> str | None:
        """What was overwritten outside the payload, or in an operand; None if nothing was."""
        span = self.whole.numel() - 2 * self.zone
        if self.before is None:
            guards = (self.whole[: self.zone], self.whole[self.zone + span :])
            changed = [torch.nonzero(g != self.pattern).flatten() for g in guards]
            if not changed[0].numel() and not changed[1].numel():
                return None
            parts = []
            if changed[0].numel():
                nearest = self.zone - int(changed[0].max())
                parts.append(f"{changed[0].numel()} elements, up to {nearest} before the first")
            if changed[1].numel():
                nearest = int(changed[1].max()) + 1
                parts.append(f"{changed[1].numel()} elements, up to {nearest} after the last")
            return f"wrote outside {self.name}: {'; '.join(parts)}"
        if torch.equal(self.whole, self.before):
            return None
        places = torch.nonzero(self.whole != self.before).flatten() - self.zone
        inside = torch.zeros(span, dtype=torch.bool, device=self.whole.device)
        inside.as_strided(self.view.shape, self.view.stride(), 0).fill_(True)
        in_span = places[(places >= 0) & (places < span)]
        own = int(inside[in_span].sum()) if in_span.numel() else 0
        first = int(places[0])
        if own:
            return f"changed {own} elements of the operand {self.name}, first at offset {first}"
        return (
            f"wrote {places.numel()} elements around the operand {self.name}, first at offset "
            f"{first} from its start"
        )


class Guard:
    """The guarded blocks of one launch, all with the same poison."""

    def __init__(self, poison: str, device: str) -> None:
        self.poison = poison
        self.device = device
        self.blocks: list[Block] = []
        self._owned: dict[int, Block] = {}

    def operand(
        self, name: str, bits: torch.Tensor, fmt: Format, *, row_gap: int = 0, offset: int = 0
    ) -> torch.Tensor:
        """A guarded copy of an operand; `bits` holds its patterns in a signed integer dtype."""
        stride: tuple[int, ...]
        if bits.ndim == 2:
            rows, n = bits.shape
            stride = (n + row_gap, 1)
            span = max(0, (rows - 1) * stride[0] + n) if rows and n else 0
        else:
            stride, span = (1,), bits.numel()
        block = self._allocate(name, tuple(bits.shape), stride, span, fmt, offset)
        block.view.view(SIGNED[fmt.width]).copy_(bits)
        block.before = block.whole.clone()
        return block.view

    def fresh(self, like: torch.Tensor, *, zero: bool) -> torch.Tensor:
        """Guarded memory of `like`'s shape, strides and dtype: poisoned, or zeroed."""
        fmt = format_of(like.dtype)
        if fmt is None or like.numel() == 0 or like.layout is not torch.strided:
            return like
        span = 1 + sum((s - 1) * t for s, t in zip(like.shape, like.stride(), strict=True))
        kind = "zeroed memory" if zero else "output or scratch memory"
        name = f"{kind} of shape {tuple(like.shape)}"
        block = self._allocate(name, tuple(like.shape), like.stride(), span, fmt, 0)
        if zero:
            block.view.zero_()
        return block.view

    def _allocate(
        self,
        name: str,
        shape: tuple[int, ...],
        stride: tuple[int, ...],
        span: int,
        fmt: Format,
        offset: int,
    ) -> Block:
        zone = ZONE_BYTES // (fmt.width // 8)
        pattern = _as_signed(POISONS[self.poison][fmt.name], fmt.width)
        # The offset moves the payload off the allocation's alignment.
        total = 2 * zone + span + 2 * offset
        whole = torch.full((total,), pattern, dtype=SIGNED[fmt.width], device=self.device)
        view = whole.view(torch_dtype(fmt)).as_strided(shape, stride, zone + offset)
        block = Block(name, whole, view, zone + offset, pattern)
        self.blocks.append(block)
        self._owned[whole.untyped_storage().data_ptr()] = block
        return block

    def block_of(self, tensor: torch.Tensor) -> Block | None:
        """The guarded block that a tensor lies in, None for memory of other origin."""
        return self._owned.get(tensor.untyped_storage().data_ptr())

    def damage(self) -> list[str]:
        """A line for each block that was damaged."""
        return [line for line in (block.damage() for block in self.blocks) if line]


_EMPTY = ("empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided")
_ZERO = ("zeros", "zeros_like", "new_zeros")


class FreshMemory(TorchDispatchMode):
    """While active, memory that is allocated afresh is guarded."""

    def __init__(self, guard: Guard) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.guard = guard

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in _EMPTY or name in _ZERO:
            return self.guard.fresh(result, zero=name in _ZERO)
        return result
