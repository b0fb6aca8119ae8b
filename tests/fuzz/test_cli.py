# SPDX-License-Identifier: Apache-2.0
"""The command line: exit status, one clear line for what is wrong, JSON that is nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from assay.fuzz import checking
from assay.kernels import device
from assay.kernels.record import faults, kernels
from assay.oracles.operation import operations
from assay.properties.checks import checks

Command = Callable[..., Any]

REAL = Path(str(files("assay.oracles"))) / "data" / "minilm.safetensors"

KERNELS = """\
import torch


def right(x):
    return torch.sqrt(torch.sum(x.float() * x.float())).to(x.dtype)


def wrong(x):
    return right(x) * 2


def raises(x):
    raise RuntimeError("out of luck")


def soft(x):
    return torch.nan_to_num(torch.softmax(x.float(), dim=-1)).to(x.dtype)


NUMBER = 3
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(KERNELS, encoding="utf-8")
    return path


@pytest.fixture
def tensors(tmp_path: Path) -> Path:
    """A folder of tensor files, good and bad."""
    folder = tmp_path / "tensors"
    folder.mkdir()
    matrix = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    many = {"a": matrix, "w": torch.ones(4), "long": torch.ones(5)}
    many |= {"ints": matrix.int(), "double": matrix.double(), "half": matrix.half()}
    save_file(many, folder / "many.safetensors")
    save_file({"only": matrix}, folder / "one.safetensors")
    np.save(folder / "matrix.npy", matrix.numpy())
    np.save(folder / "vector.npy", np.arange(5, dtype=np.float32))
    np.save(folder / "cube.npy", np.ones((2, 3, 4), dtype=np.float32))
    np.save(folder / "scalar.npy", np.float32(3))
    whole = (folder / "one.safetensors").read_bytes()
    (folder / "cut.safetensors").write_bytes(whole[:-7])
    (folder / "cut.npy").write_bytes((folder / "matrix.npy").read_bytes()[:-7])
    (folder / "garbage.safetensors").write_bytes(bytes(range(256)))
    (folder / "garbage.npy").write_bytes(bytes(range(256)))
    (folder / "text.csv").write_text("1,2\n", encoding="utf-8")
    return folder


def refused(done: Any, *words: str, status: int = 2) -> None:
    """Checks that a command said one line and stopped."""
    assert done.code == status, f"expected exit {status}\n{done}"
    assert done.err.startswith("assay: "), f"not our own message\n{done}"
    assert done.err.count("\n") == 1, f"more than one line\n{done}"
    assert "Traceback" not in done.err + done.out, done
    assert not done.out, f"something on stdout\n{done}"
    for word in words:
        assert word in done.err, f"{word!r} is not in the message\n{done}"


def parsed(done: Any) -> Any:
    """The JSON of a command that wrote JSON and nothing else."""

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is no JSON\n{done}")

    assert not done.err, f"something on stderr\n{done}"
    return json.loads(done.out, parse_constant=refuse)


# Help.

OPTIONS = {
    "list": ["--json", "--device"],
    "check": [
        *["--input", "--check", "--examples", "--seed", "--out", "--no-witness", "--operation"],
        *["--dtypes", "--accumulator", "--policy", "--json", "--device", "FILE", "kernel"],
    ],
    "minimise": ["--input", "--check", "--out", "--operation", "--dtypes", "--policy", "--device"],
    "replay": ["--json", "--device", "witnesses"],
    "audit": ["--quick", "--max-n", "--out", "--dtypes", "--operation", "--json", "--device"],
    "doctor": ["--json"],
    "tolerance": [
        "--n",
        "--dtype",
        "--kernel",
        "--family",
        "--false-alarm",
        "--largest-n",
        "--json",
    ],
}


def test_help_names_every_command(assay: Command) -> None:
    done = assay("--help")
    assert done.code == 0, done
    for command in OPTIONS:
        assert command in done.out, f"{command} is missing\n{done}"


@pytest.mark.parametrize("command", OPTIONS)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_of_a_command(command: str, flag: str, assay: Command) -> None:
    done = assay(command, flag)
    assert (done.code, done.err) == (0, ""), done
    for option in OPTIONS[command]:
        assert option in done.out, f"{option} is missing\n{done}"
    assert "--record" not in done.out, "an internal option is shown"


