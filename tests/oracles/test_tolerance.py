# SPDX-License-Identifier: Apache-2.0
"""Tolerances: where they come from, what they refuse, and that right kernels stay within them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

from assay.oracles.bounds import allowed, gamma
from assay.oracles.depth import TileLoop, TileThenAtomics
from assay.oracles.formats import FP32, format_named, round_nearest
from assay.oracles.generators import FAMILIES, generate
from assay.oracles.operation import operation_named, operations
from assay.oracles.platform import Platform
from assay.oracles.portable_random import normal
from assay.oracles.tolerances.claimed_error import MEASURES, Claims
from assay.oracles.tolerances.curve_files import (
    CurveFileError,
    MeasuredCurve,
    load,
    matching,
    parse,
    read_folder,
)
from assay.oracles.tolerances.family_scale import ToleranceError, scale_of
from assay.oracles.tolerances.measured_error import chi_square_quantile
from assay.oracles.tolerances.statistical import RANDOM
from assay.oracles.tolerances.tolerance import (
    FALSE_ALARM,
    error_of,
    largest_n,
    rounded_up,
    tolerance,
)

U = FP32.u
BLOCK = 1024
GPU = {
    "device": "cuda",
    "name": "Some GPU",
    "arch": "sm_90",
    "triton": "3.6.0",
    "torch": "2.11",
    "python": "3.12",
}


def config(rows: int, n: int, dtype: str) -> Mapping[str, int]:
    return {"BLOCK": BLOCK, "BLOCK_N": BLOCK, "num_warps": 4}


ATOMIC = Claims("l2_norm.atomic", TileThenAtomics("BLOCK"), config, policies={"range": "naive"})
SUM = Claims("sum.tiles", TileLoop("BLOCK_N"), config)


def h_of(claims: Claims, n: int) -> int:
    return claims.depth(1, n, "float32", Platform(**GPU))


Law = Callable[[int], float]


def curve_file(
    claims: Claims = ATOMIC,
    *,
    rms: Law = lambda h: 0.1 * math.sqrt(h),
    bias: float = 0.0,
    trials: int = 12,
    largest: float = 2.5,
    powers: range = range(0, 21, 2),
    family: str = "normal",
    slope: tuple[float, float, float] | None = (0.5, 0.4, 0.6),
    operation: str = "l2_norm",
    dtype: str = "float32",
) -> dict[str, Any]:
    """A file of one curve whose errors have the given rms (ulps) at each depth.

    bias: by how many of their standard deviations the errors are shifted. largest: of the rms.
    """
    points = []
    for power in powers:
        n = 1 << power
        h = h_of(claims, n)
        e = normal(power + 100, 1, trials)
        e = e - e.mean() + bias * e.std()
        e *= rms(h) / math.sqrt(float(np.mean(e * e)))
        points.append(
            {
                "n": n,
                "rows": trials,
                "depth": h,
                "trials": trials,
                "elements": trials,
                "rms": rms(h),
                "mean": float(e.mean()),
                "largest": largest * rms(h),
                "share": 0.001,
                "bound": 100.0,
                "errors": e.tolist(),
            }
        )
    fit = None
    if slope is not None:
        names = ("slope", "low", "high")
        fit = dict(zip(names, slope, strict=True)) | {"constant": 0.1, "points": 4}
    curve = {
        "kernel": claims.name,
        "operation": operation,
        "dtype": dtype,
        "family": family,
        "accumulator": "float32",
        "cast": 0.0,
        "points": points,
        "fit": fit,
    }
    return {
        "schema": 1,
        "created": "2026-11-30T00:00:00Z",
        "versions": dict(GPU),
        "curves": [curve],
    }


def curves(**options: Any) -> list[MeasuredCurve]:
    return parse(json.dumps(curve_file(**options)).encode(), source="made.json", device="made")


# Curve files.


def test_committed_curves_are_readable() -> None:
    found = load()
    assert len(found) >= 240
    curve = matching(found, kernel="l2_norm.atomic", dtype="float32", family="normal")
    assert curve is not None
    assert curve.platform.name == "NVIDIA H200" and curve.device == "nvidia-h200"
    assert curve.measured == (1, 1 << 30)
    assert curve.fit is not None and curve.fit.low < 0.5 < curve.fit.high
    assert [p.n for p in curve.points] == sorted(p.n for p in curve.points)
    assert matching(found, kernel="l2_norm.atomic", dtype="float32", family="wide") is None


def test_own_curves_come_first(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "audit.json").write_text(json.dumps(curve_file()), encoding="utf-8")
    found = load([tmp_path])
    assert found[0].device == "mine" and len(found) == len(load()) + 1
    assert read_folder(folder)[0].device == "mine"
    curve = matching(found, kernel="l2_norm.atomic", dtype="float32", family="normal")
    assert curve is not None and curve.device == "mine"


def _break(change: Callable[[dict[str, Any]], Any]) -> bytes:
    data = curve_file()
    change(data)
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "not JSON"),
        (b"[]", "expected an object, got a list"),
        (_break(lambda d: d.pop("versions")), "'versions' is missing"),
        (_break(lambda d: d.update(schema=2)), "schema 2"),
        (_break(lambda d: d["versions"].update(triton=3)), "'triton' must be a string"),
        (_break(lambda d: d["versions"].update(triton="main")), "'triton' must be a release"),
        (_break(lambda d: d["curves"][0].pop("kernel")), "curve 1: 'kernel' is missing"),
        (_break(lambda d: d["curves"][0].update(points=[])), "has no points"),
        (_break(lambda d: d["curves"][0]["points"][2].update(n=0)), "point 3: 'n' must be"),
        (_break(lambda d: d["curves"][0]["points"][2].update(n=1)), "one N occurs twice"),
        (_break(lambda d: d["curves"][0]["points"][0].update(rms="x")), "'rms' must be a finite"),
        (_break(lambda d: d["curves"][0]["points"][0].update(rms=9.0)), "cannot be above"),
        (_break(lambda d: d["curves"][0]["points"][0]["errors"].append(0.0)), "at most one number"),
        (_break(lambda d: d["curves"][0]["fit"].update(low=2.0)), "interval of the slope is empty"),
        (_break(lambda d: d["curves"][0]["points"][0].update(errors=[True])), "finite numbers"),
    ],
)
def test_a_corrupt_file_gives_one_clear_line(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_bytes(content)
    with pytest.raises(CurveFileError, match=r"bad\.json") as stopped:
        load([tmp_path])
    assert says in str(stopped.value)
    assert "\n" not in str(stopped.value)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CurveFileError, match="no such folder"):
        load([tmp_path / "none"])


# The statistics.


def test_chi_square_quantiles_err_to_the_safe_side() -> None:
    for freedom, low in ((4, 0.08), (8, 0.03), (12, 0.006), (30, 0.002)):
        found = chi_square_quantile(freedom, 0.025)
        level = mpmath.gammainc(freedom / 2, 0, found / 2, regularized=True)
        exact = mpmath.findroot(
            lambda x, k=freedom: mpmath.gammainc(k / 2, 0, x / 2, regularized=True) - 0.025, found
        )
        assert level <= 0.025
        assert (1 - low) * exact <= found <= exact


def test_measured_tolerance_is_lambda_times_the_upper_limit_of_the_rms() -> None:
    n = 1 << 18
    t = tolerance("l2_norm", n, "float32", kernel=ATOMIC, curves=curves())
    assert t.kind == "statistical"
    shown = t.provenance["curve"]
    assert 5.3 < shown["lambda"] < 5.4
    h = h_of(ATOMIC, n)
    # Points below are scaled up with the square root, which is the law here; those above are not.
    assert 0.1 * math.sqrt(h) < shown["rms_ulps"] < 0.2 * math.sqrt(h)
    assert shown["upper_ulps"] > shown["rms_ulps"]
    assert t.ulps == shown["lambda"] * shown["upper_ulps"]
    assert t.rtol == 2.0 * U * t.ulps
    assert t.rtol < t.bound[0]
    for words in ("Some GPU", "2026-11-30", "lambda = 5.33", "[0.40, 0.60]", "u = 2**-24"):
        assert words in t.text, words
    assert f"h = {h:,}" in t.text and "final rounding" in t.text


def test_a_smaller_false_alarm_and_more_checks_widen_it() -> None:
    found = curves()

    def rtol(**options: Any) -> float:
        return tolerance("l2_norm", 1 << 18, "float32", kernel=ATOMIC, curves=found, **options).rtol

    usual = rtol()
    assert rtol(false_alarm=FALSE_ALARM / 1000) > usual
    assert rtol(checks=1000) == rtol(false_alarm=FALSE_ALARM / 1000) == rtol(rows=1000)
    assert rtol(false_alarm=0.01) < usual


def _deterministic(says: str, **options: Any) -> None:
    asked: dict[str, Any] = {"kernel": ATOMIC, "family": "normal", "n": 1 << 18}
    asked |= options
    t = tolerance("l2_norm", asked.pop("n"), "float32", **asked)
    assert t.kind == "deterministic"
    assert (t.rtol, t.atol) == t.bound
    assert says in t.text, t.text


def test_what_no_curve_supports_gets_the_bound_and_a_reason() -> None:
    unbiased = curves()
    _deterministic("no kernel was named", kernel=None, curves=unbiased)
    _deterministic("family constant is not random", family="constant", curves=unbiased)
    _deterministic("no curve of l2_norm.atomic", family="uniform", curves=unbiased)
    _deterministic("no curve of l2_norm.atomic", curves=[])
    _deterministic("outside its range, 1 to 1,048,576", n=1 << 21, curves=unbiased)
    _deterministic("signed errors are biased", curves=curves(bias=2.0))
    _deterministic("excludes 1/2", curves=curves(slope=(0.95, 0.9, 1.0)))
    _deterministic("only 2 trials", curves=curves(trials=2, powers=range(0, 21, 18)))
    _deterministic("no error was ever measured", curves=curves(rms=lambda h: 0.0, slope=None))
    half = lambda rows, n, dtype: {"BLOCK": BLOCK // 2, "num_warps": 4}  # noqa: E731
    other = Claims(ATOMIC.name, ATOMIC.order, half, policies={"range": "naive"})
    _deterministic("where the kernel claims", kernel=other, curves=unbiased)


def test_a_curve_above_the_bound_is_capped_by_it() -> None:
    t = tolerance("l2_norm", 1 << 18, "float32", kernel=ATOMIC, curves=curves(rms=float))
    assert t.kind == "deterministic" and "allows more than the bound" in t.text


def test_a_tiny_measured_error_is_raised_to_the_other_roundings() -> None:
    t = tolerance("l2_norm", 1 << 18, "float32", kernel=ATOMIC, curves=curves(rms=lambda h: U * h))
    # The square, halved by the root, and the root itself.
    assert 1.5 * U <= t.rtol < 2.0 * U
    assert "Raised to" in t.text


def test_heavy_tails_widen_the_tolerance() -> None:
    n = 1 << 18
    usual = tolerance("l2_norm", n, "float32", kernel=ATOMIC, curves=curves())
    heavy = tolerance("l2_norm", n, "float32", kernel=ATOMIC, curves=curves(largest=8.0))
    assert heavy.kind == "statistical" and heavy.rtol > 2.0 * usual.rtol
    assert "heavier than normal" in heavy.text


def test_extrapolation_is_asked_for_and_says_so() -> None:
    n = 1 << 24
    h = h_of(ATOMIC, n)
    end = h_of(ATOMIC, 1 << 20)

    def beyond(slope: tuple[float, float, float], power: float) -> float:
        t = tolerance(
            "l2_norm",
            n,
            "float32",
            kernel=ATOMIC,
            curves=curves(slope=slope, rms=lambda h: 0.001 * h**power),
            extrapolate=True,
        )
        assert t.kind == "statistical" and "EXTRAPOLATED" in t.text
        shown = t.provenance["curve"]
        assert shown["extrapolated"]
        return float(shown["upper_ulps"]) / (0.001 * end**power)

    root, line = (h / end) ** 0.5, h / end
    # The upper limit of the rms over the points that the slope comes from.
    assert root < beyond((0.5, 0.4, 0.6), 0.5) < 2.0 * root
    assert line < beyond((1.0, 0.9, 1.1), 1.0) < 2.0 * line
    neither = beyond((0.7, 0.65, 0.75), 0.7)
    assert 2.5 * (h / end) ** 0.7 < neither < 5.0 * (h / end) ** 0.7
    _deterministic("do not suffice for a slope", n=n, curves=curves(slope=None), extrapolate=True)


def test_no_bound_says_what_to_do() -> None:
    with pytest.raises(ToleranceError, match=r"h u = 2 reaches 1.*shorter path") as stopped:
        tolerance("sum", 1 << 25, "float32", curves=[])
    assert "\n" not in str(stopped.value)
    with pytest.raises(ToleranceError, match="no finite results"):
        tolerance("min_max", 64, "float32", family="constant", curves=[])
    with pytest.raises(ToleranceError, match="promises nothing"):
        tolerance("l2_norm", 64, "float32", kernel=ATOMIC, family="huge", curves=[])
    with pytest.raises(ToleranceError, match="go together"):
        tolerance("sum", 1 << 21, "float32", kernel=SUM, family="cancelling", curves=[])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"n": 0}, "N must be at least 1"),
        ({"family": "gauss"}, "unknown data family"),
        ({"false_alarm": 1.5}, "between 0 and 1"),
        ({"checks": 0}, "checks and rows"),
        ({"output": 1}, "1 output"),
        ({"dtype": "int8"}, "unknown dtype"),
        ({"device": "h100"}, "no curves of device"),
        ({"kernel": Claims("sum.short", max_n=8)}, "at most 8"),
    ],
)
def test_bad_arguments_are_explained(options: dict[str, Any], says: str) -> None:
    asked = {"n": 64, "dtype": "float32"} | options
    with pytest.raises(ValueError, match=says):
        tolerance("sum", asked.pop("n"), asked.pop("dtype"), **asked)


# Every operation.


def _measures(name: str) -> set[str]:
    return {m for (operation, _), m in MEASURES.items() if operation == name}


def test_every_output_has_a_measure() -> None:
    named = {(op.name, out.name) for op in operations().values() for out in op.outputs}
    assert named == MEASURES.keys(), "an output without an entry counts as absolute: is it?"


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", list(operations()))
def test_every_operation_has_a_deterministic_tolerance(name: str, dtype: str) -> None:
    op = operation_named(name)
    claims = Claims(f"{name}.tiles", TileLoop("BLOCK_N"), config)
    fmt = format_named(dtype)
    for i, out in enumerate(op.outputs):
        last = -1.0
        for n in (2 if name == "min_max" else 1, 4, 1000, 1 << 14, 1 << 22):
            t = tolerance(op, n, dtype, kernel=claims, curves=[], output=i)
            assert t.kind == "deterministic" and t.output == out.name
            if t.measure == "exact":
                assert t.rtol == t.atol == 0.0
                continue
            # The final rounding is part of it, and so is every addition.
            if claims.accumulator != dtype:
                assert t.rtol >= fmt.u
            assert t.rtol + t.atol > 0.0
            assert t.relative >= last * (1.0 - 2.0**-20)
            last = t.relative
            assert t.text.count("rtol") >= 1 and "\n\n" not in t.text


POLICIES = {
    "rms_norm": ({"cast": "before_weight"}, {"range": "naive"}),
    "mean_variance": ({"algorithm": "welford"}, {"algorithm": "moments"}),
    "matmul": ({"input_precision": "tf32"}, {"accumulation": "truncated"}),
    "log_softmax": ({"form": "direct"},),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", [n for n in operations() if "exact" not in _measures(n)])
def test_the_bound_of_fresh_draws_is_within(name: str, dtype: str) -> None:
    """What is evaluated on a few draws ahead holds for others."""
    op, fmt = operation_named(name), format_named(dtype)
    for policies in ({}, *POLICIES.get(name, ())):
        claims = Claims(f"{name}.tiles", TileLoop("BLOCK_N"), config, policies=policies)
        for family in ("normal", "uniform"):
            for n, rows in ((3, 200), (50, 100), (10_000, 3)):
                x = generate(family, rows, n, 999, fmt)
                inputs: dict[str, Any] = {"x": x}
                if name == "matmul":
                    inputs["w"] = generate(family, 2, n, 998, fmt).T.copy()
                claim = claims.claim(op, rows, n, dtype, Platform(**GPU))
                exact = op.enclose(inputs, op.params, claim.policies, fmt)
                limit = allowed(op.before(inputs, exact, fmt, claim), exact, fmt, claim.arithmetic)
                for i, out in enumerate(op.outputs):
                    t = tolerance(
                        op, n, dtype, kernel=claims, family=family, curves=[], output=i, rows=rows
                    )
                    at = slice(i, i + 1) if out.shape == "row" else slice(None)
                    given = t.atol + t.rtol * np.abs(exact.center[:, at])
                    good = (limit[:, at] <= given) | ~exact.finite[:, at]
                    assert good.all(), (policies, family, n, out.name)


def test_sums_are_relative_to_the_sum_of_magnitudes() -> None:
    n = 1 << 16
    t = tolerance("sum", n, "float32", kernel=SUM, curves=[])
    h = t.depth
    scale = scale_of("magnitudes", "normal", n, FP32, FALSE_ALARM)
    mean = n * math.sqrt(2.0 / math.pi)
    assert mean < scale < 1.05 * mean
    assert gamma(h, U) * scale <= t.atol <= gamma(h, U) * scale * (1.0 + 2.0**-20)
    assert t.rtol == 0.0
    assert "sqrt(2/pi)" in t.text


@pytest.mark.parametrize("family", ["normal", "uniform", "wide", "integers", "constant", "masked"])
@pytest.mark.parametrize("measure", ["magnitudes", "mean magnitude", "mean square", "products"])
def test_the_scale_of_a_family_is_above_fresh_draws(family: str, measure: str) -> None:
    for n in (1, 16, 1000):
        scale = scale_of(measure, family, n, FP32, FALSE_ALARM)
        x = np.concatenate([generate(family, 1, n, seed, FP32) for seed in range(500, 550)])
        x = np.abs(np.where(np.isfinite(x), x, 0.0))
        w = np.roll(x, 1, axis=0)
        drawn = {
            "magnitudes": x.sum(axis=1),
            "mean magnitude": x.mean(axis=1),
            "mean square": (x * x).mean(axis=1),
            "products": (x * w).sum(axis=1),
        }[measure]
        assert drawn.max() <= scale, (family, measure, n)


def test_statistical_sums_go_by_the_square_root_of_the_depth() -> None:
    n = 1 << 20
    law = lambda h: 0.01 * math.sqrt(h)  # noqa: E731 - one line says it
    found = curves(claims=SUM, operation="sum", rms=law)
    t = tolerance("sum", n, "float32", kernel=SUM, curves=found)
    assert t.kind == "statistical"
    limit = math.sqrt(2.0 * math.log(2.0 / FALSE_ALARM)) * math.sqrt(t.depth) * U
    assert limit <= t.relative <= limit * 1.001
    assert t.atol < t.bound[1] / 4.0
    assert "Higham and Mary" in t.text
    far = [p | {"share": 0.9} for p in curve_file(claims=SUM)["curves"][0]["points"]]
    data = curve_file(claims=SUM, operation="sum")
    data["curves"][0]["points"] = far
    wild = parse(json.dumps(data).encode(), source="made.json", device="made")
    with pytest.raises(ToleranceError, match="above the statistical bound"):
        tolerance("sum", n, "float32", kernel=SUM, curves=wild)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("n", [1, 100, 5000])
def test_honest_kernels_stay_within(dtype: str, n: int) -> None:
    """numpy's float32 sums are an honest kernel: any order of additions."""
    fmt = format_named(dtype)
    x = generate("normal", 20, n, 4321, fmt)
    single = x.astype(np.float32)
    exact = np.array([math.fsum(r) for r in x.tolist()])
    squares = np.array([math.fsum(v * v for v in r) for r in x.tolist()])
    for name, out, ref in (
        ("sum", single.sum(axis=1), exact),
        ("mean", single.mean(axis=1), exact / n),
        ("l2_norm", np.sqrt((single * single).sum(axis=1)), np.sqrt(squares)),
    ):
        stored = round_nearest(out.astype(np.float64), fmt)
        t = tolerance(name, n, dtype, curves=[], rows=20)
        assert t.accepts(stored, ref).all(), (name, t.share(stored, ref))


