# SPDX-License-Identifier: Apache-2.0
"""What a kernel's declared policies promise, and what they leave open."""

from __future__ import annotations

import numpy as np
import pytest
from oracle_inputs import by_name, enclose, inputs_of, with_x

from assay.oracles.bounds import gamma
from assay.oracles.formats import FP32, round_nearest
from assay.oracles.operation import Claim, operation_named, operations
from assay.oracles.platform import Platform

U = FP32.u
INTERPRETER = Platform("interpreter", "", "", "3.7.1", "", "")
CUDA = Platform("cuda", "", "sm_90", "3.7.1", "", "")

WITH_RANGE = [op for op in operations().values() if any(p.name == "range" for p in op.policies)]


def before_of(name, x, range_policy, depth=4, platform=CUDA, **params):
    op = operation_named(name)
    policies = op.check_policies({"range": range_policy})
    params = dict(op.params) | params
    inputs = with_x(op, x)
    exact = enclose(op, inputs, policies, params=params)
    claim = Claim(depth, 1, platform.arithmetic(), policies, params)
    return op.before(inputs, exact, FP32, claim), exact


# Rows whose result is a float32 number although something on the way is not, and rows just below.
OVERFLOWS = {
    "sum": ([3e38, 3e38, -3e38], [1.5e38, 1.5e38, -3e37]),
    "row_sum": ([3e38, 3e38, -3e38], [1.5e38, 1.5e38, -3e37]),
    "mean": ([3e38, 3e38, 3e38], [1e38, 1e38, 1e38]),
    "row_mean": ([3e38, 3e38, 3e38], [1e38, 1e38, 1e38]),
    "l1_norm": ([2e38, 2e38, 0.0], [1.5e38, -1.5e38, 0.0]),
    "l2_norm": ([2e19, 2e19, 1.0], [1.2e19, 1.2e19, 1.0]),
    "matmul": ([3e38, 3e38, -3e38], [1.5e38, 1.5e38, -3e37]),
    "mean_variance": ([3e38, 3e38, 3e38], [1e18, 1e18, 1.0]),
    "min_max": ([3e38, 0.0, -3e38], [1.5e38, 0.0, -1.5e38]),
    "rms_norm": ([2e19, 2e19, 1.0], [1e19, 1e19, 1.0]),
}


@pytest.mark.parametrize("op", WITH_RANGE, ids=by_name)
def test_overflow_on_the_way_excuses_a_naive_kernel_only(op):
    over, under = (round_nearest(np.array([row]), FP32) for row in OVERFLOWS[op.name])
    naive, exact = before_of(op.name, over, "naive")
    promised = np.isfinite(naive) & (naive < exact.magnitude())
    assert not promised[:, :1].any(), f"{op.name}: {naive} is promised where it overflows"
    scaled, exact = before_of(op.name, over, "scaled")
    total = np.abs(over).sum() if op.name != "min_max" else 1.0
    limit = np.maximum(exact.magnitude(), total) * gamma(64, U)
    assert (scaled <= limit)[:, :1].all(), (  # of mean and variance, the mean
        f"{op.name}: range=scaled promises {scaled} only"
    )
    fine, _ = before_of(op.name, under, "naive")
    assert np.isfinite(fine).all(), f"{op.name}: just below, a naive kernel is held to its bound"


def test_every_range_policy_is_tried():
    assert {op.name for op in WITH_RANGE} == set(OVERFLOWS), "rows for each operation with a range"


def test_overflow_of_squares_excuses_a_naive_norm_only():
    x = round_nearest(np.array([[2e19, 2e19]]), FP32)
    naive, exact = before_of("l2_norm", x, "naive")
    scaled, _ = before_of("l2_norm", x, "scaled")
    assert np.isinf(naive).all(), "nothing is promised where squares overflow"
    assert (scaled < exact.magnitude() * gamma(16, U)).all(), "range=scaled promises the same u"
    fine, _ = before_of("l2_norm", round_nearest(np.array([[1.8e19, 1.0]]), FP32), "naive")
    assert np.isfinite(fine).all(), "just below, the naive norm is held to its bound"


