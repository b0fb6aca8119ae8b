# SPDX-License-Identifier: Apache-2.0
"""Agreement of the rungs: mpmath of record, arb's balls, and the enclosures that are used.

Everything is compared in integer arithmetic on exact end points.
A rung that is wrong raises AssertionError in `assert_rungs_agree` or `assert_counts_agree`.
"""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
from oracle_inputs import enclose, reference

from assay.oracles.certified_exp import EXP_ERROR, EXP_ERROR_FINE
from assay.oracles.double_double import PRODUCT_ERROR, QUOTIENT_ERROR
from assay.oracles.formats import FP64
from assay.oracles.multiprecision import RELATIVE_ERROR

try:
    import arb_forms
except ImportError:  # python-flint is an extra
    arb_forms = None

# Numbers are compared as integers, in units so small that products of float64 numbers are whole;
# what lies beneath loses less than one unit.
_UNIT = 4400

# Results that are rational numbers: known exactly, whatever the level.
RATIONAL = {
    "count_nonzero", "l1_norm", "matmul", "mean", "mean_variance", "row_argmax", "row_max",
    "row_mean", "row_min", "row_sum", "sum",
}  # fmt: skip


def units(value):
    """A finite float, mpf or (mantissa, exponent) in units of 2**-4400, rounded down."""
    if isinstance(value, float):
        if value == 0.0:
            return 0
        numerator, denominator = value.as_integer_ratio()
        return numerator << (_UNIT + 1 - denominator.bit_length())
    if isinstance(value, tuple):
        mantissa, exponent = value
    else:
        sign, mantissa, exponent, _ = value._mpf_
        mantissa = -int(mantissa) if sign else int(mantissa)
    shift = exponent + _UNIT
    # exp(-1e30) has an exponent that no shift should see.
    return mantissa << shift if shift >= 0 else mantissa >> min(-shift, 10**6)


def in_decimal(count):
    return mpmath.nstr(mpmath.ldexp(count, -_UNIT), 40)


def ends(found, i):
    """End points of a flat enclosure's element."""
    middle = units(float(found.center[i])) + units(float(found.tail[i]))
    radius = units(float(found.radius[i]))
    return middle - radius, middle + radius


# What the reference may be off: one unit more than this of its size.
_OFF = Fraction(RELATIVE_ERROR).denominator.bit_length() - 1


def slack_of(value):
    return (abs(value) >> _OFF) + 1


def claimed_width(op, exact, level, fmt, inputs, policies):
    """Largest radius that the operation's module claims, for each result."""
    size, tail = np.abs(exact.center), np.abs(exact.tail)
    # A pair loses what its tail's last place does not hold, and what is below 2**-1074.
    stored = tail * 2.0**-51 + 2.0**-1073
    if op.name in RATIONAL:
        return np.where((tail == 0.0) & (size >= 2.0**-960), 0.0, stored)
    fine = level != "fast"
    if op.name in ("logsumexp", "log_softmax"):
        # The sum of maximum and logarithm is stored once more, in pairs of both.
        largest = np.abs(np.where(np.isfinite(inputs["x"]), inputs["x"], 0.0)).max(initial=0.0)
        pair = (largest + 750.0) * 2.0**-104
        return np.full_like(size, 2.0 * (EXP_ERROR_FINE if fine else EXP_ERROR)) + pair
    relative = {
        "l2_norm": 2.0**30 * 2.0 ** -(400 if fine else 200),
        "softmax": 2.0 * (EXP_ERROR_FINE if fine or fmt is FP64 else EXP_ERROR),
        "rms_norm": 2.0 * PRODUCT_ERROR + 2.0**-104,
        "min_max": QUOTIENT_ERROR,
    }[op.name]
    if op.name == "softmax":
        # Far below everything else in the row the tail is lost.
        stored = stored + np.where(size < 2.0**-880, 2.0**-939, 0.0)
    if op.name == "min_max":
        stored = stored + np.where(size < 2.0**-899, 2.0**-1012, 0.0)
    if op.name == "rms_norm" and policies["cast"] == "before_weight":
        # Rounded, and the product with a weight held exactly: no width, where that is decided.
        relative = 0.0
    return size * (1.0 + 2.0**-40) * relative + stored


def assert_no_wider_than_claimed(what, op, exact, level, fmt, inputs, policies):
    wide = exact.finite & (exact.radius > claimed_width(op, exact, level, fmt, inputs, policies))
    assert not wide.any(), (
        f"{what}, level {level}: radius {exact.radius[wide][:1]} at center {exact.center[wide][:1]}"
        f" with tail {exact.tail[wide][:1]} is more than is claimed"
    )
    special = ~exact.finite
    assert not exact.tail[special].any(), f"{what}: a special value has no tail"
    assert not exact.radius[special].any(), f"{what}: a special value has no radius"


