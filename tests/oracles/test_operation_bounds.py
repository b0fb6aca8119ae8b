# SPDX-License-Identifier: Apache-2.0
"""The bound of each operation: never exceeded by kernels simulated in float32, nearly reached.

The simulations are numpy float32, one rounding an operation, in orders of summation whose depth is
known by construction. Two sets of primitives: correctly rounded ones as the interpreter has them,
and approximate ones that err as far as the PTX documentation lets them, in either direction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from assay.oracles.bounds import allowed, gamma
from assay.oracles.depth import numpy_depth
from assay.oracles.enclosure import Enclosure
from assay.oracles.formats import BF16, FP16, FP32, FP64, Format, round_nearest, ulp
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


def by_device(primitives):
    return primitives.platform.device


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


def add_accurately(terms):
    """One rounding in all: what is left of the bound is that of everything but the sum."""
    return terms.astype(np.float64).sum(axis=1).astype(F32)


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
    Order("float64, rounded once", add_accurately, lambda n: 1),
)
SEQUENTIAL, TREE, NUMPY, ACCURATE = ORDERS
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
        off = self.rng.choice([-1.0, 1.0], exact.shape) * 1.5 * ulp(exact, FP32)
        # The exponential of -inf is exactly 0.
        return np.where(np.isneginf(t), 0.0, np.maximum(exact + off, 0.0)).astype(F32)

    def divide(self, a, b):
        # div.full, 2 ulp.
        exact = a.astype(np.float64) / b.astype(np.float64)
        inexact = np.isfinite(exact) & (exact != 0.0)
        step = ulp(np.where(inexact, exact, 0.0), FP32)
        off = self.rng.choice([-1.0, 1.0], exact.shape) * 1.5 * step
        return np.where(inexact, exact + off, exact).astype(F32)

    def rsqrt(self, v):
        # rsqrt.approx.ftz, 2**-22.9, and a subnormal argument counts as zero.
        v = np.where(v < F32(FP32.smallest_normal), F32(0.0), v)
        return self._off(1.0 / np.sqrt(v.astype(np.float64)), 2.0**-22.9 - U)


class Adverse(Approximate):
    """The GPU's primitives with every error at its documented limit and of one sign.

    Softmax: the largest output comes out too large. The exponential of 0 is the largest float32
    value within 2 ulp of the truth and every other one the smallest, the quotient the largest.
    Norm: the mean comes out too small, its reciprocal root too large.
    """

    def __init__(self, quotient):
        self.quotient = quotient

    def exp(self, t):
        product = (t * F32(math.log2(math.e))).astype(F32)
        exact = np.exp2(product.astype(np.float64))
        return np.where(t == 0.0, within_two_ulps(exact, 1.0), within_two_ulps(exact, -1.0))

    def divide(self, a, b):
        return within_two_ulps(a.astype(np.float64) / b.astype(np.float64), self.quotient)

    def rsqrt(self, v):
        exact = 1.0 / np.sqrt(v.astype(np.float64))
        return last_within(exact * (1.0 + 2.0**-22.9), 1.0)


def within_two_ulps(exact, side):
    """The float32 farthest from `exact` to one side that is no more than 2 ulp away."""
    return last_within(exact + side * 2.0 * ulp(exact, FP32), side)


def last_within(limit, side):
    """The float32 next to the limit, or on it, going up to it (side 1) or down to it (-1)."""
    nearest = limit.astype(F32)
    beyond = side * (nearest.astype(np.float64) - limit) > 0.0
    return np.where(beyond, np.nextafter(nearest, F32(-side * np.inf)), nearest).astype(F32)


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


@np.errstate(all="ignore")
def scaled_l2_norm(inputs, order, primitives, fmt, policies, params):
    """Every element is divided by the largest one, so that no square overflows or vanishes."""
    x = inputs["x"].astype(F32)
    scale = np.abs(x).max(axis=1, keepdims=True)
    ratio = np.where(scale > 0.0, primitives.divide(x, np.broadcast_to(scale, x.shape)), x)
    out = scale * np.sqrt(order.add(ratio * ratio))[:, None]
    return cast(out, fmt, primitives, on_host=True)


@np.errstate(all="ignore")
def scaled_rms_norm(inputs, order, primitives, fmt, policies, params):
    """Likewise, with eps divided by the square of the scale, which is no smaller than its root."""
    x = inputs["x"].astype(F32)
    least = F32(np.sqrt(params["eps"]))
    scale = np.maximum(np.abs(x).max(axis=1, keepdims=True), least)
    ratio = primitives.divide(x, np.broadcast_to(scale, x.shape))
    total = order.add(ratio * ratio)[:, None]
    mean = primitives.divide(total, np.full_like(total, x.shape[1]))
    eps = primitives.divide(primitives.divide(np.full_like(scale, params["eps"]), scale), scale)
    return cast(ratio * primitives.rsqrt(mean + eps), fmt, primitives)


KERNELS = {"l2_norm": l2_norm, "softmax": softmax, "rms_norm": rms_norm}
SCALED = {"l2_norm": scaled_l2_norm, "rms_norm": scaled_rms_norm}
ON_HOST = {"l2_norm": True, "softmax": False, "rms_norm": False}


@dataclass(frozen=True)
class Question:
    """An input whose exact result is known, to be put to several simulated kernels."""

    name: str
    inputs: dict
    fmt: Format
    policies: dict
    params: dict
    exact: Enclosure


def ask(name, inputs, fmt=FP32, policies=None, **params):
    op = operation_named(name)
    naive = {p.name: "naive" for p in op.policies if p.name == "range"}
    policies = op.check_policies(naive | (policies or {}))
    params = dict(op.params) | params
    return Question(name, inputs, fmt, policies, params, op.enclose(inputs, params, policies, fmt))


def judged(question, order, primitives):
    """(error, allowed, before) of a simulated kernel; the error is 0 where nothing is claimed."""
    q, n = question, question.inputs["x"].shape[1]
    kernel = (SCALED if q.policies.get("range") == "scaled" else KERNELS)[q.name]
    out = kernel(q.inputs, order, primitives, q.fmt, q.policies, q.params)
    arithmetic = primitives.platform.arithmetic(FP32, ON_HOST[q.name])
    claim = Claim(order.depth(n), order.atomics(n), arithmetic, q.policies, q.params)
    before = operation_named(q.name).before(q.inputs, q.exact, q.fmt, claim)
    promised = q.exact.finite & ~np.isnan(before)
    before = np.where(promised, before, 0.0)
    limit = allowed(before, q.exact, q.fmt, arithmetic)
    error = np.where(promised, q.exact.error(out), 0.0)
    # A result beyond the largest value may round to infinity; that is not what is judged here.
    reaches = q.exact.magnitude() + before >= q.fmt.largest
    return np.where(reaches & np.isinf(out), 0.0, error), limit, before


def assert_within(what, judgement):
    error, limit, _ = judgement
    wrong = error > limit
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        pytest.fail(
            f"{what}: the bound is broken at {at}: error {error[at]!r}, allowed {limit[at]!r}, in "
            f"{int(wrong.sum())} places"
        )


def reached(judgement):
    """Largest share of the bound ahead of the last rounding that the error fills."""
    error, _, before = judgement
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
            question = ask(name, inputs, fmt, policies)
            for order in orders_for(name):
                for primitives in primitives_for(order):
                    what = (
                        f"{name} of {family}, n = {n}, {fmt.name}, {policies}, {order.name}, "
                        f"{primitives.platform.device}"
                    )
                    assert_within(what, judged(question, order, primitives))


@pytest.mark.parametrize("name", ["l2_norm", "rms_norm"])
@pytest.mark.parametrize("n", [2, 9, 128, 1000, 4096])
def test_no_adversarial_row_exceeds_the_bound(name, n):
    for what, x in adversarial(n).items():
        question = ask(name, {"x": x})
        for order in orders_for(name):
            for primitives in primitives_for(order):
                told = f"{name} of {what}, n = {n}, {order.name}, {primitives.platform.device}"
                assert_within(told, judged(question, order, primitives))


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
        question = ask("softmax", {"x": round_nearest(row, FP32)[None, :]})
        for order in ORDERS:
            for primitives in primitives_for(order):
                for fmt in STORED:
                    told = f"softmax of {what}, n = {n}, {order.name}, {primitives.platform.device}"
                    assert_within(told, judged(replace(question, fmt=fmt), order, primitives))


@pytest.mark.parametrize("name", ["l2_norm", "rms_norm"])
@pytest.mark.parametrize("n", [2, 3])
def test_short_rows_stay_within_the_bound_and_come_near_it(name, n):
    """With an addition or two, the other roundings of the formula are as large as the sum's."""
    question = ask(name, {"x": generate("uniform", 4000, n, 17, FP32)})
    for primitives in primitives_for(TREE):
        judgement = judged(question, TREE, primitives)
        told = f"{name} of {n} values, {primitives.platform.device}"
        assert_within(told, judgement)
        assert reached(judgement) >= NOT_VACUOUS, f"{told}: {reached(judgement)} of the bound"


