# SPDX-License-Identifier: Apache-2.0
"""Bounds beside errors that are known by hand, long rows, and kernels that are wrong.

The search of `test_bounds_searched.py` knows no reason for what it finds; here are the reasons.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from assay.oracles.bounds import allowed, gamma
from assay.oracles.formats import BF16, FP16, FP32, FP64, Format, round_nearest
from assay.oracles.generators import generate
from assay.oracles.operation import operation_named
from assay.oracles.simulation.catalogue import INTERPRETER, PAIRWISE, Simulated
from assay.oracles.simulation.kernels import KERNELS, kernel_named
from assay.oracles.simulation.orders import schedule_named
from assay.oracles.simulation.search import Question, ask, operands_for, run, shares

U = FP32.u
NOT_VACUOUS = 0.25


def simulated(name: str, order: str, platform=INTERPRETER, **others) -> Simulated:
    return Simulated(kernel_named(name), schedule_named(order), platform, **others)


def asked(kernel: Simulated, x: np.ndarray) -> Question:
    return ask(kernel, [""] * len(x), operands_for(kernel, round_nearest(x, kernel.stored), 1))


def judged(kernel: Simulated, x: np.ndarray) -> tuple[float, float, np.ndarray]:
    """(share of the bound, share behind the cast, errors)."""
    question = asked(kernel, x)
    value = run(kernel, question)
    ahead, behind = shares(kernel, question, value)
    return float(ahead.max()), float(behind.max()), question.exact.error(value)


def test_a_sequential_norm_loses_every_square() -> None:
    """1, then squares of u: each addition is a tie that goes down, and all of them are lost."""
    n = 4000
    x = np.full((1, n), 2.0**-12)
    x[0, 0] = 1.0
    share, _, error = judged(simulated("l2_norm", "sequential", PAIRWISE), x)
    assert NOT_VACUOUS <= share <= 1.0, f"n - 1 roundings in one direction fill {share}"
    # S = 1 + (n - 1) u and S^ = 1: (n - 1) u / 2 to first order, and less than its square off that.
    lost = (n - 1) * U / 2.0
    assert abs(error[0, 0] - lost) <= lost**2, f"they lose {error[0, 0] / U}u, by hand {lost / U}u"


def test_a_lost_atomic_addition_a_tile_fills_the_bound() -> None:
    """The first tile sums to 1 and every other one to u."""
    tiles = 400
    x = np.zeros((1, tiles * 16))
    x[0, ::16] = U
    x[0, 0] = 1.0
    share, _, error = judged(simulated("sum", "tile, then atomics", PAIRWISE), x)
    assert error[0, 0] == (tiles - 1) * U
    assert NOT_VACUOUS <= share <= 1.0, share


def test_a_lost_addition_a_level_fills_the_bound_of_a_tree() -> None:
    levels = 12
    x = np.zeros((1, 1 << levels))
    x[0, 0] = 1.0
    x[0, 1 << np.arange(levels)] = U
    share, _, error = judged(simulated("sum", "tile", PAIRWISE), x)
    assert error[0, 0] == levels * U
    assert 0.9 <= share <= 1.0, share


def test_eight_ones_fill_the_bound_of_the_order_of_numpy() -> None:
    """Eight ones, then u: each of numpy's eight running sums loses 15 of them."""
    x = np.full((1, 128), U)
    x[0, :8] = 1.0
    share, _, error = judged(simulated("sum", "tile"), x)
    assert error[0, 0] == 120.0 * U
    assert 0.8 <= share <= 1.0, share


def test_far_terms_of_softmax_lose_tens_of_u() -> None:
    """At a distance of 80 from the maximum the product with log2 e alone errs by tens of u."""
    x = np.r_[0.0, np.linspace(-85.0, -75.0, 2001)][None, :]
    kernel = simulated("softmax", "tile", PAIRWISE, at_limit=True)
    question = asked(kernel, x)
    value = run(kernel, question)
    relative = question.exact.error(value)[0, 1:] / question.exact.center[0, 1:]
    assert relative.max() > 30.0 * U, f"{relative.max() / U}u"
    assert NOT_VACUOUS <= shares(kernel, question, value)[0].max() <= 1.0


def test_roundings_of_equal_exponentials_all_go_one_way() -> None:
    """2047 equal terms, each too small by nearly all that the argument's roundings may do."""
    n, maximum = 2048, float(np.float32(1.0 / 3.0))
    rows = np.tile(np.linspace(-6.5, -6.0, 200)[:, None], (1, n))
    rows[:, 0] = maximum
    share, _, _ = judged(simulated("logsumexp", "compensated tile", PAIRWISE, at_limit=True), rows)
    assert NOT_VACUOUS <= share <= 1.0, share


