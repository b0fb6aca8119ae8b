# SPDX-License-Identifier: Apache-2.0
"""The statistical tolerance: from a measured curve, where one supports it, or why there is none."""

from __future__ import annotations

import math
from dataclasses import dataclass

from assay.oracles.bounds import gamma, statistical_gamma
from assay.oracles.formats import format_named
from assay.oracles.operation import Claim
from assay.oracles.tolerances.claimed_error import claimed_error, limits, without_additions
from assay.oracles.tolerances.curve_files import MeasuredCurve
from assay.oracles.tolerances.family_scale import ToleranceError, normal_quantile
from assay.oracles.tolerances.measured_error import Evidence, Refused, evidence
from assay.oracles.tolerances.sentences import Request

# Families of independent draws with many different values, where roundings go either way.
RANDOM = ("normal", "uniform", "wide", "outliers", "wide_logits", "negative", "masked", "offset")


@dataclass(frozen=True)
class Found:
    """A statistical tolerance with what it rests on."""

    rtol: float
    atol: float
    relative: float
    ulps: float
    confidence: float
    curve: MeasuredCurve
    shown: Evidence
    floored: bool


def statistical(
    request: Request,
    curve: MeasuredCurve | None,
    device: str | None,
    *,
    extrapolate: bool,
) -> tuple[Found | None, str]:
    """The statistical tolerance, or why there is none."""
    r = request
    fmt = format_named(r.dtype)
    if r.claims.name is None:
        return None, "no kernel was named, so no curve applies"
    if r.family not in RANDOM:
        return None, f"family {r.family} is not random: its roundings may all go the same way"
    if curve is None:
        where = f" on {device}" if device else ""
        return None, f"no curve of {r.claims.name} for {r.dtype} and {r.family}{where} was measured"
    try:
        shown = evidence(
            curve,
            r.n,
            r.claim.depth,
            lambda rows, n: r.claims.depth(rows, n, r.dtype, r.platform),
            extrapolate=extrapolate,
        )
    except Refused as reason:
        return None, f"the curve of {r.claims.name} is not used, {reason}"
    floor = claimed_error(
        r.operation, r.index, r.n, r.dtype, r.family, without_additions(r.claim), r.chance
    )
    least = limits(floor, floor.relative, r.n, fmt, r.claim)
    if r.worst.measure == "result":
        confidence = normal_quantile(r.chance)
        ulps = confidence * shown.upper
        # An ulp is at most 2u of the result, and the spacing of the subnormals below them.
        rtol, atol = 2.0 * fmt.u * ulps, ulps * fmt.smallest_subnormal + r.worst.absolute
        relative = rtol
    else:
        # Ulps of a result that may be near zero have no law: the curve shows that the roundings go
        # either way, and the tolerance is the bound for such.
        confidence = math.sqrt(2.0 * math.log(2.0 / r.chance))
        _agrees(r.claim, curve, shown, confidence)
        claim = r.claims.claim(r.operation, r.rows, r.n, r.dtype, r.platform, confidence)
        likely = claimed_error(r.operation, r.index, r.n, r.dtype, r.family, claim, r.chance)
        rtol, atol = limits(likely, likely.relative, r.n, fmt, claim)
        relative, ulps = likely.relative, math.inf
        if likely.relative >= r.worst.relative:
            return None, "roundings that go either way make no difference at so few additions"
    floored = rtol < least[0] or atol < least[1]
    bound = limits(r.worst, r.worst.relative, r.n, fmt, r.claim)
    rtol, atol = max(rtol, least[0]), max(min(atol, bound[1]), least[1])
    return Found(rtol, atol, relative, ulps, confidence, curve, shown, floored), ""


def _agrees(claim: Claim, curve: MeasuredCurve, shown: Evidence, confidence: float) -> None:
    """Refuses a curve on which some error exceeds what the statistical bound would allow."""
    if curve.cast > 0.0:
        return  # the final rounding hides what the additions did
    for p in curve.points:
        if p.n in shown.sizes:
            worst = gamma(p.depth, claim.u)
            likely = statistical_gamma(p.depth, claim.u, confidence)
            if likely < worst and p.share * worst > likely:
                raise ToleranceError(
                    f"{curve.source}: the largest error at N = {p.n:,} is above the statistical "
                    "bound: measure the curve again, and look at the kernel if it stays so"
                )
