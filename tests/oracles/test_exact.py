# SPDX-License-Identifier: Apache-2.0
"""Exact sums against rational arithmetic, and proof that these tests can fail.

`sums` and `dots` name the inputs. They are run once on the module as it is, and once with each of
the errors at the end planted in it, which they must notice.
"""

from __future__ import annotations

import dataclasses
import warnings
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from assay.oracles import double_double, exact
from assay.oracles.exact import exact_dot, exact_sum, exact_sum_of_squares
from assay.oracles.formats import BF16, FP16, FP32, FP64, decode, encode, round_nearest

FORMATS = (FP64, FP32, FP16, BF16)
FP32_TINY = FP32.smallest_subnormal
FP64_TINY = FP64.smallest_subnormal


def finite_patterns(fmt, rows, n, seed):
    """Random bit patterns: the whole exponent range, subnormals and both zeros."""
    words = np.random.default_rng(seed).integers(0, 2**64, size=(rows, n), dtype=np.uint64)
    values = decode((words >> np.uint64(64 - fmt.width)).astype(fmt.bits_dtype), fmt)
    return np.where(np.isfinite(values), values, -0.0)


def normal(fmt, rows, n, seed):
    return round_nearest(np.random.default_rng(seed).standard_normal((rows, n)), fmt)


def near_the_subnormals(top, n, seed):
    """float64 values with exponents from -1074 up to `top`, all bits in use."""
    rng = np.random.default_rng(seed)
    e = rng.integers(-1074, top + 1, n)
    values = np.ldexp(rng.uniform(1.0, 2.0, n) * rng.choice([-1.0, 1.0], n), e)
    values[0] = np.ldexp(2.0 - 2.0**-52, top)
    values[1] = FP64_TINY
    return values


def cancelling(values, left, seed):
    """`values`, their negatives and one value more, in random order."""
    row = np.concatenate([values, -values, [left]])
    return np.random.default_rng(seed).permutation(row)[None, :]


def same_sign(n, rows=6):
    """Positive values just below 1 with random last bits: the largest sums that n values make."""
    rng = np.random.default_rng(n)
    return 1.0 - rng.integers(0, 2**20, (rows, n)) * 2.0**-53


def one_row(*values):
    return np.array([values], dtype=np.float64)


@cache
def sums():
    """name -> matrix whose rows are summed."""
    cases = {f"patterns {f.name}": finite_patterns(f, 4, 500, seed=1) for f in FORMATS}
    cases |= {f"normal {f.name}": normal(f, 3, 500, seed=2) for f in FORMATS}
    cases |= {
        f"subnormals up to 2**{top}": near_the_subnormals(top, 200, seed=-top)[None, :]
        for top in range(-1070, -960, 5)
    }
    cases |= {
        "float32 cancels, 2**-149 is left": cancelling(
            finite_patterns(FP32, 1, 400, seed=3)[0], FP32_TINY, seed=4
        ),
        "float64 cancels, 2**-1074 is left": cancelling(
            finite_patterns(FP64, 1, 400, seed=5)[0], FP64_TINY, seed=6
        ),
        "2**127 + 2**-149 - 2**127": one_row(2.0**127, FP32_TINY, -(2.0**127)),
        "ladder of float32": np.ldexp(1.0, np.arange(-149, 128))[None, :],
        "ladder up and down": np.ldexp(
            np.tile([1.0, -1.0], 253)[None, :], np.repeat(np.arange(-126, 127), 2)[::-1][None, :]
        )
        * np.linspace(1.0, 2.0, 506),
        "ladder of 2**126 and 2**-126": np.tile([2.0**126, 2.0**-126, -(2.0**-126)], (1, 50)),
        "ladder of float64": np.ldexp(1.0, np.arange(-1074, 1024))[None, :],
        "the largest float32": np.full((2, 300), FP32.largest),
        "the largest float64, the sum overflows": np.full((1, 300), FP64.largest),
        "the largest float64 beside the smallest": one_row(FP64.largest, FP64_TINY, 1.0, -0.5, 0.7),
        "the largest float64 cancels": one_row(FP64.largest, 0.1, -FP64.largest, FP64_TINY),
        "signed zeros": one_row(-0.0, 0.0, -0.0),
        "minus zero": one_row(-0.0),
        "zeros beside a subnormal": one_row(0.0, -0.0, FP64_TINY, -0.0),
        "a constant": np.full((1, 4000), 0.1),
        "negative values beside zero": one_row(-3.0, 0.0, -(2.0**-60), -1e300),
        "one element": one_row(FP32_TINY),
        "no elements": np.zeros((3, 0)),
        "no rows": np.zeros((0, 5)),
        "many rows": finite_patterns(FP32, 3000, 45, seed=7),
        "very many rows": normal(FP16, 40_000, 2, seed=8),
        "rows of unlike size": np.array(
            [[1e300, 1.0, 1e-300], [FP64_TINY] * 3, [0.0] * 3, [-0.1, 0.1, FP32_TINY]]
        ),
    }
    # A chunk is 2**16 columns: the longest run whose parts are added in one go.
    cases |= {f"{n} values of one sign": same_sign(n) for n in (2**16 - 1, 2**16, 2**16 + 1)}
    cases["seventeen chunks"] = same_sign(2**20 + 3, rows=1)
    return cases


