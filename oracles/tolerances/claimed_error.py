# SPDX-License-Identifier: Apache-2.0
"""The largest error that claims allow on a data family at one N, relative to its natural measure.

`Operation.before` bounds the error for given data. A tolerance is wanted ahead of the data, so the
bound is evaluated on draws of the family, of at most `SAMPLE` elements a row but with the depth of
the N asked for, and divided by the measure that the error goes with: |y| where all terms have one
sign, sum |x_j| for a sum, and so on (`MEASURES`). That quotient does not depend on the draw, up to
subnormals. The measure itself is then given for the N asked for, as a level that a fresh draw
stays below but for a stated probability.

Families whose elements go together have no such law and are evaluated at the N asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from assay.oracles.bounds import ROUND_UP, gamma
from assay.oracles.depth import Order, Sequential
from assay.oracles.enclosure import Enclosure
from assay.oracles.formats import FP64, Float64, Format, format_named
from assay.oracles.generators import generate
from assay.oracles.operation import Claim, Operation, operation_named
from assay.oracles.platform import Platform
from assay.oracles.tolerances.family_scale import (
    COUPLED,
    EQUAL,
    SAMPLE,
    SEEDS,
    ToleranceError,
    ends,
    normal_quantile,
    sample_size,
    scale_of,
)

# float64 sums in pairs of runs: log2 N additions and some, on the longest path.
_REFERENCE_STEPS = 10
COLUMNS = 2  # of the right-hand side of a product

# What the error of each output is proportional to. An operation that is not listed is taken to
# have an absolute error.
MEASURES: dict[tuple[str, str], str] = {
    ("count_nonzero", "count"): "exact",
    ("l1_norm", "norm"): "result",
    ("l2_norm", "norm"): "result",
    ("log_softmax", "y"): "absolute",
    ("logsumexp", "y"): "absolute",
    ("matmul", "y"): "products",
    ("mean", "mean"): "mean magnitude",
    ("mean_variance", "mean"): "mean magnitude",
    ("mean_variance", "variance"): "mean square",
    ("min_max", "y"): "result",
    ("rms_norm", "y"): "result",
    ("row_argmax", "index"): "exact",
    ("row_max", "value"): "exact",
    ("row_mean", "mean"): "mean magnitude",
    ("row_min", "value"): "exact",
    ("row_sum", "sum"): "magnitudes",
    ("softmax", "y"): "result",
    ("sum", "sum"): "magnitudes",
}
WORDS = {
    "exact": "exact",
    "result": "|y|",
    "absolute": "1",
    "magnitudes": "sum |x|",
    "mean magnitude": "mean |x|",
    "mean square": "mean x**2",
    "products": "sum |x w|",
}
# Operations whose error depends on the distance of the elements from the row's maximum.
_DISTANCES = ("log_softmax", "logsumexp", "softmax")
# Operations whose error depends on the largest magnitude.
_LARGEST = ("mean_variance",)
# Families as likely to give -x as x.
_EVEN = ("normal", "wide", "integers", "wide_logits", "outliers", "tiny", "huge")


def _no_config(rows: int, n: int, dtype: str) -> Mapping[str, int]:
    return {}


@dataclass(frozen=True)
class Claims:
    """What a kernel claims, as plain data: this room does not know kernels.

    config: the default launch configuration for (rows, n, dtype).
    max_n: the longest row that it takes, None for no limit.
    The default claims nothing: any order of additions in float32.
    """

    name: str | None = None
    order: Order = field(default_factory=Sequential)
    config: Callable[[int, int, str], Mapping[str, int]] = _no_config
    accumulator: str = "float32"
    policies: Mapping[str, str] = field(default_factory=dict)
    casts_on_host: bool = False
    compensated_exponent: bool = False
    max_n: int | None = None

    def depth(self, rows: int, n: int, dtype: str, platform: Platform) -> int:
        return self.order.depth(n, self.config(rows, n, dtype), dtype, platform)

    def claim(
        self,
        operation: Operation,
        rows: int,
        n: int,
        dtype: str,
        platform: Platform,
        confidence: float | None = None,
    ) -> Claim:
        """The claims for one launch, as `Operation.before` takes them."""
        arithmetic = platform.arithmetic(
            format_named(self.accumulator),
            self.casts_on_host,
            compensated_exponent=self.compensated_exponent,
        )
        policies = operation.check_policies(self.policies)
        config = self.config(rows, n, dtype)
        return self.order.claim(
            n, config, dtype, platform, arithmetic, policies, operation.params, confidence
        )


def without_additions(claim: Claim) -> Claim:
    """The same claims where no addition rounds: what the other roundings of the kernel allow."""
    return replace(claim, depth=0, atomics=0, rescales=0, confidence=None)


def measure_of(operation: Operation, output: int) -> str:
    return MEASURES.get((operation.name, operation.outputs[output].name), "absolute")


@dataclass(frozen=True)
class Drawn:
    """Draws of a family with their exact results; `n` columns, possibly fewer than asked for."""

    inputs: Mapping[str, Any]
    exact: Enclosure
    n: int


@lru_cache(maxsize=64)
def draw(
    name: str,
    family: str,
    n: int,
    dtype: str,
    policies: tuple[tuple[str, str], ...],
    extreme: float | None,
) -> Drawn:
    """Draws of the family for an operation, cached: a bisection asks for the same ones again.

    extreme: where given, half of the rows have an element moved to either end of the family, for
        one made from normal values so many standard deviations away.
    """
    operation, fmt = operation_named(name), format_named(dtype)
    each = 1 if family in (*COUPLED, *EQUAL) else max(1, min(8, SAMPLE // max(1, n)))
    x = np.concatenate([generate(family, each, n, seed, fmt) for seed in SEEDS])
    if extreme is not None:
        low, high = ends(family, extreme, fmt)
        moved = x.copy()
        moved[:, 0], moved[:, -1] = low, high
        x = np.concatenate([x, moved])
        if operation.name in _DISTANCES:
            # log S plus the mean distance from the maximum is the entropy of the row, at most
            # log n, and log S costs more: rows of equal elements are the worst, and for results of
            # single elements those with one as far below as can be.
            rows = np.full((3, n), high)
            rows[1], rows[2, 0] = low, low
            x = np.concatenate([x, rows])
    if operation.name not in _DISTANCES:
        # Where a part of the error goes with |y| and the rest with a larger measure, the quotient
        # is largest for a row of one sign (means), or one that cancels (deviations from a mean).
        one = x[:1]
        x = np.concatenate([x, np.abs(one)])
        if family in _EVEN and n > 1:
            half = n // 2
            x = np.concatenate([x, one])
            x[-1, half : 2 * half], x[-1, 2 * half :] = -x[-1, :half], 0.0
    inputs: dict[str, Any] = {"x": x}
    for operand in operation.operands:
        if operand.shape == "second":
            w = generate(family, COLUMNS, n, 77, fmt)
            inputs[operand.name] = np.concatenate([w, np.abs(w[:1])]).T.copy()
    exact = operation.enclose(inputs, operation.params, dict(policies), fmt, "fast")
    return Drawn(inputs, exact, n)


@dataclass(frozen=True)
class ClaimedError:
    """Largest error ahead of the final cast: `relative` * `scale` + `absolute`.

    relative: unitless, a multiple of the measure; infinite where there is no bound.
    scale: a level of the measure, 1 where it is |y| itself or the error is absolute.
    """

    measure: str
    relative: float
    scale: float
    absolute: float
    claim: Claim
    drawn: int


def claimed_error(
    operation: Operation,
    output: int,
    n: int,
    dtype: str,
    family: str,
    claim: Claim,
    chance: float,
) -> ClaimedError:
    """The largest error that `claim` allows on the family at N = n.

    chance: probability with which a fresh draw may exceed the scale.
    Raises ToleranceError where the results of the family are no finite numbers.
    """
    measure = measure_of(operation, output)
    if measure == "exact":
        return ClaimedError(measure, 0.0, 1.0, 0.0, claim, 0)
    fmt = format_named(dtype)
    size = sample_size(family, n)
    spread = measure == "absolute" or operation.name in (*_DISTANCES, *_LARGEST)
    # More digits than a person could use would only fill the cache.
    extreme = round(normal_quantile(chance / n), 1) if spread and family not in COUPLED else None
    drawn = draw(
        operation.name, family, size, dtype, tuple(sorted(claim.policies.items())), extreme
    )
    exact = _at_length(operation.name, drawn.exact, n / max(1, size))
    before = operation.before(drawn.inputs, exact, fmt, claim)
    if operation.outputs[output].shape == "row":
        columns = slice(output, output + 1)
        before, exact = before[:, columns], exact[:, columns]
    measured = np.broadcast_to(_measured(measure, drawn, exact), before.shape)
    judged = exact.finite
    if not judged.any():
        raise ToleranceError(
            f"{operation.name} of family {family!r} has no finite results at N = {n:,}: there is "
            "nothing to compare"
        )
    before, measured = before[judged], measured[judged]
    if not np.isfinite(before).all():
        return ClaimedError(measure, math.inf, 1.0, 0.0, claim, size)
    solid = measured > 2.0**-100  # below, subnormals would pass for a relative error
    relative = float((before[solid] / measured[solid]).max()) if solid.any() else 0.0
    if n > size:
        relative *= _growth(claim, n, size)
    if claim.policies.get("cast") == "before_weight":
        relative = max(relative, _rounded_twice(operation, n, dtype, family, claim, chance, output))
    rest = before - relative * measured
    absolute = max(0.0, float(rest.max(initial=0.0))) if (~solid).any() else 0.0
    scale = scale_of(measure, family, n, fmt, chance)
    return ClaimedError(measure, relative, scale, absolute, claim, size)


def _growth(claim: Claim, n: int, size: int) -> float:
    """By how much the bound at N = n exceeds that at `size`, beyond what the depth says."""
    if claim.policies.get("algorithm") == "welford":
        return math.log(n) / math.log(size)  # the merges of means
    # Tensor cores: 2u for each product, whatever the depth.
    return n / size if claim.policies.get("accumulation") == "truncated" else 1.0


def _rounded_twice(
    operation: Operation,
    n: int,
    dtype: str,
    family: str,
    claim: Claim,
    chance: float,
    output: int,
) -> float:
    """Relative error where the normalised value is rounded before it meets the weight.

    The bound of given data knows which values are near enough to a midpoint to be rounded the other
    way; for fresh data any may be. Two values within `off` of the exact one are rounded to at most
    2 off and one ulp apart, and the product with the weight rounds once.
    """
    plain = replace(claim, policies={**claim.policies, "cast": "end"})
    off = claimed_error(operation, output, n, dtype, family, plain, chance).relative
    return 2.0 * off + 2.0 * format_named(dtype).u * (1.0 + off) + claim.u


def _at_length(name: str, exact: Enclosure, ratio: float) -> Enclosure:
    """The results as they are at `ratio` times the length: log S grows with N."""
    shift = {"logsumexp": math.log(ratio), "log_softmax": -math.log(ratio)}.get(name, 0.0)
    return Enclosure(exact.center + shift, exact.tail, exact.radius) if shift else exact


def _measured(measure: str, drawn: Drawn, exact: Enclosure) -> Float64:
    """The measure of each result of the draws, a lower limit up to float64's rounding."""
    if measure == "absolute":
        return np.ones((1, 1))
    if measure == "result":
        return np.where(exact.finite, np.abs(exact.center), 0.0)
    x = np.abs(drawn.inputs["x"])
    if measure == "products":
        return np.asarray(x @ np.abs(drawn.inputs["w"]))
    values = {
        "magnitudes": lambda: x.sum(axis=1),
        "mean magnitude": lambda: x.mean(axis=1),
        "mean square": lambda: (x * x).mean(axis=1),
    }[measure]()
    return np.asarray(values)[:, None]


def limits(
    error: ClaimedError, relative: float, n: int, fmt: Format, claim: Claim
) -> tuple[float, float]:
    """rtol and atol: the error ahead of the cast, the cast, and the reference's own error."""
    if error.measure == "exact":
        return 0.0, 0.0
    cast = claim.arithmetic.cast(fmt)
    # An ulp is at most 2u of the value that is cast, and below the normal range the spacing there.
    rounding = 2.0 * cast * fmt.u
    relative += gamma(math.log2(n) + _REFERENCE_STEPS, FP64.u)
    absolute = error.absolute * (1.0 + rounding) + cast * fmt.smallest_subnormal
    absolute += claim.arithmetic.cast_floor(fmt)
    if error.measure != "result":
        absolute += relative * error.scale * (1.0 + rounding)
        relative = 0.0
    # The bound has its own margin for float64's roundings, and these lines round once more.
    rtol = relative * (1.0 + rounding) + rounding
    return rtol * ROUND_UP**2, absolute * ROUND_UP**2
