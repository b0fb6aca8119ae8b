# SPDX-License-Identifier: Apache-2.0
"""One line of a table of special values, against every oracle and against the installed torch."""

from __future__ import annotations

import math

import numpy as np
from oracle_inputs import enclose, policy_combinations, reference, with_x

from assay.oracles.enclosure import from_mpf
from assay.oracles.formats import FP32, round_nearest
from assay.oracles.multiprecision import RELATIVE_ERROR


def assert_agrees(what, enclosure, record):
    """Every element has a point in common with mpmath's result, or is the same special value."""
    found = enclosure.reshape(-1)
    apart = ~found.intersects(from_mpf(record, relative_error=RELATIVE_ERROR))
    assert not apart.any(), (
        f"{what}: elements {np.flatnonzero(apart)}: the enclosure says {found.center}, mpmath "
        f"{[float(v) for v in record]}"
    )


def is_as_expected(value, wanted):
    """wanted: None for a finite number that is not zero."""
    if wanted is None:
        return math.isfinite(value) and value != 0.0
    return value == wanted or (math.isnan(value) and math.isnan(wanted))


def assert_expected(what, values, expected):
    assert len(values) == len(expected), f"{what}: {values}, by the table {expected}"
    wrong = [pair for pair in zip(values, expected, strict=True) if not is_as_expected(*pair)]
    assert not wrong, f"{what}: got {values}, by the table {expected}"


def of_table(op, v):
    return with_x(op, round_nearest(np.array([v.row]), FP32)), op.check_policies(v.policies)


def assert_table_holds(op, v):
    """Enclosure and reference, rounded to float32: the table may speak of what overflows there."""
    inputs, policies = of_table(op, v)
    what = f"{op.name} of {v.row}, {policies}"
    exact = enclose(op, inputs, policies)
    rounded, decided = exact.round(FP32)
    assert decided.all(), f"{what}: nothing here is near a tie"
    assert_expected(what, rounded.ravel().tolist(), v.expected)
    special = ~exact.finite
    assert not exact.tail[special].any(), f"{what}: a special value has no tail"
    assert not exact.radius[special].any(), f"{what}: a special value has no radius"
    record = reference(op, inputs, policies)
    values = round_nearest(np.array([float(r) for r in record]), FP32).tolist()
    assert_expected(f"reference of {what}", values, v.expected)
    assert_agrees(what, exact, record)


def assert_empty_is_as_declared(op, rows, n):
    inputs = with_x(op, np.zeros((rows, n)))
    for policies in policy_combinations(op):
        exact = enclose(op, inputs, policies)
        what = f"{op.name} of {rows} rows of {n}, {policies}"
        assert exact.shape == op.result_shape(rows, n), f"{what}: shape {exact.shape}"
        results = exact.center.ravel().tolist()
        if n == 0:
            expected = [] if op.empty is None else [op.empty] * len(results)
            assert_expected(what, results, expected)
        assert not exact.radius.any(), f"{what}: nothing is uncertain"
        assert_agrees(what, exact, reference(op, inputs, policies))
    if n == 0 and op.counted:
        got = op.counted([], [], op.params, op.default_policies(), FP32)
        expected = [] if op.empty is None else [op.empty] * len(op.outputs)
        assert_expected(f"counted {op.name} of nothing", [float(v) for v in got], expected)


# Where torch on CUDA gives something else than on the CPU: (operation, row, policies): results.
NAN, INF = math.nan, math.inf
# Seen with torch 2.11 on an H200: float32 sums are made in another order, and one infinity spoils
# all of a row of rms_norm.
ON_CUDA = {
    ("sum", (3e38, 3e38, -3e38), ()): (None,),
    ("row_sum", (3e38, 3e38, -3e38), ()): (None,),
    ("mean_variance", (3e38, 3e38, -3e38), ()): (None, INF),
    ("rms_norm", (0.0, -INF, 1.0), ()): (NAN, NAN, NAN),
    ("rms_norm", (0.0, INF, 1.0), ()): (NAN, NAN, NAN),
    ("rms_norm", (INF, -INF, 0.0), ()): (NAN, NAN, NAN),
}


def torch_results(op, inputs):
    """torch's own form in float32, on a GPU if there is one, as a list of floats."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    tensors = {k: torch.tensor(v, dtype=torch.float32, device=device) for k, v in inputs.items()}
    found = op.torch(tensors, op.params)
    parts = found if isinstance(found, tuple) else (found,)
    return device, [v for part in parts for v in part.double().cpu().ravel().tolist()]


def in_words(values):
    return "[" + ", ".join("finite" if v is None else f"{v:.6g}" for v in values) + "]"


def report(op, row, torch, ours, note=""):
    policies = " ".join(row[1].values())
    told = f"{op.name} | {in_words(row[0])} {policies} | {in_words(torch)} | {in_words(ours)}"
    print(f"{told} | {note}" if note else told)


def assert_torch_is_as_declared(op, v):
    inputs, policies = of_table(op, v)
    device, got = torch_results(op, inputs)
    ours = enclose(op, inputs, policies).round(FP32)[0].ravel().tolist()
    declared = v.expected if v.torch is None else v.torch
    if device == "cuda":
        key = (op.name, v.row, tuple(v.policies.items()))
        declared = ON_CUDA.get(key, declared)
    what = f"torch's {op.name} of {v.row} on {device}, {policies}"
    differs = any(not is_as_expected(*pair) for pair in zip(got, v.expected, strict=True))
    report(op, (v.row, v.policies), got, ours, v.why if differs else "")
    assert_expected(what, got, declared)
    assert differs == (declared != v.expected), (
        f"{what}: a difference is declared ({v.why}), but torch gives {got} as the table does"
    )
    for theirs, own, wanted in zip(got, ours, declared, strict=True):
        if wanted is None and math.isfinite(own):
            assert abs(theirs - own) <= abs(own) / 2, f"{what}: {got}, not even near {ours}"