@cache
def dots():
    """name -> two matrices whose products are summed."""
    square = {f"squares of {f.name} patterns": finite_patterns(f, 3, 300, seed=11) for f in FORMATS}
    square |= {f"squares of normal {f.name}": normal(f, 3, 300, seed=12) for f in FORMATS}
    square |= {
        "squares of the largest float32": np.full((1, 50), FP32.largest),
        "squares of the smallest float32": np.full((1, 50), FP32_TINY),
        "squares of the largest and the smallest float64": one_row(FP64.largest, FP64_TINY),
        "squares of 2**-481 and neighbours": 2.0**-481 * (1.0 + normal(FP64, 1, 50, 13) * 2.0**-9),
        "squares of many rows": normal(FP32, 3000, 30, seed=14),
        "squares of signed zeros": one_row(-0.0, 0.0),
        "squares of nothing": np.zeros((2, 0)),
    }
    cases = {name: (values, values) for name, values in square.items()}
    tiny, big = 2.0**-700 * normal(FP64, 2, 60, 15), 2.0**700 * normal(FP64, 2, 60, 16)
    cases |= {
        "float64 times float64": (normal(FP64, 3, 300, 17), normal(FP64, 3, 300, 18)),
        "float32 times float64": (normal(FP32, 3, 300, 19), normal(FP64, 3, 300, 20)),
        "products that underflow": (tiny, normal(FP64, 2, 60, 21) * 2.0**-400),
        "products that overflow": (big, normal(FP64, 2, 60, 22) * 2.0**400),
        "2**-700 times 2**700": (tiny, big),
        "an orthogonal pair": (one_row(1 + 2.0**-52, 1.0), one_row(1.0, -(1 + 2.0**-52))),
        "products cancel but for their last bits": (
            one_row(1 + 2.0**-30, 1 + 2.0**-29),
            one_row(1 + 2.0**-30, -1.0),
        ),
    }
    return cases


def true_sum(terms):
    """Sum of (numerator, denominator) pairs as a Fraction, grouped by denominator for speed."""
    by_denominator: dict[int, int] = {}
    for numerator, denominator in terms:
        by_denominator[denominator] = by_denominator.get(denominator, 0) + numerator
    return sum((Fraction(n, d) for d, n in by_denominator.items()), Fraction(0))


def true_dot(a, b):
    return sum((Fraction(x) * Fraction(y) for x, y in zip(a, b, strict=True)), Fraction(0))


@cache
def true_sums():
    return {
        name: [true_sum(v.as_integer_ratio() for v in row) for row in matrix.tolist()]
        for name, matrix in sums().items()
    }


