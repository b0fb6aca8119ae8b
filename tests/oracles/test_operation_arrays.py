# SPDX-License-Identifier: Apache-2.0
"""The same enclosures whatever holds the values: numpy or torch, float32 or float64."""

from __future__ import annotations

import numpy as np
import pytest
from oracle_inputs import STORED, by_name, enclose, inputs_of, policy_combinations

from assay.oracles.formats import BF16, FP16, FP32, FP64
from assay.oracles.generators import generate
from assay.oracles.operation import operations

# Operations whose oracle works on torch tensors where they are (rung R3).
ON_TORCH = (
    "count_nonzero", "l1_norm", "l2_norm", "logsumexp", "mean", "mean_variance", "row_max",
    "row_mean", "row_min", "row_sum", "sum",
)  # fmt: skip
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


def matrices(op):
    for family in op.families:
        yield family, generate(family, 3, 101, 9, FP32)
    yield "special values", SPECIAL
    yield "no columns", np.zeros((2, 0))
    yield "no rows", np.zeros((0, 3))
    yield "one row longer than a chunk", generate(op.families[0], 1, 2**17 + 3, 2, FP32)


@pytest.mark.parametrize("op", [operations()[name] for name in ON_TORCH], ids=by_name)
@pytest.mark.parametrize("level", ["fast", "fine"])
def test_torch_tensors_give_the_bits_of_numpy_arrays(op, level):
    torch = pytest.importorskip("torch")
    for what, x in matrices(op):
        for policies in policy_combinations(op):
            expected = enclose(op, {"x": x}, policies, level=level)
            for dtype in (torch.float64, torch.float32):
                for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
                    tensor = torch.from_numpy(x).to(device=device, dtype=dtype)
                    found = enclose(op, {"x": tensor}, policies, level=level)
                    assert_same(f"{op.name}, {what}, {dtype} on {device}", expected, found)


@pytest.mark.parametrize("fmt", [FP16, BF16], ids=by_name)
@pytest.mark.parametrize("op", [operations()[name] for name in ON_TORCH], ids=by_name)
def test_16_bit_tensors_are_taken_too(op, fmt):
    torch = pytest.importorskip("torch")
    for family in op.families:
        x = generate(family, 2, 70, 4, fmt)
        tensor = torch.from_numpy(x).to(getattr(torch, fmt.name))
        assert_same(f"{op.name} of {family}", enclose(op, {"x": x}), enclose(op, {"x": tensor}))


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
