# SPDX-License-Identifier: Apache-2.0
"""Data families and the random numbers under them: the same bits everywhere, and the right law.

The seeds are fixed, so a test that passes once passes always. Where a law is tested, the limit is
six standard deviations of the sampling error, which one honest seed in 500 million exceeds.
"""

from __future__ import annotations

import hashlib
import math

import mpmath
import numpy as np
import pytest

from assay.oracles import generators, portable_random
from assay.oracles.formats import BF16, FP16, FP32, FP64, encode, round_nearest
from assay.oracles.generators import (
    FAMILIES,
    POOL,
    POOL_ABOVE,
    STRUCTURED,
    TOGETHER,
    generate,
    pool_of,
)
from assay.oracles.portable_random import integers, normal, raw_bits, uniform

ALL = (FP64, FP32, FP16, BF16)
SIGMAS = 6.0
COUNT = 200_000


def digest(values, fmt):
    bits = np.ascontiguousarray(encode(values, fmt))
    return hashlib.sha256(bits.astype(bits.dtype.newbyteorder("<")).tobytes()).hexdigest()


# SHA-256 of the stored bits, little-endian: (family, rows, n, seed, format).
BITS = {
    ("cancelling", 3, 101, 7, FP32): (
        "ab36ccfbd5a472ff87771cd33dbcfef4e9f4a8a8a8a16d0bd31e85b79c0042fe"
    ),
    ("cancelling", 1, 20000, 7, FP16): (
        "545c02320c1a624d79de2e2bb9f94cec77afef75e585ff59980a91406d145e32"
    ),
    ("absorbing", 3, 100, 7, FP32): (
        "5dfe88f4b11e995d5fc1389ec3a68728aabef8dd799de15a078e2f79c3533578"
    ),
    ("absorbing", 3, 100, 6, FP16): (
        "2ea461582879a4ea2fae7b6b98679f347cd5868b2114b814f63f5f0fda63da12"
    ),
    ("ladder", 2, 300, 7, FP32): (
        "fe877a45f5d9f3c0abc9cd5faa75d93c2db28e2e2d7224100d054bc9071a6860"
    ),
    ("ladder", 1, 100, 7, FP16): (
        "7d9c2dc22e4092f7d7a8ebc8062aa522a61c04c6f9d07308cb2014a0d3f19ffc"
    ),
    ("offset", 3, 100, 7, FP32): (
        "39fd8c26d02c9cf990a1f50532c8c2d29f30322475c727d5c0e3ed08d85be85b"
    ),
    ("ties", 1, 20000, 7, BF16): (
        "6b246f0d247f86d577cdc501dc0a93a14b353424ecc55969ba1bebbadb0cd8ec"
    ),
    ("sparse", 3, 100, 7, FP32): (
        "8f82ec4e96a4ebf2cbab24c006701540c9b73bb4d0015c80c4e2045747e52c7d"
    ),
    ("sparse", 3, 100, 7, FP16): (
        "bb26ff8683a1edfc70b6f53d7c5ff78aa20f0ee5632142117f8b747a786ae324"
    ),
    ("near_zero_logsumexp", 3, 100, 7, FP32): (
        "db40e72925cbf0646a56ac66326a01585cab19be1e980bb59b06b5b78c64f2a6"
    ),
    ("near_zero_logsumexp", 1, 20000, 7, BF16): (
        "107f22b55806d45c1b6a13320cd4807e2c9bdd62fbc2f8a5ac7584af965abb26"
    ),
    ("normal", 3, 100, 7, FP32): (
        "ec4b9603a33edc49ace90f20a7f799223c2144a18062f8eaf39dc221f19505fa"
    ),
    ("normal", 3, 100, 7, FP16): (
        "0e85274c8eea5db6b0b371304907cf614aff71d5454eb4cbad12582d6105ad6f"
    ),
    ("normal", 1, 100, 2**64 - 1, BF16): (
        "f464c7c4d640909e78268d304c8c40208ca4cf4801e7a3b78acf955ba3afedcc"
    ),
    ("normal", 1, 20000, 7, FP32): (
        "f0f98de83b48095e0b17e6d7b8d89ec3d6457e2234046b0b429dd64f3081a1cc"
    ),
    ("uniform", 3, 100, 7, FP32): (
        "eecfe917cb50f4f2ab28ee77c67c355335fb6c3614a7d0312c8b912e26da9005"
    ),
    ("wide", 3, 100, 7, FP32): ("38e13ad006e8f8a2b38a5eaadeaf82fc2564c5923807df09c9c3d08a2b77bae8"),
    ("wide", 3, 100, 7, FP16): ("35d8013848a158c76fdf18c05ab84bbd4abf5043c4832dc9c25d62c303e4d262"),
    ("masked", 3, 100, 7, BF16): (
        "9e2c9ecc505a106755806d740b0cf252e638c7e2e76d646e75b2fc18bb3f51c6"
    ),
    ("outliers", 3, 100, 7, FP32): (
        "8841d9d0389d0fc2240c111adfc403a712a68f5e7c9c9f2b068646a097025a56"
    ),
    ("integers", 3, 100, 7, FP16): (
        "aacbf6bfdddb6115bd5ede4e94470307cbad35de5a28a2ea666ffac9b065ebcd"
    ),
    ("wide_logits", 1, 20000, 7, FP32): (
        "1547af720bdbf3874d81e08d5b9991f9d6cfb402d21f1bcc7e538e74eadef661"
    ),
    ("huge", 3, 100, 7, FP16): ("21ffe7ce5c4e263728e3cf6252947af3268ad41cd4a2a362e619fe27623e6ac5"),
    ("tiny", 3, 100, 7, FP32): ("829bd166d97a5e476bf528bc74f934dcf342745ec920b8351c9cf6bfed3a8b72"),
    ("constant", 1, 10, 7, FP32): (
        "005fda3e97749566e580d7a4a88954272f2a71554ae0099f7f7fa6b9f2140abc"
    ),
}


