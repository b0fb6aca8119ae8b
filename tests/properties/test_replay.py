# SPDX-License-Identifier: Apache-2.0
"""Replaying witnesses: the same bits and the same verdict in a new process, or a clear refusal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from assay.fuzz.cli import main
from assay.kernels import device
from assay.kernels.record import Kernel, kernel_named
from assay.kernels.target import resolve
from assay.properties.case import Case, Layout, Literal, Recipe, Special, build
from assay.properties.checks import run_check
from assay.properties.replay import kernel_of, replay
from assay.properties.witness import Witness, encode, make, read, save

WRONG = """\
import torch


def norm(x):
    return torch.sqrt(torch.sum(x.float() * x.float())).to(x.dtype) * 1.5
"""
REPAIRED = WRONG.replace(" * 1.5", "")

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def assay(capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line in this process: (exit status, stdout, stderr)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        code = stopped.value.code
        return int(code or 0), out, err

    return run


def in_new_process(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command line in a process that finds the packages where this one does."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    return subprocess.run(
        [sys.executable, "-c", "from assay.fuzz.cli import main; main()", *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(WRONG, encoding="utf-8")
    return path


def failing(kernel: Kernel, check: str, case: Case) -> Witness:
    (verdict,) = run_check(check, kernel, [build(case)])
    assert verdict.failed, f"{kernel.name} should fail {check} on {case}"
    return make(kernel, case, verdict)


@pytest.fixture
def saved(source: Path, tmp_path: Path) -> Path:
    """A witness of the user's kernel."""
    kernel = resolve(f"{source}:norm", operation="l2_norm", policies={"range": "naive"})
    case = Case("l2_norm", "float32", 1, 7, {"x": Recipe("normal", 3)})
    return save(failing(kernel, "accuracy", case), tmp_path / "w")


FAULTS = {
    "other_zero": Case(
        "softmax",
        "bfloat16",
        2,
        5,
        {"x": Recipe("negative", 6)},
        layout=Layout(3, 1),
        launch={"BLOCK_M": 1, "BLOCK_N": 8, "num_warps": 1},
    ),
    "nan_to_zero": Case("softmax", "float16", 1, 3, {"x": Literal((("-inf", "nan", "0x1.8p-3"),))}),
}


def test_a_new_process_gives_the_same_bits_and_the_same_verdict(
    saved: Path, tmp_path: Path
) -> None:
    checks = {"other_zero": "accuracy", "nan_to_zero": "special_values"}
    faults = [
        save(failing(kernel_named(f"softmax.{name}"), checks[name], case), tmp_path / "faults")
        for name, case in FAULTS.items()
    ]
    paths = [saved, *faults]
    done = in_new_process("replay", "--json", "--device", device.select(), *paths)
    assert done.returncode == 1, f"exit {done.returncode}: {done.stdout}{done.stderr}"
    found = json.loads(done.stdout)
    assert [r["witness"] for r in found] == [str(p) for p in paths]
    for path, result in zip(paths, found, strict=True):
        assert result["persists"], f"{path.name} no longer fails: {result}"
        assert result["same_bits"], f"{path.name} gives other bits: {result}"
        assert result["message"] == read(path).message, f"{path.name} says something else"
        assert not result["changes"], f"nothing has changed: {result['changes']}"


def test_a_repaired_kernel_holds_in_a_new_process(saved: Path, source: Path) -> None:
    source.write_text(REPAIRED, encoding="utf-8")
    done = in_new_process("replay", "--device", device.select(), saved)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stdout}{done.stderr}"
    assert "no longer fails" in done.stdout, done.stdout
    assert "changed since: the kernel's source file" in done.stdout, done.stdout
    assert not done.stderr, done.stderr


def test_exit_status_and_text_of_a_violation_that_persists(saved: Path, assay: Command) -> None:
    code, out, err = assay("replay", saved)
    assert (code, err) == (1, ""), (code, out, err)
    assert "still fails, same output bits as recorded" in out, out
    assert "outside the proved bound" in out, out
    assert str(read(saved).case) in out, out


def test_one_violation_among_several_witnesses_decides(
    saved: Path, source: Path, tmp_path: Path, assay: Command
) -> None:
    other = tmp_path / "other.py"
    other.write_text(WRONG, encoding="utf-8")
    kernel = resolve(f"{other}:norm", operation="l2_norm", policies={"range": "naive"})
    case = Case("l2_norm", "float32", 1, 2, {"x": Recipe("ones")})
    second = save(failing(kernel, "accuracy", case), tmp_path / "w")
    source.write_text(REPAIRED, encoding="utf-8")
    code, out, _ = assay("replay", "--json", saved, second)
    assert code == 1, out
    assert [r["persists"] for r in json.loads(out)] == [False, True], out


def test_a_kernel_that_changed_and_still_fails_is_said_to_have_changed(
    saved: Path, source: Path, assay: Command
) -> None:
    source.write_text(WRONG.replace("1.5", "1.25"), encoding="utf-8")
    code, out, _ = assay("replay", saved)
    assert code == 1, out
    assert "still fails, other output bits" in out, out
    assert "changed since: the kernel's source file" in out, out


def test_other_versions_are_named(saved: Path) -> None:
    found = read(saved)
    old = msgspec.structs.replace(found.versions, triton="2.0.0", name="Another GPU")
    again = replay(msgspec.structs.replace(found, versions=old), saved.parent)
    text = again.describe()
    assert again.persists and again.same_bits, text
    assert f"changed since: triton 2.0.0 -> {found.versions.triton}" in text, text
    assert f"changed since: name Another GPU -> {found.versions.name}" in text, text


