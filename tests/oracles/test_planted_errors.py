# SPDX-License-Identifier: Apache-2.0
"""Mistakes planted in operations, and which of the comparisons find them.

Each is what somebody might write. The comparisons are those that the other tests here make.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from condition_checks import assert_conditions_hold
from edge_inputs import EDGES
from oracle_agreement import assert_counts_agree, assert_rungs_agree
from oracle_inputs import (
    SAME_RESULT,
    by_name,
    enclose,
    inputs_of,
    operand_choices,
    params_of,
    policy_combinations,
)
from special_value_checks import (
    assert_empty_is_as_declared,
    assert_table_holds,
    assert_torch_is_as_declared,
)

from assay.oracles import exponentials
from assay.oracles.enclosure import Enclosure, exactly
from assay.oracles.formats import BF16, FP16, FP32
from assay.oracles.generators import generate
from assay.oracles.operation import SpecialValue, operation_named, operations
from assay.oracles.operations import logsumexp, softmax
from assay.oracles.rows import facts

# --- comparisons ----------------------------------------------------------------------------------


def rungs(op):
    for family in op.families:
        for policies in policy_combinations(op, leave_out=SAME_RESULT):
            for params in params_of(op):
                for inputs in operand_choices(op, family, 2, 11, FP32, 5):
                    assert_rungs_agree(op, inputs, policies, FP32, params)


def edges(op):
    for inputs in EDGES[op.name].values():
        for policies in policy_combinations(op, leave_out=SAME_RESULT):
            assert_rungs_agree(op, inputs, policies, FP32)


def counts(op):
    for family in op.families:
        for policies in policy_combinations(op, leave_out=SAME_RESULT):
            x = generate(family, 2, 40, 8, BF16)
            x[1, :20] = x[1, 20:]
            assert_counts_agree(op, x, policies, BF16)


def table(op):
    for v in op.special_values:
        assert_table_holds(op, v)


def nothing(op):
    for rows in (1, 3):
        assert_empty_is_as_declared(op, rows, 0)


def torch(op):
    pytest.importorskip("torch")
    for v in op.special_values:
        assert_torch_is_as_declared(op, v)


def conditions(op):
    for family in set(op.families) - {"masked", "constant", "ties", "integers"}:
        for inputs in operand_choices(op, family, 1, 5, FP16, 17):
            assert_conditions_hold(op, inputs)


COMPARISONS = {
    compare.__name__: compare
    for compare in (rungs, edges, counts, table, nothing, torch, conditions)
}


def finds(compare, op):
    """Whether a comparison is not content with an operation."""
    try:
        compare(op)
    except AssertionError:
        return True
    return False


# --- mistakes -------------------------------------------------------------------------------------


def padded(op, part):
    """Division by the width of a tile, the next power of two."""

    def enclose_padded(inputs, *rest):
        exact = op.enclose(inputs, *rest)
        n = inputs["x"].shape[1]
        wide = 1 << max(0, n - 1).bit_length()
        factor = n / wide
        return Enclosure(exact.center * factor, exact.tail * factor, exact.radius * factor)

    def reference_padded(inputs, *rest):
        n = inputs["x"].shape[1]
        return [v * n / (1 << max(0, n - 1).bit_length()) for v in op.reference(inputs, *rest)]

    both = {"enclose": enclose_padded, "reference": reference_padded}
    return {name: both[name] for name in part}


def changed_center(change):
    """A mistake in float64: `change` gives other centers from inputs and centers."""

    def plant(op):
        def enclose_changed(inputs, params, policies, *rest):
            exact = op.enclose(inputs, params, policies, *rest)
            with np.errstate(all="ignore"):
                center = change(inputs, exact, params, policies)
            return Enclosure(center + 0.0, np.where(center == exact.center, exact.tail, 0.0),
                             np.where(center == exact.center, exact.radius, 0.0))  # fmt: skip

        return {"enclose": enclose_changed}

    return plant


def with_arguments(**fixed):
    """An oracle that does not look at some of its arguments."""

    def plant(op):
        def enclose_fixed(inputs, params, policies, *rest):
            params = {k: fixed.get(k, v) for k, v in params.items()}
            policies = {k: fixed.get(k, v) for k, v in policies.items()}
            return op.enclose(inputs, params, policies, *rest)

        return {"enclose": enclose_fixed}

    return plant


def without_operand(name):
    def plant(op):
        def enclose_without(inputs, *rest):
            return op.enclose({k: v for k, v in inputs.items() if k != name}, *rest)

        return {"enclose": enclose_without}

    return plant


def _largest_magnitude(inputs, exact, params, policies):
    x = inputs["x"]
    low = x.min(axis=1, keepdims=True)
    return (x - low) / (np.abs(x).max(axis=1, keepdims=True) - low)


def _nan_is_zero(inputs, exact, params, policies):
    return (np.nan_to_num(inputs["x"]) != 0.0).sum(axis=1, keepdims=True).astype(float)


def _nan_dropped(inputs, exact, params, policies):
    return facts(inputs["x"]).largest[:, None]


def _last_of_equals(inputs, exact, params, policies):
    x = inputs["x"]
    last = x.shape[1] - 1.0 - np.argmax(x[:, ::-1], axis=1)[:, None] if x.size else exact.center
    return np.where(np.isnan(exact.center), exact.center, last)


def _float32_squares(inputs, exact, params, policies):
    square = inputs["x"].astype(np.float32) ** 2
    return np.sqrt(square.sum(axis=1, keepdims=True, dtype=np.float64))


def _log_of_softmax(inputs, exact, params, policies):
    return np.log(np.exp(exact.center))


def _no_shift(inputs, exact, params, policies):
    return np.log(np.exp(inputs["x"]).sum(axis=1, keepdims=True))


def _far_terms_are_zero(inputs, exact, params, policies):
    return np.where(exact.center < 2.0**-1000, 0.0, exact.center)


def _last_column_missing(inputs, exact, params, policies):
    return inputs["x"][:, :-1] @ inputs["w"][:-1]


def _eps_outside_the_root(inputs, exact, params, policies):
    rms = np.sqrt((inputs["x"] ** 2).mean(axis=1, keepdims=True)) + params["eps"]
    return inputs["x"] / rms * inputs.get("weight", 1.0)


def in_float64(function):
    """numpy's own, taken to be exact: no tail, no radius."""

    def plant(op):
        def enclose_plain(inputs, *rest):
            return exactly(function(inputs["x"], axis=1, keepdims=True))

        return {"enclose": enclose_plain}

    return plant


