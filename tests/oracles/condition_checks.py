# SPDX-License-Identifier: Apache-2.0
"""Condition numbers against finite differences of exact results.

Each stored number of each operand is changed by 2**-30 of itself. Changes of 16-bit numbers are
float64 numbers exactly, so that the results before and after are exact results of exact inputs.
"""

from __future__ import annotations

import numpy as np
from oracle_inputs import enclose

from assay.oracles.formats import FP64

STEP = 2.0**-30

# Where the number is what a change can do, and not just an upper bound of it.
EXACT = {
    "sum", "row_sum", "mean", "row_mean", "l1_norm", "l2_norm", "logsumexp", "softmax",
    "log_softmax", "matmul", "rms_norm", "row_max", "row_min", "min_max",
}  # fmt: skip


def changed(inputs, name, place, sign):
    values = inputs[name].copy()
    values[place] *= 1.0 + sign * STEP
    return inputs | {name: values}


def places_of(inputs):
    return [(name, place) for name, values in inputs.items() for place in np.ndindex(values.shape)]


def results(op, inputs):
    """Center and tail of the one row's results, to float64's double precision."""
    exact = enclose(op, inputs, fmt=FP64, level="fine")
    return exact.center.ravel(), exact.tail.ravel()


def differences(op, inputs, base):
    center, tail = results(op, inputs)
    with np.errstate(invalid="ignore"):
        return (center - base[0]) + (tail - base[1])


def worst_changes(op, inputs):
    """Largest relative change seen of each result, in units of the inputs' relative change.

    The signs are those of the results' derivatives, found by changing one number at a time, for
    each result on its own; and some random ones.
    """
    base = results(op, inputs)
    places = places_of(inputs)
    slopes = np.array([differences(op, changed(inputs, *p, 1.0), base) for p in places])
    rng = np.random.default_rng(1)
    signs = [np.sign(slopes[:, i]) for i in range(slopes.shape[1])]
    signs += [rng.choice([-1.0, 1.0], len(places)) for _ in range(4)]
    largest = np.zeros(slopes.shape[1])
    for chosen in signs:
        moved = dict(inputs)
        for (name, place), sign in zip(places, chosen, strict=True):
            moved = changed(moved, name, place, sign)
        with np.errstate(invalid="ignore", divide="ignore"):
            largest = np.fmax(largest, np.abs(differences(op, moved, base)) / np.abs(base[0]))
    return largest / STEP


def condition(op, inputs):
    exact = enclose(op, inputs, fmt=FP64, level="fine")
    found = op.condition(inputs, exact, op.params, op.default_policies())
    return exact.center.ravel(), found.ravel()


def assert_conditions_hold(op, inputs):
    """No change is larger than the condition number says, and where it is exact one comes near."""
    y, cond = condition(op, inputs)
    seen = worst_changes(op, inputs)
    judged = np.isfinite(y) & (y != 0.0)
    # The second order: (1 + c 2**-30)**2 and the like.
    limit = cond * (1.0 + 4.0 * (1.0 + cond) * STEP)
    over = judged & (seen > limit)
    assert not over.any(), f"{op.name}: results move {seen[over]} times, condition {cond[over]}"
    if op.name not in EXACT:
        return
    assert np.isfinite(cond[judged]).all(), f"{op.name}: no condition number for results {y}"
    inner = judged & (cond > 0.0)
    if op.name == "min_max":
        inner &= y != 1.0  # the largest element stays where it is
    short = inner & (seen < 0.5 * cond)
    assert not short.any(), f"{op.name}: results move {seen[short]} times, condition {cond[short]}"
