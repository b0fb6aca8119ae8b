# SPDX-License-Identifier: Apache-2.0
"""Audits: what is measured is on disk, strict JSON, and a broken claim is a violation."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.fuzz import audit as auditing
from assay.fuzz.audit import run_audit, sizes, trials_for
from assay.kernels.record import Kernel, kernel_named
from assay.kernels.target import adopt
from assay.oracles.formats import FP16, FP32

Command = Callable[..., Any]

WRONG = """\
import torch


def norm(x):
    out = torch.sqrt(torch.sum(x.float() * x.float())).to(x.dtype)
    return out * 2 if x.numel() > 16 else out
"""


def strict(path: Path) -> Any:
    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} in {path} is no JSON")

    return json.loads(path.read_bytes(), parse_constant=refuse)


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker processes: each takes seconds to start."""
    monkeypatch.setattr(auditing.os, "cpu_count", lambda: 1)


LARGEST = {"l2_norm.atomic": 256, "softmax.one_tile": 16}


@pytest.fixture(scope="module", params=LARGEST)
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a right kernel, measured once for all tests of it."""
    folder = tmp_path_factory.mktemp("audit") / request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auditing.os, "cpu_count", lambda: 1)
        kernel = replace(kernel_named(request.param), dtypes=("float32", "float16"))
        found = run_audit(
            [kernel], out=folder, quick=True, max_n=LARGEST[request.param], quiet=True
        )
    assert not found.violations, f"a right kernel is accused: {found.violations}"
    return folder


def test_the_file_is_strict_json_and_complete(measured: Path) -> None:
    data = strict(measured / "audit.json")
    assert (data["schema"], data["complete"], data["violations"]) == (1, True, [])
    found = {(c["kernel"], c["dtype"], c["family"]) for c in data["curves"]}
    expected = {
        (measured.name, dtype, family)
        for dtype in ("float32", "float16")
        for family in auditing.FAMILIES
    }
    assert found == expected, f"curves missing: {expected - found}, too many: {found - expected}"
    assert data["versions"]["triton"] and data["versions"]["device"], data["versions"]


def test_points_are_plausible(measured: Path) -> None:
    for curve in strict(measured / "audit.json")["curves"]:
        where = f"{curve['dtype']} {curve['family']}"
        ns = [p["n"] for p in curve["points"]]
        assert ns == [n for n in (1, 16, 256) if n <= LARGEST[measured.name]], f"{where}: {ns}"
        depths = [p["depth"] for p in curve["points"]]
        assert depths == sorted(depths), f"{where}: depths {depths} fall"
        for point in curve["points"]:
            at = f"{where}, N = {point['n']}: {point}"
            assert 0.0 <= point["share"] <= 1.0, at
            assert abs(point["mean"]) <= point["rms"] <= point["largest"] <= point["bound"], at
            assert 0.0 <= point["misrounded"] <= 1.0, at
            assert point["trials"] == len(point["errors"]) > 0, at
            each = 1 if curve["operation"] == "l2_norm" else point["n"]
            assert point["elements"] == point["rows"] * each, at


def test_there_is_a_page_and_plots(measured: Path) -> None:
    names = {p.name for p in measured.iterdir()}
    assert {"audit.json", "index.html"} <= names, names
    assert not [n for n in names if n.endswith(".tmp") or n.startswith(".")], names
    assert measured.name in (measured / "index.html").read_text(encoding="utf-8")


def far_off(x: torch.Tensor) -> torch.Tensor:
    out = torch.sqrt(torch.sum(x.float() * x.float())).to(x.dtype)
    return out * 2 if x.numel() > 16 else out


def norm(function: Callable[..., Any], *dtypes: str) -> Kernel:
    chosen = dtypes or ("float32",)
    return adopt(function, operation="l2_norm", dtypes=chosen, policies={"range": "naive"})


def test_a_wrong_kernel_is_reported_where_it_is_wrong(tmp_path: Path) -> None:
    found = run_audit([norm(far_off)], out=tmp_path, quick=True, max_n=256, quiet=True)
    assert found.violations, "an error of a factor of two is no violation?"
    for line in found.violations:
        assert "N=256" in line and "break the claims" in line and "\n" not in line, line
    data = strict(tmp_path / "audit.json")
    assert data["violations"] == found.violations
    shares = {p["n"]: p["share"] for c in data["curves"] for p in c["points"]}
    assert shares[16] <= 1.0 < shares[256], shares


def test_a_kernel_that_raises_ends_its_curves(tmp_path: Path) -> None:
    def raises(x: torch.Tensor) -> torch.Tensor:
        if x.numel() > 16:
            raise RuntimeError("too long for me")
        return torch.sqrt(torch.sum(x.float() * x.float()))

    found = run_audit([norm(raises)], out=tmp_path, quick=True, max_n=4096, quiet=True)
    assert len(found.violations) == len(auditing.FAMILIES), found.violations
    assert all("raised RuntimeError: too long for me" in v for v in found.violations)
    assert {p.n for c in found.curves for p in c.points} == {1, 16}, "later sizes were tried"


def test_nan_everywhere_is_a_violation_and_json(tmp_path: Path) -> None:
    found = run_audit(
        [norm(lambda x: x.sum() * float("nan"))], out=tmp_path, quick=True, max_n=1, quiet=True
    )
    assert found.violations, "NaN for finite input is no violation?"
    strict(tmp_path / "audit.json")


def test_an_interrupted_audit_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = auditing.measure_curve
    done: list[str] = []

    def interrupted(job: auditing.Job) -> auditing.Measured:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(job.family)
        return whole(job)

    monkeypatch.setattr(auditing, "measure_curve", interrupted)
    found = run_audit([norm(far_off)], out=tmp_path, quick=True, max_n=16, quiet=True)
    assert not found.complete
    data = strict(tmp_path / "audit.json")
    assert [c["family"] for c in data["curves"]] == done, data["curves"]
    assert data["complete"] is False
    assert (tmp_path / "index.html").is_file(), "no page of what was measured"
    assert "interrupted" in capsys.readouterr().err


def test_the_file_is_whole_after_each_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    whole = auditing.measure_curve

    def look(job: auditing.Job) -> auditing.Measured:
        path = tmp_path / "audit.json"
        seen.append(len(strict(path)["curves"]) if path.exists() else 0)
        return whole(job)

    monkeypatch.setattr(auditing, "measure_curve", look)
    run_audit([norm(far_off)], out=tmp_path, quick=True, max_n=1, quiet=True)
    assert seen == [0, 1, 2, 3], f"curves on disk ahead of each measurement: {seen}"


def test_the_final_rounding_is_recorded(tmp_path: Path) -> None:
    kernel = norm(far_off, "float32", "float16")
    found = run_audit([kernel], out=tmp_path, quick=True, max_n=1, quiet=True)
    casts = {c.dtype: c.cast for c in found.curves}
    assert casts == {FP32.name: casts["float32"], FP16.name: 0.5}, casts


@pytest.mark.usefixtures("one_process")
def test_a_right_kernel_from_the_command_line(assay: Command, tmp_path: Path) -> None:
    done = assay(
        *("audit", "l2_norm.atomic", "--quick", "--max-n", "16", "--dtypes", "float32"),
        *("--out", tmp_path / "report", "--json"),
    )
    assert (done.code, done.err) == (0, ""), done
    data = json.loads(done.out)
    assert data == strict(tmp_path / "report" / "audit.json"), "stdout and file differ"


def test_a_wrong_kernel_from_the_command_line(assay: Command, tmp_path: Path) -> None:
    """Through worker processes, which find the kernel by its file."""
    (tmp_path / "mine.py").write_text(WRONG, encoding="utf-8")
    done = assay(
        *("audit", f"{tmp_path}/mine.py:norm", "--operation", "l2_norm", "--quick"),
        *("--policy", "range=naive", "--max-n", "256", "--dtypes", "float32"),
        *("--out", tmp_path / "report"),
    )
    assert (done.code, done.err) == (1, ""), done
    assert "break the claims" in done.out and "N=256" in done.out, done
    assert f"report: {tmp_path / 'report' / 'index.html'}" in done.out, done
    assert strict(tmp_path / "report" / "audit.json")["violations"]


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("max_n", [1, 2, 15, 16, 1000, 1 << 17, 1 << 20])
def test_sizes_grow_to_the_limit(quick: bool, max_n: int) -> None:
    for kernel in (kernel_named("softmax.one_tile"), kernel_named("l2_norm.atomic")):
        found = sizes(kernel, max_n, quick)
        assert found[0] == 1 and found == sorted(set(found)), f"not increasing: {found}"
        assert found[-1] <= min(max_n, kernel.max_n or max_n), found
        if not quick:
            assert found[-1] == min(max_n, kernel.max_n or max_n), (
                f"the largest is left out: {found}"
            )
        counts = [trials_for(n, quick) for n in found]
        assert min(counts) >= 2 and counts == sorted(counts, reverse=True), counts
