# SPDX-License-Identifier: Apache-2.0
"""The report of an audit: whole, self-contained, escaped, and equal for equal data."""

from __future__ import annotations

import copy
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from assay.fuzz.report import write_report

VOID = {"meta", "link", "br", "hr", "img", "input", "wbr"}
# What may carry an address that a browser would fetch.
FETCHING = {"src", "srcset", "href", "xlink:href", "action", "data", "poster"}


def point(n: int, **changes: Any) -> dict[str, Any]:
    """A point of a kernel that is right; `changes` makes it another."""
    usual = {
        "n": n,
        "rows": 12,
        "depth": 4 + n // 64,
        "trials": 3,
        "elements": 12,
        "rms": 0.4,
        "mean": 0.01,
        "largest": 1.2,
        "excess": 0.7,
        "misrounded": 0.25,
        "undecided": 0,
        "share": 0.15,
        "bound": 8.0,
        "errors": [0.4, -0.3, 0.5],
    }
    return usual | changes


def curve(family: str, *points: dict[str, Any], **changes: Any) -> dict[str, Any]:
    usual = {
        "kernel": "l2_norm.atomic",
        "operation": "l2_norm",
        "dtype": "float32",
        "family": family,
        "accumulator": "float32",
        "cast": 0.5,
        "points": list(points),
        "fit": None,
    }
    return usual | changes


def audit(*curves: dict[str, Any], **changes: Any) -> dict[str, Any]:
    usual = {
        "schema": 1,
        "created": "2026-11-29T23:06:18Z",
        "seconds": 43.4,
        "complete": True,
        "versions": {
            "device": "cuda",
            "name": "NVIDIA H200",
            "arch": "sm_90",
            "triton": "3.7.1",
            "torch": "2.13.0",
            "python": "3.12.1",
            "assay": "0.1.0",
        },
        "violations": [],
        "curves": list(curves),
    }
    return usual | changes


