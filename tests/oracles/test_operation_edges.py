# SPDX-License-Identifier: Apache-2.0
"""Operations at the edges of their range, where pairs run out of bits or sums out of exponents."""

from __future__ import annotations

import numpy as np
import pytest
from edge_inputs import EDGES, rows_of
from oracle_agreement import assert_rungs_agree
from oracle_inputs import SAME_RESULT, STORED, by_name, enclose, policy_combinations, reference

from assay.oracles.formats import BF16, FP16, FP32, FP64, round_nearest
from assay.oracles.generators import generate
from assay.oracles.operation import operation_named, operations


@pytest.mark.parametrize(
    ("name", "what"), [(name, what) for name, cases in EDGES.items() for what in cases]
)
def test_the_edges_of_the_range_agree(name, what):
    op = operation_named(name)
    params = [{"eps": 1e-6}, {"eps": 0.0}] if "eps" in op.params else [{}]
    params = [{"correction": 0.0}, {"correction": 1.0}] if "correction" in op.params else params
    for policies in policy_combinations(op, leave_out=SAME_RESULT):
        for chosen in params:
            assert_rungs_agree(op, EDGES[name][what], policies, FP32, chosen)


def test_the_edges_of_every_operation_are_here():
    lacking = set(operations()) - set(EDGES)
    assert not lacking, f"add {sorted(lacking)} to EDGES in edge_inputs.py"


# float64 data at the ends of float64 itself, where pairs and scalings have least room.
ENDS = rows_of(
    [FP64.largest, 5e-324, 1.0, -3.0],
    [FP64.largest, -FP64.largest, 1e300, 0.5],
    [5e-324, 1e-323, -5e-324, 2.0**-1022],
    [1e200, -1e200, 1e-200, 1.0],
    [1e-320, 3e-320, 0.0, 1.0],
    [-1.0, 5e-324, 1e-310, -5e-324],
)


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_the_ends_of_float64_agree(op):
    """Sums beyond float64 are infinite in the enclosure: they round to that in every format."""
    if op.name in ("l2_norm", "mean_variance", "matmul", "rms_norm"):
        x = np.ldexp(ENDS[2:4], [[400], [0]])  # squares and products must have a float64
    else:
        x = ENDS
    inputs = {"x": x} | ({"w": rows_of([1.0], [0.5], [2.0], [1.0])} if op.name == "matmul" else {})
    assert_rungs_agree(op, inputs, op.default_policies(), FP64)


def test_far_terms_of_softmax_are_enclosed():
    """exp down to the subnormal float64 values, where a pair has no bits left for its tail."""
    op = operation_named("softmax")
    rng = np.random.default_rng(1)
    x = np.concatenate([[0.0, -0.3], -rng.uniform(640.0, 750.0, 250)])[None, :]
    assert_rungs_agree(op, {"x": round_nearest(x, FP32)}, op.default_policies(), FP32)


# --- policies that change the mathematics ---------------------------------------------------------


@pytest.mark.parametrize("fmt", STORED, ids=by_name)
def test_rms_norm_with_a_stored_residual_rounds_the_sum(fmt):
    op = operation_named("rms_norm")
    x = rows_of([1.0, 2.0, 4.0])
    residual = fmt.u * rows_of([1.0, 3.0, 0.5])  # a tie, a tie, and less than half an ulp
    stored = enclose(op, {"x": x, "residual": residual}, {"residual": "stored"}, fmt)
    rounded = enclose(op, {"x": round_nearest(x + residual, fmt)}, {}, fmt)
    assert (stored.center == rounded.center).all(), "x + residual is rounded to the stored format"
    assert (stored.tail == rounded.tail).all(), "down to the tail"
    exact = enclose(op, {"x": x, "residual": residual}, {"residual": "exact"}, fmt)
    assert (exact.center != rounded.center).any(), "and that is not what residual=exact says"


@pytest.mark.parametrize("fmt", [FP16, BF16], ids=by_name)
def test_rms_norm_with_the_cast_before_the_weight_rounds_twice(fmt):
    op = operation_named("rms_norm")
    x, weight = generate("normal", 2, 40, 21, fmt), generate("normal", 1, 40, 22, fmt)[0]
    first = enclose(op, {"x": x, "weight": weight}, {"cast": "before_weight"}, fmt)
    plain, decided = enclose(op, {"x": x}, {}, fmt).round(fmt)
    assert decided.all(), "random data is not on a tie"
    assert (first.center == plain * weight).all(), "the rounded normalised value times the weight"
    assert not first.radius.any(), "which float64 holds exactly"
    last = enclose(op, {"x": x, "weight": weight}, {"cast": "end"}, fmt)
    assert (first.center != last.center).any(), "and that is not what cast=end says"


def test_rms_norm_rounds_a_subnormal_beside_a_tie_before_the_weight():
    """1/rms is 1/2 but for 2**-58 of it, so 3 * 2**-24 goes to just below a tie of float16."""
    op = operation_named("rms_norm")
    x = rows_of([3 * 2.0**-24, 4.0, 0.0, 0.0] + [2.0] * 508)
    policies = op.check_policies({"cast": "before_weight"})
    record = reference(op, {"x": x}, policies, FP16, {"eps": 0.0})
    assert float(record[0]) == 2.0**-24, "1.5 * 2**-24 less a little goes down"
    assert_rungs_agree(op, {"x": x}, policies, FP16, {"eps": 0.0})


def test_range_policies_do_not_change_the_truth():
    """scaled and naive differ in what a kernel may get wrong, not in what is right."""
    for name in ("l2_norm", "rms_norm"):
        op = operation_named(name)
        x = round_nearest(rows_of([2e19, 2e19, 1.0], [1e-23, 1e-30, 0.0]), FP32)
        naive = enclose(op, {"x": x}, {"range": "naive"})
        scaled = enclose(op, {"x": x}, {"range": "scaled"})
        assert (naive.center == scaled.center).all(), f"{name}: the exact result is one"
        assert np.isfinite(naive.center).all(), f"{name}: and it is finite"
