# SPDX-License-Identifier: Apache-2.0
"""Float formats: bits to values and back, rounding to nearest, and the ulp.

The references are numpy's and ml_dtypes' own conversions and rational arithmetic.
"""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from assay.oracles.formats import (
    BF16,
    FORMATS,
    FP16,
    FP32,
    FP64,
    decode,
    encode,
    exponent,
    format_named,
    hex_with_bits,
    round_nearest,
    ulp,
)

NARROW = (FP16, BF16)
SINGLE_OR_LESS = (FP32, FP16, BF16)
ALL = (FP64, FP32, FP16, BF16)
NATIVE = {"float64": np.float64, "float32": np.float32, "float16": np.float16}
NATIVE["bfloat16"] = ml_dtypes.bfloat16


def by_name(fmt):
    return fmt.name


def every_pattern(fmt):
    return np.arange(1 << fmt.width, dtype=np.uint64).astype(fmt.bits_dtype)


def random_patterns(fmt, count, seed):
    words = np.random.default_rng(seed).integers(0, 2**64, size=count, dtype=np.uint64)
    return (words >> np.uint64(64 - fmt.width)).astype(fmt.bits_dtype)


def edge_patterns(fmt):
    """Zero, one, subnormals, binade borders, the largest value and infinity, of both signs."""
    stored = fmt.precision - 1
    borders = np.arange(0, 2 * (fmt.emax + 1), dtype=np.uint64) << np.uint64(stored)
    around = np.concatenate([borders + np.uint64(1), borders, borders[1:] - np.uint64(1)])
    return np.concatenate([around, around | np.uint64(1 << (fmt.width - 1))]).astype(fmt.bits_dtype)


def patterns(fmt):
    """All patterns of a 16-bit format, many of a wider one."""
    if fmt.width == 16:
        return every_pattern(fmt)
    return np.concatenate([random_patterns(fmt, 100_000, seed=1), edge_patterns(fmt)])


def decode_by_hand(bits, fmt):
    """The definition of a binary format: sign, exponent field, fraction."""
    stored = fmt.precision - 1
    sign = -1 if bits >> (fmt.width - 1) else 1
    field = (bits >> stored) & (2 * fmt.emax + 1)
    fraction = bits & ((1 << stored) - 1)
    if field == 2 * fmt.emax + 1:
        return sign * np.inf if fraction == 0 else np.nan
    if field == 0:
        return sign * Fraction(fraction) * Fraction(2) ** (fmt.emin - stored)
    return sign * Fraction((1 << stored) + fraction) * Fraction(2) ** (field - fmt.emax - stored)


@pytest.mark.parametrize("fmt", ALL, ids=by_name)
def test_decode_is_the_definition_of_the_format(fmt):
    bits = np.concatenate([random_patterns(fmt, 2000, seed=2), edge_patterns(fmt)])
    values = decode(bits, fmt)
    for pattern, value in zip(bits.tolist(), values.tolist(), strict=True):
        expected = decode_by_hand(pattern, fmt)
        if isinstance(expected, Fraction):
            assert np.isfinite(value) and Fraction(value) == expected, (
                f"{fmt.name} pattern {pattern:#x} decodes to {value!r}, by definition {expected}"
            )
        else:
            assert value == expected or (np.isnan(value) and np.isnan(expected)), (
                f"{fmt.name} pattern {pattern:#x} decodes to {value!r}, by definition {expected}"
            )


@pytest.mark.parametrize("fmt", ALL, ids=by_name)
def test_decode_agrees_with_the_native_type(fmt):
    bits = patterns(fmt)
    with np.errstate(invalid="ignore"):
        native = bits.view(NATIVE[fmt.name]).astype(np.float64)
    ours = decode(bits, fmt)
    nan = np.isnan(native)
    assert (np.isnan(ours) == nan).all(), f"{fmt.name}: NaN patterns are not the native type's"
    same = ours.view(np.uint64) == native.view(np.uint64)
    assert (same | nan).all(), (
        f"{fmt.name}: {int((~(same | nan)).sum())} patterns decode to another value or sign than "
        f"the native type's, first {bits[~(same | nan)][:1]}"
    )


