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

SIGNED = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}
_TORCH = {
    FP64.name: torch.float64,
    FP32.name: torch.float32,
    FP16.name: torch.float16,
    BF16.name: torch.bfloat16,
}
_FORMAT = {torch.float64: FP64, torch.float32: FP32, torch.float16: FP16, torch.bfloat16: BF16}


# For counters and locks: nothing that a kernel would count to.
_INTEGER = {"nan": 0x5A5A_A5A5_5A5A_A5A5, "huge": 0x7E5A_A5A5_5A5A_A5A5}
# Width in bits and the pattern for each poison.
_PATTERNS: dict[torch.dtype, tuple[int, dict[str, int]]] = {
    dtype: (fmt.width, {poison: POISONS[poison][fmt.name] for poison in POISONS})
    for dtype, fmt in _FORMAT.items()
} | {
    dtype: (width, {poison: bits >> (64 - width) for poison, bits in _INTEGER.items()})
    for dtype, width in (
        (torch.int8, 8),
        (torch.uint8, 8),
        (torch.int16, 16),
        (torch.int32, 32),
        (torch.int64, 64),
    )
}


def torch_dtype(fmt: Format) -> torch.dtype:
    return _TORCH[fmt.name]


def format_of(dtype: torch.dtype) -> Format | None:
    return _FORMAT.get(dtype)


def poison_of(dtype: torch.dtype, poison: str) -> int:
    """The value that a tensor of an integer dtype holds where nothing was written."""
    width, patterns = _PATTERNS[dtype]
    return _as_signed(patterns[poison], width)


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
            return self._damage_outside(span)
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

    def _damage_outside(self, span: int) -> str | None:
        """What was written around fresh memory, or in the gaps of its strides."""
        changed = self.whole != self.pattern
        payload = changed[self.zone : self.zone + span]
        payload.as_strided(self.view.shape, self.view.stride(), payload.storage_offset()).fill_(
            False
        )
        places = torch.nonzero(changed).flatten() - self.zone
        if not places.numel():
            return None
        before, after = places[places < 0], places[places >= span]
        within = places.numel() - before.numel() - after.numel()
        parts = []
        if before.numel():
            parts.append(f"{before.numel()} elements, up to {-int(before.min())} before the first")
        if within:
            parts.append(f"{within} elements in the gaps between its rows")
        if after.numel():
            farthest = int(after.max()) - span + 1
            parts.append(f"{after.numel()} elements, up to {farthest} after the last")
        return f"wrote outside {self.name}: {'; '.join(parts)}"


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
        dtype = torch_dtype(fmt)
        block = self._allocate(name, tuple(bits.shape), stride, span, dtype, offset)
        block.view.view(SIGNED[fmt.width]).copy_(bits)
        block.before = block.whole.clone()
        return block.view

    def fresh(self, like: torch.Tensor, *, filled: bool) -> torch.Tensor:
        """Guarded memory of `like`'s shape, strides and dtype: with its values, or poisoned."""
        if like.dtype not in _PATTERNS or like.numel() == 0 or like.layout is not torch.strided:
            return like
        span = 1 + sum((s - 1) * t for s, t in zip(like.shape, like.stride(), strict=True))
        kind = "filled memory" if filled else "output or scratch memory"
        name = f"{kind} of shape {tuple(like.shape)}"
        block = self._allocate(name, tuple(like.shape), like.stride(), span, like.dtype, 0)
        if filled:
            block.view.copy_(like)
        return block.view

    def _allocate(
        self,
        name: str,
        shape: tuple[int, ...],
        stride: tuple[int, ...],
        span: int,
        dtype: torch.dtype,
        offset: int,
    ) -> Block:
        width, patterns = _PATTERNS[dtype]
        zone = ZONE_BYTES // (width // 8)
        pattern = _as_signed(patterns[self.poison], width)
        # The offset moves the payload off the allocation's alignment.
        total = 2 * zone + span + 2 * offset
        whole = torch.full((total,), pattern, dtype=SIGNED[width], device=self.device)
        view = whole.view(dtype).as_strided(shape, stride, zone + offset)
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


_EMPTY = (
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
)
_FILLED = (
    "zeros",
    "zeros_like",
    "new_zeros",
    "ones",
    "ones_like",
    "new_ones",
    "full",
    "full_like",
    "new_full",
    "clone",
    "_to_copy",
)


class FreshMemory(TorchDispatchMode):
    """While active, memory that is allocated afresh is guarded."""

    def __init__(self, guard: Guard) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.guard = guard

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        here = isinstance(result, torch.Tensor) and result.device.type == self.guard.device
        if here and (name in _EMPTY or name in _FILLED):
            return self.guard.fresh(result, filled=name in _FILLED)
        return result
