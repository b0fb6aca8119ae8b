# SPDX-License-Identifier: Apache-2.0
"""The random bits of `portable_random` on a torch device, the same bits as on the CPU.

numpy's Philox is Philox4x64-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as
1, 2, 3", SC 2011): block k of four words is ten rounds on the counter (k + 1, 0, 0, 0). torch has
no unsigned 64-bit arithmetic on every device, so words are int64 that wrap around, and the high
half of a product is put together from halves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_ROUNDS = 10
_MASK = 0xFFFFFFFF
_WORD = 2**64
# 2**22 blocks of four words: 128 MB for each temporary.
_BLOCKS = 1 << 22


def _signed(word: int) -> int:
    """An unsigned 64-bit word as the int64 with the same bits."""
    word %= _WORD
    return word - _WORD if word >= _WORD // 2 else word


def _high(a: Any, b: int) -> Any:
    """The high 64 bits of a * b, a an int64 tensor of unsigned words."""
    a_low, a_high = a & _MASK, (a >> 32) & _MASK
    b_low, b_high = b & _MASK, b >> 32
    low = ((a_low * b_low) >> 32) & _MASK
    middle = a_high * b_low + low
    # middle < 2**64: its halves are taken by shifts that do not carry the sign along.
    first, second = middle & _MASK, (middle >> 32) & _MASK
    cross = a_low * b_high + first
    return a_high * b_high + second + ((cross >> 32) & _MASK)


def _blocks(seed: int, stream: int, first: int, count: int, device: Any) -> Any:
    """Words of blocks first to first + count, as a (count, 4) int64 tensor."""
    import torch

    counter = torch.arange(first + 1, first + count + 1, dtype=torch.int64, device=device)
    zero = torch.zeros_like(counter)
    words = [counter, zero, zero, zero]
    key = [seed % _WORD, stream % _WORD]
    for r in range(_ROUNDS):
        if r:
            key = [(k + w) % _WORD for k, w in zip(key, _WEYL, strict=True)]
        high = [_high(words[2 * i], m) for i, m in enumerate(_MULTIPLIERS)]
        low = [words[2 * i] * _signed(m) for i, m in enumerate(_MULTIPLIERS)]
        words = [
            high[1] ^ words[1] ^ _signed(key[0]),
            low[1],
            high[0] ^ words[3] ^ _signed(key[1]),
            low[0],
        ]
    return torch.stack(words, dim=1)


def raw_bits(seed: int, stream: int, count: int, device: Any) -> Any:
    """`portable_random.raw_bits` as an int64 tensor with the same bits."""
    import torch

    parts = [p for _, p in _word_chunks(seed, stream, count, device)]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64, device=device)


def _word_chunks(seed: int, stream: int, count: int, device: Any) -> Iterator[tuple[int, Any]]:
    for first in range(0, count, 4 * _BLOCKS):
        wanted = min(4 * _BLOCKS, count - first)
        words = _blocks(seed, stream, first // 4, -(-wanted // 4), device)
        yield first, words.reshape(-1)[:wanted]


def index_chunks(
    seed: int, stream: int, count: int, below: int, device: Any
) -> Iterator[tuple[int, Any]]:
    """`portable_random.integers` a chunk at a time, with the place of its first; below < 2**31."""
    for first, words in _word_chunks(seed, stream, count, device):
        yield first, (((words >> 32) & _MASK) * below) >> 32
