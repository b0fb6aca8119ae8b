# SPDX-License-Identifier: Apache-2.0
"""Operations: the fast oracle against mpmath of record, against arb, and against written tables."""

from __future__ import annotations

import importlib
import inspect
import itertools
import math
import pkgutil
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from assay.oracles import operations as package
from assay.oracles.double_double import PRODUCT_ERROR, QUOTIENT_ERROR
from assay.oracles.enclosure import Enclosure, from_mpf
from assay.oracles.formats import BF16, FP16, FP32, encode, round_nearest
from assay.oracles.generators import FAMILIES, generate
from assay.oracles.multiprecision import RELATIVE_ERROR, context, from_fraction
from assay.oracles.operation import Operation, operation_named, operations

STORED = (FP32, FP16, BF16)
NAN, INF = math.nan, math.inf
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


def assert_meets(what, enclosure, balls):
    found = flat(enclosure)
    for i, ball in enumerate(balls):
        (lo, hi), (blo, bhi) = found.interval(i), ball_ends(ball)
        # A ball of 300 bits is a point beside our radius: it must not lie outside by more.
        assert lo <= bhi and blo <= hi, (
            f"{what}: element {i}: arb says {ball}, the enclosure is [{float(lo)!r}, {float(hi)!r}]"
        )
        assert bhi - blo <= (abs(blo) + abs(bhi)) * Fraction(RELATIVE_ERROR), (
            f"{what}: arb's own ball is too wide to be an opinion"
        )


def finite_rows(family, fmt, rows=3, n=50):
    return generate(family, rows, n, 11, fmt)


@pytest.mark.parametrize("fmt", STORED, ids=by_name)
@pytest.mark.parametrize("family", operation_named("l2_norm").families)
def test_l2_norm_meets_arb(arb, family, fmt):
    op = operation_named("l2_norm")
    x = finite_rows(family, fmt)
    balls = [sum((arb(v) * arb(v) for v in row), arb(0)).sqrt() for row in x.tolist()]
    assert_meets(f"l2_norm of {family} in {fmt.name}", enclose(op, {"x": x}, {}, fmt), balls)


@pytest.mark.parametrize("fmt", STORED, ids=by_name)
@pytest.mark.parametrize("family", operation_named("softmax").families)
def test_softmax_meets_arb(arb, family, fmt):
    op = operation_named("softmax")
    x = finite_rows(family, fmt)
    balls = []
    for row in x.tolist():
        terms = [arb(v).exp() if v > -INF else arb(0) for v in row]
        total = sum(terms, arb(0))
        balls.extend(term / total for term in terms)
    assert_meets(f"softmax of {family} in {fmt.name}", enclose(op, {"x": x}, {}, fmt), balls)


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
    assert_meets(f"rms_norm of {family} in {fmt.name}", enclose(op, inputs, {}, fmt), balls)


# --- special values -------------------------------------------------------------------------------

