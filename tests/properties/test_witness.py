# SPDX-License-Identifier: Apache-2.0
"""Witness files: written whole or not at all, read back as they were, and nothing else accepted."""

from __future__ import annotations

import errno
import io
import json
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from assay.kernels.record import Kernel, kernel_named
from assay.kernels.target import resolve
from assay.properties import witness as files
from assay.properties.case import Case, Data, Literal, Recipe, Special, Stored, build
from assay.properties.checks import run_check
from assay.properties.replay import replay
from assay.properties.tensors import load_bits
from assay.properties.values import value_text
from assay.properties.witness import WitnessError, make, read, save, write_atomically

KERNEL = """\
import torch


def wrong(x):
    return torch.sqrt(torch.sum(x.float() * x.float())).to(x.dtype) + 1
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL, encoding="utf-8")
    return resolve(f"{path}:wrong", operation="l2_norm", policies={"range": "naive"})


def witness_of(kernel: Kernel, data: Data, n: int, base: Path | None = None) -> files.Witness:
    case = Case("l2_norm", "float32", 1, n, {"x": data})
    (verdict,) = run_check("accuracy", kernel, [build(case, base)])
    assert verdict.failed, f"the kernel should be wrong on {case}"
    return make(kernel, case, verdict, base=base)


@pytest.fixture
def saved(kernel: Kernel, tmp_path: Path) -> Path:
    return save(witness_of(kernel, Recipe("normal", 4), 5), tmp_path / "witnesses")


def literal(values: np.ndarray) -> Literal:
    return Literal((tuple(value_text(v) for v in values.tolist()),))


def one_line(error: pytest.ExceptionInfo[BaseException], *words: str) -> None:
    text = str(error.value)
    assert "\n" not in text and text, f"not one line: {text!r}"
    for word in words:
        assert word in text, f"{word!r} is not in {text!r}"


def test_round_trip(kernel: Kernel, tmp_path: Path) -> None:
    made = witness_of(kernel, Recipe("normal", 4, -3, (Special("-0", 0, 1),)), 5)
    path = save(made, tmp_path / "new" / "folder")
    again = read(path)
    expected = msgspec.structs.replace(made, replay=f"assay replay {path}")
    assert again == expected, "the file does not hold what was saved"
    assert files.encode(again) == path.read_bytes(), "encoding what was read gives other bytes"


def test_it_holds_what_is_needed_to_see_the_failure(saved: Path, kernel: Kernel) -> None:
    found = read(saved)
    assert found.kernel == kernel.target
    assert found.policies == {"range": "naive"}, "the claims are not recorded"
    assert found.check == "accuracy" and found.property, "the check is not recorded"
    assert len(found.output) == 1 and len(found.output[0][0]) == 8, found.output
    assert set(found.inputs) == {"x"} and len(found.inputs["x"]) == 64, found.inputs
    assert found.source_sha256 == kernel.source_hash != ""
    assert found.versions == files.versions()
    assert found.found["share"] > 1.0, found.found


def test_it_reads_well_in_a_diff(saved: Path) -> None:
    text = saved.read_text(encoding="utf-8")
    assert text.endswith("}\n") and not text.endswith("\n\n"), "no single newline at the end"
    assert len(text.splitlines()) > 20, "not indented"
    longest = max(text.splitlines(), key=len)
    assert len(longest) <= 400, f"a line of {len(longest)} characters: {longest[:80]}..."


def test_an_infinite_error_is_json_and_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "infinite.py"
    path.write_text(KERNEL.replace("+ 1", "* float('nan')"), encoding="utf-8")
    kernel = resolve(f"{path}:wrong", operation="l2_norm", policies={"range": "naive"})
    where = save(witness_of(kernel, Recipe("ones"), 1), tmp_path)

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is no JSON")

    json.loads(where.read_bytes(), parse_constant=refuse)
    assert read(where).check == "accuracy"


def test_replay_command_survives_a_shell(kernel: Kernel, tmp_path: Path) -> None:
    path = save(witness_of(kernel, Recipe("ones"), 1), tmp_path / "my folder")
    command = read(path).replay
    assert shlex.split(command) == ["assay", "replay", str(path)], (
        f"a shell takes the command apart in another way: {command}"
    )


def test_a_registered_kernel_goes_by_its_name(tmp_path: Path) -> None:
    kernel = kernel_named("softmax.other_zero")
    case = Case("softmax", "float32", 1, 3, {"x": literal(np.array([-20.0, -21.0, -22.0]))})
    (verdict,) = run_check("accuracy", kernel, [build(case)])
    found = read(save(make(kernel, case, verdict), tmp_path))
    assert (found.kernel, found.pitfall) == ("softmax.other_zero", "PAD-IDENTITY")
    again = replay(found, tmp_path)
    assert again.persists and again.same_bits and not again.changes, again.describe()


# Large tensors.


@pytest.fixture
def large(kernel: Kernel, tmp_path: Path) -> Path:
    values = np.linspace(0.0, 1.0, 4097).astype(np.float32).astype(np.float64)
    return save(witness_of(kernel, literal(values), 4097), tmp_path / "large")


def beside(path: Path) -> Path:
    """The file with the tensors of a witness."""
    (found,) = path.parent.glob("*.safetensors")
    return found


def test_large_tensors_go_beside_the_file(large: Path) -> None:
    data = read(large).case.operands["x"]
    assert isinstance(data, Stored), f"4097 values are spelled out: {data}"
    assert data.file == beside(large).name, f"not a path from the witness: {data.file}"
    assert data.sha256 == read(large).inputs["x"] == load_bits(beside(large), "x").digest
    assert len(large.read_bytes()) < 10_000, "the witness is no small file"
    assert {p.suffix for p in large.parent.iterdir()} == {".json", ".safetensors"}


def test_a_witness_and_its_tensors_move_together(large: Path, tmp_path: Path) -> None:
    there = tmp_path / "elsewhere"
    shutil.move(large.parent, there)
    again = replay(read(there / large.name), there)
    assert again.persists and again.same_bits, again.describe()


def test_tensors_are_as_readable_as_the_witness(large: Path) -> None:
    modes = {p.name: oct(p.stat().st_mode & 0o777) for p in large.parent.iterdir()}
    assert set(modes.values()) == {"0o644"}, f"a colleague or CI cannot read both: {modes}"


def test_a_users_tensor_is_copied(kernel: Kernel, tmp_path: Path) -> None:
    np.save(tmp_path / "captured.npy", np.arange(3, dtype=np.float32))
    digest = load_bits(tmp_path / "captured.npy").digest
    made = witness_of(kernel, Stored("captured.npy", "", digest), 3, base=tmp_path)
    path = save(made, tmp_path / "w", base=tmp_path)
    (tmp_path / "captured.npy").unlink()
    again = replay(read(path), path.parent)
    assert again.persists and again.same_bits, again.describe()


def test_changed_tensors_are_noticed(large: Path) -> None:
    content = bytearray(beside(large).read_bytes())
    content[-1] ^= 1
    beside(large).write_bytes(content)
    with pytest.raises(WitnessError) as error:
        replay(read(large), large.parent)
    one_line(error, "cannot be rebuilt", "not the tensor of this case", "SHA-256")


def test_missing_tensors_are_noticed(large: Path) -> None:
    beside(large).unlink()
    with pytest.raises(WitnessError) as error:
        replay(read(large), large.parent)
    one_line(error, "cannot be rebuilt", "No such file")


# Reading.


def edited(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    data = json.loads(path.read_bytes())
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


EDITS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "unknown field": (lambda d: d.update(colour="red"), "colour"),
    "unknown field of the case": (lambda d: d["case"].update(colour="red"), "colour"),
    "unknown field of the operand": (lambda d: d["case"]["operands"]["x"].update(a=1), "`a`"),
    "unknown kind of operand": (lambda d: d["case"]["operands"]["x"].update(type="magic"), "magic"),
    "missing field": (lambda d: d.pop("check"), "check"),
    "number as text": (lambda d: d["case"].update(n="5"), "$.case.n"),
    "text as number": (lambda d: d.update(kernel=3), "$.kernel"),
    "fraction as count": (lambda d: d["case"].update(rows=1.5), "$.case.rows"),
    "yes as count": (lambda d: d["case"].update(rows=True), "$.case.rows"),
    "null": (lambda d: d.update(output=None), "$.output"),
    "other schema": (lambda d: d.update(schema=2), "schema 2"),
    "schema in words": (lambda d: d.update(schema="one"), "schema 'one'"),
    "yes as schema": (lambda d: d.update(schema=True), "schema"),
    "no schema": (lambda d: d.pop("schema"), "no schema version"),
}


@pytest.mark.parametrize("name", EDITS)
def test_reading_is_strict(name: str, saved: Path) -> None:
    change, word = EDITS[name]
    with pytest.raises(WitnessError) as error:
        read(edited(saved, change))
    one_line(error, str(saved), word)


CONTENTS = {
    "empty": b"",
    "blank": b"\n",
    "list": b"[]",
    "null": b"null",
    "number": b"17",
    "text": b"this is no JSON",
    "binary garbage": bytes(range(256)) * 4,
    "UTF-16": '{"schema": 1}'.encode("utf-16"),
    "bad UTF-8": b'{"schema": 1, "replay": "\xff\xfe"}',
    "deep nesting": b"[" * 200_000,
    "deep nesting inside": b'{"schema": 1, "found": ' + b"[" * 200_000,
    "NaN": b'{"schema": NaN}',
}


@pytest.mark.parametrize("name", CONTENTS)
def test_what_is_no_witness_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(CONTENTS[name])
    with pytest.raises(WitnessError) as error:
        read(path)
    one_line(error, str(path))


def test_a_half_written_file_is_refused_wherever_it_was_cut(saved: Path) -> None:
    content = saved.read_bytes()
    for length in range(0, len(content) - 2, 97):
        saved.write_bytes(content[:length])
        with pytest.raises(WitnessError) as error:
            read(saved)
        one_line(error, str(saved))


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path, word in ((tmp_path / "none.json", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(WitnessError) as error:
            read(path)
        one_line(error, str(path), word)


RECIPE = {"type": "recipe", "family": "ones"}
UNBUILDABLE: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "wrong checksum": (lambda d: d["inputs"].update(x="0" * 64), "recorded checksum"),
    "no checksum": (lambda d: d.update(inputs={}), "recorded checksum"),
    "checksum of nothing": (lambda d: d["inputs"].update(weight="0" * 64), "recorded checksum"),
    "other seed": (lambda d: d["case"]["operands"]["x"].update(seed=5), "recorded checksum"),
    "seed beyond 64 bits": (lambda d: d["case"]["operands"]["x"].update(seed=1 << 70), "rebuilt"),
    "negative seed": (lambda d: d["case"]["operands"]["x"].update(seed=-1), "rebuilt"),
    "other length": (lambda d: d["case"].update(n=6), "recorded checksum"),
    "negative length": (lambda d: d["case"].update(n=-6), "negative"),
    "two rows of an array": (lambda d: d["case"].update(rows=2), "rows must be 1"),
    "unknown dtype": (lambda d: d["case"].update(dtype="float8"), "float8"),
    "unknown family": (lambda d: d["case"]["operands"]["x"].update(family="odd"), "odd"),
    "unknown operation": (lambda d: d["case"].update(operation="product"), "product"),
    "unknown operand": (lambda d: d["case"].update(operands={"y": RECIPE}), "'y'"),
    "no operand": (lambda d: d["case"].update(operands={}), "needs the operand x"),
    "unknown parameter": (lambda d: d["case"].update(params={"eps": 1.0}), "eps"),
    "length beyond memory": (lambda d: d["case"].update(n=1 << 50), "rebuilt"),
}


@pytest.mark.parametrize("name", UNBUILDABLE)
def test_an_input_that_cannot_be_rebuilt_is_refused(name: str, saved: Path) -> None:
    change, word = UNBUILDABLE[name]
    with pytest.raises(WitnessError) as error:
        replay(read(edited(saved, change)), saved.parent)
    one_line(error, "the input cannot be rebuilt", word)


# Writing.


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullDisk(io.BufferedWriter):
    """A file on a disk that has no room left."""

    def write(self, *_: object) -> int:
        full()
        return 0


def open_handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


FAILURES: dict[str, tuple[str, Any]] = {
    "write": ("os.fdopen", lambda handle, mode: FullDisk(io.FileIO(handle, mode))),
    "flush to disk": ("os.fsync", full),
    "rename": ("pathlib.Path.replace", full),
}


@pytest.mark.parametrize("when", FAILURES)
@pytest.mark.parametrize("there_before", [True, False], ids=["old file", "no old file"])
def test_a_failed_write_leaves_what_was_there(
    when: str, there_before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.json"
    if there_before:
        path.write_bytes(b"old")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    handles = open_handles()
    with monkeypatch.context() as patch:
        patch.setattr(*FAILURES[when])
        with pytest.raises(OSError, match="No space left") as error:
            write_atomically(path, b"new")
    assert error.value.errno == errno.ENOSPC
    after = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert after == before, f"files before: {sorted(before)}, after: {sorted(after)}"
    assert open_handles() == handles, "a file was left open"


def test_an_interrupted_write_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b"old")

    def interrupt(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file.json"]


def test_a_write_replaces_the_old_file_and_leaves_no_other(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    for content in (b"first", b"second"):
        write_atomically(path, content)
        assert path.read_bytes() == content
        assert [p.name for p in tmp_path.iterdir()] == ["file.json"]
    assert oct(path.stat().st_mode & 0o777) == "0o644"


@pytest.mark.parametrize("n", [5, 4097])
def test_saving_to_a_full_disk_leaves_nothing(
    n: int, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = witness_of(kernel, literal(np.ones(n)), n)
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(WitnessError) as error:
        save(made, tmp_path / "w")
    one_line(error, str(tmp_path / "w"), "No space left")
    left = sorted(p.name for p in (tmp_path / "w").iterdir())
    assert not left, f"a failed save leaves {left}"


def test_tensors_that_cannot_be_written_leave_no_temporary_file(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = witness_of(kernel, literal(np.ones(4097)), 4097)
    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(WitnessError) as error:
        save(made, tmp_path / "w")
    one_line(error, "No space left")
    assert not list((tmp_path / "w").iterdir()), list((tmp_path / "w").iterdir())


def test_a_folder_that_cannot_be_made_is_named(kernel: Kernel, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(WitnessError) as error:
        save(witness_of(kernel, Recipe("ones"), 1), tmp_path / "file" / "w")
    one_line(error, str(tmp_path / "file"), "Not a directory")
