# SPDX-License-Identifier: Apache-2.0
"""Guarded memory: poison in all that must not be read, and every stray write is seen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from assay.kernels import device
from assay.oracles.formats import BF16, FORMATS, FP16, FP32, FP64, Format, decode, encode
from assay.properties.guard import (
    POISONS,
    SIGNED,
    ZONE_BYTES,
    FreshMemory,
    Guard,
    format_of,
    torch_dtype,
)

WHERE = device.torch_device()
ALL = pytest.mark.parametrize("fmt", [FP64, FP32, FP16, BF16], ids=lambda f: f.name)
BOTH = pytest.mark.parametrize("poison", ["nan", "huge"])


def bits_of(values: np.ndarray, fmt: Format) -> torch.Tensor:
    stored = encode(values.astype(np.float64), fmt).reshape(values.shape)
    return torch.from_numpy(stored.view(stored.dtype.str.replace("u", "i"))).to(WHERE)


def matrix(guard: Guard, fmt: Format = FP32, *, row_gap: int = 0, offset: int = 0) -> torch.Tensor:
    """A guarded operand of 3 rows of 4."""
    bits = bits_of(np.arange(12.0).reshape(3, 4), fmt)
    return guard.operand("x", bits, fmt, row_gap=row_gap, offset=offset)


def element(tensor: torch.Tensor, place: int) -> torch.Tensor:
    """The element at `place` from the tensor's first one, wherever that lies."""
    return torch.as_strided(tensor, (1,), (1,), tensor.storage_offset() + place)


def is_poison(tensor: torch.Tensor, poison: str) -> bool:
    """All of a tensor's elements are the poison to the bit."""
    fmt = format_of(tensor.dtype)
    assert fmt is not None
    stored = tensor.contiguous().view(SIGNED[fmt.width]).cpu().numpy().view(fmt.bits_dtype)
    return bool((stored == POISONS[poison][fmt.name]).all())


# The poisons.


@ALL
def test_poisons_are_what_they_claim(fmt: Format) -> None:
    patterns = {name: np.array([POISONS[name][fmt.name]], dtype=fmt.bits_dtype) for name in POISONS}
    assert set(patterns) == {"nan", "huge"}
    (nan,), (huge,) = (decode(patterns[name], fmt) for name in ("nan", "huge"))
    assert np.isnan(nan), f"{fmt.name}: {nan} is no NaN"
    assert np.isfinite(huge), f"{fmt.name}: {huge} is not finite"
    assert fmt.largest / 1024 < huge < fmt.largest, f"{fmt.name}: {huge} is not near the largest"
    quiet = 1 << (fmt.precision - 2)
    assert int(patterns["nan"][0]) & quiet, f"{fmt.name}: a signalling NaN traps on some devices"
    usual = int(encode(np.array([np.nan]), fmt)[0])
    assert int(patterns["nan"][0]) != usual, f"{fmt.name}: what arithmetic makes looks like poison"


def test_there_is_a_poison_for_every_format() -> None:
    for name, patterns in POISONS.items():
        assert set(patterns) == set(FORMATS), f"{name} poison lacks a format"


@ALL
def test_dtypes_and_formats_belong_together(fmt: Format) -> None:
    assert format_of(torch_dtype(fmt)) is fmt
    assert torch_dtype(fmt).itemsize * 8 == fmt.width
    assert format_of(torch.int32) is None


# Operands.


