# SPDX-License-Identifier: Apache-2.0
"""What is true: exact sums, certified enclosures, float formats, error bounds, tolerances.

`tolerance` is loaded when it is first used: `from assay.oracles import tolerance`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.oracles.tolerances.tolerance import tolerance as tolerance

_LAZY = {"tolerance": "assay.oracles.tolerances.tolerance"}

__all__ = ["tolerance"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
