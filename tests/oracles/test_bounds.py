# SPDX-License-Identifier: Apache-2.0
"""Error bounds: never exceeded by kernels simulated in float32, and reached closely enough.

The simulations are numpy float32, one rounding an operation, in orders of summation whose depth is
known by construction. Two sets of primitives: correctly rounded ones as the interpreter has them,
and approximate ones that err as far as the PTX documentation lets them, in either direction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from assay.oracles.bounds import ROUND_UP, allowed, gamma
from assay.oracles.depth import numpy_depth
from assay.oracles.enclosure import Enclosure, exactly
from assay.oracles.formats import BF16, FP16, FP32, FP64, encode, round_nearest, ulp
from assay.oracles.generators import generate
from assay.oracles.operation import Claim, operation_named
from assay.oracles.platform import Platform

F32 = np.float32
U = FP32.u
STORED = (FP32, FP16, BF16)
INTERPRETER = Platform("interpreter", "", "", "3.7.1", "", "")
CUDA = Platform("cuda", "", "sm_90", "3.7.1", "", "")
# A bound of which no input reaches this share would let too much pass.
NOT_VACUOUS = 0.25


def by_name(value):
    return getattr(value, "name", None) or str(value)


# --- simulated kernels ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Order:
    """A way of adding float32 rows, with the depth and the atomics that a kernel would claim."""

    name: str
    add: object
    depth: object
    atomics: object = lambda n: 0


def add_sequentially(terms):
    return np.add.accumulate(terms, axis=1, dtype=F32)[:, -1]


def add_as_a_tree(terms):
    width = 1 << max(0, terms.shape[1] - 1).bit_length()
    padded = np.zeros((terms.shape[0], width), dtype=F32)
    padded[:, : terms.shape[1]] = terms
    while padded.shape[1] > 1:
        padded = padded[:, ::2] + padded[:, 1::2]
    return padded[:, 0]


def add_as_numpy(terms):
    return terms.sum(axis=1, dtype=F32)


TILE = 32


def flushed(x):
    return np.where(np.abs(x) < F32(FP32.smallest_normal), F32(0.0), x)


def tiles_then_atomics(terms, flush, seed=1):
    """Tiles of TILE as a tree, then one addition a tile into a zero, in a random order."""
    m, n = terms.shape
    tiles = -(-n // TILE)
    padded = np.zeros((m, tiles * TILE), dtype=F32)
    padded[:, :n] = terms
    partials = add_as_a_tree(padded.reshape(m * tiles, TILE)).reshape(m, tiles)
    total = np.zeros(m, dtype=F32)
    for k in np.random.default_rng(seed).permutation(tiles):
        total = flushed(total + flushed(partials[:, k])) if flush else total + partials[:, k]
    return total


def tree_depth(n):
    return max(0, n - 1).bit_length()


def tile_count(n):
    return -(-n // TILE)


ORDERS = (
    Order("sequential", add_sequentially, lambda n: max(0, n - 1)),
    Order("tree", add_as_a_tree, tree_depth),
    Order("numpy", add_as_numpy, numpy_depth),
)
ATOMIC = Order(
    "tiles, then atomics",
    lambda terms: tiles_then_atomics(terms, flush=False),
    lambda n: tree_depth(TILE) + tile_count(n),
    tile_count,
)
FLUSHING = Order(
    "tiles, then atomics that flush",
    lambda terms: tiles_then_atomics(terms, flush=True),
    ATOMIC.depth,
    tile_count,
)


class Exact:
    """Primitives of the interpreter: numpy's float32."""

    platform = INTERPRETER

    def exp(self, t):
        return np.exp(t)

    def divide(self, a, b):
        return a / b

    def rsqrt(self, v):
        return F32(1.0) / np.sqrt(v)