def _by_moments(inputs, exact, params, policies):
    x = inputs["x"]
    n = x.shape[1]
    mean = x.mean(axis=1, keepdims=True)
    free = n - params["correction"]
    return np.hstack([mean, ((x**2).mean(axis=1, keepdims=True) - mean**2) * n / free])


def widened(op):
    def enclose_widened(*arguments):
        exact = op.enclose(*arguments)
        radius = np.where(exact.finite, exact.radius + np.abs(exact.center) * 2.0**-50, 0.0)
        return Enclosure(exact.center, exact.tail, radius)

    return {"enclose": enclose_widened}


def a_nudge(op):
    """One unit of a tail's last place beyond the radius."""

    def enclose_nudged(*arguments):
        exact = op.enclose(*arguments)
        step = exact.radius * 4.0 + np.abs(exact.center) * 2.0**-80
        return Enclosure(exact.center, np.where(exact.finite, exact.tail + step, 0.0), exact.radius)

    return {"enclose": enclose_nudged}


def counts_forgotten(op):
    return {"counted": lambda values, counts, *rest: op.counted(values, [1] * len(values), *rest)}


def scaled_condition(factor):
    def plant(op):
        return {"condition": lambda *arguments: factor * op.condition(*arguments)}

    return plant


def special_value(row, **changes):
    """Another line of the table in place of that of `row` without policies."""

    def plant(op):
        def other(v: SpecialValue):
            same = v.row == row and not v.policies
            return dataclasses.replace(v, **changes) if same else v

        return {"special_values": tuple(map(other, op.special_values))}

    return plant


def empty_is(value):
    return lambda op: {"empty": value}


