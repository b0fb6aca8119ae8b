# SPDX-License-Identifier: Apache-2.0
"""The plots of an audit: error against N for one kernel and dtype, as SVG."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from io import StringIO
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from assay.fuzz.curves import (
    CORRECTLY_ROUNDED,
    FAMILIES,
    SUPERSCRIPT,
    TIMES,
    Group,
    bounds_by_n,
    show_n,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, those first that have a contrast of 3 on white and on black alike.
# A later family lies on top of an earlier one, so its marker is smaller.
_STYLES = (
    ("#0072B2", "o", 8.0),
    ("#D55E00", "s", 6.5),
    ("#009E73", "^", 5.5),
    ("#CC79A7", "D", 3.5),
    ("#E69F00", "v", 5.0),
    ("#56B4E9", "P", 5.0),
)
_WIDTH, _HEIGHT = 400, 340  # user units of the SVG, which are CSS pixels at its natural size
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "assay",
    "font.size": 11.5,
    "figure.dpi": 72,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.6,
    "legend.frameon": False,
}
_BESIDE = 8  # points between markers that would lie on top of each other
_DASHED = (0, (4, 2))
_MAX_TICKS = 7
_PLAIN_STEPS = (1e-3, 1e4)
_SHORT_NAME = 16  # characters of a family's name, so that three columns fit
_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"


def _figure(group: Group) -> Figure:
    """Error against N, both logarithmic; black stands for the colour of the page's text."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH / 72, _HEIGHT / 72), layout="constrained")
    axes = figure.add_subplot()
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ns = sorted({p["n"] for p in group.points})
    low, high = _limits(group)
    axes.set_xlim(ns[0] / 2, ns[-1] * 2)
    axes.set_ylim(low, high)
    for place in range(len(group.curves)):
        _draw_curve(axes, group, place)
    _draw_exact(axes, group, low)
    axes.plot([], [], color="black", ls=_DASHED, lw=1.0, label="rms")
    _draw_bound(axes, group, high)
    axes.axhline(CORRECTLY_ROUNDED, color="black", lw=0.9, label="correctly rounded")
    _draw_ticks(axes, ns, low, high)
    axes.set_xlabel("N")
    axes.set_ylabel(f"error (ulp of {group.dtype})", parse_math=False)
    longest = max(len(c["family"]) for c in group.curves)
    columns = 3 if longest <= _SHORT_NAME else 1
    legend = figure.legend(loc="outside lower center", ncols=columns, columnspacing=1.2)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def _limits(group: Group) -> tuple[float, float]:
    """Limits of the error axis that hold all that can be drawn on it."""
    drawn = [p[name] for p in group.points for name in ("largest", "rms", "bound")]
    drawn = [CORRECTLY_ROUNDED, *(v for v in drawn if v)]
    return min(drawn) / 2, max(drawn) * 2


def _mark(group: Group, place: int) -> dict[str, Any]:
    """Colour and marker of the curve at `place`; a known family has the same in every plot."""
    family = group.curves[place]["family"]
    style = FAMILIES.index(family) if family in FAMILIES else len(FAMILIES) + place
    color, marker, _ = _STYLES[style % len(_STYLES)]
    return {"color": color, "marker": marker, "clip_on": False, "zorder": 3 + place}


def _draw_curve(axes: Axes, group: Group, place: int) -> None:
    points = group.curves[place]["points"]
    mark = _mark(group, place)
    size = next(s for color, _, s in _STYLES if color == mark["color"])
    ns = [p["n"] for p in points]
    largest = [p["largest"] or math.nan for p in points]
    rms = [p["rms"] or math.nan for p in points]
    axes.plot(ns, rms, color=mark["color"], lw=1.0, ls=_DASHED)
    axes.plot(ns, largest, ms=size, mew=0, label=group.curves[place]["family"], **mark)


def _draw_exact(axes: Axes, group: Group, low: float) -> None:
    """Open markers on the lower edge where no error was found, which has no logarithm."""
    from matplotlib.transforms import ScaledTranslation

    for n in sorted({p["n"] for p in group.points}):
        exact = [
            place
            for place, curve in enumerate(group.curves)
            if any(p["n"] == n and p["largest"] == 0 for p in curve["points"])
        ]
        for i, place in enumerate(exact):
            # Side by side, so that no family hides another.
            shift = (i - (len(exact) - 1) / 2) * _BESIDE / 72
            aside = axes.transData + ScaledTranslation(shift, 0, axes.figure.dpi_scale_trans)
            mark = _mark(group, place)
            axes.plot(n, low, ls="", ms=5, mfc="none", mew=1.1, transform=aside, **mark)


