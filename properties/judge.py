# SPDX-License-Identifier: Apache-2.0
"""Measuring one launch against the oracle and the bound, and saying what was found."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from assay.kernels.record import Kernel
from assay.oracles.bounds import allowed
from assay.oracles.enclosure import Enclosure, Mask
from assay.oracles.formats import Float64, Format, hex_with_bits
from assay.oracles.operation import Claim, Inputs, Operation
from assay.oracles.platform import Platform
from assay.properties.case import Problem
from assay.properties.launch import Launch, config_of

_CACHE_SIZE = 256
_cache: OrderedDict[Any, Enclosure] = OrderedDict()


def exact_result(problem: Problem, policies: Mapping[str, str]) -> Enclosure:
    """The oracle's enclosure for a problem; the last few are kept."""
    key = (
        problem.operation.name,
        problem.format.name,
        tuple((name, t.digest) for name, t in problem.tensors.items()),
        tuple(problem.params.items()),
        tuple(policies.items()),
    )
    if key in _cache:
        _cache.move_to_end(key)
        return _cache[key]
    exact = problem.operation.enclose(problem.inputs, problem.params, policies, problem.format)
    _cache[key] = exact
    if len(_cache) > _CACHE_SIZE:
        _cache.popitem(last=False)
    return exact


@dataclass(frozen=True)
class Judgement:
    """Each output element beside its exact value.

    allowed: largest |out - y| that the kernel's claims permit; NaN where they promise nothing.
    error: |out - y|, 0 where a special value is as expected, infinite where it is not.
    wrong: where the claims are broken.
    special: where the expected result is NaN or infinite, or the row holds such an input.
    """

    exact: Enclosure
    values: Float64
    format: Format
    allowed: Float64
    error: Float64
    wrong: Mask
    special: Mask

    @property
    def share(self) -> Float64:
        """Error as a share of what is allowed; above 1 is a violation."""
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(self.error == 0.0, 0.0, self.error / self.allowed)
        return np.where(np.isnan(share), 0.0, share)

    @property
    def ulps(self) -> Float64:
        """Error in ulps of the output format, over the finite results."""
        # An index or a count that should be 0 has float64's smallest number for an ulp.
        with np.errstate(over="ignore"):
            ulps = self.error / self.exact.ulp(self.format)
        return np.where(np.isfinite(self.error), ulps, np.inf)

    def worst(self, among: Mask | None = None) -> tuple[int, int] | None:
        """Index of the largest share of the allowed error, None for an empty result."""
        if self.values.size == 0:
            return None
        share = np.where(self.wrong, np.maximum(self.share, 1.0) + 1.0, self.share)
        if among is not None:
            share = np.where(among, share, -1.0)
        row, column = np.unravel_index(int(np.argmax(share)), share.shape)
        return int(row), int(column)

    def worst_share(self) -> float:
        return float(self.share.max(initial=0.0))

    def worst_ulps(self) -> float:
        """Largest error in ulps where the claims promise at least the size of the result."""
        with np.errstate(invalid="ignore"):
            promised = np.isfinite(self.error) & (self.allowed < np.abs(self.exact.center))
        return float(np.where(promised, self.ulps, 0.0).max(initial=0.0))


def judge(kernel: Kernel, problem: Problem, launch: Launch, platform: Platform) -> Judgement:
    """The judgement of a launch that produced an output."""
    stored = problem.format.name
    claim = kernel.claim(problem.n, config_of(kernel, problem), stored, problem.params, platform)
    exact = exact_result(problem, kernel.policies)
    found = judge_values(
        problem.operation,
        problem.inputs,
        exact,
        launch.values,
        claim,
        problem.format,
        launch.format,
        excused=_misread(problem, platform),
    )  # fmt: skip
    special_rows = np.zeros((problem.rows, 1), dtype=bool)
    for name, tensor in problem.tensors.items():
        odd = ~np.isfinite(tensor.values)
        shape = problem.operation.operand(name).shape
        if shape == "matrix":
            special_rows = special_rows | odd.any(axis=1, keepdims=True)
        elif shape == "second":
            special_rows = special_rows | np.asarray(odd.any(axis=1))[None, :]
        elif not problem.operation.whole:
            special_rows = special_rows | odd
    return replace(found, special=found.special | special_rows)


