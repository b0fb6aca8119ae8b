# SPDX-License-Identifier: Apache-2.0
"""The depth h that is claimed for a sum, against the additions that are really made.

numpy's and the interpreter's order is read off their results: a big number and its negative at two
places swallow every 1 that is added to either of them before they meet, so the sum tells how many
elements lie outside the smallest subtree that holds both (the idea of "FPRev", Xie et al. 2024).
The compiled order is read in PTX, in `test_depth_compiled.py`.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from script_runs import HERE, needs_triton, run

from assay.oracles.depth import Sequential, Tile, TileThenAtomics, numpy_depth, tile_depth
from assay.oracles.platform import Platform

DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
# Absorbs up to 2**24 ones without a trace: ulp(2**60) is 2**37 in float32.
BIG = np.float32(2.0**60)


def platform(device="cuda", triton="3.7.1"):
    return Platform(device, "", "sm_90" if device == "cuda" else "", triton, "", "")


INTERPRETER = platform("interpreter")


# --- orders that can be run -----------------------------------------------------------------------


def probes(n, leaf):
    """n rows of ones; row j has BIG at `leaf` and -BIG at j."""
    rows = np.ones((n, n), dtype=np.float32)
    rows[:, leaf] = BIG
    rows[np.arange(n), np.arange(n)] = -BIG
    return rows


def leaf_depth(row_sums, n, leaf):
    """Additions between element `leaf` of n and the sum, for the order in which row_sums adds.

    n - sum is the size of the smallest subtree that holds both big numbers. The subtrees that hold
    the leaf grow along its path, so there are as many additions as sizes.
    """
    sums = np.delete(row_sums(probes(n, leaf)), leaf)
    return len(set((n - sums).tolist()))


def sequential_sum(rows):
    return np.add.accumulate(rows, axis=1)[:, -1]


def tree_sum(rows):
    """Neighbours first, like a tree of shuffles; a last odd element moves up by itself."""
    while rows.shape[1] > 1:
        paired = rows[:, :-1:2] + rows[:, 1::2]
        rows = np.concatenate([paired, rows[:, -1:]], axis=1) if rows.shape[1] % 2 else paired
    return rows[:, 0]


def numpy_sum(rows):
    return rows.sum(axis=-1)


def test_the_probe_measures_orders_that_are_known():
    for n in (2, 3, 8, 37, 64):
        assert leaf_depth(sequential_sum, n, 0) == n - 1, "the first of n added one by one"
        assert leaf_depth(sequential_sum, n, n - 1) == 1, "the last of n added one by one"
        deepest = max(leaf_depth(tree_sum, n, leaf) for leaf in range(n))
        assert deepest == math.ceil(math.log2(n)), f"a balanced tree of {n}"


@pytest.mark.parametrize("n", [*range(1, 41), 63, 64, 72, 120, 127, 128, 129, 136, 137, 255, 257])
def test_numpy_depth_is_the_depth_of_numpy(n):
    deepest = max(leaf_depth(numpy_sum, n, leaf) for leaf in range(n))
    assert numpy_depth(n) == deepest, (
        f"numpy.sum of {n} float32 values has {deepest} additions on its longest path, claimed "
        f"{numpy_depth(n)}"
    )


@pytest.mark.parametrize("n", [512, 513, 1000, 1024, 1032])
def test_numpy_depth_holds_for_long_rows(n):
    # numpy halves down to runs: the first elements of every run and the last ones of each half.
    leaves = sorted({0, 7, 8, 63, 64, n // 2 - 1, n // 2, n - n // 4, n - 8, n - 1})
    deepest = max(leaf_depth(numpy_sum, n, leaf) for leaf in leaves)
    assert deepest == numpy_depth(n), f"{n}: claimed {numpy_depth(n)}, reached {deepest}"


@pytest.mark.parametrize("shape", ["vector", "few rows", "many rows"])
def test_numpy_adds_in_the_same_order_whatever_the_shape(shape):
    rng = np.random.default_rng(1)
    rows = {"vector": 1, "few rows": 3, "many rows": 500}[shape]
    x = rng.standard_normal((rows, 300)).astype(np.float32)
    one_by_one = np.array([np.add.reduce(row.copy()) for row in x])
    assert (x.sum(axis=1) == one_by_one).all(), (
        f"{shape}: rows of a matrix and single vectors are added in different orders, so that "
        "numpy_depth would not be enough"
    )


def test_the_depth_shows_in_a_rounding_error():
    """Eight ones and 120 values of u: each running sum loses all of its fifteen additions."""
    u = 2.0**-24
    x = np.full(128, u, dtype=np.float32)
    x[:8] = 1.0
    lost = 8.0 + 120.0 * u - float(x.sum())
    assert lost == 120.0 * u, f"numpy lost {lost / u}u of 120u"
    assert numpy_depth(128) * u * 8.0 >= lost, "h u sum|x| covers the loss"
    assert math.log2(128) * u * 8.0 < lost, "log2 of the length would not: numpy is not a tree"


@needs_triton
def test_the_interpreter_adds_like_numpy(tmp_path):
    cases = {16: range(16), 128: [0, 7, 127], 512: [0, 511]}
    for block, leaves in cases.items():
        rows = np.concatenate([probes(block, leaf) for leaf in leaves])
        # The tile has power-of-two sides; the rows that fill it up are zero.
        filled = np.zeros((1 << (len(rows) - 1).bit_length(), block), dtype=np.float32)
        filled[: len(rows)] = rows
        np.save(tmp_path / f"{block}.npy", filled)
    run(HERE / "interpreter_sum.py", *(tmp_path / f"{block}.npy" for block in cases))
    for block, leaves in cases.items():
        sums = np.load(tmp_path / f"{block}.npy.sums.npy")
        for k, leaf in enumerate(leaves):
            part = sums[k * block : (k + 1) * block]
            assert (part == numpy_sum(probes(block, leaf))).all(), (
                f"tl.sum of {block} in the interpreter does not add in numpy's order"
            )
            depth = len(set((block - np.delete(part, leaf)).tolist()))
            assert depth <= tile_depth(block, {}, "float32", INTERPRETER), (
                f"tl.sum of {block} in the interpreter: element {leaf} has {depth} additions"
            )


# --- the records ----------------------------------------------------------------------------------


def test_orders_count_what_they_say():
    config = {"BLOCK": 256, "BLOCK_N": 512, "num_warps": 4}
    tile = tile_depth(256, config, "float32", platform())
    order = TileThenAtomics("BLOCK")
    assert order.atomics(1000, config) == 4, "one atomic addition a tile, the last one partly full"
    assert order.depth(1000, config, "float32", platform()) == tile + 4, "tile, then atomics"
    assert order.atomics(1024, config) == 4, "a full last tile is not counted twice"
    assert order.atomics(0, config) == 0, "nothing to add"
    one = Tile("BLOCK_N")
    assert one.depth(300, config, "float32", platform()) == tile_depth(
        512, config, "float32", platform()
    ), "the tile counts, not the row: the padding is added too"
    assert one.atomics(300, config) == 0, "no atomics"
    assert [Sequential().depth(n, {}, "float32", platform()) for n in (0, 1, 2, 9)] == [0, 0, 1, 8]
    assert Sequential().atomics(9, {}) == 9, "each element could be added by an atomic"
    for each in (order, one, Sequential()):
        assert each.describe(), f"{each} describes its claim"


def test_a_missing_block_is_named():
    with pytest.raises(ValueError, match=r"needs BLOCK_N.*'num_warps': 4"):
        Tile("BLOCK_N").depth(10, {"num_warps": 4}, "float32", platform())


@pytest.mark.parametrize("device", ["cuda", "interpreter"])
@pytest.mark.parametrize("triton", ["3.6.0", "3.7.1", "3.8.0", "3.9.0"])
@pytest.mark.parametrize("dtype", DTYPES.values())
def test_depth_lies_between_a_tree_and_a_row(device, triton, dtype):
    for block in [2**k for k in range(18)]:
        for warps in (1, 2, 4, 8, 16, 32):
            h = tile_depth(block, {"num_warps": warps}, dtype, platform(device, triton))
            assert math.log2(block) <= h <= max(0, block - 1), (
                f"{device}, Triton {triton}, {dtype}, tile of {block}, {warps} warps: no sum has a "
                f"depth of {h}"
            )


def test_depth_of_known_tiles():
    old, new = platform(triton="3.7.1"), platform(triton="3.9.0")
    four = {"num_warps": 4}
    assert tile_depth(4096, four, "float32", old) == 31 + 7, "32 a thread, then 128 threads"
    assert tile_depth(4096, four, "float32", new) == 12, "pairwise since Triton 3.8"
    assert tile_depth(4096, {}, "float32", old) == 38, "four warps are Triton's default"
    assert tile_depth(128, four, "float32", INTERPRETER) == 18, "a run of numpy's"
    for block in (0, 1):
        assert tile_depth(block, four, "float32", old) == 0, "one value is its own sum"
