# SPDX-License-Identifier: Apache-2.0
"""The self-audit: which wrong kernels the criteria reject, and from which N a tolerance does not.

A criterion that accepts a kernel returning zeros is none. So the cheats of
`assay.oracles.tolerances.cheats` are held to four criteria at growing N:

exact      data whose sums are exact in the accumulator (whole numbers, equal logits), so that no
           addition may round: only what the other roundings of the operation cost is allowed,
           which for a sum is nothing but the final rounding
huge       a normal row with a huge last element, held to the proved bound
bound      a fresh draw of a family, held to the proved bound, result by result
tolerance  the same draw, held to the tolerance that a test would copy: rtol has to allow at the top
           of a binade what it allows at the bottom, so it is weaker by up to half an ulp

Each cheat must be rejected by at least one of them at every N at which its results are not the
correctly rounded ones on every data set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from assay.oracles.bounds import allowed
from assay.oracles.depth import TileLoop
from assay.oracles.enclosure import Enclosure
from assay.oracles.formats import Float64, Format, format_named
from assay.oracles.generators import generate
from assay.oracles.operation import Claim, Operation, operation_named, operations
from assay.oracles.portable_random import integers
from assay.oracles.tolerances.cheats import BLOCK, CHEATS, cheat
from assay.oracles.tolerances.claimed_error import COLUMNS, Claims, without_additions
from assay.oracles.tolerances.curve_files import MeasuredCurve, load, matching
from assay.oracles.tolerances.family_scale import ToleranceError
from assay.oracles.tolerances.tolerance import ANY_GPU, Tolerance, tolerance

DTYPES = ("float32", "float16", "bfloat16")
LADDER = (1, 4, 64, 1024, 1 << 14, 1 << 17, 1 << 20, 1 << 24)
LONGEST_ELEMENTWISE = 1 << 17
CRITERIA = ("exact", "huge", "bound", "tolerance")

# Stands for an operation without a kernel: running sums over tiles, joined once.
USUAL = Claims(
    order=TileLoop("BLOCK_N"), config=lambda rows, n, dtype: {"BLOCK_N": BLOCK, "num_warps": 4}
)
_SEED, _BEFORE = 1, 2
# At most so many elements differ from zero where sums have to be exact: 512 squares of up to 100
# stay far below 2**24, and 512 such numbers, or twice them, hardly ever leave float16's range.
_NONZERO, _LARGEST = 512, 100
_EXPONENTIAL = ("log_softmax", "logsumexp", "softmax")
_EXTREME = ("row_argmax", "row_max", "row_min")

ToleranceOf = Callable[..., Tolerance]


@dataclass(frozen=True)
class Outcome:
    """One cheat at one N.

    margins: error / allowed by criterion, for those that reject.
    changed: criteria on whose data the results are not the correctly rounded ones.
    """

    n: int
    margins: Mapping[str, float]
    changed: tuple[str, ...]

    @property
    def survived(self) -> bool:
        return bool(self.changed) and not self.margins

    @property
    def best(self) -> tuple[float, str]:
        """The largest margin and whose it is."""
        best = max(self.margins, key=lambda c: self.margins[c])
        return self.margins[best], best


@dataclass(frozen=True)
class Line:
    """One operation, dtype and cheat over all N."""

    operation: str
    dtype: str
    cheat: str
    outcomes: tuple[Outcome, ...]

    @property
    def loses_power(self) -> int | None:
        """The smallest N at which the tolerance alone accepts wrong results."""
        for o in self.outcomes:
            if "tolerance" in o.changed and "tolerance" not in o.margins:
                return o.n
        return None

    @property
    def weakest(self) -> Outcome | None:
        """The outcome whose best margin is least."""
        rejected = [o for o in self.outcomes if o.margins]
        return min(rejected, key=lambda o: o.best[0]) if rejected else None

    @property
    def idle(self) -> tuple[int, ...]:
        """Sizes at which the cheat cannot be told from a right kernel: its results are right."""
        return tuple(o.n for o in self.outcomes if not o.changed)

    @property
    def survived(self) -> tuple[int, ...]:
        return tuple(o.n for o in self.outcomes if o.survived)


@dataclass
class SelfAudit:
    """All lines of a self-audit."""

    found: list[Line] = field(default_factory=list)

    def lines(self) -> list[Line]:
        return self.found

    @property
    def judged(self) -> int:
        return sum(len(line.outcomes) for line in self.found)

    @property
    def survivors(self) -> list[str]:
        """What got past every criterion, one line each."""
        return [
            f"{line.operation} {line.dtype}, a kernel that {CHEATS[line.cheat]}, at N = {n:,}"
            for line in self.found
            for n in line.survived
        ]

    def as_data(self) -> dict[str, Any]:
        """Plain data; None stands for an infinite margin, where nothing was allowed."""
        return {
            "survivors": self.survivors,
            "lines": [
                {
                    "operation": line.operation,
                    "dtype": line.dtype,
                    "cheat": line.cheat,
                    "tolerance_loses_power_at": line.loses_power,
                    "idle": list(line.idle),
                    "survives": list(line.survived),
                    "outcomes": [
                        {
                            "n": o.n,
                            "changed": list(o.changed),
                            "margins": {
                                c: m if math.isfinite(m) else None for c, m in o.margins.items()
                            },
                        }
                        for o in line.outcomes
                    ],
                }
                for line in self.found
            ],
        }


def audit(
    names: Sequence[str] | None = None,
    *,
    claims: Mapping[str, Claims] | None = None,
    curves: Sequence[MeasuredCurve] | None = None,
    max_n: int | None = None,
    dtypes: Sequence[str] = DTYPES,
    criteria: Sequence[str] = CRITERIA,
    tolerance_of: ToleranceOf = tolerance,
    say: Callable[[str], None] | None = None,
) -> SelfAudit:
    """Every cheat against every criterion, for the operations `names` (all if None).

    claims: by operation; those that are missing are held to `USUAL`.
    criteria, tolerance_of: to see what happens without a criterion or with another tolerance.
    say: told what is being judged.
    """
    found = load() if curves is None else curves
    result = SelfAudit()
    for name in names or operations():
        op = operation_named(name)
        claimed = (claims or {}).get(name, USUAL)
        limit = max_n or LADDER[-1]
        if op.elementwise:
            limit = min(limit, LONGEST_ELEMENTWISE)
        if claimed.max_n is not None:
            limit = min(limit, claimed.max_n)
        for dtype in dtypes:
            outcomes: dict[str, list[Outcome]] = {c: [] for c in CHEATS}
            for n in (n for n in LADDER if n <= limit):
                if say is not None:
                    say(f"{name} {dtype} N = {n:,}")
                sets = [
                    s
                    for s in _data_sets(op, n, dtype, claimed, found, tolerance_of)
                    if s.criterion in criteria
                ]
                for c in CHEATS:
                    outcomes[c].append(_outcome(c, op, n, format_named(dtype), sets))
            result.found += [Line(name, dtype, c, tuple(outcomes[c])) for c in CHEATS]
    return result


@dataclass(frozen=True)
class DataSet:
    """Data with exact results, and what the criterion allows for each, NaN where it is silent.

    before: the data of the call before.
    right: the correctly rounded results.
    """

    criterion: str
    inputs: Mapping[str, Any]
    before: Mapping[str, Any]
    exact: Enclosure
    right: Float64
    limit: Float64


def _outcome(name: str, op: Operation, n: int, fmt: Format, sets: Sequence[DataSet]) -> Outcome:
    margins: dict[str, float] = {}
    changed = []
    for data in sets:
        out = cheat(name, op, data.inputs, data.before, fmt, data.exact.shape)
        same = (out == data.right) | (np.isnan(out) & np.isnan(data.right))
        if same.all():
            continue
        changed.append(data.criterion)
        with np.errstate(invalid="ignore", divide="ignore"):
            # A special value where a number is due, or the reverse, is infinitely wrong.
            off = np.where(data.exact.finite, data.exact.error(out), np.inf)
            share = np.where(same, 0.0, np.where(data.limit > 0.0, off / data.limit, np.inf))
        share = np.where(np.isnan(data.limit), 0.0, share)
        worst = float(share.max())
        if worst > 1.0:
            margins[data.criterion] = worst
    return Outcome(n, margins, tuple(changed))


def _rows(n: int) -> int:
    return 32 if n <= 64 else 8 if n <= 1 << 14 else 2 if n <= 1 << 17 else 1


def _data_sets(
    op: Operation,
    n: int,
    dtype: str,
    claims: Claims,
    curves: Sequence[MeasuredCurve],
    tolerance_of: ToleranceOf,
) -> Iterator[DataSet]:
    fmt, rows = format_named(dtype), _rows(n)
    curve = None
    if claims.name is not None:
        curve = matching(curves, kernel=claims.name, dtype=dtype, family="normal")
    platform = curve.platform if curve else ANY_GPU
    claim = claims.claim(op, rows, n, dtype, platform)
    policies = dict(claim.policies)
    for criterion, make in (("exact", _exact_data), ("huge", _huge_data)):
        inputs, before = (make(op, rows, n, seed, fmt) for seed in (_SEED, _BEFORE))
        exact = op.enclose(inputs, op.params, policies, fmt, "fast")
        right = _rounded(op, exact, fmt)
        judged = without_additions(claim) if criterion == "exact" else claim
        limit = _bound(op, inputs, exact, fmt, judged)
        yield DataSet(criterion, inputs, before, exact, right, limit)
    family = "sparse" if op.name == "count_nonzero" else "normal"
    inputs, before = (_drawn(op, rows, n, seed, fmt, family) for seed in (_SEED, _BEFORE))
    exact = op.enclose(inputs, op.params, policies, fmt, "fast")
    right = _rounded(op, exact, fmt)
    limit = _bound(op, inputs, exact, fmt, claim)
    yield DataSet("bound", inputs, before, exact, right, limit)
    limit = np.full(exact.shape, np.nan)
    for i in range(len(op.outputs)):
        columns = slice(i, i + 1) if op.outputs[i].shape == "row" else slice(None)
        try:
            t = tolerance_of(
                op, n, dtype, kernel=claims, family=family, rows=rows, output=i, curves=curves
            )
        except ToleranceError:
            continue
        size = np.where(exact.finite, np.abs(exact.center), 0.0)[:, columns]
        limit[:, columns] = t.atol + t.rtol * size
    yield DataSet("tolerance", inputs, before, exact, right, limit)


def _rounded(op: Operation, exact: Enclosure, fmt: Format) -> Float64:
    return exact.center if op.integer else exact.round(fmt)[0]


def _bound(
    op: Operation, inputs: Mapping[str, Any], exact: Enclosure, fmt: Format, claim: Claim
) -> Float64:
    """The largest error of a right kernel; 0 for results that are exact, NaN without a bound."""
    before = op.before(inputs, exact, fmt, claim)
    if op.integer or op.name in _EXTREME:
        return np.zeros(exact.shape)
    limit = np.where(exact.finite, allowed(before, exact, fmt, claim.arithmetic), 0.0)
    return np.where(np.isfinite(before), limit, np.nan)


def _with_operands(op: Operation, x: Float64, w: Callable[[], Float64]) -> dict[str, Any]:
    inputs: dict[str, Any] = {"x": x}
    if any(o.shape == "second" for o in op.operands):
        inputs["w"] = w()
    return inputs


def _drawn(op: Operation, rows: int, n: int, seed: int, fmt: Format, family: str) -> dict[str, Any]:
    x = generate(family, rows, n, seed, fmt)
    return _with_operands(op, x, generate(family, COLUMNS, n, seed + 100, fmt).T.copy)


def _huge_data(op: Operation, rows: int, n: int, seed: int, fmt: Format) -> dict[str, Any]:
    """A normal row whose last element outweighs the others by far."""
    inputs = _drawn(op, rows, n, seed, fmt, "normal")
    if op.name in _EXPONENTIAL:
        size = 60.0 + 4.0 * seed
    else:
        size = (2.0**13 if fmt.emax < 16 else 2.0**40) * (1.0 + seed)
    inputs["x"] = inputs["x"].copy()
    inputs["x"][:, -1] = -size if op.name == "row_min" else size
    if "w" in inputs:
        inputs["w"][-1] = 1.0
    return inputs


def _exact_data(op: Operation, rows: int, n: int, seed: int, fmt: Format) -> dict[str, Any]:
    """Whole numbers whose sums, and sums of squares and products, no order of additions rounds.

    Exponentials: rows of equal elements, whose exponentials are 1, and rows of one element among
    -inf. The last element always counts.
    """
    if op.name in _EXPONENTIAL:
        x = np.full((rows, n), float(seed))
        alone = np.arange(rows) % 2 == 1
        x[alone] = -np.inf
        x[alone, n - 1 if seed == _SEED else n // 2] = float(seed)
        return {"x": x}
    used = min(n, _NONZERO)
    places = n - 1 - np.arange(used) * (n // used)
    values = 1.0 + integers(seed, 1, rows * used, _LARGEST).reshape(rows, used)
    if op.name == "mean_variance" and used > 1:
        # In pairs that cancel: the mean is 0, so that the deviations are whole numbers too.
        values[:, 1::2] = -values[:, 0::2]
    x = np.zeros((rows, n))
    x[:, places] = values
    if op.name in _EXTREME:
        at = n - 1 if seed == _SEED else n // 2
        x[:, at] = (-1.0 if op.name == "row_min" else 1.0) * (2 * _LARGEST + seed)
    return _with_operands(
        op, x, lambda: 1.0 + integers(seed, 2, n * COLUMNS, 2).astype(np.float64).reshape(n, -1)
    )