# operation, policies, parameters, inputs, expected. "n" stands for some finite number that is not
# zero; the numbers themselves are checked against mpmath.
ROW = (
    # input                  l2     softmax          softmax, masked_row=zero
    ([NAN, 1.0, 2.0], NAN, [NAN] * 3, [NAN] * 3),
    ([1.0, INF, 2.0], INF, [NAN] * 3, [NAN] * 3),
    ([1.0, -INF, 2.0], INF, ["n", 0.0, "n"], ["n", 0.0, "n"]),
    ([-INF, -INF, -INF], INF, [NAN] * 3, [0.0] * 3),
    ([INF, -INF, 0.0], INF, [NAN] * 3, [NAN] * 3),
    ([INF, INF, INF], INF, [NAN] * 3, [NAN] * 3),
    ([NAN, INF, 1.0], NAN, [NAN] * 3, [NAN] * 3),
    ([NAN, -INF, -INF], NAN, [NAN] * 3, [NAN] * 3),
    ([-INF, -INF, 5.0], INF, [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]),
    ([-0.0, -0.0, -0.0], 0.0, ["n"] * 3, ["n"] * 3),
    ([0.0, 0.0, 0.0], 0.0, ["n"] * 3, ["n"] * 3),
    ([3.0, 3.0, 3.0], "n", ["n"] * 3, ["n"] * 3),
    ([2e19, 2e19, 1.0], "n", ["n", "n", 0.0], ["n", "n", 0.0]),
    ([1e-23, 1e-23, 1e-23], "n", ["n"] * 3, ["n"] * 3),
    ([3e38, 3e38, -3e38], "n", ["n", "n", 0.0], ["n", "n", 0.0]),
)
ONE = (
    # input, l2, softmax, softmax with masked_row=zero: rows of one element
    (NAN, NAN, NAN, NAN),
    (INF, INF, NAN, NAN),
    (-INF, INF, NAN, 0.0),
    (-0.0, 0.0, 1.0, 1.0),
    (7.5, 7.5, 1.0, 1.0),
)
RMS = (
    # x, residual, weight, eps, expected
    ([NAN, 1.0, 2.0], None, None, 1e-6, [NAN] * 3),
    ([-INF, -INF, -INF], None, None, 1e-6, [NAN] * 3),
    ([0.0, -INF, 1.0], None, None, 1e-6, [0.0, NAN, 0.0]),
    ([0.0, INF, 1.0], None, None, 1e-6, [0.0, NAN, 0.0]),
    ([0.0, INF, 1.0], None, None, 0.0, [0.0, NAN, 0.0]),
    ([INF, -INF, 0.0], None, None, 1e-6, [NAN, NAN, 0.0]),
    ([NAN, INF, 0.0], None, None, 1e-6, [NAN] * 3),
    ([-0.0, -0.0, -0.0], None, None, 1e-6, [0.0] * 3),
    ([-0.0, -0.0, -0.0], None, None, 0.0, [NAN] * 3),
    ([0.0, 0.0, 0.0], None, None, 0.0, [NAN] * 3),
    ([0.0, 0.0, 5.0], None, None, 0.0, [0.0, 0.0, "n"]),
    ([3.0, 3.0, 3.0], None, None, 0.0, [1.0] * 3),
    ([2e19, 2e19, 0.0], None, None, 1e-6, ["n", "n", 0.0]),
    ([1e-23, 1e-23, 1e-23], None, None, 0.0, ["n"] * 3),
    ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], None, 1e-6, [0.0] * 3),
    ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], None, 0.0, [NAN] * 3),
    ([1.0, 2.0, 3.0], [NAN, 0.0, 0.0], None, 1e-6, [NAN] * 3),
    ([1.0, INF, 3.0], [1.0, -INF, 0.0], None, 1e-6, [NAN] * 3),
    ([1.0, INF, 3.0], [1.0, INF, 0.0], None, 1e-6, [0.0, NAN, 0.0]),
    ([1.0, 0.0, 3.0], [1.0, -INF, 0.0], None, 1e-6, [0.0, NAN, 0.0]),
    ([1.0, -2.0, 0.0], None, [NAN, 1.0, 2.0], 1e-6, [NAN, "n", 0.0]),
    ([1.0, -2.0, 0.0], None, [INF, INF, INF], 1e-6, [INF, -INF, NAN]),
    ([1.0, -2.0, 3.0], None, [-INF, 0.0, -0.0], 1e-6, [-INF, 0.0, 0.0]),
    ([INF, 1.0, 1.0], None, [1.0, INF, 0.0], 1e-6, [NAN, NAN, 0.0]),
    ([NAN, 1.0, 1.0], None, [0.0, 1.0, 1.0], 1e-6, [NAN] * 3),
)


