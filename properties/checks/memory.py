# SPDX-License-Identifier: Apache-2.0
"""Checks of what a kernel reads and writes, and of what it remembers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from assay.properties.case import Problem, Tensor
from assay.properties.checks import Bench, check
from assay.properties.judge import Verdict
from assay.properties.launch import launch, supports


@check("nothing is written outside the outputs, and the inputs stay as they were")
def check_canaries(bench: Bench, problem: Problem) -> Verdict:
    for poison in ("nan", "huge"):
        bench.run(problem, poison=poison)  # damage ends the check
    return bench.passed()


@check("every output element is written")
def check_written(bench: Bench, problem: Problem) -> Verdict:
    runs = [bench.run(problem, poison=poison) for poison in ("nan", "huge")]
    if any(r.poisoned is None for r in runs):
        return bench.passed(message="the output was not allocated by the kernel's launcher")
    left = runs[0].poisoned & runs[1].poisoned
    if left.any():
        row, column = (int(i) for i in np.argwhere(left)[0])
        return bench.failed(
            f"{int(left.sum())} of {left.size} output elements were never written, "
            f"first at [{row}, {column}]"
        )
    return bench.passed()


@check("the result does not depend on memory that must not be read")
def check_poison(bench: Bench, problem: Problem) -> Verdict:
    a, b = (bench.run(problem, poison=poison) for poison in ("nan", "huge"))
    return bench.same(
        "the result changes with the content of memory beside the operands or of fresh memory",
        problem,
        a,
        problem,
        b,
    )


@check("calls 1, 2 and 3, and a call after one with a larger N, give the same answer")
def check_repeat(bench: Bench, problem: Problem) -> Verdict:
    first = bench.run(problem, fresh=True)
    for call in (2, 3):
        verdict = bench.same(
            f"call {call} differs from call 1",
            problem,
            first,
            problem,
            bench.run(problem, fresh=True),
        )
        if verdict.failed:
            return verdict
    larger = _larger(problem)
    if supports(bench.kernel, larger) is None:
        # Whether this one is right is the other checks' business.
        launch(bench.kernel, [larger])
        verdict = bench.same(
            f"the answer changed after a call with N = {larger.n}",
            problem,
            first,
            problem,
            bench.run(problem, fresh=True),
        )
    return verdict


def _larger(problem: Problem) -> Problem:
    """The same data twice over, and one column more."""

    def grow(t: Tensor) -> Tensor:
        tail = np.ones((t.bits.shape[0], 1))
        one = Tensor.of(tail, t.format).bits
        return Tensor(np.concatenate([t.bits, t.bits, one], axis=1), t.format)

    grown = {name: grow(t) for name, t in problem.tensors.items()}
    # A configuration of the smaller N may not fit: the kernel's default does.
    return replace(problem, tensors=grown, launch={})
