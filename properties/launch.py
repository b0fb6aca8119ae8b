# SPDX-License-Identifier: Apache-2.0
"""Running a kernel on problems in guarded memory, many at once where the operation allows it.

Row operations take problems of one shape class together: rows are independent, so their matrices
are stacked and launched once. Whole-array operations are launched one by one.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from assay.kernels import device
from assay.kernels.record import Kernel
from assay.oracles.formats import FP64, Bits, Float64, Format, decode, encode
from assay.oracles.operation import Output
from assay.properties.case import Problem, Tensor
from assay.properties.guard import (
    POISONS,
    SIGNED,
    FreshMemory,
    Guard,
    format_of,
    poison_of,
    torch_dtype,
)


@dataclass(frozen=True)
class Launch:
    """What came out of one launch for one problem.

    bits: (rows, n) or (rows, 1) stored bits of the output, None if there is no output to judge.
    error: why there is none: what the kernel raised, or a wrong shape, dtype or device.
    damage: lines about memory that was written and should not have been.
    poisoned: where the output still holds the poison it was filled with.
    """

    bits: Bits | None
    format: Format
    error: str | None = None
    damage: tuple[str, ...] = ()
    poisoned: Any = None

    @property
    def values(self) -> Float64:
        assert self.bits is not None
        return decode(self.bits, self.format).reshape(self.bits.shape)


@dataclass
class Counter:
    """Launches and cases so far in this process, for reports."""

    launches: int = 0
    problems: int = 0


COUNTER = Counter()


def launch(kernel: Kernel, problems: Sequence[Problem], *, poison: str = "nan") -> list[Launch]:
    """Run the kernel on each problem, guarded with the given poison; one `Launch` for each.

    Problems of a row operation that differ only in the rows of their matrices share a launch.
    """
    results: list[Launch | None] = [None] * len(problems)
    for group in _groups(kernel, problems):
        members = [problems[i] for i in group]
        stacked = members[0] if len(members) == 1 else _stack(members)
        found = _launch_one(kernel, stacked, poison)
        first = 0
        for i, member in zip(group, members, strict=True):
            results[i] = found if len(members) == 1 else _cut(found, first, member.rows)
            first += member.rows
        COUNTER.launches += 1
    COUNTER.problems += len(problems)
    return [r for r in results if r is not None]


def _groups(kernel: Kernel, problems: Sequence[Problem]) -> list[list[int]]:
    groups: dict[Any, list[int]] = {}
    for i, p in enumerate(problems):
        if p.operation.whole:
            groups[i] = [i]
            continue
        shared = tuple(
            t.digest for name, t in p.tensors.items() if p.operation.operand(name).shape != "matrix"
        )
        key = (
            p.n,
            tuple((name, t.format.name) for name, t in p.tensors.items()),
            shared,
            tuple(p.params.items()),
            p.layout,
            tuple(p.launch.items()),
        )
        groups.setdefault(key, []).append(i)
    return list(groups.values())


def _stack(members: list[Problem]) -> Problem:
    first = members[0]
    tensors = {}
    for name, t in first.tensors.items():
        if first.operation.operand(name).shape != "matrix":
            tensors[name] = t
        else:
            tensors[name] = Tensor(
                np.concatenate([m.tensors[name].bits for m in members]), t.format
            )
    return first.with_tensors(**tensors)


def _cut(found: Launch, first: int, rows: int) -> Launch:
    if found.bits is None:
        return found
    part = slice(first, first + rows)
    poisoned = None if found.poisoned is None else found.poisoned[part]
    return Launch(found.bits[part], found.format, found.error, found.damage, poisoned)


def config_of(kernel: Kernel, problem: Problem) -> dict[str, int]:
    """The launch configuration in use: the problem's own, or the kernel's default."""
    return problem.launch or kernel.default_config(problem.rows, problem.n, problem.format.name)


def _launch_one(kernel: Kernel, problem: Problem, poison: str) -> Launch:
    where = device.torch_device()
    guard = Guard(poison, where)
    operands = {}
    for name, t in problem.tensors.items():
        signed = t.bits.view(t.bits.dtype.str.replace("u", "i"))
        bits = torch.from_numpy(np.ascontiguousarray(signed)).to(where)
        shape = problem.operation.operand(name).shape
        if shape == "second":
            bits = bits.T
        elif shape == "columns" or problem.operation.whole:
            bits = bits.reshape(-1)
        operands[name] = guard.operand(
            name,
            bits,
            t.format,
            row_gap=problem.layout.row_gap,
            offset=problem.layout.offset,
        )
    try:
        # numpy's warnings about NaN and overflow come out of the interpreter; they are the subject.
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            # What a kernel prints must not get into the output of --json.
            with FreshMemory(guard), contextlib.redirect_stdout(sys.stderr):
                out = kernel.call(operands, problem.params, config_of(kernel, problem))
            if where == "cuda":
                torch.cuda.synchronize()
    except (Exception, SystemExit, GeneratorExit) as error:
        # Whatever a foreign kernel raises is a finding, not our failure.
        if where == "cuda" and "CUDA error" in str(error):
            # The context is gone; going on would blame every later kernel.
            raise device.EnvironmentLacks(
                f"{kernel.name} broke the CUDA context: {_one_line(error)}"
            ) from error
        return Launch(
            None, problem.format, error=f"raised {type(error).__name__}: {_one_line(error)}"
        )
    damage = tuple(guard.damage())
    return _read(kernel, problem, out, guard, damage)


def _read(
    kernel: Kernel, problem: Problem, out: Any, guard: Guard, damage: tuple[str, ...]
) -> Launch:
    def wrong(text: str) -> Launch:
        return Launch(None, problem.format, error=text, damage=damage)

    expected = problem.operation.outputs
    outputs = (out,)
    if len(expected) > 1:
        names = ", ".join(o.name for o in expected)
        if not isinstance(out, tuple | list) or len(out) != len(expected):
            got = f"{type(out).__name__}"
            got += f" of {len(out)}" if isinstance(out, tuple | list) else ""
            return wrong(f"returned {got}, expected a tuple of {len(expected)} tensors: {names}")
        outputs = tuple(out)
    parts: list[tuple[Bits, Any]] = []
    fmt = FP64 if problem.operation.integer else problem.format
    for output, tensor in zip(expected, outputs, strict=True):
        name = f"{output.name}: " if len(expected) > 1 else ""
        reason = _unfit(problem, output, tensor, guard)
        if reason is not None:
            return wrong(name + reason)
        shape = (problem.rows, 1) if output.shape == "row" else problem.result_shape
        parts.append(_bits(tensor, shape, fmt, guard))
    bits = np.hstack([b for b, _ in parts])
    poisoned = None
    if all(p is not None for _, p in parts):
        poisoned = np.hstack([p for _, p in parts])
    return Launch(bits, fmt, damage=damage, poisoned=poisoned)


_INTEGERS = (torch.int64, torch.int32)


def _unfit(problem: Problem, output: Output, out: Any, guard: Guard) -> str | None:
    """What is wrong with one result, None where it can be judged."""
    if not isinstance(out, torch.Tensor):
        return f"returned {type(out).__name__}, expected a tensor"
    if out.layout is not torch.strided:
        return f"returned a {out.layout} tensor, expected a strided one"
    dtype = str(out.dtype).removeprefix("torch.")
    if output.dtype == "integer":
        if out.dtype not in _INTEGERS:
            return f"returned dtype {dtype}, expected int64 or int32"
    else:
        fmt = format_of(out.dtype)
        if fmt is None:
            return f"returned dtype {dtype}, expected a float"
        if fmt is not problem.format:
            return f"returned dtype {fmt.name}, expected {problem.format.name}"
    if out.device.type != guard.device:
        return f"returned a tensor on {out.device}, expected {guard.device}"
    if problem.operation.whole:
        if out.numel() != 1:
            return f"returned shape {tuple(out.shape)}, expected a scalar"
        return None
    shapes: tuple[tuple[int, ...], ...] = (problem.result_shape,)
    if output.shape == "row":
        shapes = ((problem.rows,), (problem.rows, 1))
    if tuple(out.shape) not in shapes:
        return f"returned shape {tuple(out.shape)}, expected {shapes[0]}"
    return None


def _bits(out: torch.Tensor, shape: tuple[int, int], fmt: Format, guard: Guard) -> tuple[Bits, Any]:
    """The stored bits of one result as a matrix, and where they are still the poison.

    Integers come as the float64 that they equal. A copy: a kernel that returns the same buffer
    again must not change this result later.
    """
    poison = None
    if out.dtype in _INTEGERS:
        whole = out.detach().cpu().numpy().reshape(shape)
        bits = encode(whole.astype(np.float64), FP64)
        if guard.block_of(out) is not None:
            poison = whole == poison_of(out.dtype, guard.poison)
        return bits, poison
    signed = out.detach().contiguous().view(SIGNED[fmt.width])
    bits = signed.cpu().numpy().reshape(shape).view(fmt.bits_dtype).copy()
    if guard.block_of(out) is not None:
        poison = bits == np.asarray(POISONS[guard.poison][fmt.name], dtype=fmt.bits_dtype)
    return bits, poison


def as_torch(tensor: Tensor) -> torch.Tensor:
    """A plain torch tensor on the CPU with the same bits."""
    signed = tensor.bits.view(tensor.bits.dtype.str.replace("u", "i"))
    return torch.from_numpy(np.ascontiguousarray(signed).copy()).view(torch_dtype(tensor.format))


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def supports(kernel: Kernel, problem: Problem) -> str | None:
    """Why the kernel makes no claim about a problem, None if it does."""
    assert kernel.operands is not None
    for name in problem.tensors:
        if name not in kernel.operands:
            return f"{kernel.name} takes no {name}"
    for name, value in problem.params.items():
        if name not in (kernel.params or ()) and value != problem.operation.params[name]:
            return f"{kernel.name} takes no {name}"
    if problem.format.name not in kernel.dtypes:
        return f"{kernel.name} claims no {problem.format.name}"
    if kernel.max_n is not None and problem.n > kernel.max_n:
        return f"{kernel.name} claims rows up to {kernel.max_n}, N is {problem.n}"
    return None