def _draw_bound(axes: Axes, group: Group, high: float) -> None:
    bounds = {n: b if math.isfinite(b) else math.nan for n, (_, b) in bounds_by_n(group).items()}
    ns, values = list(bounds), list(bounds.values())
    left, right = axes.get_xlim()
    wide, above = [left, *ns, right], [values[0], *values, values[-1]]
    axes.fill_between(wide, above, high, color="black", alpha=0.07, lw=0)
    # The dash shows a bound that has no neighbour to be joined with.
    axes.plot(ns, values, color="black", ls=":", lw=1.4, marker="_", ms=7, label="proved bound")


def _draw_ticks(axes: Axes, ns: list[int], low: float, high: float) -> None:
    x = _powers_of_two(ns)
    axes.set_xticks(x, [show_n(n) for n in x], minor=False)
    axes.set_xticks([], minor=True)
    y = _decimal_steps(low, high)
    axes.set_yticks(y, [_show_step(v) for v in y], minor=False)
    axes.set_yticks([], minor=True)
    axes.grid(color="black", alpha=0.12, lw=0.6)
    axes.set_axisbelow(True)


def _powers_of_two(ns: list[int]) -> list[int]:
    """A few powers of two from the first N on; the N themselves where they are no such powers."""
    low, high = ns[0].bit_length() - 1, ns[-1].bit_length() - 1
    if ns[0] != 1 << low or low == high:
        return ns if len(ns) <= _MAX_TICKS else ns[:: math.ceil(len(ns) / _MAX_TICKS)]
    step = next(s for s in (1, 2, 4, 8, 16, 32) if (high - low) // s < _MAX_TICKS)
    return [1 << k for k in range(low, high + 1, step)]


def _decimal_steps(low: float, high: float) -> list[float]:
    """Round numbers in each decade, as many as fit; powers of ten alone if even those are many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    inside: list[float] = []
    for digits in ((1, 2, 5), (1, 3), (1,)):
        inside = [v for d in decades for m in digits if low <= (v := float(f"{m}e{d}")) <= high]
        if len(inside) <= _MAX_TICKS:
            return inside
    return inside[:: math.ceil(len(inside) / _MAX_TICKS)]


def _show_step(value: float) -> str:
    digit, exponent = f"{value:.0e}".split("e")
    if _PLAIN_STEPS[0] <= value <= _PLAIN_STEPS[1]:
        return f"{value:g}"
    power = f"10{str(int(exponent)).translate(SUPERSCRIPT)}"
    return power if digit == "1" else f"{digit} {TIMES} {power}"


# SVG: text stays text, black becomes the colour of the surrounding text, ids are the group's own.


def draw(group: Group) -> str:
    """The plot as an element that can stand in a page beside others."""
    import matplotlib.style

    file = StringIO()
    with matplotlib.style.context(["default", _STYLE]):
        _figure(group).savefig(file, format="svg")
    # Trusted: matplotlib wrote it just now.
    root = ET.fromstring(file.getvalue())  # noqa: S314
    title = f"{group.kernel}, {group.dtype}: error against N"
    _adapt(root, group.slug, title)
    ET.register_namespace("", _SVG)
    ET.register_namespace("xlink", _XLINK)
    return ET.tostring(root, encoding="unicode")


def _adapt(root: ET.Element, prefix: str, title: str) -> None:
    """Drops what holds a date, and the style sheet, which would apply to the page around it."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
    used = {name for e in root.iter() for v in e.attrib.values() for name in _references(v)}
    for element in root.iter():
        if element.get("id") not in used:
            element.attrib.pop("id", None)
        for name, value in element.attrib.items():
            element.set(name, _adapted(name, value, prefix))
    heading = ET.Element(f"{{{_SVG}}}title")
    heading.text = title
    root.insert(0, heading)
    root.attrib.update(width=str(_WIDTH), height=str(_HEIGHT), role="img", fill="currentColor")
    root.set("style", "stroke-linejoin: round; stroke-linecap: butt")


def _references(value: str) -> Iterator[str]:
    return (m[1] for m in re.finditer(r"(?:^#|url\(#)([^)\s]+)\)?", value))


def _adapted(name: str, value: str, prefix: str) -> str:
    if name == "id":
        return f"{prefix}-{value}"
    if name == f"{{{_XLINK}}}href":
        return value.replace("#", f"#{prefix}-", 1)
    value = re.sub(r"url\(#", f"url(#{prefix}-", value)
    value = re.sub(r"font: ([\d.]+px)[^;]*", r"font-size: \1", value)
    value = re.sub(r"font-family: [^;]*(; )?", "", value)
    return value.replace("#000000", "currentColor")


def standalone(svg: str) -> str:
    """With the fonts and the colours that the page would give."""
    style = (
        "<style>:root{color-scheme:light dark;color:#1d1d1b;"
        "font-family:system-ui,-apple-system,'Segoe UI',Roboto,"
        "'Helvetica Neue',Arial,sans-serif}"
        "@media (prefers-color-scheme:dark){:root{color:#e3e3e0}}</style>"
    )
    head, tail = svg.split("</title>", 1)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{head}</title>{style}{tail}\n'