def assert_holds(what, found, values, *, rational=False):
    """Every element of a flat enclosure holds the reference's value, or is the special value."""
    assert len(values) == found.center.size, (
        f"{what}: {found.center.size} elements, {len(values)} in the reference"
    )
    for i, value in enumerate(values):
        center = float(found.center[i])
        if not mpmath.isfinite(value) or not np.isfinite(center):
            same = np.isnan(center) if mpmath.isnan(value) else center == float(value)
            assert same, f"{what}: element {i} is {center!r}, the reference says {value}"
            continue
        exact, (lo, hi) = units(value), ends(found, i)
        slack = slack_of(exact)
        if rational and 2 * exact == lo + hi:
            assert lo == hi, f"{what}: element {i} is held exactly, but has a radius"
        assert lo - slack <= exact <= hi + slack, (
            f"{what}: element {i}: the reference {mpmath.nstr(value, 40)} lies outside the "
            f"enclosure: center {center!r}, tail {float(found.tail[i])!r}, radius "
            f"{float(found.radius[i])!r}"
        )


def assert_meets_balls(what, found, values, balls):
    """Each ball has a point of the enclosure, and the reference's value to its relative error."""
    for i, (ball, value) in enumerate(zip(balls, values, strict=True)):
        if ball is None:  # no opinion: special values, and ties that the ball does not decide
            continue
        blo, bhi = map(units, ball)
        if np.isfinite(found.center[i]):
            lo, hi = ends(found, i)
            assert lo <= bhi + 1 and blo <= hi + 1, (
                f"{what}: element {i}: arb says {in_decimal(blo)}, outside the enclosure: center "
                f"{float(found.center[i])!r}, tail {float(found.tail[i])!r}, radius "
                f"{float(found.radius[i])!r}"
            )
        claimed = slack_of(max(abs(blo), abs(bhi)))
        assert bhi - blo <= claimed, f"{what}: element {i}: arb's ball is too wide to be an opinion"
        assert mpmath.isfinite(value), (
            f"{what}: element {i}: mpmath says {value}, arb {in_decimal(blo)}"
        )
        assert blo - claimed <= units(value) <= bhi + claimed, (
            f"{what}: element {i}: mpmath says {mpmath.nstr(value, 40)}, arb {in_decimal(blo)}: "
            f"farther apart than the claimed relative error of {RELATIVE_ERROR}"
        )


def assert_rungs_agree(op, inputs, policies, fmt, params=None, *, balls=True):
    """mpmath, arb and the enclosures of levels fast and fine have points in common, pairwise."""
    params = dict(op.params) | (params or {})
    shapes = {k: v.shape for k, v in inputs.items()}
    what = f"{op.name} in {fmt.name} of {shapes}, {policies}, {params}"
    record = reference(op, inputs, policies, fmt, params)
    third = arb_forms.balls(op.name, inputs, params, policies, fmt) if balls and arb_forms else None
    found = {}
    for level in ("fast", "fine"):
        exact = enclose(op, inputs, policies, fmt, params, level)
        columns = inputs["w"].shape[1] if "w" in inputs else 1
        shape = op.result_shape(*inputs["x"].shape, columns)
        assert exact.shape == shape, f"{what}: shape {exact.shape}, expected {shape}"
        assert_no_wider_than_claimed(what, op, exact, level, fmt, inputs, policies)
        found[level] = exact.reshape(-1)
        assert_holds(f"{what}, level {level}", found[level], record, rational=op.name in RATIONAL)
        if third is not None:
            assert_meets_balls(f"{what}, level {level}", found[level], record, third)
    apart = ~found["fast"].intersects(found["fine"])
    assert not apart.any(), f"{what}: fast and fine are apart at {np.flatnonzero(apart)}"


def assert_counts_agree(op, x, policies, fmt, params=None):
    """`counted` of distinct values and their counts gives what `reference` does of all."""
    params, policies = dict(op.params) | (params or {}), op.check_policies(policies)
    record = reference(op, {"x": x}, policies, fmt, params)
    width = len(record) // max(1, x.shape[0])
    for i, row in enumerate(x):
        values, place, counts = np.unique(row, return_inverse=True, return_counts=True)
        got = op.counted(values.tolist(), counts.tolist(), params, policies, fmt)
        expected = len(values) if op.elementwise else width
        assert len(got) == expected, f"{op.name}: {len(got)} results of counts, not {expected}"
        if op.elementwise:
            got = [got[k] for k in place]
        for j, (one, other) in enumerate(zip(got, record[i * width :][:width], strict=True)):
            what = f"{op.name}, {policies}, row {i}, result {j}: {one} of counts, {other} of all"
            if not (mpmath.isfinite(one) and mpmath.isfinite(other)):
                assert (mpmath.isnan(one) and mpmath.isnan(other)) or one == other, what
                continue
            a, b = units(one), units(other)
            assert abs(a - b) <= slack_of(a) + slack_of(b), what
