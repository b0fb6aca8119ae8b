# SPDX-License-Identifier: Apache-2.0
"""Simulated kernels are what they say: orders of the claimed depth, primitives of known error."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from assay.oracles.depth import Sequential
from assay.oracles.formats import FP32, FP64, ulp
from assay.oracles.generators import generate
from assay.oracles.simulation.arithmetic import (
    Primitives,
    correct_root,
    flushed,
    last_within,
    product_error,
    two_sum,
    ulp_of,
)
from assay.oracles.simulation.catalogue import (
    IN_THREADS,
    INTERPRETER,
    PAIRWISE,
    Simulated,
    catalogue,
)
from assay.oracles.simulation.kernels import KERNELS, kernel_named
from assay.oracles.simulation.orders import SCHEDULES, Folder, schedule_named
from assay.oracles.simulation.search import first_question, run

PLATFORMS = (INTERPRETER, PAIRWISE, IN_THREADS)
# Absorbs every one beside it, in float32: ulp(2**60) is 2**37.
BIG = 2.0**60


def added(schedule, platform, rows: np.ndarray) -> np.ndarray:
    folder = Folder(schedule, platform)
    terms = torch.as_tensor(rows.astype(np.float32))
    return folder.fold((terms,), lambda a, b: (a[0] + b[0],), (0.0,))[0].numpy()


def deepest(schedule, platform, n: int) -> int:
    """Additions on the longest path, read off the sums of probes.

    Row j has BIG at a leaf and -BIG at j among ones: n - sum is the size of the smallest subtree
    that holds both, and the leaf's path has as many additions as there are sizes.
    """
    found = 0
    for leaf in range(n):
        rows = np.ones((n, n))
        rows[:, leaf] = BIG
        rows[np.arange(n), np.arange(n)] = -BIG
        sums = np.delete(added(schedule, platform, rows), leaf)
        found = max(found, len(set((n - sums).tolist())))
    return found


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda p: f"{p.device}-{p.triton}")
@pytest.mark.parametrize(
    "schedule",
    [s for s in SCHEDULES if not (s.flush or s.order.compensated or "online" in s.name)],
    ids=lambda s: s.name,
)
def test_an_order_has_the_depth_that_it_claims(schedule, platform) -> None:
    for n in (1, 2, 7, 33, 64):
        config = schedule.launched(n)
        claim = schedule.order.depth(n, config, "float32", platform)
        depth = deepest(schedule, platform, n) if n > 1 else 0
        assert depth <= claim, f"{schedule.name}, n = {n}: {depth} additions, claimed {claim}"
        # Into a zero the first addition of each stage rounds nothing.
        slack = 0 if isinstance(schedule.order, Sequential) or schedule.name == "tile" else 3
        if n == 64:
            assert depth >= claim - slack, f"{schedule.name}: {depth} additions, claimed {claim}"


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: s.name)
def test_sums_that_round_nothing_are_the_same_in_every_order(schedule) -> None:
    x = generate("integers", 50, 77, 3, FP32)
    for platform in PLATFORMS:
        assert (added(schedule, platform, x) == x.sum(axis=1)).all(), schedule.name


def test_atomic_additions_come_in_the_order_that_is_asked_for() -> None:
    schedule = schedule_named("tile, then atomics")
    x = np.zeros((2, 48))
    x[:, [0, 16, 32]] = [BIG, -BIG, 1.0]
    places = torch.tensor([[0, 1, 2], [0, 2, 1]])
    folder = Folder(schedule, PAIRWISE, places=places)
    total = folder.fold(
        (torch.as_tensor(x.astype(np.float32)),), lambda a, b: (a[0] + b[0],), (0.0,)
    )
    assert total[0].tolist() == [1.0, 0.0], "the one is absorbed where it comes second"


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
def test_every_simulated_kernel_is_near_the_truth(kernel) -> None:
    """An algorithm that is wrong would show as an error, never as a bound that is too wide."""
    for simulated in catalogue(kernel.operation):
        if simulated.kernel is not kernel or simulated.accumulator is not FP64:
            continue
        question = first_question(simulated, 20, 1)
        value = run(simulated, question)
        exact = question.exact
        rows = [i for i, name in enumerate(question.labels) if name in ("uniform", "integers")]
        error = exact.error(value)[rows]
        ordinary = np.isfinite(exact.center[rows]) & (np.abs(exact.center[rows]) > 0.01)
        assert (error[ordinary] <= 2.0**-38 * np.abs(exact.center[rows][ordinary])).all(), str(
            simulated
        )


# --- primitives -----------------------------------------------------------------------------------


def test_ulps_are_those_of_the_format() -> None:
    values = np.r_[0.0, 2.0 ** np.arange(-149.0, 128.0), 1.5 * 2.0 ** np.arange(-149.0, 127.0)]
    assert (ulp_of(torch.as_tensor(values), FP32).numpy() == ulp(values, FP32)).all()


def test_the_last_value_within_a_limit() -> None:
    limit = torch.tensor(
        [1.0 + 2.0**-24, 1.0 + 2.0**-24, 1.0, -1.0 - 2.0**-24], dtype=torch.float64
    )
    side = torch.tensor([1.0, -1.0, 1.0, 1.0], dtype=torch.float64)
    up = 1.0 + 2.0**-23
    assert last_within(limit, side).tolist() == [1.0, up, 1.0, -up]


def relative_errors(primitives: Primitives, what: str, x: np.ndarray) -> np.ndarray:
    shown = torch.as_tensor(x.astype(np.float32))
    exact = {"exp": np.exp, "log": np.log, "rsqrt": lambda v: 1.0 / np.sqrt(v)}[what]
    truth = exact(shown.numpy().astype(np.float64))
    return (getattr(primitives, what)(shown).numpy().astype(np.float64) - truth) / truth


@pytest.mark.parametrize("side", [1.0, -1.0])
@pytest.mark.parametrize(
    ("what", "platform", "limit"),
    [
        ("exp", INTERPRETER, 5.04 * FP32.u),
        ("exp", PAIRWISE, 4.0 * FP32.u),
        ("rsqrt", PAIRWISE, 2.0**-22.9),
        ("log", INTERPRETER, 7.7 * FP32.u),
        ("log", PAIRWISE, 5.05 * FP32.u),
    ],
)
def test_primitives_at_their_limit_reach_it_and_keep_it(what, platform, limit, side) -> None:
    x = np.linspace(2.1, 2.9, 4001) if what == "log" else np.linspace(0.01, 0.05, 4001)
    x = np.linspace(3.0, 5.0, 4001) if what == "log" else x
    sides = {
        name: torch.full((1, 1), side, dtype=torch.float64) for name in ("exp", "log", "rsqrt")
    }
    found = relative_errors(Primitives(platform, FP32, at_limit=True, sides=sides), what, x[None])
    arithmetic = platform.arithmetic()
    grown = limit + (arithmetic.exp_growth * 0.05 if what == "exp" else 0.0)
    assert (np.abs(found) <= grown * (1.0 + 2.0**-18)).all(), f"{np.abs(found).max()} of {grown}"
    assert np.abs(found).max() >= 0.85 * limit, f"{np.abs(found).max()} of {limit}"
    assert (np.sign(found) == side).mean() > 0.99, "to the side that was asked for"


@pytest.mark.parametrize("what", ["exp", "log", "rsqrt"])
def test_correctly_rounded_primitives_are_off_by_half_an_ulp(what) -> None:
    x = np.linspace(1.5, 40.0, 5001)
    found = np.abs(relative_errors(Primitives(INTERPRETER), what, x))
    assert found.max() <= (2.001 if what == "rsqrt" else 1.0) * FP32.u


def test_the_root_is_correctly_rounded_whatever_torch_does() -> None:
    x = torch.linspace(1.0, 4.0, 200_001)
    assert (correct_root(x).numpy() == np.sqrt(x.numpy())).all()
    # The library that torch calls on a CPU may be off by an ulp, which is what is claimed of it.
    off = np.abs(x.sqrt().numpy().astype(np.float64) - np.sqrt(x.numpy().astype(np.float64)))
    limit = INTERPRETER.arithmetic().host_sqrt
    assert (off <= limit * np.sqrt(x.numpy().astype(np.float64))).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_two_sum_and_products_keep_what_is_rounded_away(dtype) -> None:
    generator = torch.Generator().manual_seed(2)
    a = torch.randn(5000, generator=generator, dtype=dtype)
    b = torch.randn(5000, generator=generator, dtype=dtype) * 1e3
    s, e = two_sum(a, b)
    p = a * b
    low = product_error(a, b, p)
    for i in range(300):
        x, y = Fraction(a[i].item()), Fraction(b[i].item())
        assert Fraction(s[i].item()) + Fraction(e[i].item()) == x + y
        assert Fraction(p[i].item()) + Fraction(low[i].item()) == x * y


def test_flushing_takes_subnormals_alone() -> None:
    x = torch.tensor([2.0**-126, -(2.0**-127), 2.0**-149, 0.0, 1.0])
    assert flushed(x, FP32).tolist() == [2.0**-126, 0.0, 0.0, 0.0, 1.0]


def test_a_claim_is_that_of_the_order() -> None:
    simulated = Simulated(kernel_named("softmax"), schedule_named("online split rows"), PAIRWISE)
    claim = simulated.claim(40)
    assert claim.rescales == simulated.schedule.order.rescales(40, simulated.schedule.config)
    assert not claim.compensated
    assert simulated.claim(40, 5.5).confidence == 5.5
