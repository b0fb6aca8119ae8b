# SPDX-License-Identifier: Apache-2.0
"""Mistakes planted in the bounds: each is crossed by an honest simulated kernel.

A term that could be left out without a simulation noticing would be no proof of anything. Each case
takes one away and names the kernel, the order and the primitives that need it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from assay.oracles import exponentials
from assay.oracles.bounds import compounded
from assay.oracles.depth import Sequential
from assay.oracles.formats import FP32, FP64
from assay.oracles.operation import Claim
from assay.oracles.operations import matmul, mean_variance, rms_norm, softmax
from assay.oracles.platform import Arithmetic, Platform
from assay.oracles.simulation.catalogue import INTERPRETER, PAIRWISE, Simulated
from assay.oracles.simulation.kernels import kernel_named
from assay.oracles.simulation.orders import schedule_named
from assay.oracles.simulation.search import ask, run, search, shares

SEED = 3


class Claims(Simulated):
    """A simulated kernel that claims less than it needs."""

    less: ClassVar[dict[str, int]] = {}

    def claim(self, n: int, confidence: float | None = None) -> Claim:
        claim = super().claim(n, confidence)
        return replace(claim, **{k: max(0, getattr(claim, k) - v) for k, v in self.less.items()})


def one_less(**less: int) -> type[Claims]:
    return type("OneLess", (Claims,), {"less": less})


def crossed(simulated: Simulated, n: int, budget: int = 0, column: int | None = None) -> float:
    found = search(simulated, n, budget, SEED, column=column)
    return found.worst if column is None else found.share


def kernel(name: str, order: str, platform=PAIRWISE, *, limit: bool = False, cls=Simulated):
    return cls(kernel_named(name), schedule_named(order), platform, at_limit=limit)


# --- claims ---------------------------------------------------------------------------------------


def test_one_addition_less_is_noticed() -> None:
    for order in ("sequential", "tile"):
        honest, wrong = kernel("sum", order), kernel("sum", order, cls=one_less(depth=1))
        assert crossed(honest, 40) <= 1.0, order
        # Where h = 39, only a sum that loses u in every addition fills 38/39 of the bound.
        assert crossed(wrong, 4 if order == "sequential" else 40, 256) > 1.0, order


def test_the_rounding_of_a_product_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = kernel("l2_norm", "sequential")
    assert crossed(honest, 3, 512) <= 1.0
    proved = Claim.sum_error

    def without(self, magnitude, total, *, products=False, extra=0.0):
        return proved(self, magnitude, total, extra=extra)

    monkeypatch.setattr(Claim, "sum_error", without)
    assert crossed(kernel("matmul ieee", "sequential"), 3, 512) > 1.0


def test_rescalings_left_out_are_noticed() -> None:
    wrong = kernel("logsumexp one by one", "sequential", limit=True, cls=one_less(rescales=99))
    assert crossed(wrong, 40) > 1.0
    wrong = kernel("logsumexp", "online tile loop", limit=True, cls=one_less(rescales=99))
    assert crossed(wrong, 40, 128) > 1.0


def test_flushing_atomics_left_out_are_noticed() -> None:
    for order in ("tile, then atomics that flush", "sequential, flushing"):
        for name in ("sum", "l1_norm", "l2_norm", "mean", "matmul ieee"):
            wrong = kernel(name, order, cls=one_less(atomics=999))
            assert crossed(kernel(name, order), 40) <= 1.0, f"{name}, {order}"
            assert crossed(wrong, 40) > 1.0, f"{name}, {order}"


def test_the_atomic_addition_of_a_single_element_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One element added to a zero is no rounded addition, and may be flushed all the same."""
    monkeypatch.setattr(Sequential, "atomics", lambda self, n, config: max(0, n - 1))
    assert crossed(kernel("sum", "sequential, flushing"), 1) > 1.0


# --- operations -----------------------------------------------------------------------------------


def test_the_error_of_the_mean_in_a_variance_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """n D**2: equal elements have no deviations but from a mean that is off."""
    honest = kernel("mean_variance two_pass", "sequential")
    assert crossed(honest, 40, column=1) <= 1.0
    monkeypatch.setattr(
        mean_variance, "mean_before", lambda total_error, mean, n, claim: mean * 0.0
    )
    assert crossed(honest, 40, column=1) > 1.0


def test_the_error_of_a_distance_in_softmax_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """u |t|: the rounded difference from the maximum."""
    honest = kernel("softmax", "compensated tile", limit=True)
    assert crossed(honest, 40, 256) <= 1.0

    def without(t, claim):
        return np.asarray(claim.arithmetic.exp(np.minimum(t, exponentials.FARTHEST)))

    monkeypatch.setattr(softmax, "element_error", without)
    assert crossed(honest, 40, 256) > 1.0