INF = np.inf
PLANTED = {
    "a mean over the padded width": ("mean", lambda op: padded(op, ["enclose"]), "rungs"),
    "the same in the reference": ("row_mean", lambda op: padded(op, ["reference"]), "rungs"),
    "the same in both, which arb tells": (
        "mean", lambda op: padded(op, ["enclose", "reference"]), "rungs"),
    "a plain float64 sum": ("sum", in_float64(np.sum), "rungs"),
    "a plain float64 mean": ("row_mean", in_float64(np.mean), "rungs"),
    "a sum off by far less than an ulp": ("row_sum", a_nudge, "rungs"),
    "the correction is forgotten": ("mean_variance", with_arguments(correction=0.0), "rungs"),
    "mean of squares less squared mean": ("mean_variance", changed_center(_by_moments), "rungs"),
    "the largest magnitude for the maximum": (
        "min_max", changed_center(_largest_magnitude), "rungs"),
    "the policy for constant rows is ignored": (
        "min_max", with_arguments(constant_row="nan"), "table"),
    "NaN counts as zero": ("count_nonzero", changed_center(_nan_is_zero), "table"),
    "NaN is dropped under propagate": ("row_max", changed_center(_nan_dropped), "table"),
    "NaN propagates under drop": ("row_min", with_arguments(nan="propagate"), "table"),
    "the last of equals": ("row_argmax", changed_center(_last_of_equals), "rungs"),
    "squares in float32": ("l2_norm", changed_center(_float32_squares), "rungs"),
    "the logarithm of softmax": ("log_softmax", changed_center(_log_of_softmax), "rungs"),
    "exponentials of unshifted values": ("logsumexp", changed_center(_no_shift), "edges"),
    "far terms taken as exact zeros": ("softmax", changed_center(_far_terms_are_zero), "edges"),
    "a width far above what is claimed": ("softmax", widened, "rungs"),
    "a width above that of double-double": ("rms_norm", widened, "rungs"),
    "a policy for masked rows is ignored": ("softmax", with_arguments(masked_row="nan"), "table"),
    "an infinite maximum by the limit": (
        "logsumexp", with_arguments(infinite_max="limit"), "table"),
    "the last column is left out": ("matmul", changed_center(_last_column_missing), "rungs"),
    "eps outside the root": ("rms_norm", changed_center(_eps_outside_the_root), "rungs"),
    "the weight is forgotten": ("rms_norm", without_operand("weight"), "rungs"),
    "the residual is forgotten": ("rms_norm", without_operand("residual"), "rungs"),
    "a stored residual is not rounded": ("rms_norm", with_arguments(residual="exact"), "rungs"),
    "the cast comes last all the same": ("rms_norm", with_arguments(cast="end"), "rungs"),
    "counts are forgotten": ("softmax", counts_forgotten, "counts"),
    "counts are forgotten in a mean": ("mean", counts_forgotten, "counts"),
    "a condition number too small by half": ("logsumexp", scaled_condition(0.5), "conditions"),
    "a condition number far too large": ("softmax", scaled_condition(2.5), "conditions"),
    "one factor's condition only": ("matmul", scaled_condition(0.5), "conditions"),
    "the mean of nothing is 0": ("mean", empty_is(0.0), "nothing"),
    "a difference from torch is not declared": (
        "l2_norm", special_value((2e19, 2e19, 1.0), torch=None, why=""), "torch"),
    "a difference from torch is declared where none is": (
        "sum", special_value((0.0, INF, 1.0), torch=(np.nan,), why="made up"), "torch"),
    "a wrong line in the table": (
        "logsumexp", special_value((-INF, -INF, -INF), expected=(np.nan,)), "table"),
}  # fmt: skip


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_mistake_is_found(what):
    name, plant, expected = PLANTED[what]
    op = operation_named(name)
    wrong = dataclasses.replace(op, **plant(op))
    assert finds(COMPARISONS[expected], wrong), f"{what}, planted in {name}, passes {expected}"


def test_nothing_is_found_where_nothing_is_planted():
    """Otherwise the comparisons above could fail for another reason."""
    for expected, name in {expected: name for name, _, expected in PLANTED.values()}.items():
        compare = COMPARISONS[expected]
        assert not finds(compare, operation_named(name)), f"{expected} of {name}"


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_a_reference_off_by_its_last_claimed_bit_is_found(op):
    """The three rungs are compared to 2**-170, wherever results are rounded or not."""

    def off(*arguments):
        return [v * (1 + v.context.ldexp(1, -140)) for v in op.reference(*arguments)]

    inputs = inputs_of(op, "uniform", 1, 5, FP32, 2)
    wrong = dataclasses.replace(op, reference=off)
    assert_rungs_agree(op, inputs, op.default_policies(), FP32)
    with pytest.raises(AssertionError):
        assert_rungs_agree(wrong, inputs, op.default_policies(), FP32)


# --- mistakes in what operations share ------------------------------------------------------------


def test_the_error_of_exponentials_must_not_be_dropped(monkeypatch):
    for module in (exponentials, softmax):
        monkeypatch.setattr(module, "sum_error", lambda *arguments: 0.0)
    for name in ("logsumexp", "log_softmax"):
        with pytest.raises(AssertionError, match="outside the enclosure"):
            rungs(operation_named(name))


def test_terms_that_were_cut_must_be_counted(monkeypatch):
    kept = exponentials.sum_error
    monkeypatch.setattr(
        exponentials, "sum_error", lambda total, cut, error, term: kept(total, 0, error, term)
    )
    with pytest.raises(AssertionError, match="outside the enclosure"):
        edges(operation_named("log_softmax"))


def test_the_low_word_of_a_logarithm_must_be_kept(monkeypatch):
    kept = exponentials.log_sums

    def without_low(*arguments, **options):
        return [dataclasses.replace(s, low=0.0) for s in kept(*arguments, **options)]

    monkeypatch.setattr(logsumexp, "log_sums", without_low)
    with pytest.raises(AssertionError, match="outside the enclosure"):
        rungs(operation_named("logsumexp"))


def test_a_special_value_of_another_row_must_not_leak():
    """`column` puts results where rows are plain: a shifted mask is seen."""
    op = operation_named("sum")
    x = np.array([[1.0, 2.0], [np.nan, 1.0], [3.0, 4.0]])

    def leaking(inputs, *rest):
        exact = op.enclose(inputs, *rest)
        return exactly(np.roll(exact.center, 1, axis=0))

    assert_rungs_agree(op, {"x": x}, op.default_policies(), FP32)
    wrong = dataclasses.replace(op, enclose=leaking)
    assert np.isnan(enclose(wrong, {"x": x}).center[2, 0])
    with pytest.raises(AssertionError):
        assert_rungs_agree(wrong, {"x": x}, op.default_policies(), FP32)