class Approximate:
    """Primitives of the GPU at their documented worst: off by the whole limit, either way.

    A float32 result is a rounded value, so what is added here is the documented limit less half an
    ulp for that rounding.
    """

    platform = CUDA

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def _off(self, exact, relative):
        sign = self.rng.choice([-1.0, 1.0], exact.shape)
        return (exact * (1.0 + sign * relative)).astype(F32)

    def exp(self, t):
        # ex2.approx, 2 ulp, of a rounded product with log2 e; 2 ulp are 2u to 4u.
        product = (t * F32(math.log2(math.e))).astype(F32)
        exact = np.exp2(product.astype(np.float64))
        step = ulp(exact, FP32)
        sign = self.rng.choice([-1.0, 1.0], exact.shape)
        return np.maximum(exact + sign * 1.5 * step, 0.0).astype(F32)

    def divide(self, a, b):
        # div.full, 2 ulp.
        exact = a.astype(np.float64) / b.astype(np.float64)
        finite = np.isfinite(exact)
        step = ulp(np.where(finite, exact, 0.0), FP32)
        sign = self.rng.choice([-1.0, 1.0], exact.shape)
        return np.where(finite, exact + sign * 1.5 * step, exact).astype(F32)

    def rsqrt(self, v):
        # rsqrt.approx.ftz, 2**-22.9, and a subnormal argument counts as zero.
        v = np.where(v < F32(FP32.smallest_normal), F32(0.0), v)
        return self._off(1.0 / np.sqrt(v.astype(np.float64)), 2.0**-22.9 - U)


def cast(values, fmt, primitives, on_host=False):
    """The last rounding: to nearest, or the interpreter's truncation to bfloat16."""
    if fmt is BF16 and primitives.platform.is_interpreter and not on_host:
        kept = np.ascontiguousarray(values, dtype=F32).view(np.uint32) & np.uint32(0xFFFF0000)
        return kept.view(F32).astype(np.float64)
    return round_nearest(values.astype(np.float64), fmt)


@np.errstate(all="ignore")
def l2_norm(inputs, order, primitives, fmt, policies, params):
    x = inputs["x"].astype(F32)
    return cast(np.sqrt(order.add(x * x))[:, None], fmt, primitives, on_host=True)


@np.errstate(all="ignore")
def softmax(inputs, order, primitives, fmt, policies, params):
    x = inputs["x"].astype(F32)
    p = primitives.exp(x - x.max(axis=1, keepdims=True))
    total = order.add(p)[:, None]
    return cast(primitives.divide(p, np.broadcast_to(total, p.shape)), fmt, primitives)


@np.errstate(all="ignore")
def rms_norm(inputs, order, primitives, fmt, policies, params):
    h = inputs["x"].astype(F32)
    if "residual" in inputs:
        h = h + inputs["residual"].astype(F32)
        if policies["residual"] == "stored":
            h = round_nearest(h.astype(np.float64), fmt).astype(F32)
    total = order.add(h * h)[:, None]
    mean = primitives.divide(total, np.full_like(total, h.shape[1]))
    out = h * primitives.rsqrt(mean + F32(params["eps"]))
    if policies["cast"] == "before_weight":
        out = cast(out, fmt, primitives).astype(F32)
    if "weight" in inputs:
        out = out * inputs["weight"].astype(F32)
    return cast(out, fmt, primitives)


KERNELS = {"l2_norm": l2_norm, "softmax": softmax, "rms_norm": rms_norm}
ON_HOST = {"l2_norm": True, "softmax": False, "rms_norm": False}
NAIVE = {"range": "naive"}


