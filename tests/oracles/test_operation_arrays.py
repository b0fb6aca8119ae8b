# SPDX-License-Identifier: Apache-2.0
"""The same enclosures whatever holds the values: numpy or torch, float32 or float64."""

from __future__ import annotations

import numpy as np
import pytest
from oracle_inputs import (
    SAME_RESULT,
    STORED,
    by_name,
    enclose,
    inputs_of,
    policy_combinations,
    with_x,
)

from assay.oracles.formats import BF16, FP16, FP32, FP64
from assay.oracles.operation import operations

SPECIAL = np.array(
    [
        [np.nan, 1.0, 2.0, 0.0],
        [np.inf, 1.0, -1.0, 0.0],
        [-np.inf, 1.0, -1.0, 0.0],
        [np.inf, -np.inf, 0.0, -0.0],
        [-np.inf, -np.inf, -np.inf, -np.inf],
        [np.nan, np.nan, np.nan, np.nan],
        [np.nan, -np.inf, -np.inf, np.nan],
        [0.0, -0.0, -0.0, 0.0],
        [1.0, 2.0, 3.0, 4.0],
    ]
)


def assert_same(what, one, other):
    for part in ("center", "tail", "radius"):
        a, b = getattr(one, part), getattr(other, part)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        assert same.all(), f"{what}: {part} {a[~same][:3]} and {b[~same][:3]}"
        assert (np.signbit(a) == np.signbit(b))[same & ~np.isnan(a)].all(), f"{what}: signs"


def cases(op):
    for family in op.families:
        yield family, inputs_of(op, family, 3, 101, FP32, 9)
    yield "special values", with_x(op, SPECIAL)
    yield "no columns", with_x(op, np.zeros((2, 0)))
    yield "no rows", with_x(op, np.zeros((0, 3)))
    yield "one row longer than a chunk", inputs_of(op, op.families[0], 1, 2**17 + 3, FP32, 2)


def devices(torch):
    return ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
@pytest.mark.parametrize("level", ["fast", "fine"])
def test_torch_tensors_give_the_bits_of_numpy_arrays(op, level):
    """Rung R3 is R2 on another device."""
    torch = pytest.importorskip("torch")
    for what, inputs in cases(op):
        for policies in policy_combinations(op, leave_out=SAME_RESULT):
            expected = enclose(op, inputs, policies, level=level)
            for device in devices(torch):
                for dtype in (torch.float64, torch.float32):
                    tensors = {
                        name: torch.from_numpy(values).to(device=device, dtype=dtype)
                        for name, values in inputs.items()
                    }
                    found = enclose(op, tensors, policies, level=level)
                    assert_same(f"{op.name}, {what}, {dtype} on {device}", expected, found)


@pytest.mark.parametrize("fmt", [FP16, BF16], ids=by_name)
@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_16_bit_tensors_are_taken_too(op, fmt):
    torch = pytest.importorskip("torch")
    for family in op.families:
        inputs = inputs_of(op, family, 2, 70, fmt, 4)
        for device in devices(torch):
            tensors = {
                name: torch.from_numpy(values).to(device, getattr(torch, fmt.name))
                for name, values in inputs.items()
            }
            one, other = enclose(op, inputs, fmt=fmt), enclose(op, tensors, fmt=fmt)
            assert_same(f"{op.name} of {family} on {device}", one, other)


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_float32_arrays_give_the_bits_of_float64_copies(op):
    for family in op.families:
        wide = inputs_of(op, family, 2, 37, FP32, 5)
        narrow = {name: values.astype(np.float32) for name, values in wide.items()}
        for policies in policy_combinations(op):
            one, other = enclose(op, wide, policies), enclose(op, narrow, policies)
            assert_same(f"{op.name} of {family}, {policies}", one, other)


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_float32_arrays_of_extreme_values_overflow_nowhere(op):
    """Nothing may be computed in the narrow type that the values come in."""
    x = np.array([[FP32.largest, 2.0**-149, -FP32.largest, 1.0]])
    wide = inputs_of(op, "normal", 1, 4, FP32, 5) | {"x": x}
    if "weight" in wide:
        wide["weight"] = x[0]
    narrow = {name: values.astype(np.float32) for name, values in wide.items()}
    for fmt in (*STORED, FP64):
        for policies in policy_combinations(op):
            one, other = enclose(op, wide, policies, fmt), enclose(op, narrow, policies, fmt)
            assert_same(f"{op.name}, {fmt.name}, {policies}", one, other)


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_views_with_strides_are_read_where_they_are(op):
    wide = inputs_of(op, op.families[0], 2, 24, FP32, 5)
    spread = {}
    for name, values in wide.items():
        spread[name] = np.repeat(values, 2, axis=-1)[..., ::2]
    assert_same(f"{op.name} of every second column", enclose(op, wide), enclose(op, spread))