def test_nearly_every_rounding_of_a_norm_may_go_one_way():
    """Found by random search: roundings that nearly all go one way, by nearly u each."""
    x = np.array([[float.fromhex("0x1.6e5b1ep+0"), float.fromhex("0x1.6d7ca6p+0")]])
    judgement = judged(ask("l2_norm", {"x": x}), TREE, Exact())
    assert_within("l2_norm of two unlucky values", judgement)
    assert reached(judgement) >= NOT_VACUOUS, f"l2_norm: {reached(judgement)} of the bound"
    inputs = {
        "x": np.array([[float.fromhex("0x1.030614p+0"), float.fromhex("0x1.001bb2p+0")]]),
        "weight": np.array([float.fromhex("0x1.04b7dp+0"), 1.0]),
    }
    judgement = judged(ask("rms_norm", inputs), ACCURATE, Adverse(-1.0))
    assert_within("rms_norm of two unlucky values", judgement)
    assert reached(judgement) >= NOT_VACUOUS, f"rms_norm: {reached(judgement)} of the bound"


def test_softmax_stays_within_its_bound_when_all_exponentials_err_alike():
    """2047 equal terms, each too small by nearly all that the argument's roundings may do."""
    n, maximum = 2048, F32(1.0 / 3.0)
    x = np.linspace(-6.5, -6.0, 20_001).astype(F32)
    t = x - maximum
    true = np.exp(x.astype(np.float64) - float(maximum))
    lost = 1.0 - Adverse(1.0).exp(t) / true
    row = np.full((1, n), float(x[np.argmax(lost)]))
    row[0, 0] = float(maximum)
    question = ask("softmax", {"x": row})
    judgement = judged(question, ACCURATE, Adverse(1.0))
    assert_within("softmax whose exponentials all err alike", judgement)
    assert reached(judgement) >= NOT_VACUOUS, f"{reached(judgement)} of the bound"