@pytest.mark.parametrize(
    ("what", "value", "name", "order", "platform", "n", "budget"),
    [
        ("division_floor", 0.0, "mean", "tile", PAIRWISE, 2, 0),
        ("exp_constant", 0.0, "softmax", "compensated tile", PAIRWISE, 2, 0),
        ("exp_growth", 0.5 * FP32.u, "softmax", "compensated tile", PAIRWISE, 48, 0),
        ("division", 2.0 * FP32.u, "min_max", "tile", PAIRWISE, 16, 320),
        ("rsqrt", 0.0, "rms_norm weighted", "compensated tile", PAIRWISE, 16, 640),
        ("host_sqrt", 0.5 * FP32.u, "l2_norm", "compensated tile", INTERPRETER, 2, 320),
    ],
)
def test_a_primitive_thought_better_than_it_is_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    value: float,
    name: str,
    order: str,
    platform: Platform,
    n: int,
    budget: int,
) -> None:
    simulated = kernel(name, order, platform, limit=True)
    assert crossed(simulated, n, budget) <= 1.0
    monkeypatch.setattr(Arithmetic, what, property(lambda self: value))
    assert crossed(simulated, n, budget) > 1.0, f"{name} with {what} = {value}"


def test_the_mean_that_is_merged_needs_a_bound_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partial means may be far larger than sum |x| / n, and the bound of a sum is too small."""
    from assay.oracles.operations.means import mean_before
    from assay.oracles.operations.sums import sum_before
    from assay.oracles.rows import sum_of_magnitudes

    def as_a_sum(x, q, n, claim):
        total = sum_of_magnitudes(x)
        return mean_before(sum_before(total, total, claim), total / n, n, claim)

    honest = kernel("mean_variance merged", "tile", limit=True)
    assert crossed(honest, 40, column=0) <= 1.0
    monkeypatch.setattr(mean_variance, "_merged_mean_error", as_a_sum)
    assert crossed(honest, 40, column=0) > 1.0


def test_subnormal_factors_cut_to_tf32_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "_TF32_SPACING", 0.0)
    assert crossed(kernel("matmul tf32", "tile"), 40) > 1.0


def test_every_cut_of_a_tensor_core_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five errors of 2u for four products: half of that is crossed."""
    simulated = Simulated(
        replace(
            kernel_named("matmul tensor core"), policies={"accumulation": "truncated"}
        ),
        schedule_named("tile"),
    )  # fmt: skip
    n = 512
    x = np.ones((1, n)) * 2.0**-24 * (2.0 - 2.0**-20)
    x[0, 0] = 1.0
    question = ask(simulated, [""], {"x": x, "w": np.ones((n, 1))})
    value = run(simulated, question)
    assert 0.5 < shares(simulated, question, value)[0].max() <= 1.0
    monkeypatch.setattr(matmul, "_STEP", 2**60)
    claim = simulated.claim(n)
    half = replace(claim, policies=dict(claim.policies) | {"accumulation": "nearest"}, depth=n)
    assert shares(simulated, question, value, half)[0].max() > 1.0


def test_a_subnormal_ratio_of_a_scaled_norm_is_noticed() -> None:
    """The floor of a division, times a reciprocal root of at most sqrt(n)."""
    simulated = kernel("rms_norm scaled", "tile", limit=True)
    n = 256
    x = np.full((1, n), 2.0**-149 * 5.0)
    x[0, 0] = 3.0
    question = ask(simulated, [""], {"x": x})
    value = run(simulated, question)
    share = shares(simulated, question, value)[0].max()
    assert 0.1 < share <= 1.0, share
    before = rms_norm.before(question.inputs, question.exact, FP32, simulated.claim(n))
    floor = 2.0 * np.sqrt(n) * simulated.claim(n).arithmetic.division_floor
    error = question.exact.error(value)
    assert (error > before - floor)[0, 1:].any(), "without the floor it is crossed"


def test_a_reciprocal_out_of_range_breaks_the_bound_of_min_max() -> None:
    """Rows too narrow for a reciprocal: a kernel that does not divide there is caught."""

    def naive(inputs, machine):
        low = inputs["x"].amin(dim=1, keepdim=True)
        width = inputs["x"].amax(dim=1, keepdim=True) - low
        return (inputs["x"] - low) * (1.0 / width)

    wrong = Simulated(replace(kernel_named("min_max"), run=naive), schedule_named("tile"))
    assert crossed(wrong, 8) > 1.0
    assert crossed(kernel("min_max by reciprocal", "tile"), 8, 128) <= 1.0


def test_small_errors_are_not_lost_beside_one() -> None:
    """A float64 accumulator's u vanishes in 1 + u; `compounded` never forms that."""
    u = 2.0**-53
    assert compounded(u, u) >= 2.0 * u
    assert (1.0 + u) * (1.0 + u) - 1.0 == 0.0
    simulated = Simulated(kernel_named("mean"), schedule_named("tile"), accumulator=FP64)
    assert 0.25 < search(simulated, 8, 128, SEED).share <= 1.0
