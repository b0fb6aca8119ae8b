# SPDX-License-Identifier: Apache-2.0
"""Witness files: one failing case with all that is needed to see it fail again.

A witness is a small JSON file that reads well in a diff. Its input is literal values or a recipe;
larger tensors lie beside it in a .safetensors file with a checksum.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from assay.kernels import device
from assay.kernels.record import Kernel, faults
from assay.properties.case import Case, Literal, Problem, Recipe, Stored, Tensor, build
from assay.properties.checks import check_named
from assay.properties.judge import Verdict
from assay.properties.launch import config_of, launch

SCHEMA = 1

# A literal of more values than this goes into a file of its own.
_LITERAL_LIMIT = 4096


class WitnessError(ValueError):
    """A witness that cannot be read or rebuilt, in one line (exit status 2)."""


class Versions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the violation was seen."""

    device: str
    name: str
    arch: str
    triton: str
    torch: str
    python: str
    assay: str


class Witness(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A minimised failing case.

    kernel: a registered name, or module:attribute or file.py:attribute.
    claims: what the kernel claims where it is not a registered one.
    found: the worst element: its bits, the enclosure of the exact value, the error in ulps and as a
        share of what is allowed.
    inputs: SHA-256 of each operand's stored bits, by which a rebuild is proved right.
    output: stored bits of the result, row by row, empty if there was none.
    """

    schema: int
    replay: str
    kernel: str
    operation: str
    check: str
    property: str
    pitfall: str
    message: str
    case: Case
    launch: dict[str, int]
    poison: str
    policies: dict[str, str]
    dtypes: tuple[str, ...]
    accumulator: str
    found: dict[str, Any]
    inputs: dict[str, str]
    output: tuple[tuple[str, ...], ...]
    source_sha256: str
    versions: Versions


def versions() -> Versions:
    """The versions of this process."""
    from importlib.metadata import PackageNotFoundError, version

    p = device.current()
    try:
        own = version("assay")
    except PackageNotFoundError:  # run from a source tree
        own = "unknown"
    return Versions(p.device, p.name, p.arch, p.triton, p.torch, p.python, own)


def output_bits(kernel: Kernel, problem: Problem) -> tuple[tuple[str, ...], ...]:
    """The result's stored bits as hexadecimal, () if the kernel gave none."""
    (found,) = launch(kernel, [problem])
    if found.bits is None:
        return ()
    digits = found.format.width // 4
    return tuple(tuple(f"{int(b):0{digits}x}" for b in row) for row in found.bits)


def make(kernel: Kernel, case: Case, verdict: Verdict, *, base: Path | None = None) -> Witness:
    """The witness of a failing verdict; its output is taken from one more launch."""
    problem = build(case, base)
    name = kernel.target or kernel.name
    fault = None if kernel.target else faults().get(kernel.name)
    return Witness(
        schema=SCHEMA,
        replay="",
        kernel=name,
        operation=kernel.operation,
        check=verdict.check,
        property=check_named(verdict.check).property,
        pitfall=fault.pitfall if fault else "",
        message=verdict.message,
        case=case,
        launch=config_of(kernel, problem),
        poison="nan",
        policies=dict(kernel.policies),
        dtypes=kernel.dtypes,
        accumulator=kernel.accumulator,
        found=verdict.details,
        inputs={k: t.digest for k, t in problem.tensors.items()},
        output=output_bits(kernel, problem),
        source_sha256=kernel.source_hash,
        versions=versions(),
    )


def save(witness: Witness, folder: Path, *, base: Path | None = None) -> Path:
    """Write a witness into `folder` under a name that says what it shows; returns the path.

    The file appears whole or not at all. Raises WitnessError if the folder cannot be written.
    """
    stem = f"{witness.operation}-{_safe(witness.kernel)}-{witness.check}"
    stem += f"-{hashlib.sha256(repr(sorted(witness.inputs.items())).encode()).hexdigest()[:8]}"
    path = folder / f"{stem}.json"
    witness = msgspec.structs.replace(witness, replay=f"assay replay {shlex.quote(str(path))}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        witness = _with_files(witness, folder, stem, base)
        write_atomically(path, encode(witness))
    except OSError as error:
        # No tensor file without the witness that speaks of it.
        if folder.is_dir() and not path.exists():
            (folder / f"{stem}.safetensors").unlink(missing_ok=True)
        raise WitnessError(f"cannot write {path}: {error.strerror or error}") from None
    return path


def _safe(name: str) -> str:
    tail = name.rsplit("/", 1)[-1]
    return "".join(c if c.isalnum() or c in "._" else "-" for c in tail).removeprefix("softmax.")


def _with_files(witness: Witness, folder: Path, stem: str, base: Path | None) -> Witness:
    """Operands too long for the JSON file, or read from a user's file, go beside it."""
    large = {
        name: data
        for name, data in witness.case.operands.items()
        if isinstance(data, Stored)
        or (isinstance(data, Literal) and sum(map(len, data.values)) > _LITERAL_LIMIT)
    }
    if not large:
        return witness
    from safetensors.torch import save_file

    from assay.properties.launch import as_torch

    problem = build(witness.case, base)
    file = f"{stem}.safetensors"
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".tmp", delete=False) as temporary:
        name = temporary.name
    try:
        save_file({k: as_torch(problem.tensors[k]) for k in large}, name)
        Path(name).chmod(0o644)
        Path(name).replace(folder / file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    stored = {k: Stored(file, k, problem.tensors[k].digest) for k in large}
    case = msgspec.structs.replace(witness.case, operands=witness.case.operands | stored)
    return msgspec.structs.replace(witness, case=case)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, whatever interrupts."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def encode(witness: Witness) -> bytes:
    """JSON, indented, with the tail that a text file ends in."""
    return msgspec.json.format(msgspec.json.encode(_jsonable(witness)), indent=2) + b"\n"


def _jsonable(witness: Witness) -> Witness:
    found = {k: _plain(v) for k, v in witness.found.items()}
    return msgspec.structs.replace(witness, found=found)


def _plain(value: Any) -> Any:
    # JSON has no infinity: a share of "inf" stays readable.
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value


def read(path: Path) -> Witness:
    """A witness from a file; WitnessError says in one line what is wrong with it."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WitnessError(f"cannot read {path}: {error.strerror or error}") from None
    try:
        schema = msgspec.json.decode(content)
        if not isinstance(schema, dict) or "schema" not in schema:
            raise WitnessError(f"{path} is no witness: it has no schema version")
        if schema["schema"] != SCHEMA:
            raise WitnessError(
                f"{path} has schema {schema['schema']!r}, this version of assay reads {SCHEMA}"
            )
        return msgspec.json.decode(content, type=Witness)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        text = " ".join(str(error).split())
        raise WitnessError(f"{path} is no readable witness: {text}") from None


def literal_if_small(case: Case, problem: Problem, limit: int = 64) -> Case:
    """The case with small recipe operands spelled out, so that a reader sees the numbers."""
    from assay.properties.case import literal_of

    operands = dict(case.operands)
    for name, data in case.operands.items():
        tensor: Tensor = problem.tensors[name]
        if isinstance(data, Recipe) and 0 < tensor.bits.size <= limit:
            operands[name] = literal_of(tensor)
    return msgspec.structs.replace(case, operands=operands)


def rerecord(witness: Witness, output: tuple[tuple[str, ...], ...], verdict: Verdict) -> Witness:
    """The witness with the output and the finding of another run."""
    return msgspec.structs.replace(
        witness, output=output, message=verdict.message, found=verdict.details
    )