def judged(name, inputs, order, primitives, fmt, policies=None, **params):
    """(error, allowed, before, enclosure) of a simulated kernel; where nothing is claimed, 0."""
    op = operation_named(name)
    known = {p.name for p in op.policies}
    policies = op.check_policies({k: v for k, v in NAIVE.items() if k in known} | (policies or {}))
    params = dict(op.params) | params
    out = KERNELS[name](inputs, order, primitives, fmt, policies, params)
    exact = op.enclose(inputs, params, policies, fmt)
    n = inputs["x"].shape[1]
    arithmetic = primitives.platform.arithmetic(FP32, ON_HOST[name])
    claim = Claim(order.depth(n), order.atomics(n), arithmetic, policies, params)
    before = op.before(inputs, exact, fmt, claim)
    promised = exact.finite & ~np.isnan(before)
    before = np.where(promised, before, 0.0)
    limit = allowed(before, exact, fmt, arithmetic)
    error = np.where(promised, exact.error(out), 0.0)
    # A result beyond the largest value may round to infinity; that is not what is judged here.
    reaches = exact.magnitude() + before >= fmt.largest
    return np.where(reaches & np.isinf(out), 0.0, error), limit, before, exact


def assert_within(what, judgement):
    error, limit, _, exact = judgement
    wrong = error > limit
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        pytest.fail(
            f"{what}: the bound is broken at {at}: error {error[at]!r}, allowed {limit[at]!r}, "
            f"exact {exact.center[at]!r}, in {int(wrong.sum())} places"
        )


def reached(judgement):
    """Largest share of the bound ahead of the last rounding that the error fills."""
    error, _, before, _ = judgement
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.nanmax(np.where(before > 0.0, error / before, 0.0)))


# --- inputs ---------------------------------------------------------------------------------------

LENGTHS = (1, 2, 7, 33, 200, 1500)


def adversarial(n):
    """Rows whose roundings all go one way, when squared and added."""
    half = 2.0**-12  # squares to u: a tie beside 1, which goes to the even 1
    rows = {
        "one, then squares of u": np.r_[1.0, np.full(n - 1, half)],
        "one, then squares just above u": np.r_[1.0, np.full(n - 1, half * (1.0 + 2.0**-10))],
        "squares of u, then one": np.r_[np.full(n - 1, half), 1.0],
        "a constant": np.full(n, 0.1),
        "a constant just above 1": np.full(n, 1.0 + 2.0**-10),
        "a constant whose square rounds up": np.full(n, 1.0 + 3 * 2.0**-12),
        "falling": 2.0 ** -np.arange(n, dtype=float).clip(max=60),
        "rising": 2.0 ** (np.arange(n, dtype=float).clip(max=60) - 60),
        "eight ones, then squares of u": np.r_[np.ones(min(8, n)), np.full(max(0, n - 8), half)],
    }
    return {name: round_nearest(row, FP32)[None, :] for name, row in rows.items()}


def orders_for(name):
    return (*ORDERS, ATOMIC, FLUSHING) if name == "l2_norm" else ORDERS


def primitives_for(order):
    if order is FLUSHING:
        return [Approximate(1)]
    return [Exact(), Approximate(1)]


def choices(name, family, n, fmt, seed):
    """(inputs, policies) worth judging apart."""
    x = {"x": generate(family, 4, n, seed, fmt)}
    yield x, {}
    if name == "rms_norm":
        weight = {"weight": generate("normal", 1, n, seed + 1, fmt)[0]}
        residual = {"residual": generate(family, 4, n, seed + 2, fmt)}
        yield x | weight, {"cast": "before_weight"}
        yield x | weight | residual, {"residual": "exact"}
        yield x | weight | residual, {"residual": "stored", "cast": "before_weight"}


@pytest.mark.parametrize("fmt", STORED, ids=by_name)
@pytest.mark.parametrize(
    ("name", "family"),
    [(name, family) for name in KERNELS for family in operation_named(name).families],
)
def test_no_family_exceeds_the_bound(name, family, fmt):
    for n in LENGTHS:
        for inputs, policies in choices(name, family, n, fmt, seed=n):
            for order in orders_for(name):
                for primitives in primitives_for(order):
                    what = (
                        f"{name} of {family}, n = {n}, {fmt.name}, {policies}, {order.name}, "
                        f"{primitives.platform.device}"
                    )
                    assert_within(what, judged(name, inputs, order, primitives, fmt, policies))


