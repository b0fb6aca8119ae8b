# SPDX-License-Identifier: Apache-2.0
"""What an operation is: the mathematics, its oracle, its bound and its policies.

Every operation is seen as working on rows: x is a (rows, n) matrix and each row is reduced on its
own. A whole-array operation has one row a case, so that many cases of one length are judged at
once.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from assay.oracles.enclosure import Enclosure
from assay.oracles.formats import Float64, Format
from assay.oracles.platform import Arithmetic

Inputs = Mapping[str, Float64]
Params = Mapping[str, float]
Policies = Mapping[str, str]


@dataclass(frozen=True)
class Operand:
    """A tensor that the operation takes.

    `shape` is "matrix" for (rows, n), which may have a row stride, or "columns" for (n,).
    `default` names what stands in for an operand left out: "ones" or "none".
    """

    name: str
    shape: Literal["matrix", "columns"]
    default: Literal["required", "ones", "none"] = "required"


@dataclass(frozen=True)
class Policy:
    """A choice that the mathematics leaves open. The first value is the default."""

    name: str
    values: tuple[str, ...]
    meaning: str

    @property
    def default(self) -> str:
        return self.values[0]


@dataclass(frozen=True)
class Claim:
    """What a kernel claims for one launch, as the bound needs it."""

    depth: int
    atomics: int
    arithmetic: Arithmetic
    policies: Policies
    params: Params


@dataclass(frozen=True)
class Operation:
    """One reduction.

    enclose(inputs, params, policies, out_format)
        Enclosure of the exact result for the stored inputs, shape (rows, n) for a row operation
        and (rows, 1) for a whole-array operation; special values by policy.
    reference(inputs, params, policies, out_format)
        The same by mpmath in the most direct way, as a list of mpf, row by row: the oracle of
        record, slow, against which `enclose` is checked.
    before(inputs, exact, out_format, claim)
        Proved bound of |value - y| for the kernel's value ahead of its final cast, absolute.
        Infinite where the claim promises nothing about the size of the error, NaN where it does
        not even promise a number.
    """

    name: str
    formula: str
    kind: Literal["whole", "row"]
    operands: tuple[Operand, ...]
    params: Params
    policies: tuple[Policy, ...]
    families: tuple[str, ...]
    empty: str
    enclose: Callable[[Inputs, Params, Policies, Format], Enclosure]
    reference: Callable[[Inputs, Params, Policies, Format], list[Any]]
    before: Callable[[Inputs, Enclosure, Format, Claim], Float64]
    notes: str = field(default="")

    @property
    def whole(self) -> bool:
        return self.kind == "whole"

    def operand(self, name: str) -> Operand:
        for operand in self.operands:
            if operand.name == name:
                return operand
        names = ", ".join(o.name for o in self.operands)
        raise ValueError(f"{self.name} has no operand {name!r}: expected one of {names}")

    def default_policies(self) -> dict[str, str]:
        return {p.name: p.default for p in self.policies}

    def check_policies(self, chosen: Policies) -> dict[str, str]:
        """The full set of policies with defaults filled in; ValueError names what is wrong."""
        known = {p.name: p for p in self.policies}
        for name, value in chosen.items():
            if name not in known:
                raise ValueError(
                    f"{self.name} has no policy {name!r}: expected one of "
                    f"{', '.join(known) or '(none)'}"
                )
            if value not in known[name].values:
                raise ValueError(
                    f"policy {name} of {self.name} cannot be {value!r}: expected one of "
                    f"{', '.join(known[name].values)}"
                )
        return self.default_policies() | dict(chosen)


@cache
def operations() -> dict[str, Operation]:
    """All operations by name, found by looking into `assay.oracles.operations`."""
    from assay.oracles import operations as package

    found = {}
    for module in pkgutil.iter_modules(package.__path__):
        loaded = importlib.import_module(f"{package.__name__}.{module.name}")
        found[loaded.OPERATION.name] = loaded.OPERATION
    return dict(sorted(found.items()))


def operation_named(name: str) -> Operation:
    """The operation called `name`; ValueError lists the known ones otherwise."""
    try:
        return operations()[name]
    except KeyError:
        raise ValueError(
            f"unknown operation {name!r}: expected one of {', '.join(operations())}"
        ) from None
