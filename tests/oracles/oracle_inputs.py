# SPDX-License-Identifier: Apache-2.0
"""Inputs for every operation, and its oracles called with defaults filled in."""

from __future__ import annotations

import itertools

import numpy as np

from assay.oracles.formats import BF16, FP16, FP32, FP64
from assay.oracles.generators import generate
from assay.oracles.operation import operations

STORED = (FP32, FP16, BF16)
FORMATS = (*STORED, FP64)

# Policies that say what a kernel may get wrong, or how it computes: the exact result is one.
SAME_RESULT = {"range", "form", "algorithm", "input_precision", "accumulation", "ties"}

# Every set of parameters worth a case, where that is not the default alone.
PARAMS = {
    "mean_variance": ({"correction": 0.0}, {"correction": 1.0}),
    "rms_norm": ({"eps": 1e-6}, {"eps": 0.0}),
}
# Columns of the right-hand side of a product.
COLUMNS = 2


def by_name(value):
    return getattr(value, "name", None) or str(value)


def params_of(op):
    return [dict(op.params) | chosen for chosen in PARAMS.get(op.name, ({},))]


def policy_combinations(op, *, leave_out=frozenset()):
    """Every combination of policies; those in `leave_out` keep their defaults."""
    free = [p for p in op.policies if p.name not in leave_out]
    for values in itertools.product(*(p.values for p in free)):
        yield op.default_policies() | dict(zip((p.name for p in free), values, strict=True))


def operand(op, name, family, rows, n, fmt, seed):
    shape = op.operand(name).shape
    if shape == "matrix":
        return generate(family, rows, n, seed, fmt)
    # A weight or a right-hand side is of the order of 1 in real models, whatever x is.
    if shape == "columns":
        return generate("normal", 1, n, seed, fmt)[0]
    return generate("normal", n, COLUMNS, seed, fmt)


def inputs_of(op, family, rows, n, fmt, seed, *, optional=True):
    """Every operand, or those alone that are required."""
    return {
        o.name: operand(op, o.name, family, rows, n, fmt, seed + k)
        for k, o in enumerate(op.operands)
        if optional or o.default == "required"
    }


def operand_choices(op, family, rows, n, fmt, seed):
    """Inputs with every choice of optional operands: left out, or given."""
    everything = inputs_of(op, family, rows, n, fmt, seed)
    optional = [o.name for o in op.operands if o.default != "required"]
    for given in itertools.product((False, True), repeat=len(optional)):
        left_out = {name for name, take in zip(optional, given, strict=True) if not take}
        yield {name: values for name, values in everything.items() if name not in left_out}


def with_x(op, x):
    """x with operands that leave a cell of a product the row's sum."""
    x = np.asarray(x, dtype=np.float64)
    needs = [o for o in op.operands if o.default == "required" and o.name != "x"]
    return {"x": x} | {o.name: np.ones((x.shape[1], 1)) for o in needs}


def enclose(op, inputs, policies=None, fmt=FP32, params=None, level="fast"):
    return op.enclose(
        inputs, dict(op.params) | (params or {}), op.check_policies(policies or {}), fmt, level
    )


def reference(op, inputs, policies=None, fmt=FP32, params=None):
    return op.reference(
        inputs, dict(op.params) | (params or {}), op.check_policies(policies or {}), fmt
    )


def every_family():
    return [(op, family) for op in operations().values() for family in op.families]
