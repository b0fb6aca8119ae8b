# SPDX-License-Identifier: Apache-2.0
"""Metamorphic checks: how results of related inputs must relate, oracle or no oracle."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from assay.oracles.formats import Float64
from assay.oracles.portable_random import raw_bits
from assay.properties.case import Problem, Tensor
from assay.properties.checks import Bench, Inapplicable, check
from assay.properties.judge import Verdict
from assay.properties.launch import config_of, supports

# Room to both ends of the exponent range, so that no intermediate result of the scaled or the
# original problem is subnormal or overflows: squares double an exponent, n <= 2**30 adds 30.
_ROOM = 34


@check("all launch configurations agree within the sum of their bounds")
def check_launch_configurations(bench: Bench, problem: Problem) -> Verdict:
    tried = config_of(bench.kernel, problem)
    configs = bench.kernel.configs(problem.rows, problem.n, problem.format.name)
    others = [c for c in configs if c != tried]
    if not others:
        raise Inapplicable("the kernel names one launch configuration")
    first = bench.judge(problem, bench.run(problem))
    verdict = bench.passed()
    worst = 0.0
    for config in others:
        changed = problem.with_launch(config)
        verdict = bench.close(
            f"{tried} and {config} disagree", first, bench.judge(changed, bench.run(changed))
        )
        if verdict.failed:
            return verdict
        worst = max(worst, verdict.share or 0.0)
    return replace(verdict, share=worst)


def _scaled(problem: Problem, name: str, factor: float) -> Problem | None:
    """The problem with one operand multiplied, None where that is not exact in its format."""
    tensor = problem.tensors[name]
    values = tensor.values * factor
    scaled = Tensor.of(values, tensor.format)
    if not ((scaled.values == values) | np.isnan(values)).all():
        return None
    return problem.with_tensors(**{name: scaled})


def _normal_range(values: Float64, low: int, high: int) -> bool:
    magnitude = np.abs(values[values != 0.0])
    return magnitude.size == 0 or bool(
        (magnitude >= 2.0**low).all() and (magnitude <= 2.0**high).all()
    )


# The operand that each operation scales with.
_SCALES = {
    "l1_norm": "x",
    "l2_norm": "x",
    "mean": "x",
    # Not in x, because of eps.
    "rms_norm": "weight",
    "row_max": "x",
    "row_mean": "x",
    "row_min": "x",
    "row_sum": "x",
    "sum": "x",
}


@check(
    "scaling by a power of two scales the result, to the bit where nothing leaves the normal range",
    operations=tuple(_SCALES),
)
def check_scaling(bench: Bench, problem: Problem) -> Verdict:
    name = _SCALES[problem.operation.name]
    if name not in problem.tensors:
        raise Inapplicable(f"no {name} to scale")
    values = np.concatenate([t.values.ravel() for t in problem.tensors.values()])
    if not np.isfinite(values).all():
        raise Inapplicable("not finite")
    first = bench.run(problem)
    exact = bench.judge(problem, first)
    verdict = None
    for k in (1, -1, 3):
        factor = 2.0**k
        scaled = _scaled(problem, name, factor)
        largest = exact.exact.magnitude().max(initial=0.0) * max(1.0, factor)
        if scaled is None or not largest < 2.0**problem.format.emax:
            continue
        second = bench.run(scaled)
        acc = bench.kernel.accumulator_format
        fmt = problem.format
        inside = (
            bench.kernel.deterministic
            and _normal_range(values, acc.emin // 2 + _ROOM, acc.emax // 2 - _ROOM)
            and _normal_range(exact.values, fmt.emin + 4, fmt.emax - 4)
            and _normal_range(exact.exact.center, fmt.emin + 4, fmt.emax - 4)
            # What is left of a sum that cancels may be divided into the subnormals of a narrow
            # format, and be zero there without being zero when scaled.
            and (fmt is acc or problem.operation.name != "row_mean")
        )
        if inside:
            verdict = bench.equal_bits(
                f"scaling {name} by 2**{k} does more than scale the result",
                replace(first, bits=Tensor.of(first.values * factor, fmt).bits),
                second,
            )
        else:
            verdict = bench.close(
                f"scaling {name} by 2**{k} does more than scale the result",
                exact,
                bench.judge(scaled, second),
                factor=1.0 / factor,
            )
        if verdict.failed:
            return verdict
    if verdict is None:
        raise Inapplicable("no power of two scales the operand exactly")
    return verdict


# What a sign flip of x multiplies the results by, one factor for each.
_FLIPS = {
    "count_nonzero": (1.0,),
    "l1_norm": (1.0,),
    "l2_norm": (1.0,),
    "mean": (-1.0,),
    "mean_variance": (-1.0, 1.0),
    "rms_norm": (-1.0,),
    "row_mean": (-1.0,),
    "row_sum": (-1.0,),
    "sum": (-1.0,),
}


@check(
    "a sign flip of all of x flips sums, means and normalised values, and keeps norms, counts and "
    "variances, to the bit",
    operations=tuple(_FLIPS),
)
def check_sign_flip(bench: Bench, problem: Problem) -> Verdict:
    flipped = problem
    for name in ("x", "residual"):
        if name in problem.tensors:
            t = problem.tensors[name]
            sign = t.format.bits_dtype.type(1 << (t.format.width - 1))
            flipped = flipped.with_tensors(**{name: Tensor(t.bits ^ sign, t.format)})
    first, second = bench.run(problem), bench.run(flipped)
    what = "flipping the sign of x changes more than the sign"
    factor = np.array(_FLIPS[problem.operation.name])
    if bench.kernel.deterministic:
        turned = replace(second, bits=Tensor.of(second.values * factor, second.format).bits)
        # x + residual may cancel to zero, which is +0 for either sign.
        return bench.equal_bits(what, first, turned, signed_zero=False)
    return bench.close(
        what, bench.judge(problem, first), bench.judge(flipped, second), factor=factor
    )


# The identity of each reduction that has one: elements that change nothing.
_IDENTITIES = {
    "count_nonzero": 0.0,
    "l1_norm": 0.0,
    "l2_norm": 0.0,
    "log_softmax": -np.inf,
    "logsumexp": -np.inf,
    "row_argmax": -np.inf,
    "row_max": -np.inf,
    "row_min": np.inf,
    "row_sum": 0.0,
    "softmax": -np.inf,
    "sum": 0.0,
}


@check(
    "padding with the identity (zeros for a sum, -inf for a maximum or a sum of exponentials, inf "
    "for a minimum) leaves the result within the bounds",
    operations=tuple(_IDENTITIES),
)
def check_zero_padding(bench: Bench, problem: Problem) -> Verdict:
    if bench.kernel.policies.get("ties") == "any":
        raise Inapplicable("another of equal elements may be found")
    fill = _IDENTITIES[problem.operation.name]
    extra = 3

    def pad(t: Tensor) -> Tensor:
        tail = Tensor.of(np.full((t.bits.shape[0], extra), fill), t.format).bits
        return Tensor(np.concatenate([t.bits, tail], axis=1), t.format)

    padded = replace(problem, tensors={k: pad(t) for k, t in problem.tensors.items()}, launch={})
    reason = supports(bench.kernel, padded)
    if reason is not None or problem.n == 0:
        raise Inapplicable(reason or "an empty row padded is another row")
    first, second = (bench.judge(p, bench.run(p)) for p in (problem, padded))
    columns = slice(0, problem.n) if problem.operation.elementwise else None
    return bench.close(
        f"{extra} elements of {fill} change the result", first, second, columns=columns
    )


@check("a permutation of the reduced axis permutes the result, within the bounds")
def check_permutation(bench: Bench, problem: Problem) -> Verdict:
    if problem.n < 2:
        raise Inapplicable("one element has one order")
    if problem.operation.name == "row_argmax":
        raise Inapplicable("an index moves with its element")
    # The permutation follows from the data, so that a case replays.
    order = np.argsort(raw_bits(int(problem.x.digest[:15], 16), 1, problem.n), kind="stable")
    permuted = problem.map_matrices(lambda bits: bits[:, order])
    first = bench.judge(problem, bench.run(problem))
    second = bench.judge(permuted, bench.run(permuted))
    columns = np.argsort(order, kind="stable") if problem.operation.elementwise else None
    return bench.close("a permutation changes the result", first, second, columns=columns)


@check(
    "softmax, log_softmax and min_max do not change, and logsumexp moves along, when a constant is "
    "added exactly to a whole row",
    operations=("log_softmax", "logsumexp", "min_max", "softmax"),
)
def check_shift(bench: Bench, problem: Problem) -> Verdict:
    x = problem.x.values
    for shift in (-1.0, 64.0, -1000.0, 1.0, 16.0, -(2.0**14), 2.0**-4):
        moved = x + shift
        tensor = Tensor.of(moved, problem.format)
        # Exact in the format, and in float64 itself (2**127 + 1 is not).
        exact = (tensor.values == moved) & (moved - shift == x)
        if not (exact | np.isnan(x) | (np.isinf(x) & (moved == x))).all():
            continue
        shifted = problem.with_tensors(x=tensor)
        first, second = (bench.judge(p, bench.run(p)) for p in (problem, shifted))
        what = f"adding {shift} to every element changes the result"
        if problem.operation.name == "logsumexp":
            # In float64 the difference rounds far below either bound.
            second = replace(second, values=second.values - shift)
            what = f"adding {shift} to every element does not add it to the result"
        return bench.close(what, first, second)
    raise Inapplicable("no constant can be added exactly")


@check(
    "a fused residual gives what adding it first gives, to the bit where the sum is exact",
    operations=("rms_norm",),
)
def check_residual(bench: Bench, problem: Problem) -> Verdict:
    if "residual" not in problem.tensors:
        raise Inapplicable("no residual")
    x, residual = problem.x.values, problem.tensors["residual"].values
    with np.errstate(invalid="ignore", over="ignore"):
        total = x + residual
    summed = Tensor.of(total, problem.format)
    # In float32 the kernel's own addition rounds just as this one does (float64 rounds first, and
    # innocuously: 53 bits are more than twice 24 and two).
    accumulates = problem.format is bench.kernel.accumulator_format
    exact = ((summed.values == total) | np.isnan(total)).all()
    if not (accumulates or exact or bench.kernel.policies["residual"] == "stored"):
        raise Inapplicable("x + residual is not exact in the storage format")
    tensors = {k: t for k, t in problem.tensors.items() if k != "residual"} | {"x": summed}
    added = replace(problem, tensors=tensors)
    a, b = bench.run(problem), bench.run(added)
    what = "the fused residual differs from adding it first"
    # Where the sum is rounded, a kernel may keep more of it than the storage format does.
    if bench.kernel.deterministic and (exact or bench.kernel.policies["residual"] == "stored"):
        return bench.equal_bits(what, a, b)
    return bench.close(what, bench.judge(problem, a), bench.judge(added, b))