@pytest.mark.parametrize("fmt", ALL, ids=by_name)
def test_encode_inverts_decode(fmt):
    bits = patterns(fmt)
    values = decode(bits, fmt)
    back = encode(values, fmt)
    number = ~np.isnan(values)
    wrong = (back != bits) & number
    assert back.dtype == fmt.bits_dtype, f"{fmt.name}: encode returned {back.dtype}"
    assert not wrong.any(), (
        f"{fmt.name}: {int(wrong.sum())} of {bits.size} patterns change on decode and encode, "
        f"first {int(bits[wrong][0]):#x} to {int(back[wrong][0]):#x}"
    )


@pytest.mark.parametrize("fmt", ALL, ids=by_name)
def test_nan_is_encoded_as_a_quiet_nan(fmt):
    bits = patterns(fmt)
    values = decode(bits, fmt)
    back = encode(values[np.isnan(values)], fmt)
    assert back.size, "the patterns hold NaN"
    assert np.isnan(decode(back, fmt)).all(), f"{fmt.name}: a NaN was encoded as a number"
    quiet = (back >> (fmt.precision - 2)) & 1
    assert quiet.all(), (
        f"{fmt.name}: {int((quiet == 0).sum())} NaNs were encoded as signalling NaN, though encode "
        "says that NaN becomes the quiet NaN"
    )


def positive_neighbours(fmt):
    """Adjacent values 0 <= a < b as float64, with the bits of a; b may be 2**(emax + 1)."""
    top = int(encode(np.array([fmt.largest]), fmt)[0])
    if fmt.width == 16:
        bits = np.arange(top + 1, dtype=np.uint64)
    else:
        random = random_patterns(fmt, 50_000, seed=3) & np.uint64((1 << (fmt.width - 1)) - 1)
        bits = np.concatenate([random, edge_patterns(fmt), [0, 1, top - 1, top]]).astype(np.uint64)
        bits = bits[bits <= top]
    low = decode(bits.astype(fmt.bits_dtype), fmt)
    high = decode((bits + np.uint64(1)).astype(fmt.bits_dtype), fmt)
    return bits, low, np.where(np.isinf(high), 2.0 * 2.0**fmt.emax, high)


@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["positive", "negative"])
@pytest.mark.parametrize("fmt", SINGLE_OR_LESS, ids=by_name)
def test_rounding_goes_to_the_nearer_neighbour_and_ties_to_even(fmt, sign):
    bits, low, high = positive_neighbours(fmt)
    # The midpoint has one bit more than the format, and its float64 neighbours are off the tie.
    middle = 0.5 * low + 0.5 * high
    sign_bit = np.uint64(0 if sign > 0 else 1 << (fmt.width - 1))
    for what, value, expected in (
        ("just below the midpoint", np.nextafter(middle, 0.0), bits),
        ("the midpoint, a tie", middle, bits + (bits & np.uint64(1))),
        ("just above the midpoint", np.nextafter(middle, np.inf), bits + np.uint64(1)),
    ):
        got = encode(sign * value, fmt).astype(np.uint64)
        wrong = got != (expected | sign_bit)
        assert not wrong.any(), (
            f"{fmt.name}, {what}: {int(wrong.sum())} of {bits.size} values round to the wrong "
            f"neighbour, first {sign * value[wrong][0]!r}"
        )


@pytest.mark.parametrize("fmt", SINGLE_OR_LESS, ids=by_name)
def test_overflow_starts_half_an_ulp_above_the_largest_value(fmt):
    threshold = fmt.largest + 0.5 * float(ulp(np.array([fmt.largest]), fmt)[0])
    below = np.nextafter(threshold, 0.0)
    got = round_nearest(np.array([below, threshold, -below, -threshold, 1e300, np.inf]), fmt)
    expected = [fmt.largest, np.inf, -fmt.largest, -np.inf, np.inf, np.inf]
    assert got.tolist() == expected, (
        f"{fmt.name}: below and at the overflow threshold {threshold!r} the roundings are "
        f"{got.tolist()}, expected {expected}"
    )