@pytest.mark.parametrize("eps", [0.0, 1e-6, 1e-5, 2.0**-130])
def test_no_eps_exceeds_the_bound(eps):
    rng = np.random.default_rng(3)
    scales = 2.0 ** np.arange(-70, 64, 7)[:, None]
    x = round_nearest(rng.standard_normal((scales.size, 64)) * scales, FP32)
    question = ask("rms_norm", {"x": x}, eps=eps)
    for order in ORDERS:
        for primitives in primitives_for(order):
            told = f"rms_norm at every scale, eps = {eps}, {order.name}"
            assert_within(told, judged(question, order, primitives))


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("primitives", [Exact(), Approximate(1)], ids=by_device)
@pytest.mark.parametrize("family", ["normal", "wide", "tiny", "huge"])
def test_scaled_norms_stay_within_their_bound(name, family, primitives):
    """A kernel that claims range=scaled has roundings more, at every size of x."""
    for n in (1, 2, 3, 40):
        x = generate(family, 400, n, 23, FP32)
        x[0] = np.resize([FP32.largest, 1.0, -FP32.largest], n)
        x[1] = np.resize([2.0**-149, 2.0**-148, -(2.0**-126)], n)
        question = ask(name, {"x": x}, policies={"range": "scaled"}, eps=2.0**-40)
        for order in ORDERS:
            what = f"scaled {name} of {family}, n = {n}, {order.name}, {by_device(primitives)}"
            assert_within(what, judged(question, order, primitives))