def special_cases():
    """(operation, parameters, inputs, [(policies, expected), ...])"""
    l2, softmax, rms = (operation_named(n) for n in ("l2_norm", "softmax", "rms_norm"))
    for row, norm, soft, soft_zero in (*ROW, *(([x], n, [s], [z]) for x, n, s, z in ONE)):
        inputs = {"x": rows_of(row)}
        yield l2, {}, inputs, [(policies, [norm]) for policies in policy_combinations(l2)]
        answers = [({"masked_row": "nan"}, soft), ({"masked_row": "zero"}, soft_zero)]
        yield softmax, {}, inputs, answers
    for x, residual, weight, eps, expected in RMS:
        inputs = {"x": rows_of(x)}
        if residual is not None:
            inputs["residual"] = rows_of(residual)
        if weight is not None:
            inputs["weight"] = np.array(weight)
        yield rms, {"eps": eps}, inputs, [(p, expected) for p in policy_combinations(rms)]


def told(case):
    op, params, inputs, _ = case
    text = " ".join(f"{k}={v.ravel().tolist()}" for k, v in inputs.items())
    return f"{op.name} {text} {' '.join(f'{k}={v}' for k, v in params.items())}".rstrip()


SPECIALS = [pytest.param(*case, id=told(case)) for case in special_cases()]


def stored_as_float32(inputs):
    return {name: round_nearest(values, FP32) for name, values in inputs.items()}


def assert_as_in_the_table(what, values, expected):
    for value, wanted in zip(values, expected, strict=True):
        if wanted == "n":
            ok = np.isfinite(value) and value != 0.0
        else:
            ok = value == wanted or (np.isnan(value) and np.isnan(wanted))
        assert ok, f"{what}: got {values}, by the table {expected}"


@pytest.mark.parametrize(("op", "params", "inputs", "answers"), SPECIALS)
def test_special_values_are_those_of_the_table(op, params, inputs, answers):
    inputs = stored_as_float32(inputs)
    for policies, expected in answers:
        exact = enclose(op, inputs, policies, FP32, **params)
        what = f"{op.name} of {inputs}, {policies}, {params}"
        assert_as_in_the_table(what, exact.center.ravel().tolist(), expected)
        assert_no_wider_than_claimed(what, op, exact)


@pytest.mark.parametrize(("op", "params", "inputs", "answers"), SPECIALS)
def test_the_reference_knows_special_values_too(op, params, inputs, answers):
    inputs = stored_as_float32(inputs)
    for policies, expected in answers:
        what = f"reference of {op.name} of {inputs}, {policies}, {params}"
        try:
            record = reference(op, inputs, policies, FP32, **params)
        except ZeroDivisionError as error:
            pytest.fail(f"{what} raises {error!r}, by the table {expected}")
        assert_as_in_the_table(what, [float(v) for v in record], expected)
        assert_agrees(what, enclose(op, inputs, policies, FP32, **params), record)


def test_softmax_is_exactly_zero_where_the_input_is_minus_infinity():
    op = operation_named("softmax")
    exact = enclose(op, {"x": rows_of([1.0, -INF, -2000.0])}, {}, FP32)
    assert (exact.center[0, 1], exact.radius[0, 1]) == (0.0, 0.0), "exp(-inf) is 0, not about 0"
    assert exact.center[0, 2] == 0.0, "exp(-2001) is below what float64 holds"
    assert exact.radius[0, 2] > 0.0, "but it is not known to be 0"


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
@pytest.mark.parametrize(("rows", "n"), [(3, 0), (1, 0), (0, 4), (0, 0)])
def test_empty_inputs(op, rows, n):
    x = np.zeros((rows, n))
    for policies in policy_combinations(op):
        exact = enclose(op, {"x": x}, policies, FP32)
        record = reference(op, {"x": x}, policies, FP32)
        what = f"{op.name} of {rows} rows of {n}, {policies}; declared: {op.empty}"
        assert exact.shape == ((rows, 1) if op.whole else (rows, n)), f"{what}: shape {exact.shape}"
        assert not exact.center.any() and exact.finite.all(), f"{what}: {exact.center}"
        assert_agrees(what, exact, record)


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_a_row_does_not_depend_on_the_rows_beside_it(op):
    plain = generate("normal", 1, 3, 1, FP32)
    rows = [plain[0].tolist()] + [row for row, *_ in ROW]
    together = enclose(op, {"x": round_nearest(rows_of(*rows), FP32)}, {}, FP32)
    for i, row in enumerate(rows):
        alone = enclose(op, {"x": round_nearest(rows_of(row), FP32)}, {}, FP32)
        for part in ("center", "tail", "radius"):
            got, expected = getattr(together, part)[i], getattr(alone, part)[0]
            assert np.array_equal(got, expected, equal_nan=True), (
                f"{op.name}: {part} of {row} is {got} among other rows and {expected} alone"
            )


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_inputs_are_left_alone(op):
    inputs = {o.name: generate("normal", 3, 20, 3, FP32) for o in op.operands}
    inputs |= {o.name: inputs[o.name][0] for o in op.operands if o.shape == "columns"}
    before = {name: encode(values, FP32) for name, values in inputs.items()}
    for values in inputs.values():
        values.setflags(write=False)
    for policies in policy_combinations(op):
        enclose(op, inputs, policies, FP32)
        reference(op, inputs, policies, FP32)
    for name, values in inputs.items():
        assert (encode(values, FP32) == before[name]).all(), f"{op.name} changed its operand {name}"


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