@pytest.mark.parametrize(
    "recipe", BITS, ids=lambda r: f"{r[0]}-{r[1]}x{r[2]}-seed{r[3]}-{r[4].name}"
)
def test_a_recipe_gives_the_same_bits_everywhere(recipe):
    family, rows, n, seed, fmt = recipe
    assert digest(generate(family, rows, n, seed, fmt), fmt) == BITS[recipe], (
        "recipes in witness files rebuild their input from these bits: if they have to change, "
        "every witness and every curve that names a seed changes its meaning"
    )


def test_the_raw_bits_are_those_of_philox():
    got = hashlib.sha256(raw_bits(12345, 6, 1000).astype("<u8").tobytes()).hexdigest()
    assert got == RAW_BITS, "numpy promises that the bits of its Philox never change"


RAW_BITS = "32d09d01ed30ede0dbaa4e52cd0b76f8597ed8d07592da81755c17e994e031ae"


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_seeds_give_equal_bits_and_others_do_not(family):
    first = generate(family, 2, 300, 3, FP32)
    state = np.random.get_state()  # noqa: NPY002 - the global state, which must not matter
    try:
        np.random.seed(0)  # noqa: NPY002
        again = generate(family, 2, 300, 3, FP32)
    finally:
        np.random.set_state(state)  # noqa: NPY002
    assert (encode(first, FP32) == encode(again, FP32)).all(), f"{family}: one seed, two inputs"
    other = generate(family, 2, 300, 4, FP32)
    if family == "ones":
        assert (first == 1.0).all() and (other == 1.0).all(), "ones are ones for every seed"
    else:
        assert (first != other).any(), f"{family}: seeds 3 and 4 give the same input"


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - set(TOGETHER)))
def test_the_shape_only_folds_the_values(family):
    line = generate(family, 1, 600, 3, FP32)
    for rows, n in ((2, 300), (600, 1), (20, 30)):
        assert generate(family, rows, n, 3, FP32).shape == (rows, n), f"{family}: shape"
        assert (generate(family, rows, n, 3, FP32).ravel() == line.ravel()).all(), (
            f"{family}: {rows} rows of {n} are other values than one row of 600"
        )


