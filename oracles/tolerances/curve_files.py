# SPDX-License-Identifier: Apache-2.0
"""Measured curves as files: `oracles/curves/<device>/*.json`, and folders of the user's own.

A file is what `assay audit` writes: versions, date, and a list of curves. It is read strictly: a
number of the wrong kind or a point without trials is an error that names the file, the curve and
the entry, since a curve that is silently misread turns into a wrong tolerance.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from assay.oracles.platform import Platform

SCHEMA = 1
PLATFORM_FIELDS = ("device", "name", "arch", "triton", "torch", "python")


class CurveFileError(ValueError):
    """A file of curves that cannot be used, in one line that says where and why."""


@dataclass(frozen=True)
class CurvePoint:
    """Errors at one N, in ulps of the output format at the exact result.

    errors: one number a trial, its rms error with the sign of its mean; a trial is a fresh input,
        and one without any finite result has no number.
    rms, mean, largest: over all `elements` results of all trials.
    share: largest error as a share of what the proved bound allows; infinite where nothing is
        allowed.
    bound: what the bound allows; infinite where it allows everything.
    """

    n: int
    rows: int
    depth: int
    trials: int
    elements: int
    rms: float
    mean: float
    largest: float
    share: float
    bound: float
    errors: tuple[float, ...]


@dataclass(frozen=True)
class CurveFit:
    """log2 rms = log2 constant + slope * log2 depth, with a 95 % interval of the slope."""

    slope: float
    low: float
    high: float
    constant: float
    points: int


@dataclass(frozen=True)
class MeasuredCurve:
    """One kernel, dtype and data family on one device, over growing N.

    device: the folder's name, `nvidia-h200`.
    cast: what the final rounding may add, in ulps of the output.
    created: when it was measured, ISO 8601.
    source: the file, for messages.
    """

    kernel: str
    operation: str
    dtype: str
    family: str
    accumulator: str
    cast: float
    device: str
    platform: Platform
    created: str
    points: tuple[CurvePoint, ...]
    fit: CurveFit | None
    source: str

    @property
    def measured(self) -> tuple[int, int]:
        """The smallest and the largest N that was measured."""
        return self.points[0].n, self.points[-1].n

    @property
    def trials(self) -> int:
        return sum(p.trials for p in self.points)


class _Reader:
    """Takes entries out of parsed JSON and says where one is missing or of the wrong kind."""

    def __init__(self, where: str, data: Any) -> None:
        self.where = where
        if not isinstance(data, Mapping):
            raise CurveFileError(f"{where}: expected an object, got {_kind(data)}")
        self.data = data

    def _entry(self, name: str) -> Any:
        if name not in self.data:
            raise CurveFileError(f"{self.where}: {name!r} is missing")
        return self.data[name]

    def _wrong(self, name: str, expected: str, value: Any) -> CurveFileError:
        return CurveFileError(f"{self.where}: {name!r} must be {expected}, got {value!r:.60}")

    def text(self, name: str) -> str:
        value = self._entry(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a string", value)
        return value

    def whole(self, name: str, least: int) -> int:
        value = self._entry(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self._wrong(name, f"a whole number from {least}", value)
        return value

    def real(self, name: str, *, least: float = -math.inf, endless: bool = False) -> float:
        """A finite number; None stands for infinity where `endless`."""
        value = self._entry(name)
        if value is None and endless:
            return math.inf
        if not _is_real(value) or not value >= least:
            above = f" from {least:g}" if least > -math.inf else ""
            raise self._wrong(name, f"a finite number{above}", value)
        return float(value)

    def reals(self, name: str) -> tuple[float, ...]:
        value = self._entry(name)
        if not isinstance(value, list) or not all(_is_real(v) for v in value):
            raise self._wrong(name, "a list of finite numbers", value)
        return tuple(float(v) for v in value)

    def objects(self, name: str, label: str) -> list[_Reader]:
        value = self._entry(name)
        if not isinstance(value, list):
            raise self._wrong(name, "a list", value)
        return [_Reader(f"{self.where}: {label} {i + 1}", v) for i, v in enumerate(value)]

    def object(self, name: str) -> _Reader:
        return _Reader(f"{self.where}: {name}", self._entry(name))


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _point(entry: _Reader) -> CurvePoint:
    point = CurvePoint(
        n=entry.whole("n", 1),
        rows=entry.whole("rows", 1),
        depth=entry.whole("depth", 0),
        trials=entry.whole("trials", 1),
        elements=entry.whole("elements", 1),
        rms=entry.real("rms", least=0.0, endless=True),
        mean=entry.real("mean", endless=True),
        largest=entry.real("largest", least=0.0, endless=True),
        share=entry.real("share", least=0.0, endless=True),
        bound=entry.real("bound", least=0.0, endless=True),
        errors=entry.reals("errors"),
    )
    if len(point.errors) > point.trials:
        raise CurveFileError(
            f"{entry.where}: 'errors' must hold at most one number for each of {point.trials} "
            f"trials, got {len(point.errors)}"
        )
    if point.rms > point.largest * (1.0 + 2.0**-20):
        raise CurveFileError(
            f"{entry.where}: 'rms' {point.rms:g} cannot be above 'largest' {point.largest:g}"
        )
    return point


def _fit(entry: _Reader) -> CurveFit | None:
    if entry.data.get("fit") is None:
        return None
    inner = entry.object("fit")
    fit = CurveFit(
        slope=inner.real("slope"),
        low=inner.real("low"),
        high=inner.real("high"),
        constant=inner.real("constant", least=0.0),
        points=inner.whole("points", 3),
    )
    if not fit.low <= fit.high:
        raise CurveFileError(f"{inner.where}: the interval of the slope is empty")
    return fit


def parse(content: bytes, *, source: str, device: str) -> list[MeasuredCurve]:
    """The curves of one file's content; CurveFileError says what is wrong with it."""
    try:
        data = json.loads(content)
    except ValueError as error:
        raise CurveFileError(f"{source}: not JSON ({error})") from None
    top = _Reader(source, data)
    schema = top.whole("schema", 1)
    if schema != SCHEMA:
        raise CurveFileError(
            f"{source}: written with schema {schema}, this version reads {SCHEMA}: measure again"
        )
    versions = top.object("versions")
    platform = Platform(**{name: versions.text(name) for name in PLATFORM_FIELDS})
    try:
        _ = platform.triton_release
    except ValueError:
        raise CurveFileError(
            f"{versions.where}: 'triton' must be a release such as 3.6.0, got {platform.triton!r}"
        ) from None
    created = top.text("created")
    curves = []
    for entry in top.objects("curves", "curve"):
        names = {
            name: entry.text(name)
            for name in ("kernel", "operation", "dtype", "family", "accumulator")
        }
        entry.where = f"{source}: curve {' '.join(names[k] for k in ('kernel', 'dtype', 'family'))}"
        points = sorted((_point(p) for p in entry.objects("points", "point")), key=lambda p: p.n)
        if not points:
            raise CurveFileError(f"{entry.where}: has no points")
        if len({p.n for p in points}) != len(points):
            raise CurveFileError(f"{entry.where}: one N occurs twice")
        curves.append(
            MeasuredCurve(
                **names,
                cast=entry.real("cast", least=0.0),
                device=device,
                platform=platform,
                created=created,
                points=tuple(points),
                fit=_fit(entry),
                source=source,
            )
        )
    return curves


