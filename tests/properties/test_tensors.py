# SPDX-License-Identifier: Apache-2.0
"""Users' tensors: read bit for bit, and one clear line for every file that is none."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from assay.oracles.formats import FORMATS, Format
from assay.properties.guard import torch_dtype
from assay.properties.tensors import load_bits, tensor_names
from assay.properties.values import CaseError

ALL = pytest.mark.parametrize("fmt", FORMATS.values(), ids=lambda f: f.name)
IN_NUMPY = pytest.mark.parametrize(
    "fmt", [f for f in FORMATS.values() if f.name != "bfloat16"], ids=lambda f: f.name
)


def patterns(fmt: Format, *shape: int) -> np.ndarray:
    """Bits of all kinds: NaN payloads, infinities, subnormals, zeros of both signs."""
    top = 1 << (fmt.width - 1)
    infinity = ((1 << (fmt.width - fmt.precision)) - 1) << (fmt.precision - 1)
    some = [0, top, 1, top + 1, infinity, infinity + top, infinity + 1, 2 * top - 1, top // 3]
    return np.resize(np.array(some, dtype=fmt.bits_dtype), shape)


def as_tensor(bits: np.ndarray, fmt: Format) -> torch.Tensor:
    return torch.from_numpy(bits.view(bits.dtype.str.replace("u", "i"))).view(torch_dtype(fmt))


def refused(path: Path, name: str = "") -> str:
    with pytest.raises(CaseError) as error:
        load_bits(path, name)
    message = str(error.value)
    assert message and "\n" not in message, f"not one line: {message!r}"
    assert path.name in message, f"the file is not named: {message!r}"
    return message


@ALL
def test_safetensors_are_read_bit_for_bit(fmt: Format, tmp_path: Path) -> None:
    bits = patterns(fmt, 3, 5)
    save_file({"a": as_tensor(bits, fmt), "b": torch.ones(2)}, tmp_path / "t.safetensors")
    found = load_bits(tmp_path / "t.safetensors", "a")
    assert found.format is fmt
    assert (found.bits == bits).all(), f"{found.bits} read, {bits} written"


@IN_NUMPY
@pytest.mark.parametrize("order", ["little", "big", "Fortran"])
def test_npy_is_read_bit_for_bit(fmt: Format, order: str, tmp_path: Path) -> None:
    bits = patterns(fmt, 3, 5)
    array = bits.view(bits.dtype.str.replace("u", "f"))
    if order == "big":
        array = array.byteswap().view(array.dtype.newbyteorder(">"))
    elif order == "Fortran":
        array = np.asfortranarray(array)
    np.save(tmp_path / "t.npy", array)
    found = load_bits(tmp_path / "t.npy")
    assert found.format is fmt
    assert (found.bits == bits).all(), f"{found.bits} read, {bits} written"


@pytest.mark.parametrize(
    ("shape", "rows"),
    [((4,), (1, 4)), ((2, 3, 4), (6, 4)), ((0, 4), (0, 4)), ((3, 0), (3, 0)), ((1, 1, 1), (1, 1))],
)
@pytest.mark.parametrize("kind", ["npy", "safetensors"])
def test_leading_axes_become_rows(
    kind: str, shape: tuple[int, ...], rows: tuple[int, int], tmp_path: Path
) -> None:
    values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    path = tmp_path / f"t.{kind}"
    if kind == "npy":
        np.save(path, values)
    else:
        save_file({"only": torch.from_numpy(values)}, path)
    found = load_bits(path)
    assert found.bits.shape == rows
    assert (found.values == values.reshape(rows)).all()


def test_a_name_may_be_left_out_where_there_is_one_tensor(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    save_file({"only": torch.ones(3)}, path)
    assert load_bits(path).digest == load_bits(path, "only").digest


def test_names_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    save_file({"b": torch.ones(3), "a": torch.ones(2), "c.d:e": torch.ones(1)}, path)
    assert tensor_names(path) == ["a", "b", "c.d:e"]
    assert load_bits(path, "c.d:e").bits.shape == (1, 1)
    assert "add ':NAME' of one of: a, b, c.d:e" in refused(path)
    assert "has no tensor 'x': expected one of a, b, c.d:e" in refused(path, "x")


def test_no_tensors_at_all(tmp_path: Path) -> None:
    save_file({}, tmp_path / "t.safetensors")
    message = refused(tmp_path / "t.safetensors")
    assert "several" not in message, f"there is none: {message}"


@pytest.mark.parametrize("kind", ["npy", "safetensors"])
def test_a_scalar_is_no_row(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"t.{kind}"
    if kind == "npy":
        np.save(path, np.float32(3))
    else:
        save_file({"only": torch.tensor(3.0)}, path)
    assert "scalar" in refused(path)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool", "complex64", "longdouble"])
def test_other_dtypes_in_npy(dtype: str, tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.ones(3, dtype=dtype))
    message = refused(tmp_path / "t.npy")
    assert "expected one of float64, float32, float16" in message, message


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.bool, torch.float8_e4m3fn])
def test_other_dtypes_in_safetensors(dtype: torch.dtype, tmp_path: Path) -> None:
    save_file({"a": torch.ones(3).to(dtype)}, tmp_path / "t.safetensors")
    message = refused(tmp_path / "t.safetensors")
    assert str(dtype).removeprefix("torch.") in message, message
    assert "expected one of float64, float32, float16, bfloat16" in message, message


class Trap:
    """Leaves a mark when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    array = np.array([Trap(tmp_path / "sprung")], dtype=object)
    np.save(tmp_path / "t.npy", array, allow_pickle=True)
    (tmp_path / "u.npy").write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    for name in ("t.npy", "u.npy"):
        refused(tmp_path / name)
    assert not (tmp_path / "sprung").exists(), "reading a tensor ran code from the file"