def test_share_compares_special_values_by_kind() -> None:
    t = tolerance("l2_norm", 64, "float32", kernel=ATOMIC, curves=[])
    out = np.array([1.0, np.inf, np.nan, np.inf, 1.0, np.nan])
    ref = np.array([1.0, np.inf, np.nan, 1.0, np.nan, 1.0])
    assert t.accepts(out, ref).tolist() == [True, True, True, False, False, False]


def test_the_line_is_rounded_up_and_can_be_copied() -> None:
    for value in (1.2345e-7, 9.999e-6, 1.0, 0.0, 3.1e-300, 123456.0):
        text = rounded_up(value)
        assert float(text) >= value and float(text) <= value * 1.011
    t = tolerance("l2_norm", 64, "float32", kernel=ATOMIC, curves=[])
    torch = pytest.importorskip("torch")
    out = torch.tensor(2.0)
    right, wrong = torch.tensor(2.0, dtype=torch.float64), torch.tensor(2.1, dtype=torch.float64)
    eval(t.line, {"torch": torch, "out": out, "ref": right})  # noqa: S307 - it is there to be run
    with pytest.raises(AssertionError):
        eval(t.line, {"torch": torch, "out": out, "ref": wrong})  # noqa: S307


# The inverse.


def test_largest_n_is_the_inverse() -> None:
    found = largest_n("l2_norm", "float32", 100 * U, kernel=ATOMIC, curves=[])
    assert found.limit == "the error asked for"
    at = tolerance("l2_norm", found.n, "float32", kernel=ATOMIC, curves=[])
    after = tolerance("l2_norm", found.n + 1, "float32", kernel=ATOMIC, curves=[])
    assert error_of(at) <= 100 * U < error_of(after)
    assert found.at == at


def test_largest_n_says_when_the_measured_range_ends_it() -> None:
    measured = curves()
    end = 1 << 20
    allowed = tolerance("l2_norm", end, "float32", kernel=ATOMIC, curves=measured)
    found = largest_n("l2_norm", "float32", 2.0 * allowed.rtol, kernel=ATOMIC, curves=measured)
    assert found.n == end and "measured range" in found.limit
    with pytest.raises(ToleranceError, match="even N = 1"):
        largest_n("l2_norm", "float32", U / 4.0, kernel=ATOMIC, curves=measured)
    short = Claims(ATOMIC.name, ATOMIC.order, config, policies=ATOMIC.policies, max_n=5000)
    assert largest_n("l2_norm", "float32", 1.0, kernel=short, curves=[]).n == 5000


def test_random_families_exist() -> None:
    assert set(RANDOM) <= FAMILIES.keys()