@pytest.mark.parametrize("fmt", STORED, ids=by_name)
def test_rms_norm_with_a_stored_residual_may_overflow(fmt):
    op = operation_named("rms_norm")
    big = fmt.largest * rows_of([1.0, 0.0, 0.5])
    inputs = {"x": big, "residual": big}
    exact = enclose(op, inputs, {"residual": "stored"}, fmt)
    assert_as_in_the_table(
        f"{fmt.name}: largest + largest, stored", exact.center[0].tolist(), [NAN, 0.0, 0.0]
    )
    assert_agrees(
        f"{fmt.name}: largest + largest, stored",
        exact,
        reference(op, inputs, {"residual": "stored"}, fmt),
    )


@pytest.mark.parametrize("fmt", (FP16, BF16), ids=by_name)
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


# --- mpmath ---------------------------------------------------------------------------------------


def bits_of(enclosure):
    parts = (enclosure.center, enclosure.tail, enclosure.radius)
    return [np.ascontiguousarray(p).view(np.uint64).tolist() for p in parts]


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_the_users_mpmath_is_neither_read_nor_changed(op):
    x = generate("normal", 2, 30, 31, FP32)
    expected = bits_of(enclose(op, {"x": x}, {}, FP32))
    record = [v._mpf_ for v in reference(op, {"x": x}, {}, FP32)]
    before = (mpmath.mp.prec, mpmath.mp.dps)
    try:
        for prec in (5, 53, 1000):
            mpmath.mp.prec = prec
            settings = (mpmath.mp.prec, mpmath.mp.dps)
            again = bits_of(enclose(op, {"x": x}, {}, FP32))
            record_again = [v._mpf_ for v in reference(op, {"x": x}, {}, FP32)]
            assert (mpmath.mp.prec, mpmath.mp.dps) == settings, f"{op.name} changed mpmath.mp"
            assert again == expected, f"{op.name}: enclose depends on mpmath.mp.prec = {prec}"
            assert record_again == record, f"{op.name}: reference depends on it"
    finally:
        mpmath.mp.prec = before[0]
    assert (mpmath.mp.prec, mpmath.mp.dps) == before, "and it is put back here"


def test_contexts_are_separate():
    one, other = context(100), context(300)
    assert (one.prec, other.prec) == (100, 300), "each context has its own precision"
    assert mpmath.mp not in (one, other), "and none is the user's"
    third = from_fraction(other, Fraction(1, 3))
    off = abs(as_fraction(third) - Fraction(1, 3)) * 3
    assert off <= Fraction(1, 2**300), "a Fraction is rounded once, to the context's precision"


# --- records --------------------------------------------------------------------------------------