@ALL
@BOTH
@pytest.mark.parametrize(("row_gap", "offset"), [(0, 0), (3, 0), (0, 1), (2, 5)])
def test_an_operand_lies_in_poison(fmt: Format, poison: str, row_gap: int, offset: int) -> None:
    guard = Guard(poison, WHERE)
    x = matrix(guard, fmt, row_gap=row_gap, offset=offset)
    assert x.dtype == torch_dtype(fmt)
    assert x.cpu().double().tolist() == np.arange(12.0).reshape(3, 4).tolist()
    assert x.stride() == (4 + row_gap, 1)
    zone = ZONE_BYTES // (fmt.width // 8)
    span = 2 * x.stride(0) + 4
    for place in (-zone, -1, span, span + zone - 1):
        assert is_poison(element(x, place), poison), f"no poison at {place} from the first element"
    for row in range(2):
        gap = torch.as_strided(x, (row_gap,), (1,), x.storage_offset() + row * x.stride(0) + 4)
        assert is_poison(gap, poison), f"no poison in the gap after row {row}"
    assert guard.damage() == [], "damage where nothing was written"


@ALL
def test_an_operand_keeps_its_bits(fmt: Format) -> None:
    """NaN payloads, signed zeros and subnormals are no values to compare: bits are."""
    patterns = np.array(
        [0, 1, 1 << (fmt.width - 1), POISONS["nan"][fmt.name], (1 << fmt.width) - 1],
        dtype=fmt.bits_dtype,
    )
    signed = torch.from_numpy(patterns.view(patterns.dtype.str.replace("u", "i"))).to(WHERE)
    x = Guard("huge", WHERE).operand("x", signed, fmt)
    assert torch.equal(x.view(SIGNED[fmt.width]), signed)


@ALL
def test_the_offset_breaks_the_alignment(fmt: Format) -> None:
    size = fmt.width // 8
    aligned = Guard("nan", WHERE)
    assert matrix(aligned, fmt).data_ptr() % 16 == 0, "without an offset vector loads must do"
    for offset in (1, 3):
        x = matrix(Guard("nan", WHERE), fmt, offset=offset)
        assert x.data_ptr() % 16 == offset * size % 16, f"offset {offset} is not where it should be"
        assert x.data_ptr() % size == 0


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0), (0,)])
def test_empty_operands(shape: tuple[int, ...]) -> None:
    guard = Guard("nan", WHERE)
    x = guard.operand("x", torch.empty(shape, dtype=torch.int32, device=WHERE), FP32, row_gap=2)
    assert tuple(x.shape) == shape
    assert guard.damage() == []
    element(x, 0).fill_(1.0)
    assert guard.damage() == [
        "wrote 1 elements around the operand x, first at offset 0 from its start"
    ]


DAMAGE: dict[str, tuple[int, str]] = {
    "before": (-1, "wrote 1 elements around the operand x, first at offset -1 from its start"),
    "far before": (-5000, "wrote 1 elements around the operand x, first at offset -5000 from"),
    "after": (18, "wrote 1 elements around the operand x, first at offset 18 from its start"),
    "far after": (5000, "wrote 1 elements around the operand x, first at offset 5000 from its"),
    "in a gap": (4, "wrote 1 elements around the operand x, first at offset 4 from its start"),
    "end of a gap": (6, "wrote 1 elements around the operand x, first at offset 6 from its start"),
    "first element": (0, "changed 1 elements of the operand x, first at offset 0"),
    "last element": (17, "changed 1 elements of the operand x, first at offset 17"),
}


@BOTH
@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("where", DAMAGE)
def test_damage_to_an_operand_is_described(where: str, offset: int, poison: str) -> None:
    place, text = DAMAGE[where]
    guard = Guard(poison, WHERE)
    x = matrix(guard, row_gap=3, offset=offset)
    element(x, place).fill_(-77.0)
    (line,) = guard.damage()
    assert line.startswith(text), f"{where}: {line}"


def test_a_write_of_the_same_value_is_no_damage() -> None:
    guard = Guard("nan", WHERE)
    x = matrix(guard)
    x.copy_(x.clone())
    assert guard.damage() == []


def test_a_sign_of_zero_is_damage() -> None:
    guard = Guard("nan", WHERE)
    matrix(guard)[0, 0] = -0.0
    assert guard.damage() == ["changed 1 elements of the operand x, first at offset 0"]


