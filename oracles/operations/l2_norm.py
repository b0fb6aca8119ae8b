# SPDX-License-Identifier: Apache-2.0
"""l2_norm: the square root of the sum of squares of the whole array.

Bound, derived
--------------
The kernel squares in the accumulator format with one rounding each, adds along a path of h
additions and takes one square root.

* Sum of squares: each square is x**2 (1 + d) with |d| <= u, or off by at most half a subnormal
  spacing, and the terms are not negative, so S^ = S (1 + e) + E with |e| <= gamma_(h+1)
  (Higham, Accuracy and Stability, sec. 3.1 and 4.2) and |E| <= n * 2**-150 + what the atomics
  flush, which the additions pass on. A square fused into the addition has one rounding less.
* Root: sqrt(S^) lies between sqrt(S) sqrt(1 - e - E/S) and sqrt(S) sqrt(1 + e + E/S), and the root
  is taken on the host, after the combine: a factor of 1 + r with r = u where it is correctly
  rounded (`Arithmetic.host_sqrt`).

With e small this is sqrt(S) * (gamma_(h+1) / 2 + r).

A kernel that scales (range=scaled) divides by a scale first, one division under the square and so
two in the sum, and multiplies by it at the end, u more. A ratio may be subnormal: an absolute error
of at most 2 division floors for each square, beside a sum that is 1 or more. The root or the
product at the end may be subnormal: one spacing more.

With compensated additions and products (TwoSum, the product's error by FMA) the sum of squares errs
as `Claim.sum_error` says, and the error of a square is itself lost below the accumulator's range,
another half subnormal spacing a term.

Under the policy range=naive nothing is promised where S (1 + e) reaches the overflow threshold of
the accumulator: infinity or, compensated, NaN, since TwoSum takes an infinity from itself.
Under range=scaled the kernel promises the same relative error at every size, so
the absolute term is left out and overflow excuses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from assay.oracles.enclosure import Enclosure, column, from_mpf
from assay.oracles.exact import exact_sum_of_squares
from assay.oracles.formats import Float64, Format
from assay.oracles.multiprecision import BITS, context, exact_context, from_fraction
from assay.oracles.operation import (
    Claim,
    Inputs,
    Level,
    Operand,
    Operation,
    Output,
    Params,
    Policies,
    Policy,
    SpecialValue,
)
from assay.oracles.operations.l1_norm import condition, special_norm
from assay.oracles.operations.sums import flush_error
from assay.oracles.rows import facts, only

NAN, INF = float("nan"), float("inf")


def exact_root(square: Fraction) -> Fraction | None:
    """The square root of a rational number where it is rational."""
    numerator, denominator = math.isqrt(square.numerator), math.isqrt(square.denominator)
    if numerator**2 == square.numerator and denominator**2 == square.denominator:
        return Fraction(numerator, denominator)
    return None


def enclose(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, level: Level = "fast"
) -> Enclosure:
    x = inputs["x"]
    found = facts(x)
    plain = found.finite
    sums = exact_sum_of_squares(only(x, plain)) if plain.any() else []
    bits = BITS if level == "fast" else 2 * BITS
    ctx = context(bits)
    # A root is rational or irrational to all its digits: a tie of the rounding is known as one.
    roots = [exact_root(s) for s in sums]
    values = [
        ctx.sqrt(from_fraction(ctx, s)) if root is None else from_fraction(ctx, root)
        for s, root in zip(sums, roots, strict=True)
    ]
    exact = from_mpf(values, relative_error=2.0 ** (30 - bits))
    known = np.array([root is not None for root in roots], dtype=bool)
    fits = known & (np.abs(exact.tail) <= np.abs(exact.center) * 2.0**-53)
    held = [
        k and r is not None and Fraction(float(c)) + Fraction(float(t)) == r
        for k, r, c, t in zip(fits, roots, exact.center, exact.tail, strict=True)
    ]
    radius = np.where(np.array(held, dtype=bool), 0.0, exact.radius)
    return column(Enclosure(exact.center, exact.tail, radius), plain, special_norm(found))


def reference(
    inputs: Inputs, params: Params, policies: Policies, out_format: Format, bits: int = BITS
) -> list[Any]:
    ctx = context(bits)
    results = []
    for row in inputs["x"].tolist():
        if any(math.isnan(v) for v in row):
            results.append(ctx.nan)
        else:
            # mpmath's fsum adds exactly and rounds once.
            results.append(ctx.sqrt(ctx.fsum((ctx.mpf(v) for v in row), squared=True)))
    return results


def counted(
    values: list[float], counts: list[int], params: Params, policies: Policies, out_format: Format,
    bits: int = BITS,
) -> list[Any]:  # fmt: skip
    ctx, wide = context(bits), exact_context()
    squares = [wide.mpf(v) ** 2 * k for v, k in zip(values, counts, strict=True)]
    return [ctx.sqrt(sum(squares, wide.mpf(0)))]


def before(inputs: Inputs, exact: Enclosure, out_format: Format, claim: Claim) -> Float64:
    arithmetic = claim.arithmetic
    acc = arithmetic.accumulator
    n = int(inputs["x"].shape[1])
    norm = np.where(exact.finite, exact.magnitude(), 0.0)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
        scaled = claim.policies["range"] == "scaled"
        scaling = 2.0 * arithmetic.division / acc.u if scaled else 0.0
        growth = claim.relative_sum_error(products=True, extra=scaling)
        relative = np.full_like(norm, growth)
        square = norm * norm
        if claim.policies["range"] == "naive":
            lost = n if claim.compensated else math.ceil(0.5 * n)
            absolute = lost * acc.smallest_subnormal * (1.0 + growth) + flush_error(claim)
            relative = relative + np.where(square > 0.0, absolute / square, 0.0)
            # The square may underflow in float64 too, for fp64 data only; then nothing is known.
            relative = np.where((norm > 0.0) & (square == 0.0), np.inf, relative)
        else:
            relative = relative + 2.0 * n * arithmetic.division_floor * (1.0 + growth)
        shift = relative / (1.0 + np.sqrt(np.maximum(0.0, 1.0 - relative)))
        shift = np.where(relative >= 1.0, np.sqrt(1.0 + relative) + 1.0, shift)
        last = arithmetic.host_sqrt + (acc.u if scaled else 0.0)
        # The root, and the product that undoes a scaling, may be subnormal.
        result = norm * (shift * (1.0 + last) + last) + acc.smallest_subnormal
        result = np.where(norm == 0.0, 0.0, result)
        if claim.policies["range"] == "naive":
            overflow = square * (1.0 + relative) >= 2.0 * 2.0**acc.emax
            result = np.where(overflow, np.nan if claim.compensated else np.inf, result)
    return result


def torch_form(operands: Mapping[str, Any], params: Params) -> Any:
    import torch

    return torch.linalg.vector_norm(operands["x"], dim=-1)


SPECIAL_VALUES = (
    SpecialValue((-INF, -INF, -INF), (INF,)),
    SpecialValue((0.0, INF, 1.0), (INF,)),
    SpecialValue((INF, -INF, 0.0), (INF,)),
    SpecialValue((NAN, 1.0, INF), (NAN,)),
    SpecialValue((-0.0, -0.0, -0.0), (0.0,)),
    SpecialValue(
        (2e19, 2e19, 1.0), (None,), torch=(INF,), why="torch squares in float32, range=naive"
    ),
    SpecialValue(
        (1e-23, 1e-23, 1e-23), (None,), torch=(0.0,), why="torch squares in float32, range=naive"
    ),
    SpecialValue(
        (1e-40, 2e-40, 0.0), (None,), torch=(0.0,), why="torch squares in float32, range=naive"
    ),
)

_OPERATION = Operation(
    name="l2_norm",
    formula="sqrt(sum_j x_j^2)",
    kind="whole",
    operands=(Operand("x", "matrix"),),
    outputs=(Output("norm", "row"),),
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
    empty=0.0,
    special_values=SPECIAL_VALUES,
    enclose=enclose,
    reference=reference,
    counted=counted,
    before=before,
    condition=condition,
    torch=torch_form,
)

OPERATIONS = (_OPERATION,)
