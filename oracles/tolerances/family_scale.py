# SPDX-License-Identifier: Apache-2.0
"""How large a data family is: levels that a measure of a fresh draw stays below, and its ends."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from assay.oracles.formats import Format, round_nearest
from assay.oracles.generators import generate

# Elements of a row at which the bound is evaluated for families of independent draws, and the
# largest N for those whose elements go together.
SAMPLE, LARGEST_WHOLE = 1 << 12, 1 << 20
SEEDS = (11, 12, 13, 14, 15)
COUPLED = ("cancelling", "absorbing", "ladder", "near_zero_logsumexp")
EQUAL = ("constant", "ones")

# Families that are a shift and a scale of the standard normal, so that their extremes are known.
_NORMAL = {
    "normal": (0.0, 1.0),
    "wide_logits": (0.0, 30.0),
    "negative": (-100.0, 1.0),
    "masked": (0.0, 1.0),
    "offset": (1024.0, 1.0),
}


class ToleranceError(ValueError):
    """No tolerance can be given, in one line that says why and what to do."""


def sample_size(family: str, n: int) -> int:
    """Elements of a row on which the bound for N = n is evaluated."""
    if family in COUPLED:
        if n > LARGEST_WHOLE:
            raise ToleranceError(
                f"the elements of family {family!r} go together, so its bound is evaluated at the "
                f"N asked for, up to N = {LARGEST_WHOLE:,}: got N = {n:,}; choose another family"
            )
        return n
    return min(n, SAMPLE)


def normal_quantile(chance: float) -> float:
    """lambda with 2 (1 - Phi(lambda)) = chance, Phi the standard normal distribution."""
    return -NormalDist().inv_cdf(min(chance, 1.0) / 2.0)


def scale_of(measure: str, family: str, n: int, fmt: Format, chance: float) -> float:
    """A level that the measure of a fresh draw exceeds with probability at most `chance`.

    normal: sum |x| is n sqrt(2 / pi) in the mean and moves by at most sqrt(n) times the distance of
    x, so it exceeds the mean by sqrt(2 n t) with probability below exp(-t) (concentration of
    Lipschitz functions of Gaussians); sum x**2 exceeds n by 2 sqrt(n t) + 2 t (Laurent and Massart,
    Annals of Statistics 28, 2000, lemma 1); products of independent normals exceed n 2 / pi by
    sqrt(2 n t) + t (Bernstein, with E |a b|**k <= k! / 2).
    Other independent draws: the mean over `SEEDS` and Hoeffding's inequality with the largest
    value seen. Equal elements: the largest value. Elements that go together: the largest over the
    seeds at this N.
    """
    if measure in ("result", "absolute", "exact"):
        return 1.0
    t = math.log(1.0 / chance)
    power = 2 if measure == "mean square" else 1
    if family == "normal":
        total = {
            1: n * math.sqrt(2.0 / math.pi) + math.sqrt(2.0 * n * t),
            2: n + 2.0 * math.sqrt(n * t) + 2.0 * t,
        }[power]
        if measure == "products":
            total = n * 2.0 / math.pi + math.sqrt(2.0 * n * t) + t
    else:
        mean, largest, whole = _moments(family, power, sample_size(family, n), fmt)
        if measure == "products":
            mean, largest, whole = mean * mean, largest * largest, whole * largest
        if family in EQUAL:
            total = n * largest
        elif family in COUPLED:
            total = whole
        else:
            total = min(n * largest, n * mean + largest * math.sqrt(n * t / 2.0))
    # The stored values are rounded ones, and larger by a factor of 1 + u at most.
    total *= (1.0 + fmt.u) ** (2 if measure in ("mean square", "products") else 1)
    return total / n if measure.startswith("mean") else total


@lru_cache(maxsize=64)
def _moments(family: str, power: int, n: int, fmt: Format) -> tuple[float, float, float]:
    """Over the seeds: the mean of |x|**power, its largest value, and the largest sum of n."""
    length = n if family in (*COUPLED, *EQUAL) else SAMPLE
    x = np.concatenate([generate(family, 1, length, seed, fmt) for seed in SEEDS])
    values = np.abs(np.where(np.isfinite(x), x, 0.0)) ** power
    return float(values.mean()), float(values.max()), float(values.sum(axis=1).max())


def ends(family: str, extreme: float, fmt: Format) -> tuple[float, float]:
    """The smallest and the largest value to expect: by the normal law, or the ends of the draws."""
    if family in _NORMAL:
        center, spread = _NORMAL[family]
        both = round_nearest(center + spread * np.array([-extreme, extreme]), fmt)
    else:
        x = np.concatenate([generate(family, 1, SAMPLE, seed, fmt) for seed in SEEDS])
        both = np.array([x[np.isfinite(x)].min(), x[np.isfinite(x)].max()])
    return float(both[0]), float(both[1])