def test_other_bits_without_a_known_change_are_counted(saved: Path) -> None:
    found = msgspec.structs.replace(read(saved), output=(("00000000",),))
    text = replay(found, saved.parent).describe()
    assert "1 of 1 output elements differ though nothing is known to have changed" in text, text


def test_the_recorded_claims_are_the_ones_replayed(saved: Path) -> None:
    found = read(saved)
    claims = msgspec.structs.replace(found, policies={"range": "scaled"}, dtypes=("float32",))
    kernel = kernel_of(claims)
    assert dict(kernel.policies) == {"range": "scaled"}
    assert kernel.dtypes == ("float32",)


def test_launch_and_layout_are_the_recorded_ones() -> None:
    kernel = kernel_named("softmax.other_zero")
    found = failing(kernel, "accuracy", FAULTS["other_zero"])
    assert found.launch == FAULTS["other_zero"].launch
    assert found.case.layout == Layout(3, 1)
    default = msgspec.structs.replace(FAULTS["other_zero"], launch={})
    made = failing(kernel, "accuracy", default)
    assert made.launch == kernel.default_config(2, 5, "bfloat16"), (
        "the default is spelled out, so that it can change later"
    )


def test_a_check_that_says_nothing_any_more_is_no_violation(saved: Path, assay: Command) -> None:
    found = msgspec.structs.replace(read(saved), check="residual")
    saved.write_bytes(encode(found))
    code, out, _ = assay("replay", saved)
    assert code == 0, out
    assert "the check no longer speaks about this case" in out, out


UNREADABLE: dict[str, Callable[[Path], object]] = {
    "empty": lambda p: p.write_bytes(b""),
    "garbage": lambda p: p.write_bytes(bytes(range(256))),
    "half": lambda p: p.write_bytes(p.read_bytes()[:300]),
    "missing": lambda p: p.unlink(),
    "other schema": lambda p: p.write_bytes(p.read_bytes().replace(b'"schema": 1', b'"schema": 9')),
    "checksum": lambda p: p.write_bytes(p.read_bytes().replace(b'"seed": 3', b'"seed": 4')),
    "unknown check": lambda p: p.write_bytes(p.read_bytes().replace(b'"accuracy"', b'"speed"')),
    "unknown policy": lambda p: p.write_bytes(p.read_bytes().replace(b'"naive"', b'"lazy"')),
    "unknown operation": lambda p: p.write_bytes(p.read_bytes().replace(b'"l2_norm"', b'"l3"')),
    "unknown function": lambda p: p.write_bytes(p.read_bytes().replace(b"mine.py:norm", b"mine.py:x")),  # noqa: E501
    "kernel file gone": lambda p: (p.parent.parent / "mine.py").unlink(),
    "kernel file broken": lambda p: (p.parent.parent / "mine.py").write_text("def ("),
    "kernel raises on import": lambda p: (p.parent.parent / "mine.py").write_text("1 / 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_replayed_gives_one_line_and_status_2(
    name: str, saved: Path, assay: Command
) -> None:
    before = saved.read_bytes()
    UNREADABLE[name](saved)
    if "kernel" not in name:
        assert not saved.exists() or saved.read_bytes() != before, "the file was not damaged"
    for options in ((), ("--json",)):
        code, out, err = assay("replay", *options, saved)
        assert code == 2, f"exit {code}: {out}{err}"
        assert err.startswith("assay: ") and err.count("\n") == 1, f"not one line: {err!r}"
        assert not out, f"stdout should be empty: {out!r}"


def test_an_unreadable_witness_stops_the_run_before_any_kernel(saved: Path, assay: Command) -> None:
    bad = saved.with_name("bad.json")
    bad.write_bytes(b"{}")
    code, out, err = assay("replay", saved, bad)
    assert (code, out) == (2, ""), f"something ran before the bad file was seen: {out}"
    assert str(bad) in err, err


def test_record_keeps_the_case_and_renews_the_output(saved: Path, assay: Command) -> None:
    before = read(saved)
    saved.write_bytes(encode(msgspec.structs.replace(before, output=(), message="old")))
    code, out, err = assay("replay", "--record", saved)
    assert (code, out, err) == (1, "", "")
    assert read(saved) == before, "recording gives something else than what was first made"


def test_a_violation_by_raising_replays(tmp_path: Path) -> None:
    path = tmp_path / "raises.py"
    path.write_text("def norm(x):\n    raise RuntimeError('too\\nbad')\n", encoding="utf-8")
    kernel = resolve(f"{path}:norm", operation="l2_norm")
    case = Case("l2_norm", "float32", 1, 1, {"x": Recipe("ones")})
    where = save(failing(kernel, "accuracy", case), tmp_path)
    assert read(where).output == (), "a kernel that raises has no output"
    again = replay(read(where), where.parent)
    assert again.persists and again.same_bits, again.describe()
    assert "raised RuntimeError: too bad" in again.describe(), again.describe()


def test_special_values_survive_the_file(tmp_path: Path) -> None:
    """The input of each dtype is rebuilt bit for bit, NaN and subnormals too."""
    kernel = kernel_named("softmax.nan_to_zero")
    for dtype in kernel.dtypes:
        # The interpreter does not load subnormal bfloat16, so nothing fails there.
        small = "smallest_normal" if dtype == "bfloat16" else "smallest_subnormal"
        specials = tuple(
            Special(value, 0, i) for i, value in enumerate(("nan", "-inf", "-0", small, "-largest"))
        )
        case = Case("softmax", dtype, 1, 6, {"x": Recipe("normal", 1, 0, specials)})
        made = failing(kernel, "special_values", case)
        again = replay(read(save(made, tmp_path)), tmp_path)
        assert again.persists and again.same_bits, f"{dtype}: {again.describe()}"