@pytest.mark.parametrize("name", ["l2_norm", "rms_norm"])
@pytest.mark.parametrize("n", [2, 9, 128, 1000, 4096])
def test_no_adversarial_row_exceeds_the_bound(name, n):
    for what, x in adversarial(n).items():
        for order in orders_for(name):
            for primitives in primitives_for(order):
                told = f"{name} of {what}, n = {n}, {order.name}, {primitives.platform.device}"
                assert_within(told, judged(name, {"x": x}, order, primitives, FP32))


@pytest.mark.parametrize("n", [2, 9, 128, 1000, 4096])
def test_no_adversarial_softmax_exceeds_the_bound(n):
    tiny = -24.0 * math.log(2.0)  # exp of it is u
    rows = {
        "the maximum, then terms of u": np.r_[0.0, np.full(n - 1, tiny)],
        "the maximum, then terms just above u": np.r_[0.0, np.full(n - 1, tiny + 2.0**-10)],
        "terms of u, then the maximum": np.r_[np.full(n - 1, tiny), 0.0],
        "a constant": np.full(n, 0.1),
        "down to the subnormals": np.linspace(-104.0, 0.0, n),
        "far from zero": np.linspace(-100.0, 0.0, n) - 1000.0,
        "two values": np.where(np.arange(n) % 2, -0.7, 0.0),
    }
    for what, row in rows.items():
        x = round_nearest(row, FP32)[None, :]
        for order in ORDERS:
            for primitives in primitives_for(order):
                for fmt in STORED:
                    told = f"softmax of {what}, n = {n}, {order.name}, {primitives.platform.device}"
                    assert_within(told, judged("softmax", {"x": x}, order, primitives, fmt))


@pytest.mark.parametrize("eps", [0.0, 1e-6, 1e-5, 2.0**-130])
def test_no_eps_exceeds_the_bound(eps):
    rng = np.random.default_rng(3)
    scales = 2.0 ** np.arange(-70, 64, 7)[:, None]
    x = round_nearest(rng.standard_normal((scales.size, 64)) * scales, FP32)
    for order in ORDERS:
        for primitives in primitives_for(order):
            judgement = judged("rms_norm", {"x": x}, order, primitives, FP32, eps=eps)
            assert_within(f"rms_norm at every scale, eps = {eps}, {order.name}", judgement)


# --- not vacuous ----------------------------------------------------------------------------------


def test_sequential_l2_norm_comes_near_its_bound():
    """1, then squares of u: each addition is a tie that goes down, and all of them are lost."""
    n = 4000
    judgement = judged(
        "l2_norm", {"x": adversarial(n)["one, then squares of u"]}, ORDERS[0], Exact(), FP32
    )
    share = reached(judgement)
    assert share >= NOT_VACUOUS, f"n - 1 roundings in one direction fill {share} of the bound"
    # (n - 1) u / 2 of error against gamma_n / 2 + u: all but a few u.
    lost = (n - 1) * U / 2.0
    assert judgement[0][0, 0] >= lost * (1.0 - n * U), f"they lose {judgement[0][0, 0] / U}u"


def test_atomics_come_near_the_bound_of_l2_norm():
    """The first tile sums to 1 and every other one to u, so that each atomic addition is lost."""
    tiles = 400
    x = np.zeros((1, tiles * TILE))
    x[0, ::TILE] = 2.0**-12
    x[0, 0] = 1.0
    in_order = Order(
        "tiles in order",
        lambda terms: add_sequentially(add_as_a_tree(terms.reshape(-1, TILE))[None, :]),
        ATOMIC.depth,
        tile_count,
    )
    share = reached(judged("l2_norm", {"x": x}, in_order, Exact(), FP32))
    assert share >= NOT_VACUOUS, f"as many lost atomics as there are fill {share} of the bound"


