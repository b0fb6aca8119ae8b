# SPDX-License-Identifier: Apache-2.0
"""Inputs that drive a simulated kernel's error towards its bound.

A reduction adds leaves: x itself, |x|, x**2 or exp(x - max). The constructions here are leaves
whose additions round to one side; `inputs_of` turns them into x by the inverse of the operation's
leaf. Beside them stand the data families of the operation, sums of prescribed condition, and values
at the edge of the subnormal numbers.
"""

from __future__ import annotations

import numpy as np

from assay.oracles.formats import Float64, Format, round_nearest
from assay.oracles.generators import generate
from assay.oracles.operation import Operation

Labelled = list[tuple[str, Float64]]

_SQUARED = ("l2_norm", "rms_norm", "mean_variance")
_EXPONENTIALS = ("softmax", "log_softmax", "logsumexp")


def directed_leaves(n: int, u: float, rng: np.random.Generator) -> Labelled:
    """Rows of positive leaves, at most 2, of n elements each.

    Beside 1, u is a tie that goes down and is lost whole; just above u rounds up by nearly u, and
    1.5u by half of it. At other places of a binade other multiples do.
    """
    places = np.arange(n)
    rows: Labelled = []
    for name, c in (
        ("u", u),
        ("just above u", u * (1.0 + 2.0**-10)),
        ("just below u", u * (1.0 - 2.0**-10)),
        ("1.5u", 1.5 * u),
        ("just above 3u", 3.0 * u * (1.0 + 2.0**-10)),
    ):
        row = np.full(n, c)
        row[0] = 1.0
        rows += [(f"1, then {name}", row), (f"{name}, then 1", row[::-1].copy())]
    levels = np.where((places & (places - 1)) == 0, u, 0.0)
    levels[0] = 1.0
    rows.append(("1, and u at the powers of two", levels))
    for step in (4, 8, 16, 32):
        tiles = np.where(places % step == 0, u, 0.0)
        tiles[0] = 1.0
        rows.append((f"1, and u at every {step}th place", tiles))
        filled = np.full(n, u / step)
        filled[0] = 1.0
        rows.append((f"1, and u in every {step} places", filled))
        head = np.where(places < step, 1.0, u)
        rows.append((f"{step} times 1, then u", head))
    late = np.where(places >= n // 2, u, 0.0)
    late[: max(1, n // 2)] = 2.0 / max(1, n // 2)
    rows.append(("half of it level, then u", late))
    for c in (0.1, 1.0 / 3.0, 0.7, 1.0 + 2.0**-10, 1.0 + 3 * 2.0**-12, 1.0):
        rows.append((f"constant {c:.6g}", np.full(n, c)))
    rows += [("constant, random", np.full(n, c)) for c in 1.0 + rng.random(6)]
    rows.append(("falling by halves", 2.0 ** -places.clip(max=60).astype(float)))
    rows.append(("rising by halves", rows[-1][1][::-1].copy()))
    rows += [
        ("1, then random multiples of u", np.r_[1.0, u * (1.0 + rng.random(n - 1))])
        for _ in range(4)
    ]
    return rows


def conditioned(n: int, condition: float, fmt: Format, rng: np.random.Generator) -> Float64:
    """A row with sum |x| / |sum x| near `condition`: pairs that cancel but for a remainder."""
    half = n // 2
    first = rng.standard_normal(half) * 2.0 ** rng.integers(-4, 5, half)
    noise = rng.standard_normal(half) / condition
    row = np.r_[first, -first * (1.0 + noise), np.zeros(n - 2 * half)]
    return round_nearest(np.asarray(rng.permutation(row), dtype=np.float64), fmt)


def edge_rows(n: int, fmt: Format, rng: np.random.Generator) -> Labelled:
    """Rows at the edge of the subnormal numbers."""
    small, normal = fmt.smallest_subnormal, fmt.smallest_normal
    return [
        ("a few subnormal spacings", small * rng.integers(-4, 5, n)),
        ("positive subnormals", small * rng.integers(1, 8, n)),
        ("just below the normal range", np.full(n, normal - small)),
        ("about the normal range", normal * (0.5 + rng.random(n))),
        ("about the normal range, signed", normal * (2.0 * rng.random(n) - 1.0)),
    ]


def _as_input(op: Operation, leaves: Float64) -> Float64:
    if op.name in _SQUARED:
        return np.sqrt(leaves)
    if op.name in _EXPONENTIALS:
        with np.errstate(divide="ignore"):
            return np.where(leaves > 0.0, np.log(leaves), -np.inf)
    return leaves


def inputs_of(
    op: Operation, n: int, fmt: Format, accumulator: Format, seed: int, each: int = 2
) -> tuple[list[str], Float64]:
    """(labels, x) of (rows, n) inputs in `fmt` for kernels that add in `accumulator`.

    each: rows of every data family of the operation.
    """
    rng = np.random.default_rng(seed)
    rows: Labelled = [
        (name, _as_input(op, leaves)) for name, leaves in directed_leaves(n, accumulator.u, rng)
    ]
    for family in op.families:
        rows += [(family, generate(family, 1, n, seed + k, fmt)[0]) for k in range(each)]
    if op.name in _EXPONENTIALS:
        rows += [
            ("down to the subnormals", np.linspace(-104.0, 0.0, n)),
            ("far from zero", np.linspace(-100.0, 0.0, n) - 1000.0),
            ("two values", np.where(np.arange(n) % 2, -0.7, 0.0)),
            ("the maximum last, each element a new one", np.linspace(-30.0, 1.0 / 3.0, n)),
        ]
        rows += [
            (f"1/3, the others {d:.3g} below it", np.r_[1.0 / 3.0, np.full(n - 1, 1.0 / 3.0 - d)])
            for d in np.r_[rng.uniform(5.0, 8.0, 8), 20.0, 50.0, 80.0, 87.0, 100.0]
        ]
        rows += [("a step before the maximum", np.r_[np.full(n - 1, -d), 0.0]) for d in (1.0, 7.0)]
    else:
        rows += [(f"condition {c:.0e}", conditioned(n, c, fmt, rng)) for c in (1e1, 1e3, 1e5, 1e7)]
        rows += edge_rows(n, fmt, rng)
        root = accumulator.smallest_subnormal**0.5
        rows += [("squares at the edge", root * (0.5 + rng.random(n) * 4.0)) for _ in range(2)]
        rows += [("offset", 2.0**k + rng.standard_normal(n)) for k in (3, 6, 9, 12)]
        signs = rng.choice([-1.0, 1.0], n)
        rows += [(f"{name}, signed", row * signs) for name, row in rows[:8]]
    labels = [name for name, _ in rows]
    with np.errstate(over="ignore"):
        x = round_nearest(np.stack([row for _, row in rows]), fmt)
    return labels, np.where(np.isposinf(x) | np.isnan(x), fmt.largest, x)
