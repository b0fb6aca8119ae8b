# SPDX-License-Identifier: Apache-2.0
"""The tolerance to write into a test, and where it comes from.

Two kinds. Deterministic: the proved bound for the claimed order of summation; a result outside is
wrong for certain. Statistical: from a measured curve, for fresh draws of the family that was
measured; a right result is outside with the stated probability. The statistical one is given only
where a curve supports it (`assay.oracles.tolerances.measured_error`) and never above the bound or
below what the roundings outside the sum may cost.

rtol and atol stand for |out - reference| <= atol + rtol * |reference|. The reference is at least
as good as pairwise summation in float64, whose own error of up to (log2 N + 10) * 2**-53 of the
measure is included.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from assay.oracles.enclosure import Mask
from assay.oracles.formats import Float64, format_named
from assay.oracles.generators import FAMILIES
from assay.oracles.operation import Operation, operation_named
from assay.oracles.platform import Platform
from assay.oracles.tolerances import sentences
from assay.oracles.tolerances.claimed_error import Claims, claimed_error, limits
from assay.oracles.tolerances.curve_files import MeasuredCurve, load, matching
from assay.oracles.tolerances.family_scale import ToleranceError
from assay.oracles.tolerances.statistical import statistical

Kind = Literal["statistical", "deterministic"]

# The probability of a false alarm, unless asked for another: one in ten million.
FALSE_ALARM = 1 / 10**7
# Stands in where no curve names a device: any NVIDIA GPU, with the Triton whose sums are deepest.
ANY_GPU = Platform("cuda", "an NVIDIA GPU", "", "3.6", "", "")
INTERPRETER = Platform("interpreter", "Triton's interpreter", "", "3.6", "", "")


@dataclass(frozen=True)
class Tolerance:
    """|out - reference| <= atol + rtol * |reference| for one output, for each element of it.

    n: elements reduced. rows: rows judged at once (whole arrays: cases; products: cells).
    false_alarm: the probability that a right kernel fails any of `checks` tests of so many rows.
    ulps: largest error in ulps of the output where the error is relative to |y|, else infinite.
    relative: the error relative to the operation's `measure` (see `claimed_error.MEASURES`),
        without the final rounding.
    bound: rtol and atol of the deterministic tolerance.
    text: the derivation in sentences. provenance: the same as data, of the curve if one was used.
    """

    operation: str
    output: str
    n: int
    rows: int
    dtype: str
    kernel: str | None
    family: str
    rtol: float
    atol: float
    false_alarm: float
    checks: int
    kind: Kind
    ulps: float
    measure: str
    relative: float
    depth: int
    bound: tuple[float, float]
    text: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """The line to copy; `out` becomes float64 so that its dtype is the reference's."""
        rtol, atol = (rounded_up(v) for v in (self.rtol, self.atol))
        return f"torch.testing.assert_close(out.double(), ref, rtol={rtol}, atol={atol})"

    def share(self, out: Float64, reference: Float64) -> Float64:
        """Error as a share of what is allowed; 0 for equal results, infinite for a wrong special.

        Equal infinities and NaN in the same place are equal.
        """
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            same = (out == reference) | (np.isnan(out) & np.isnan(reference))
            finite = np.isfinite(out) & np.isfinite(reference)
            error = np.where(finite, np.abs(out - reference), np.inf)
            limit = self.atol + self.rtol * np.abs(np.where(finite, reference, 0.0))
            return np.where(same, 0.0, np.where(limit > 0.0, error / limit, np.inf))

    def accepts(self, out: Float64, reference: Float64) -> Mask:
        return np.asarray(self.share(out, reference) <= 1.0)


def rounded_up(value: float) -> str:
    """Three significant digits, never below the value."""
    if value == 0.0 or not math.isfinite(value):
        return f"{value:.1f}"
    text = f"{value:.2e}"
    if float(text) < value:
        digits, power = text.split("e")
        text = f"{float(digits) + 0.01:.2f}e{power}"
    return text


def tolerance(
    operation: Operation | str,
    n: int,
    dtype: str,
    *,
    kernel: Claims | None = None,
    family: str = "normal",
    device: str | None = None,
    false_alarm: float = FALSE_ALARM,
    checks: int = 1,
    rows: int = 1,
    output: int = 0,
    extrapolate: bool = False,
    curves: Sequence[MeasuredCurve] | None = None,
) -> Tolerance:
    """The tolerance for N = n elements of `dtype`, drawn from `family`.

    kernel: its claims; None for any order of additions in float32.
    device: folder of the curves to go by, "interpreter", or None for the first that has a curve.
    false_alarm: allowed for all `checks` tests of `rows` rows together.
    output: index of the operation's output.
    extrapolate: go beyond the measured range of a curve with the slope that it shows.
    curves: the committed ones if left out.
    Raises ValueError for bad arguments and ToleranceError where no tolerance can be given.
    """
    op = operation_named(operation) if isinstance(operation, str) else operation
    fmt = format_named(dtype)
    claims = kernel or Claims()
    _check(op, n, claims, family, false_alarm, checks, rows, output)
    chance = false_alarm / (checks * rows * (n if op.elementwise else len(op.outputs)))
    if curves is None:
        curves = load()
    curve, platform = _curve(curves, claims, dtype, family, device)
    claim = claims.claim(op, rows, n, dtype, platform)
    worst = claimed_error(op, output, n, dtype, family, claim, chance)
    if not math.isfinite(worst.relative):
        raise ToleranceError(sentences.no_bound(op, n, dtype, family, claims, claim))
    bound = limits(worst, worst.relative, n, fmt, claim)
    request = sentences.Request(
        op, op.outputs[output], n, dtype, family, claims, claim, platform, false_alarm, checks,
        rows, chance, worst,
    )  # fmt: skip
    found, why = None, ""
    if worst.measure != "exact":
        found, why = statistical(request, curve, device, extrapolate=extrapolate)
    if found is not None and found.rtol <= bound[0] and found.atol <= bound[1]:
        rtol, atol, relative = found.rtol, found.atol, found.relative
        kind: Kind = "statistical"
        ulps = found.ulps
        text = sentences.statistical(request, found, bound)
    else:
        if found is not None:
            why = "what was measured allows more than the bound does"
        (rtol, atol), relative, kind = bound, worst.relative, "deterministic"
        ulps = rtol / fmt.u if worst.measure in ("result", "exact") else math.inf
        text = sentences.deterministic(request, bound, why)
    return Tolerance(
        operation=op.name,
        output=op.outputs[output].name,
        n=n,
        rows=rows,
        dtype=dtype,
        kernel=claims.name,
        family=family,
        rtol=rtol,
        atol=atol,
        false_alarm=false_alarm,
        checks=checks,
        kind=kind,
        ulps=ulps,
        measure=worst.measure,
        relative=relative,
        depth=claim.depth,
        bound=bound,
        text=text,
        provenance=sentences.provenance(request, found if kind == "statistical" else None),
    )