def test_a_tree_comes_near_the_bound_of_l2_norm():
    """u joins 1 at every level of the tree."""
    levels = 12
    x = np.zeros((1, 1 << levels))
    x[0, 0] = 1.0
    x[0, 1 << np.arange(levels)] = 2.0**-12
    share = reached(judged("l2_norm", {"x": x}, ORDERS[1], Exact(), FP32))
    assert share >= NOT_VACUOUS, f"a lost u at every level fills {share} of the bound"


def test_numpy_order_comes_near_the_bound_of_l2_norm():
    """Eight ones, then squares of u: each of numpy's eight running sums loses 15 of them."""
    x = adversarial(128)["eight ones, then squares of u"]
    share = reached(judged("l2_norm", {"x": x}, ORDERS[2], Exact(), FP32))
    assert share >= NOT_VACUOUS, f"fifteen lost additions a running sum fill {share} of the bound"


def test_sequential_rms_norm_comes_near_its_bound():
    n = 4000
    x = adversarial(n)["one, then squares of u"]
    share = reached(judged("rms_norm", {"x": x}, ORDERS[0], Exact(), FP32, eps=0.0))
    assert share >= NOT_VACUOUS, f"n - 1 roundings in one direction fill {share} of the bound"


def test_sequential_softmax_comes_near_its_bound():
    """exp(0) = 1 and then terms of u or a little less, each lost."""
    n = 4000
    t = np.nextafter(F32(-24.0 * math.log(2.0)), F32(-20.0))
    assert np.exp(t) <= F32(U), "exp of it is a tie beside 1 or less"
    x = np.full((1, n), float(t))
    x[0, 0] = 0.0
    error, limit, before, exact = judged("softmax", {"x": x}, ORDERS[0], Exact(), FP32)
    share = error[0, 0] / before[0, 0]
    assert share >= NOT_VACUOUS, f"n - 1 lost terms fill {share} of the maximum's bound"


def test_far_terms_of_softmax_come_near_their_bound():
    """At a distance of 80 from the maximum the product with log2 e alone errs by tens of u."""
    t = np.linspace(-85.0, -75.0, 4001)
    x = np.r_[0.0, t][None, :]
    share = reached(
        judged("softmax", {"x": round_nearest(x, FP32)}, ORDERS[1], Approximate(1), FP32)
    )
    assert share >= NOT_VACUOUS, f"the exponential's errors fill {share} of the bound"


@pytest.mark.parametrize("fmt", (FP16, BF16), ids=by_name)
def test_the_last_rounding_fills_what_it_is_allowed(fmt):
    x = generate("normal", 1, 4000, 5, fmt)
    error, limit, _, _ = judged("softmax", {"x": x}, ORDERS[1], Approximate(1), fmt)
    share = float((error / limit).max())
    assert share >= NOT_VACUOUS, f"{fmt.name}: the largest error is {share} of what is allowed"


# --- claims that a kernel can break ---------------------------------------------------------------


def test_a_fault_in_float32_exceeds_the_bound():
    """Half a dozen wrong kernels, each judged by the bound of the right one."""
    x = generate("normal", 2, 2000, 7, FP32)
    order, primitives = ORDERS[1], Exact()
    op = operation_named("l2_norm")
    exact = op.enclose({"x": x}, {}, op.check_policies(NAIVE), FP32)
    claim = Claim(order.depth(2000), 0, CUDA.arithmetic(), op.check_policies(NAIVE), {})
    limit = allowed(op.before({"x": x}, exact, FP32, claim), exact, FP32, claim.arithmetic)
    x32 = x.astype(F32)
    right = np.sqrt(order.add(x32 * x32))[:, None]
    assert (exact.error(right.astype(np.float64)) <= limit).all(), "the right kernel passes"
    squares = x32 * x32
    wrong = {
        "a dropped element": np.sqrt(order.add(squares[:, 1:])),
        "an element twice": np.sqrt(order.add(squares) + squares[:, 0]),
        "float16 squares": np.sqrt(order.add((x.astype(np.float16) ** 2).astype(F32))),
        "a constant": np.full(2, np.sqrt(2000.0)),
        "the root per tile": add_as_a_tree(
            np.sqrt(add_as_a_tree(squares.reshape(-1, 50))).reshape(2, -1)
        ),
    }
    del primitives
    for what, out in wrong.items():
        error = exact.error(out.astype(np.float64)[:, None])
        assert (error > limit).all(), f"{what}: error {error.ravel()} within {limit.ravel()}"


