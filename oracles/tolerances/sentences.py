# SPDX-License-Identifier: Apache-2.0
"""The derivation of a tolerance in plain sentences, with every number that went into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.oracles.depth import Sequential
from assay.oracles.formats import format_named
from assay.oracles.operation import Claim, Operation, Output
from assay.oracles.platform import Platform
from assay.oracles.tolerances.claimed_error import WORDS, ClaimedError, Claims
from assay.oracles.tolerances.family_scale import COUPLED, EQUAL, SAMPLE, SEEDS
from assay.oracles.tolerances.measured_error import BIAS_LIMIT, WIDENED, show_slope

if TYPE_CHECKING:
    from assay.oracles.tolerances.statistical import Found


@dataclass(frozen=True)
class Request:
    """What was asked for, with the claims and the worst case that follow from it.

    chance: the part of the false alarm that falls to one result.
    """

    operation: Operation
    output: Output
    n: int
    dtype: str
    family: str
    claims: Claims
    claim: Claim
    platform: Platform
    false_alarm: float
    checks: int
    rows: int
    chance: float
    worst: ClaimedError

    @property
    def index(self) -> int:
        return self.operation.outputs.index(self.output)

    @property
    def results(self) -> int:
        """Results among which the false alarm is divided."""
        each = self.n if self.operation.elementwise else len(self.operation.outputs)
        return self.checks * self.rows * each


def no_bound(op: Operation, n: int, dtype: str, family: str, claims: Claims, claim: Claim) -> str:
    """Why there is no bound and what to do about it."""
    who = claims.name or f"{op.name} in any order"
    if claim.depth * claim.u >= 1.0:
        return (
            f"no bound exists: {who} adds along a path of h = {claim.depth:,} additions at "
            f"N = {n:,} and h u = {claim.depth * claim.u:.3g} reaches 1 in "
            f"{claim.arithmetic.accumulator.name}; use a kernel with a shorter path (larger tiles, "
            "running sums in fewer programs, two stages), compensated additions or a wider "
            "accumulator, or a smaller N"
        )
    return (
        f"no bound exists: {who} promises nothing for family {family!r} in {dtype} at N = {n:,} "
        f"(h u = {claim.depth * claim.u:.3g}); the error may reach the result itself or leave the "
        "range: choose another family, or a kernel with a shorter path or range=scaled"
    )


def _order(r: Request) -> str:
    name, order, claim = r.claims.name, r.claims.order, r.claim
    if isinstance(order, Sequential):
        who = f"{name} claims no order" if name else "No order of summation is claimed"
    else:
        who = f"{name or 'The kernel'} adds by {order.describe()}"
    p = claim.arithmetic.accumulator.precision
    where = "" if r.platform.triton == "" else f" (Triton {r.platform.triton})"
    return (
        f"{who}: h = {claim.depth:,} additions on the longest path at N = {r.n:,} on "
        f"{r.platform.name}{where}, in {claim.arithmetic.accumulator.name} with u = 2**-{p}."
    )


def _growth(r: Request) -> str:
    u, measure = r.claim.u, WORDS[r.worst.measure]
    shape = {
        "result": f"relative to the result, {measure}",
        "absolute": "absolute, whatever the result",
    }.get(r.worst.measure, f"relative to {measure}, not to the result, which may cancel")
    return (
        f"The proved bound ahead of the final rounding is {r.worst.relative:.3g} = "
        f"{r.worst.relative / u:,.4g} u, {shape}."
    )


def _scale(r: Request) -> str:
    measure, scale = r.worst.measure, r.worst.scale
    seeds = f"seeds {SEEDS[0]} to {SEEDS[-1]}"
    if measure == "result":
        text = ""
        if r.operation.name == "softmax":
            text = (
                f"It was evaluated on {r.worst.drawn:,} elements of family {r.family} ({seeds}), "
                "with elements at the ends that a draw of N reaches with probability "
                f"{r.chance:.2g}."
            )
        return text
    if measure == "absolute":
        return (
            f"It was evaluated on {r.worst.drawn:,} elements of family {r.family} ({seeds}) and on "
            "rows of equal elements, the worst for log(sum), at the ends that a draw of N reaches "
            f"with probability {r.chance:.2g}."
        )
    if r.family in COUPLED:
        source = f"the largest over {seeds} at this N"
    elif r.family in EQUAL:
        source = "its largest value times N"
    elif r.family == "normal":
        mean = {"magnitudes": "N sqrt(2/pi)", "mean magnitude": "sqrt(2/pi)", "mean square": "1"}
        source = f"{mean.get(measure, 'N 2/pi')} in the mean, and a margin for a single draw"
    else:
        source = f"from {SAMPLE:,} draws each of {seeds}, scaled to N, and a margin for one draw"
    return (
        f"{WORDS[measure]} is at most {scale:,.6g} for family {r.family} ({source}, exceeded with "
        f"probability {r.chance:.2g})."
    )


def _rounding(r: Request) -> str:
    cast = r.claim.arithmetic.cast(format_named(r.dtype))
    if cast == 0.0:
        return f"The last rounding, to {r.dtype}, is one of the kernel's own."
    p = format_named(r.dtype).precision
    return f"The final rounding to {r.dtype} adds {cast:g} ulp, u_out = 2**-{p} of the result."


def _each(r: Request) -> str:
    if r.operation.elementwise:
        return (
            f"It holds for each element; the false alarm is divided by {r.n:,} elements x "
            f"{r.rows:,} row(s) x {r.checks:,} check(s) (Bonferroni)."
        )
    if r.output.shape == "cell":
        return (
            f"It holds for each of {r.rows:,} cell(s): rows counts the cells of a product; the "
            f"false alarm is divided by {r.results:,} (Bonferroni)."
        )
    return (
        f"It holds for one result; the false alarm is divided by {r.results:,} result(s) "
        "(Bonferroni)."
    )


def _power(relative: float) -> str:
    if relative < 1.0:
        return ""
    return "This accepts a result of zero: use exact data (integers) to test at this N."


def deterministic(r: Request, bound: tuple[float, float], why: str) -> str:
    """The text of a proved tolerance; why: why it is not a statistical one."""
    if r.worst.measure == "exact":
        what = "a whole number" if r.operation.integer else "an element of the input"
        return f"{r.operation.name} gives {what}: the result must be equal, so the tolerance is 0."
    parts = [_order(r), _growth(r), _scale(r), _rounding(r)]
    if why:
        parts.append(f"Deterministic, since {why}.")
    parts.append(_sum_up(bound[0], bound[1]))
    parts.append(_power(r.worst.relative))
    if r.worst.measure != "result" or r.operation.name == "softmax":
        parts.append(_each(r))
    return "\n".join(p for p in parts if p)


def statistical(r: Request, found: Found, bound: tuple[float, float]) -> str:
    """The text of a measured tolerance."""
    c, e = found.curve, found.shown
    parts = [_order(r), _growth(r), _scale(r)]
    first, last = c.measured
    parts.append(
        f"Measured on {c.platform.name} with Triton {c.platform.triton} on {c.created[:10]}: "
        f"family {c.family}, N from {first:,} to {last:,}, {c.trials} trials."
    )
    sizes = f"{len(e.sizes)} sizes from N = {e.sizes[0]:,} to {e.sizes[-1]:,}"
    deep = f"h from {e.depths[0]:,} to {e.depths[1]:,}"
    if e.exponent:
        scaled = f", scaled up to h = {r.claim.depth:,} with the power {e.exponent:.2g}"
    else:
        scaled = ", which do not grow with the depth"
    parts.append(
        f"{e.trials} trials at {sizes} ({deep}{scaled}) have an rms error of {e.rms:.3g} ulp, and "
        f"at most {e.upper:.3g} ulp (97.5 % chi-square limit and neighbouring points)."
    )
    if e.tails > 1.0:
        parts.append(
            f"Its tails are heavier than normal, elements differ in their spread: the limit "
            f"includes a factor of {e.tails:.2f} for the worst element of a row."
        )
    slope = f"The slope over h is {show_slope(c)} (1/2: random, 1: biased)"
    if c.fit is None:
        slope = "The depth grows too little for a slope"
    parts.append(
        f"{slope}, and the signed errors are {e.drift:.2f} standard errors from zero (bias from "
        f"{BIAS_LIMIT:.2f})."
    )
    if e.extrapolated:
        widened = f", widened by {WIDENED:g} since the slope is neither 1/2 nor 1" * e.widened
        parts.append(
            f"EXTRAPOLATED beyond the measured range with the power {e.exponent:.2g}{widened}."
        )
    if r.worst.measure == "result":
        parts.append(
            f"lambda = {found.confidence:.2f} for a false alarm of {r.false_alarm:.3g} in all, "
            f"{r.chance:.2g} for each result: {found.ulps:.3g} ulp, each at most 2 u_out of |y|, "
            "the final rounding included."
        )
    else:
        parts.append(
            f"lambda = {found.confidence:.2f} for a false alarm of {r.false_alarm:.3g} in all, "
            f"{r.chance:.2g} for each result: roundings that go either way grow by "
            f"lambda sqrt(h) u, {found.relative:.3g} of {WORDS[r.worst.measure]} (Higham and Mary "
            "2019; Hallman and Ipsen 2021)."
        )
        parts.append(_rounding(r))
    if found.floored:
        parts.append("Raised to what the roundings outside the sum may cost.")
    parts.append(_sum_up(found.rtol, found.atol))
    worst = f"rtol = {bound[0]:.3g}, atol = {bound[1]:.3g}"
    parts.append(f"The proved bound would give {worst}: beyond that a result is wrong for certain.")
    parts.append(_power(found.relative))
    parts.append(_each(r))
    parts.append("Good for fresh draws of this family only, not for inputs found by a search.")
    return "\n".join(p for p in parts if p)


def _sum_up(rtol: float, atol: float) -> str:
    return (
        f"Together rtol = {rtol:.3g} and atol = {atol:.3g}, against a reference at least as good "
        "as pairwise float64."
    )


def provenance(r: Request, found: Found | None) -> Mapping[str, Any]:
    """What the tolerance rests on, as plain data."""
    data: dict[str, Any] = {
        "depth": r.claim.depth,
        "u": r.claim.u,
        "order": r.claims.order.describe(),
        "accumulator": r.claim.arithmetic.accumulator.name,
        "measure": WORDS[r.worst.measure],
        "scale": r.worst.scale,
        "platform": r.platform.name,
        "triton": r.platform.triton,
        "seeds": list(SEEDS),
    }
    if found is not None:
        c, e = found.curve, found.shown
        data["curve"] = {
            "device": c.device,
            "source": c.source.rsplit("/", 1)[-1],
            "created": c.created,
            "torch": c.platform.torch,
            "measured": list(c.measured),
            "sizes": list(e.sizes),
            "trials": e.trials,
            "rms_ulps": e.rms,
            "upper_ulps": e.upper,
            "lambda": found.confidence,
            "slope": None if c.fit is None else [c.fit.slope, c.fit.low, c.fit.high],
            "drift": e.drift,
            "extrapolated": e.extrapolated,
        }
    return data