def test_every_command_is_covered_here() -> None:
    from assay.fuzz.cli import app

    named = {c.name or c.callback.__name__ for c in app.registered_commands}
    assert named == set(OPTIONS), "a command without a test of its help"


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("check",),
        ("minimise", "softmax.one_tile"),
        ("replay",),
        ("check", "softmax.one_tile", "--speed"),
        ("check", "softmax.one_tile", "--examples", "-1"),
        ("check", "softmax.one_tile", "--examples", "many"),
        ("list", "--device", "abacus"),
        ("audit", "--max-n", "0"),
    ],
    ids=" ".join,
)
def test_misuse_is_status_2(arguments: tuple[str, ...], assay: Command) -> None:
    done = assay(*arguments)
    assert done.code == 2, done
    assert done.err and "Traceback" not in done.err, done
    assert not done.out, f"usage belongs on stderr\n{done}"


# List and doctor.


def test_list_shows_everything(assay: Command) -> None:
    done = assay("list")
    assert (done.code, done.err) == (0, ""), done
    for name in (*operations(), *kernels(), *faults(), *checks()):
        assert name in done.out, f"{name} is missing or cut\n{done}"


def test_list_as_json(assay: Command) -> None:
    done = assay("list", "--json")
    found = parsed(done)
    assert done.code == 0, done
    assert set(found["kernels"]) == set(kernels())
    assert set(found["faults"]) == set(faults())
    assert set(found["operations"]) == set(operations())
    assert found["operations"]["softmax"]["policies"]["masked_row"]["values"] == ["nan", "zero"]


def test_doctor(assay: Command) -> None:
    done = assay("doctor")
    assert done.code == 0, done
    for word in ("python", "torch", "triton", "runs on interpreter"):
        assert word in done.out, f"{word!r} is missing\n{done}"
    found = parsed(assay("doctor", "--json"))
    assert found["can_run"] and "interpreter" in found["devices"], found


@pytest.mark.parametrize("missing", ["torch", "triton"])
def test_doctor_without_what_is_needed_is_status_3(
    missing: str, assay: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.fuzz import doctor

    version = doctor._version  # noqa: SLF001
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == missing else version(name))
    done = assay("doctor")
    assert done.code == 3, done
    assert f"missing: pip install {missing}" in done.out, done
    assert parsed(assay("doctor", "--json"))["can_run"] is False


# Bad arguments.

ONE = "softmax.one_tile"

BAD: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "unknown kernel": (("softmax.two_tiles",), ("softmax.two_tiles", ONE)),
    "unknown operation of a kernel": (("product.one",), ("product.one", ONE)),
    "other operation": ((ONE, "--operation", "l2_norm"), ("softmax, not l2_norm",)),
    "unknown check": ((ONE, "--check", "speed"), ("'speed'", "accuracy")),
    "check of another operation": ((ONE, "--check", "scaling"), ("scaling", "softmax")),
    "unknown dtype": ((ONE, "--dtypes", "float8"), ("'float8'", "float32")),
    "second dtype unknown": ((ONE, "--dtypes", "float32,float8"), ("'float8'",)),
    "empty dtype": ((ONE, "--dtypes", "float32,"), ("unknown dtype ''",)),
    "unknown accumulator": ((ONE, "--accumulator", "int8"), ("'int8'",)),
    "policy without value": ((ONE, "--policy", "masked_row"), ("NAME=VALUE", "'masked_row'")),
    "unknown policy": ((ONE, "--policy", "range=naive"), ("'range'", "masked_row")),
    "unknown value of a policy": ((ONE, "--policy", "masked_row=one"), ("'one'", "nan, zero")),
    "no such module": (("nowhere.at.all:f", "--operation", "softmax"), ("nowhere",)),
    "no such attribute": (("math:softmax", "--operation", "softmax"), ("softmax", "ceil")),
    "no operation": (("math:sqrt",), ("--operation",)),
    "no attribute": (("math:", "--operation", "softmax"), ("module:attribute",)),
    "no module": ((":sqrt", "--operation", "softmax"), ("module:attribute",)),
    "unknown operation": (("math:sqrt", "--operation", "product"), ("'product'", "l2_norm")),
    "not callable": (("math:pi", "--operation", "softmax"), ("not callable", "float")),
    "no such file": (("gone.py:f", "--operation", "softmax"), ("gone.py", "no such file")),
}


