# SPDX-License-Identifier: Apache-2.0
"""`assay tolerance`: the line to copy, its derivation, the inverse, the self-audit, bad input."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.fuzz import tolerance as command
from assay.fuzz.tolerance import claims_of
from assay.kernels import record
from assay.kernels.record import kernels
from assay.oracles.operation import operations
from assay.oracles.tolerances import power
from assay.oracles.tolerances.curve_files import load
from assay.oracles.tolerances.power import audit
from assay.oracles.tolerances.tolerance import largest_n, tolerance

Command = Callable[..., Any]

LINE = re.compile(
    r"torch\.testing\.assert_close\(out\.double\(\), ref, rtol=(\S+), atol=(\S+)\)", re.ASCII
)
L2 = ("tolerance", "l2_norm", "--n", 1_000_000, "--dtype", "float32")


def test_line_and_derivation(assay: Command) -> None:
    done = assay(*L2, "--kernel", "l2_norm.atomic")
    assert done.code == 0, done
    assert not done.err
    first, empty, *text = done.out.splitlines()
    found = LINE.fullmatch(first)
    assert found and not empty
    expected = tolerance("l2_norm", 10**6, "float32", kernel=claims_of(kernels()["l2_norm.atomic"]))
    assert expected.rtol <= float(found[1]) <= 1.01 * expected.rtol
    assert "\n".join(text) == expected.text


def test_measured_errors_lie_within_their_tolerances() -> None:
    """The committed curves themselves: nothing measured is outside the tolerance made from it."""
    statistical = 0
    found = load()
    for curve in found:
        kernel = kernels().get(curve.kernel)
        if kernel is None or curve.family not in ("normal", "uniform"):
            continue
        for p in curve.points:
            t = tolerance(
                curve.operation,
                p.n,
                curve.dtype,
                kernel=claims_of(kernel),
                family=curve.family,
                curves=found,
                rows=max(1, p.rows // p.trials),
                checks=p.trials,
            )
            statistical += t.kind == "statistical"
            assert p.largest <= t.ulps, (curve.kernel, curve.dtype, p.n)
    assert statistical >= 50


def test_json_is_the_same_and_nothing_else(assay: Command) -> None:
    done = assay(*L2, "--kernel", "l2_norm.atomic", "--json")
    assert done.code == 0, done
    data = json.loads(done.out)
    (found,) = data["outputs"]
    expected = tolerance("l2_norm", 10**6, "float32", kernel=claims_of(kernels()["l2_norm.atomic"]))
    assert (found["rtol"], found["atol"]) == (expected.rtol, expected.atol)
    assert found["line"] == expected.line and found["kind"] == expected.kind
    assert found["bound"]["rtol"] == expected.bound[0]
    assert found["provenance"]["depth"] == expected.depth
    assert data["notes"] == []


def test_several_outputs_have_a_line_each(assay: Command) -> None:
    done = assay("tolerance", "mean_variance", "--n", 64, "--dtype", "float16", "--kernel", "any")
    assert done.code == 0, done
    assert "# mean\n" in done.out and "# variance\n" in done.out
    assert len(LINE.findall(done.out)) == 2
    assert "No kernel: the bound of any order" in done.out


def test_the_first_registered_kernel_is_named(
    assay: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = kernels()["rms_norm.one_tile"]
    two = replace(one, name="rms_norm.another")
    monkeypatch.setattr(record, "kernels", lambda: {k.name: k for k in (two, one)})
    asked = ("tolerance", "rms_norm", "--n", 512, "--dtype", "float32")
    done = assay(*asked)
    assert done.code == 0, done
    assert "For rms_norm.another, the first registered kernel; there are also" in done.out
    assert "rms_norm.one_tile" in done.out
    monkeypatch.setattr(record, "kernels", dict)
    done = assay(*asked)
    assert done.code == 0, done
    assert "No kernel is registered for rms_norm in float32." in done.out
    assert "A claimed order is sharper" in done.out


def test_largest_n(assay: Command) -> None:
    asked = ("tolerance", "l2_norm", "--dtype", "float32", "--kernel", "l2_norm.atomic")
    asked = (*asked, "--largest-n", "--error", 2.0**-17)
    done = assay(*asked)
    assert done.code == 0, done
    claims = claims_of(kernels()["l2_norm.atomic"])
    expected = largest_n("l2_norm", "float32", 2.0**-17, kernel=claims)
    assert f"N = {expected.n:,} is the largest N" in done.out
    assert expected.limit in done.out
    data = json.loads(assay(*asked, "--json").out)
    assert data["largest_n"] == expected.n and data["limit"] == expected.limit


def test_own_curves_from_an_option_and_from_the_project(
    assay: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "curves" / "mine"
    mine.mkdir(parents=True)
    source = Path(next(c.source for c in load()))
    text = source.read_text("utf-8").replace("NVIDIA H200", "My GPU")
    (mine / "audit.json").write_text(text, "utf-8")
    asked = ("tolerance", "l2_norm", "--n", 64, "--dtype", "float32", "--kernel", "l2_norm.atomic")
    assert "My GPU" in assay(*asked, "--curves", tmp_path / "curves").out
    monkeypatch.chdir(tmp_path)
    assert "My GPU" not in assay(*asked).out
    project = tmp_path / "pyproject.toml"
    project.write_text('[tool.assay]\ncurves = "curves"\n', "utf-8")
    assert "My GPU" in assay(*asked).out
    assert "NVIDIA H200" in assay(*asked, "--device-name", "nvidia-h200").out
    project.write_text("[tool.assay]\ncurves = 3\n", "utf-8")
    done = assay(*asked)
    assert done.code == 2 and "curves must be a folder" in done.err
    project.write_text("[tool", "utf-8")
    done = assay(*asked)
    assert done.code == 2 and "not TOML" in done.err
    project.write_text('[tool.assay]\ncurves = "none yet"\n', "utf-8")
    assert assay(*asked).code == 0
    (mine / "audit.json").write_text("{", "utf-8")
    done = assay(*asked, "--curves", tmp_path / "curves")
    assert done.code == 2 and "not JSON" in done.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "which operation?"),
        (("l3_norm", "--n", 4, "--dtype", "float32"), "unknown operation 'l3_norm'"),
        (("sum", "--n", 4), "--dtype is missing"),
        (("sum", "--dtype", "float32"), "--n is missing"),
        (("sum", "--n", 4, "--dtype", "int8"), "unknown dtype 'int8'"),
        (("sum", "--n", 4, "--dtype", "float32", "--family", "gauss"), "unknown data family"),
        (("sum", "--n", 4, "--dtype", "float32", "--error", 1), "--error belongs to --largest-n"),
        (("sum", "--dtype", "float32", "--largest-n"), "needs --error"),
        (("sum", "--n", 4, "--dtype", "float32", "--false-alarm", 2), "between 0 and 1"),
        (("sum", "--n", 4, "--dtype", "float32", "--device-name", "h9"), "no curves of device"),
        (("sum", "--n", 4, "--dtype", "float32", "--kernel", "nope"), "unknown kernel"),
        (("sum", "--n", 4, "--dtype", "float32", "--kernel", "l2_norm.atomic"), "not sum"),
        (("sum", "--n", 1 << 25, "--dtype", "float32", "--kernel", "any"), "no bound exists"),
        (("--self-audit", "l3_norm"), "unknown operation"),
    ],
)
def test_bad_input_is_one_line(assay: Command, arguments: tuple[Any, ...], says: str) -> None:
    done = assay("tolerance", *arguments)
    assert done.code == 2, done
    assert says in done.err and done.err.count("\n") == 1 and done.err.startswith("assay: ")
    assert not done.out


def test_self_audit(assay: Command) -> None:
    done = assay("tolerance", "--self-audit", "l2_norm", "--max-n", 64)
    assert done.code == 0, done
    assert "\x1b" not in done.out
    assert "none survives" in done.out
    for words in ("zeros", "dropped", "half", "bfloat16", "blind", "margin", "idle"):
        assert words in done.out
    data = json.loads(assay("tolerance", "--self-audit", "l2_norm", "--max-n", 64, "--json").out)
    assert data["survivors"] == [] and len(data["lines"]) == 15


def test_self_audit_fails_where_a_cheat_survives(
    assay: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def weak(*arguments: Any, **options: Any) -> Any:
        return audit(["sum"], criteria=["tolerance"], max_n=1 << 20, dtypes=["float32"], curves=[])

    monkeypatch.setattr(power, "audit", weak)
    monkeypatch.setattr(command, "_registered_claims", dict)
    done = assay("tolerance", "--self-audit")
    assert done.code == 1, done
    assert "survives: sum float32, a kernel that " in done.out


def test_needs_no_gpu_and_no_device_choice(assay_in_new_process: Command) -> None:
    done = assay_in_new_process(*L2)
    assert done.code == 0, done
    assert LINE.match(done.out)


@pytest.mark.parametrize("name", list(operations()))
def test_every_operation_has_one(assay: Command, name: str) -> None:
    done = assay("tolerance", name, "--n", 1000, "--dtype", "bfloat16")
    assert done.code == 0, done
    assert LINE.search(done.out)
