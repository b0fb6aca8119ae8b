# SPDX-License-Identifier: Apache-2.0
"""l2_norm: the square root of the sum of squares of the whole array.

Bound, derived
--------------
The kernel squares in the accumulator format with one rounding each, adds along a path of h
additions and takes one square root.

* Sum of squares: each square is x**2 (1 + d) with |d| <= u, or off by at most half a subnormal
  spacing, and the terms are not negative, so S^ = S (1 + e) + E with |e| <= gamma_(h+1)
  (Higham, Accuracy and Stability, sec. 3.1 and 4.2) and |E| <= n * 2**-150 + what the atomics
  flush. A square fused into the addition has one rounding less.
* Root: sqrt(S^) lies between sqrt(S) sqrt(1 - e - E/S) and sqrt(S) sqrt(1 + e + E/S), and the root
  is correctly rounded (on the host, after the combine): a factor of 1 + u.

With e small this is sqrt(S) * (gamma_(h+1) / 2 + u).

A kernel that scales (range=scaled) divides by a scale first, one division under the square and so
two in the sum, and multiplies by it at the end, u more. Either result may be subnormal: one spacing
more.

Under the policy range=naive nothing is promised where S (1 + e) reaches the overflow threshold of
the accumulator. Under range=scaled the kernel promises the same relative error at every size, so
the absolute term is left out and overflow excuses nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.oracles.bounds import gamma
from assay.oracles.enclosure import Enclosure, from_mpf
from assay.oracles.exact import exact_sum_of_squares
from assay.oracles.formats import Float64, Format
from assay.oracles.multiprecision import RELATIVE_ERROR, context, from_fraction
from assay.oracles.operation import Claim, Inputs, Operand, Operation, Params, Policies, Policy


def _special(x: Float64) -> Float64:
    """NaN for a row with a NaN, inf for one with an infinity (NaN wins), 0 elsewhere."""
    nan = np.isnan(x).any(axis=1)
    inf = np.isinf(x).any(axis=1)
    return np.where(nan, np.nan, np.where(inf, np.inf, 0.0))[:, None]


def enclose(inputs: Inputs, params: Params, policies: Policies, out_format: Format) -> Enclosure:
    x = inputs["x"]
    special = _special(x)
    sums = exact_sum_of_squares(np.where(special == 0.0, x, 0.0))
    ctx = context()
    roots = [ctx.sqrt(from_fraction(ctx, s)) for s in sums]
    exact = from_mpf(roots, relative_error=RELATIVE_ERROR).reshape(-1, 1)
    plain = special == 0.0
    return Enclosure(
        np.where(plain, exact.center, special),
        np.where(plain, exact.tail, 0.0),
        # A sum of zeros is zero exactly.
        np.where(plain & (exact.center > 0.0), exact.radius, 0.0),
    )


def reference(inputs: Inputs, params: Params, policies: Policies, out_format: Format) -> list[Any]:
    ctx = context()
    results = []
    for row in inputs["x"].tolist():
        if any(np.isnan(v) for v in row):
            results.append(ctx.nan)
        else:
            # mpmath's fsum adds exactly and rounds once.
            results.append(ctx.sqrt(ctx.fsum((ctx.mpf(v) for v in row), squared=True)))
    return results


def before(inputs: Inputs, exact: Enclosure, out_format: Format, claim: Claim) -> Float64:
    arithmetic = claim.arithmetic
    acc = arithmetic.accumulator
    n = inputs["x"].shape[1]
    norm = np.where(exact.finite, exact.magnitude(), 0.0)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
        scaled = claim.policies["range"] == "scaled"
        scaling = 2.0 * arithmetic.division / acc.u if scaled else 0.0
        relative = np.full_like(norm, gamma(claim.depth + 1 + scaling, acc.u))
        square = norm * norm
        if claim.policies["range"] == "naive":
            absolute = 0.5 * n * acc.smallest_subnormal + claim.atomics * arithmetic.atomic_flush
            relative = relative + np.where(square > 0.0, absolute / square, 0.0)
            # The square may underflow in float64 too, for fp64 data only; then nothing is known.
            relative = np.where((norm > 0.0) & (square == 0.0), np.inf, relative)
        shift = relative / (1.0 + np.sqrt(np.maximum(0.0, 1.0 - relative)))
        shift = np.where(relative >= 1.0, np.sqrt(1.0 + relative) + 1.0, shift)
        last = arithmetic.host_sqrt + (acc.u if scaled else 0.0)
        # The root, and the product that undoes a scaling, may be subnormal.
        result = norm * (shift * (1.0 + last) + last) + acc.smallest_subnormal
        result = np.where(norm == 0.0, 0.0, result)
        if claim.policies["range"] == "naive":
            overflow = square * (1.0 + relative) >= 2.0 * 2.0**acc.emax
            result = np.where(overflow, np.inf, result)
    return result


OPERATION = Operation(
    name="l2_norm",
    formula="sqrt(sum_j x_j^2)",
    kind="whole",
    operands=(Operand("x", "matrix"),),
    params={},
    policies=(
        Policy(
            "range",
            ("scaled", "naive"),
            "scaled: right at every size of x; naive: squares may overflow to infinity or "
            "underflow to zero in the accumulator",
        ),
    ),
    families=("normal", "uniform", "constant", "wide", "integers", "tiny", "huge"),
    empty="0",
    enclose=enclose,
    reference=reference,
    before=before,
)
