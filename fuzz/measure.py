# SPDX-License-Identifier: Apache-2.0
"""Errors of one kernel at one N: fresh inputs, launches, and what the oracle says of each result.

Inputs up to `_ON_HOST` elements are cases, launched in guarded memory. Longer ones of a whole-array
kernel on a GPU never leave it: they are generated there, reduced there, and the oracle's exact sums
are made there (rung R3); mpmath, over the values and counts of the pool they were drawn from,
confirms each of those enclosures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from assay.kernels import device
from assay.kernels.record import Kernel
from assay.oracles.counts import Counted, generate_counted
from assay.oracles.enclosure import Enclosure, from_mpf
from assay.oracles.formats import FP64, format_named
from assay.oracles.ladder import Decision, decide
from assay.oracles.multiprecision import RELATIVE_ERROR
from assay.oracles.operation import Operation
from assay.properties.case import Case, Data, Problem, Recipe, Tensor, build
from assay.properties.judge import Judgement, judge, judge_values
from assay.properties.launch import Launch, launch
from assay.properties.tensors import load_bits
from assay.properties.values import CaseError

_BATCH_ELEMENTS = 1 << 15
_ON_HOST = 1 << 20
# Of the right-hand side of a product.
_COLUMNS = 4

# Real activations for each operation; rows are cut to N columns, an array to N elements.
REAL = {
    "softmax": ("layer0.attention_scores_masked", "vocab_logits"),
    "rms_norm": ("layer2.mlp_residual_sum",),
    "l2_norm": ("layer2.mlp_residual_sum",),
}


@dataclass(frozen=True)
class Point:
    """Errors of one kernel, dtype and family at one N, over `trials` fresh inputs.

    Units: ulps of the output format at the exact result, unless said otherwise.
    rms, mean: of the signed error, over all elements of all trials; the mean tells bias.
    excess: largest error beyond the final rounding, in ulps of the accumulator's format.
    misrounded: share of elements that are not the correctly rounded exact result.
    share: largest error as a share of what the proved bound allows.
    bound: what the bound allows, in the same ulps, at the element where that is largest.
    errors: rms signed error of each trial, carrying the sign of its mean, for the fit.
    """

    n: int
    rows: int
    depth: int
    trials: int
    elements: int
    rms: float
    mean: float
    largest: float
    excess: float
    misrounded: float
    undecided: int
    share: float
    bound: float
    errors: tuple[float, ...]


@dataclass(frozen=True)
class _Result:
    judgement: Judgement
    nearest: Decision


class OraclesDisagree(RuntimeError):
    """Two rungs of the ladder contradict each other: a defect of assay, never of the kernel."""


def _results(
    kernel: Kernel, dtype: str, family: str, n: int, trials: int
) -> Iterator[_Result | str]:
    """A judgement for each input, or what went wrong instead of one."""
    long = n > _ON_HOST and device.current().device == "cuda" and kernel.op.whole
    if long and family != "real":
        yield from _on_device(kernel, dtype, family, n, trials)
        return
    platform = device.current()
    for problem, found in _launched(kernel, _problems(kernel, dtype, family, n, trials)):
        if found.bits is None or found.damage:
            yield found.error or "; ".join(found.damage)
            return
        j = judge(kernel, problem, found, platform)
        yield _Result(
            j,
            decide(
                kernel.op, problem.inputs, problem.params, kernel.policies, found.format, j.exact
            ),
        )


def _seed(trial: int) -> int:
    return 1001 * trial + 17


def _on_device(
    kernel: Kernel, dtype: str, family: str, n: int, trials: int
) -> Iterator[_Result | str]:
    import torch

    op, fmt, platform = kernel.op, format_named(dtype), device.current()
    params = dict(op.params)
    config = kernel.default_config(1, n, dtype)
    claim = kernel.claim(n, config, dtype, params, platform)
    for trial in range(trials):
        x, counted = generate_counted(family, n, _seed(trial), fmt, "cuda")
        try:
            out = kernel.call({"x": x}, params, config)
            torch.cuda.synchronize()
        except Exception as error:  # noqa: BLE001 (whatever a kernel raises is a finding)
            yield f"raised {type(error).__name__}: {error}"
            return
        inputs = {"x": x.reshape(1, -1)}
        exact = op.enclose(inputs, params, kernel.policies, fmt)
        _confirm(op, exact, counted, params, kernel.policies, fmt)
        out_format = FP64 if op.integer else fmt
        values = out.detach().double().cpu().numpy().reshape(1, 1)
        j = judge_values(op, inputs, exact, values, claim, fmt, out_format)
        nearest, decided = exact.round(out_format)
        yield _Result(j, Decision(nearest, ~decided))


def _confirm(
    op: Operation, exact: Enclosure, counted: Counted, params: Any, policies: Any, fmt: Any
) -> None:
    """mpmath's result from the value counts lies in the enclosure, or the audit ends."""
    if op.counted is None:
        return
    values = op.counted(counted.values.tolist(), counted.counts.tolist(), params, policies, fmt)
    found = from_mpf(values, relative_error=RELATIVE_ERROR).reshape(*exact.shape)
    if not found.intersects(exact).all():
        raise OraclesDisagree(
            f"{op.name} of {counted.n} elements: the certified oracle says {exact.center}, mpmath "
            f"{found.center}. This is a defect of assay: please report it with the device and the "
            "versions of torch and numpy"
        )


