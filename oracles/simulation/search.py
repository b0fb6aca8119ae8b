# SPDX-License-Identifier: Apache-2.0
"""Searching for the inputs at which a simulated kernel comes nearest to its bound.

The objective is the share |value - y| / bound ahead of the final cast. A proved bound is never
crossed, whatever the search tries; one that no search comes near lets errors pass.
The search starts from `assay.oracles.simulation.inputs` and climbs: elements move to a neighbour,
change sign, exponent or place, atomic additions change their order, and primitives the side on
which they err.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.oracles.bounds import ROUND_UP, allowed
from assay.oracles.enclosure import Enclosure
from assay.oracles.formats import BF16, FP32, FP64, Float64, Format, round_nearest
from assay.oracles.operation import Claim, Operation, operation_named
from assay.oracles.simulation.arithmetic import SIDES
from assay.oracles.simulation.catalogue import Simulated
from assay.oracles.simulation.inputs import inputs_of

Sides = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Question:
    """Inputs of one operation with their exact results, to be put to many simulated kernels.

    inputs: float64 arrays by operand, of values that `fmt` holds.
    """

    operation: Operation
    labels: list[str]
    inputs: dict[str, Float64]
    exact: Enclosure
    fmt: Format

    @property
    def n(self) -> int:
        return int(self.inputs["x"].shape[1])

    @property
    def rows(self) -> int:
        return int(self.inputs["x"].shape[0])


def ask(simulated: Simulated, labels: list[str], inputs: dict[str, Float64]) -> Question:
    op, fmt = simulated.operation, simulated.stored
    level = "fine" if simulated.accumulator is FP64 else "fast"
    # float64 data whose squares vanish overflow in the oracle's own splitting, without harm.
    with np.errstate(over="ignore", invalid="ignore"):
        exact = op.enclose(inputs, simulated.params(), simulated.policies(), fmt, level)
    return Question(op, labels, inputs, exact, fmt)


def operands_for(simulated: Simulated, x: Float64, seed: int) -> dict[str, Float64]:
    """x with the other operands that the kernel takes, fixed by the seed."""
    rng, fmt, n = np.random.default_rng(seed), simulated.stored, x.shape[1]
    inputs = {"x": x}
    if "weight" in simulated.kernel.operands:
        inputs["weight"] = round_nearest(rng.choice([-1.0, 1.0], n) * (0.5 + rng.random(n)), fmt)
    if "residual" in simulated.kernel.operands:
        inputs["residual"] = round_nearest(x * (rng.random(x.shape) * 2.0 - 1.2), fmt)
    if "w" in simulated.kernel.operands:
        w = np.stack([np.ones(n), 1.0 + rng.random(n), rng.standard_normal(n)], axis=1)
        inputs["w"] = round_nearest(w, fmt)
    return inputs


@lru_cache(maxsize=64)
def _first(
    name: str, policies: tuple[Any, ...], params: tuple[Any, ...], fmt: Format,
    accumulator: Format, n: int, seed: int, simulated: _Key,
) -> Question:  # fmt: skip
    labels, x = inputs_of(operation_named(name), n, fmt, accumulator, seed)
    return ask(simulated.value, labels, operands_for(simulated.value, x, seed))


@dataclass(frozen=True)
class _Key:
    """A simulated kernel that takes no part in a cache's key: only its kernel's operands do."""

    operands: tuple[str, ...]
    value: Simulated = field(compare=False)


def first_question(simulated: Simulated, n: int, seed: int) -> Question:
    """The inputs that every search begins with; the last few are kept."""
    return _first(
        simulated.operation.name,
        tuple(sorted(simulated.policies().items())),
        tuple(sorted(simulated.params().items())),
        simulated.stored,
        simulated.accumulator,
        n,
        seed,
        _Key(simulated.kernel.operands, simulated),
    )


def run(
    simulated: Simulated,
    question: Question,
    sides: Sides | None = None,
    places: NDArray[np.int64] | None = None,
    device: str = "cpu",
) -> Float64:
    """Results ahead of the final cast as float64, (rows, columns)."""
    import torch

    tensors = {
        name: torch.as_tensor(np.ascontiguousarray(values), device=device)
        for name, values in question.inputs.items()
    }
    chosen = {
        name: torch.as_tensor(values[:, None], device=device)
        for name, values in (sides or {}).items()
    }
    order = None if places is None else torch.as_tensor(places, device=device)
    value = simulated.run(tensors, chosen, order)
    return np.asarray(value.to(torch.float64).cpu().numpy())


def cast(values: Float64, simulated: Simulated) -> Float64:
    """The final cast as the platform makes it."""
    fmt = simulated.stored
    truncates = simulated.platform.is_interpreter and not simulated.kernel.casts_on_host
    if fmt is BF16 and truncates:
        kept = values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
        return np.asarray(kept.view(np.float32).astype(np.float64))
    if simulated.accumulator is FP64 and fmt is not FP64:
        values = round_nearest(values, FP32)
    return round_nearest(values, fmt)


def shares(
    simulated: Simulated, question: Question, value: Float64, claim: Claim | None = None
) -> tuple[Float64, Float64]:
    """(ahead of the cast, behind it): error as a share of the bound and of what is allowed.

    Infinite where a special value is wrong or an error has no room at all; 0 where nothing is
    promised. A result beyond the largest number may become infinite.
    """
    exact, op = question.exact, question.operation
    claim = claim or simulated.claim(question.n)
    with np.errstate(over="ignore", invalid="ignore"):
        before = op.before(question.inputs, exact, question.fmt, claim)
    promised = ~np.isnan(before)
    before = np.where(promised, before, 0.0)
    special = (np.isnan(exact.center) & np.isnan(value)) | (exact.center == value)
    if op.accepts is not None:
        special |= op.accepts(question.inputs, value, exact, claim.policies)
    with np.errstate(invalid="ignore", over="ignore"):
        reach = exact.magnitude() + before
    excused = ~promised | (~exact.finite & special) | (np.isinf(before) & ~np.isnan(value))
    stored = cast(value, simulated)
    with np.errstate(invalid="ignore"):
        limit = allowed(before, exact, question.fmt, claim.arithmetic)
    found = []
    for result, error, most, largest in (
        (value, np.maximum(0.0, exact.error(value) - exact.radius), before * ROUND_UP,
         claim.arithmetic.accumulator.largest),
        (stored, exact.error(stored), limit, question.fmt.largest),
    ):  # fmt: skip
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(error == 0.0, 0.0, error / most)
        beyond = np.isinf(result) & exact.finite & (reach >= largest)
        share = np.where(excused | beyond, 0.0, np.where(np.isnan(share), np.inf, share))
        found.append(share)
    return found[0], found[1]


@dataclass(frozen=True)
class Found:
    """The nearest that a search came to a bound.

    share: highest share of the bound, ahead of the final cast, where it says how large an error is.
    worst: highest share of all, ahead of the cast and behind it: above 1 the bound is broken.
    family: the input that the search began from, and whether it moved on.
    column: of the results. x: the row itself. tried: inputs that were judged.
    """

    share: float
    worst: float
    family: str
    column: int
    x: Float64
    tried: int


# The sides that the first rows are tried with: of (top, exp, log, divide, rsqrt).
_PATTERNS = tuple(itertools.product((1.0, -1.0), repeat=2))


def _patterned(rows: int, top: float, exp: float, rng: np.random.Generator) -> Sides:
    fixed = {"top": top, "exp": exp}
    return {
        name: np.full(rows, fixed[name]) if name in fixed else rng.choice([-1.0, 1.0], rows)
        for name in SIDES
    }


@dataclass
class _Candidates:
    labels: list[str]
    inputs: dict[str, Float64]
    sides: Sides
    places: NDArray[np.int64] | None
    share: Float64
    worst: Float64
    column: NDArray[np.int64]

    def best(self, count: int) -> _Candidates:
        top = np.argsort(-self.share, kind="stable")[:count]
        return self.chosen(top)

    def chosen(self, rows: NDArray[np.int64]) -> _Candidates:
        return _Candidates(
            [self.labels[i] for i in rows],
            {k: v[rows] if _by_row(k) else v for k, v in self.inputs.items()},
            {k: v[rows] for k, v in self.sides.items()},
            None if self.places is None else self.places[rows],
            self.share[rows],
            self.worst[rows],
            self.column[rows],
        )


def _by_row(operand: str) -> bool:
    return operand in ("x", "residual")


def _joined(a: _Candidates, b: _Candidates) -> _Candidates:
    return _Candidates(
        a.labels + b.labels,
        {k: np.concatenate([v, b.inputs[k]]) if _by_row(k) else v for k, v in a.inputs.items()},
        {k: np.concatenate([v, b.sides[k]]) for k, v in a.sides.items()},
        None if a.places is None or b.places is None else np.concatenate([a.places, b.places]),
        np.concatenate([a.share, b.share]),
        np.concatenate([a.worst, b.worst]),
        np.concatenate([a.column, b.column]),
    )


def _judged(
    simulated: Simulated,
    question: Question,
    sides: Sides,
    places: NDArray[np.int64] | None,
    device: str,
    column: int | None,
) -> _Candidates:
    value = run(simulated, question, sides, places, device)
    ahead, behind = shares(simulated, question, value)
    worst = np.maximum(ahead, behind).max(axis=1)
    sized = np.where(_overflows(simulated, question)[:, None], 0.0, ahead)
    if column is not None:
        sized = sized[:, column : column + 1]
    return _Candidates(
        question.labels, question.inputs, sides, places, sized.max(axis=1), worst,
        sized.argmax(axis=1) + (column or 0),
    )  # fmt: skip


def _overflows(simulated: Simulated, question: Question) -> NDArray[np.bool_]:
    """Rows whose squares overflow in the accumulator: anything between 0 and 2y is allowed."""
    x = question.inputs["x"]
    if simulated.operation.name != "rms_norm":
        return np.zeros(len(x), dtype=bool)
    h = np.abs(x) + np.abs(question.inputs.get("residual", 0.0))
    with np.errstate(over="ignore"):
        return np.asarray((h * h).sum(axis=1) >= 0.5 * simulated.accumulator.largest)


def _permutations(rows: int, count: int, rng: np.random.Generator) -> NDArray[np.int64] | None:
    if count == 0:
        return None
    places = rng.permuted(np.tile(np.arange(count), (rows, 1)), axis=1)
    places[::2] = np.arange(count)
    return places


def search(
    simulated: Simulated,
    n: int,
    budget: int,
    seed: int,
    *,
    column: int | None = None,
    device: str = "cpu",
) -> Found:
    """The highest share of the bound for rows of n elements.

    budget: inputs tried in climbing, beside those that the search begins with.
    column: the result to look at, where a row has several; None for all of them.
    """
    rng = np.random.default_rng(seed)
    question = first_question(simulated, n, seed)
    partials = simulated.schedule.partials(n)
    patterns = _PATTERNS if simulated.at_limit else _PATTERNS[:1]
    pool: _Candidates | None = None
    tried = 0
    for top, exp in patterns:
        sides = _patterned(question.rows, top, exp, rng)
        places = _permutations(question.rows, partials, rng)
        found = _judged(simulated, question, sides, places, device, column)
        pool = found if pool is None else _joined(pool, found)
        tried += question.rows
    assert pool is not None
    # What a start with a lesser share broke must show as well.
    worst = float(pool.worst.max())
    parents = pool.best(_PARENTS)
    while budget > 0 and not simulated.kernel.exact:
        children = _mutated(parents, simulated, rng, min(budget, _CHILDREN))
        question = ask(simulated, children.labels, children.inputs)
        judged = _judged(simulated, question, children.sides, children.places, device, column)
        worst = max(worst, float(judged.worst.max()))
        parents = _joined(parents, judged).best(_PARENTS)
        budget -= question.rows
        tried += question.rows
    return Found(
        float(parents.share[0]), worst, parents.labels[0], int(parents.column[0]),
        parents.inputs["x"][0], tried,
    )  # fmt: skip


_PARENTS = 8
_CHILDREN = 64


def _mutated(
    parents: _Candidates, simulated: Simulated, rng: np.random.Generator, count: int
) -> _Candidates:
    chosen = rng.integers(0, len(parents.labels), count)
    children = parents.chosen(chosen)
    fmt = simulated.stored
    for operand in children.inputs:
        if _by_row(operand):
            values = children.inputs[operand].copy()
            for row in values:
                _move(row, fmt, rng)
            children.inputs[operand] = values
    for name in SIDES:
        turned = rng.random(count) < (0.15 if simulated.at_limit else 0.0)
        children.sides[name] = np.where(turned, -children.sides[name], children.sides[name])
    if children.places is not None:
        for row in children.places:
            if rng.random() < 0.5:
                i, j = rng.integers(0, row.size, 2)
                row[i], row[j] = row[j], row[i]
    children.labels = [
        name if name.endswith("climbed") else f"{name}, climbed" for name in children.labels
    ]
    return children


@np.errstate(all="ignore")
def _move(row: Float64, fmt: Format, rng: np.random.Generator) -> None:
    """One random change of a row, in place, to values that the format holds."""
    n = row.size
    kind = int(rng.integers(0, 9))
    some = rng.integers(0, n, 1 + int(rng.integers(0, 3)))
    if kind == 7 and n > 1:
        some = np.arange(*np.sort(rng.integers(0, n + 1, 2)))
        kind = int(rng.integers(0, 3))
    if kind in (0, 1, 7):
        step = np.exp2(np.floor(np.log2(np.maximum(np.abs(row[some]), fmt.smallest_normal))))
        steps = rng.integers(1, 1 << int(rng.integers(1, 12)), some.size)
        row[some] += rng.choice([-1.0, 1.0]) * steps * step * 2.0 ** (1 - fmt.precision)
    elif kind == 2:
        row[some] *= 2.0 ** rng.integers(-2, 3, some.size)
    elif kind == 3:
        row[some] = -row[some]
    elif kind == 4:
        row[some] = row[rng.integers(0, n)]
    elif kind == 5:
        other = rng.integers(0, n, some.size)
        row[some], row[other] = row[other], row[some].copy()
    elif kind == 6:
        row[some] *= 1.0 + rng.standard_normal(some.size) * 2.0 ** -int(rng.integers(1, 20))
    else:
        row *= 1.0 + rng.standard_normal() * 2.0 ** -int(rng.integers(1, 20))
    row[:] = round_nearest(row, fmt)
    row[np.isnan(row) | np.isposinf(row)] = 1.0
