# SPDX-License-Identifier: Apache-2.0
"""The report of an audit: one page that needs nothing else, and each plot as a file."""

from __future__ import annotations

import math
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from assay.fuzz.curves import (
    FAMILIES,
    Group,
    Point,
    bounds_by_n,
    group_curves,
    number,
    place_in,
    safe_name,
    show,
    show_n,
    show_percent,
    show_range,
    show_share,
    show_time,
    with_minus,
)
from assay.fuzz.plot import draw, standalone
from assay.properties.witness import write_atomically

# A mean of so many standard errors is called bias.
_STANDARD_ERRORS = 3


def write_report(data: dict[str, Any], out: Path) -> None:
    """Write index.html and plots/<kernel>-<dtype>.svg into `out`, each whole or not at all.

    data: what `Audit.as_data()` returns and audit.json holds. Equal data gives equal bytes.
    """
    groups = group_curves(data)
    plots = {g.slug: draw(g) for g in groups}
    (out / "plots").mkdir(parents=True, exist_ok=True)
    for slug, svg in plots.items():
        write_atomically(out / "plots" / f"{slug}.svg", standalone(svg).encode())
    write_atomically(out / "index.html", _page(data, groups, plots).encode())


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
    share = max(number(p["share"]) for p in points)
    return {
        "group": group,
        "family": family,
        "worst": worst,
        "share": share,
        "broken": share > 1,
        "excess": max(number(p["excess"]) for p in points),
        "misrounded": sum(p["misrounded"] * p["elements"] for p in points) / max(1, elements),
        "bias": bias and {"value": bias[0], "family": bias[1], "n": bias[2]["n"]},
        "ns": show_range(p["n"] for p in points),
    }


def _of_the_bound(point: Point) -> str:
    if point["bound"] is None:
        return "where no bound is proved"
    return f"{show_share(point['share'])} of the bound"


def _course(points: list[Point], narrow: bool) -> str:
    """How the largest error goes with N."""
    first, last = points[0], points[-1]
    peak = max(points, key=lambda p: number(p["largest"]))
    if peak["largest"] == 0:
        return f"no error at N = {show_range(p['n'] for p in points)}"
    size = "infinite" if peak["largest"] is None else f"{show(peak['largest'])} ulp"
    at_peak = f"{size} at N = {show_n(peak['n'])}"
    if narrow or len(points) == 1:
        return f"the largest error is {at_peak}, {_of_the_bound(peak)}"
    start, end = show(first["largest"]), show(last["largest"])
    grows = number(last["largest"]) > number(first["largest"])
    verb = "stays" if start == end else "grows" if grows else "falls"
    text = (
        f"the largest error {verb} from {start} ulp at N = {show_n(first['n'])} "
        f"to {end} ulp at N = {show_n(last['n'])}, {_of_the_bound(last)}"
    )
    return text if show(peak["largest"]) in (start, end) else f"{text} (peak: {at_peak})"


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
            text += f"; mean error {bias:.2f} of the rms at N = {show_n(point['n'])}"
        found.append((curve["family"], _unbroken(with_minus(text)) + "."))
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
        largest = number(group.worst[1]["largest"])
        if 0 < largest <= 2 * group.final_rounding:
            notes.append(f"The final rounding dominates ({how}).")
        elif 0 < largest < math.inf:
            notes.append(
                f"The final rounding ({how}) is the smaller part of the largest error, "
                f"{show(largest)} ulp."
            )
    elif not any(c.get("fit") for c in group.curves):
        depths = show_range(p["depth"] for p in group.points)
        notes.append(f"No slope was fitted; the depth h is {depths}.")
    bounds = bounds_by_n(group)
    wide = [n for n, (low, high) in bounds.items() if math.isfinite(high) and high > 2 * low]
    if wide:
        n = max(wide, key=lambda n: bounds[n][1] / bounds[n][0] if bounds[n][0] else math.inf)
        low, high = map(show, bounds[n])
        notes.append(f"At N = {show_n(n)} the bounds of the families go from {low} to {high} ulp.")
    unbounded = [show_n(n) for n, (_, high) in bounds.items() if math.isinf(high)]
    if unbounded:
        notes.append(f"Results without a proved bound: N = {', '.join(unbounded)}.")
    infinite = sorted({p["n"] for p in group.points if p["largest"] is None})
    if infinite:
        notes.append(f"An infinite error is not drawn: N = {', '.join(map(show_n, infinite))}.")
    if any(p["largest"] == 0 for p in group.points):
        notes.append("Open markers on the lower edge: no error.")
    return list(map(_unbroken, notes))


def _unbroken(text: str) -> str:
    """With a number and what belongs to it on one line."""
    return re.sub(r"(?<=N) = (?=\d)| (?=ulp)", lambda m: m[0].replace(" ", "\xa0"), text)


# The page.


def _breakable(name: str) -> Markup:
    """A name that a browser may break after its punctuation."""
    return Markup("<wbr>").join(map(escape, re.findall(r"[^/._:]*[/._:]+|[^/._:]+", name)))


def _page(data: dict[str, Any], groups: list[Group], plots: dict[str, str]) -> str:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        show=show,
        share=show_share,
        percent=show_percent,
        n=show_n,
        time=show_time,
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
        anchors={name: f"kernel-{safe_name(name)}" for name in kernels},
        families=sorted(families, key=lambda f: place_in(f, FAMILIES)),
        results=sum(p["elements"] for p in points),
        undecided=sum(p["undecided"] for p in points),
        points=len(points),
        unbounded=sum(p["bound"] is None for p in points),
        broken=any(number(p["share"]) > 1 for p in points),
        truncated=any(g.truncated for g in groups),
        ns=show_range(p["n"] for p in points) if points else "",
    )