def read_file(path: Traversable, device: str) -> list[MeasuredCurve]:
    """The curves of one file; CurveFileError if it cannot be read or is not one."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CurveFileError(f"{path}: {error.strerror or error}") from None
    return parse(content, source=str(path), device=device)


def read_folder(folder: Traversable) -> list[MeasuredCurve]:
    """The curves of `<folder>/<device>/*.json`, or of `<folder>/*.json` for one device alone."""
    if not folder.is_dir():
        raise CurveFileError(f"{folder}: no such folder of curves")
    curves: list[MeasuredCurve] = []
    for item in sorted(folder.iterdir(), key=lambda p: p.name):
        if item.is_dir():
            for file in sorted(item.iterdir(), key=lambda p: p.name):
                if file.name.endswith(".json"):
                    curves += read_file(file, item.name)
        elif item.name.endswith(".json"):
            curves += read_file(item, folder.name)
    return curves


def committed() -> Traversable:
    """The folder of curves that came with assay."""
    return files("assay.oracles") / "curves"


def load(extra: Iterable[Path | str] = ()) -> tuple[MeasuredCurve, ...]:
    """All curves: those in the folders `extra` first, then the committed ones.

    Raises CurveFileError for the first file that is not what it should be.
    """
    found: list[MeasuredCurve] = []
    for folder in extra:
        found += read_folder(Path(folder))
    return (*found, *read_folder(committed()))


def matching(
    curves: Sequence[MeasuredCurve],
    *,
    kernel: str,
    dtype: str,
    family: str,
    device: str | None = None,
) -> MeasuredCurve | None:
    """The curve of a kernel, dtype and family; the first of several, the longest in that folder."""
    chosen = [
        c
        for c in curves
        if (c.kernel, c.dtype, c.family) == (kernel, dtype, family) and device in (None, c.device)
    ]
    if not chosen:
        return None
    first = [c for c in chosen if c.device == chosen[0].device]
    return max(first, key=lambda c: c.measured[1])
