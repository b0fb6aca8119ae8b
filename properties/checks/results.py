# SPDX-License-Identifier: Apache-2.0
"""Checks of one result: against the oracle, and against what every result must satisfy."""

from __future__ import annotations

import numpy as np

from assay.properties.case import Problem
from assay.properties.checks import Bench, Inapplicable, check
from assay.properties.judge import Verdict


@check("every finite result lies within the proved bound of the exact value")
def check_accuracy(bench: Bench, problem: Problem) -> Verdict:
    found = bench.judge(problem, bench.run(problem))
    wrong = found.wrong & found.exact.finite
    if wrong.any():
        return bench.failed("outside the proved bound", found, found.worst(wrong))
    return bench.passed(found)


@check("NaN, infinities and fully masked rows come out as the declared policy says")
def check_special_values(bench: Bench, problem: Problem) -> Verdict:
    result = bench.run(problem)
    found = bench.judge(problem, result)
    if not found.special.any():
        raise Inapplicable("no NaN or infinity goes in or should come out")
    wrong = found.wrong & found.special
    if wrong.any():
        policies = ", ".join(f"{k}={v}" for k, v in bench.kernel.policies.items())
        return bench.failed(
            f"special values differ from the policy ({policies or 'none to choose'})",
            found,
            found.worst(wrong),
        )
    return bench.passed(found)


@check(
    "softmax and min_max lie in [0, 1], and a variance is not negative",
    operations=("mean_variance", "min_max", "softmax"),
)
def check_range(bench: Bench, problem: Problem) -> Verdict:
    found = bench.judge(problem, bench.run(problem))
    out, name = found.values, problem.operation.name
    low, high = np.zeros(1), np.ones(out.shape)
    if name == "mean_variance":
        if bench.kernel.policies["algorithm"] == "moments":
            raise Inapplicable("a difference of moments may come out negative")
        low, high = np.array([-np.inf, 0.0]), np.full(out.shape, np.inf)
    elif name == "min_max":
        # Nothing is below lo, so that no numerator is negative; hi over hi may round.
        high = high + found.allowed
    promised = found.exact.finite & ~np.isnan(found.allowed)
    outside = promised & ~((out >= low) & (out <= high))
    if outside.any():
        row, column = (int(i) for i in np.argwhere(outside)[0])
        return bench.failed(
            "a negative variance" if name == "mean_variance" else "outside [0, 1]",
            found,
            (row, column),
        )
    return bench.passed()


@check("a row of softmax sums to 1 within the bounds of its elements", operations=("softmax",))
def check_row_sum(bench: Bench, problem: Problem) -> Verdict:
    found = bench.judge(problem, bench.run(problem))
    # Rows whose exact sum is 1: neither NaN nor masked to zero as a whole.
    rows = found.exact.finite.all(axis=1) & (found.exact.center > 0.0).any(axis=1)
    rows &= ~np.isnan(found.allowed).any(axis=1)  # nothing is promised of some element
    if problem.n == 0 or not rows.any():
        raise Inapplicable("no row with a sum")
    total, limit = found.values.sum(axis=1), found.allowed.sum(axis=1)
    off = np.abs(total - 1.0)
    # Adding up in float64 here loses less than n * 2**-53 of the sum.
    limit = limit + problem.n * 2.0**-52
    bad = rows & ~(off <= limit)
    if bad.any():
        row = int(np.argmax(bad))
        return bench.failed(
            f"row {row} sums to {float(total[row])!r}, off by {float(off[row]):.4g}, "
            f"allowed {float(limit[row]):.4g}"
        )
    return bench.passed()


@check(
    "a larger element gives no smaller result, within the bounds",
    operations=("log_softmax", "min_max", "softmax"),
)
def check_order(bench: Bench, problem: Problem) -> Verdict:
    found = bench.judge(problem, bench.run(problem))
    if problem.n < 2:
        raise Inapplicable("one column has no order")
    order = np.argsort(problem.x.values, axis=1, kind="stable")
    out = np.take_along_axis(found.values, order, axis=1)
    limit = np.take_along_axis(found.allowed, order, axis=1)
    # Everything to the right must reach the highest lower end seen so far.
    with np.errstate(invalid="ignore"):
        # Infinite results and limits give NaN, which fmax passes over and which compares false.
        lower = np.fmax.accumulate(out - limit, axis=1)
        upper = out + limit
        bad = upper[:, 1:] < lower[:, :-1]
    if bad.any():
        row, k = (int(i) for i in np.argwhere(bad)[0])
        return bench.failed(
            f"order is not kept in row {row}: column {int(order[row, k + 1])} holds the larger "
            f"input and gives {float(out[row, k + 1])!r}, below an earlier result"
        )
    return bench.passed()
