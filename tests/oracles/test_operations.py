# SPDX-License-Identifier: Apache-2.0
"""Operations: the fast oracle against mpmath of record and against arb."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from assay.oracles.double_double import PRODUCT_ERROR, QUOTIENT_ERROR
from assay.oracles.enclosure import from_mpf
from assay.oracles.formats import BF16, FP16, FP32, round_nearest
from assay.oracles.generators import generate
from assay.oracles.multiprecision import RELATIVE_ERROR
from assay.oracles.operation import operation_named, operations

STORED = (FP32, FP16, BF16)
# Width that each oracle claims, relative to the result: what its own module derives.
CLAIMED_WIDTH = {
    "l2_norm": RELATIVE_ERROR,
    "softmax": QUOTIENT_ERROR,
    "rms_norm": 2.0 * PRODUCT_ERROR + 2.0**-104,
}


def by_name(value):
    return getattr(value, "name", None) or str(value)


def policy_combinations(op):
    names = [p.name for p in op.policies]
    for values in itertools.product(*(p.values for p in op.policies)):
        yield dict(zip(names, values, strict=True))


def operand_choices(op, family, rows, n, fmt, seed):
    """Inputs with every choice of optional operands: left out, or given."""
    required = {o.name for o in op.operands if o.default == "required"}
    optional = [o.name for o in op.operands if o.name not in required]
    for given in itertools.product((False, True), repeat=len(optional)):
        chosen = required | {name for name, take in zip(optional, given, strict=True) if take}
        inputs = {}
        for k, operand in enumerate(op.operands):
            if operand.name in chosen:
                # A weight is of the order of 1 in real models, whatever x is.
                kind = family if operand.shape == "matrix" else "normal"
                values = generate(kind, rows, n, seed + k, fmt)
                inputs[operand.name] = values if operand.shape == "matrix" else values[0]
        yield inputs


# Below every float64 and every radius: what lies beneath is as good as its sign.
VANISHING = Fraction(1, 2**2000)


def as_fraction(value):
    """An mpf as the rational that it is, or as +-2**-2000 if it is smaller (and not 0)."""
    sign, mantissa, exponent, bits = value._mpf_
    if mantissa and exponent + bits < -2000:  # exp(-1e30) has no business in a Fraction
        return (-1) ** sign * VANISHING
    return (-1) ** sign * Fraction(int(mantissa)) * Fraction(2) ** exponent


def flat(enclosure):
    return enclosure.reshape(-1)


def assert_agrees(what, enclosure, reference):
    """Every element encloses the reference's value, or is the same special value."""
    found = flat(enclosure)
    assert len(reference) == found.center.size, (
        f"{what}: {found.center.size} elements, {len(reference)} in the reference"
    )
    for i, value in enumerate(reference):
        center = float(found.center[i])
        if not mpmath.isfinite(value):
            assert np.isnan(center) if mpmath.isnan(value) else center == float(value), (
                f"{what}: element {i} is {center!r}, the reference says {value}"
            )
            continue
        assert np.isfinite(center), f"{what}: element {i} is {center!r}, the reference {value}"
        exact = as_fraction(value)
        slack = abs(exact) * Fraction(RELATIVE_ERROR)  # what the reference itself may be off
        lo, hi = found.interval(i)
        assert lo - slack <= exact <= hi + slack, (
            f"{what}: element {i}: the reference {value} lies outside the enclosure by "
            f"{float(max(lo - exact, exact - hi))!r}; center {center!r}, tail "
            f"{float(found.tail[i])!r}, radius {float(found.radius[i])!r}"
        )


def enclose(op, inputs, policies, fmt, **params):
    return op.enclose(inputs, dict(op.params) | params, op.check_policies(policies), fmt)


def reference(op, inputs, policies, fmt, **params):
    return op.reference(inputs, dict(op.params) | params, op.check_policies(policies), fmt)


CASES = [
    pytest.param(op, family, fmt, id=f"{op.name}-{family}-{fmt.name}")
    for op in operations().values()
    for family in op.families
    for fmt in STORED
]


# --- against mpmath -------------------------------------------------------------------------------