@pytest.mark.parametrize("fmt", [FP64, *STORED], ids=by_name)
def test_a_float64_accumulator_is_held_to_its_own_bound(fmt):
    """numpy in float64, cast to 16 bits by way of float32 as torch and Triton do."""
    for family in ("normal", "constant", "wide"):
        for n in (1, 2, 3, 1000):
            question = ask("l2_norm", {"x": generate(family, 200, n, 29, fmt)}, fmt)
            out = np.sqrt((question.inputs["x"] ** 2).sum(axis=1, keepdims=True))
            if fmt is not FP64:
                out = round_nearest(round_nearest(out, FP32), fmt)
            arithmetic = INTERPRETER.arithmetic(FP64, casts_on_host=True)
            claim = Claim(numpy_depth(n), 0, arithmetic, question.policies, {})
            before = operation_named("l2_norm").before(question.inputs, question.exact, fmt, claim)
            limit = allowed(before, question.exact, fmt, arithmetic)
            what = f"l2_norm of {family} in float64, stored as {fmt.name}, n = {n}"
            assert_within(what, (question.exact.error(out), limit, before))
            own = gamma(n + 2, FP64.u) * question.exact.magnitude() + FP64.smallest_subnormal
            assert (before <= own).all(), f"{what}: that is no bound in units of float64"


# --- not vacuous ----------------------------------------------------------------------------------


def test_sequential_l2_norm_comes_near_its_bound():
    """1, then squares of u: each addition is a tie that goes down, and all of them are lost."""
    n = 4000
    question = ask("l2_norm", {"x": adversarial(n)["one, then squares of u"]})
    judgement = judged(question, SEQUENTIAL, Exact())
    share = reached(judgement)
    assert share >= NOT_VACUOUS, f"n - 1 roundings in one direction fill {share} of the bound"
    # S = 1 + (n - 1) u and S^ = 1: (n - 1) u / 2 to first order, and less than its square off that.
    lost, error = (n - 1) * U / 2.0, float(judgement[0][0, 0])
    assert abs(error - lost) <= lost**2, f"they lose {error / U}u, by hand {lost / U}u"


def test_atomics_come_near_the_bound_of_l2_norm():
    """The first tile sums to 1 and every other one to u, so that each atomic addition is lost."""
    tiles = 400
    x = np.zeros((1, tiles * TILE))
    x[0, ::TILE] = 2.0**-12
    x[0, 0] = 1.0
    in_order = replace(
        ATOMIC,
        add=lambda terms: add_sequentially(add_as_a_tree(terms.reshape(-1, TILE))[None, :]),
    )
    share = reached(judged(ask("l2_norm", {"x": x}), in_order, Exact()))
    assert share >= NOT_VACUOUS, f"as many lost atomics as there are fill {share} of the bound"


