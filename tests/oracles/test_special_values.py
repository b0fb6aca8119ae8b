# SPDX-License-Identifier: Apache-2.0
"""Special values by policy, against tables written by hand: NaN, infinities, zeros, empty input.

The default is the mathematical limit of the formula, with torch as the tie-break.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracle_inputs import (
    STORED,
    by_name,
    enclose,
    inputs_of,
    policy_combinations,
    reference,
    with_x,
)
from special_value_checks import (
    assert_agrees,
    assert_empty_is_as_declared,
    assert_expected,
    assert_table_holds,
    assert_torch_is_as_declared,
    of_table,
    report,
    torch_results,
)

from assay.oracles.formats import FP32, encode, round_nearest
from assay.oracles.generators import generate
from assay.oracles.operation import operation_named, operations

NAN, INF = math.nan, math.inf


def rows_of(*rows):
    return np.array(rows, dtype=np.float64)


# --- the operations' own tables -------------------------------------------------------------------

TABLE = [
    pytest.param(op, v, id=f"{op.name} {v.row} {' '.join(v.policies.values())}".rstrip())
    for op in operations().values()
    for v in op.special_values
]


@pytest.mark.parametrize(("op", "v"), TABLE)
def test_the_table_holds_for_enclosure_and_reference(op, v):
    assert_table_holds(op, v)


@pytest.mark.parametrize(
    ("op", "v"), [case for case in TABLE if case.values[0].counted is not None]
)
def test_the_table_holds_for_counts(op, v):
    inputs, policies = of_table(op, v)
    values, place, counts = np.unique(inputs["x"], return_inverse=True, return_counts=True)
    got = op.counted(values.tolist(), counts.tolist(), op.params, policies, FP32)
    got = [got[k] for k in place.ravel()] if op.elementwise else got
    rounded = round_nearest(np.array([float(r) for r in got]), FP32).tolist()
    assert_expected(f"counted {op.name} of {v.row}, {policies}", rounded, v.expected)


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_the_table_holds_for_all_rows_at_once(op):
    plain = [v for v in op.special_values if not v.policies]
    together = enclose(op, with_x(op, round_nearest(rows_of(*(v.row for v in plain)), FP32)))
    for i, v in enumerate(plain):
        rounded = together[i : i + 1].round(FP32)[0].ravel().tolist()
        assert_expected(f"{op.name} of {v.row} among other rows", rounded, v.expected)


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
@pytest.mark.parametrize(("rows", "n"), [(3, 0), (1, 0), (0, 4), (0, 0)])
def test_empty_inputs_give_what_is_declared(op, rows, n):
    assert_empty_is_as_declared(op, rows, n)


def test_accepted_indices():
    """ties=any takes every index of an element equal to the largest, and no other."""
    op = operation_named("row_argmax")
    rows = rows_of([5.0, 1.0, 5.0, 4.0], [NAN, 1.0, NAN, 2.0], [-0.0, 0.0, -1.0, -0.0], [-INF] * 4)
    right = {
        "propagate": [{0, 2}, {0, 2}, {0, 1, 3}, {0, 1, 2, 3}],
        "drop": [{0, 2}, {3}, {0, 1, 3}, {0, 1, 2, 3}],
    }
    for nan, sets in right.items():
        policies = op.check_policies({"nan": nan, "ties": "any"})
        exact = enclose(op, {"x": rows}, policies)
        for out in (-1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0, NAN, INF):
            accepted = op.accepts({"x": rows}, np.full((4, 1), out), exact, policies)
            expected = [out in chosen for chosen in sets]
            assert accepted.ravel().tolist() == expected, f"index {out} under nan={nan}"
        first = op.check_policies({"nan": nan})
        assert not op.accepts({"x": rows}, exact.center, exact, first).any(), (
            "under ties=first no index but the enclosure's is right"
        )


# --- torch as it is installed ---------------------------------------------------------------------

# An empty reduction without identity is an error there.
TORCH_RAISES = {"row_max", "row_min", "row_argmax", "min_max"}


@pytest.mark.parametrize(("op", "v"), TABLE)
def test_torch_differs_where_that_is_declared_and_nowhere_else(op, v):
    pytest.importorskip("torch")
    assert_torch_is_as_declared(op, v)


@pytest.mark.filterwarnings("ignore:var\\(\\).* degrees of freedom is <= 0:UserWarning")
@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_torch_of_nothing_is_what_is_declared(op):
    inputs = with_x(op, np.zeros((1, 0)))
    declared = [] if op.empty is None else [op.empty] * len(op.outputs)
    if op.name in TORCH_RAISES:
        with pytest.raises((RuntimeError, IndexError)) as raised:
            torch_results(op, inputs)
        report(op, ((), {}), [], declared, str(raised.value).splitlines()[0])
        return
    _, got = torch_results(op, inputs)
    report(op, ((), {}), got, declared)
    assert_expected(f"torch's {op.name} of nothing", got, declared)


# --- longer tables, by hand -----------------------------------------------------------------------

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
    assert_expected(what, values, [None if wanted == "n" else wanted for wanted in expected])


@pytest.mark.parametrize(("op", "params", "inputs", "answers"), SPECIALS)
def test_special_values_are_those_of_the_table(op, params, inputs, answers):
    inputs = stored_as_float32(inputs)
    for policies, expected in answers:
        exact = enclose(op, inputs, policies, FP32, params)
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
            record = reference(op, inputs, policies, FP32, params)
        except ZeroDivisionError as error:
            pytest.fail(f"{what} raises {error!r}, by the table {expected}")
        assert_as_in_the_table(what, [float(v) for v in record], expected)
        assert_agrees(what, enclose(op, inputs, policies, FP32, params), record)


def test_softmax_is_exactly_zero_where_the_input_is_minus_infinity():
    op = operation_named("softmax")
    exact = enclose(op, {"x": rows_of([1.0, -INF, -2000.0])}, {}, FP32)
    assert (exact.center[0, 1], exact.radius[0, 1]) == (0.0, 0.0), "exp(-inf) is 0, not about 0"
    assert exact.center[0, 2] == 0.0, "exp(-2001) is below what float64 holds"
    assert exact.radius[0, 2] > 0.0, "but it is not known to be 0"


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_a_row_does_not_depend_on_the_rows_beside_it(op):
    plain = generate("normal", 1, 3, 1, FP32)
    rows = [plain[0].tolist()] + [row for row, *_ in ROW]
    together = enclose(op, with_x(op, round_nearest(rows_of(*rows), FP32)))
    for i, row in enumerate(rows):
        alone = enclose(op, with_x(op, round_nearest(rows_of(row), FP32)))
        for part in ("center", "tail", "radius"):
            got, expected = getattr(together, part)[i], getattr(alone, part)[0]
            assert np.array_equal(got, expected, equal_nan=True), (
                f"{op.name}: {part} of {row} is {got} among other rows and {expected} alone"
            )


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_inputs_are_left_alone(op):
    inputs = inputs_of(op, "normal", 3, 20, FP32, 3)
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