@cache
def true_dots():
    return {
        name: [true_dot(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        for name, (a, b) in dots().items()
    }


@pytest.mark.parametrize("name", sums())
def test_sum_is_exact(name):
    matrix = sums()[name]
    before = matrix.copy()
    got = exact_sum(matrix)
    wrong = [i for i, (g, t) in enumerate(zip(got, true_sums()[name], strict=True)) if g != t]
    assert not wrong, (
        f"{name}: {len(wrong)} of {len(got)} rows differ from rational arithmetic, row {wrong[0]} "
        f"by {float(got[wrong[0]] - true_sums()[name][wrong[0]])!r}"
    )
    assert (matrix.view(np.uint64) == before.view(np.uint64)).all(), f"{name}: the input changed"


@pytest.mark.parametrize("name", dots())
def test_dot_is_exact(name):
    a, b = dots()[name]
    got = exact_dot(a, b)
    wrong = [i for i, (g, t) in enumerate(zip(got, true_dots()[name], strict=True)) if g != t]
    assert not wrong, (
        f"{name}: {len(wrong)} of {len(got)} rows differ from rational arithmetic, row {wrong[0]}: "
        f"{got[wrong[0]]} for {true_dots()[name][wrong[0]]}"
    )
    if a is b:
        assert exact_sum_of_squares(a) == got, f"{name}: a sum of squares is the dot with itself"


@pytest.mark.parametrize("name", [n for n, m in sums().items() if 0 < m.size < 2**16])
def test_order_does_not_matter(name):
    matrix = sums()[name]
    rng = np.random.default_rng(31)
    expected = exact_sum(matrix)
    for what, other in (
        ("reversed", matrix[:, ::-1]),
        ("shuffled", rng.permuted(matrix, axis=1)),
        ("column-major", np.asfortranarray(matrix)),
        ("sorted", np.sort(matrix, axis=1)),
    ):
        assert exact_sum(other) == expected, f"{name}, {what}: the exact sum depends on the order"
    order = rng.permutation(matrix.shape[0])
    assert exact_sum(matrix[order]) == [expected[i] for i in order], (
        f"{name}: a row's sum depends on the rows beside it"
    )


def test_splitting_a_row_does_not_matter():
    row = finite_patterns(FP64, 1, 1024, seed=32)
    whole = exact_sum(row)[0]
    for parts in (2, 8, 1024):
        split = exact_sum(row.reshape(parts, -1))
        assert sum(split, Fraction(0)) == whole, f"{parts} parts do not add up to the whole row"


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
def test_one_ulp_in_one_element_changes_the_sum(fmt):
    matrix = finite_patterns(fmt, 1, 3000, seed=33)
    matrix = np.where(np.abs(matrix) == fmt.largest, 1.0, matrix)  # one ulp more is infinite
    total, squares = exact_sum(matrix)[0], exact_sum_of_squares(matrix)[0]
    for index in (0, 1, 1499, 2998, 2999):
        # Adding 1 to the bits moves a finite value by one ulp, away from zero.
        bits = encode(matrix[0, index : index + 1], fmt) + fmt.bits_dtype.type(1)
        changed = matrix.copy()
        changed[0, index] = decode(bits, fmt)[0]
        old, new = Fraction(matrix[0, index]), Fraction(changed[0, index])
        assert exact_sum(changed)[0] - total == new - old != 0, (
            f"{fmt.name}: the sum does not follow one ulp in element {index}"
        )
        assert exact_sum_of_squares(changed)[0] - squares == new**2 - old**2 != 0, (
            f"{fmt.name}: the sum of squares does not follow one ulp in element {index}"
        )


def test_a_vector_is_one_row():
    vector = normal(FP32, 1, 100, seed=34)[0]
    assert exact_sum(vector) == exact_sum(vector[None, :]), "sum of a vector"
    assert exact_dot(vector, vector) == exact_sum_of_squares(vector), "dot of a vector"
    assert exact_sum(np.zeros(0)) == [0], "the sum of an empty vector is one zero"
    assert exact_sum_of_squares(np.zeros(0)) == [0], "so is its sum of squares"


def test_narrow_arrays_are_taken_as_they_are():
    values = normal(FP32, 2, 100, seed=35)
    assert exact_sum(values.astype(np.float32)) == exact_sum(values), "float32 arrays"
    assert exact_sum(np.arange(10)) == [45], "integer arrays"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 7, 99])
def test_a_value_that_is_not_finite_is_refused(bad, at):
    values = np.ones((3, 100))
    values[1, at] = bad
    good = np.ones((3, 100))
    for function, arguments in (
        (exact_sum, [values]),
        (exact_sum_of_squares, [values]),
        (exact_dot, [values, good]),
        (exact_dot, [good, values]),
    ):
        with pytest.raises(ValueError, match="needs finite values, got NaN or infinity"):
            function(*arguments)


def test_shapes_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match=r"one shape.*\(1, 3\).*\(1, 4\)"):
        exact_dot(np.ones(3), np.ones(4))
    with pytest.raises(ValueError, match=r"vector or a matrix.*\(1, 2, 3\)"):
        exact_sum(np.ones((1, 2, 3)))


# The module as it is, before anything is planted.
REAL = dict(vars(exact))