class Page(HTMLParser):
    """Text, ids and addresses of a page; fails where a tag is not closed in its turn."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.feed(source)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.addresses += [value for name, value in attrs if name in FETCHING and value]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open, f"</{tag}> closes nothing"
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.texts))


def written(data: dict[str, Any], out: Path) -> Page:
    write_report(data, out)
    return Page((out / "index.html").read_text("utf-8"))


def plots(out: Path) -> list[str]:
    return sorted(p.name for p in (out / "plots").iterdir())


def test_page_holds_every_plot_and_fetches_nothing(tmp_path: Path) -> None:
    dtypes = ("float32", "float16", "bfloat16")
    curves = [
        curve(family, point(1, largest=0.0, rms=0.0), point(64), point(4096), dtype=dtype)
        for dtype in dtypes
        for family in ("normal", "real")
    ]
    curves.append(curve("normal", point(1), kernel="softmax.one_tile", operation="softmax"))
    page = written(audit(*curves), tmp_path)
    expected = {f"l2_norm.atomic-{d}.svg" for d in dtypes} | {"softmax.one_tile-float32.svg"}
    assert set(plots(tmp_path)) == expected
    assert page.tags.count("svg") == len(expected)
    assert len(page.ids) == len(set(page.ids)), "an id names one element"
    targets = {f"#{name}" for name in page.ids}
    assert page.addresses
    assert set(page.addresses) <= targets
    source = (tmp_path / "index.html").read_text("utf-8")
    outside = re.sub(r'xmlns(:\w+)?="[^"]*"', "", source)
    assert not re.findall(r"https?:|@import|url\((?!#)|<script|<link", outside)
    assert set(re.findall(r"url\((#[^)]+)\)", source)) <= targets


def test_plot_files_stand_alone(tmp_path: Path) -> None:
    write_report(audit(curve("normal", point(1), point(64))), tmp_path)
    source = (tmp_path / "plots" / "l2_norm.atomic-float32.svg").read_text("utf-8")
    root = ET.fromstring(source)  # noqa: S314
    texts = ["".join(e.itertext()) for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"N", "error (ulp of float32)", "normal", "proved bound"} <= set(texts)
    assert "currentColor" in source
    assert not re.findall(r"#000000|#ffffff", source)


def test_equal_data_gives_equal_bytes(tmp_path: Path) -> None:
    data = audit(curve("normal", point(1), point(64)), curve("normal", point(1), dtype="float16"))
    before = copy.deepcopy(data)
    for name in ("first", "second"):
        write_report(data, tmp_path / name)
    assert data == before
    first, second = tmp_path / "first", tmp_path / "second"
    files = ["index.html", *(f"plots/{name}" for name in plots(first))]
    assert len(files) == 1 + len(plots(second))
    for name in files:
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_nothing_but_whole_files_is_left(tmp_path: Path) -> None:
    write_report(audit(curve("normal", point(1))), tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["index.html", "plots"]
    assert plots(tmp_path) == ["l2_norm.atomic-float32.svg"]


def test_names_are_escaped_and_make_safe_file_names(tmp_path: Path) -> None:
    names = (
        '../a <b>&"c".py:<script>alert(1)</script>',
        "dir/file.py:kernel",
        "dir/file.py/kernel",
        "/" + "long_" * 80 + ".py:kernel",
    )
    curves = [curve("nor<i>mal $x_1", point(1), kernel=name) for name in names]
    page = written(audit(*curves, violations=["<b>& NaN"]), tmp_path)
    assert all(name in page.text for name in names)
    assert "<b>& NaN" in page.text
    assert not {"script", "i"} & set(page.tags)
    assert "<b>&" not in (tmp_path / "index.html").read_text("utf-8")
    assert len(plots(tmp_path)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,120}", name) for name in plots(tmp_path))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["index.html", "plots"]


def test_header_says_that_all_held(tmp_path: Path) -> None:
    page = written(audit(curve("normal", point(1), point(64))), tmp_path)
    assert "No result broke a proved bound: 24 results measured." in page.text
    assert "NVIDIA H200 (cuda, sm_90)" in page.text
    assert "2026-11-29 23:06 UTC" in page.text
    assert "violations" not in page.text
    assert "interpreter" not in page.text.lower()


def test_violations_come_first(tmp_path: Path) -> None:
    data = audit(
        curve("normal", point(1, share=1.0004)), violations=["l2_norm.atomic float32: wrong"]
    )
    page = written(data, tmp_path)
    assert "1 violation " in page.text
    assert page.text.index("float32: wrong") < page.text.index("Device")
    assert "No result broke" not in page.text
    assert "1.01" in page.text, "a share above 1 is never rounded to 1"


def test_a_broken_bound_is_told_even_without_a_message(tmp_path: Path) -> None:
    page = written(audit(curve("normal", point(1, share=None, largest=None))), tmp_path)
    assert "No result broke" not in page.text
    assert "An error exceeds what its bound allows" in page.text
    assert "An infinite error is not drawn" in page.text


@pytest.mark.parametrize("curves", [(), (curve("normal"),)])
def test_empty_audit(tmp_path: Path, curves: tuple[dict[str, Any], ...]) -> None:
    page = written(audit(*curves, complete=False), tmp_path)
    assert "Nothing was measured." in page.text
    assert "Incomplete" in page.text
    assert "No result broke" not in page.text
    assert plots(tmp_path) == []


def test_no_bound_is_told(tmp_path: Path) -> None:
    page = written(audit(curve("normal", point(1, bound=None), point(64))), tmp_path)
    assert "at 1 of 2 points some have no proved bound" in page.text
    assert "Results without a proved bound: N = 1." in page.text
    nowhere = written(audit(curve("normal", point(1, bound=None))), tmp_path)
    assert "where no bound is proved" in nowhere.text


def test_sentences_are_computed_from_the_data(tmp_path: Path) -> None:
    fit = {"slope": 0.512, "low": 0.44, "high": 0.553, "constant": 0.2, "points": 5}
    wide = fit | {"low": 0.1}
    far = point(1 << 28, largest=6.14, share=0.1239)
    page = written(
        audit(
            curve("normal", point(4, largest=0.9), far, fit=fit),
            curve("uniform", point(4, largest=9.0), far, fit=wide),
            curve("constant", point(4, largest=0.0, rms=0.0)),
        ),
        tmp_path,
    )
    assert (
        "the largest error grows from 0.9 ulp at N = 4 to 6.14 ulp at N = 2²⁸, 0.123 of the bound; "
        "fitted slope in depth 0.51 (0.44 to 0.55): roundings that go either way." in page.text
    )
    assert "falls from 9 ulp" in page.text
    assert "0.51 (0.10 to 0.55): too wide an interval to tell which way." in page.text
    assert "constant: no error at N = 4." in page.text
    assert "Open markers on the lower edge: no error." in page.text


def test_final_rounding(tmp_path: Path) -> None:
    truncating = point(16, largest=0.9999, bound=1.001, share=0.9999, mean=-0.39)
    nearest = point(16, largest=0.4999, bound=0.501, share=0.9999)
    early = point(16, largest=2.9, bound=3.9)
    data = audit(
        curve("normal", truncating, dtype="bfloat16"),
        curve("normal", nearest, dtype="float16"),
        curve("normal", early, dtype="float16", kernel="rms_norm.cast_first"),
    )
    assert "truncates" not in written(data, tmp_path).text
    data["versions"]["device"] = "interpreter"
    data["curves"][0]["cast"] = 1.0
    text = written(data, tmp_path).text
    assert "dominates (at most 1 ulp: the interpreter truncates to bfloat16)." in text
    assert "dominates (at most 0.5 ulp, to nearest)." in text
    assert "is the smaller part of the largest error, 2.9 ulp." in text
    assert "bfloat16 †" in text
    assert "0.999" in text, "a share below 1 is never rounded to 1"
    assert "Its curves are not the GPU" in text


def test_bias_counts_rows_and_ignores_repeated_inputs(tmp_path: Path) -> None:
    lean = {"mean": -0.38, "rms": 0.4}
    shown = "mean error −0.95 of the rms at N = 16"  # noqa: RUF001
    assert shown in written(audit(curve("normal", point(16, **lean))), tmp_path).text
    few = curve("normal", point(16, **lean, rows=4))
    assert shown not in written(audit(few), tmp_path).text
    repeated = curve("constant", point(16, **lean, errors=[-0.4] * 3))
    assert shown not in written(audit(repeated), tmp_path).text


def test_the_users_matplotlib_is_left_alone(tmp_path: Path) -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    loaded = "matplotlib.pyplot" in sys.modules
    with mpl.rc_context({"xtick.labelsize": 30, "axes.edgecolor": "red"}):
        write_report(audit(curve("normal", point(1))), tmp_path / "odd")
    write_report(audit(curve("normal", point(1))), tmp_path / "usual")
    assert dict(mpl.rcParams) == before
    assert ("matplotlib.pyplot" in sys.modules) == loaded
    odd, usual = (tmp_path / name / "index.html" for name in ("odd", "usual"))
    assert odd.read_bytes() == usual.read_bytes()
