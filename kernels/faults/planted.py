# SPDX-License-Identifier: Apache-2.0
"""How a fault is made from its right twin: the twin's claims, and another function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from assay.kernels.record import Fault, kernel_named


class Mistaken:
    """A Triton kernel with one mistake compiled in, as its MISTAKE, to launch as the twin is."""

    def __init__(self, kernel: Any, mistake: str) -> None:
        self.kernel = kernel
        self.mistake = mistake

    def __getitem__(self, grid: Any) -> Any:
        return partial(self.kernel[grid], MISTAKE=self.mistake)


def fault(
    twin: str,
    name: str,
    function: Callable[..., Any],
    pitfall: str,
    caught_by: tuple[str, ...],
    mistake: str,
    *,
    dtypes: tuple[str, ...] | None = None,
    isolated: bool = False,
) -> Fault:
    """`function` with every claim of `twin`, as "<operation>.<name>".

    dtypes: those in which the mistake shows, None for the twin's.
    """
    right = kernel_named(twin)
    kernel = replace(
        right,
        name=f"{right.operation}.{name}",
        function=function,
        dtypes=dtypes or right.dtypes,
    )
    return Fault(kernel, pitfall, caught_by, twin, mistake, isolated)