def assert_no_wider_than_claimed(what, op, enclosure):
    # Storing a pair loses 2**-52 of the tail and what is below 2**-1074.
    size = np.abs(enclosure.center) * (1.0 + 2.0**-40)
    limit = size * CLAIMED_WIDTH[op.name] + np.abs(enclosure.tail) * 2.0**-51 + 2.0**-1073
    wide = enclosure.finite & (enclosure.radius > limit)
    assert not wide.any(), (
        f"{what}: radius {enclosure.radius[wide][:1]} at center {enclosure.center[wide][:1]}, "
        f"claimed {CLAIMED_WIDTH[op.name]} of it"
    )
    special = ~enclosure.finite
    assert not enclosure.tail[special].any(), f"{what}: a special value has no tail"
    assert not enclosure.radius[special].any(), f"{what}: a special value has no radius"


@pytest.mark.parametrize(("op", "family", "fmt"), CASES)
def test_the_enclosure_holds_what_mpmath_says_and_is_narrow(op, family, fmt):
    for policies in policy_combinations(op):
        for rows, n, seed in ((2, 33, 5), (1, 1, 6)):
            for inputs in operand_choices(op, family, rows, n, fmt, seed):
                what = f"{op.name} of {family} in {fmt.name}, {policies}, {sorted(inputs)}"
                exact = enclose(op, inputs, policies, fmt)
                record = reference(op, inputs, policies, fmt)
                assert exact.shape == ((rows, 1) if op.whole else (rows, n)), f"{what}: shape"
                assert_agrees(what, exact, record)
                assert_no_wider_than_claimed(what, op, exact)
                as_record = from_mpf(record, relative_error=RELATIVE_ERROR)
                apart = ~flat(exact).intersects(as_record)
                assert not apart.any(), f"{what}: no common point at {np.flatnonzero(apart)}"


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_long_rows_agree_too(op):
    """Longer than a run, a tile or a pool: rows of 2**13 + 1 values."""
    n = 2**13 + 1
    inputs = {o.name: generate("normal", 1, n, 3, FP32) for o in op.operands}
    inputs |= {o.name: inputs[o.name][0] for o in op.operands if o.shape == "columns"}
    assert_agrees(
        f"{op.name}, {n} columns", enclose(op, inputs, {}, FP32), reference(op, inputs, {}, FP32)
    )


def rows_of(*rows):
    return np.array(rows, dtype=np.float64)


# Inputs at the edges of an operation's range, by operand; every value is a float32.
EDGES = {
    "l2_norm": {
        "the largest and the smallest float32": {"x": rows_of([FP32.largest, 2.0**-149, 1.0])},
        "squares just below and above overflow": {
            "x": round_nearest(rows_of([1.8446743e19, 1.8446744e19, 2e19]), FP32)
        },
        "squares that underflow": {"x": rows_of([2.0**-63, 2.0**-75, 2.0**-149])},
        "whole roots": {"x": rows_of([3.0, 4.0, 0.0], [5.0, 12.0, 0.0], [8.0, 9.0, 12.0])},
        "one element": {"x": rows_of([-7.25])},
    },
    "softmax": {
        "at the edges of exp in float32": {
            "x": round_nearest(rows_of([0.0, -87.33, -88.72, -103.28, -103.97, -104.0]), FP32)
        },
        "a long way off": {"x": rows_of([0.0, -300.0, -600.0, -650.0], [1e30, 1e30, 0.0, -1e30])},
        "subnormal in float64": {"x": rows_of([0.25, -709.0, -715.5, -730.25, -744.0, -745.0])},
        "between the end of float64 and the cut": {
            "x": rows_of([0.0, -745.5, -799.0, -800.5, 0.5])
        },
        "spread over the cut": {"x": rows_of(np.linspace(-1000.0, 0.0, 41))},
        "ties for the maximum": {"x": rows_of([2.0, 2.0, 2.0, 1.0])},
        "16-bit extremes": {"x": rows_of([65504.0, 65504.0, 65472.0, -65504.0])},
        "one element": {"x": rows_of([12345.0])},
    },
    "rms_norm": {
        "the largest and the smallest float32": {"x": rows_of([FP32.largest, 2.0**-149, 1.0])},
        "squares that overflow or underflow": {
            "x": round_nearest(rows_of([2e19, 2e19, 1.0], [1e-23, 1e-23, 1e-23]), FP32)
        },
        "subnormals": {"x": rows_of([2.0**-149, 2.0**-148, 0.0])},
        "a whole root": {"x": rows_of([1.0, 7.0, 1.0, 7.0])},
        "the residual cancels but for a last bit": {
            "x": rows_of([1.0, 2.0, 3.0]),
            "residual": rows_of([-1.0 + 2.0**-24, -2.0, -3.0]),
        },
        "the residual is far smaller": {
            "x": rows_of([2.0**127, 1.0, 3.0]),
            "residual": rows_of([2.0**-149, 2.0**-60, -(2.0**-100)]),
        },
        "weights of every size": {
            "x": rows_of([1.0, -2.0, 3.0, 0.5]),
            "weight": np.array([FP32.largest, 2.0**-149, 0.0, -1.0]),
        },
    },
}


