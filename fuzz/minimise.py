# SPDX-License-Identifier: Apache-2.0
"""Minimising: the smallest input that still fails the same check, by re-running the kernel.

Smaller means, in this order: fewer elements, simpler description, simpler values, smaller launch.
Each step proposes a change, runs the check again on the changed case and keeps the change if the
check still fails. Nothing is assumed about the kernel; the result is a case that was seen to fail.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from assay.kernels.record import Kernel
from assay.oracles.formats import Float64, format_named
from assay.oracles.operation import operation_named
from assay.properties.case import Case, Layout, Literal, Recipe, build, literal_values
from assay.properties.checks import run_check
from assay.properties.judge import Verdict
from assay.properties.launch import supports
from assay.properties.values import parse_value, value_text

# Captured tensors are spelled out up to here, one row of them at least.
_LITERAL_ELEMENTS = 1 << 16
# A recipe of more elements than this is a smaller description than its values.
_RECIPE_ELEMENTS = 4096
_SHORTEST = 8


@dataclass
class Minimised:
    """The smallest failing case found, its verdict, and what it took."""

    case: Case
    verdict: Verdict
    trials: int
    exhausted: bool  # the budget ended before no step helped any more


class _Search:
    def __init__(
        self,
        kernel: Kernel,
        check: str,
        case: Case,
        verdict: Verdict,
        trials: int,
        seconds: float,
        base: Path | None,
    ) -> None:
        self.kernel, self.check = kernel, check
        self.case, self.verdict = case, verdict
        self.left, self.base = trials, base
        self.deadline = time.monotonic() + seconds
        self.trials = 0
        self.seen: set[bytes] = set()

    @property
    def over(self) -> bool:
        return self.trials >= self.left or time.monotonic() > self.deadline

    def attempt(self, case: Case) -> bool:
        """Keep `case` if the check fails on it."""
        key = msgspec.json.encode(case)
        if self.over or case == self.case or key in self.seen:
            return False
        self.seen.add(key)
        try:
            problem = build(case, self.base)
        except ValueError:  # a special element outside the smaller shape
            return False
        if supports(self.kernel, problem) is not None:
            return False
        self.trials += 1
        (verdict,) = run_check(self.check, self.kernel, [problem])
        if not verdict.failed:
            return False
        self.case, self.verdict = case, verdict
        return True

    def until_stuck(self, steps: Callable[[Case], Iterator[Case]]) -> bool:
        """Take the first step that works, again and again; whether any did."""
        any_worked = False
        worked = True
        while worked and not self.over:
            worked = False
            for candidate in steps(self.case):
                if self.attempt(candidate):
                    any_worked = worked = True
                    break
        return any_worked


def minimise(
    kernel: Kernel,
    check: str,
    case: Case,
    verdict: Verdict,
    *,
    trials: int = 2000,
    seconds: float = 60.0,
    base: Path | None = None,
) -> Minimised:
    """The smallest case on which `check` still fails for `kernel`, within a budget.

    verdict: the failing verdict on `case`. base: where relative paths of the case are seen from.
    """
    search = _Search(kernel, check, case, verdict, trials, seconds, base)
    _one_row(search)
    for _ in range(3):
        moved = search.until_stuck(_simpler_description)
        moved |= search.until_stuck(_smaller_shape)
        if not moved:
            break
    _spell_out(search)
    while not search.over:
        moved = search.until_stuck(_fewer_columns)
        moved |= search.until_stuck(_fewer_rows)
        moved |= search.until_stuck(_simpler_values)
        moved |= search.until_stuck(_simpler_description)
        if not moved:
            break
    return Minimised(search.case, search.verdict, search.trials, search.over)


def _one_row(search: _Search) -> None:
    """Cut a large input down to the row that the verdict blames, if that row fails alone."""
    row = search.verdict.details.get("row")
    case = search.case
    if case.rows <= 1 or not isinstance(row, int):
        return
    problem = build(case, search.base)
    if problem.n > _LITERAL_ELEMENTS:
        return
    operands = dict(case.operands)
    for name, tensor in problem.tensors.items():
        matrix = problem.operation.operand(name).shape == "matrix"
        values = tensor.values[row : row + 1] if matrix else tensor.values
        operands[name] = literal_values(values)
    search.attempt(replace(case, rows=1, operands=operands))


def _simpler_description(case: Case) -> Iterator[Case]:
    for name in list(case.operands):
        if name != "x":
            yield replace(case, operands={k: v for k, v in case.operands.items() if k != name})
    if case.layout != Layout():
        yield replace(case, layout=Layout())
        yield replace(case, layout=Layout(row_gap=min(1, case.layout.row_gap)))
    if case.launch:
        yield replace(case, launch={})
    if case.params:
        yield replace(case, params={})
    for name, data in case.operands.items():
        if not isinstance(data, Recipe):
            continue
        simpler = []
        for family in ("ones", "integers"):
            if data.family == family:
                break
            simpler.append(Recipe(family, 0, 0, data.specials))
        if data.scale:
            simpler.append(replace(data, scale=0))
        if data.seed:
            simpler.append(replace(data, seed=0))
        for i in range(len(data.specials)):
            rest = data.specials[:i] + data.specials[i + 1 :]
            simpler.append(replace(data, specials=rest))
        for recipe in simpler:
            yield replace(case, operands=case.operands | {name: recipe})


def _smaller_shape(case: Case) -> Iterator[Case]:
    if any(not isinstance(d, Recipe) for d in case.operands.values()):
        return
    for n in _smaller(case.n):
        yield replace(case, n=n, launch={})
        if case.launch:
            yield replace(case, n=n)
    if case.rows > 1:
        for rows in _smaller(case.rows):
            yield replace(case, rows=rows)


def _smaller(count: int) -> Iterator[int]:
    """The first few, then cuts by a half, a quarter, an eighth, ... down to one less."""
    tried = set()
    halves = (count - (count >> k) for k in range(1, count.bit_length()))
    for candidate in (1, 2, 3, 4, 5, count // 4, *halves, count - 1):
        if 0 < candidate < count and candidate not in tried:
            tried.add(candidate)
            yield candidate


def _spell_out(search: _Search) -> None:
    """Turn recipes into literal values where there are few enough of them."""
    case = search.case
    problem = build(case, search.base)
    recipes = all(isinstance(d, Recipe) for d in case.operands.values())
    limit = _RECIPE_ELEMENTS if recipes else _LITERAL_ELEMENTS
    if sum(t.bits.size for t in problem.tensors.values()) > limit or problem.n == 0:
        return
    operands = {k: literal_values(t.values) for k, t in problem.tensors.items()}
    search.attempt(replace(case, operands=operands))


def _values(case: Case, name: str) -> Float64 | None:
    data = case.operands[name]
    if not isinstance(data, Literal):
        return None
    fmt = format_named(case.dtypes.get(name, case.dtype))
    return np.array([[parse_value(v, fmt) for v in row] for row in data.values])


def _literals(case: Case) -> dict[str, Float64] | None:
    found = {name: _values(case, name) for name in case.operands}
    if any(v is None for v in found.values()):
        return None
    return {k: v for k, v in found.items() if v is not None}


def _cut(case: Case, values: dict[str, Float64], keep: Float64, *, axis: str) -> Case:
    """The case without some of its reduced axis ("n"), rows, or columns of a second factor."""
    operation = operation_named(case.operation)
    operands = dict(case.operands)
    shape = {"rows": "matrix", "columns": "second"}.get(axis)
    for name, v in values.items():
        if axis == "n":
            operands[name] = literal_values(v[:, keep])
        elif operation.operand(name).shape == shape:
            operands[name] = literal_values(v[keep])
    kept = int(keep.sum())
    if axis == "n":
        return replace(case, n=kept, operands=operands, launch={})
    if axis == "rows":
        return replace(case, rows=kept, operands=operands)
    return replace(case, columns=kept, operands=operands)


def _without(count: int) -> Iterator[Float64]:
    """Masks that leave out a run: halves first, then quarters, down to single elements."""
    size = count // 2
    while size >= 1:
        for first in range(0, count, size):
            keep = np.ones(count, dtype=bool)
            keep[first : first + size] = False
            if keep.any():
                yield keep
        size //= 2


def _fewer_columns(case: Case) -> Iterator[Case]:
    values = _literals(case)
    if values is None or case.n <= 1:
        return
    prefixes = (np.arange(case.n) < k for k in range(1, min(_SHORTEST, case.n)))
    masks: list[Any] = [*prefixes, *_without(case.n)]
    for keep in masks:
        smaller = _cut(case, values, keep, axis="n")
        yield smaller
        if case.launch:
            yield replace(smaller, launch=case.launch)


def _fewer_rows(case: Case) -> Iterator[Case]:
    values = _literals(case)
    if values is None:
        return
    for axis, count in (("rows", case.rows), ("columns", case.columns)):
        for keep in _without(count) if count > 1 else ():
            yield _cut(case, values, keep, axis=axis)


def _simpler_values(case: Case) -> Iterator[Case]:
    """All values at once to 0 or 1, then runs of them, then one by one to rounder numbers."""
    values = _literals(case)
    if values is None:
        return
    for name, v in values.items():
        flat = v.ravel()

        def changed(new: Float64, name: str = name, v: Float64 = v) -> Case:
            return replace(
                case, operands=case.operands | {name: literal_values(new.reshape(v.shape))}
            )

        size = flat.size
        while size >= 1:
            for first in range(0, flat.size, size):
                run = slice(first, first + size)
                for simple in (0.0, 1.0):
                    if not (_rank(flat[run]) <= _rank(np.array([simple]))).all():
                        new = flat.copy()
                        new[run] = simple
                        yield changed(new)
            size //= 2
        for i in range(flat.size):
            for simple in _rounder(float(flat[i])):
                new = flat.copy()
                new[i] = simple
                yield changed(new)


def _rank(values: Float64) -> Float64:
    """How far from simple: 0, 1, whole numbers, the rest; steps must lower it."""
    with np.errstate(invalid="ignore"):
        whole = np.isfinite(values) & (values == np.rint(values)) & (np.abs(values) <= 1024)
    return np.select(
        [
            (values == 0) & ~np.signbit(values),
            values == 1,
            whole,
            np.isfinite(values),
        ],
        [0.0, 1.0, 2.0, 3.0],
        4.0,
    )


def _rounder(value: float) -> Iterator[float]:
    if not np.isfinite(value) or value in (0.0, 1.0):
        return
    rank = float(_rank(np.array([value]))[0])
    candidates = [abs(value)] if value < 0 else []
    candidates += [float(np.trunc(value))] if rank > 2 and abs(value) <= 1024 else []
    mantissa, exponent = np.frexp(value)
    # Fewer significand bits, and then a power of two.
    candidates += [float(np.ldexp(np.rint(np.ldexp(mantissa, b)), exponent - b)) for b in (1, 3, 8)]
    if rank == 2 and abs(value) > 2:
        candidates += [float(np.trunc(value / 2)), value - np.sign(value)]
    for candidate in candidates:
        if _simpler_number(candidate, value):
            yield candidate


def _simpler_number(a: float, b: float) -> bool:
    """A strict order, so that steps end: rank, length of the hex text, size, sign."""

    def key(v: float) -> tuple[float, int, float, bool]:
        return (float(_rank(np.array([v]))[0]), len(value_text(abs(v))), abs(v), v < 0)

    return key(a) < key(b)