@pytest.mark.parametrize("family", TOGETHER)
def test_rows_whose_elements_go_together_are_made_one_by_one(family):
    values = generate(family, 4, 300, 3, FP32)
    function, _ = FAMILIES[family]
    assert (values[0] == round_nearest(function(3, 300, FP32), FP32)).all(), f"{family}: first row"
    assert (values[:2] == generate(family, 2, 300, 3, FP32)).all(), f"{family}: more rows, others"
    for i in range(1, 4):
        assert (values[i] != values[i - 1]).any(), f"{family}: rows {i - 1} and {i} are the same"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("rows", "n"), [(0, 5), (3, 0), (0, 0), (1, 1)])
def test_small_and_empty_shapes(family, rows, n):
    assert generate(family, rows, n, 1, FP16).shape == (rows, n), f"{family}: {rows} x {n}"


@pytest.mark.parametrize("fmt", ALL, ids=lambda f: f.name)
@pytest.mark.parametrize("family", FAMILIES)
def test_values_belong_to_the_format_and_are_finite_where_meant(family, fmt):
    for seed in range(12):
        for n in (400, POOL_ABOVE + 400):
            values = generate(family, 1, n, seed, fmt)
            assert not np.isnan(values).any(), f"{family}, {fmt.name}, seed {seed}: NaN"
            assert (round_nearest(values, fmt) == values).all(), (
                f"{family}, {fmt.name}, seed {seed}: a value that the format does not hold"
            )
            if family == "masked":
                assert not np.isposinf(values).any(), "masked rows hold -inf, never +inf"
            else:
                assert np.isfinite(values).all(), (
                    f"{family}, {fmt.name}, seed {seed}: an infinity that is not meant"
                )


@pytest.mark.parametrize("family", FAMILIES)
def test_short_inputs_are_drawn_and_long_ones_come_from_a_pool(family):
    function, meaning = FAMILIES[family]
    assert meaning, f"{family} says what it is"
    at = generate(family, 1, POOL_ABOVE, 5, FP32).ravel()
    drawn = round_nearest(function(5, POOL_ABOVE, FP32), FP32)
    assert (at == drawn).all(), f"{family}: {POOL_ABOVE} values are drawn one by one"
    above = generate(family, 1, POOL_ABOVE + 1, 5, FP32).ravel()
    if family in STRUCTURED:
        whole = round_nearest(function(5, POOL_ABOVE + 1, FP32), FP32)
        assert (above == whole).all(), f"{family}: what belongs together is never drawn from a pool"
        return
    assert np.isin(above, pool_of(family, 5, FP32)).all(), f"{family}: not one of its {POOL} values"
    if family == "normal":
        # Of POOL values each is missed with probability (1 - 1/POOL)**count, e**-2 here. A share
        # of POOL yes-or-no events has a standard deviation of at most 1 / sqrt(4 POOL).
        share = np.unique(above).size / POOL
        expected = 1.0 - math.exp(-above.size / POOL)
        assert abs(share - expected) <= SIGMAS / math.sqrt(4.0 * POOL), (
            f"the pool's values are not used evenly: {share} of them seen, {expected} expected"
        )


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"cancelling"}))
def test_few_values_are_met_at_any_length(family):
    """mpmath of record evaluates each value once: there must not be more than it can take."""
    distinct = np.unique(generate(family, 1, 2**17, 5, FP32)).size
    assert distinct <= POOL, f"{family}: {distinct} values in a row of 2**17"


def test_an_unknown_family_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'gauss'.*expected one of normal, uniform"):
        generate("gauss", 1, 1, 0, FP32)


# --- laws -----------------------------------------------------------------------------------------


def check_moments(what, values, mean, variance, fourth):
    """Mean and variance within six standard deviations of their sampling error.

    fourth: the law's fourth central moment, so that (x - mean)**2 has variance
    fourth - variance**2.
    """
    n = values.size
    off = abs(float(values.mean()) - mean)
    limit = SIGMAS * math.sqrt(variance / n)
    assert off <= limit, f"{what}: the mean of {n} values is {off} off, six sigma are {limit}"
    off = abs(float(((values - mean) ** 2).mean()) - variance)
    limit = SIGMAS * math.sqrt((fourth - variance**2) / n)
    assert off <= limit, f"{what}: the variance of {n} values is {off} off, six sigma are {limit}"


