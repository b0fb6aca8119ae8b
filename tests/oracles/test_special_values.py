# SPDX-License-Identifier: Apache-2.0
"""Special values by policy, against tables written by hand: NaN, infinities, zeros, empty input.

The default is the mathematical limit of the formula, with torch as the tie-break.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from assay.oracles.enclosure import from_mpf
from assay.oracles.formats import BF16, FP16, FP32, encode, round_nearest
from assay.oracles.generators import generate
from assay.oracles.multiprecision import RELATIVE_ERROR
from assay.oracles.operation import operation_named, operations

STORED = (FP32, FP16, BF16)
NAN, INF = math.nan, math.inf


def by_name(value):
    return getattr(value, "name", None) or str(value)


def policy_combinations(op):
    names = [p.name for p in op.policies]
    for values in itertools.product(*(p.values for p in op.policies)):
        yield dict(zip(names, values, strict=True))


def enclose(op, inputs, policies, fmt, **params):
    return op.enclose(inputs, dict(op.params) | params, op.check_policies(policies), fmt)


def reference(op, inputs, policies, fmt, **params):
    return op.reference(inputs, dict(op.params) | params, op.check_policies(policies), fmt)


def rows_of(*rows):
    return np.array(rows, dtype=np.float64)


def assert_agrees(what, enclosure, record):
    """Every element has a point in common with mpmath's result, or is the same special value."""
    found = enclosure.reshape(-1)
    apart = ~found.intersects(from_mpf(record, relative_error=RELATIVE_ERROR))
    assert not apart.any(), (
        f"{what}: elements {np.flatnonzero(apart)}: the enclosure says {found.center}, mpmath "
        f"{[float(v) for v in record]}"
    )


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
    """Yield (operation, parameters, inputs, [(policies, expected), ...])."""
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
        special = ~exact.finite
        assert not exact.tail[special].any(), f"{what}: a special value has no tail"
        assert not exact.radius[special].any(), f"{what}: a special value has no radius"


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


def test_the_tables_cover_every_operation():
    lacking = set(operations()) - {case.values[0].name for case in SPECIALS}
    assert not lacking, f"add {sorted(lacking)} to the tables of special values"
