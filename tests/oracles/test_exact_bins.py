# SPDX-License-Identifier: Apache-2.0
"""Three ways to one sum: extraction, exponent bins and rational arithmetic, bit for bit.

And each of the errors planted at the end, in either way, must make two of them differ.
"""

from __future__ import annotations

import tracemalloc
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_st

from assay.oracles import exact, exact_bins
from assay.oracles.arrays import NUMPY, arrays_of
from assay.oracles.exact import (
    exact_dot,
    exact_sum,
    exact_sum_of_magnitudes,
    exact_sum_of_squares,
)
from assay.oracles.exact_bins import sum_by_exponent
from assay.oracles.formats import BF16, FP16, FP32, FP64

TORCH = {FP64: torch.float64, FP32: torch.float32, FP16: torch.float16, BF16: torch.bfloat16}
CHUNK = NUMPY.chunk
GROUP = vars(exact)["_GROUP"]
REAL, REAL_BINS = dict(vars(exact)), dict(vars(exact_bins))


def bits_to_tensor(bits, fmt):
    signed = torch.from_numpy(bits.view(f"i{fmt.width // 8}").copy())
    return signed.view(TORCH[fmt])


def patterns(fmt, rows, n, seed):
    """A tensor of random finite bit patterns: the whole range, subnormals and both zeros."""
    words = np.random.default_rng(seed).integers(0, 2**64, size=(rows, n), dtype=np.uint64)
    x = bits_to_tensor((words >> np.uint64(64 - fmt.width)).astype(fmt.bits_dtype), fmt)
    return torch.where(torch.isfinite(x), x, -torch.zeros_like(x))


def normal(fmt, rows, n, seed):
    values = np.random.default_rng(seed).standard_normal((rows, n))
    return torch.from_numpy(values).to(TORCH[fmt])


def subnormals(fmt, rows, n, seed):
    words = np.random.default_rng(seed).integers(0, 2**63, size=(rows, n), dtype=np.uint64)
    bits = words & np.uint64(2 ** (fmt.precision - 1) - 1)
    sign = (words >> np.uint64(62)) << np.uint64(fmt.width - 1)
    return bits_to_tensor((bits | sign).astype(fmt.bits_dtype), fmt)


def cancelling(fmt, n, seed):
    """Values, their negatives and the smallest value of the format, in random order."""
    x = patterns(fmt, 1, n, seed)
    tiny = torch.full((1, 1), fmt.smallest_subnormal, dtype=TORCH[fmt])
    row = torch.cat([x, -x, tiny], dim=1)
    return row[:, torch.randperm(row.shape[1], generator=torch.Generator().manual_seed(seed))]


def row(fmt, *values):
    return torch.tensor([values], dtype=torch.float64).to(TORCH[fmt])


@cache
def cases():
    """name -> tensor whose rows are summed; at most a few thousand elements each."""
    found = {}
    for fmt in TORCH:
        largest = fmt.largest
        found |= {
            f"{fmt.name} normal": normal(fmt, 3, 700, 1),
            f"{fmt.name} normal, longer than a group": normal(fmt, 2, 2 * GROUP + 1, 2),
            f"{fmt.name} patterns": patterns(fmt, 3, 400, 3),
            f"{fmt.name} subnormals": subnormals(fmt, 3, 700, 4),
            f"{fmt.name} cancels, the smallest is left": cancelling(fmt, 300, 5),
            f"{fmt.name} largest": row(fmt, *[largest] * 300),
            f"{fmt.name} largest beside the smallest": row(
                fmt, largest, fmt.smallest_subnormal, -largest, largest, 0.5
            ),
            f"{fmt.name} signed zeros": row(fmt, -0.0, 0.0, -0.0),
            f"{fmt.name} many rows": normal(fmt, 1500, 3, 6),
        }
    ladder = np.ldexp(1.0, np.arange(-126, 127))
    found |= {
        "float32 ladder": row(FP32, *ladder),
        "float32 ladder up and down": row(FP32, *ladder, *-ladder[::-1], 2.0**-149),
        "float32 2**126 beside 2**-126": row(FP32, *[2.0**126, 2.0**-126, -(2.0**-126)] * 50),
        "float64 ladder": row(FP64, *np.ldexp(1.0, np.arange(-1074, 1024))),
        "float64 near 2**-1000": patterns(FP64, 1, 300, 7).to(torch.float64).clamp(-1, 1)
        * 2.0**-1000,
        "float64 just below 1": row(
            FP64, *1.0 - np.random.default_rng(8).integers(0, 2**20, 5 * GROUP) * 2.0**-53
        ),
        "float64 just below 2**-985": row(
            FP64,
            *(2.0 - np.random.default_rng(9).integers(0, 2**20, 3 * GROUP) * 2.0**-52) * 2.0**-985,
        ),
    }
    return found