def test_underflow_of_squares_excuses_a_naive_norm_only():
    x = np.array([[2.0**-75, 2.0**-76]])
    naive, exact = before_of("l2_norm", x, "naive")
    scaled, _ = before_of("l2_norm", x, "scaled")
    assert (naive >= exact.center).all(), "the naive norm may be 0"
    assert np.isfinite(naive).all(), "but not anything"
    assert (scaled < exact.magnitude() * gamma(16, U)).all(), "range=scaled promises the same u"


def test_naive_rms_norm_may_lose_rows_that_overflow():
    x = round_nearest(np.array([[2e19, 2e19]]), FP32)
    naive, exact = before_of("rms_norm", x, "naive")
    scaled, _ = before_of("rms_norm", x, "scaled")
    assert (naive >= np.abs(exact.center)).all(), "the naive result may be 0 where squares overflow"
    assert (scaled < exact.magnitude() * gamma(32, U)).all(), "range=scaled promises the same u"


@pytest.mark.parametrize("platform", [CUDA, INTERPRETER], ids=lambda p: p.device)
@pytest.mark.parametrize("range_policy", ["scaled", "naive"])
@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_zero_norm_is_exact(platform, range_policy, n):
    before, exact = before_of("l2_norm", np.zeros((1, n)), range_policy, platform=platform)
    # Squares of 0 are 0 and so are their sums: nothing rounds, nothing can be flushed.
    assert (before <= exact.radius).all(), (
        f"{platform.device}, range={range_policy}: the norm of {n} zeros is 0 and nothing else, "
        f"but {before} is allowed"
    )


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_masked_elements_are_exact(name):
    op = operation_named(name)
    x = np.array([[0.0, -np.inf, 1.0]])
    policies = op.default_policies()
    exact = enclose(op, {"x": x}, policies)
    before = op.before({"x": x}, exact, FP32, Claim(2, 0, CUDA.arithmetic(), policies, {}))
    assert before[0, 1] == 0.0, "exp(-inf) / S is 0 on every device, and its logarithm -inf"
    assert (before[0, [0, 2]] > 0.0).all(), "the others have an error"


# Their results come without additions.
WITHOUT_DEPTH = {"count_nonzero", "min_max", "row_argmax", "row_max", "row_min"}


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_a_depth_without_a_bound_gives_none(op):
    """Once h u reaches 1 there is no bound, and none is made up."""
    inputs, policies = inputs_of(op, "normal", 1, 8, FP32, 1), op.default_policies()
    exact = enclose(op, inputs, policies)
    claim = Claim(2**24, 0, CUDA.arithmetic(), policies, op.params)
    before = op.before(inputs, exact, FP32, claim)
    if op.name in WITHOUT_DEPTH:
        shallow = Claim(1, 0, CUDA.arithmetic(), policies, op.params)
        assert (before == op.before(inputs, exact, FP32, shallow)).all(), f"{op.name}: no additions"
    else:
        unbounded = np.isinf(before) | np.isnan(before)
        assert unbounded.all(), f"{op.name}: {before} with h u = 1"


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_more_additions_and_wider_results_have_no_smaller_bound(op):
    inputs, policies = inputs_of(op, "normal", 2, 8, FP32, 1), op.default_policies()
    exact = enclose(op, inputs, policies)
    claims = (Claim(h, 0, CUDA.arithmetic(), policies, op.params) for h in (3, 10, 1000))
    three, ten, many = (op.before(inputs, exact, FP32, claim) for claim in claims)
    assert (three <= ten).all() and (ten <= many).all(), f"{op.name}: {three}, {ten}, {many}"
    assert np.isfinite(many).all(), f"{op.name}: a thousand additions have a bound"
    if op.name not in WITHOUT_DEPTH:
        assert (three < many).all(), f"{op.name}: additions cost something"


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
@pytest.mark.parametrize(("rows", "n"), [(3, 0), (0, 4), (0, 0)])
def test_empty_inputs_have_a_bound_of_their_shape(op, rows, n):
    inputs, policies = with_x(op, np.zeros((rows, n))), op.default_policies()
    exact = enclose(op, inputs, policies)
    claim = Claim(0, 0, CUDA.arithmetic(), policies, op.params)
    before = op.before(inputs, exact, FP32, claim)
    assert before.shape == op.result_shape(rows, n), f"{op.name}: a bound of shape {before.shape}"
    assert not np.isnan(before).any(), f"{op.name}: the result of nothing is promised"
