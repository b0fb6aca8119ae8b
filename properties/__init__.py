# SPDX-License-Identifier: Apache-2.0
"""What must hold: cases, guarded launches, checks, strategies, probes, witnesses, pytest plugin.

The names below are loaded when they are first used, so that pytest can import this package in every
project without pulling in torch, triton or hypothesis.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.properties.bring import parametrize as parametrize

_LAZY = {"parametrize": "assay.properties.bring"}

__all__ = ["parametrize"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