def _misread(problem: Problem, platform: Platform) -> Mask | None:
    """Rows of which the platform does not even load the right values; None where there are none."""
    rows = np.zeros((problem.rows, 1), dtype=bool)
    for name, tensor in problem.tensors.items():
        if not platform.misreads_subnormals(tensor.format):
            continue
        size = np.abs(tensor.values)
        odd = (size > 0.0) & (size < tensor.format.smallest_normal)
        if problem.operation.operand(name).shape == "matrix":
            rows |= odd.any(axis=1, keepdims=True)
        else:
            rows |= odd.any()
    return rows if rows.any() else None


def judge_values(
    operation: Operation,
    inputs: Inputs,
    exact: Enclosure,
    values: Float64,
    claim: Claim,
    stored: Format,
    out_format: Format,
    *,
    excused: Mask | None = None,
) -> Judgement:
    """Results beside their exact values and what the claim permits.

    inputs: operands by name, numpy or torch. values: of the operation's result shape.
    stored: the operands' format, out_format: that of the results, float64 for integers.
    excused: where nothing can be promised for reasons that are not the kernel's.
    """
    before = operation.before(inputs, exact, stored, claim)
    if excused is not None:
        before = np.where(excused, np.nan, before)
    unjudged = np.isnan(before)
    limit = allowed(np.where(unjudged, 0.0, before), exact, out_format, claim.arithmetic)
    limit = np.where(unjudged, np.nan, limit)

    expected = exact.center
    same_special = (np.isnan(expected) & np.isnan(values)) | (expected == values)
    error = np.where(exact.finite, exact.error(values), np.where(same_special, 0.0, np.inf))
    # The exact result may round to infinity in this format; infinity is then no error.
    threshold = out_format.largest + 0.5 * 2.0 ** (out_format.emax - out_format.precision + 1)
    with np.errstate(invalid="ignore"):
        reaches = exact.magnitude() + np.where(unjudged, 0.0, before) >= threshold
    overflows = exact.finite & np.isinf(values) & (np.sign(values) == np.sign(expected)) & reaches
    error = np.where(overflows, 0.0, error)
    if operation.accepts is not None:
        right = operation.accepts(inputs, values, exact, claim.policies)
        error = np.where(right, 0.0, error)
    with np.errstate(invalid="ignore"):
        wrong = error > limit
    # An infinite limit says nothing about the size of the result, yet it promises a number.
    wrong |= exact.finite & np.isnan(values) & ~unjudged
    wrong &= ~(unjudged & exact.finite)
    wrong |= ~exact.finite & ~same_special & ~unjudged
    return Judgement(exact, values, out_format, limit, error, wrong, ~exact.finite)


@dataclass(frozen=True)
class Verdict:
    """What a check found for one kernel and one problem.

    status: "pass", "fail", or "skip" where the property says nothing about the problem.
    share: the worst error as a share of what is allowed, where the check measures one.
    ulps: the worst error in ulps of the output format, likewise.
    """

    check: str
    kernel: str
    status: str
    message: str = ""
    share: float | None = None
    ulps: float | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        return self.status == "fail"


def element_text(judgement: Judgement, row: int, column: int) -> tuple[str, dict[str, Any]]:
    """The worst element in words, and as data for a witness."""
    fmt = judgement.format
    got = float(judgement.values[row, column])
    exact = judgement.exact[row, column]
    center = float(exact.center)
    details: dict[str, Any] = {"row": row, "column": column, "got": hex_with_bits(got, fmt)}
    if not bool(exact.finite):
        details["expected"] = str(center)
        return f"at [{row}, {column}] got {got}, expected {center}", details
    lo, hi = exact.interval()
    error = float(judgement.error[row, column])
    limit = float(judgement.allowed[row, column])
    ulps = float(judgement.ulps[row, column])
    share = float(judgement.share[row, column])
    details |= {
        "exact": center,
        "expected_lo": _exact_text(lo),
        "expected_hi": _exact_text(hi),
        "error": error,
        "allowed": limit,
        "ulps": ulps,
        "share": share,
    }
    text = (
        f"at [{row}, {column}] got {got!r} = {details['got']}, exact {center!r}; "
        f"error {ulps:.4g} ulp, allowed {limit / float(exact.ulp(fmt)):.4g} ulp, "
        f"{share:.3g} of the bound"
    )
    return text, details


def _exact_text(value: Any) -> str:
    """A dyadic rational as numerator * 2**exponent, exact and short."""
    numerator, denominator = value.numerator, value.denominator
    exponent = 1 - denominator.bit_length()
    while numerator and numerator % 2 == 0:
        numerator //= 2
        exponent += 1
    return f"{numerator} * 2**{exponent}" if numerator else "0"
