# SPDX-License-Identifier: Apache-2.0
"""Kernels that users bring: `module:attribute` or `file.py:attribute`, with claims."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.kernels import device
from assay.kernels.record import ALL_DTYPES, Kernel, UnknownKernel, kernel_named
from assay.oracles.operation import Operation, operation_named


def resolve(
    target: str,
    *,
    operation: str | None = None,
    dtypes: tuple[str, ...] | None = None,
    accumulator: str | None = None,
    policies: Mapping[str, str] | None = None,
) -> Kernel:
    """The kernel that `target` names, with the claims given here.

    target: a registered name, `module:attribute` or `file.py:attribute`.
    Raises UnknownKernel, in one line, if there is no such thing, and ValueError for claims that
    make no sense.
    """
    if ":" not in target:
        kernel = kernel_named(target)
        if operation is not None and operation != kernel.operation:
            raise UnknownKernel(f"{target} implements {kernel.operation}, not {operation}")
        return _with_claims(kernel, dtypes, accumulator, policies)
    found = load(target)
    if isinstance(found, Kernel):
        return _with_claims(replace(found, target=target), dtypes, accumulator, policies)
    if operation is None:
        raise UnknownKernel(f"{target} needs --operation: which operation does it implement?")
    return adopt(
        found,
        operation=operation,
        name=target,
        dtypes=dtypes,
        accumulator=accumulator,
        policies=policies,
        target=target,
    )


def adopt(
    function: Callable[..., Any],
    *,
    operation: str,
    name: str | None = None,
    dtypes: tuple[str, ...] | None = None,
    accumulator: str | None = None,
    policies: Mapping[str, str] | None = None,
    target: str | None = None,
) -> Kernel:
    """A Kernel record for a user's function; what is not claimed is held to the default.

    The order of summation is unknown, so the bound is that of any order (h = n - 1).
    """
    op = operation_named(operation)
    if not callable(function):
        raise UnknownKernel(
            f"{name or function!r} is not callable, it is {type(function).__name__}"
        )
    operands, params = _accepted(function, op)
    return Kernel(
        name=name or str(getattr(function, "__qualname__", type(function).__name__)),
        operation=operation,
        function=function,
        dtypes=dtypes or ALL_DTYPES,
        accumulator=accumulator or "float32",
        policies=policies or {},
        operands=operands,
        params=params,
        target=target,
    )


def _accepted(
    function: Callable[..., Any], op: Operation
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Which operands and parameters of the operation the function takes, by its signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a built-in tells nothing
        required = tuple(o.name for o in op.operands if o.default == "required")
        return required, ()
    names = {p.name for p in parameters}
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
    operands = tuple(
        o.name for o in op.operands if o.default == "required" or anything or o.name in names
    )
    return operands, tuple(p for p in op.params if anything or p in names)


def _with_claims(
    kernel: Kernel,
    dtypes: tuple[str, ...] | None,
    accumulator: str | None,
    policies: Mapping[str, str] | None,
) -> Kernel:
    return replace(
        kernel,
        dtypes=dtypes or kernel.dtypes,
        accumulator=accumulator or kernel.accumulator,
        policies=dict(kernel.policies) | dict(policies or {}),
    )


def load(target: str) -> Any:
    """The object behind `module:attribute` or `file.py:attribute`; UnknownKernel otherwise."""
    device.select()  # before the module imports triton
    module_name, _, attribute = target.rpartition(":")
    if not module_name or not attribute:
        raise UnknownKernel(f"expected module:attribute or file.py:attribute, got {target!r}")
    module = _load_file(module_name) if module_name.endswith(".py") else _load_module(module_name)
    found = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = [
                n for n in dir(module) if not n.startswith("_") and callable(getattr(module, n))
            ]
            raise UnknownKernel(
                f"{module_name} has no attribute {attribute!r}: it has {', '.join(public[:12])}"
            )
        found = getattr(found, part)
    return found


def _load_file(name: str) -> Any:
    path = Path(name).resolve()
    if not path.is_file():
        raise UnknownKernel(f"cannot read {name}: no such file")
    module_name = f"assay_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    # The file's neighbours must be importable, as when it is run as a script.
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise UnknownKernel(_failed(name, error)) from error
    finally:
        sys.path.remove(str(path.parent))
    return module


def _load_module(name: str) -> Any:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise UnknownKernel(_failed(name, error)) from error


def _failed(name: str, error: BaseException) -> str:
    text = " ".join(str(error).split())[:200]
    return f"cannot import {name}: {type(error).__name__}: {text}"