def test_a_tree_comes_near_the_bound_of_l2_norm():
    """u joins 1 at every level of the tree."""
    levels = 12
    x = np.zeros((1, 1 << levels))
    x[0, 0] = 1.0
    x[0, 1 << np.arange(levels)] = 2.0**-12
    share = reached(judged(ask("l2_norm", {"x": x}), TREE, Exact()))
    assert share >= NOT_VACUOUS, f"a lost u at every level fills {share} of the bound"


def test_numpy_order_comes_near_the_bound_of_l2_norm():
    """Eight ones, then squares of u: each of numpy's eight running sums loses 15 of them."""
    x = adversarial(128)["eight ones, then squares of u"]
    share = reached(judged(ask("l2_norm", {"x": x}), NUMPY, Exact()))
    assert share >= NOT_VACUOUS, f"fifteen lost additions a running sum fill {share} of the bound"


def test_sequential_rms_norm_comes_near_its_bound():
    x = adversarial(4000)["one, then squares of u"]
    share = reached(judged(ask("rms_norm", {"x": x}, eps=0.0), SEQUENTIAL, Exact()))
    assert share >= NOT_VACUOUS, f"n - 1 roundings in one direction fill {share} of the bound"


def test_sequential_softmax_comes_near_its_bound():
    """exp(0) = 1 and then terms of u or a little less, each lost."""
    t = float(np.nextafter(F32(-24.0 * math.log(2.0)), F32(-20.0)))
    assert np.exp(F32(t)) <= F32(U), "exp of it is a tie beside 1 or less"
    x = np.full((1, 4000), t)
    x[0, 0] = 0.0
    error, _, before = judged(ask("softmax", {"x": x}), SEQUENTIAL, Exact())
    share = error[0, 0] / before[0, 0]
    assert share >= NOT_VACUOUS, f"n - 1 lost terms fill {share} of the maximum's bound"


def test_far_terms_of_softmax_come_near_their_bound():
    """At a distance of 80 from the maximum the product with log2 e alone errs by tens of u."""
    x = round_nearest(np.r_[0.0, np.linspace(-85.0, -75.0, 2001)], FP32)[None, :]
    share = reached(judged(ask("softmax", {"x": x}), TREE, Approximate(1)))
    assert share >= NOT_VACUOUS, f"the exponential's errors fill {share} of the bound"


@pytest.mark.parametrize("fmt", [FP16, BF16], ids=by_name)
def test_the_last_rounding_fills_what_it_is_allowed(fmt):
    x = generate("normal", 1, 2000, 5, fmt)
    error, limit, _ = judged(ask("softmax", {"x": x}, fmt), TREE, Approximate(1))
    share = float((error / limit).max())
    assert share >= NOT_VACUOUS, f"{fmt.name}: the largest error is {share} of what is allowed"


# --- claims that a kernel can break ---------------------------------------------------------------


def test_wrong_sums_exceed_the_bound():
    """Wrong kernels, each judged by the bound of the right one."""
    n = 2000
    x = generate("normal", 2, n, 7, FP32)
    question = ask("l2_norm", {"x": x})
    _, limit, _ = judged(question, TREE, Exact())
    squares = x.astype(F32) ** 2
    halves = (x.astype(np.float16) ** 2).astype(F32)
    roots = np.sqrt(add_as_a_tree(squares.reshape(-1, 50))).reshape(2, -1)
    right = np.sqrt(TREE.add(squares))
    for what, out, passes in (
        ("the right one", right, True),
        ("a dropped element", np.sqrt(TREE.add(squares[:, 1:])), False),
        ("an element twice", np.sqrt(TREE.add(squares) + squares[:, 0]), False),
        ("squares in float16", np.sqrt(TREE.add(halves)), False),
        ("the root before the combine", TREE.add(roots), False),
        ("what one expects of normal data", np.full(2, F32(math.sqrt(n))), False),
    ):
        error = question.exact.error(out.astype(np.float64)[:, None])
        within = error <= limit
        assert (within == passes).all(), f"{what}: error {error.ravel()}, allowed {limit.ravel()}"
