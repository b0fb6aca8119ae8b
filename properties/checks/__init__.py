# SPDX-License-Identifier: Apache-2.0
"""The checks: a property applied to a kernel and problems, with a verdict that explains itself.

Every launch of every check runs in guarded memory, and damage to that memory fails the check that
made the launch.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from assay.kernels import device
from assay.kernels.record import Kernel
from assay.oracles.formats import Float64
from assay.oracles.platform import Platform
from assay.properties.case import Problem
from assay.properties.judge import Judgement, Verdict, element_text, judge
from assay.properties.launch import Launch, launch, supports

CheckFunction = Callable[["Bench", Problem], Verdict]


@dataclass(frozen=True)
class Check:
    """A property that must hold, by name, with the operations that it speaks about."""

    name: str
    property: str
    operations: tuple[str, ...] | None
    function: CheckFunction

    def applies(self, operation: str) -> bool:
        return self.operations is None or operation in self.operations


_REGISTERED: dict[str, Check] = {}


def check(
    property: str, *, operations: tuple[str, ...] | None = None
) -> Callable[[CheckFunction], CheckFunction]:
    """Register `check_<name>`; `property` says what must hold, in a sentence."""

    def register(function: CheckFunction) -> CheckFunction:
        name = function.__name__.removeprefix("check_")
        _REGISTERED[name] = Check(name, property, operations, function)
        return function

    return register


@cache
def checks() -> dict[str, Check]:
    """All checks by name, from the modules of this package."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return dict(_REGISTERED)


def checks_for(operation: str) -> list[Check]:
    return [c for c in checks().values() if c.applies(operation)]


def check_named(name: str) -> Check:
    """The check called `name`; ValueError lists the known ones otherwise."""
    try:
        return checks()[name]
    except KeyError:
        raise ValueError(f"unknown check {name!r}: expected one of {', '.join(checks())}") from None


