# SPDX-License-Identifier: Apache-2.0
"""Operation records: complete, consistent, and helpful about names."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

from assay.oracles import operations as package
from assay.oracles.enclosure import Enclosure
from assay.oracles.formats import FP32
from assay.oracles.generators import FAMILIES, generate
from assay.oracles.operation import Operation, operation_named, operations


def by_name(op):
    return op.name


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
        x = generate("normal", 1, 4, 1, FP32)
        exact = op.enclose({"x": x}, op.params, op.default_policies(), FP32)
        assert isinstance(exact, Enclosure), f"{op.name} returns {type(exact).__name__}"
