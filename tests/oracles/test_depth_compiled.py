# SPDX-License-Identifier: Apache-2.0
"""The depth that is claimed for a tile, against the additions in the PTX of the Triton at hand."""

from __future__ import annotations

import json

import pytest
from script_runs import HERE, needs_triton, run

from assay.oracles.depth import tile_depth
from assay.oracles.platform import Platform

DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def platform(triton):
    return Platform("cuda", "", "sm_90", triton, "", "")


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
