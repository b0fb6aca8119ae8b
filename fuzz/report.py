# SPDX-License-Identifier: Apache-2.0
"""The report of an audit: one page that needs nothing else, and each plot as a file.

Works on the data of audit.json alone, where None stands for infinity: an infinite error or share,
or a bound that allows everything, which is no bound.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from assay.oracles.formats import FORMATS
from assay.properties.witness import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = dict[str, Any]

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
_FAMILIES = ("normal", "uniform", "constant", "real")
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
_CORRECTLY_ROUNDED = 0.5  # ulp
# A mean of so many standard errors is called bias.
_STANDARD_ERRORS = 3
_MAX_TICKS = 7
_PLAIN_STEPS = (1e-3, 1e4)
_SHORT_NAME = 16  # characters of a family's name, so that three columns fit
_TIMES = "\N{MULTIPLICATION SIGN}"
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"


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
        return f"{_safe(self.kernel)}-{_safe(self.dtype)}"

    @property
    def narrow(self) -> bool:
        """Whether the output is of 16 bits, so that the final rounding shows in every result."""
        return self.dtype in FORMATS and FORMATS[self.dtype].width <= FORMATS["float16"].width

    @property
    def truncated(self) -> bool:
        """Whether the final rounding truncates, so that it may err by a whole ulp."""
        return any(c["cast"] > _CORRECTLY_ROUNDED for c in self.curves)

    @property
    def final_rounding(self) -> float:
        """Largest error of the final rounding alone, in ulps."""
        return _CORRECTLY_ROUNDED * (2 if self.truncated else 1)

    @property
    def worst(self) -> tuple[str, Point]:
        return max(self.found, key=lambda found: _number(found[1]["largest"]))


def write_report(data: dict[str, Any], out: Path) -> None:
    """Write index.html and plots/<kernel>-<dtype>.svg into `out`, each whole or not at all.

    data: what `Audit.as_data()` returns and audit.json holds. Equal data gives equal bytes.
    """
    groups = _groups(data)
    plots = {g.slug: _svg(g) for g in groups}
    (out / "plots").mkdir(parents=True, exist_ok=True)
    for slug, svg in plots.items():
        write_atomically(out / "plots" / f"{slug}.svg", _standalone(svg).encode())
    write_atomically(out / "index.html", _page(data, groups, plots).encode())


def _groups(data: dict[str, Any]) -> list[Group]:
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
    return sorted(groups, key=lambda g: (g.kernel, *_place(g.dtype, tuple(FORMATS))))


def _family_order(curve: dict[str, Any]) -> tuple[int, str]:
    return _place(curve["family"], _FAMILIES)


def _place(name: str, order: tuple[str, ...]) -> tuple[int, str]:
    """Sorts known names in their order, then the others by name."""
    return (order.index(name) if name in order else len(order), name)


def _safe(name: str) -> str:
    """A part of a file name; a hash keeps names apart that differ in other characters only."""
    plain = re.sub(r"[^A-Za-z0-9._]+", "-", name.rsplit("/", 1)[-1])[-60:].strip("-.")
    if plain == name:
        return name
    return f"{plain or 'kernel'}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


# Numbers, as the report prints them.


def _number(value: float | None) -> float:
    return math.inf if value is None else value


def _show(value: float | None) -> str:
    """Three significant digits, whole numbers in full, infinity for None."""
    if value is None or math.isinf(value):
        return "∞"
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 1e6 or size < 1e-3:
        digits, exponent = f"{value:.1e}".split("e")
        return _signed(f"{digits} {_TIMES} 10{str(int(exponent)).translate(_SUPERSCRIPT)}")
    return _signed(f"{value:,.0f}" if size >= 100 else f"{value:.3g}")


def _signed(text: str) -> str:
    """With minus signs for hyphens."""
    return text.replace("-", "\N{MINUS SIGN}")


def _show_share(value: float | None) -> str:
    """A share of the bound, rounded so that it never crosses 1, where a violation starts."""
    if value is None or math.isinf(value):
        return "∞"
    if value == 0:
        return "0"
    if value > 1:
        return _show(max(value, 1.01))
    return f"{math.floor(value * 1000) / 1000:.3f}" if value >= 1e-3 else "< 0.001"


def _show_percent(share: float | None) -> str:
    return "∞" if share is None else "0" if share == 0 else f"{_show(100 * share)} %"


def _show_n(n: int) -> str:
    """Digits up to six of them, then powers of two as such."""
    if n >= 100_000:
        power = n.bit_length() - 1
        return f"2{str(power).translate(_SUPERSCRIPT)}" if n == 1 << power else f"{n:,}"
    return str(n)


def _show_range(values: Iterable[int]) -> str:
    ns = sorted(values)
    low, high = ns[0], ns[-1]
    return _show_n(low) if low == high else f"{_show_n(low)} to {_show_n(high)}"


def _show_time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


# Sentences computed from the data.


def _bias(point: Point) -> float | None:
    """Mean over rms where it is notable, None elsewhere.

    The errors of a row may all go together, so the rows count, not the elements; trials that all
    saw the same input (a constant) say nothing about a mean.
    """
    mean, rms, errors = point["mean"], point["rms"], point["errors"]
    repeated = len(errors) > 1 and len(set(errors)) == 1
    if not mean or not rms or repeated or not math.isfinite(mean / rms):
        return None
    share = float(mean / rms)
    return share if abs(share) * math.sqrt(point["rows"]) > _STANDARD_ERRORS else None


def _summary(group: Group) -> dict[str, Any]:
    """One line of the summary table."""
    points = group.points
    family, worst = group.worst
    elements = sum(p["elements"] for p in points)
    biased = [(b, f, p) for f, p in group.found if (b := _bias(p)) is not None]
    bias = max(biased, key=lambda found: abs(found[0]), default=None)
    share = max(_number(p["share"]) for p in points)
    return {
        "group": group,
        "family": family,
        "worst": worst,
        "share": share,
        "broken": share > 1,
        "excess": max(_number(p["excess"]) for p in points),
        "misrounded": sum(p["misrounded"] * p["elements"] for p in points) / max(1, elements),
        "bias": bias and {"value": bias[0], "family": bias[1], "n": bias[2]["n"]},
        "ns": _show_range(p["n"] for p in points),
    }


def _of_the_bound(point: Point) -> str:
    if point["bound"] is None:
        return "where no bound is proved"
    return f"{_show_share(point['share'])} of the bound"


def _course(points: list[Point], narrow: bool) -> str:
    """How the largest error goes with N."""
    first, last = points[0], points[-1]
    peak = max(points, key=lambda p: _number(p["largest"]))
    if peak["largest"] == 0:
        return f"no error at N = {_show_range(p['n'] for p in points)}"
    size = "infinite" if peak["largest"] is None else f"{_show(peak['largest'])} ulp"
    at_peak = f"{size} at N = {_show_n(peak['n'])}"
    if narrow or len(points) == 1:
        return f"the largest error is {at_peak}, {_of_the_bound(peak)}"
    start, end = _show(first["largest"]), _show(last["largest"])
    grows = _number(last["largest"]) > _number(first["largest"])
    verb = "stays" if start == end else "grows" if grows else "falls"
    text = (
        f"the largest error {verb} from {start} ulp at N = {_show_n(first['n'])} "
        f"to {end} ulp at N = {_show_n(last['n'])}, {_of_the_bound(last)}"
    )
    return text if _show(peak["largest"]) in (start, end) else f"{text} (peak: {at_peak})"


def _direction(slope: float) -> str:
    """The law whose slope is nearest; beyond 5/4, none of them."""
    laws = (
        "no growth with depth",
        "roundings that go either way",
        "roundings that go the same way",
    )
    place = round(2 * slope)
    return laws[max(0, place)] if place < len(laws) else "faster than roundings add up"


def _slope(fit: dict[str, Any] | None) -> str:
    if fit is None or fit["slope"] is None:
        return ""
    text = f"; fitted slope in depth {fit['slope']:.2f}"
    if fit["low"] is None or fit["high"] is None:
        return text
    text = f"{text} ({fit['low']:.2f} to {fit['high']:.2f})"
    laws = {_direction(fit[name]) for name in ("low", "slope", "high")}
    return f"{text}: {laws.pop() if len(laws) == 1 else 'too wide an interval to tell which way'}"


def _seen(group: Group) -> list[tuple[str, str]]:
    """(family, what is seen) for each curve."""
    found = []
    for curve in group.curves:
        text = _course(curve["points"], group.narrow)
        text += "" if group.narrow else _slope(curve.get("fit"))
        biased = [(b, p) for p in curve["points"] if (b := _bias(p)) is not None]
        if biased and not group.truncated:
            bias, point = max(biased, key=lambda found: abs(found[0]))
            text += f"; mean error {bias:.2f} of the rms at N = {_show_n(point['n'])}"
        found.append((curve["family"], _unbroken(_signed(text)) + "."))
    return found


def _notes(group: Group) -> list[str]:
    """What holds for the plot as a whole."""
    notes = []
    if group.narrow:
        how = (
            "at most 1 ulp: the interpreter truncates to bfloat16"
            if group.truncated
            else "at most 0.5 ulp, to nearest"
        )
        largest = _number(group.worst[1]["largest"])
        if 0 < largest <= 2 * group.final_rounding:
            notes.append(f"The final rounding dominates ({how}).")
        elif 0 < largest < math.inf:
            notes.append(
                f"The final rounding ({how}) is the smaller part of the largest error, "
                f"{_show(largest)} ulp."
            )
    elif not any(c.get("fit") for c in group.curves):
        depths = _show_range(p["depth"] for p in group.points)
        notes.append(f"No slope was fitted; the depth h is {depths}.")
    bounds = _bounds(group)
    wide = [n for n, (low, high) in bounds.items() if math.isfinite(high) and high > 2 * low]
    if wide:
        n = max(wide, key=lambda n: bounds[n][1] / bounds[n][0] if bounds[n][0] else math.inf)
        low, high = map(_show, bounds[n])
        notes.append(f"At N = {_show_n(n)} the bounds of the families go from {low} to {high} ulp.")
    unbounded = [_show_n(n) for n, (_, high) in bounds.items() if math.isinf(high)]
    if unbounded:
        notes.append(f"Results without a proved bound: N = {', '.join(unbounded)}.")
    infinite = sorted({p["n"] for p in group.points if p["largest"] is None})
    if infinite:
        notes.append(f"An infinite error is not drawn: N = {', '.join(map(_show_n, infinite))}.")
    if any(p["largest"] == 0 for p in group.points):
        notes.append("Open markers on the lower edge: no error.")
    return list(map(_unbroken, notes))


def _unbroken(text: str) -> str:
    """With a number and what belongs to it on one line."""
    return re.sub(r"(?<=N) = (?=\d)| (?=ulp)", lambda m: m[0].replace(" ", "\xa0"), text)


def _bounds(group: Group) -> dict[int, tuple[float, float]]:
    """Smallest and largest bound over the families for each N, infinite where there is none."""
    found: dict[int, tuple[float, float]] = {}
    for p in sorted(group.points, key=lambda p: p["n"]):
        bound = _number(p["bound"])
        low, high = found.get(p["n"], (bound, bound))
        found[p["n"]] = (min(low, bound), max(high, bound))
    return found


# Plots.


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
    axes.axhline(_CORRECTLY_ROUNDED, color="black", lw=0.9, label="correctly rounded")
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
    drawn = [_CORRECTLY_ROUNDED, *(v for v in drawn if v)]
    return min(drawn) / 2, max(drawn) * 2


def _mark(group: Group, place: int) -> dict[str, Any]:
    """Colour and marker of the curve at `place`; a known family has the same in every plot."""
    family = group.curves[place]["family"]
    style = _FAMILIES.index(family) if family in _FAMILIES else len(_FAMILIES) + place
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
    bounds = {n: b if math.isfinite(b) else math.nan for n, (_, b) in _bounds(group).items()}
    ns, values = list(bounds), list(bounds.values())
    left, right = axes.get_xlim()
    wide, above = [left, *ns, right], [values[0], *values, values[-1]]
    axes.fill_between(wide, above, high, color="black", alpha=0.07, lw=0)
    # The dash shows a bound that has no neighbour to be joined with.
    axes.plot(ns, values, color="black", ls=":", lw=1.4, marker="_", ms=7, label="proved bound")


def _draw_ticks(axes: Axes, ns: list[int], low: float, high: float) -> None:
    x = _powers_of_two(ns)
    axes.set_xticks(x, [_show_n(n) for n in x], minor=False)
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
    power = f"10{str(int(exponent)).translate(_SUPERSCRIPT)}"
    return power if digit == "1" else f"{digit} {_TIMES} {power}"


# SVG: text stays text, black becomes the colour of the surrounding text, ids are the group's own.


def _svg(group: Group) -> str:
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


def _standalone(svg: str) -> str:
    """With the fonts and the colours that the page would give."""
    style = (
        "<style>:root{color-scheme:light dark;color:#1d1d1b;"
        "font-family:system-ui,-apple-system,'Segoe UI',Roboto,"
        "'Helvetica Neue',Arial,sans-serif}"
        "@media (prefers-color-scheme:dark){:root{color:#e3e3e0}}</style>"
    )
    head, tail = svg.split("</title>", 1)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{head}</title>{style}{tail}\n'


# The page.


def _breakable(name: str) -> Markup:
    """A name that a browser may break after its punctuation."""
    return Markup("<wbr>").join(map(escape, re.findall(r"[^/._:]*[/._:]+|[^/._:]+", name)))


def _page(data: dict[str, Any], groups: list[Group], plots: dict[str, str]) -> str:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        show=_show,
        share=_show_share,
        percent=_show_percent,
        n=_show_n,
        time=_show_time,
        breakable=_breakable,
    )
    source = files("assay.fuzz").joinpath("templates", "audit.html").read_text("utf-8")
    kernels: dict[str, list[Group]] = {}
    for group in groups:
        kernels.setdefault(group.kernel, []).append(group)
    points = [p for g in groups for p in g.points]
    families = {c["family"] for g in groups for c in g.curves}
    return environment.from_string(source).render(
        data=data,
        versions=data["versions"],
        interpreter=data["versions"].get("device") == "interpreter",
        kernels=kernels,
        summary={name: [_summary(g) for g in members] for name, members in kernels.items()},
        plots=plots,
        seen={g.slug: _seen(g) for g in groups},
        notes={g.slug: _notes(g) for g in groups},
        anchors={name: f"kernel-{_safe(name)}" for name in kernels},
        families=sorted(families, key=lambda f: _place(f, _FAMILIES)),
        results=sum(p["elements"] for p in points),
        undecided=sum(p["undecided"] for p in points),
        points=len(points),
        unbounded=sum(p["bound"] is None for p in points),
        broken=any(_number(p["share"]) > 1 for p in points),
        truncated=any(g.truncated for g in groups),
        ns=_show_range(p["n"] for p in points) if points else "",
    )
