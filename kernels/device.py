# SPDX-License-Identifier: Apache-2.0
"""Which device runs the kernels: a GPU, or Triton's interpreter on the CPU.

Triton decides when a kernel is decorated, so the choice is made once in a process, before the
first kernel module is imported.
"""

from __future__ import annotations

import os
import platform as host
import sys
from functools import cache

from assay.oracles.platform import Platform

DEVICES = ("auto", "cuda", "interpreter")
_SUPPORTED = ((3, 6), (3, 9))

_selected: str | None = None


class EnvironmentLacks(RuntimeError):
    """The machine or the installation cannot do what was asked for (exit status 3)."""


def select(device: str = "auto") -> str:
    """Choose "cuda" or "interpreter" for this process and return it.

    "auto" takes what ASSAY_DEVICE says, then the GPU if torch sees one, then the interpreter.
    Raises EnvironmentLacks if there is no GPU to be had, or if kernels of this process were already
    built for the other device, and ValueError for an unknown name.
    """
    global _selected
    if device not in DEVICES:
        raise ValueError(f"unknown device {device!r}: expected one of {', '.join(DEVICES)}")
    if device == "auto":
        device = _selected or os.environ.get("ASSAY_DEVICE", "auto")
        if device not in DEVICES:
            raise ValueError(f"ASSAY_DEVICE is {device!r}: expected one of {', '.join(DEVICES)}")
    if device == "auto":
        # TRITON_INTERPRET=1 in the environment is a choice that the user has already made.
        wants_interpreter = os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")
        device = "interpreter" if wants_interpreter or not _has_cuda() else "cuda"
    if _selected is not None and device != _selected:
        raise EnvironmentLacks(
            f"kernels of this process were built for {_selected}: "
            f"start a new process to use {device}"
        )
    if device == "cuda" and not _has_cuda():
        raise EnvironmentLacks(
            "no CUDA device is visible to torch: use --device interpreter, or install a CUDA "
            "build of torch and check nvidia-smi and CUDA_VISIBLE_DEVICES"
        )
    os.environ["TRITON_INTERPRET"] = "1" if device == "interpreter" else "0"
    _selected = device
    return device


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def torch_device() -> str:
    """The torch device on which operands must live: "cuda" or "cpu"."""
    return "cuda" if select() == "cuda" else "cpu"


@cache
def current() -> Platform:
    """The platform of this process; selects a device first if none was selected."""
    import numpy as np
    import torch
    import triton

    device = select()
    release = tuple(int(part) for part in triton.__version__.split(".")[:2])
    if not _SUPPORTED[0] <= release <= _SUPPORTED[1]:
        print(
            f"assay: Triton {triton.__version__} is outside the versions that the claims about "
            "depth were read from (3.6 to 3.9)",
            file=sys.stderr,
        )
    if device == "cuda":
        major, minor = torch.cuda.get_device_capability()
        name, arch = torch.cuda.get_device_name(), f"sm_{major}{minor}"
    else:
        name, arch = f"Triton interpreter on numpy {np.__version__}", ""
    return Platform(
        device=device,
        name=name,
        arch=arch,
        triton=triton.__version__,
        torch=str(torch.__version__),  # a subclass of str that JSON encoders refuse
        python=host.python_version(),
    )
