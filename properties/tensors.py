# SPDX-License-Identifier: Apache-2.0
"""Reading a user's tensors from .npy and .safetensors files, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from assay.oracles.formats import BF16, FP16, FP32, FP64, Format
from assay.properties.case import Tensor
from assay.properties.values import CaseError

_NUMPY = {"float64": FP64, "float32": FP32, "float16": FP16}


def load_bits(path: Path, name: str = "") -> Tensor:
    """The tensor `name` of a file with leading axes flattened to rows; a vector is one row.

    Raises CaseError, in one line, if the file is missing, is no such file, lacks the tensor or
    holds something other than a float tensor.
    """
    stat = _stat(path)
    return _load(path, name, stat)


def _stat(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise CaseError(f"cannot read {path}: {error.strerror or error}") from None
    if path.is_dir():
        raise CaseError(f"{path} is a folder: expected a .npy or .safetensors file")
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=16)
def _load(path: Path, name: str, stat: tuple[int, int]) -> Tensor:
    if path.suffix == ".npy":
        if name:
            raise CaseError(f"{path} holds one unnamed tensor: leave out ':{name}'")
        return _from_npy(path)
    if path.suffix == ".safetensors":
        return _from_safetensors(path, name)
    raise CaseError(f"{path}: expected a .npy or .safetensors file")


def _rows(bits: Any, fmt: Format) -> Tensor:
    n = bits.shape[-1]
    rows = int(np.prod(bits.shape[:-1], dtype=np.int64))
    return Tensor(np.ascontiguousarray(bits).reshape(rows, n), fmt)


def _from_npy(path: Path) -> Tensor:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError, MemoryError) as error:
        raise CaseError(f"{path} is no readable .npy file: {_one_line(error)}") from None
    if not isinstance(array, np.ndarray):
        array.close()
        raise CaseError(f"{path} is an .npz archive: expected one array in an .npy file")
    if array.ndim == 0:
        raise CaseError(f"{path} holds a scalar: expected a tensor of rank 1 or more")
    fmt = _NUMPY.get(array.dtype.name)
    if fmt is None:
        raise CaseError(
            f"{path} holds {array.dtype}: expected one of {', '.join(_NUMPY)} "
            "(bfloat16 goes through .safetensors)"
        )
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return _rows(np.ascontiguousarray(native).view(fmt.bits_dtype), fmt)


def tensor_names(path: Path) -> list[str]:
    """Names of the tensors in a .safetensors file, sorted."""
    from safetensors import safe_open

    with _readable(path), safe_open(str(path), framework="pt") as file:
        return sorted(file.keys())


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turns what the safetensors library raises about a bad file into one line."""
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, OSError, ValueError) as error:
        if isinstance(error, CaseError):
            raise
        raise CaseError(f"{path} is no readable .safetensors file: {_one_line(error)}") from None


def _from_safetensors(path: Path, name: str) -> Tensor:
    import torch
    from safetensors import safe_open

    formats = {torch.float64: FP64, torch.float32: FP32, torch.float16: FP16, torch.bfloat16: BF16}
    # torch's interface, since numpy has no bfloat16.
    with _readable(path), safe_open(str(path), framework="pt") as file:
        names = sorted(file.keys())
        listed = ", ".join(names) or "(none)"
        if not names:
            raise CaseError(f"{path} holds no tensor")
        if not name:
            if len(names) != 1:
                raise CaseError(f"{path} holds several tensors, add ':NAME' of one of: {listed}")
            (name,) = names
        if name not in names:
            raise CaseError(f"{path} has no tensor {name!r}: expected one of {listed}")
        tensor = file.get_tensor(name)
    if tensor.ndim == 0:
        raise CaseError(f"{path}:{name} is a scalar: expected a tensor of rank 1 or more")
    fmt = formats.get(tensor.dtype)
    if fmt is None:
        raise CaseError(
            f"{path}:{name} holds {str(tensor.dtype).removeprefix('torch.')}: expected one of "
            f"{', '.join(f.name for f in formats.values())}"
        )
    signed = {16: torch.int16, 32: torch.int32, 64: torch.int64}[fmt.width]
    return _rows(tensor.contiguous().view(signed).numpy().view(fmt.bits_dtype), fmt)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
