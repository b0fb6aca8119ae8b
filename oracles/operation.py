# SPDX-License-Identifier: Apache-2.0
"""What an operation is: the mathematics, its oracle, its bound and its policies.

Every operation is seen as working on rows: x is a (rows, n) matrix and each row is reduced on its
own. A whole-array operation has one row a case, so that many cases of one length are judged at
once. Results are matrices too: one column for each number that a row is reduced to, n columns
where each element has a result.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import numpy as np

from assay.oracles.bounds import compounded, gamma, statistical_gamma
from assay.oracles.enclosure import Enclosure, Mask
from assay.oracles.formats import Float64, Format
from assay.oracles.platform import Arithmetic

# Arrays of any float dtype that holds the stored values: numpy, or torch for rung R3.
Inputs = Mapping[str, Any]
Params = Mapping[str, float]
Policies = Mapping[str, str]

# fast: certified arithmetic in float64. fine: the same with double-double exponentials.
# record: mpmath over distinct values, the reference of record.
Level = Literal["fast", "fine", "record"]
LEVELS: tuple[Level, ...] = ("fast", "fine", "record")


@dataclass(frozen=True)
class Operand:
    """A tensor that the operation takes.

    `shape` is "matrix" for (rows, n), which may have a row stride, "columns" for (n,), and
    "second" for the (n, columns) right-hand side of a product.
    `default` names what stands in for an operand left out: "ones" or "none".
    """

    name: str
    shape: Literal["matrix", "columns", "second"]
    default: Literal["required", "ones", "none"] = "required"


@dataclass(frozen=True)
class Output:
    """A tensor that the operation gives.

    shape: "row" for one number a row, "element" for (rows, n), "cell" for (rows, columns).
    dtype: "same" as x's, or "integer" for an index or a count, compared exactly.
    """

    name: str
    shape: Literal["row", "element", "cell"]
    dtype: Literal["same", "integer"] = "same"


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
class SpecialValue:
    """One line of an operation's special-value table.

    row: x, one row.
    expected: the result under `policies`; None stands for a finite number that is not zero.
    torch: what torch gives, where that is something else, and why.
    """

    row: tuple[float, ...]
    expected: tuple[float | None, ...]
    policies: Mapping[str, str] = field(default_factory=dict)
    torch: tuple[float | None, ...] | None = None
    why: str = ""


@dataclass(frozen=True)
class Claim:
    """What a kernel claims for one launch, as the bound needs it.

    depth: additions on the longest path, h.
    atomics: float atomic additions into one result.
    rescales: times that a running sum of exponentials is moved to a new maximum, on the longest
        path (online softmax, split rows).
    compensated: the rounding error of each addition and product is kept in a low word.
    confidence: None for the worst case; lambda for the statistical bound, see
        `bounds.statistical_gamma`.
    """

    depth: int
    atomics: int
    arithmetic: Arithmetic
    policies: Policies
    params: Params
    rescales: int = 0
    compensated: bool = False
    confidence: float | None = None

    @property
    def u(self) -> float:
        return self.arithmetic.u

    def gamma(self, extra: float = 0.0) -> float:
        """Relative growth of h additions and `extra` other roundings on one path."""
        if self.confidence is None:
            return gamma(self.depth + extra, self.u)
        own = statistical_gamma(self.depth, self.u, self.confidence)
        return float(compounded(own, gamma(extra, self.u)))

    def sum_error(
        self, magnitude: Float64, total: Float64, *, products: bool = False, extra: float = 0.0
    ) -> Float64:
        """Largest |S^ - S| for S = sum v_i with |S| = `magnitude` and sum |v_i| = `total`.

        products: each v_i is a product of two stored values, rounded once or, compensated, kept
            with its error.
        extra: other roundings that each term passes.

        Plain, (1 + u)**k along a path gives gamma_k * total.
        Compensated: the sums and their errors e together are exact; sum |e| <= gamma_(h+1) total;
        the errors are added plainly, two additions a level, so what is lost is at most
        gamma_(2h+2) gamma_(h+1) total, and the last addition of the low word rounds once. Other
        roundings have moved the terms, and so S and the total, by gamma_extra total before.
        """
        u = self.u
        if products and self.compensated and not self.arithmetic.fused:
            # Without a fused multiply-add the error of a product is lost.
            extra += 1.0
        if not self.compensated:
            return np.asarray(self.gamma(extra + (1.0 if products else 0.0)) * total)
        lost, moved = gamma(2 * self.depth + 2, u) * gamma(self.depth + 1, u), gamma(extra, u)
        return np.asarray(u * magnitude + (1.0 + u) * (lost * (1.0 + moved) + moved) * total)

    def relative_sum_error(self, *, products: bool = False, extra: float = 0.0) -> float:
        """The same for terms of one sign, relative to the sum."""
        one = np.ones(())
        return float(self.sum_error(one, one, products=products, extra=extra))


@dataclass(frozen=True)
class Operation:
    """One reduction.

    enclose(inputs, params, policies, out_format, level)
        Enclosure of the exact result for the stored inputs, of shape `result_shape`; special
        values by policy. The level chooses the rung of the ladder; a rung that an operation does
        not have is the one below.
    reference(inputs, params, policies, out_format, bits)
        The same by mpmath with `bits` of working precision in the most direct way, as a list of
        mpf, row by row: the oracle of record, slow, against which `enclose` is checked.
    counted(values, counts, params, policies, out_format, bits)
        mpmath's result for one row of x that holds each of the distinct `values` `counts` times:
        the outputs of the row, or one result for each distinct value where each element has one.
        None where the result depends on more than that (other operands, positions).
    before(inputs, exact, out_format, claim)
        Proved bound of |value - y| for the kernel's value ahead of its final cast, absolute.
        Infinite where the claim promises nothing about the size of the error, NaN where it does
        not even promise a number.
    condition(inputs, exact, params, policies)
        Largest relative change of each result for relative changes of each input, to first order;
        infinite where the result is zero.
    torch(operands, params)
        torch's own form, for context: takes torch tensors by name, gives a tensor or a tuple.
    accepts(inputs, out, exact, policies)
        Where a result is right although it is not the enclosure's (any index of a tie).
    empty: the result of a row without elements; None where that row's result is empty too.
    """

    name: str
    formula: str
    kind: Literal["whole", "row"]
    operands: tuple[Operand, ...]
    outputs: tuple[Output, ...]
    params: Params
    policies: tuple[Policy, ...]
    families: tuple[str, ...]
    empty: float | None
    special_values: tuple[SpecialValue, ...]
    enclose: Callable[..., Enclosure]
    reference: Callable[..., list[Any]]
    before: Callable[[Inputs, Enclosure, Format, Claim], Float64]
    condition: Callable[[Inputs, Enclosure, Params, Policies], Float64]
    torch: Callable[[Mapping[str, Any], Params], Any]
    counted: Callable[..., list[Any]] | None = None
    accepts: Callable[[Inputs, Float64, Enclosure, Policies], Mask] | None = None

    @property
    def whole(self) -> bool:
        return self.kind == "whole"

    @property
    def elementwise(self) -> bool:
        """Each element of x has a result."""
        return self.outputs[0].shape == "element"

    @property
    def integer(self) -> bool:
        """Results are indices or counts."""
        return self.outputs[0].dtype == "integer"

    def result_shape(self, rows: int, n: int, columns: int = 1) -> tuple[int, int]:
        """Shape of the results of (rows, n) inputs; outputs that are one number a row side by side.

        columns: those of the right-hand side of a product.
        """
        shape = self.outputs[0].shape
        if shape == "row":
            return rows, len(self.outputs)
        return rows, n if shape == "element" else columns

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


def relative(change: Float64, exact: Enclosure) -> Float64:
    """change / |y|, infinite where y is 0 or has no finite value: a condition number."""
    size = np.where(exact.finite, np.abs(exact.center), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(size > 0.0, change / size, np.inf)


@cache
def operations() -> dict[str, Operation]:
    """All operations by name, found by looking into `assay.oracles.operations`."""
    from assay.oracles import operations as package

    found: dict[str, Operation] = {}
    for module in pkgutil.iter_modules(package.__path__):
        loaded = importlib.import_module(f"{package.__name__}.{module.name}")
        members: Sequence[Operation] = loaded.OPERATIONS
        found |= {op.name: op for op in members}
    return dict(sorted(found.items()))


def operation_named(name: str) -> Operation:
    """The operation called `name`; ValueError lists the known ones otherwise."""
    try:
        return operations()[name]
    except KeyError:
        raise ValueError(
            f"unknown operation {name!r}: expected one of {', '.join(operations())}"
        ) from None
