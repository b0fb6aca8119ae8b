# SPDX-License-Identifier: Apache-2.0
"""What a kernel's declared policies promise, and what they leave open."""

from __future__ import annotations

import numpy as np
import pytest

from assay.oracles.bounds import gamma
from assay.oracles.formats import FP32, round_nearest
from assay.oracles.generators import generate
from assay.oracles.operation import Claim, operation_named, operations
from assay.oracles.platform import Platform

U = FP32.u
INTERPRETER = Platform("interpreter", "", "", "3.7.1", "", "")
CUDA = Platform("cuda", "", "sm_90", "3.7.1", "", "")


def before_of(name, x, range_policy, depth=4, platform=CUDA, **params):
    op = operation_named(name)
    policies = op.check_policies({"range": range_policy})
    params = dict(op.params) | params
    exact = op.enclose({"x": x}, params, policies, FP32)
    claim = Claim(depth, 1, platform.arithmetic(), policies, params)
    return op.before({"x": x}, exact, FP32, claim), exact


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


def test_masked_elements_of_softmax_are_exactly_zero():
    op = operation_named("softmax")
    x = np.array([[0.0, -np.inf, 1.0]])
    policies = op.default_policies()
    exact = op.enclose({"x": x}, {}, policies, FP32)
    before = op.before({"x": x}, exact, FP32, Claim(2, 0, CUDA.arithmetic(), policies, {}))
    assert before[0, 1] == 0.0, "exp(-inf) / S is 0 on every device"
    assert (before[0, [0, 2]] > 0.0).all(), "the others have an error"


@pytest.mark.parametrize("name", operations())
def test_a_depth_without_a_bound_gives_none(name):
    """Once h u reaches 1 there is no bound, and none is made up."""
    op = operation_named(name)
    x = generate("normal", 1, 8, 1, FP32)
    policies = op.default_policies()
    exact = op.enclose({"x": x}, op.params, policies, FP32)
    claim = Claim(2**24, 0, CUDA.arithmetic(), policies, op.params)
    before = op.before({"x": x}, exact, FP32, claim)
    assert (np.isinf(before) | np.isnan(before)).all(), f"{name}: {before} with h u = 1"


@pytest.mark.parametrize("name", ["softmax", "rms_norm"])
def test_empty_rows_have_an_empty_bound(name):
    op = operation_named(name)
    for shape in ((3, 0), (0, 4)):
        x = np.zeros(shape)
        policies = op.default_policies()
        exact = op.enclose({"x": x}, op.params, policies, FP32)
        claim = Claim(0, 0, CUDA.arithmetic(), policies, op.params)
        before = op.before({"x": x}, exact, FP32, claim)
        assert before.shape == shape, f"{name} of {shape}: a bound of shape {before.shape}"