# --- range policies -------------------------------------------------------------------------------


def before_of(name, x, range_policy, depth=4, platform=CUDA, **params):
    op = operation_named(name)
    policies = op.check_policies({"range": range_policy})
    params = dict(op.params) | params
    exact = op.enclose({"x": x}, params, policies, FP32)
    claim = Claim(depth, 1, platform.arithmetic(), policies, params)
    return op.before({"x": x}, exact, FP32, claim), exact


def test_overflow_of_squares_excuses_a_naive_norm_only():
    x = round_nearest(np.array([[2e19, 2e19]]), FP32)
    naive, exact = before_of("l2_norm", x, "naive")
    scaled, _ = before_of("l2_norm", x, "scaled")
    assert np.isinf(naive).all(), "nothing is promised where squares overflow"
    assert (scaled < exact.magnitude() * gamma(8, U)).all(), "range=scaled promises the same u"
    fine, _ = before_of("l2_norm", round_nearest(np.array([[1.8e19, 1.0]]), FP32), "naive")
    assert np.isfinite(fine).all(), "just below, the naive norm is held to its bound"


def test_underflow_of_squares_excuses_a_naive_norm_only():
    x = np.array([[2.0**-75, 2.0**-76]])
    naive, exact = before_of("l2_norm", x, "naive")
    scaled, _ = before_of("l2_norm", x, "scaled")
    assert (naive >= exact.center).all(), "the naive norm may be 0"
    assert np.isfinite(naive).all(), "but not anything"
    assert (scaled < exact.magnitude() * gamma(8, U)).all(), "range=scaled promises the same u"


def test_naive_rms_norm_may_lose_rows_that_overflow():
    x = round_nearest(np.array([[2e19, 2e19]]), FP32)
    naive, exact = before_of("rms_norm", x, "naive")
    scaled, _ = before_of("rms_norm", x, "scaled")
    assert (naive >= np.abs(exact.center)).all(), "the naive result may be 0 where squares overflow"
    assert (scaled < exact.magnitude() * gamma(16, U)).all(), "range=scaled promises the same u"


def test_a_zero_norm_is_exact():
    for platform in (CUDA, INTERPRETER):
        naive, _ = before_of("l2_norm", np.zeros((1, 3)), "naive", platform=platform)
        assert not naive.any(), f"{platform.device}: the norm of zeros is 0 and nothing else"


def test_masked_elements_of_softmax_are_exactly_zero():
    op = operation_named("softmax")
    x = np.array([[0.0, -np.inf, 1.0]])
    policies = op.default_policies()
    exact = op.enclose({"x": x}, {}, policies, FP32)
    before = op.before({"x": x}, exact, FP32, Claim(2, 0, CUDA.arithmetic(), policies, {}))
    assert before[0, 1] == 0.0, "exp(-inf) / S is 0 on every device"
    assert (before[0, [0, 2]] > 0.0).all(), "the others have an error"


@pytest.mark.parametrize("name", KERNELS)
def test_a_depth_without_a_bound_gives_none(name):
    """Once h u reaches 1 there is no bound, and none is made up."""
    op = operation_named(name)
    x = generate("normal", 1, 8, 1, FP32)
    policies = op.default_policies()
    exact = op.enclose({"x": x}, op.params, policies, FP32)
    claim = Claim(2**24, 0, CUDA.arithmetic(), policies, op.params)
    before = op.before({"x": x}, exact, FP32, claim)
    assert (np.isinf(before) | np.isnan(before)).all(), f"{name}: {before} with h u = 1"