def as_numpy(x):
    """The tensor as a numpy array; bfloat16, which numpy does not have, as float32."""
    return (x.float() if x.dtype is torch.bfloat16 else x).numpy()


def rational(values):
    """Row sums of a float64 matrix as Fractions, through integers of one unit."""
    return [
        Fraction(sum(p * (2**1074 // q) for p, q in map(float.as_integer_ratio, line)), 2**1074)
        for line in values.tolist()
    ]


def rational_products(a, b):
    return [
        sum((Fraction(x) * Fraction(y) for x, y in zip(p, q, strict=True)), Fraction(0))
        for p, q in zip(a.tolist(), b.tolist(), strict=True)
    ]


@cache
def truths():
    return {name: rational(x.double()) for name, x in cases().items()}


@pytest.mark.parametrize("name", cases())
def test_three_ways_agree(name):
    x, truth = cases()[name], truths()[name]
    assert exact_sum(as_numpy(x)) == truth, "extraction differs from rational arithmetic"
    assert sum_by_exponent(as_numpy(x)) == truth, "bins differ from rational arithmetic"
    assert exact_sum(x) == truth, "extraction in torch differs from rational arithmetic"
    magnitudes = rational(x.double().abs())
    assert exact_sum_of_magnitudes(as_numpy(x)) == magnitudes, "sum of magnitudes"
    assert exact_sum_of_magnitudes(x) == magnitudes, "sum of magnitudes in torch"


@pytest.mark.parametrize("name", [n for n, x in cases().items() if x.numel() < 3000])
def test_products_in_numpy_and_torch_are_those_of_rational_arithmetic(name):
    x = cases()[name]
    y = x.flip(1)
    wide = x.double() * (1.0 + 2.0**-40)
    squares = rational_products(x.double(), x.double())
    assert exact_sum_of_squares(as_numpy(x)) == squares, "sum of squares"
    assert exact_sum_of_squares(x) == squares, "sum of squares in torch"
    assert exact_dot(x, y) == rational_products(x.double(), y.double()), "dot in torch"
    if bool(torch.isfinite(wide).all()):
        dot = rational_products(x.double(), wide)
        assert exact_dot(x, wide) == dot, "dot of unlike dtypes in torch"
        assert exact_dot(as_numpy(x), wide.numpy()) == dot, "dot of unlike dtypes"


@pytest.mark.parametrize("fmt", TORCH, ids=lambda f: f.name)
@pytest.mark.parametrize("chunk", [7, 256, GROUP + 3])
def test_the_chunk_does_not_matter(fmt, chunk, monkeypatch):
    x = torch.cat([patterns(fmt, 3, 100, 11), normal(fmt, 3, 1400, 12)], dim=1)
    short = x[:, :300].reshape(-1, 4)
    expected = [exact_sum(x), exact_sum_of_squares(x), exact_sum(short)]
    monkeypatch.setattr(NUMPY, "chunk", chunk)
    monkeypatch.setattr(arrays_of(x), "chunk", chunk)
    assert [exact_sum(x), exact_sum_of_squares(x), exact_sum(short)] == expected, "torch"
    x, short = as_numpy(x), as_numpy(short)
    assert [exact_sum(x), exact_sum_of_squares(x), exact_sum(short)] == expected, "numpy"


@pytest.mark.parametrize(
    "n", [1, 2, *(k + d for k in (GROUP, CHUNK, 3 * CHUNK) for d in (-1, 0, 1))]
)
def test_lengths_around_the_edges(n):
    # All of one sign and near a power of two: the largest sums that n values make.
    x = 1.0 - np.random.default_rng(n).integers(0, 2**20, (2, n)) * 2.0**-53
    units = (x * 2.0**53).astype(np.int64)
    truth = [Fraction(int(part.sum()), 2**53) for part in units >> 26]
    truth = [
        t * 2**26 + Fraction(int(part.sum()), 2**53)
        for t, part in zip(truth, units & (2**26 - 1), strict=True)
    ]
    assert exact_sum(x) == truth and sum_by_exponent(x) == truth, f"{n} columns"
    assert exact_sum(torch.from_numpy(x)) == truth, f"{n} columns in torch"


def test_inputs_of_any_strides():
    x = patterns(FP32, 300, 500, 13)
    for view in (x.T, x[::3, 1::2], x.flip(0)):
        expected = rational(view.double())
        assert exact_sum(view) == expected and exact_sum(as_numpy(view)) == expected
        assert sum_by_exponent(as_numpy(view)) == expected
    assert exact_sum(x[0]) == rational(x[:1].double()), "a vector"
    assert exact_sum(x.requires_grad_()) == rational(x.detach().double()), "a leaf of autograd"


def test_the_input_does_not_change():
    for x in (normal(FP64, 3, 700, 14), patterns(FP64, 2, 300, 15)):
        before = x.clone()
        exact_sum(x), exact_sum_of_magnitudes(x), exact_sum_of_squares(x), exact_dot(x, x)
        exact_sum(x.numpy()), exact_sum_of_squares(x.numpy()), sum_by_exponent(x.numpy())
        assert torch.equal(x.view(torch.int64), before.view(torch.int64))


FINITE = st.floats(allow_nan=False, allow_infinity=False, width=64)
FINITE_32 = st.floats(allow_nan=False, allow_infinity=False, width=32)
SHAPES = numpy_st.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12)


@settings(deadline=None, max_examples=150)
@given(
    numpy_st.arrays(np.float64, SHAPES, elements=FINITE)
    | numpy_st.arrays(np.float32, SHAPES, elements=FINITE_32)
)
def test_any_matrix(x):
    truth = rational(x)
    assert exact_sum(x) == truth and sum_by_exponent(x) == truth
    assert exact_sum(torch.from_numpy(x)) == truth
    squares = rational_products(x, x)
    assert exact_sum_of_squares(x) == squares
    assert exact_sum_of_squares(torch.from_numpy(x)) == squares


@settings(deadline=None, max_examples=60)
@given(
    numpy_st.arrays(np.float32, (2, 9), elements=FINITE_32),
    st.integers(0, 1),
    st.integers(0, 8),
)
def test_one_ulp_changes_the_sum(x, i, j):
    y = x.copy()
    y[i, j] = np.nextafter(y[i, j], np.float32(0.0 if abs(y[i, j]) > 1.0 else 2.0))
    change = [Fraction(0), Fraction(0)]
    change[i] = Fraction(float(y[i, j])) - Fraction(float(x[i, j]))
    assert change[i] != 0
    for function in (exact_sum, sum_by_exponent):
        after = [a - b for a, b in zip(function(y), function(x), strict=True)]
        assert after == change, function.__name__


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_in_any_chunk(dtype, bad):
    x = np.ones((1, 2 * CHUNK + 5), dtype)
    x[0, -1] = bad
    good = np.ones_like(x)
    calls = [
        (exact_sum, [x]),
        (exact_sum_of_magnitudes, [x]),
        (exact_sum_of_squares, [x]),
        (exact_dot, [good, x]),
        (exact_dot, [x, good]),
    ]
    for function, arguments in calls:
        for convert in (np.asarray, torch.from_numpy):
            with pytest.raises(ValueError, match="needs finite values, got NaN or infinity"):
                function(*map(convert, arguments))
    with pytest.raises(ValueError, match="needs finite values, got NaN or infinity"):
        sum_by_exponent(x)


def test_other_inputs_are_refused():
    with pytest.raises(TypeError, match="dtype complex128"):
        exact_sum(np.ones(3, complex))
    with pytest.raises(TypeError, match="dtype complex64"):
        exact_sum(torch.ones(3, dtype=torch.complex64))
    with pytest.raises(ValueError, match=r"integers below 2\*\*53"):
        exact_sum(np.array([2**53 + 1]))
    with pytest.raises(TypeError, match="one library and device"):
        exact_dot(np.ones(3), torch.ones(3))
    with pytest.raises(ValueError, match=r"one shape.*\(1, 3\).*\(1, 4\)"):
        exact_dot(torch.ones(3), torch.ones(4))
    for function in (exact_sum, sum_by_exponent):
        with pytest.raises(ValueError, match=r"vector or a matrix.*\(1, 2, 3\)"):
            function(np.ones((1, 2, 3)))
    with pytest.raises(ValueError, match=r"fewer than 2\*\*36 columns"):
        sum_by_exponent(np.broadcast_to(np.float32(1.0), (1, 2**36)))
    assert exact_sum(torch.arange(10)) == [45], "integers"


@pytest.mark.parametrize(
    "function",
    [exact_sum, exact_sum_of_magnitudes, exact_sum_of_squares, sum_by_exponent],
    ids=lambda f: f.__name__,
)
def test_memory_stays_a_fraction_of_the_input(function):
    x = np.random.default_rng(16).standard_normal(1 << 24, dtype=np.float32)
    tracemalloc.start()
    try:
        function(x)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The input itself was allocated before: with it, less than 1.5 times.
    assert peak < x.nbytes / 2, f"{peak / x.nbytes:.2f} times the input on top of it"


def unsplit(sums, unit):
    return np.ldexp(sums, -unit).astype(np.int64).sum(axis=1).tolist()


def all_but_the_last(rows, n, chunk):
    blocks = REAL["_divide"](rows, n, chunk)
    return blocks[:-1] if len(blocks) > 1 else blocks


EXTRACTION = {
    "the remainder is dropped after the first pass": {"_same": lambda y, q: True},
    "the threshold for subnormals is too high": {"_SMALLEST_NORMAL": -970},
    "the constant is one bit too small": {"_L": REAL["_L"] - 1},
    "the last chunk is left out": {"_divide": all_but_the_last},
    "the low word of TwoProduct is dropped": {"two_product": lambda a, b: (a * b, 0.0 * a)},
    "products outside of TwoProduct's range are dropped": {"_in_bands": lambda a, b: iter(())},
}

BINS = {
    "significands are not split": {"_split": lambda s: (0 * s, s), "_HALF_BITS": 0},
    "the low half is dropped": {"_split": lambda s: (0 * s, s >> 26)},
    "subnormals have an exponent of their own": {
        "_decode": lambda part: (
            (np.float64(part).view(np.int64) >> 52) & 2047,
            REAL_BINS["_decode"](part)[1],
        )
    },
    "the fields are divided one bit off": {"_FRACTION_BITS": 53},
    "the last chunk is left out": {
        "_fill": lambda low, high, part: (
            REAL_BINS["_fill"](low, high, part) if part.shape[1] != 1 else None
        )
    },
}


@cache
def cross_checked():
    """Some of the cases above, and one value more than a chunk, all of one sign."""
    long = 1.0 - np.random.default_rng(17).integers(0, 2**20, (1, CHUNK + 1)) * 2.0**-53
    return [long, *(as_numpy(x) for n, x in cases().items() if "patterns" not in n)]


@cache
def squared():
    found = [as_numpy(normal(FP64, 3, 300, 18)), as_numpy(row(FP64, 2.0**-1074, 0.0, 2.0**1023))]
    return [(x, squares_by_halves(x)) for x in found]


def difference():
    """Whether extraction and bins differ anywhere, by sums or by sums of squares of float64."""
    with np.errstate(all="ignore"):
        return any(exact_sum(x) != sum_by_exponent(x) for x in cross_checked()) or any(
            exact_sum_of_squares(x) != squares for x, squares in squared()
        )


def squares_by_halves(x):
    """Sums of squares of h + l by bins: halves of 26 bits make products of 52."""
    significand, exponent = np.frexp(x)
    high = np.rint(significand * 2.0**26) * 2.0**-26
    low = significand - high
    totals = [Fraction(0)] * len(significand)
    for e in np.unique(exponent).tolist():
        chosen = exponent == e
        for factor, product in ((1, high * high), (2, high * low), (1, low * low)):
            for i, part in enumerate(sum_by_exponent(np.where(chosen, product, 0.0))):
                totals[i] += part * factor * Fraction(4) ** e
    return totals


def test_nothing_differs_as_it_is():
    assert not difference(), "the two ways differ, so what is said of planted errors means nothing"


@pytest.mark.parametrize(
    ("module", "errors", "planted"),
    [(exact, EXTRACTION, name) for name in EXTRACTION]
    + [(exact_bins, BINS, name) for name in BINS],
)
def test_each_way_finds_what_is_planted_in_the_other(module, errors, planted, monkeypatch):
    squared()
    for name, replacement in errors[planted].items():
        monkeypatch.setattr(module, name, replacement)
    assert difference(), f"extraction and bins agree although {planted}"


def test_a_chunk_as_long_as_on_a_gpu(monkeypatch):
    # More groups of one sign than int64 could add without halves.
    x = np.full((1, 1 << 23), 1.0 - 2.0**-53)
    x[0, ::2] = 1.0 - 2.0**-45
    truth = [Fraction(1 << 23) - Fraction(1 << 22, 2**53) - Fraction(1 << 22, 2**45)]
    monkeypatch.setattr(NUMPY, "chunk", 1 << 24)
    monkeypatch.setattr(exact, "_SMALL_CHUNK", 1 << 24)
    assert exact_sum(x) == truth == sum_by_exponent(x), "2**13 groups in one block"
    monkeypatch.setattr(exact, "_units", unsplit)
    assert exact_sum(x) != truth, "int64 held 2**13 sums of 2**53"