def test_records_and_text_in_npy(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.zeros(3, dtype=[("a", "f4")]))
    refused(tmp_path / "t.npy")
    np.save(tmp_path / "u.npy", np.array(["a", "b"]))
    refused(tmp_path / "u.npy")


def test_several_arrays_under_the_name_of_one(tmp_path: Path) -> None:
    """numpy reads the zip archive of .npz whatever it is called."""
    np.savez(tmp_path / "t.npz", a=np.ones(3, dtype=np.float32))
    (tmp_path / "t.npz").rename(tmp_path / "t.npy")
    refused(tmp_path / "t.npy")


@pytest.mark.parametrize("kind", ["npy", "safetensors"])
def test_files_that_are_cut_or_damaged(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"t.{kind}"
    if kind == "npy":
        np.save(path, np.ones((3, 5), dtype=np.float32))
    else:
        save_file({"a": torch.ones(3, 5)}, path)
    whole = path.read_bytes()
    for i, length in enumerate(range(0, len(whole), 13)):
        cut = tmp_path / f"cut{i}.{kind}"
        cut.write_bytes(whole[:length])
        refused(cut)
    for name, content in {"garbage": bytes(range(256)) * 3, "ones": b"\xff" * 99}.items():
        bad = tmp_path / f"{name}.{kind}"
        bad.write_bytes(content)
        refused(bad)


def test_a_header_that_promises_too_much(tmp_path: Path) -> None:
    path = tmp_path / "t.npy"
    np.save(path, np.ones(7, dtype=np.float32))
    header = b"(7,), }" + b" " * 11
    content = path.read_bytes()
    assert header in content, "numpy writes its header in another way"
    path.write_bytes(content.replace(header, b"(999999999999,), }"))
    refused(path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    assert "No such file" in refused(tmp_path / "none.npy")
    assert "No such file" in refused(tmp_path / "no" / "none.safetensors")
    (tmp_path / "folder.npy").mkdir()
    assert "is a folder" in refused(tmp_path / "folder.npy")
    (tmp_path / "file").touch()
    assert "Not a directory" in refused(tmp_path / "file" / "x.npy")


@pytest.mark.parametrize("name", ["t.pt", "t.csv", "t", "t.NPY", "t.npz"])
def test_other_kinds_of_file(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"1,2,3")
    assert "expected a .npy or .safetensors file" in refused(tmp_path / name)


def test_npy_has_no_names(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.ones(3, dtype=np.float32))
    assert "leave out ':a'" in refused(tmp_path / "t.npy", "a")


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "t.npy"
    for value in (1.0, 2.0):
        np.save(path, np.full(3, value, dtype=np.float32))
        os.utime(path, (value, value))
        assert load_bits(path).values.tolist() == [[value] * 3]
