# SPDX-License-Identifier: Apache-2.0
"""Kernel and fault records: an implementation and what it claims."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from assay.kernels import device
from assay.oracles.depth import Order, Sequential
from assay.oracles.formats import Format, format_named
from assay.oracles.operation import Claim, Operation, operation_named
from assay.oracles.platform import Platform

Config = Mapping[str, int]

ALL_DTYPES = ("float32", "float16", "bfloat16")


def _no_configs(m: int, n: int, dtype: str) -> list[dict[str, int]]:
    return [{}]


@dataclass(frozen=True)
class Kernel:
    """One implementation of an operation, and its claims.

    name: "<operation>.<variant>".
    function: called as function(x, ..., **params, **config) with torch tensors; required operands
        by position in the operation's order, the others by keyword; returns a new tensor.
    accumulator: the format in which it adds.
    order: the order of summation, from which the depth h is computed.
    deterministic: equal inputs and launch configuration give equal bits, always.
    policies: choices that the mathematics leaves open; what is not named is the default.
    configs: launch configurations to try for (m, n, dtype), the default one first.
    max_n: longest reduced axis that it accepts, None for no limit.
    casts_on_host: the last rounding is made by torch, not by the kernel.
    compensated_exponent: the roundings of x - max and of its product with log2(e) are fed back, so
        that the error of an exponential does not grow with its argument.
    operands, params: those of the operation that the function takes, None for all of them.
    target: "module:attribute" or "file.py:attribute" of a kernel that is not registered.
    """

    name: str
    operation: str
    function: Callable[..., Any]
    dtypes: tuple[str, ...] = ALL_DTYPES
    accumulator: str = "float32"
    order: Order = field(default_factory=Sequential)
    deterministic: bool = False
    policies: Mapping[str, str] = field(default_factory=dict)
    configs: Callable[[int, int, str], list[dict[str, int]]] = _no_configs
    max_n: int | None = None
    casts_on_host: bool = False
    compensated_exponent: bool = False
    operands: tuple[str, ...] | None = None
    params: tuple[str, ...] | None = None
    target: str | None = None

    def __post_init__(self) -> None:
        operation = operation_named(self.operation)
        object.__setattr__(self, "policies", operation.check_policies(self.policies))
        for dtype in (*self.dtypes, self.accumulator):
            format_named(dtype)
        if self.operands is None:
            object.__setattr__(self, "operands", tuple(o.name for o in operation.operands))
        if self.params is None:
            object.__setattr__(self, "params", tuple(operation.params))

    @property
    def op(self) -> Operation:
        return operation_named(self.operation)

    @property
    def accumulator_format(self) -> Format:
        return format_named(self.accumulator)

    def default_config(self, m: int, n: int, dtype: str) -> dict[str, int]:
        return self.configs(m, n, dtype)[0]

    def claim(
        self, n: int, config: Config, dtype: str, params: Mapping[str, float], platform: Platform
    ) -> Claim:
        """The claims for one launch, as `Operation.before` takes them."""
        arithmetic = platform.arithmetic(
            self.accumulator_format,
            self.casts_on_host,
            compensated_exponent=self.compensated_exponent,
        )
        return self.order.claim(n, config, dtype, platform, arithmetic, self.policies, params)

    def call(self, operands: Mapping[str, Any], params: Mapping[str, float], config: Config) -> Any:
        """Run the kernel on torch tensors."""
        spec = {o.name: o for o in self.op.operands}
        positional = [operands[name] for name, o in spec.items() if o.default == "required"]
        keyword = {
            name: tensor for name, tensor in operands.items() if spec[name].default != "required"
        }
        assert self.params is not None
        given = {name: value for name, value in params.items() if name in self.params}
        return self.function(*positional, **keyword, **given, **config)

    @property
    def source_path(self) -> Path | None:
        """The file that the kernel's function comes from, None if there is none."""
        function = inspect.unwrap(self.function)
        function = getattr(function, "func", function)  # a functools.partial
        try:
            path = inspect.getsourcefile(function)
        except TypeError:
            path = inspect.getsourcefile(type(function))
        return Path(path) if path else None

    @property
    def source_hash(self) -> str:
        """SHA-256 of that file, empty if there is none."""
        path = self.source_path
        if path is None or not path.is_file():
            return ""
        return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Fault:
    """A kernel that is wrong on purpose.

    pitfall: the class of `assay.properties.pitfalls` that it belongs to.
    caught_by: the checks each of which must catch it.
    twin: the right kernel that it was made from.
    isolated: it may write where it must not, so it runs in a process of its own.
    """

    kernel: Kernel
    pitfall: str
    caught_by: tuple[str, ...]
    twin: str
    mistake: str
    isolated: bool = False

    @property
    def name(self) -> str:
        return self.kernel.name


class UnknownKernel(ValueError):
    """No kernel by that name, or the target could not be loaded (exit status 2)."""


def _modules(package_name: str) -> Iterable[Any]:
    device.select()  # Triton decides at import time who runs the kernels.
    package = importlib.import_module(package_name)
    for module in pkgutil.iter_modules(package.__path__):
        if not module.ispkg:
            yield importlib.import_module(f"{package_name}.{module.name}")


@cache
def kernels() -> dict[str, Kernel]:
    """The right kernels by name: every `KERNELS` in the modules of `assay.kernels`."""
    found = [k for m in _modules("assay.kernels") for k in getattr(m, "KERNELS", ())]
    return {k.name: k for k in sorted(found, key=lambda k: k.name)}


@cache
def faults() -> dict[str, Fault]:
    """The faults by name: every `FAULTS` in the modules of `assay.kernels.faults`."""
    found = [f for m in _modules("assay.kernels.faults") for f in getattr(m, "FAULTS", ())]
    return {f.name: f for f in sorted(found, key=lambda f: f.name)}


def kernel_named(name: str) -> Kernel:
    """A registered kernel or fault by name; UnknownKernel lists what there is."""
    if name in kernels():
        return kernels()[name]
    if name in faults():
        return faults()[name].kernel
    close = [k for k in (*kernels(), *faults()) if k.partition(".")[0] == name.partition(".")[0]]
    raise UnknownKernel(
        f"unknown kernel {name!r}: expected one of {', '.join(close or kernels())}, or "
        "module:attribute or file.py:attribute with an operation"
    )