def _problems(kernel: Kernel, dtype: str, family: str, n: int, trials: int) -> Iterator[Problem]:
    op = kernel.op
    fmt = format_named(dtype)
    others: dict[str, Data] = {}
    columns = 1
    for operand in op.operands:
        if operand.name in (kernel.operands or ()) and operand.shape != "matrix":
            others[operand.name] = Recipe("normal", 77)
        if operand.shape == "second":
            columns = _COLUMNS
    if family == "real":
        rows = _real_rows(op.name, n, trials if op.whole else 1 << 30)
        if rows is None:
            return
        x = Tensor.of(rows, fmt)
        base = build(Case(op.name, dtype, 1, n, {"x": Recipe("ones"), **others}, columns=columns))
        groups = [x.bits[i : i + 1] for i in range(len(x.bits))]
        if not op.whole:
            groups = np.array_split(x.bits, min(trials, len(x.bits)))
        for bits in groups:
            yield base.with_tensors(x=Tensor(bits, fmt))
        return
    for trial in range(trials):
        # Rows of a row operation are trials too: short rows come several at once.
        rows_each = 1 if op.whole else max(1, min(8, 4096 // n))
        operands: dict[str, Data] = {"x": Recipe(family, _seed(trial)), **others}
        yield build(Case(op.name, dtype, rows_each, n, operands, columns=columns))


@cache
def _real(name: str) -> Any:
    path = Path(str(files("assay.oracles"))) / "data" / "minilm.safetensors"
    return load_bits(path, name).values


def _real_rows(operation: str, n: int, count: int) -> Any:
    """Rows of n real values, None if the tensors at hand are shorter."""
    for name in REAL[operation]:
        try:
            values = _real(name)
        except CaseError:
            return None
        if operation == "l2_norm":
            flat = values.ravel()
            if n > flat.size:
                continue
            starts = np.linspace(0, flat.size - n, num=min(count, 8)).astype(int)
            return np.stack([flat[s : s + n] for s in starts])
        if n <= values.shape[1]:
            rows = values[:, :n]
            # A row cut so short that only masked keys are left has no finite result.
            return rows[np.isfinite(rows).any(axis=1)][:48]
    return None


def _launched(kernel: Kernel, problems: Iterator[Problem]) -> Iterator[tuple[Problem, Launch]]:
    """Each problem with its launch; small ones of a row operation share launches."""
    waiting: list[Problem] = []
    for problem in problems:
        waiting.append(problem)
        if sum(p.x.bits.size for p in waiting) >= _BATCH_ELEMENTS:
            yield from zip(waiting, launch(kernel, waiting), strict=True)
            waiting = []
    yield from zip(waiting, launch(kernel, waiting), strict=True)


def measure(
    kernel: Kernel, dtype: str, family: str, n: int, trials: int, violations: list[str]
) -> Point | None:
    """The errors at one N; None, with a line in `violations`, where there is nothing to measure."""
    platform = device.current()
    config = kernel.default_config(1, n, dtype)
    depth = kernel.order.depth(n, config, dtype, platform)
    signed: list[Any] = []
    errors: list[float] = []
    largest = excess = share = bound = 0.0
    wrong = undecided = elements = count = rows = 0
    for result in _results(kernel, dtype, family, n, trials):
        if isinstance(result, str):
            violations.append(f"{kernel.name} {dtype} {family} N={n}: {result}")
            return None
        j, nearest = result.judgement, result.nearest
        fmt = j.format
        # An ulp at zero says nothing about the size of an error: zeros count for the share alone.
        finite = j.exact.finite & np.isfinite(j.values) & (j.exact.center != 0.0)
        step = j.exact.ulp(fmt)
        with np.errstate(invalid="ignore"):
            e = ((j.values - j.exact.center) - j.exact.tail)[finite] / step[finite]
        if e.size:
            signed.append(e)
            rms = float(np.sqrt(np.mean(e**2)))
            errors.append(float(np.copysign(rms, np.mean(e))))
            largest = max(largest, float(np.abs(e).max()))
            beyond = j.exact.excess(j.values, fmt, kernel.accumulator_format)[finite]
            excess = max(excess, float(beyond.max()))
            limits = (j.allowed / step)[finite]
            # NaN: the claims promise nothing there, as good as no bound.
            bound = max(bound, float(np.where(np.isnan(limits), np.inf, limits).max()))
        same = (j.values == nearest.nearest) | (np.isnan(j.values) & np.isnan(nearest.nearest))
        wrong += int((~same & ~nearest.undecided).sum())
        undecided += int(nearest.undecided.sum())
        elements += j.values.size
        share = max(share, j.worst_share())
        count += 1
        rows += j.values.shape[0]
        if j.wrong.any():
            violations.append(
                f"{kernel.name} {dtype} {family} N={n}: {int(j.wrong.sum())} results break the "
                f"claims, the worst by {j.worst_share():.3g} of the bound: "
                f"assay check {kernel.target or kernel.name}"
            )
    if not signed:
        return None
    everything = np.concatenate(signed)
    return Point(
        n=n,
        rows=rows,
        depth=depth,
        trials=count,
        elements=elements,
        rms=float(np.sqrt(np.mean(everything**2))),
        mean=float(np.mean(everything)),
        largest=largest,
        excess=excess,
        misrounded=wrong / max(1, elements),
        undecided=undecided,
        share=share,
        bound=bound,
        errors=tuple(errors),
    )