@pytest.mark.parametrize("name", KERNELS)
def test_empty_inputs_have_an_empty_bound(name):
    op = operation_named(name)
    for shape in ((3, 0), (0, 4)):
        x = np.zeros(shape)
        policies = op.default_policies()
        exact = op.enclose({"x": x}, op.params, policies, FP32)
        claim = Claim(0, 0, CUDA.arithmetic(), policies, op.params)
        before = op.before({"x": x}, exact, FP32, claim)
        assert before.shape == exact.shape, f"{name} of {shape}"
        assert not before.any(), f"{name} of {shape}: nothing is added, nothing is lost"


# --- gamma and allowed ----------------------------------------------------------------------------


def test_gamma_is_h_u_over_one_less_h_u():
    for h in (0, 1, 2, 3, 38, 1000, 2**20, 2**23, 2**24 - 1):
        exact = Fraction(h) * Fraction(U) / (1 - Fraction(h) * Fraction(U))
        got = gamma(h, U)
        assert exact <= Fraction(got) * Fraction(ROUND_UP), f"gamma({h}) = {got!r} is too small"
        # Three roundings of float64, one of them of the difference 1 - h u, which is exact here.
        assert Fraction(got) <= exact * (1 + Fraction(3, 2**53)), (
            f"gamma({h}) = {got!r} is too large"
        )


def test_gamma_is_infinite_from_h_u_of_one_on():
    assert gamma(2**24, U) == np.inf, "h u = 1"
    assert gamma(2**30, U) == np.inf, "h u = 64"
    assert gamma(2**11, FP16.u) == np.inf, "h u = 1 in float16"
    assert np.isfinite(gamma(2**24 - 1, U)), "just below"
    assert np.isfinite(gamma(2**24, FP64.u)), "in float64 there is room"


def test_allowed_adds_what_the_cast_may_do():
    one = exactly(np.array([1.0]))
    zero, gpu, host = np.zeros(1), CUDA.arithmetic(), INTERPRETER.arithmetic(FP32, True)
    truncating = INTERPRETER.arithmetic()
    for what, arithmetic, fmt, ulps in (
        ("float32 is stored as it is", gpu, FP32, 0.0),
        ("float16 rounds to nearest", gpu, FP16, 0.5),
        ("bfloat16 rounds to nearest", gpu, BF16, 0.5),
        ("float16 in the interpreter", truncating, FP16, 0.5),
        ("bfloat16 is truncated in the interpreter", truncating, BF16, 1.0),
        ("but not when torch casts", host, BF16, 0.5),
    ):
        got = float(allowed(zero, one, fmt, arithmetic)[0])
        assert got == ulps * float(ulp(np.ones(1), fmt)[0]) * ROUND_UP, f"{what}: {got}"


def test_allowed_looks_into_the_binade_above():
    below_two = exactly(np.array([2.0 - 2.0**-20]))
    step = 2.0**-10  # of float16 in [1, 2)
    near = allowed(np.array([2.0**-21]), below_two, FP16, CUDA.arithmetic())[0]
    over = allowed(np.array([2.0**-19]), below_two, FP16, CUDA.arithmetic())[0]
    assert near < 0.75 * step, "half an ulp of y's binade, as long as the value stays there"
    assert over >= step, "half an ulp of the binade above, if the value may reach it"


def test_allowed_is_infinite_with_the_bound():
    got = allowed(np.array([np.inf]), exactly(np.array([1.0])), FP16, CUDA.arithmetic())
    assert np.isinf(got).all(), "an infinite bound stays infinite"