@pytest.mark.parametrize(
    ("name", "what"), [(name, what) for name, cases in EDGES.items() for what in cases]
)
def test_the_edges_of_the_range_agree(name, what):
    op = operation_named(name)
    inputs = EDGES[name][what]
    for policies in policy_combinations(op):
        for params in [{"eps": 1e-6}, {"eps": 0.0}] if "eps" in op.params else [{}]:
            assert_agrees(
                f"{name}, {what}, {policies}, {params}",
                enclose(op, inputs, policies, FP32, **params),
                reference(op, inputs, policies, FP32, **params),
            )


def test_far_terms_of_softmax_are_enclosed():
    """exp down to the subnormal float64 values, where a pair has no bits left for its tail."""
    op = operation_named("softmax")
    rng = np.random.default_rng(1)
    x = np.concatenate([[0.0, -0.3], -rng.uniform(640.0, 750.0, 250)])[None, :]
    x = round_nearest(x, FP32)
    assert_agrees(
        "softmax far from its maximum",
        enclose(op, {"x": x}, {}, FP32),
        reference(op, {"x": x}, {}, FP32),
    )


# --- against arb ----------------------------------------------------------------------------------


@pytest.fixture
def arb():
    """python-flint's real balls at 300 bits; its global precision is put back."""
    flint = pytest.importorskip(
        "flint", reason="needs a third oracle: pip install python-flint (an extra of `dev`)"
    )
    before, flint.ctx.prec = flint.ctx.prec, 300
    yield flint.arb
    flint.ctx.prec = before


def ball_ends(ball):
    def exact(end):
        mantissa, exponent = end.man_exp()
        return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)

    return exact(ball.lower()), exact(ball.upper())


def assert_meets(what, op, inputs, fmt, balls):
    """The enclosure has a point of each ball, and mpmath's result is as good as it claims."""
    found = flat(enclose(op, inputs, {}, fmt))
    record = reference(op, inputs, {}, fmt)
    for i, (ball, value) in enumerate(zip(balls, record, strict=True)):
        (lo, hi), (blo, bhi) = found.interval(i), ball_ends(ball)
        assert lo <= bhi, f"{what}: element {i}: arb says {ball}, the enclosure begins at {lo}"
        assert blo <= hi, f"{what}: element {i}: arb says {ball}, the enclosure ends at {hi}"
        claimed = max(abs(blo), abs(bhi)) * Fraction(RELATIVE_ERROR)
        assert bhi - blo <= claimed, f"{what}: arb's own ball is too wide to be an opinion"
        exact = as_fraction(value)
        assert blo - claimed <= exact <= bhi + claimed, (
            f"{what}: element {i}: mpmath says {value}, arb {ball}: farther apart than the claimed "
            f"relative error of {RELATIVE_ERROR}"
        )


def finite_rows(family, fmt, rows=3, n=50):
    return generate(family, rows, n, 11, fmt)


@pytest.mark.parametrize("fmt", STORED, ids=by_name)
@pytest.mark.parametrize("family", operation_named("l2_norm").families)
def test_l2_norm_meets_arb(arb, family, fmt):
    op = operation_named("l2_norm")
    x = finite_rows(family, fmt)
    balls = [sum((arb(v) * arb(v) for v in row), arb(0)).sqrt() for row in x.tolist()]
    assert_meets(f"l2_norm of {family} in {fmt.name}", op, {"x": x}, fmt, balls)


@pytest.mark.parametrize("fmt", STORED, ids=by_name)
@pytest.mark.parametrize("family", operation_named("softmax").families)
def test_softmax_meets_arb(arb, family, fmt):
    op = operation_named("softmax")
    x = finite_rows(family, fmt)
    balls = []
    for row in x.tolist():
        terms = [arb(v).exp() if v > -math.inf else arb(0) for v in row]
        total = sum(terms, arb(0))
        balls.extend(term / total for term in terms)
    assert_meets(f"softmax of {family} in {fmt.name}", op, {"x": x}, fmt, balls)