@pytest.mark.parametrize("fmt", SINGLE_OR_LESS, ids=by_name)
def test_rounding_keeps_the_sign_of_what_becomes_zero(fmt):
    tie = 0.5 * fmt.smallest_subnormal
    got = round_nearest(np.array([tie, -tie, 5e-324, -5e-324, 0.0, -0.0]), fmt)
    assert not got.any(), f"{fmt.name}: half the smallest subnormal is a tie, and zero is even"
    assert np.signbit(got).tolist() == [False, True] * 3, f"{fmt.name}: a zero lost its sign"


@pytest.mark.parametrize("fmt", [FP32, FP16], ids=by_name)
def test_rounding_agrees_with_numpy(fmt):
    rng = np.random.default_rng(4)
    exponents = rng.integers(fmt.emin - 30, fmt.emax + 3, 200_000)
    values = np.ldexp(rng.standard_normal(200_000), exponents)
    with np.errstate(over="ignore"):
        native = values.astype(NATIVE[fmt.name])
    same = encode(values, fmt) == native.view(fmt.bits_dtype)
    assert same.all(), (
        f"{fmt.name}: {int((~same).sum())} roundings differ from numpy's, first {values[~same][:1]}"
    )


def test_bfloat16_rounding_agrees_with_ml_dtypes():
    # ml_dtypes rounds float64 by way of float32, so only float32 values are comparable.
    bits = np.concatenate([random_patterns(FP32, 200_000, seed=5), edge_patterns(FP32)])
    values = decode(bits, FP32)
    number = ~np.isnan(values)
    native = bits.view(np.float32)[number].astype(ml_dtypes.bfloat16).view(np.uint16)
    same = encode(values[number], BF16) == native
    assert same.all(), (
        f"{int((~same).sum())} roundings differ from ml_dtypes', first {values[number][~same][:1]}"
    )


def test_rounding_happens_once():
    # By way of float32, 1 + 2**-8 + 2**-40 becomes the tie 1 + 2**-8 and then 1.
    value = np.array([1.0 + 2.0**-8 + 2.0**-40])
    assert round_nearest(value, BF16)[0] == 1.0 + 2.0**-7, (
        "a value just above a bfloat16 tie must round up; rounding by way of float32 loses that"
    )


@pytest.mark.parametrize("fmt", ALL, ids=by_name)
def test_rounding_is_idempotent_and_leaves_its_argument_alone(fmt):
    values = decode(patterns(fmt), fmt)
    before = values.copy()
    rounded = round_nearest(values, fmt)
    assert not np.shares_memory(rounded, values), f"{fmt.name}: the result aliases the argument"
    assert (values.view(np.uint64) == before.view(np.uint64)).all(), "the argument was changed"
    same = (rounded == values) | np.isnan(values)
    assert same.all(), f"{fmt.name}: a value of the format was rounded to another one"


@pytest.mark.parametrize("fmt", ALL, ids=by_name)
def test_ulp_at_and_beside_every_power_of_two(fmt):
    e = np.arange(fmt.emin, fmt.emax + 1)
    power = np.ldexp(1.0, e)
    at = np.ldexp(1.0, e - fmt.precision + 1)
    # Just below 2**e lies the binade of e - 1, except below the smallest normal number.
    below = np.ldexp(1.0, np.maximum(e - 1, fmt.emin) - fmt.precision + 1)
    for sign in (1.0, -1.0):
        assert (ulp(sign * power, fmt) == at).all(), f"{fmt.name}: ulp at a power of two"
        assert (ulp(sign * np.nextafter(power, np.inf), fmt) == at).all(), (
            f"{fmt.name}: ulp just above a power of two"
        )
        assert (ulp(sign * np.nextafter(power, 0.0), fmt) == below).all(), (
            f"{fmt.name}: ulp just below a power of two is that of the lower binade"
        )


