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


def _row_of(*values: str) -> Data:
    """A row of named values, which depend on the dtype."""
    return Literal((values,))


def _probe(
    name: str, pitfall: str, operation: str, shape: tuple[int, int], x: Data, layout: Layout | None = None, **params: float
) -> Probe:  # fmt: skip
    """A probe that is the same in all dtypes; shape: (1, n) for a whole array."""
    rows, n = shape
    where = layout or Layout()

    def case(dtype: str) -> Case:
        return Case(operation, dtype, rows, n, {"x": x}, params, where)

    return Probe(name, pitfall, operation, case)


def _at(family: str, *specials: Special, seed: int = 0) -> Recipe:
    """A data family with special elements."""
    return Recipe(family, seed, specials=specials)


def _of(operation: str, shape: tuple[int, int], x: Data, dtype: str) -> Case:
    return Case(operation, dtype, *shape, {"x": x})


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
    _probe("89, where float32 has no exponential, and 88 has", "EXP-RANGE", "softmax", (1, 3), _row(89.0, 80.0, 64.0)),
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
    # sum
    _probe("two programs", "COMBINE", "sum", (1, 4097), Recipe("integers", 3)),
    _probe("one past the block", "MASK-BOUND", "sum", (1, 1025), Recipe("uniform")),
    _probe("constant", "LOWP-ACC", "sum", (1, 1023), Recipe("constant")),
    # 1023 twos and a three in each 1024: no tile's sum is a float16, and the whole sum shows it.
    _probe("2049 in each tile", "LOWP-ACC", "sum", (1, 3072), Recipe("ones", scale=1, specials=tuple(Special("0x1.8p+1", 0, c) for c in (0, 1024, 2048)))),
    _probe("cancelling", "LOWP-ACC", "sum", (1, 513), Recipe("cancelling")),
    _probe("ones, then a huge last element", "FSUM-SAT", "sum", (1, 1025), Recipe("absorbing", 1)),
    _probe("largest values of both signs", "LOWP-ACC", "sum", (1, 4), _row_of("largest", "largest", "-largest", "-largest")),
    _probe("largest values", "LOWP-ACC", "sum", (1, 2), _row_of("largest", "largest")),
    _probe("subnormals", "APPROX-FTZ", "sum", (1, 5), _at("constant", Special("smallest_subnormal"))),
    _probe("empty", "EMPTY", "sum", (1, 0), Recipe("normal")),
    _probe("one element", "DOF-N1", "sum", (1, 1), _row(-3.0)),
    _probe("negative zeros", "SIGNED-ZERO", "sum", (1, 3), _row(-0.0, -0.0, -0.0)),
    _probe("NaN in the last lane", "NAN-LAUNDER", "sum", (1, 129), _at("normal", Special("nan", 0, -1))),
    _probe("infinities of both signs", "POS-INF", "sum", (1, 3), _at("normal", Special("inf", 0, 0), Special("-inf", 0, 2))),
    # mean
    _probe("N = 3", "PAD-IDENTITY", "mean", (1, 3), _row(1.0, 2.0, 6.0)),
    _probe("one past the block", "COMBINE", "mean", (1, 1025), _at("integers", Special(value_text(512.0), 0, -1))),
    _probe("sum past float16", "LOWP-ACC", "mean", (1, 300), _at("constant", Special(value_text(300.0)))),
    _probe("full significands", "LOWP-ACC", "mean", (1, 101), Recipe("uniform")),
    _probe("cancelling", "LOWP-ACC", "mean", (1, 513), Recipe("cancelling")),
    _probe("empty", "EMPTY", "mean", (1, 0), Recipe("normal")),
    _probe("one element", "DOF-N1", "mean", (1, 1), _row(-3.0)),
    _probe("NaN in the last lane", "NAN-LAUNDER", "mean", (1, 129), _at("normal", Special("nan", 0, -1))),
    _probe("infinities of both signs", "POS-INF", "mean", (1, 3), _at("normal", Special("inf", 0, 0), Special("-inf", 0, 2))),
    # l1_norm
    _probe("two programs of opposite signs", "COMBINE", "l1_norm", (1, 4097), Recipe("integers", 3)),
    _probe("3 and -4", "COMBINE", "l1_norm", (1, 2), _row(3.0, -4.0)),
    _probe("one past the block", "PAD-IDENTITY", "l1_norm", (1, 1025), Recipe("uniform")),
    Probe("squares overflow", "SQ-RANGE", "l1_norm", lambda d: _of("l1_norm", (1, 3), Recipe("uniform", 1, _top(d, 66)), d)),
    Probe("squares underflow", "SQ-RANGE", "l1_norm", lambda d: _of("l1_norm", (1, 3), Recipe("uniform", 1, -_top(d, 70)), d)),
    _probe("negative zeros", "SIGNED-ZERO", "l1_norm", (1, 3), _row(-0.0, -0.0, -0.0)),
    _probe("empty", "EMPTY", "l1_norm", (1, 0), Recipe("normal")),
    _probe("one element", "DOF-N1", "l1_norm", (1, 1), _row(-3.0)),
    _probe("NaN in the last lane", "NAN-LAUNDER", "l1_norm", (1, 129), _at("normal", Special("nan", 0, -1))),
    _probe("infinities of both signs", "POS-INF", "l1_norm", (1, 3), _at("normal", Special("inf", 0, 0), Special("-inf", 0, 2))),
    # count_nonzero
    _probe("4097 ones", "INT-ACC", "count_nonzero", (1, 4097), Recipe("ones")),
    _probe("one past the block", "PAD-IDENTITY", "count_nonzero", (1, 1025), Recipe("sparse")),
    _probe("NaN and infinities", "NAN-MINMAX", "count_nonzero", (1, 5), _row_of("nan", "0", "inf", "-inf", "-nan")),
    _probe("zeros of both signs", "SIGNED-ZERO", "count_nonzero", (1, 4), _row(-0.0, 0.0, 1.0, -0.0)),
    _probe("subnormals", "APPROX-FTZ", "count_nonzero", (1, 4), _row_of("smallest_subnormal", "-smallest_subnormal", "0", "smallest_normal")),
    _probe("all zero", "SIGNED-ZERO", "count_nonzero", (1, 129), _at("constant", Special("0"))),
    _probe("empty", "EMPTY", "count_nonzero", (1, 0), Recipe("normal")),
    _probe("one element", "DOF-N1", "count_nonzero", (1, 1), _row(-3.0)),
    # logsumexp
    _probe("logits of 1000", "EXP-RANGE", "logsumexp", (1, 3), _row(1000.0, 992.0, -1000.0)),
    _probe("89, where float32 has no exponential, and 88 has", "EXP-RANGE", "logsumexp", (1, 3), _row(89.0, 80.0, 64.0)),
    _probe("all far below zero", "EXP-RANGE", "logsumexp", (1, 3), _row(-1000.0, -1008.0, -1016.0)),
    _probe("below zero in a large block", "PAD-IDENTITY", "logsumexp", (1, 3), _row(-20.0, -21.0, -22.0)),
    _probe("two programs", "COMBINE", "logsumexp", (1, 4097), Recipe("normal", 3)),
    _probe("near zero", "LOWP-ACC", "logsumexp", (1, 129), Recipe("near_zero_logsumexp")),
    _probe("largest finite values", "EXP-RANGE", "logsumexp", (1, 3), _row_of("largest", "0", "-largest")),
    _probe("all -inf", "NEG-INF-ROW", "logsumexp", (1, 3), _at("normal", Special("-inf"))),
    _probe("one that is not -inf", "NEG-INF-ROW", "logsumexp", (1, 5), _at("normal", Special("-inf"), Special(value_text(-3.0), 0, 4))),
    _probe("plus infinity", "POS-INF", "logsumexp", (1, 3), _at("normal", Special("inf", 0, 1))),
    _probe("NaN beside -inf", "NAN-LAUNDER", "logsumexp", (1, 3), _at("normal", Special("-inf"), Special("nan", 0, 1))),
    _probe("empty", "EMPTY", "logsumexp", (1, 0), Recipe("normal")),
    _probe("one element", "DOF-N1", "logsumexp", (1, 1), _row(-3.0)),
    # row_sum
    _probe("N = 3 in a tile of 4", "PAD-IDENTITY", "row_sum", (5, 3), Recipe("integers", 1)),
    _probe("row of 300", "LOWP-ACC", "row_sum", (3, 257), _at("uniform", Special(value_text(300.0), 1, None))),
    _probe("cancelling", "LOWP-ACC", "row_sum", (2, 129), Recipe("cancelling")),
    _probe("17 x 17", "STORE-OOB", "row_sum", (17, 17), Recipe("normal")),
    _probe("rows with gaps", "STRIDE", "row_sum", (5, 33), Recipe("normal"), Layout(3, 1)),
    _probe("largest values of both signs", "LOWP-ACC", "row_sum", (1, 4), _row_of("largest", "largest", "-largest", "-largest")),
    _probe("negative zeros", "SIGNED-ZERO", "row_sum", (1, 3), _row(-0.0, -0.0, -0.0)),
    _probe("NaN in a row", "NAN-LAUNDER", "row_sum", (2, 3), _at("normal", Special("nan", 1, 2))),
    _probe("infinities of both signs", "POS-INF", "row_sum", (2, 3), _at("normal", Special("inf", 0, 0), Special("-inf", 0, 2))),
    _probe("one column", "DOF-N1", "row_sum", (3, 1), Recipe("normal")),
    _probe("empty rows", "EMPTY", "row_sum", (3, 0), Recipe("normal")),
    _probe("no rows", "EMPTY", "row_sum", (0, 3), Recipe("normal")),
    # row_mean
    _probe("N = 3 in a tile of 4", "PAD-IDENTITY", "row_mean", (2, 3), Recipe("uniform", 1)),
    _probe("row of 300", "LOWP-ACC", "row_mean", (3, 257), _at("uniform", Special(value_text(300.0), 1, None))),
    _probe("large mean", "LOWP-ACC", "row_mean", (3, 33), Recipe("offset")),
    _probe("rows with gaps", "STRIDE", "row_mean", (5, 33), Recipe("normal"), Layout(3, 1)),
    _probe("NaN in a row", "NAN-LAUNDER", "row_mean", (2, 3), _at("normal", Special("nan", 1, 2))),
    _probe("one column", "DOF-N1", "row_mean", (3, 1), Recipe("normal")),
    _probe("empty rows", "EMPTY", "row_mean", (3, 0), Recipe("normal")),
    _probe("no rows", "EMPTY", "row_mean", (0, 3), Recipe("normal")),
    # row_max
    _probe("N = 3 in a tile of 4, all negative", "PAD-IDENTITY", "row_max", (2, 3), Recipe("negative")),
    _probe("N = 4, all negative", "PAD-IDENTITY", "row_max", (2, 4), Recipe("negative")),
    _probe("row of -inf", "NEG-INF-ROW", "row_max", (2, 3), _at("normal", Special("-inf", 1, None))),
    _probe("lowest finite values", "PAD-IDENTITY", "row_max", (1, 3), _row_of("-largest", "-inf", "-largest")),
    _probe("NaN first, between and last", "NAN-MINMAX", "row_max", (3, 3), _at("normal", Special("nan", 0, 0), Special("nan", 1, 1), Special("nan", 2, 2))),
    _probe("NaN alone, and beside -inf", "NAN-MINMAX", "row_max", (2, 3), _at("normal", Special("nan", 0, None), Special("-inf", 1, None), Special("nan", 1, 2))),
    _probe("plus infinity", "POS-INF", "row_max", (2, 3), _at("normal", Special("inf", 1, 0))),
    _probe("zeros of both signs", "SIGNED-ZERO", "row_max", (1, 3), _row(-0.0, 0.0, -0.0)),
    _probe("rows with gaps", "STRIDE", "row_max", (5, 33), Recipe("normal"), Layout(3, 1)),
    _probe("one column", "DOF-N1", "row_max", (3, 1), Recipe("normal")),
    _probe("empty rows", "EMPTY", "row_max", (3, 0), Recipe("normal")),
    _probe("no rows", "EMPTY", "row_max", (0, 3), Recipe("normal")),
    # row_min
    _probe("N = 3 in a tile of 4, all positive", "PAD-IDENTITY", "row_min", (2, 3), Recipe("uniform")),
    _probe("N = 4, all positive", "PAD-IDENTITY", "row_min", (2, 4), Recipe("uniform")),
    _probe("row of inf", "POS-INF", "row_min", (2, 3), _at("normal", Special("inf", 1, None))),
    _probe("minus infinity", "NEG-INF-ROW", "row_min", (2, 3), _at("normal", Special("-inf", 1, 0))),
    _probe("NaN first, between and last", "NAN-MINMAX", "row_min", (3, 3), _at("normal", Special("nan", 0, 0), Special("nan", 1, 1), Special("nan", 2, 2))),
    _probe("NaN alone, and beside inf", "NAN-MINMAX", "row_min", (2, 3), _at("normal", Special("nan", 0, None), Special("inf", 1, None), Special("nan", 1, 2))),
    _probe("rows with gaps", "STRIDE", "row_min", (5, 33), Recipe("normal"), Layout(3, 1)),
    _probe("one column", "DOF-N1", "row_min", (3, 1), Recipe("normal")),
    _probe("empty rows", "EMPTY", "row_min", (3, 0), Recipe("normal")),
    _probe("no rows", "EMPTY", "row_min", (0, 3), Recipe("normal")),
    # row_argmax
    _probe("N = 3 in a tile of 4, all negative", "PAD-IDENTITY", "row_argmax", (2, 3), Recipe("negative")),
    _probe("N = 4, all negative", "PAD-IDENTITY", "row_argmax", (2, 4), Recipe("negative")),
    _probe("two largest far apart", "ARG-TIES", "row_argmax", (1, 257), _at("uniform", Special(value_text(2.0), 0, 3), Special(value_text(2.0), 0, -1))),
    _probe("all equal", "ARG-TIES", "row_argmax", (3, 5), Recipe("constant")),
    _probe("row of -inf", "NEG-INF-ROW", "row_argmax", (2, 3), _at("normal", Special("-inf", 1, None))),
    _probe("NaN behind the largest", "NAN-MINMAX", "row_argmax", (2, 5), _at("normal", Special("inf", 0, 1), Special("nan", 0, 3), Special("nan", 0, 4))),
    _probe("NaN alone", "NAN-MINMAX", "row_argmax", (1, 3), _at("normal", Special("nan"))),
    _probe("zeros of both signs", "SIGNED-ZERO", "row_argmax", (1, 3), _row(-0.0, 0.0, -0.0)),
    _probe("rows with gaps", "STRIDE", "row_argmax", (5, 33), Recipe("normal"), Layout(3, 1)),
    _probe("one column", "DOF-N1", "row_argmax", (3, 1), Recipe("normal")),
    _probe("no rows", "EMPTY", "row_argmax", (0, 3), Recipe("normal")),
    # mean_variance
    _probe("N = 3 in a tile of 4, mean of 100", "PAD-REENTRY", "mean_variance", (1, 3), _row(100.0, 101.0, 102.0)),
    _probe("large mean, small variance", "VAR-CANCEL", "mean_variance", (5, 257), Recipe("offset")),
    _probe("rows of 0.1", "VAR-CANCEL", "mean_variance", (2, 129), Recipe("constant", 0)),
    _probe("rows of 123.456", "VAR-CANCEL", "mean_variance", (2, 257), Recipe("constant", 4)),
    _probe("sample variance", "DOF-N1", "mean_variance", (3, 5), Recipe("normal"), correction=1.0),
    _probe("one column, corrected", "DOF-N1", "mean_variance", (3, 1), Recipe("normal"), correction=1.0),
    _probe("one column", "DOF-N1", "mean_variance", (3, 1), Recipe("normal")),
    _probe("row of 300", "LOWP-ACC", "mean_variance", (3, 257), _at("uniform", Special(value_text(300.0), 1, None))),
    Probe("squares overflow", "SQ-RANGE", "mean_variance", lambda d: _of("mean_variance", (1, 3), Recipe("normal", 1, _top(d, 66)), d)),
    _probe("NaN in a row", "NAN-LAUNDER", "mean_variance", (2, 3), _at("normal", Special("nan", 1, 2))),
    _probe("infinity in a row", "POS-INF", "mean_variance", (2, 3), _at("normal", Special("inf", 1, 2))),
    _probe("rows with gaps", "STRIDE", "mean_variance", (5, 33), Recipe("normal"), Layout(3, 1)),
    _probe("empty rows", "EMPTY", "mean_variance", (3, 0), Recipe("normal")),
    _probe("no rows", "EMPTY", "mean_variance", (0, 3), Recipe("normal")),
    # log_softmax
    _probe("N = 3 in a tile of 4", "PAD-REENTRY", "log_softmax", (2, 3), Recipe("uniform")),
    _probe("logits of 1000", "EXP-RANGE", "log_softmax", (1, 3), _row(1000.0, 992.0, -1000.0)),
    _probe("89, where float32 has no exponential, and 88 has", "EXP-RANGE", "log_softmax", (1, 3), _row(89.0, 80.0, 64.0)),
    _probe("gap of 88 to 200", "EXP-RANGE", "log_softmax", (1, 5), _row(0.0, -88.0, -100.0, -104.0, -200.0)),
    _probe("one element dominates", "EXP-RANGE", "log_softmax", (1, 4), _row(16.0, 0.0, 0.0, -1.0)),
    _probe("largest finite values", "EXP-RANGE", "log_softmax", (1, 3), _row_of("largest", "0", "-largest")),
    _probe("row masked as a whole", "NEG-INF-ROW", "log_softmax", (3, 5), _at("normal", Special("-inf", 1, None))),
    _probe("NaN beside -inf", "NAN-LAUNDER", "log_softmax", (2, 3), _at("normal", Special("-inf", 0, None), Special("nan", 0, 1))),
    _probe("plus infinity", "POS-INF", "log_softmax", (2, 3), _at("normal", Special("inf", 1, 0))),
    _probe("17 x 17", "STORE-OOB", "log_softmax", (17, 17), Recipe("normal")),
    _probe("rows with gaps", "STRIDE", "log_softmax", (5, 33), Recipe("normal"), Layout(3, 1)),
    _probe("one column", "DOF-N1", "log_softmax", (3, 1), Recipe("normal")),
    _probe("empty rows", "EMPTY", "log_softmax", (3, 0), Recipe("normal")),
    _probe("no rows", "EMPTY", "log_softmax", (0, 3), Recipe("normal")),
    # min_max
    _probe("N = 3 in a tile of 4, from 5 to 6", "PAD-IDENTITY", "min_max", (1, 3), _row(5.0, 5.5, 6.0)),
    _probe("N = 3 in a tile of 4, all negative", "PAD-IDENTITY", "min_max", (2, 3), Recipe("negative")),
    _probe("row of equal elements", "DEGENERATE-DIV", "min_max", (2, 3), _at("normal", Special(value_text(3.0), 1, None))),
    _probe("subnormal range", "DEGENERATE-DIV", "min_max", (1, 3), _row_of("0", "smallest_subnormal", "-smallest_subnormal")),
    _probe("range of the last place", "DEGENERATE-DIV", "min_max", (1, 4), _row(1.0, 1.0 + 2.0**-7, 1.0, 1.0 + 2.0**-7)),
    _probe("largest values of both signs", "SQ-RANGE", "min_max", (1, 3), _row_of("largest", "0", "-largest")),
    _probe("NaN in a row", "NAN-MINMAX", "min_max", (2, 3), _at("normal", Special("nan", 1, 2))),
    _probe("infinity in a row", "POS-INF", "min_max", (2, 3), _at("normal", Special("inf", 1, 2))),
    _probe("minus infinity in a row", "POS-INF", "min_max", (2, 3), _at("normal", Special("-inf", 1, 0))),
    _probe("17 x 17", "STORE-OOB", "min_max", (17, 17), Recipe("normal")),
    _probe("rows with gaps", "STRIDE", "min_max", (5, 33), Recipe("normal"), Layout(3, 1)),
    _probe("one column", "DOF-N1", "min_max", (3, 1), Recipe("normal")),
    _probe("empty rows", "EMPTY", "min_max", (3, 0), Recipe("normal")),
    _probe("no rows", "EMPTY", "min_max", (0, 3), Recipe("normal")),
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
