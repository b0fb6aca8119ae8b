# SPDX-License-Identifier: Apache-2.0
"""Probes: fixed hard cases, each aimed at one pitfall. Every kernel runs every probe that applies.

The expected result is the oracle's; a probe only names the input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from assay.kernels.record import Kernel
from assay.oracles.formats import format_named
from assay.properties.case import Case, Data, Layout, Literal, Recipe, Special
from assay.properties.values import value_text


@dataclass(frozen=True)
class Probe:
    """A named hard case; `case(dtype)` gives it for a dtype."""

    name: str
    pitfall: str
    operation: str
    case: Callable[[str], Case]


def _row(*values: float) -> Data:
    return Literal((tuple(value_text(v) for v in values),))


def _l2(n: int, data: Data, dtype: str) -> Case:
    return Case("l2_norm", dtype, 1, n, {"x": data})


def _softmax(rows: int, n: int, data: Data, dtype: str, layout: Layout | None = None) -> Case:
    return Case("softmax", dtype, rows, n, {"x": data}, layout=layout or Layout())


def _rms(
    rows: int, n: int, dtype: str, eps: float = 1e-6, layout: Layout | None = None, **data: Data
) -> Case:
    return Case("rms_norm", dtype, rows, n, dict(data), {"eps": eps}, layout=layout or Layout())


def _top(dtype: str, power: int) -> int:
    """An exponent near the top of the range: 2**power in float32, smaller in float16."""
    return power if format_named(dtype).emax > 100 else power // 8


PROBES: tuple[Probe, ...] = (
    # l2_norm
    Probe("two programs", "COMBINE", "l2_norm", lambda d: _l2(4097, Recipe("integers", 3), d)),
    Probe("3-4-5", "COMBINE", "l2_norm", lambda d: _l2(2, _row(3.0, 4.0), d)),
    Probe("one past the block", "PAD-IDENTITY", "l2_norm", lambda d: _l2(1025, Recipe("uniform"), d)),
    Probe("empty", "EMPTY", "l2_norm", lambda d: _l2(0, Recipe("normal"), d)),
    Probe("one element", "DOF-N1", "l2_norm", lambda d: _l2(1, _row(-3.0), d)),
    Probe("300 squared", "LOWP-ACC", "l2_norm", lambda d: _l2(3, _row(300.0, 300.0, 300.0), d)),
    Probe("constant", "FSUM-SAT", "l2_norm", lambda d: _l2(5000, Recipe("constant"), d)),
    Probe("squares overflow", "SQ-RANGE", "l2_norm", lambda d: _l2(3, Recipe("uniform", 1, _top(d, 66)), d)),
    Probe("squares underflow", "SQ-RANGE", "l2_norm", lambda d: _l2(3, Recipe("uniform", 1, -_top(d, 70)), d)),
    Probe("subnormals", "APPROX-FTZ", "l2_norm", lambda d: _l2(5, Recipe("constant", specials=(Special("smallest_subnormal"),)), d)),
    Probe("negative zeros", "SIGNED-ZERO", "l2_norm", lambda d: _l2(3, _row(-0.0, -0.0, -0.0), d)),
    Probe("NaN in the last lane", "NAN-LAUNDER", "l2_norm", lambda d: _l2(129, Recipe("normal", specials=(Special("nan", 0, -1),)), d)),
    Probe("minus infinity", "POS-INF", "l2_norm", lambda d: _l2(3, Recipe("normal", specials=(Special("-inf", 0, 1),)), d)),
    # softmax
    Probe("all far below zero", "PAD-IDENTITY", "softmax", lambda d: _softmax(1, 3, _row(-20.0, -21.0, -22.0), d)),
    Probe("all equal", "PAD-IDENTITY", "softmax", lambda d: _softmax(5, 5, Recipe("constant"), d)),
    Probe("logits of 1000", "EXP-RANGE", "softmax", lambda d: _softmax(1, 3, _row(1000.0, 992.0, -1000.0), d)),
    Probe("largest finite values", "EXP-RANGE", "softmax", lambda d: _softmax(1, 3, Recipe("constant", specials=(Special("largest", 0, 0), Special("-largest", 0, 2))), d)),
    Probe("gap of 88 to 104", "APPROX-FTZ", "softmax", lambda d: _softmax(1, 4, _row(0.0, -88.0, -100.0, -104.0), d)),
    Probe("row masked as a whole", "NEG-INF-ROW", "softmax", lambda d: _softmax(3, 5, Recipe("normal", specials=(Special("-inf", 1, None),)), d)),
    Probe("all rows masked", "NEG-INF-ROW", "softmax", lambda d: _softmax(2, 3, Recipe("normal", specials=(Special("-inf"),)), d)),
    Probe("NaN beside -inf", "NAN-LAUNDER", "softmax", lambda d: _softmax(2, 3, Recipe("normal", specials=(Special("-inf", 0, None), Special("nan", 0, 1))), d)),
    Probe("NaN alone", "NAN-LAUNDER", "softmax", lambda d: _softmax(3, 7, Recipe("normal", specials=(Special("nan", 2, 6),)), d)),
    Probe("plus infinity", "POS-INF", "softmax", lambda d: _softmax(2, 3, Recipe("normal", specials=(Special("inf", 1, 0),)), d)),
    Probe("17 x 17", "STORE-OOB", "softmax", lambda d: _softmax(17, 17, Recipe("normal"), d)),
    Probe("rows with gaps", "STRIDE", "softmax", lambda d: _softmax(5, 33, Recipe("normal"), d, Layout(3, 1))),
    Probe("last column of block + 1", "MASK-BOUND", "softmax", lambda d: _softmax(2, 65, Recipe("negative"), d)),
    Probe("empty rows", "EMPTY", "softmax", lambda d: _softmax(3, 0, Recipe("normal"), d)),
    Probe("no rows", "EMPTY", "softmax", lambda d: _softmax(0, 3, Recipe("normal"), d)),
    Probe("one column", "DOF-N1", "softmax", lambda d: _softmax(3, 1, Recipe("normal"), d)),
    # rms_norm
    Probe("N = 3 in a tile of 4", "PAD-IDENTITY", "rms_norm", lambda d: _rms(2, 3, d, x=Recipe("uniform", 1))),
    Probe("RMS of 1e-4", "EPS-FORMULA", "rms_norm", lambda d: _rms(1, 4, d, x=Recipe("constant", scale=-13), weight=Recipe("normal"))),
    Probe("eps of 1", "EPS-FORMULA", "rms_norm", lambda d: _rms(2, 9, d, eps=1.0, x=Recipe("normal"))),
    Probe("zero row", "EPS-FORMULA", "rms_norm", lambda d: _rms(1, 3, d, x=_row(0.0, 0.0, 0.0))),
    Probe("residual, N = 5", "COVERAGE", "rms_norm", lambda d: _rms(2, 5, d, x=Recipe("normal", 1), residual=Recipe("normal", 2))),
    Probe("residual, N = 8", "COVERAGE", "rms_norm", lambda d: _rms(2, 8, d, x=Recipe("normal", 1), residual=Recipe("normal", 2))),
    Probe("residual of whole numbers", "COVERAGE", "rms_norm", lambda d: _rms(3, 7, d, x=Recipe("integers", 1), residual=Recipe("integers", 2))),
    Probe("row of 300", "LOWP-ACC", "rms_norm", lambda d: _rms(1, 6, d, x=Recipe("constant", specials=(Special(value_text(300.0)),)), weight=Recipe("uniform"))),
    Probe("weight with a full significand", "NORM-CONV", "rms_norm", lambda d: _rms(3, 40, d, x=Recipe("normal"), weight=Recipe("uniform", 5))),
    Probe("squares overflow", "SQ-RANGE", "rms_norm", lambda d: _rms(1, 3, d, x=Recipe("uniform", 1, _top(d, 66)))),
    Probe("squares underflow", "SQ-RANGE", "rms_norm", lambda d: _rms(1, 3, d, eps=0.0, x=Recipe("uniform", 1, -_top(d, 70)))),
    Probe("infinity in a row", "POS-INF", "rms_norm", lambda d: _rms(2, 3, d, x=Recipe("normal", specials=(Special("inf", 0, 1),)), weight=Recipe("normal"))),
    Probe("NaN in a row", "NAN-LAUNDER", "rms_norm", lambda d: _rms(2, 3, d, x=Recipe("normal", specials=(Special("nan", 1, 2),)))),
    Probe("rows with gaps", "STRIDE", "rms_norm", lambda d: _rms(3, 33, d, layout=Layout(5, 1), x=Recipe("normal"), residual=Recipe("normal", 2))),
    Probe("empty rows", "EMPTY", "rms_norm", lambda d: _rms(2, 0, d, x=Recipe("normal"))),
    Probe("one column", "DOF-N1", "rms_norm", lambda d: _rms(3, 1, d, x=Recipe("normal"))),
)  # fmt: skip


def probes_for(kernel: Kernel) -> list[Probe]:
    """The probes of a kernel's operation that its operands allow."""
    assert kernel.operands is not None
    return [
        p
        for p in PROBES
        if p.operation == kernel.operation
        and set(p.case(kernel.dtypes[0]).operands) <= set(kernel.operands)
    ]
