# SPDX-License-Identifier: Apache-2.0
"""The depth h that is claimed for a sum, against the additions that are really made.

numpy's and the interpreter's order is read off their results: a big number and its negative at two
places swallow every 1 that is added to either of them before they meet, so the sum tells how many
elements lie outside the smallest subtree that holds both (the idea of "FPRev", Xie et al. 2024).
The compiled order is read in PTX.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from assay.oracles.depth import Sequential, Tile, TileThenAtomics, numpy_depth, tile_depth
from assay.oracles.platform import Platform

HERE = Path(__file__).parent
NO_TRITON = "needs Triton: pip install triton (Linux only)"
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason=NO_TRITON)

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


# --- compiled -------------------------------------------------------------------------------------


def run(script, *arguments, text=None, **environment):
    """Output of a script in a process that has not imported Triton as an interpreter."""
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | environment
    done = subprocess.run(
        [sys.executable, str(script), *map(str, arguments)],
        input=text,
        capture_output=True,
        text=True,
        env=env,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"{script.name} failed:\n{done.stderr[-3000:]}"
    return done.stdout


def vector(block, num_warps, dtype="fp32", layout="aligned", arch=90):
    """A request: sum of squares of one tile."""
    return {
        "kernel": "sum_of_squares",
        "block": block,
        "num_warps": num_warps,
        "dtype": dtype,
        "layout": layout,
        "arch": arch,
    }


def matrix(rows, block, num_warps, dtype="fp32", layout="aligned", arch=90):
    """A request: softmax of `rows` rows of one tile."""
    return vector(block, num_warps, dtype, layout, arch) | {"kernel": "softmax", "rows": rows}


# A thread holds a vector of 16 bytes, four float32, or more: there the claim is exact.
FULL_VECTORS = [vector(512, 4), vector(1024, 4), vector(1024, 8), vector(4096, 4), vector(4096, 8)]
VECTORS = [
    *FULL_VECTORS,
    vector(2, 4),
    vector(64, 4),
    vector(128, 4),
    vector(256, 4),
    vector(1024, 1),
    vector(1024, 4, "fp16"),
    vector(1024, 4, "bf16", "unaligned"),
    vector(256, 4, "fp16", "unaligned"),
    vector(4096, 8, "fp32", "unaligned"),
    vector(1024, 4, arch=80),
]
MATRICES = [
    matrix(1, 1024, 4),
    matrix(1, 8, 4),
    matrix(4, 64, 4),
    matrix(4, 256, 4),
    matrix(16, 128, 8),
    matrix(16, 1024, 8),
    matrix(4, 256, 4, "fp16"),
    matrix(16, 512, 8, "fp16"),
    matrix(4, 256, 4, "fp32", "unaligned"),
    matrix(16, 128, 4, "bf16", "unaligned"),
]
TRANSPOSED = [
    matrix(1, 1024, 4, "fp32", "transposed"),
    matrix(4, 256, 4, "fp16", "transposed"),
    matrix(16, 512, 8, "fp32", "transposed"),
    matrix(16, 1024, 8, "fp32", "transposed"),
    matrix(64, 64, 4, "fp32", "transposed"),
]

# Texts of known depth for the measuring program itself.
TEXTS = {
    "one after another": (
        3,
        """
        ld.global.b32 %r1, [%rd1];
        add.f32 %r2, %r1, %r9;
        add.rn.f32 %r3, %r2, %r8;
        fma.rn.f32 %r4, %r7, %r7, %r3;
        st.global.b32 [ %rd2 + 0 ], { %r4 };
        """,
    ),
    "a pair of pairs": (
        2,
        """
        add.f32 %r5, %r1, %r2;
        add.f32 %r6, %r3, %r4;
        add.f32 %r7, %r5, %r6;
        @%p1 atom.global.gpu.acq_rel.add.f32 %r8, [ %rd2 + 0 ], %r7;
        """,
    ),
    "through a shuffle and shared memory": (
        3,
        """
        add.f32 %r2, %r1, %r1;
        shfl.sync.bfly.b32 %r3|%p1, %r2, 16, 31, -1;
        add.f32 %r4, %r2, %r3;
        @%p2 st.shared.b32 [ %r40 + 0 ], %r4;
        bar.sync 0;
        ld.shared.v2.b32 {%r5, %r6}, [%r41];
        add.f32 %r7, %r5, %r6;
        st.global.b32 [%rd1], %r7;
        """,
    ),
    "through a matrix store": (
        1,
        """
        add.f32 %r2, %r1, %r1;
        stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r9], {%r2, %r2, %r2, %r2};
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r3, %r4, %r5, %r6}, [%r9];
        st.global.v4.b32 [ %rd1 + 0 ], { %r3, %r4, %r5, %r6 };
        """,
    ),
    "addresses are not sums": (
        0,
        """
        add.s32 %r1, %r2, %r3;
        add.s64 %rd2, %rd1, %rd3;
        mul.f32 %r4, %r5, %r5;
        sub.f32 %r6, %r4, %r5;
        st.global.b32 [%rd2], %r6;
        """,
    ),
    "a register is used again": (
        1,
        """
        add.f32 %r2, %r1, %r1;
        add.f32 %r2, %r3, %r3;
        st.global.b32 [%rd2], %r2;
        """,
    ),
    "a predicated write may leave the old value": (
        2,
        """
        add.f32 %r2, %r1, %r1;
        add.f32 %r2, %r2, %r1;
        @%p1 mov.b32 %r2, %r3;
        st.global.b32 [%rd2], %r2;
        """,
    ),
    "what is not stored does not count": (
        1,
        """
        add.f32 %r2, %r1, %r1;
        add.f32 %r3, %r2, %r1; // dropped
        st.global.b32 [%rd2], %r2;
        """,
    ),
}


def described(request):
    words = [request["kernel"], request["dtype"], request["layout"], f"sm_{request['arch']}"]
    size = f"{request.get('rows', '')}x{request['block']}".lstrip("x")
    return "-".join([*words, size, f"{request['num_warps']}warps"])


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """What the measuring program says, for all requests at once: (Triton's version, depth_of)."""
    texts = [{"ptx": text} for _, text in TEXTS.values()]
    requests = [*texts, *VECTORS, *MATRICES, *TRANSPOSED]
    cache = str(tmp_path_factory.mktemp("triton_cache"))
    out = run(HERE / "ptx_depth.py", text=json.dumps(requests), TRITON_CACHE_DIR=cache)
    answer = json.loads(out)
    depths = {json.dumps(r): d for r, d in zip(requests, answer["depths"], strict=True)}
    return answer["triton"], lambda request: depths[json.dumps(request)]


def claimed(request, triton):
    config = {"num_warps": request["num_warps"], "BLOCK_M": request.get("rows", 1)}
    return tile_depth(
        request["block"],
        config,
        DTYPES[request["dtype"]],
        platform(triton=triton),
        contiguous=request["layout"] != "transposed",
    )


@needs_triton
@pytest.mark.xdist_group("ptx")
@pytest.mark.parametrize("name", TEXTS)
def test_the_ptx_is_measured_right(measured, name):
    _, depth_of = measured
    expected, text = TEXTS[name]
    assert depth_of({"ptx": text}) == expected, f"{name}:{text}"


@needs_triton
@pytest.mark.xdist_group("ptx")
def test_a_loop_is_refused(tmp_path):
    text = "$L1:\nadd.f32 %r1, %r1, %r2;\n@%p1 bra $L1;\nst.global.b32 [%rd1], %r1;"
    with pytest.raises(AssertionError, match="jumps backwards"):
        run(HERE / "ptx_depth.py", text=json.dumps([{"ptx": text}]))


@needs_triton
@pytest.mark.xdist_group("ptx")
@pytest.mark.parametrize("request_", [*VECTORS, *MATRICES], ids=described)
def test_the_claimed_depth_covers_the_compiled_one(measured, request_):
    triton, depth_of = measured
    depth, claim = depth_of(request_), claimed(request_, triton)
    assert 0 < depth <= claim, (
        f"{described(request_)}: Triton {triton} makes {depth} additions on the longest path, "
        f"claimed {claim}"
    )


@needs_triton
@pytest.mark.xdist_group("ptx")
@pytest.mark.parametrize("request_", FULL_VECTORS, ids=described)
def test_the_claimed_depth_is_exact_for_full_vectors(measured, request_):
    triton, depth_of = measured
    assert depth_of(request_) == claimed(request_, triton), (
        f"{described(request_)}: Triton {triton}: a claim that is too large hides errors"
    )


@needs_triton
@pytest.mark.xdist_group("ptx")
@pytest.mark.parametrize("request_", TRANSPOSED, ids=described)
def test_the_claimed_depth_covers_a_transposed_operand(measured, request_):
    """With a row stride of 1 the vectors lie across the rows, and a thread holds more of a row."""
    triton, depth_of = measured
    depth, claim = depth_of(request_), claimed(request_, triton)
    assert depth <= claim, (
        f"{described(request_)}: Triton {triton} makes {depth} additions on the longest path, "
        f"claimed {claim}"
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