def _check(
    op: Operation,
    n: int,
    claims: Claims,
    family: str,
    false_alarm: float,
    checks: int,
    rows: int,
    output: int,
) -> None:
    if n < 1:
        raise ValueError(f"N must be at least 1, got {n}")
    if claims.max_n is not None and n > claims.max_n:
        raise ToleranceError(
            f"{claims.name} takes rows of at most {claims.max_n:,} elements, got N = {n:,}"
        )
    if family not in FAMILIES:
        raise ValueError(f"unknown data family {family!r}: expected one of {', '.join(FAMILIES)}")
    if not 0.0 < false_alarm < 1.0:
        raise ValueError(f"the false alarm is a probability between 0 and 1, got {false_alarm:g}")
    if checks < 1 or rows < 1:
        raise ValueError(f"checks and rows must be at least 1, got {checks} and {rows}")
    if not 0 <= output < len(op.outputs):
        raise ValueError(f"{op.name} has {len(op.outputs)} output(s), got index {output}")


def _curve(
    curves: Sequence[MeasuredCurve],
    claims: Claims,
    dtype: str,
    family: str,
    device: str | None,
) -> tuple[MeasuredCurve | None, Platform]:
    """The curve to go by, and the platform whose arithmetic and depth count."""
    found = None
    if claims.name is not None:
        found = matching(curves, kernel=claims.name, dtype=dtype, family=family, device=device)
    if found is not None:
        return found, found.platform
    if device == "interpreter":
        return None, INTERPRETER
    measured = {c.device: c.platform for c in reversed(curves)}
    if device is None:
        return None, ANY_GPU
    if device not in measured:
        raise ValueError(
            f"no curves of device {device!r}: expected one of "
            f"{', '.join(sorted({*measured, 'interpreter'}))}"
        )
    return None, measured[device]


@dataclass(frozen=True)
class Longest:
    """The answer of `largest_n`: the tolerance stays within the error for all N up to n.

    limit: what ends it, in words.
    """

    n: int
    limit: str
    at: Tolerance


def error_of(found: Tolerance) -> float:
    """What `largest_n` compares: rtol where the error goes with |y|, else relative to the measure.

    For an operation with an absolute error that is atol.
    """
    if found.measure == "result":
        return found.rtol
    return found.atol if found.measure == "absolute" else found.relative


def largest_n(
    operation: Operation | str, dtype: str, error: float, *, most: int = 1 << 40, **options: Any
) -> Longest:
    """The largest N for which `error_of` the tolerance stays <= error, by bisection.

    options: as for `tolerance`. most: where the search ends.
    Raises ToleranceError if not even N = 1 does it.
    """
    if not error >= 0.0:
        raise ValueError(f"the error must be a number from 0, got {error}")
    kernel: Claims | None = options.get("kernel")
    op = operation_named(operation) if isinstance(operation, str) else operation
    if options.get("curves") is None:
        options["curves"] = load()
    if kernel is not None and kernel.max_n is not None:
        most = min(most, kernel.max_n)

    def at(n: int) -> Tolerance | None:
        try:
            found = tolerance(op, n, dtype, **options)
        except ToleranceError:
            return None
        return found if error_of(found) <= error else None

    best = at(1)
    if best is None:
        smallest = error_of(tolerance(op, 1, dtype, **options))
        raise ToleranceError(
            f"{op.name} in {dtype} has no such N: even N = 1 needs an error of {smallest:.3g}, "
            f"asked for {error:g}"
        )
    low, high = 1, 2
    while high <= most and (found := at(high)) is not None:
        best, low, high = found, high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        found = at(middle)
        if found is None:
            high = middle
        else:
            best, low = found, middle
    if low == most:
        return Longest(low, "the longest row that the kernel takes or the search covers", best)
    if best.kind == "statistical" and _after(op, low + 1, dtype, options) == "deterministic":
        return Longest(low, "the measured range: beyond it the proved bound counts", best)
    return Longest(low, "the error asked for", best)


def _after(op: Operation, n: int, dtype: str, options: Mapping[str, Any]) -> str:
    try:
        return tolerance(op, n, dtype, **options).kind
    except ToleranceError:
        return "deterministic"
