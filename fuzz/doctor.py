# SPDX-License-Identifier: Apache-2.0
"""What this machine can run, and what is missing."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

_NEEDED = ("torch", "triton", "numpy", "mpmath", "hypothesis", "pytest", "msgspec", "safetensors")
_OPTIONAL = {
    "gmpy2": "mpmath runs up to twice as fast: pip install 'assay[fast]'",
    "pytest-xdist": "tests run in parallel: pip install 'assay[dev]'",
}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def examine() -> dict[str, Any]:
    """Versions, devices, and whether kernels can run at all."""
    versions = {name: _version(name) for name in _NEEDED}
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "packages": versions,
        "optional": {name: _version(name) for name in _OPTIONAL},
        "devices": [],
        "missing": [f"pip install {name}" for name, v in versions.items() if v is None],
    }
    if versions["torch"] and versions["triton"]:
        import torch

        found["devices"].append("interpreter")
        if torch.cuda.is_available():
            found["devices"].insert(0, f"cuda: {torch.cuda.get_device_name()}")
        elif torch.version.cuda is None:
            found["missing"].append("a CUDA build of torch, to use a GPU")
        else:
            found["missing"].append("a GPU that torch can see (nvidia-smi, CUDA_VISIBLE_DEVICES)")
        major, minor = (int(p) for p in str(versions["triton"]).split(".")[:2])
        if not (3, 6) <= (major, minor) <= (3, 9):
            found["missing"].append("Triton 3.6 to 3.9: the depths were read from those")
    found["missing"] += [
        text for name, text in _OPTIONAL.items() if found["optional"][name] is None
    ]
    found["can_run"] = bool(found["devices"])
    return found


def show(found: dict[str, Any]) -> None:
    print(f"python {found['python']}")
    for name, value in (found["packages"] | found["optional"]).items():
        print(f"{name} {value or '(not installed)'}")
    for device in found["devices"]:
        print(f"runs on {device}")
    for line in found["missing"]:
        print(f"missing: {line}")
