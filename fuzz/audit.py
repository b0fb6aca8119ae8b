# SPDX-License-Identifier: Apache-2.0
"""`assay audit`: error against N for each kernel, dtype and data family, beside the bound."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from assay.fuzz.curves import show, show_n, show_share
from assay.fuzz.fit import Fit, fit
from assay.fuzz.measure import REAL, OraclesDisagree, Point, measure
from assay.kernels import device
from assay.kernels.record import Kernel
from assay.kernels.record import kernels as registered
from assay.kernels.target import resolve
from assay.oracles.formats import format_named
from assay.properties.witness import Versions, versions, write_atomically

SCHEMA = 1
FAMILIES = ("normal", "uniform", "constant", "real")
# A slope is fitted over this range of depths, up to the largest.
_FITTED_RANGE = 64
# Rows are judged element by element, on the host.
_LONGEST_ROW = 1 << 17
DEFAULT_MAX_N = {"interpreter": 1 << 16, "cuda": 1 << 28}


@dataclass
class Curve:
    """The points of one kernel, dtype and data family, over growing N."""

    kernel: str
    operation: str
    dtype: str
    family: str
    accumulator: str
    cast: float  # what the final rounding may add, in ulps of the output
    points: list[Point] = field(default_factory=list)
    fit: Fit | None = None


@dataclass
class Audit:
    """All curves of a run, with where and how they were measured."""

    versions: Versions
    created: str
    seconds: float = 0.0
    complete: bool = False
    curves: list[Curve] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    out: Path = Path()

    def as_data(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "created": self.created,
            "seconds": round(self.seconds, 1),
            "complete": self.complete,
            "versions": {f: getattr(self.versions, f) for f in self.versions.__struct_fields__},
            "violations": self.violations,
            "curves": [_finite(asdict(c)) for c in self.curves],
        }

    def show(self) -> None:
        """The table, and where the page is."""
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        console = Console()
        table = Table(
            title="Largest error over all N and families, in ulps of the output",
            caption="0.5 ulp is a correctly rounded result; share: largest error / proved bound",
            box=SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            show_edge=False,
            pad_edge=False,
        )
        table.add_column("kernel", no_wrap=True)
        table.add_column("dtype", no_wrap=True)
        for name in ("error", "allowed", "share"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("where", no_wrap=True)
        groups: dict[tuple[str, str], list[tuple[str, Point]]] = {}
        for c in self.curves:
            groups.setdefault((c.kernel, c.dtype), []).extend((c.family, p) for p in c.points)
        for (kernel, dtype), points in groups.items():
            family, worst = max(points, key=lambda fp: fp[1].largest)
            table.add_row(
                kernel,
                dtype,
                show(worst.largest),
                show(worst.bound),
                show_share(max(p.share for _, p in points)),
                f"{family} {show_n(worst.n)}",
            )
        console.print(table)
        v = self.versions
        console.print(f"{v.device} ({v.name}), Triton {v.triton}, {self.seconds:.0f} s")
        for text in self.violations:
            console.print(f"[red]{escape(text)}[/red]", soft_wrap=True)
        print(f"report: {self.out / 'index.html'}")


def _finite(value: Any) -> Any:
    """JSON has no infinity: None stands for "no bound"."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def sizes(kernel: Kernel, max_n: int, quick: bool) -> list[int]:
    """Powers of two: 1, 4, 16 up to max_n; every fourth power with `quick`."""
    limit = min(max_n, kernel.max_n or max_n)
    if not kernel.op.whole:
        limit = min(limit, _LONGEST_ROW)
    if quick:
        limit = min(limit, 4096)
    found = []
    n = 1
    while n <= limit:
        found.append(n)
        n *= 16 if quick else 4
    if found[-1] != limit and not quick:
        found.append(limit)
    return found


def trials_for(n: int, quick: bool) -> int:
    """Fewer at sizes where one takes seconds."""
    if quick:
        return 4
    if n <= 1 << 16:
        return 12
    return 8 if n <= 1 << 20 else 4 if n <= 1 << 24 else 2


def run_audit(
    kernels: list[Kernel],
    *,
    out: Path,
    quick: bool = False,
    max_n: int | None = None,
    quiet: bool = False,
) -> Audit:
    """Measure, write audit.json, plots and index.html into `out`, and return the audit.

    What was measured is on disk after each curve, so that an interrupted run loses one curve.
    Raises OSError if `out` cannot be written.
    """
    from assay.fuzz.report import write_report

    where = device.select()
    limit = max_n or DEFAULT_MAX_N[where]
    started = time.monotonic()
    audit = Audit(versions(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), out=out)
    out.mkdir(parents=True, exist_ok=True)
    jobs = [
        Job(kernel, dtype, family, limit, quick)
        for kernel in kernels
        for dtype in kernel.dtypes
        for family in FAMILIES
        if family != "real" or kernel.operation in REAL
    ]
    try:
        for i, (job, measured) in enumerate(zip(jobs, _run_jobs(jobs), strict=True)):
            if not quiet:
                _say(f"[{i + 1}/{len(jobs)}] {job.kernel.name} {job.dtype} {job.family}")
            curve, violations = measured
            audit.violations += violations
            if curve.points:
                audit.curves.append(curve)
            audit.seconds = time.monotonic() - started
            _save(audit)
        audit.complete = True
    except (KeyboardInterrupt, BrokenProcessPool) as error:
        if isinstance(error, BrokenProcessPool):
            text = "a worker process was ended by something else, most often for want of memory"
            audit.violations.append(f"{text}: try a smaller --max-n")
        elif not audit.curves:
            raise
        print("assay: interrupted, reporting what was measured", file=sys.stderr)
    if not quiet:
        _say("")
    audit.seconds = time.monotonic() - started
    _save(audit)
    write_report(audit.as_data(), out)
    return audit


