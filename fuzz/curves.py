# SPDX-License-Identifier: Apache-2.0
"""The curves of an audit, grouped as the report shows them, and numbers as it prints them.

Works on the data of audit.json alone, where None stands for infinity: an infinite error or share,
or a bound that allows everything, which is no bound.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from assay.oracles.formats import FORMATS

Point = dict[str, Any]

FAMILIES = ("normal", "uniform", "constant", "real")
CORRECTLY_ROUNDED = 0.5  # ulp
TIMES = "\N{MULTIPLICATION SIGN}"
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Group:
    """The curves of one kernel and dtype: what one plot and one line of the summary show."""

    kernel: str
    operation: str
    dtype: str
    curves: list[dict[str, Any]]
    interpreter: bool

    @property
    def found(self) -> list[tuple[str, Point]]:
        """Each point with its family."""
        return [(c["family"], p) for c in self.curves for p in c["points"]]

    @property
    def points(self) -> list[Point]:
        return [p for c in self.curves for p in c["points"]]

    @property
    def slug(self) -> str:
        """Names the plot's file and the ids of its elements; different for each group."""
        return f"{safe_name(self.kernel)}-{safe_name(self.dtype)}"

    @property
    def narrow(self) -> bool:
        """Whether the output is of 16 bits, so that the final rounding shows in every result."""
        return self.dtype in FORMATS and FORMATS[self.dtype].width <= FORMATS["float16"].width

    @property
    def truncated(self) -> bool:
        """Whether the final rounding truncates, so that it may err by a whole ulp."""
        # float64 to 16 bits by way of float32 rounds twice, a hair above a half: no truncation.
        return any(c["cast"] >= 1.0 for c in self.curves)

    @property
    def final_rounding(self) -> float:
        """Largest error of the final rounding alone, in ulps."""
        return CORRECTLY_ROUNDED * (2 if self.truncated else 1)

    @property
    def worst(self) -> tuple[str, Point]:
        return max(self.found, key=lambda found: number(found[1]["largest"]))


def group_curves(data: dict[str, Any]) -> list[Group]:
    """Groups with at least one point, sorted by kernel, wide dtypes first."""
    interpreter = data["versions"].get("device") == "interpreter"
    gathered: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for curve in data["curves"]:
        if curve["points"]:
            points = sorted(curve["points"], key=lambda p: p["n"])
            key = (curve["kernel"], curve["dtype"])
            gathered.setdefault(key, []).append({**curve, "points": points})
    groups = [
        Group(kernel, curves[0]["operation"], dtype, sorted(curves, key=_family_order), interpreter)
        for (kernel, dtype), curves in gathered.items()
    ]
    return sorted(groups, key=lambda g: (g.kernel, *place_in(g.dtype, tuple(FORMATS))))


def _family_order(curve: dict[str, Any]) -> tuple[int, str]:
    return place_in(curve["family"], FAMILIES)


def place_in(name: str, order: tuple[str, ...]) -> tuple[int, str]:
    """Sorts known names in their order, then the others by name."""
    return (order.index(name) if name in order else len(order), name)


def safe_name(name: str) -> str:
    """A part of a file name; a hash keeps names apart that differ in other characters only."""
    plain = re.sub(r"[^A-Za-z0-9._]+", "-", name.rsplit("/", 1)[-1])[-60:].strip("-.")
    if plain == name:
        return name
    return f"{plain or 'kernel'}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def bounds_by_n(group: Group) -> dict[int, tuple[float, float]]:
    """Smallest and largest bound over the families for each N, infinite where there is none."""
    found: dict[int, tuple[float, float]] = {}
    for p in sorted(group.points, key=lambda p: p["n"]):
        bound = number(p["bound"])
        low, high = found.get(p["n"], (bound, bound))
        found[p["n"]] = (min(low, bound), max(high, bound))
    return found


# Numbers, as the report prints them.


def number(value: float | None) -> float:
    return math.inf if value is None else value


def show(value: float | None) -> str:
    """Three significant digits, whole numbers in full, infinity for None."""
    if value is None or math.isinf(value):
        return "∞"
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 1e6 or size < 1e-3:
        digits, exponent = f"{value:.1e}".split("e")
        return with_minus(f"{digits} {TIMES} 10{str(int(exponent)).translate(SUPERSCRIPT)}")
    return with_minus(f"{value:,.0f}" if size >= 100 else f"{value:.3g}")


def with_minus(text: str) -> str:
    """With minus signs for hyphens."""
    return text.replace("-", "\N{MINUS SIGN}")


def show_share(value: float | None) -> str:
    """A share of the bound, rounded so that it never crosses 1, where a violation starts."""
    if value is None or math.isinf(value):
        return "∞"
    if value == 0:
        return "0"
    if value > 1:
        return show(max(value, 1.01))
    return f"{math.floor(value * 1000) / 1000:.3f}" if value >= 1e-3 else "< 0.001"


def show_percent(share: float | None) -> str:
    return "∞" if share is None else "0" if share == 0 else f"{show(100 * share)} %"


def show_n(n: int) -> str:
    """Digits up to six of them, then powers of two as such."""
    if n >= 100_000:
        power = n.bit_length() - 1
        return f"2{str(power).translate(SUPERSCRIPT)}" if n == 1 << power else f"{n:,}"
    return str(n)


def show_range(values: Iterable[int]) -> str:
    ns = sorted(values)
    low, high = ns[0], ns[-1]
    return show_n(low) if low == high else f"{show_n(low)} to {show_n(high)}"


def show_time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