def test_the_damaged_block_is_the_one_named() -> None:
    guard = Guard("nan", WHERE)
    bits = bits_of(np.ones(5), FP32)
    tensors = {name: guard.operand(name, bits, FP32) for name in ("x", "weight", "residual")}
    element(tensors["weight"], 5).fill_(0.0)
    (line,) = guard.damage()
    assert "the operand weight" in line, line


# Fresh memory.

SHAPE = (3, 5)
EMPTY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "empty": lambda x: torch.empty(SHAPE, dtype=x.dtype, device=x.device),
    "empty_like": torch.empty_like,
    "new_empty": lambda x: x.new_empty(SHAPE),
    "empty_strided": lambda x: torch.empty_strided(SHAPE, (7, 1), dtype=x.dtype, device=x.device),
    "new_empty_strided": lambda x: x.new_empty_strided(SHAPE, (1, 3)),
    "empty_permuted": lambda x: torch.empty_permuted(SHAPE, (1, 0), dtype=x.dtype, device=x.device),
}
ZERO: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "zeros": lambda x: torch.zeros(SHAPE, dtype=x.dtype, device=x.device),
    "zeros_like": torch.zeros_like,
    "new_zeros": lambda x: x.new_zeros(SHAPE),
}
FILLED: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float]] = {
    "ones": (lambda x: torch.ones(SHAPE, dtype=x.dtype, device=x.device), 1.0),
    "full": (lambda x: torch.full(SHAPE, 3.0, dtype=x.dtype, device=x.device), 3.0),
    "full_like": (lambda x: torch.full_like(x, 3.0), 3.0),
    "new_full": (lambda x: x.new_full(SHAPE, 3.0), 3.0),
    "ones_like": (torch.ones_like, 1.0),
    "new_ones": (lambda x: x.new_ones(SHAPE), 1.0),
}


def like(fmt: Format) -> torch.Tensor:
    return torch.ones(SHAPE, dtype=torch_dtype(fmt), device=WHERE)


@ALL
@BOTH
@pytest.mark.parametrize("name", EMPTY)
def test_fresh_memory_is_poisoned(name: str, poison: str, fmt: Format) -> None:
    guard = Guard(poison, WHERE)
    with FreshMemory(guard):
        out = EMPTY[name](like(fmt))
    assert tuple(out.shape) == SHAPE and out.dtype == torch_dtype(fmt)
    assert is_poison(out, poison), f"{name} gives {out}"
    assert guard.block_of(out) is not None, f"{name} is not guarded"


@ALL
@pytest.mark.parametrize("name", ZERO)
def test_zeroed_memory_is_guarded(name: str, fmt: Format) -> None:
    guard = Guard("nan", WHERE)
    with FreshMemory(guard):
        out = ZERO[name](like(fmt))
    assert tuple(out.shape) == SHAPE and out.dtype == torch_dtype(fmt)
    assert (out == 0.0).all(), f"{name} gives {out}"
    assert guard.block_of(out) is not None, f"{name} is not guarded"
    assert is_poison(element(out, -1), "nan") and is_poison(element(out, 15), "nan")


@pytest.mark.parametrize("name", FILLED)
def test_filled_memory_has_its_values(name: str) -> None:
    make, value = FILLED[name]
    with FreshMemory(Guard("nan", WHERE)):
        out = make(like(FP32))
    assert (out == value).all(), f"{name} gives {out}"


@pytest.mark.parametrize("name", FILLED)
def test_filled_memory_is_guarded(name: str) -> None:
    """A launcher may fill its output or scratch by any of these."""
    guard = Guard("nan", WHERE)
    with FreshMemory(guard):
        out = FILLED[name][0](like(FP32))
    assert guard.block_of(out) is not None, f"writes around memory of torch.{name} go unseen"