def modules():
    return [
        importlib.import_module(f"{package.__name__}.{m.name}")
        for m in pkgutil.iter_modules(package.__path__)
    ]


def test_every_module_is_one_operation_of_its_name():
    names = [m.__name__.rpartition(".")[2] for m in modules()]
    assert names, "there are operations"
    assert [m.OPERATION.name for m in modules()] == names, "a module is named after its operation"
    assert sorted(operations()) == sorted(names), "and all of them are found"


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_an_operation_is_complete(op):
    """What a new operation must not forget."""
    missing = []
    if not op.formula:
        missing.append("formula")
    if not op.families:
        missing.append("families")
    if not op.empty:
        missing.append("empty: what comes of an empty input")
    if not op.operands:
        missing.append("operands")
    if op.kind not in ("whole", "row"):
        missing.append("kind")
    for policy in op.policies:
        if not policy.meaning:
            missing.append(f"the meaning of policy {policy.name}")
        missing += [
            f"{value} in the meaning of policy {policy.name}"
            for value in policy.values
            if value.lower() not in policy.meaning.lower() and value != "zero"
        ]
    missing += [
        part for part in ("enclose", "reference", "before") if not callable(getattr(op, part, None))
    ]
    if not inspect.getmodule(op.before).__doc__.count("Bound, derived"):
        missing.append("the derivation of the bound in the module's text")
    assert not missing, f"{op.name} lacks: {'; '.join(missing)}"


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_an_operation_is_consistent(op):
    unknown = [f for f in op.families if f not in FAMILIES]
    assert not unknown, f"{op.name} names data families that do not exist: {unknown}"
    assert len(set(op.families)) == len(op.families), f"{op.name} names a family twice"
    for policy in op.policies:
        assert len(set(policy.values)) == len(policy.values) >= 2, (
            f"policy {policy.name} of {op.name} is a choice between at least two values"
        )
        assert policy.default == policy.values[0], "the default is the first value"
    assert op.operands[0].name == "x" and op.operands[0].default == "required", (
        f"{op.name}: every operation reduces an operand called x"
    )
    signatures = {"enclose": 4, "reference": 4, "before": 4}
    for part, count in signatures.items():
        parameters = inspect.signature(getattr(op, part)).parameters
        assert len(parameters) == count, f"{op.name}.{part} takes {list(parameters)}"


def test_the_tables_here_cover_every_operation():
    for what, covered in (
        ("CLAIMED_WIDTH", set(CLAIMED_WIDTH)),
        ("EDGES", set(EDGES)),
        ("the tables of special values", {case.values[0].name for case in SPECIALS}),
    ):
        lacking = set(operations()) - covered
        assert not lacking, f"add {sorted(lacking)} to {what} in {__file__}"


def test_policies_are_filled_in_and_checked():
    op = operation_named("rms_norm")
    assert op.check_policies({}) == op.default_policies(), "defaults"
    assert op.check_policies({"range": "naive"}) == op.default_policies() | {"range": "naive"}
    with pytest.raises(ValueError, match=r"no policy 'rang'.*cast, residual, range"):
        op.check_policies({"rang": "naive"})
    with pytest.raises(ValueError, match=r"range of rms_norm cannot be 'fast'.*scaled, naive"):
        op.check_policies({"range": "fast"})


def test_names_are_looked_up_with_help():
    assert isinstance(operation_named("softmax"), Operation), "a known name"
    with pytest.raises(ValueError, match=r"'sofmax'.*l2_norm, rms_norm, softmax"):
        operation_named("sofmax")
    op = operation_named("rms_norm")
    assert op.operand("weight").shape == "columns", "an operand by name"
    with pytest.raises(ValueError, match=r"no operand 'bias'.*x, weight, residual"):
        op.operand("bias")


def test_enclosures_are_what_oracles_return():
    for op in operations().values():
        exact = enclose(op, {"x": generate("normal", 1, 4, 1, FP32)}, {}, FP32)
        assert isinstance(exact, Enclosure), f"{op.name} returns {type(exact).__name__}"