def dropping(blocks):
    """`_divide` with some blocks left out."""
    divide = REAL["_divide"]
    return lambda rows, n, chunk: blocks(divide(rows, n, chunk))


def to_the_first_row(self, block, parts, add_all=REAL["_Totals"].add_all):
    add_all(self, dataclasses.replace(block, first=0), parts)


def forgetful_shift(self, unit):
    if self.unit is None or unit < self.unit:
        self.unit = unit
    return unit - self.unit


def without_small(scratch, y, e, scaled=0, extract=REAL["_extract"]):
    # Values from 2**1000 on are divided by 2**200; those beside them come with e = 0.
    return extract(scratch, y, e, scaled) if e != 0 else iter(())


def largest_with_sign(largest, smallest):
    return exact.math.frexp(largest)[1] if largest > 0.0 else None


def lenient(largest, smallest, exponent=REAL["_exponent"]):
    return exponent(largest, smallest) if largest - smallest < np.inf else 0


# Planted errors: names of exact.py, and what they are replaced by.
PLANTED = {
    "the subnormal threshold is too high": {"_SMALLEST_NORMAL": -970},
    "L is one bit too small": {"_L": REAL["_L"] - 1},
    "L is much too small": {"_L": 2},
    "a group is twice as long as L allows": {"_GROUP": 2 * REAL["_GROUP"]},
    "the remainder is dropped after the first pass": {"_same": lambda y, q: True},
    "a look at the first elements ends the loop": {
        "_same": lambda y, q: bool((y[:1, :256] == q[:1, :256]).all())
    },
    "the low word of TwoProduct is lost": {"two_product": lambda a, b: (a * b, 0.0 * a)},
    "the low word has the wrong sign": {
        "two_product": lambda a, b: (a * b, -double_double.two_product(a, b)[1])
    },
    "big values are not scaled": {"_BIG_EXPONENT": 1100},
    "small values are scaled with the big ones": {"_BIG": 0.0},
    "small values beside big ones are dropped": {"_extract": without_small},
    "the largest value is taken with its sign": {"_exponent": largest_with_sign},
    "a block of rows is added to the wrong rows": {
        "_Totals": type("Wrong", (REAL["_Totals"],), {"add_all": to_the_first_row})
    },
    "only the first chunk of a row counts": {
        "_divide": dropping(lambda blocks: [b for b in blocks if b.where[1].start == 0])
    },
    "the last chunk of a row is left out": {
        "_divide": dropping(lambda blocks: blocks[: max(1, len(blocks) - 1)])
    },
    "the last element of a chunk is left out": {
        "_group_sums": lambda arrays, q, sums=REAL["_group_sums"]: sums(arrays, q[:, : 2**16 - 1])
    },
    "the unit is lowered without the sums so far": {
        "_Totals": type("Wrong", (REAL["_Totals"],), {"_shift": forgetful_shift})
    },
    "products of float64 are taken for exact": {"_is_narrow": lambda y: True},
    "TwoProduct is trusted near the ends of the range": {
        "_two_product_is_exact": lambda a, b: (a != 0.0) & (b != 0.0)
    },
    "bands are too wide": {"_BAND": 1 << 12},
    "NaN and infinity are let in": {"_exponent": lenient},
}


def noticed():
    """Name of the first case of the battery on which the module is wrong, None if it never is."""
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        for function, cases, truth in (
            (exact.exact_dot, dots(), true_dots()),
            (exact.exact_sum, sums(), true_sums()),
        ):
            for name, case in cases.items():
                arguments = case if isinstance(case, tuple) else (case,)
                try:
                    got = function(*arguments)
                except (ValueError, OverflowError):  # of infinities on the way
                    return name
                if got != truth[name]:
                    return name
        try:
            exact.exact_sum(one_row(1.0, np.nan))
        except ValueError as error:
            return None if "finite" in str(error) else "NaN"
        return "NaN"


def test_the_battery_passes_the_module_as_it_is():
    assert noticed() is None, "the battery accuses the module, so what it says below means nothing"


@pytest.mark.parametrize("planted", PLANTED)
def test_the_battery_notices(planted, monkeypatch):
    true_sums(), true_dots()
    for name, replacement in PLANTED[planted].items():
        monkeypatch.setattr(exact, name, replacement)
    assert noticed() is not None, (
        f"planted error not noticed: {planted}. The tests of exact sums would let it through."
    )
