# SPDX-License-Identifier: Apache-2.0
"""Values as text: how a case names its elements, so that the same bits come back anywhere."""

from __future__ import annotations

import numpy as np

from assay.oracles.formats import Format

# Named elements that a recipe or a literal may hold. The formats give the sizes.
SPECIAL_VALUES = (
    "nan",
    "inf",
    "-inf",
    "-0",
    "largest",
    "-largest",
    "smallest_normal",
    "smallest_subnormal",
)


class CaseError(ValueError):
    """A case that cannot be built, with what was expected (exit status 2)."""


def parse_value(text: str, fmt: Format) -> float:
    """A hex float, or one of `SPECIAL_VALUES` for the format; CaseError otherwise."""
    sign = -1.0 if text.startswith("-") else 1.0
    named = {
        "nan": np.nan,
        "inf": np.inf,
        "largest": fmt.largest,
        "smallest_normal": fmt.smallest_normal,
        "smallest_subnormal": fmt.smallest_subnormal,
        "0": 0.0,
    }
    bare = text.removeprefix("-")
    if bare in named:
        return sign * named[bare]
    try:
        return float.fromhex(text)
    except (ValueError, OverflowError):
        raise CaseError(
            f"{text!r} is neither a hex float like 0x1.8p-3 nor one of {', '.join(SPECIAL_VALUES)}"
        ) from None


def value_text(value: float) -> str:
    """The shortest text that `parse_value` reads back to the same value."""
    if value != value:
        return "nan"
    if value in (np.inf, -np.inf):
        return "inf" if value > 0 else "-inf"
    if value == 0.0:
        return "-0" if np.signbit(value) else "0"
    mantissa, exponent = value.hex().split("p")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}p{exponent}"