def check_distribution(what, values, cumulative):
    """The Dvoretzky-Kiefer-Wolfowitz inequality: P(sup |F_n - F| > e) <= 2 exp(-2 n e**2)."""
    n = values.size
    probability = math.erfc(SIGMAS / math.sqrt(2.0))  # of six sigma, for the same strictness
    limit = math.sqrt(math.log(2.0 / probability) / (2.0 * n))
    expected = np.array([cumulative(v) for v in np.sort(values).tolist()])
    rank = np.arange(n)
    off = max((expected - rank / n).max(), ((rank + 1) / n - expected).max())
    assert off <= limit, f"{what}: the distribution is {off} off somewhere, the limit is {limit}"


def check_share(what, hits, probability):
    n = hits.size
    off = abs(float(hits.mean()) - probability)
    limit = SIGMAS * math.sqrt(probability * (1.0 - probability) / n)
    assert off <= limit, f"{what}: the share is {off} off {probability}, six sigma are {limit}"


def standard_normal(x):
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


@pytest.mark.parametrize("seed", [0, 1, 2**63 + 11])
def test_normal_values_follow_their_law(seed):
    values = normal(seed, 1, COUNT)
    check_moments(f"normal, seed {seed}", values, 0.0, 1.0, 3.0)
    check_distribution(f"normal, seed {seed}", values[:50_000], standard_normal)
    # 53 bits of the uniform numbers under it: no value beyond sqrt(2 * 53 ln 2).
    assert np.abs(values).max() <= math.sqrt(2.0 * 53.0 * math.log(2.0)), "farther than it can be"
    check_share("normal beyond two sigma", np.abs(values) > 2.0, math.erfc(math.sqrt(2.0)))


@pytest.mark.parametrize("seed", [0, 1, 2**63 + 11])
def test_uniform_values_follow_their_law(seed):
    values = uniform(seed, 1, COUNT)
    assert ((values > 0.0) & (values < 1.0)).all(), "0 and 1 do not occur"
    scaled = values * 2.0**53
    assert (scaled % 2.0 == 1.0).all(), "odd multiples of 2**-53"
    check_moments(f"uniform, seed {seed}", values, 0.5, 1.0 / 12.0, 1.0 / 80.0)
    check_distribution(f"uniform, seed {seed}", values[:50_000], lambda v: v)


@pytest.mark.parametrize("below", [1, 2, 17, 4096, 2**32])
def test_integers_follow_their_law(below):
    values = integers(1, 3, COUNT, below)
    assert values.min() >= 0 and values.max() < below, f"integers below {below} stay there"
    variance = (below**2 - 1) / 12.0
    # Fourth central moment of the uniform law on `below` integers.
    fourth = (below**2 - 1) * (3 * below**2 - 7) / 240.0
    check_moments(
        f"integers below {below}", values.astype(float), (below - 1) / 2, variance, fourth
    )
    if below <= 17:
        for value in range(below):
            check_share(f"{value} below {below}", values == value, 1.0 / below)


def test_streams_and_seeds_are_unrelated():
    first = normal(1, 1, COUNT)
    for what, other in (("stream", normal(1, 2, COUNT)), ("seed", normal(2, 1, COUNT))):
        # The product of independent standard normal numbers has mean 0 and variance 1.
        off = abs(float((first * other).mean()))
        assert off <= SIGMAS / math.sqrt(COUNT), f"another {what} is correlated with the first"
    # The product with the next value likewise.
    off = abs(float((first[:-1] * first[1:]).mean()))
    assert off <= SIGMAS / math.sqrt(COUNT - 1), "successive values are correlated"


