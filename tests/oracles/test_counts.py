# SPDX-License-Identifier: Apache-2.0
"""Value counts, and random bits on torch: the same as on numpy, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.oracles import portable_random, torch_random
from assay.oracles.counts import Counted, count_values, generate_counted
from assay.oracles.formats import BF16, FP16, FP32
from assay.oracles.generators import FAMILIES, POOL_ABOVE, generate

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
STORED = (FP32, FP16, BF16)


def by_name(value):
    return getattr(value, "name", None) or str(value)


def assert_same(a: Counted, b: Counted) -> None:
    assert np.array_equal(a.values, b.values, equal_nan=True)
    assert np.array_equal(a.counts, b.counts)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("seed", "stream", "count"),
    [(3, 7, 10_001), (2**63 + 5, 9, 17), (0, 0, 1), (2**64 - 1, 2**64 - 1, 4096), (5, 1, 0)],
)
def test_philox_on_torch_is_numpys(device, seed, stream, count):
    expected = portable_random.raw_bits(seed, stream, count).view(np.int64)
    assert np.array_equal(torch_random.raw_bits(seed, stream, count, device).cpu(), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_chunks_of_indices_join_to_numpys(device, monkeypatch):
    monkeypatch.setattr(torch_random, "_BLOCKS", 100)
    expected = portable_random.integers(11, 7, 1234, 4096)
    found = np.zeros(1234, dtype=np.int64)
    for first, index in torch_random.index_chunks(11, 7, 1234, 4096, device):
        found[first : first + len(index)] = index.cpu()
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fmt", STORED, ids=by_name)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_generated_input_comes_with_its_counts(family, fmt, device):
    for n in (0, 1, 100, POOL_ABOVE + 1808):
        expected = generate(family, 1, n, 3, fmt)[0]
        x, counted = generate_counted(family, n, 3, fmt)
        y, on_torch = generate_counted(family, n, 3, fmt, device)
        assert np.array_equal(x, expected, equal_nan=True)
        assert np.array_equal(y.double().cpu(), expected, equal_nan=True)
        assert y.dtype == getattr(torch, fmt.name)
        assert counted.n == n
        assert_same(counted, on_torch)
        assert_same(counted, count_values(expected))
        assert_same(counted, count_values(y))
        if fmt is FP16:
            assert_same(counted, count_values(expected.astype(np.float16)))


def test_equal_zeros_and_all_nan_are_one_value():
    found = count_values(np.array([0.0, -0.0, np.nan, -np.nan, 1.0], dtype=np.float32))
    assert_same(found, Counted(np.array([0.0, 1.0, np.nan]), np.array([2, 1, 2])))
    assert_same(found, count_values(torch.tensor([0.0, -0.0, np.nan, np.nan, 1.0])))
    half = torch.tensor([0.0, -0.0, np.nan, 1.0, np.nan], dtype=torch.bfloat16)
    half.view(torch.int16)[2] = 0x7FC1  # another payload
    assert_same(found, count_values(half))
