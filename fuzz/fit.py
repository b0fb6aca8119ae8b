# SPDX-License-Identifier: Apache-2.0
"""Fitting error curves: the power of the depth with which the error of a family grows.

Random roundings give a slope of 1/2 in the number of sequential additions, roundings that all go
the same way a slope of 1 (see docs/curves.md). The rms over T trials is known to a relative
1/sqrt(2T) (one standard deviation), so each point weighs 2T in the logarithm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay.oracles.formats import Float64
from assay.oracles.portable_random import integers

_RESAMPLES = 400
_SHORTEST = 3  # a line through two points says nothing about its own error


@dataclass(frozen=True)
class Fit:
    """log2 rms = log2 constant + slope * log2 depth, with a 95 % interval of the slope."""

    slope: float
    low: float
    high: float
    constant: float
    points: int


def _line(depth: Float64, rms: Float64, weight: Float64) -> tuple[float, float]:
    x, y = np.log2(depth), np.log2(rms)
    mx, my = np.average(x, weights=weight), np.average(y, weights=weight)
    slope = float((weight * (x - mx) * (y - my)).sum() / (weight * (x - mx) ** 2).sum())
    return slope, float(my - slope * mx)


def fit(depths: list[int], errors: list[Float64]) -> Fit | None:
    """Weighted least squares over points with signed errors of each trial, any unit.

    Points whose errors are all zero are left out: they have no logarithm. None if fewer than three
    points with different depths remain.
    """
    usable = [(d, e) for d, e in zip(depths, errors, strict=True) if d > 0 and np.any(e)]
    if len({d for d, _ in usable}) < _SHORTEST:
        return None
    depth = np.array([d for d, _ in usable], dtype=np.float64)
    weight = np.array([2.0 * len(e) for _, e in usable])
    rms = np.array([np.sqrt(np.mean(e**2)) for _, e in usable])
    slope, intercept = _line(depth, rms, weight)
    slopes = []
    for k in range(_RESAMPLES):
        again = []
        for i, (_, e) in enumerate(usable):
            drawn = e[integers(k, i, len(e), len(e))]
            again.append(float(np.sqrt(np.mean(drawn**2))))
        values = np.array(again)
        if (values > 0).all():
            slopes.append(_line(depth, values, weight)[0])
    low, high = np.percentile(slopes, [2.5, 97.5]) if slopes else (np.nan, np.nan)
    return Fit(slope, float(low), float(high), float(2.0**intercept), len(usable))