class Finding(Exception):
    """Ends a check with a verdict; raised by `Bench` when a launch itself shows a violation."""

    def __init__(self, message: str, details: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.details = details or {}


class Inapplicable(Exception):
    """The property says nothing about this problem."""


# Launches by the problem's identity and the poison; the problem is kept so that its id stays its.
Kept = dict[tuple[int, str], tuple[Problem, Launch]]


class Bench:
    """One kernel on one platform; runs problems for a check.

    kept: launches that other checks of the same problems have made and this one may reuse.
    """

    def __init__(self, kernel: Kernel, name: str, kept: Kept | None = None) -> None:
        self.kernel = kernel
        self.name = name
        self.platform: Platform = device.current()
        self._kept: Kept = {} if kept is None else kept

    def prefetch(self, problems: Sequence[Problem]) -> None:
        """Launch many problems at once, so that `run` finds them done."""
        for problem, found in zip(problems, launch(self.kernel, problems), strict=True):
            self._kept[id(problem), "nan"] = (problem, found)

    def run(self, problem: Problem, *, poison: str = "nan", fresh: bool = False) -> Launch:
        """A launch that produced an output and damaged nothing; Finding otherwise.

        fresh: launch even if the problem was launched before.
        """
        _, found = self._kept.get((id(problem), poison), (None, None))
        if found is None or fresh:
            (found,) = launch(self.kernel, [problem], poison=poison)
            self._kept[id(problem), poison] = (problem, found)
        if found.damage:
            raise Finding("; ".join(found.damage), {"damage": list(found.damage)})
        if found.bits is None:
            raise Finding(str(found.error), {"error": found.error})
        return found

    def judge(self, problem: Problem, found: Launch) -> Judgement:
        return judge(self.kernel, problem, found, self.platform)

    def passed(self, judgement: Judgement | None = None, message: str = "") -> Verdict:
        share = ulps = None
        if judgement is not None:
            share, ulps = judgement.worst_share(), judgement.worst_ulps()
        return Verdict(self.name, self.kernel.name, "pass", message, share, ulps)

    def failed(
        self, message: str, judgement: Judgement | None = None, at: tuple[int, int] | None = None
    ) -> Verdict:
        details: dict[str, object] = {}
        share = ulps = None
        if judgement is not None and at is not None:
            text, details = element_text(judgement, *at)
            message = f"{message}: {text}"
            share, ulps = float(judgement.share[at]), float(judgement.ulps[at])
        return Verdict(self.name, self.kernel.name, "fail", message, share, ulps, details)

    def close(
        self,
        what: str,
        first: Judgement,
        second: Judgement,
        *,
        factor: float | Float64 = 1.0,
        columns: Any = None,
    ) -> Verdict:
        """Two results that estimate the same quantity differ by no more than both bounds allow.

        factor: the second result is first multiplied by it (a power of two, or -1), or by one
            factor for each of its columns.
        columns: which columns of the second result correspond to the first's.
        """
        times = np.asarray(factor, dtype=np.float64)
        a, b, limit_b = first.values, second.values * times, second.allowed * np.abs(times)
        wrong_b = second.wrong
        if columns is not None:
            b, limit_b, wrong_b = b[:, columns], limit_b[:, columns], wrong_b[:, columns]
        with np.errstate(invalid="ignore"):
            limit = first.allowed + limit_b
            gap = np.abs(a - b)
        same = (np.isnan(a) & np.isnan(b)) | (a == b) | np.isnan(limit)
        # Near the end of the range one result may round to infinity and the other not.
        same |= (np.isinf(a) != np.isinf(b)) & ~(np.isnan(a) | np.isnan(b) | first.wrong | wrong_b)
        with np.errstate(invalid="ignore"):
            far = ~same & ~(gap <= limit)
        if far.any():
            row, column = (int(i) for i in np.argwhere(far)[0])
            return self.failed(
                f"{what}: at [{row}, {column}] {float(a[row, column])!r} against "
                f"{float(b[row, column])!r}, "
                f"difference {gap[row, column]:.4g}, both bounds together {limit[row, column]:.4g}"
            )
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(same, 0.0, gap / limit)
        return Verdict(
            self.name, self.kernel.name, "pass", share=float(np.nanmax(share, initial=0.0))
        )

    def equal_bits(
        self, what: str, first: Launch, second: Launch, *, signed_zero: bool = True
    ) -> Verdict:
        """Two results are the same to the last bit, NaN for NaN; with `signed_zero` off, 0 = -0."""
        a, b = first.values, second.values
        same = a == b
        if signed_zero:
            same &= np.signbit(a) == np.signbit(b)
        differ = ~(same | (np.isnan(a) & np.isnan(b)))
        if differ.any():
            row, column = (int(i) for i in np.argwhere(differ)[0])
            return self.failed(
                f"{what}: {int(differ.sum())} of {differ.size} elements differ in their bits, "
                f"first at [{row}, {column}]: {float(a[row, column])!r} against "
                f"{float(b[row, column])!r}"
            )
        return self.passed()

    def same(self, what: str, first: Problem, a: Launch, second: Problem, b: Launch) -> Verdict:
        """Bit-equal where the kernel claims determinism, within both bounds elsewhere."""
        if self.kernel.deterministic:
            return self.equal_bits(what, a, b)
        return self.close(what, self.judge(first, a), self.judge(second, b))


def run_check(
    name: str, kernel: Kernel, problems: Sequence[Problem], *, kept: Kept | None = None
) -> list[Verdict]:
    """Apply a check to a kernel and problems; a verdict for each problem.

    The first launch of all problems is made together where the operation allows it.
    kept: a dict that several checks of the same problems share, so that they share launches.
    """
    chosen = check_named(name)
    bench = Bench(kernel, name, kept)
    verdicts: list[Verdict] = []
    open_problems = [p for p in problems if supports(kernel, p) is None]
    if len(open_problems) > 1:
        bench.prefetch(open_problems)
    for problem in problems:
        reason = supports(kernel, problem)
        if reason is None and not chosen.applies(problem.operation.name):
            reason = f"{name} says nothing about {problem.operation.name}"
        if reason is not None:
            verdicts.append(Verdict(name, kernel.name, "skip", reason))
            continue
        try:
            verdicts.append(chosen.function(bench, problem))
        except Finding as finding:
            verdicts.append(
                Verdict(name, kernel.name, "fail", str(finding), details=finding.details)
            )
        except Inapplicable as reason_:
            verdicts.append(Verdict(name, kernel.name, "skip", str(reason_)))
    return verdicts
