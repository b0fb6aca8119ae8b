# SPDX-License-Identifier: Apache-2.0
"""Operation records: complete, consistent, and helpful about names."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import math
import pkgutil

import numpy as np
import pytest
from oracle_inputs import by_name, enclose, inputs_of

from assay.oracles import operations as package
from assay.oracles.enclosure import Enclosure
from assay.oracles.formats import FP32
from assay.oracles.generators import FAMILIES
from assay.oracles.operation import Operation, SpecialValue, operation_named, operations

# Operations of values and counts alone are the rule.
NO_COUNTED = {
    "matmul": "a product pairs values by their places",
    "row_argmax": "an index is a place",
}

# Values of a policy that change no result of a row of special values, and where they are held.
ELSEWHERE = {
    "range=naive": "what overflows on the way is in test_range_policies.py; the result is the same",
    "form=direct": "another way to the same result",
    "algorithm=welford": "another way to the same result",
    "algorithm=moments": "another way to the same result",
    "input_precision=tf32": "in the bound; special values enter whole",
    "accumulation=truncated": "in the bound",
    "cast=before_weight": "rounds once more; test_special_values.py takes every policy",
    "residual=stored": "rounds once more; test_special_values.py takes every policy",
    "ties=any": "test_accepted_indices in test_special_values.py",
}


def modules():
    return [
        importlib.import_module(f"{package.__name__}.{m.name}")
        for m in pkgutil.iter_modules(package.__path__)
    ]


def test_every_module_names_its_operations():
    where = {}
    for module in modules():
        found = getattr(module, "OPERATIONS", ())
        assert found, f"{module.__name__} names no OPERATIONS"
        for op in found:
            assert isinstance(op, Operation), f"{module.__name__}: {op!r} is no Operation"
            assert op.name not in where, f"{op.name} is in {where[op.name]} and {module.__name__}"
            where[op.name] = module.__name__
    assert where.keys() == operations().keys(), "and all of them are found"
    assert list(operations()) == sorted(where), "in order of their names"


def holds_infinity(v: SpecialValue) -> bool:
    return sum(map(math.isinf, v.row)) == 1 and not any(map(math.isnan, v.row))


# What the table of special values must have a row of.
NEEDED = {
    "nothing but -inf": lambda v: set(v.row) == {-math.inf},
    "a NaN": lambda v: any(map(math.isnan, v.row)),
    "one infinity": holds_infinity,
    "zeros": lambda v: set(v.row) == {0.0},
}


def missing_of(op: Operation) -> list[str]:
    """What a new operation must not forget; empty if nothing."""
    missing = [
        name for name in ("formula", "operands", "outputs", "families") if not getattr(op, name)
    ]
    missing += [f"family {f} in FAMILIES" for f in op.families if f not in FAMILIES]
    parts = ("enclose", "reference", "before", "condition", "torch")
    missing += [part for part in parts if not callable(getattr(op, part, None))]
    if op.outputs and (op.empty is None) != op.elementwise:
        missing.append("empty: the result of a row without elements, None only if it has none")
    if op.kind not in ("whole", "row"):
        missing.append("kind")
    if (op.counted is None) != (op.name in NO_COUNTED):
        missing.append("counted, or a reason in NO_COUNTED why there is none")
    text = inspect.getmodule(op.before).__doc__ or ""
    if "Bound, derived\n---" not in text:
        missing.append("the derivation of the bound in the module's text")
    return missing + missing_policies(op) + missing_special_values(op)


def missing_policies(op: Operation) -> list[str]:
    missing = []
    for policy in op.policies:
        if not policy.meaning:
            missing.append(f"the meaning of policy {policy.name}")
        missing += [
            f"{value} in the meaning of policy {policy.name}"
            for value in policy.values
            if value.lower() not in policy.meaning.lower() and value != "zero"
        ]
        missing += [
            f"a special value under {policy.name}={value}, or a reason in ELSEWHERE"
            for value in policy.values
            if value != policy.default
            and f"{policy.name}={value}" not in ELSEWHERE
            and all(v.policies.get(policy.name) != value for v in op.special_values)
        ]
    return missing


def missing_special_values(op: Operation) -> list[str]:
    missing = [
        f"a special value of {what}"
        for what, has in NEEDED.items()
        if not any(map(has, op.special_values))
    ]
    for v in op.special_values:
        told = f"special value {v.row}, {dict(v.policies)}"
        width = len(v.row) if op.elementwise else len(op.outputs)
        if len(v.expected) != width or (v.torch is not None and len(v.torch) != width):
            missing.append(f"{told}: {width} results")
        if (v.torch is None) == bool(v.why):
            missing.append(f"{told}: torch's other result and its reason, both or neither")
        if v.torch is not None and repr(v.torch) == repr(v.expected):
            missing.append(f"{told}: a difference from torch that is none")
        if set(v.policies) - {p.name for p in op.policies}:
            missing.append(f"{told}: policies of this operation")
    return missing


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_an_operation_is_complete(op):
    missing = missing_of(op)
    assert not missing, f"{op.name} lacks: {'; '.join(missing)}"


def without(row_of):
    def change(op):
        return {"special_values": tuple(v for v in op.special_values if not row_of(v))}

    return change


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("sum", {"formula": ""}, "formula"),
        ("sum", {"families": ()}, "families"),
        ("sum", {"families": ("normal", "gauss")}, "family gauss"),
        ("sum", {"empty": None}, "empty"),
        ("softmax", {"empty": 0.0}, "empty"),
        ("sum", {"counted": None}, "counted"),
        ("sum", {"condition": None}, "condition"),
        ("sum", {"torch": None}, "torch"),
        ("sum", {"reference": None}, "reference"),
        ("sum", {"before": enclose}, "derivation"),
        ("softmax", without(lambda v: v.policies), "under masked_row=zero"),
        ("row_max", without(lambda v: v.policies), "under nan=drop"),
        *(
            ("logsumexp", without(has), f"a special value of {what}")
            for what, has in NEEDED.items()
        ),
    ],
)
def test_what_an_operation_forgets_is_told(name, change, told):
    op = operation_named(name)
    change = change(op) if callable(change) else change
    assert told in "; ".join(missing_of(dataclasses.replace(op, **change)))


def test_the_exceptions_are_still_needed():
    for name, why in NO_COUNTED.items():
        assert why and operation_named(name).counted is None, f"{name} counts now"
    values = {
        f"{p.name}={v}" for op in operations().values() for p in op.policies for v in p.values
    }
    assert set(ELSEWHERE) <= values, f"no policy has {sorted(set(ELSEWHERE) - values)} any more"


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_an_operation_is_consistent(op):
    assert len(set(op.families)) == len(op.families), f"{op.name} names a family twice"
    for policy in op.policies:
        assert len(set(policy.values)) == len(policy.values) >= 2, (
            f"policy {policy.name} of {op.name} is a choice between at least two values"
        )
        assert policy.default == policy.values[0], "the default is the first value"
    assert op.operands[0].name == "x" and op.operands[0].default == "required", (
        f"{op.name}: every operation reduces an operand called x"
    )
    assert len({o.shape for o in op.outputs}) == 1, f"{op.name}: outputs of one shape"
    assert len(op.outputs) == 1 or op.outputs[0].shape == "row", (
        f"{op.name}: only rows lie together"
    )
    signatures = {"enclose": 5, "reference": 5, "counted": 6, "before": 4, "condition": 4,
                  "accepts": 4, "torch": 2}  # fmt: skip
    for part, count in signatures.items():
        function = getattr(op, part)
        if function is not None:
            parameters = inspect.signature(function).parameters
            assert len(parameters) == count, f"{op.name}.{part} takes {list(parameters)}"


@pytest.mark.parametrize("op", operations().values(), ids=by_name)
def test_results_have_the_shape_that_is_declared(op):
    for rows, n in ((2, 5), (1, 1), (3, 0), (0, 4)):
        inputs = inputs_of(op, op.families[0], rows, n, FP32, 1)
        shape = op.result_shape(rows, n, inputs["w"].shape[1] if "w" in inputs else 1)
        exact = enclose(op, inputs)
        assert isinstance(exact, Enclosure), f"{op.name} returns {type(exact).__name__}"
        assert exact.shape == shape, f"{op.name} of {rows} x {n}: {exact.shape}, not {shape}"
        condition = op.condition(inputs, exact, op.params, op.default_policies())
        assert condition.shape == shape, f"{op.name} of {rows} x {n}: condition {condition.shape}"
        assert (condition >= 0.0).all(), f"{op.name} of {rows} x {n}: condition {condition}"
        if op.integer:
            finite = exact.center[exact.finite]
            assert (finite == np.floor(finite)).all(), f"{op.name}: a whole number"


def test_policies_are_filled_in_and_checked():
    op = operation_named("rms_norm")
    assert op.check_policies({}) == op.default_policies(), "defaults"
    assert op.check_policies({"range": "naive"}) == op.default_policies() | {"range": "naive"}
    with pytest.raises(ValueError, match=r"no policy 'rang'.*cast, residual, range"):
        op.check_policies({"rang": "naive"})
    with pytest.raises(ValueError, match=r"range of rms_norm cannot be 'fast'.*scaled, naive"):
        op.check_policies({"range": "fast"})
    with pytest.raises(ValueError, match=r"no policy 'nan'.*\(none\)"):
        operation_named("count_nonzero").check_policies({"nan": "drop"})


def test_names_are_looked_up_with_help():
    assert isinstance(operation_named("softmax"), Operation), "a known name"
    with pytest.raises(ValueError, match=r"'sofmax'.*l2_norm, .*rms_norm, .*softmax"):
        operation_named("sofmax")
    op = operation_named("rms_norm")
    assert op.operand("weight").shape == "columns", "an operand by name"
    with pytest.raises(ValueError, match=r"no operand 'bias'.*x, weight, residual"):
        op.operand("bias")
