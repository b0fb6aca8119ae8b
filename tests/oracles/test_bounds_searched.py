# SPDX-License-Identifier: Apache-2.0
"""No bound is crossed by any simulated kernel, and none is so wide that nothing comes near it.

Every algorithm of every operation is simulated in every order of summation with every set of
primitives (`assay.oracles.simulation.catalogue`), on inputs made to drive its error up
(`assay.oracles.simulation.inputs`); a few are climbed on from there.
`benchmarks/bound_search.py` searches longer.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from assay.oracles.depth import Sequential, TileLoop
from assay.oracles.formats import BF16, FP16, FP32, Format
from assay.oracles.operation import operations
from assay.oracles.simulation.catalogue import (
    IN_THREADS,
    INTERPRETER,
    PAIRWISE,
    Simulated,
    catalogue,
)
from assay.oracles.simulation.kernels import KERNELS, kernel_named
from assay.oracles.simulation.orders import schedule_named
from assay.oracles.simulation.search import Found, search

LENGTH, SEED = 40, 3
# A bound of which no input reaches this share would let too much pass.
NOT_VACUOUS = 0.25
# What every single order and set of primitives must reach.
REACHED = 0.01

# (algorithm, column of the results): what every way and the best one must reach instead, and why.
EXPLAINED = {
    ("mean_variance merged", 0): (
        0.01,
        0.05,
        "E takes every merge with all its roundings in one direction and means as large as max |x|",
    ),
    ("mean_variance updated", 0): (0.01, 0.05, "as for merges"),
    ("mean_variance merged", 1): (
        0.001,
        NOT_VACUOUS,
        "E once more, taken for all partial means at once and largest where the deviations are",
    ),
    ("mean_variance updated", 1): (0.001, NOT_VACUOUS, "as for merges"),
}


def columns_of(simulated: Simulated) -> list[int | None]:
    return [0, 1] if simulated.operation.name == "mean_variance" else [None]


def ways(name: str) -> list[Simulated]:
    """How an algorithm is run here: in every order, with the primitives that differ most.

    The first algorithm of an operation runs with all of them, and so does each in the benchmark.
    """
    kernel = kernel_named(name)
    first = next(k for k in KERNELS if k.operation == kernel.operation) is kernel
    return [
        s
        for s in catalogue(kernel.operation)
        if s.kernel is kernel
        and (s.platform != IN_THREADS or (first and not s.schedule.order.compensated))
        and (s.accumulator is FP32 or (first and not s.at_limit))
    ]


@cache
def searched(name: str, length: int) -> list[tuple[Simulated, int | None, Found]]:
    """What the search finds for each way to run an algorithm, without climbing."""
    return [
        (s, column, search(s, length, 0, SEED, column=column))
        for s in ways(name)
        for column in columns_of(s)
    ]


def assert_kept(simulated: Simulated, found: Found) -> None:
    assert found.worst <= 1.0, (
        f"{simulated}: the bound is broken: an error of {found.worst} of it for {found.family}: "
        f"x = {[v.hex() for v in found.x[:8].tolist()]}..."
    )


NAMES = [k.name for k in KERNELS]


def test_every_operation_is_simulated() -> None:
    assert {k.operation for k in KERNELS} == set(operations())
    orders = {type(s.schedule.order).__name__ for s in catalogue("sum")}
    assert orders == {
        "Sequential", "Tile", "TileThenAtomics", "TileLoop", "GridStride", "TwoStage"
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_no_bound_is_crossed(name: str) -> None:
    for simulated, _, found in searched(name, LENGTH):
        assert_kept(simulated, found)


@pytest.mark.parametrize("length", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_no_bound_is_crossed_by_short_rows(name: str, length: int) -> None:
    """With an addition or none, the other roundings of a formula are all there is."""
    for simulated in ways(name):
        if isinstance(simulated.schedule.order, (Sequential, TileLoop)):
            assert_kept(simulated, search(simulated, length, 0, SEED))


@pytest.mark.parametrize("fmt", [FP16, BF16], ids=lambda f: f.name)
@pytest.mark.parametrize("name", NAMES)
def test_no_bound_is_crossed_behind_the_cast_to_16_bits(name: str, fmt: Format) -> None:
    kernel = kernel_named(name)
    schedule = schedule_named("sequential" if kernel.online else "tile")
    for platform in (INTERPRETER, PAIRWISE):
        simulated = Simulated(kernel, schedule, platform, at_limit=not kernel.exact, stored_as=fmt)
        assert_kept(simulated, search(simulated, LENGTH, 0, SEED))


def climbed() -> list[Simulated]:
    """One order, and the primitives that may err most, of every algorithm that can err."""
    chosen = []
    for kernel in KERNELS:
        if kernel.exact:
            continue
        ways = [s for s in catalogue(kernel.operation) if s.kernel is kernel]
        chosen.append(max(ways, key=lambda s: (s.at_limit, s.platform == PAIRWISE)))
    return [*chosen, Simulated(kernel_named("sum"), schedule_named("tile, then atomics"), PAIRWISE)]


@pytest.mark.parametrize("simulated", climbed(), ids=str)
def test_no_bound_is_crossed_by_climbing(simulated: Simulated) -> None:
    started = search(simulated, 16, 0, SEED)
    found = search(simulated, 16, 320, SEED)
    assert_kept(simulated, found)
    assert found.share >= started.share, "climbing keeps the best"


@pytest.mark.parametrize("name", [k.name for k in KERNELS if not k.exact])
def test_every_bound_is_reached(name: str) -> None:
    best: dict[int | None, float] = {}
    for simulated, column, found in searched(name, LENGTH):
        least, _, why = EXPLAINED.get((name, column), (REACHED, NOT_VACUOUS, ""))
        assert found.share >= least, (
            f"{simulated}, result {column}: no input reaches more than {found.share} of its bound, "
            f"expected {least}. {why}"
        )
        best[column] = max(best.get(column, 0.0), found.share)
    for column, share in best.items():
        _, least, why = EXPLAINED.get((name, column), (REACHED, NOT_VACUOUS, ""))
        assert share >= least, f"{name}, result {column}: {share} of its bound at most. {why}"


@pytest.mark.parametrize("name", [k.name for k in KERNELS if k.exact])
def test_exact_results_have_no_room(name: str) -> None:
    for simulated, _, found in searched(name, LENGTH):
        assert found.share == 0.0, f"{simulated}: an error where none is allowed"


def test_the_search_sees_a_broken_bound() -> None:
    """A kernel that adds one element after another and claims a tree."""
    honest = Simulated(kernel_named("sum"), schedule_named("sequential"))
    claims = replace(honest, schedule=replace(schedule_named("tile"), name="sequential"))

    class Wrong(Simulated):
        def claim(self, n, confidence=None):
            return claims.claim(n, confidence)

    wrong = Wrong(honest.kernel, honest.schedule)
    assert search(honest, LENGTH, 0, SEED).worst <= 1.0
    assert search(wrong, LENGTH, 0, SEED).worst > 1.0, "forty additions pass for a tree's"