@pytest.mark.parametrize("command", ["check", "audit"])
@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(command: str, name: str, assay: Command, tmp_path: Path) -> None:
    arguments, words = BAD[name]
    if command == "audit":
        if "--check" in arguments:
            pytest.skip("audit has no checks")
        arguments = (*arguments, "--max-n", "1", "--quick")
    refused(assay(command, *arguments, "--out", tmp_path / "out"), *words)
    assert not (tmp_path / "out").exists(), "a refused command left a folder behind"


BROKEN = {
    "syntax": ("def f(", "SyntaxError"),
    "division": ("1 / 0", "ZeroDivisionError"),
    "import": ("import nothing_of_the_kind", "nothing_of_the_kind"),
    "exit": ("import sys\nsys.exit(5)", "broken.py"),
    "several lines": ("raise RuntimeError('one\\ntwo')", "one two"),
    "null bytes": ("\0", "broken.py"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_cannot_be_imported(name: str, assay: Command, tmp_path: Path) -> None:
    content, word = BROKEN[name]
    path = tmp_path / "broken.py"
    path.write_text(content, encoding="utf-8")
    refused(assay("check", f"{path}:f", "--operation", "softmax"), "broken.py", word)


# Tensors.

BAD_INPUTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "missing file": (("gone.npy",), ("gone.npy", "No such file")),
    "folder": ((".",), ("is a folder",)),
    "other kind of file": (("text.csv",), ("text.csv", ".safetensors")),
    "unknown tensor": (("many.safetensors:b",), ("'b'", "a, double, half, ints")),
    "no name": (("many.safetensors",), ("several", ":NAME", "a, double, half, ints")),
    "name in .npy": (("matrix.npy:a",), ("matrix.npy", "':a'")),
    "whole numbers": (("many.safetensors:ints",), ("int32", "float32")),
    "not claimed": (("many.safetensors:double",), ("float64", "claims float32")),
    "scalar": (("scalar.npy",), ("scalar.npy", "scalar")),
    "cut .safetensors": (("cut.safetensors",), ("cut.safetensors",)),
    "cut .npy": (("cut.npy",), ("cut.npy",)),
    "garbage .safetensors": (("garbage.safetensors",), ("garbage.safetensors",)),
    "garbage .npy": (("garbage.npy",), ("garbage.npy",)),
    "unknown operand": (("y=matrix.npy",), ("'y'", "x, weight, residual")),
    "twice": (("matrix.npy", "x=matrix.npy"), ("x is given twice",)),
    "no x": (("weight=vector.npy",), ("needs the operand x",)),
    "short weight": (("matrix.npy", "weight=vector.npy"), ("weight", "(4,)", "(5,)")),
    "weight of rank 2": (("matrix.npy", "weight=matrix.npy"), ("weight", "(4,)", "(3, 4)")),
    "other residual": (("matrix.npy", "residual=vector.npy"), ("residual", "(3, 4)", "(5,)")),
}


@pytest.mark.parametrize("command", ["check", "minimise"])
@pytest.mark.parametrize("name", BAD_INPUTS)
def test_bad_tensors(
    command: str, name: str, assay: Command, tensors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, words = BAD_INPUTS[name]
    monkeypatch.chdir(tensors)
    given = [word for text in inputs for word in ("--input", text)]
    refused(assay(command, "rms_norm.one_tile", *given), *words)


def test_a_matrix_for_a_whole_array_is_flattened(assay: Command, tensors: Path) -> None:
    given = ("--input", tensors / "cube.npy", "--check", "accuracy", "--json")
    done = assay("check", "l2_norm.atomic", *given)
    assert done.code == 0, done
    assert [c["passed"] for c in parsed(done)["checks"]] == [1]


GOOD_INPUTS = {
    "matrix": ("matrix.npy",),
    "vector is one row": ("vector.npy",),
    "leading axes are rows": ("cube.npy",),
    "the only tensor": ("one.safetensors",),
    "by name": ("one.safetensors:only",),
    "with weight": ("x=many.safetensors:a", "weight=many.safetensors:w"),
    "other dtype": ("many.safetensors:half",),
    "residual": ("matrix.npy", "residual=matrix.npy"),
    "weight in another dtype": ("many.safetensors:half", "weight=many.safetensors:w"),
}


@pytest.mark.parametrize("name", GOOD_INPUTS)
def test_good_tensors(
    name: str, assay: Command, tensors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tensors)
    given = [word for text in GOOD_INPUTS[name] for word in ("--input", text)]
    done = assay("check", "rms_norm.one_tile", "--check", "accuracy", "--json", *given)
    found = parsed(done)
    assert done.code == 0, done
    assert [(c["check"], c["passed"]) for c in found["checks"]] == [("accuracy", 1)], found


def test_a_file_name_may_hold_colons_and_equals_signs(assay: Command, tensors: Path) -> None:
    odd = tensors / "a=b:c.npy"
    shutil.copy(tensors / "matrix.npy", odd)
    for text in (odd, f"x={odd}"):
        done = assay("check", ONE, "--check", "accuracy", "--input", text)
        assert done.code == 0, done


@pytest.mark.parametrize(
    ("kernel", "inputs"),
    [
        (ONE, [f"{REAL}:layer0.attention_scores_causal_left_padded"]),
        (
            "rms_norm.one_tile",
            [f"x={REAL}:layer2.mlp_residual_sum", f"weight={REAL}:layer2.norm_weight"],
        ),
    ],
    ids=["attention scores", "norm with weight"],
)
def test_right_kernels_hold_on_real_activations(
    kernel: str, inputs: list[str], assay: Command
) -> None:
    given = [word for text in inputs for word in ("--input", text)]
    only = ("--check", "accuracy", "--check", "special_values")
    done = assay("check", kernel, *given, *only, "--json")
    found = parsed(done)
    assert done.code == 0, done
    held = {c["check"]: c["passed"] for c in found["checks"]}
    assert held["accuracy"] == 1, found
    # Left padding masks whole rows, so there the policy is put to the test.
    assert held["special_values"] == (1 if kernel == ONE else 0), found


# Kernels of one's own.


def test_a_right_kernel_of_ones_own(
    mine: Path, assay: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    claims = ("--operation", "l2_norm", "--policy", "range=naive", "--dtypes", "float32,bfloat16")
    done = assay("check", f"{mine}:right", *claims, "--examples", "2", "--check", "accuracy")
    assert (done.code, done.err) == (0, ""), done
    # The title of a table may be broken.
    assert f"{mine}:right" in "".join(done.out.split()), f"the kernel is not named\n{done}"
    for word in ("accuracy", "float32", "bfloat16", "held: "):
        assert word in done.out, f"{word!r} is missing\n{done}"
    assert not (tmp_path / "witnesses").exists(), "nothing failed, yet there is a folder"


def test_a_module_of_ones_own(
    mine: Path, assay: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # A name that no other test imports.
    shutil.copy(mine, tmp_path / "module_of_ones_own.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    done = assay(
        *("check", "module_of_ones_own:right", "--operation", "l2_norm", "--policy", "range=naive"),
        *("--examples", "0", "--check", "accuracy", "--dtypes", "float32", "--json"),
    )
    assert done.code == 0, done
    assert parsed(done)["kernel"] == "module_of_ones_own:right"


def test_a_wrong_kernel_of_ones_own_from_check_to_replay(
    mine: Path, assay: Command, tmp_path: Path
) -> None:
    done = assay(
        *("check", f"{mine}:wrong", "--operation", "l2_norm", "--policy", "range=naive"),
        *("--examples", "0", "--check", "accuracy", "--out", tmp_path / "w", "--json"),
    )
    assert done.code == 1, done
    found = parsed(done)
    assert found["failed"] and not found["notes"], found
    # One witness for a check, whatever the number of dtypes.
    (witness,) = found["witnesses"]
    assert Path(witness["path"]).parent == tmp_path / "w", witness
    assert "l2_norm float32[1]" in witness["case"], f"one element would do: {witness}"
    again = assay("replay", "--json", witness["path"])
    assert again.code == 1, again
    (result,) = parsed(again)
    assert result["persists"] and result["same_bits"], result


def test_a_violation_without_witness(mine: Path, assay: Command, tmp_path: Path) -> None:
    done = assay(
        *("check", f"{mine}:wrong", "--operation", "l2_norm", "--examples", "0", "--no-witness"),
        *("--check", "accuracy", "--dtypes", "float32", "--out", tmp_path / "w"),
    )
    assert (done.code, done.err) == (1, ""), done
    for word in ("violated", "outside the proved bound", "l2_norm float32["):
        assert word in done.out, f"{word!r} is missing\n{done}"
    assert not (tmp_path / "w").exists()


def test_a_kernel_that_raises_is_a_violation(mine: Path, assay: Command) -> None:
    done = assay(
        *("check", f"{mine}:raises", "--operation", "l2_norm", "--examples", "0", "--no-witness"),
        *("--check", "accuracy", "--dtypes", "float32"),
    )
    assert done.code == 1, done
    assert "raised RuntimeError: out of luck" in done.out, done
    assert "Traceback" not in done.out + done.err, done


def test_a_broken_policy_is_reported_with_the_claim(mine: Path, assay: Command) -> None:
    done = assay(
        *("check", f"{mine}:soft", "--operation", "softmax", "--examples", "0", "--no-witness"),
        *("--check", "special_values", "--dtypes", "float32"),
    )
    assert done.code == 1, done
    assert "masked_row=nan" in done.out, f"the claim that it is held to is not named\n{done}"


def test_minimise_writes_the_smallest_input(
    mine: Path, assay: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The test above starts the process that confirms; here it would only take time.
    monkeypatch.setattr(checking, "confirm", lambda paths: [])
    np.save(tmp_path / "captured.npy", np.linspace(1.0, 2.0, 77, dtype=np.float32))
    arguments = ("--operation", "l2_norm", "--policy", "range=naive", "--check", "accuracy")
    given = ("--input", tmp_path / "captured.npy", "--out", tmp_path / "w")
    done = assay("minimise", f"{mine}:wrong", *arguments, *given)
    assert done.code == 1, done
    (witness,) = (tmp_path / "w").glob("*.json")
    data = json.loads(witness.read_bytes())
    assert (data["case"]["n"], data["case"]["operands"]["x"]["type"]) == (1, "literal"), data[
        "case"
    ]
    assert f"assay replay {witness}" in done.out, done
    held = assay("minimise", f"{mine}:right", *arguments, *given)
    assert (held.code, held.err) == (0, ""), held


def test_a_folder_that_cannot_be_written(mine: Path, assay: Command, tmp_path: Path) -> None:
    inside = tmp_path / "file" / "w"
    inside.parent.write_text("in the way", encoding="utf-8")
    check = ("check", f"{mine}:wrong", "--operation", "l2_norm", "--examples", "0")
    # The finding is worth more than its file: it is reported, and so is why there is no witness.
    done = assay(*check, "--check", "accuracy", "--dtypes", "float32", "--out", inside)
    assert done.code == 1, done
    assert "no witness: cannot write" in done.out, done
    assert "smallest case found" in done.out, done
    done = assay("audit", ONE, "--quick", "--max-n", "1", "--dtypes", "float32", "--out", inside)
    refused(done, str(inside.parent), "Not a directory")


# Devices.


@pytest.mark.parametrize("command", [("list",), ("check", ONE)], ids=lambda c: c[0])
def test_no_gpu_is_status_3(
    command: tuple[str, ...], assay_in_new_process: Command, tmp_path: Path
) -> None:
    extra = ("--out", tmp_path / "out") if command[0] != "list" else ()
    done = assay_in_new_process(*command, *extra, "--device", "cuda", CUDA_VISIBLE_DEVICES="")
    refused(done, "no CUDA device", "--device interpreter", status=3)
    assert not (tmp_path / "out").exists()


def test_a_device_in_the_environment_that_makes_no_sense(
    assay: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "_selected", None)  # as in a new process
    monkeypatch.setenv("ASSAY_DEVICE", "abacus")
    refused(assay("list"), "ASSAY_DEVICE", "'abacus'")


def test_the_other_device_in_one_process_is_status_3(assay: Command) -> None:
    other = "interpreter" if device.select() == "cuda" else "cuda"
    refused(assay("list", "--device", other), "start a new process", status=3)
