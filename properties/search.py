# SPDX-License-Identifier: Apache-2.0
"""Looking for a violation: probes first, then Hypothesis examples, shrunk to a small case."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.errors import FlakyFailure

from assay.kernels.record import Kernel
from assay.properties.case import Case, build
from assay.properties.checks import run_check
from assay.properties.judge import Verdict
from assay.properties.probes import probes_for
from assay.properties.strategies import cases


@dataclass
class Tally:
    """What one check did for one kernel and dtype."""

    kernel: str
    check: str
    dtype: str
    passed: int = 0
    skipped: int = 0
    failed: int = 0
    worst_share: float = 0.0
    worst_ulps: float = 0.0
    failure: tuple[Case, Verdict] | None = None
    probe: str | None = None
    reasons: set[str] = field(default_factory=set)

    def add(self, case: Case, verdict: Verdict) -> None:
        if verdict.status == "skip":
            self.skipped += 1
            self.reasons.add(verdict.message)
            return
        if verdict.failed:
            self.failed += 1
            self.failure = (case, verdict)
            return
        self.passed += 1
        self.worst_share = max(self.worst_share, verdict.share or 0.0)
        self.worst_ulps = max(self.worst_ulps, verdict.ulps or 0.0)


class Violation(AssertionError):
    """A check failed; carries the case and the verdict."""

    def __init__(self, case: Case, verdict: Verdict) -> None:
        super().__init__(f"{verdict.kernel}: {verdict.check} failed on {case}: {verdict.message}")
        self.case = case
        self.verdict = verdict


def run_probes(kernel: Kernel, check: str, dtype: str, tally: Tally) -> None:
    """Every probe that applies; stops at the first that fails."""
    for probe in probes_for(kernel):
        case = probe.case(dtype)
        (verdict,) = run_check(check, kernel, [build(case)])
        tally.add(case, verdict)
        if verdict.failed:
            tally.probe = probe.name
            return


def run_examples(
    kernel: Kernel, check: str, dtype: str, tally: Tally, *, examples: int, number: int | None
) -> None:
    """Hypothesis examples; a failure is shrunk to the smallest description it finds.

    number: the seed, None for the same examples every time.
    """

    def one(case: Case) -> None:
        (verdict,) = run_check(check, kernel, [build(case)])
        tally.add(case, verdict)
        if verdict.failed:
            raise Violation(case, verdict)

    test = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=Verbosity.quiet,
    )(given(cases(kernel, dtype))(one))
    # Other examples for each check and dtype, and the same ones in every run.
    name = f"{kernel.name} {check} {dtype} {number}"
    test = seed(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]))(test)
    try:
        test()
    except Violation as violation:
        # The last run of a failing test is the shrunk one.
        tally.failure = (violation.case, violation.verdict)
    except FlakyFailure:
        # A kernel that remembers earlier calls may not fail twice on one input: that is a finding
        # too, and the case that showed it is kept.
        if tally.failure is None:  # pragma: no cover - Hypothesis reports flaky only after failing
            raise


def investigate(
    kernel: Kernel,
    check: str,
    dtype: str,
    *,
    examples: int,
    number: int | None = None,
) -> Tally:
    """Probes and examples of one check for one kernel and dtype."""
    tally = Tally(kernel.name, check, dtype)
    run_probes(kernel, check, dtype, tally)
    if tally.failure is None and examples > 0:
        run_examples(kernel, check, dtype, tally, examples=examples, number=number)
    return tally