@pytest.mark.parametrize("name", [*EMPTY, *ZERO])
def test_writes_around_fresh_memory_are_described(name: str) -> None:
    guard = Guard("nan", WHERE)
    with FreshMemory(guard):
        out = (EMPTY | ZERO)[name](like(FP32))
    span = 1 + sum((s - 1) * t for s, t in zip(out.shape, out.stride(), strict=True))
    out.fill_(1.0)
    assert guard.damage() == [], f"{name}: writing the output itself is no damage"
    element(out, -3).fill_(0.0)
    element(out, span + 1).fill_(0.0)
    (line,) = guard.damage()
    kind = "filled memory" if name in ZERO else "output or scratch memory"
    assert line == (
        f"wrote outside {kind} of shape (3, 5): 1 elements, up to 3 before the first; "
        "1 elements, up to 2 after the last"
    ), line


def test_how_far_a_write_went_is_told() -> None:
    guard = Guard("nan", WHERE)
    with FreshMemory(guard):
        out = torch.empty(4, dtype=torch.float32, device=WHERE)
    torch.as_strided(out, (7,), (1,), out.storage_offset() + 4).fill_(0.0)
    (line,) = guard.damage()
    assert line.endswith("7 elements, up to 7 after the last"), line
    guard = Guard("nan", WHERE)
    with FreshMemory(guard):
        out = torch.empty(4, dtype=torch.float32, device=WHERE)
    torch.as_strided(out, (7,), (1,), out.storage_offset() - 9).fill_(0.0)
    (line,) = guard.damage()
    assert line.endswith("7 elements, up to 9 before the first"), line


def test_a_write_between_strides_of_fresh_memory_is_seen() -> None:
    guard = Guard("nan", WHERE)
    with FreshMemory(guard):
        out = torch.empty_strided((3, 5), (7, 1), dtype=torch.float32, device=WHERE)
    out.fill_(1.0)
    assert guard.damage() == []
    element(out, 5).fill_(0.0)
    assert len(guard.damage()) == 1, "a write into the gap between rows of the output is not seen"


def test_counters_are_guarded_and_empty_memory_stays_as_it_is() -> None:
    guard = Guard("nan", WHERE)
    with FreshMemory(guard):
        counters = torch.zeros(3, dtype=torch.int32, device=WHERE)
        nothing = torch.empty((0, 3), device=WHERE)
    assert counters.tolist() == [0, 0, 0]
    assert tuple(nothing.shape) == (0, 3)
    assert guard.damage() == []
    element(counters, 3).fill_(1)
    assert len(guard.damage()) == 1, "a write past the end of a counter is not seen"


def test_memory_is_ordinary_again_afterwards() -> None:
    guard = Guard("nan", WHERE)
    with FreshMemory(guard):
        torch.empty(3, device=WHERE)
    torch.empty(3, device=WHERE)
    assert len(guard.blocks) == 1


def test_a_kernel_that_raises_ends_the_guarding() -> None:
    guard = Guard("nan", WHERE)
    with pytest.raises(RuntimeError, match="no luck"), FreshMemory(guard):
        raise RuntimeError("no luck")
    torch.empty(3, device=WHERE)
    assert guard.blocks == []


def test_the_block_of_a_tensor() -> None:
    guard = Guard("nan", WHERE)
    x, y = matrix(guard), matrix(guard)
    with FreshMemory(guard):
        out = torch.empty(3, device=WHERE)
    assert [guard.block_of(t) for t in (x, y, out)] == guard.blocks
    assert guard.block_of(x[1:, 2:]) is guard.blocks[0], "a view belongs to the same block"
    assert guard.block_of(out.view(3, 1)) is guard.blocks[2]
    assert guard.block_of(x.clone()) is None
    assert guard.block_of(torch.ones(3, device=WHERE)) is None


def test_zones_are_wide_enough_for_a_tile() -> None:
    for fmt in FORMATS.values():
        x = matrix(Guard("nan", WHERE), fmt)
        zone = ZONE_BYTES // (fmt.width // 8)
        assert x.untyped_storage().nbytes() * 8 // fmt.width >= 12 + 2 * zone
        assert zone >= 4096, f"a store of one tile of 4096 {fmt.name} elements leaves the guard"