@dataclass(frozen=True)
class Job:
    """One curve to measure."""

    kernel: Kernel
    dtype: str
    family: str
    max_n: int
    quick: bool


Measured = tuple[Curve, list[str]]


def _run_jobs(jobs: list[Job]) -> Iterator[Measured]:
    """The curves in order; several processes share the work."""
    where = device.select()
    # Most of the time goes to the oracle, on the CPU.
    workers = min(os.cpu_count() or 1, len(jobs), _workers_that_fit(where, jobs))
    # A kernel without a name that another process can resolve stays in this one.
    known = {*registered(), *(k.kernel.target for k in jobs if k.kernel.target)}
    portable = all((j.kernel.target or j.kernel.name) in known for j in jobs)
    if workers < 2 or not portable:
        yield from (_result_of(job) for job in jobs)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        workers, mp_context=context, initializer=_start_worker, initargs=(where,)
    ) as pool:
        futures = [pool.submit(_measure_in_worker, *_portable(job)) for job in jobs]
        try:
            for job, future in zip(jobs, futures, strict=True):
                yield _result_of(job, future)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _result_of(job: Job, future: Future[Measured] | None = None) -> Measured:
    """The curve of a job. One that cannot be measured is reported, and costs the others nothing."""
    try:
        return measure_curve(job) if future is None else future.result()
    except (OraclesDisagree, BrokenProcessPool):
        raise
    except Exception as error:  # noqa: BLE001 (whatever it is, the other curves are still good)
        text = f"{job.kernel.name} {job.dtype} {job.family}: not measured, {error}"
        return _empty_curve(job), [text]


def _workers_that_fit(where: str, jobs: list[Job]) -> int:
    """Workers that share the device without running out of its memory."""
    if where == "interpreter":
        return 8
    import torch

    longest = max((j.max_n for j in jobs if j.kernel.op.whole), default=0)
    # The array, what the kernel allocates, and a gigabyte for the context and the oracle's chunks.
    each = 3 * 4 * longest + (1 << 30)
    _, total = torch.cuda.mem_get_info()
    return int(max(1, min(12, total // each)))


def _start_worker(where: str) -> None:
    # Ctrl-C goes to the parent, which reports what there is.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    device.select(where)
    import torch

    torch.set_num_threads(1)


def _portable(job: Job) -> tuple[Any, ...]:
    k = job.kernel
    claims = (k.operation, k.dtypes, k.accumulator, dict(k.policies))
    return (k.target or k.name, claims, job.dtype, job.family, job.max_n, job.quick)


def _measure_in_worker(
    target: str, claims: Any, dtype: str, family: str, max_n: int, quick: bool
) -> Measured:
    operation, dtypes, accumulator, policies = claims
    kernel = resolve(
        target, operation=operation, dtypes=dtypes, accumulator=accumulator, policies=policies
    )
    return measure_curve(Job(kernel, dtype, family, max_n, quick))


def measure_curve(job: Job) -> Measured:
    """One curve over growing N, and what broke the claims on the way."""
    kernel = job.kernel
    curve = _empty_curve(job)
    violations: list[str] = []
    for n in sizes(kernel, job.max_n, job.quick):
        trials = trials_for(n, job.quick)
        point = measure(kernel, job.dtype, job.family, n, trials, violations)
        if point is None:
            break
        curve.points.append(point)
    curve.fit = _fit(curve.points)
    return curve, violations


def _empty_curve(job: Job) -> Curve:
    kernel = job.kernel
    arithmetic = device.current().arithmetic(kernel.accumulator_format, kernel.casts_on_host)
    return Curve(
        kernel.target or kernel.name,
        kernel.operation,
        job.dtype,
        job.family,
        kernel.accumulator,
        arithmetic.cast(format_named(job.dtype)),
    )


def _fit(points: list[Point]) -> Fit | None:
    """The slope in the depth, where the depth grows enough to have one."""
    depths = [p.depth for p in points]
    if not depths or max(depths) < _FITTED_RANGE * max(1, min(depths)):
        return None
    # Up to one tile the depth comes from inside `tl.sum`; the slope is that of many additions.
    far = [p for p in points if p.depth * _FITTED_RANGE >= max(depths)]
    return fit([p.depth for p in far], [np.array(p.errors) for p in far])


def _say(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _save(audit: Audit) -> None:
    content = json.dumps(audit.as_data(), indent=1, allow_nan=False).encode()
    write_atomically(audit.out / "audit.json", content + b"\n")