@pytest.mark.parametrize("eps", [0.0, 2.0**-20, 2.0**-130])
@pytest.mark.parametrize("platform", [INTERPRETER, PAIRWISE], ids=lambda p: p.device)
def test_no_eps_breaks_the_bound_at_any_scale(platform, eps: float) -> None:
    rng = np.random.default_rng(3)
    scales = 2.0 ** np.arange(-70, 64, 3)[:, None]
    x = rng.standard_normal((scales.size, 64)) * scales
    atomics = "tile, then atomics" if platform.is_interpreter else "tile, then atomics that flush"
    for order in ("sequential", "tile", atomics):
        kernel = simulated("rms_norm", order, platform, at_limit=True)
        kernel = replace(kernel, kernel=replace(kernel.kernel, params={"eps": eps}))
        share, behind, _ = judged(kernel, x)
        assert max(share, behind) <= 1.0, f"{kernel}, eps = {eps}: {share}"


@pytest.mark.parametrize("kernel", [k for k in KERNELS if not k.exact], ids=lambda k: k.name)
def test_no_long_row_breaks_its_bound(kernel) -> None:
    orders = ["sequential"] if kernel.online else ["tile", "tile loop"]
    for family in operation_named(kernel.operation).families:
        x = generate(family, 3, 100 if kernel.online else 700, 11, FP32)
        for order in orders if kernel.ordered else ["tile"]:
            chosen = Simulated(kernel, schedule_named(order), PAIRWISE, at_limit=True)
            share, behind, _ = judged(chosen, x)
            assert max(share, behind) <= 1.0, f"{chosen} of {family}: {share}, {behind}"


@pytest.mark.parametrize("fmt", [FP16, BF16], ids=lambda f: f.name)
def test_the_last_rounding_fills_what_it_is_allowed(fmt: Format) -> None:
    x = generate("normal", 1, 2000, 5, fmt)
    _, behind, _ = judged(simulated("softmax", "tile", PAIRWISE, stored_as=fmt), x)
    assert NOT_VACUOUS <= behind <= 1.0, f"{fmt.name}: {behind} of what is allowed"


@pytest.mark.parametrize("fmt", [FP64, FP32, FP16, BF16], ids=lambda f: f.name)
def test_a_float64_accumulator_is_held_to_its_own_bound(fmt: Format) -> None:
    kernel = simulated("l2_norm", "tile", accumulator=FP64, stored_as=fmt)
    for family in ("normal", "constant", "wide"):
        for n in (1, 2, 3, 1000):
            question = asked(kernel, generate(family, 100, n, 29, fmt))
            ahead, behind = shares(kernel, question, run(kernel, question))
            what = f"{kernel} of {family}, n = {n}"
            assert max(ahead.max(), behind.max()) <= 1.0, what
            before = operation_named("l2_norm").before(
                question.inputs, question.exact, fmt, kernel.claim(n)
            )
            depth = kernel.claim(n).depth
            own = gamma(depth + 4, FP64.u) * question.exact.magnitude() + 2.0**-1072
            assert (before <= own).all(), f"{what}: that is no bound in units of float64"


def test_wrong_sums_break_the_bound() -> None:
    """Wrong kernels, each judged by the bound of the right one."""
    n = 2000
    x = generate("normal", 2, n, 7, FP32)
    kernel = simulated("l2_norm", "tile", PAIRWISE)
    question = asked(kernel, x)
    claim = kernel.claim(n)
    before = operation_named("l2_norm").before(question.inputs, question.exact, FP32, claim)
    limit = allowed(before, question.exact, FP32, claim.arithmetic)
    squares = x.astype(np.float32) ** 2
    halves = (x.astype(np.float16) ** 2).astype(np.float32)
    for what, out, passes in (
        ("the right one", np.sqrt(squares.sum(axis=1)), True),
        ("a dropped element", np.sqrt(squares[:, 1:].sum(axis=1)), False),
        ("an element twice", np.sqrt(squares.sum(axis=1) + squares[:, 0]), False),
        ("squares in float16", np.sqrt(halves.sum(axis=1)), False),
        (
            "the root before the combine",
            np.sqrt(squares.reshape(2, 40, 50).sum(axis=2)).sum(axis=1),
            False,
        ),
        ("what one expects of normal data", np.full(2, np.float32(math.sqrt(n))), False),
    ):
        error = question.exact.error(out.astype(np.float64)[:, None])
        within = error <= limit
        assert (within == passes).all(), f"{what}: error {error.ravel()}, allowed {limit.ravel()}"