def test_families_are_what_they_say():
    count = 100_000
    made = {name: function(3, count, FP32) for name, (function, _) in FAMILIES.items()}
    check_moments("normal", made["normal"], 0.0, 1.0, 3.0)
    check_moments("uniform", made["uniform"], 0.5, 1.0 / 12.0, 1.0 / 80.0)
    check_moments("wide_logits", made["wide_logits"], 0.0, 30.0**2, 3.0 * 30.0**4)
    check_moments("negative", made["negative"], -100.0, 1.0, 3.0)
    check_share("masked", np.isneginf(made["masked"]), 1.0 / 4.0)
    check_moments("masked", made["masked"][np.isfinite(made["masked"])], 0.0, 1.0, 3.0)
    ratio = made["outliers"] / made["normal"]
    assert np.isin(np.rint(ratio), [1.0, 100.0]).all(), "outliers are a hundred times larger"
    check_share("outliers", np.rint(ratio) == 100.0, 1.0 / 64.0)
    assert np.unique(made["integers"]).tolist() == list(range(-8, 9)), "integers from -8 to 8"
    check_share("wide is positive", made["wide"] > 0.0, 0.5)
    _, e = np.frexp(made["wide"])
    assert np.unique(e - 1).tolist() == list(range(-20, 21)), "wide spans 2**-20 to 2**20"
    assert np.unique(made["constant"]).size == 1, "constant is one value"
    assert (made["ones"] == 1.0).all(), "ones"
    assert (made["tiny"] * 2.0**70 == made["normal"]).all(), "tiny is normal times 2**-70"
    assert (made["huge"] * 2.0**-62 == made["normal"]).all(), "huge is normal times 2**62"


def test_families_for_float16_fit_its_range():
    count = 50_000
    made = {name: function(3, count, FP16) for name, (function, _) in FAMILIES.items()}
    _, e = np.frexp(made["wide"])
    assert np.unique(e - 1).tolist() == list(range(-8, 9)), "wide spans 2**-8 to 2**8 in float16"
    assert (made["tiny"] * 2.0**20 == made["normal"]).all(), "tiny is normal times 2**-20"
    assert (made["huge"] * 2.0**-13 == made["normal"]).all(), "huge is normal times 2**13"
    squares = generate("tiny", 1, 4000, 3, FP16) ** 2
    assert (squares < FP16.smallest_normal).any(), "squares below float16's normal range"


def test_tiny_and_huge_reach_the_ends_of_the_accumulator():
    for fmt in (FP32, BF16):
        tiny, huge = generate("tiny", 1, 4000, 3, fmt), generate("huge", 1, 4000, 3, fmt)
        assert (tiny**2 < FP32.smallest_normal).all(), f"{fmt.name}: squares are subnormal"
        assert (huge**2).sum() > FP32.largest, f"{fmt.name}: sums of squares overflow"


def test_every_constant_is_met():
    seen = {float(generate("constant", 1, 1, seed, FP64)[0, 0]) for seed in range(10)}
    assert seen == set(generators._CONSTANTS), "seeds walk through the constants"  # noqa: SLF001


# --- the functions under the laws -----------------------------------------------------------------


def test_logarithm_is_good_to_a_few_ulps():
    """A few is four: the division, the series' last step and the two last additions."""
    rng = np.random.default_rng(1)
    x = np.concatenate(
        [
            rng.random(1500),
            2.0 ** -rng.integers(1, 54, 500).astype(float) * (1.0 - rng.random(500) * 2.0**-30),
            [2.0**-53, 0.5, 1.0 - 2.0**-53, 1.0 - 2.0**-30, 0.7071067811865475, 0.7071067811865476],
        ]
    )
    got = portable_random.log(x)
    ctx = mpmath.MPContext()
    ctx.prec = 120
    for value, log in zip(x.tolist(), got.tolist(), strict=True):
        exact = ctx.log(value)
        ulps = abs(ctx.mpf(log) - exact) / math.ulp(float(exact))
        assert ulps <= 4, f"log({value!r}) = {log!r} is off by {float(ulps)} ulps"


def test_cosine_of_a_turn_is_good_to_two_to_the_minus_48():
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.random(2000), [0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0]])
    got = portable_random._cos_turn(x)  # noqa: SLF001
    ctx = mpmath.MPContext()
    ctx.prec = 120
    for value, cosine in zip(x.tolist(), got.tolist(), strict=True):
        off = abs(ctx.mpf(cosine) - ctx.cospi(2 * ctx.mpf(value)))
        assert off <= ctx.ldexp(1, -48), f"cos(2 pi {value!r}) = {cosine!r} is {float(off)} off"