def test_allowed_holds_for_every_value_that_the_kernel_may_have():
    """Values at the ends of y +- before, cast to nearest, against a center off by the radius."""
    rng = np.random.default_rng(9)
    n = 20_000
    for fmt in (FP16, BF16):
        y = np.ldexp(rng.uniform(-2.0, 2.0, n), rng.integers(fmt.emin - 12, 6, n))
        y[::4] = np.exp2(np.rint(np.log2(np.abs(y[::4]))))  # powers of two
        before = np.abs(y) * 2.0 ** -rng.integers(3, 40, n).astype(float)
        radius = np.where(rng.random(n) < 0.5, 0.0, np.abs(y) * 2.0**-20)
        center = y + radius * rng.choice([-1.0, 1.0], n)
        limit = allowed(before, Enclosure(center, np.zeros(n), radius), fmt, CUDA.arithmetic())
        for side in (-1.0, 1.0):
            # Towards y by a last bit, for the rounding of this very addition.
            value = np.nextafter(y + side * before, y)
            error = np.abs(round_nearest(value, fmt) - center)
            wrong = error > limit
            assert not wrong.any(), (
                f"{fmt.name}: y = {y[wrong][:1]}, before = {before[wrong][:1]}, value = "
                f"{value[wrong][:1]}: error {error[wrong][:1]}, allowed {limit[wrong][:1]}"
            )


# --- primitives -----------------------------------------------------------------------------------


def test_float32_exp_of_numpy_is_within_its_claim():
    """The claim for the interpreter: 2.52 ulp where the result is normal, two spacings below."""
    t = np.concatenate(
        [
            -np.random.default_rng(11).random(3000) * 104.0,
            np.linspace(-104.0, -87.0, 1000),
            -np.exp2(np.arange(-30.0, 6.0)),
            [0.0],
        ]
    ).astype(F32)
    got = np.exp(t).astype(np.float64)
    ctx = mpmath.MPContext()
    ctx.prec = 100
    exact = [ctx.exp(float(v)) for v in t]
    arithmetic = INTERPRETER.arithmetic()
    relative = arithmetic.exp(t.astype(np.float64))
    for k, y in enumerate(exact):
        limit = y * relative[k] if y >= FP32.smallest_normal else arithmetic.exp_floor
        assert abs(ctx.mpf(got[k]) - y) <= limit, (
            f"numpy's exp({float(t[k]).hex()}) = {got[k].hex()} is off by "
            f"{float(abs(ctx.mpf(got[k]) - y) / y / U)}u, claimed {relative[k] / U}u"
        )


def test_log2e_in_float32_is_off_by_what_the_bound_says():
    ctx = mpmath.MPContext()
    ctx.prec = 100
    log2e = 1 / ctx.log(2)
    off = abs(ctx.mpf(float(F32(math.log2(math.e)))) / log2e - 1) / ctx.mpf(U)
    # exp(t) is 2**(t log2 e (1 + off u) (1 + u)): an error of (1 + off) u |t|, to first order.
    claimed = CUDA.arithmetic().exp(np.array([1.0]))[0] - 4.0 * U
    first_order = (1 + off) * U * (1 + U)
    assert first_order <= claimed, f"fl(log2 e) is off by {float(off)}u, more than the bound allows"


def test_arithmetic_of_a_wider_accumulator_uses_its_own_roundoff():
    single, double = CUDA.arithmetic(FP32), CUDA.arithmetic(FP64)
    assert double.u == FP64.u, "u belongs to the accumulator"
    assert double.division / FP64.u == single.division / FP32.u == 4.0, "2 ulp are 4u"
    assert math.isclose(double.rsqrt / FP64.u, single.rsqrt / FP32.u, rel_tol=FP64.u), "rsqrt too"
    assert double.cast(FP32) == 0.5, "and the cast to float32 rounds"
    assert INTERPRETER.arithmetic().atomic_flush == 0.0, "numpy flushes nothing"
    assert single.atomic_flush >= FP32.smallest_normal, "atomics in global memory flush"


def test_triton_versions_compare_as_numbers():
    assert CUDA.triton_release == (3, 7), "3.7.1"
    later = Platform("cuda", "", "", "3.10.0+git1234", "", "")
    assert later.triton_release > CUDA.triton_release, "3.10 comes after 3.7"
    assert encode(np.ones(1), FP32).size == 1, "and formats are at hand"