@pytest.mark.parametrize("fmt", ALL, ids=by_name)
def test_ulp_has_a_floor_and_a_ceiling(fmt):
    floor = fmt.smallest_subnormal
    low = np.array([0.0, -0.0, floor, fmt.smallest_normal / 2, fmt.smallest_normal])
    assert (ulp(low, fmt) == floor).all(), (
        f"{fmt.name}: from zero through the first normal binade the ulp is the subnormal spacing"
    )
    top = 2.0 ** (fmt.emax - fmt.precision + 1)
    high = [fmt.largest, -fmt.largest]
    if fmt is not FP64:
        high.append(2.0 * 2.0**fmt.emax)
    assert (ulp(np.array(high), fmt) == top).all(), (
        f"{fmt.name}: above the largest value the ulp stays that of the top binade"
    )


@pytest.mark.parametrize("fmt", NARROW, ids=by_name)
def test_ulp_is_the_gap_to_the_next_value(fmt):
    _, low, high = positive_neighbours(fmt)
    assert (ulp(low, fmt) == high - low).all(), (
        f"{fmt.name}: Goldberg's ulp of a value of the format is the gap above it"
    )
    inside = 0.75 * low + 0.25 * high
    assert (ulp(inside, fmt) == high - low).all(), (
        f"{fmt.name}: the ulp of a real number is the gap between the neighbours around it"
    )


def test_exponent_at_powers_of_two_and_zero():
    values = np.array([1.0, np.nextafter(1.0, 0.0), 2.0**-1074, 2.0**1023, -3.0])
    assert exponent(values).tolist() == [0, -1, -1074, 1023, 1], "e with 2**e <= |x| < 2**(e+1)"
    assert exponent(np.array([0.0, -0.0])).max() < FP64.emin - FP64.precision, (
        "zero has an exponent below every other one"
    )


@pytest.mark.parametrize("fmt", ALL, ids=by_name)
def test_parameters_are_the_native_types(fmt):
    info = ml_dtypes.finfo(NATIVE[fmt.name])
    assert fmt.largest == float(info.max), f"{fmt.name}: largest"
    assert fmt.smallest_normal == float(info.smallest_normal), f"{fmt.name}: smallest normal"
    assert fmt.smallest_subnormal == float(info.smallest_subnormal), f"{fmt.name}: subnormal"
    assert 2.0 * fmt.u == float(info.eps), f"{fmt.name}: u is half the gap above 1"
    assert (fmt.emin, fmt.emax + 1) == (int(info.minexp), int(info.maxexp)), f"{fmt.name}: range"


def test_format_by_name():
    for name, fmt in FORMATS.items():
        assert format_named(name) is fmt, f"{name} names its own record"
    with pytest.raises(ValueError, match=r"'float8'.*expected one of.*bfloat16"):
        format_named("float8")


def test_shapes_are_kept():
    grid = np.arange(12.0).reshape(3, 4)
    for fmt in ALL:
        assert encode(grid, fmt).shape == (3, 4), f"{fmt.name}: encode"
        assert decode(encode(grid, fmt), fmt).tolist() == grid.tolist(), f"{fmt.name}: decode"
        assert round_nearest(grid[:, ::2], fmt).tolist() == grid[:, ::2].tolist(), (
            f"{fmt.name}: a strided view rounds like any array"
        )


@pytest.mark.parametrize(
    ("value", "fmt", "text"),
    [
        (0.1875, FP32, "0x1.8p-3 (0x3e400000)"),
        (1.0, FP16, "0x1p+0 (0x3c00)"),
        (-2.0, BF16, "-0x1p+1 (0xc000)"),
        (0.0, FP32, "0x0p+0 (0x00000000)"),
        (float("inf"), FP16, "inf (0x7c00)"),
        (1.0, FP64, "0x1p+0 (0x3ff0000000000000)"),
    ],
)
def test_hex_with_bits(value, fmt, text):
    assert hex_with_bits(value, fmt) == text, f"{value!r} in {fmt.name} with its bits"