@pytest.mark.parametrize("fmt", STORED, ids=by_name)
@pytest.mark.parametrize("family", operation_named("rms_norm").families)
def test_rms_norm_meets_arb(arb, family, fmt):
    op = operation_named("rms_norm")
    x, weight = finite_rows(family, fmt), generate("normal", 1, 50, 12, fmt)[0]
    residual = generate(family, 3, 50, 13, fmt)
    balls = []
    for row, added in zip(x.tolist(), residual.tolist(), strict=True):
        h = [arb(v) + arb(r) for v, r in zip(row, added, strict=True)]
        v = sum((a * a for a in h), arb(0)) / len(h) + arb(op.params["eps"])
        balls.extend(a / v.sqrt() * arb(w) for a, w in zip(h, weight.tolist(), strict=True))
    inputs = {"x": x, "weight": weight, "residual": residual}
    assert_meets(f"rms_norm of {family} in {fmt.name}", op, inputs, fmt, balls)


# --- policies that change the mathematics ---------------------------------------------------------


@pytest.mark.parametrize("fmt", STORED, ids=by_name)
def test_rms_norm_with_a_stored_residual_rounds_the_sum(fmt):
    op = operation_named("rms_norm")
    x = rows_of([1.0, 2.0, 4.0])
    residual = fmt.u * rows_of([1.0, 3.0, 0.5])  # a tie, a tie, and less than half an ulp
    stored = enclose(op, {"x": x, "residual": residual}, {"residual": "stored"}, fmt)
    rounded = enclose(op, {"x": round_nearest(x + residual, fmt)}, {}, fmt)
    assert (stored.center == rounded.center).all(), "x + residual is rounded to the stored format"
    assert (stored.tail == rounded.tail).all(), "down to the tail"
    exact = enclose(op, {"x": x, "residual": residual}, {"residual": "exact"}, fmt)
    assert (exact.center != rounded.center).any(), "and that is not what residual=exact says"


@pytest.mark.parametrize("fmt", [FP16, BF16], ids=by_name)
def test_rms_norm_with_the_cast_before_the_weight_rounds_twice(fmt):
    op = operation_named("rms_norm")
    x, weight = generate("normal", 2, 40, 21, fmt), generate("normal", 1, 40, 22, fmt)[0]
    first = enclose(op, {"x": x, "weight": weight}, {"cast": "before_weight"}, fmt)
    plain, decided = enclose(op, {"x": x}, {}, fmt).round(fmt)
    assert decided.all(), "random data is not on a tie"
    assert (first.center == plain * weight).all(), "the rounded normalised value times the weight"
    assert not first.radius.any(), "which float64 holds exactly"
    last = enclose(op, {"x": x, "weight": weight}, {"cast": "end"}, fmt)
    assert (first.center != last.center).any(), "and that is not what cast=end says"


def test_rms_norm_rounds_a_subnormal_beside_a_tie_before_the_weight():
    """1/rms is 1/2 but for 2**-58 of it, so 3 * 2**-24 goes to just below a tie of float16."""
    op = operation_named("rms_norm")
    x = rows_of([3 * 2.0**-24, 4.0, 0.0, 0.0] + [2.0] * 508)
    policies = {"cast": "before_weight"}
    exact = enclose(op, {"x": x}, policies, FP16, eps=0.0)
    record = reference(op, {"x": x}, policies, FP16, eps=0.0)
    assert float(record[0]) == 2.0**-24, "1.5 * 2**-24 less a little goes down"
    assert_agrees("rms_norm of a value beside a tie", exact, record)


def test_range_policies_do_not_change_the_truth():
    """scaled and naive differ in what a kernel may get wrong, not in what is right."""
    for name in ("l2_norm", "rms_norm"):
        op = operation_named(name)
        x = round_nearest(rows_of([2e19, 2e19, 1.0], [1e-23, 1e-30, 0.0]), FP32)
        naive = enclose(op, {"x": x}, {"range": "naive"}, FP32)
        scaled = enclose(op, {"x": x}, {"range": "scaled"}, FP32)
        assert (naive.center == scaled.center).all(), f"{name}: the exact result is one"
        assert np.isfinite(naive.center).all(), f"{name}: and it is finite"


def test_the_tables_here_cover_every_operation():
    for what, covered in (("CLAIMED_WIDTH", CLAIMED_WIDTH), ("EDGES", EDGES)):
        lacking = set(operations()) - set(covered)
        assert not lacking, f"add {sorted(lacking)} to {what} in {__file__}"
