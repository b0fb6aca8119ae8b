# SPDX-License-Identifier: Apache-2.0
"""The ladder of oracles: the fast rung decides almost every rounding, the others the rest.

A correctly rounded result is known once the enclosure does not reach across a midpoint of two
neighbours. Where it does, the next rung is asked with a narrower one (Ziv, "Fast evaluation of
elementary mathematical functions with correctly rounded last bit", ACM TOMS 17, 1991):

    fast     certified float64 arithmetic, exact sums, exponentials to 2**-60
    fine     the same with double-double exponentials, 2**-85
    record   mpmath, over the distinct values of a row where the operation allows it, with more bits
             each time, up to `MOST_BITS`

A tie that is exact is decided where the rung knows the value exactly (sums, counts, rational
roots), and stays undecided otherwise: no amount of bits tells a tie from a near miss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from assay.oracles.counts import count_values
from assay.oracles.enclosure import Enclosure, Mask, from_mpf
from assay.oracles.formats import Float64, Format
from assay.oracles.operation import Inputs, Operation, Params, Policies
from assay.oracles.rows import on_host

# What mpmath loses in any formula here: see `multiprecision`.
_LOST_BITS = 30
_BITS = (200, 800, 3200)
MOST_BITS = _BITS[-1]
# mpmath takes some 10 microseconds a value: up to here the direct form is a matter of a second.
MOST_DIRECT = 1 << 16


@dataclass(frozen=True)
class Decision:
    """Correctly rounded results, and where even the last rung could not tell.

    asked: elements that each rung above the first was asked for.
    """

    nearest: Float64
    undecided: Mask
    asked: Mapping[str, int] = field(default_factory=dict)


def round_fraction(value: Fraction, fmt: Format) -> float:
    """A rational number rounded to nearest in `fmt`, ties to even, overflow to infinity."""
    if value == 0:
        return 0.0
    size = abs(value)
    e = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** e > size:
        e -= 1
    step = Fraction(2) ** (max(e, fmt.emin) - fmt.precision + 1)
    # Python rounds a Fraction to even.
    rounded = round(size / step) * step
    result = float("inf") if rounded > Fraction(fmt.largest) else float(rounded)
    return result if value > 0 else -result


def record(
    operation: Operation,
    inputs: Inputs,
    params: Params,
    policies: Policies,
    out_format: Format,
    bits: int = _BITS[0],
) -> list[Any]:
    """mpmath's results for all rows, through value counts where the operation allows it.

    Value counts make it usable at any n as long as a row has few distinct values. Raises ValueError
    where it would be the direct form of more than `MOST_DIRECT` elements.
    """
    if operation.counted is None or len(inputs) > 1:
        return _directly(operation, inputs, params, policies, out_format, bits)
    results: list[Any] = []
    for row in inputs["x"]:
        counted = count_values(row)
        values = counted.values
        if len(values) > MOST_DIRECT:
            _refuse(operation, len(values), "distinct values")
        found = operation.counted(
            values.tolist(), counted.counts.tolist(), params, policies, out_format, bits
        )
        if operation.elementwise:
            # Every element's place among the rising values; NaN comes last.
            found = [found[k] for k in np.searchsorted(values, on_host(row))]
        results += found
    return results


def _directly(
    operation: Operation,
    inputs: Inputs,
    params: Params,
    policies: Policies,
    out_format: Format,
    bits: int,
) -> list[Any]:
    size = int(inputs["x"].shape[0]) * int(inputs["x"].shape[1])
    if size > MOST_DIRECT:
        _refuse(operation, size, "elements")
    plain = {name: on_host(v) for name, v in inputs.items()}
    return operation.reference(plain, params, policies, out_format, bits)


def _refuse(operation: Operation, count: int, what: str) -> None:
    raise ValueError(
        f"the oracle of record for {operation.name} takes up to {MOST_DIRECT} {what} a row, got "
        f"{count}: ask the certified oracle, `enclose`"
    )


def decide(
    operation: Operation,
    inputs: Inputs,
    params: Params,
    policies: Policies,
    out_format: Format,
    exact: Enclosure | None = None,
) -> Decision:
    """The correctly rounded result of every element, asking higher rungs where needed.

    exact: the enclosure of the fast rung, if it is at hand.
    Where the record cannot be asked, at more than `MOST_DIRECT` distinct values in a row, the
    element stays undecided.
    """
    if exact is None:
        exact = operation.enclose(inputs, params, policies, out_format, "fast")
    nearest, decided = exact.round(out_format)
    if operation.integer or decided.all():
        return Decision(nearest, ~decided)
    asked = {"fine": int((~decided).sum())}
    rows = np.flatnonzero(~decided.all(axis=1))
    some = _rows_of(operation, inputs, rows)
    found = operation.enclose(some, params, policies, out_format, "fine")
    finer, sure = found.round(out_format)
    nearest[rows] = np.where(decided[rows], nearest[rows], finer)
    decided[rows] |= sure
    if decided.all():
        return Decision(nearest, ~decided, asked)
    asked["record"] = int((~decided).sum())
    for bits in _BITS:
        rows = np.flatnonzero(~decided.all(axis=1))
        if not rows.size:
            break
        some = _rows_of(operation, inputs, rows)
        try:
            values = record(operation, some, params, policies, out_format, bits)
        except ValueError:
            break
        width = nearest.shape[1]
        for k, i in enumerate(rows):
            for j in np.flatnonzero(~decided[i]):
                rounded = _rounded(values[k * width + int(j)], out_format, bits)
                if rounded is not None:
                    nearest[i, j], decided[i, j] = rounded, True
    return Decision(nearest, ~decided, asked)


def _rows_of(operation: Operation, inputs: Inputs, rows: Any) -> dict[str, Any]:
    return {
        name: on_host(v)[rows] if operation.operand(name).shape == "matrix" else v
        for name, v in inputs.items()
    }


def _rounded(value: Any, fmt: Format, bits: int) -> float | None:
    """The rounding of an mpf known to `bits` less a few, None where it is not decided."""
    sign, mantissa, exponent, _ = value._mpf_
    if not mantissa:
        return float(value)  # zero, NaN or an infinity
    exact = (-1) ** sign * Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
    off = abs(exact) * Fraction(1, 2 ** (bits - _LOST_BITS))
    low, high = round_fraction(exact - off, fmt), round_fraction(exact + off, fmt)
    return low if low == high else None


def record_enclosure(
    operation: Operation, inputs: Inputs, params: Params, policies: Policies, out_format: Format
) -> Enclosure:
    """The record as an enclosure, of the operation's result shape."""
    values = record(operation, inputs, params, policies, out_format)
    found = from_mpf(values, relative_error=2.0 ** (_LOST_BITS - _BITS[0]))
    return found.reshape(int(inputs["x"].shape[0]), -1)
