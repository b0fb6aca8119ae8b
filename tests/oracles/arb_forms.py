# SPDX-License-Identifier: Apache-2.0
"""Every operation once more in python-flint's real balls, written from its formula alone.

Nothing of the oracles is used here, so that a mistake would have to be made twice.
"""

from __future__ import annotations

import math
from fractions import Fraction

import flint
from flint import arb

# Precision is doubled until every ball is this narrow, relative to its value.
GOOD_BITS = 180
_MOST_BITS = 10_000


def balls(name, inputs, params, policies, fmt):
    """(low, high) of each result, row by row; None where it has no finite value.

    An end is a pair: mantissa times 2**exponent.
    """
    form = FORMS[name]
    before = flint.ctx.prec
    flint.ctx.prec = 300
    try:
        while True:
            found = form(inputs, params, policies, fmt)
            wide = any(b is not None and b.rel_accuracy_bits() <= GOOD_BITS for b in found)
            if not wide or flint.ctx.prec > _MOST_BITS:
                return [None if b is None or not b.is_finite() else _ends(b) for b in found]
            flint.ctx.prec *= 2
    finally:
        flint.ctx.prec = before


def _ends(ball):
    return tuple(tuple(map(int, end.man_exp())) for end in (ball.lower(), ball.upper()))


def _rows(inputs, name="x"):
    return inputs[name].tolist()


def _finite(row):
    return all(map(math.isfinite, row))


def _total(terms):
    return sum(terms, arb(0))


def _sum(inputs, params, policies, fmt):
    return [_total(map(arb, row)) if _finite(row) else None for row in _rows(inputs)]


def _mean(inputs, params, policies, fmt):
    rows = _rows(inputs)
    return [_total(map(arb, row)) / len(row) if row and _finite(row) else None for row in rows]


def _l1(inputs, params, policies, fmt):
    return [_total(abs(arb(v)) for v in row) if _finite(row) else None for row in _rows(inputs)]


def _l2(inputs, params, policies, fmt):
    rows = _rows(inputs)
    return [_total(arb(v) ** 2 for v in row).sqrt() if _finite(row) else None for row in rows]


def _count(inputs, params, policies, fmt):
    return [arb(len(row) - row.count(0.0)) for row in _rows(inputs)]


def _largest(inputs, params, policies, fmt):
    return [_extreme(sorted(row), -1) for row in _rows(inputs)]


def _smallest(inputs, params, policies, fmt):
    return [_extreme(sorted(row), 0) for row in _rows(inputs)]


def _extreme(ordered, place):
    special = not ordered or any(map(math.isnan, ordered)) or math.isinf(ordered[place])
    return None if special else arb(ordered[place])


def _argmax(inputs, params, policies, fmt):
    rows = _rows(inputs)
    return [
        None if not row or any(map(math.isnan, row)) else arb(row.index(max(row))) for row in rows
    ]


def _mean_variance(inputs, params, policies, fmt):
    found = []
    for row in _rows(inputs):
        free = len(row) - int(params["correction"])
        if not row or not _finite(row):
            found += [None, None]
            continue
        mean = _total(map(arb, row)) / len(row)
        found += [mean, _total((arb(v) - mean) ** 2 for v in row) / free if free > 0 else None]
    return found


def _min_max(inputs, params, policies, fmt):
    found = []
    for row in _rows(inputs):
        low, high = (min(row), max(row)) if row else (0.0, 0.0)
        if not _finite(row) or low == high:
            found += [None] * len(row)
            continue
        width = arb(high) - arb(low)
        found += [(arb(v) - arb(low)) / width for v in row]
    return found


def _exps(row):
    """exp of each element, or None where the sum of them is 0, infinite or NaN."""
    numbers = [v for v in row if v != -math.inf]
    if not numbers or not _finite(numbers):
        return None
    return [arb(v).exp() if v > -math.inf else arb(0) for v in row]


def _logsumexp(inputs, params, policies, fmt):
    terms = [_exps(row) for row in _rows(inputs)]
    return [None if t is None else _total(t).log() for t in terms]


def _softmax(inputs, params, policies, fmt):
    found = []
    for row in _rows(inputs):
        terms = _exps(row)
        total = None if terms is None else _total(terms)
        found += [None] * len(row) if terms is None else [t / total for t in terms]
    return found


def _log_softmax(inputs, params, policies, fmt):
    found = []
    for row in _rows(inputs):
        terms = _exps(row)
        log = None if terms is None else _total(terms).log()
        if row.count(-math.inf) == len(row) - 1:
            log = arb(max(row))  # one term: log(exp(v)) is v
        found += [None if log is None or v == -math.inf else arb(v) - log for v in row]
    return found


def _matmul(inputs, params, policies, fmt):
    columns = inputs["w"].T.tolist()
    return [
        _total(arb(a) * arb(b) for a, b in zip(row, column, strict=True))
        if _finite(row) and _finite(column)
        else None
        for row in _rows(inputs)
        for column in columns
    ]


def _rms_norm(inputs, params, policies, fmt):
    rows = _rows(inputs)
    residuals = (
        _rows(inputs, "residual") if "residual" in inputs else [[0.0] * len(r) for r in rows]
    )
    weight = _rows(inputs, "weight") if "weight" in inputs else None
    found = []
    for row, added in zip(rows, residuals, strict=True):
        if not (_finite(row) and _finite(added)):
            found += [None] * len(row)
            continue
        sums = [Fraction(a) + Fraction(b) for a, b in zip(row, added, strict=True)]
        if "residual" in inputs and policies["residual"] == "stored":
            sums = [nearest(s, fmt) for s in sums]
        h = [arb(s.numerator) / s.denominator if s is not None else None for s in sums]
        v = _total(a**2 for a in h) / max(1, len(h)) + arb(params["eps"]) if None not in h else None
        if v is None or v == 0:
            found += [None] * len(row)
            continue
        for j, a in enumerate(h):
            w = 1.0 if weight is None else weight[j]
            y = a / v.sqrt()
            if policies["cast"] == "before_weight":
                low, high = (nearest(Fraction(m) * Fraction(2) ** e, fmt) for m, e in _ends(y))
                # A ball across a midpoint does not decide the rounding.
                known = low is not None and low == high and math.isfinite(w)
                found.append(arb(low.numerator) / low.denominator * arb(w) if known else None)
            else:
                found.append(y * arb(w))
    return found


def nearest(value, fmt):
    """A Fraction rounded to the nearest number of the format, ties to even; None beyond the last.

    By integers: value / 2**e for the exponent e of the last place there.
    """
    if value == 0:
        return Fraction(0)
    e = abs(value.numerator).bit_length() - value.denominator.bit_length()
    if abs(value) < Fraction(2) ** e:
        e -= 1
    step = Fraction(2) ** (max(e, fmt.emin) - fmt.precision + 1)
    rounded = round(value / step) * step  # Python rounds a Fraction's ties to even
    return rounded if abs(rounded) <= Fraction(fmt.largest) else None


FORMS = {
    "count_nonzero": _count,
    "l1_norm": _l1,
    "l2_norm": _l2,
    "log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "matmul": _matmul,
    "mean": _mean,
    "mean_variance": _mean_variance,
    "min_max": _min_max,
    "rms_norm": _rms_norm,
    "row_argmax": _argmax,
    "row_max": _largest,
    "row_mean": _mean,
    "row_min": _smallest,
    "row_sum": _sum,
    "softmax": _softmax,
    "sum": _sum,
}
