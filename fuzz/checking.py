# SPDX-License-Identifier: Apache-2.0
"""`assay check`: every check that applies, violations minimised, confirmed and written."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.fuzz.minimise import minimise
from assay.kernels import device
from assay.kernels.record import Kernel
from assay.properties.case import Case, Problem, Stored, build
from assay.properties.checks import Kept, checks_for, run_check
from assay.properties.launch import supports
from assay.properties.search import Tally, investigate
from assay.properties.tensors import load_bits
from assay.properties.values import CaseError
from assay.properties.witness import WitnessError, literal_if_small, make, save


@dataclass
class Report:
    """What `assay check` found for one kernel."""

    kernel: Kernel
    tallies: list[Tally] = field(default_factory=list)
    witnesses: list[tuple[Path, str, Case]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return any(t.failure is not None for t in self.tallies)

    def as_data(self) -> dict[str, Any]:
        platform = device.current()
        return {
            "kernel": self.kernel.target or self.kernel.name,
            "operation": self.kernel.operation,
            "device": platform.device,
            "platform": platform.name,
            "failed": self.failed,
            "checks": [
                {
                    "check": t.check,
                    "dtype": t.dtype,
                    "passed": t.passed,
                    "skipped": t.skipped,
                    "failed": t.failure is not None,
                    "probe": t.probe,
                    "worst_share_of_bound": t.worst_share
                    if t.worst_share != float("inf")
                    else None,
                    "worst_ulps": t.worst_ulps if t.worst_ulps != float("inf") else None,
                    "message": t.failure[1].message if t.failure else None,
                }
                for t in self.tallies
            ],
            "witnesses": [
                {"path": str(p), "message": text, "case": str(case)}
                for p, text, case in self.witnesses
            ],
            "notes": self.notes,
        }

    def show(self) -> None:
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        console = Console()
        platform = device.current()
        name = self.kernel.target or self.kernel.name
        dtypes = list(dict.fromkeys(t.dtype for t in self.tallies))
        console.print(escape(name), soft_wrap=True)
        table = Table(caption="cases run, worst share of the proved bound")
        table.add_column("check", no_wrap=True)
        for dtype in dtypes:
            table.add_column(dtype)
        cells: dict[str, dict[str, str]] = {}
        for t in self.tallies:
            cells.setdefault(t.check, {})[t.dtype] = _cell(t)
        for check, row in cells.items():
            table.add_row(check, *(row.get(d, "") for d in dtypes))
        console.print(table)
        console.print(f"on {platform.device} ({platform.name}), Triton {platform.triton}")
        for t in self.tallies:
            if t.failure is not None and not self.witnesses:
                console.print(f"\n{t.check} ({t.dtype}): {escape(t.failure[1].message)}")
                console.print(f"  on {escape(str(t.failure[0]))}", soft_wrap=True)
        for path, text, case in self.witnesses:
            console.print(f"\n[red]{escape(text)}[/red]", highlight=False, soft_wrap=True)
            console.print(f"  smallest case found: {escape(str(case))}", soft_wrap=True)
            command = f"assay replay {shlex.quote(str(path))}"
            console.print(f"  {escape(command)}", soft_wrap=True, highlight=False)
        for note in self.notes:
            console.print(escape(note), soft_wrap=True)


def _cell(tally: Tally) -> str:
    if tally.failure is not None:
        return "[red]violated[/red]"
    if tally.passed == 0:
        return "says nothing"
    share = f", {tally.worst_share:.3f}" if tally.worst_share else ""
    return f"held: {tally.passed}{share}"


def check_kernel(
    kernel: Kernel,
    *,
    inputs: list[str],
    only: list[str] | None = None,
    examples: int = 25,
    seed: int | None = None,
    out: Path | None = Path("witnesses"),
    quiet: bool = False,
) -> Report:
    """Run the checks of a kernel on generated cases, or on the user's tensors if there are any.

    out: where witnesses go; None writes none and minimises nothing.
    Raises CaseError for tensors that do not fit the operation.
    """
    report = Report(kernel)
    here = Path.cwd()
    chosen = [c.name for c in checks_for(kernel.operation) if not only or c.name in only]
    if not chosen:
        raise ValueError(
            f"none of the checks {', '.join(only or ())} speaks about {kernel.operation}"
        )
    case = case_from_inputs(kernel, inputs) if inputs else None
    problem = build(case) if case is not None else None
    kept: Kept = {}
    jobs = [
        (name, dtype) for dtype in ((case.dtype,) if case else kernel.dtypes) for name in chosen
    ]
    done: set[str] = set()
    with _Progress(quiet, len(jobs)) as advance:
        for name, dtype in jobs:
            advance(f"{name} {dtype}")
            if case is not None and problem is not None:
                tally = _on_input(kernel, name, case, problem, kept)
            else:
                tally = investigate(kernel, name, dtype, examples=examples, number=seed)
            report.tallies.append(tally)
            if tally.failure is not None and name not in done:
                done.add(name)
                if out is None:
                    continue
                advance(f"minimising {name}", step=0)
                os.chdir(here)  # a kernel may have gone elsewhere
                _write_witness(report, tally, out)
        if report.witnesses:
            advance("confirming in a new process", step=0)
            report.notes += confirm([path for path, _, _ in report.witnesses])
    return report


def _on_input(kernel: Kernel, name: str, case: Case, problem: Problem, kept: Kept) -> Tally:
    tally = Tally(kernel.name, name, case.dtype)
    (verdict,) = run_check(name, kernel, [problem], kept=kept)
    tally.add(case, verdict)
    return tally


def _write_witness(report: Report, tally: Tally, out: Path) -> None:
    assert tally.failure is not None
    smallest = minimise(report.kernel, tally.check, *tally.failure)
    case = literal_if_small(smallest.case, build(smallest.case))
    text = f"{tally.check} ({tally.dtype}): {smallest.verdict.message}"
    try:
        path = save(make(report.kernel, case, smallest.verdict), out)
    except WitnessError as error:
        # The finding is worth more than its file.
        report.notes += [text, f"  smallest case found: {case}", f"  no witness: {error}"]
        return
    report.witnesses.append((path, text, case))


def confirm(paths: list[Path]) -> list[str]:
    """Run new witnesses in a new process and record what comes out there.

    A kernel that remembers earlier calls gives other bits here than in the process that replays.
    Returns a note for each violation that does not show there.
    """
    command = [sys.executable, "-c", "from assay.fuzz.cli import main; main()"]
    command += ["replay", "--record", "--json", "--device", device.select(), *map(str, paths)]
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    # The new process must find the same packages, however this one found them.
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return [f"the witnesses could not be replayed in a new process: {reason}"]
    return [
        f"{r['witness']}: does not show in a new process, so it depends on earlier calls"
        for r in json.loads(done.stdout)
        if not r["persists"]
    ]


def case_from_inputs(kernel: Kernel, inputs: list[str]) -> Case:
    """The case of the user's tensors, given as [OPERAND=]FILE[:NAME]."""
    op = kernel.op
    tensors, data = {}, {}
    for text in inputs:
        operand, path, name = split_input(text, [o.name for o in op.operands])
        if operand in data:
            raise CaseError(f"the operand {operand} is given twice")
        op.operand(operand)
        tensor = load_bits(path, name)
        tensors[operand] = tensor
        data[operand] = Stored(str(path.resolve()), name, tensor.digest)
    if "x" not in tensors:
        raise CaseError(f"{op.name} needs the operand x: --input FILE or --input x=FILE")
    x = tensors["x"]
    rows, n = x.bits.shape
    if op.whole:
        rows, n = 1, x.bits.size
    columns = 1
    for name, tensor in tensors.items():
        expected = (rows, n) if op.operand(name).shape == "matrix" else (1, n)
        if op.operand(name).shape == "second":
            columns = tensor.bits.shape[1]
            expected = (n, columns)
        if not op.whole and tensor.bits.shape != expected:
            raise CaseError(
                f"{name} must have shape {_shape(expected)} to go with x, got "
                f"{_shape(tensor.bits.shape)}"
            )
        if tensor.format.name not in kernel.dtypes:
            raise CaseError(
                f"{name} is {tensor.format.name}, {kernel.name} claims {', '.join(kernel.dtypes)}"
            )
    case = Case(
        operation=op.name,
        dtype=x.format.name,
        rows=rows,
        n=n,
        columns=columns,
        operands=dict(data),
        dtypes={k: t.format.name for k, t in tensors.items() if t.format is not x.format},
    )
    reason = supports(kernel, build(case))
    if reason:
        raise CaseError(reason)
    return case


def _shape(shape: tuple[int, ...]) -> str:
    return f"({shape[1]},)" if shape[0] == 1 else f"({shape[0]}, {shape[1]})"


def split_input(text: str, operands: list[str]) -> tuple[str, Path, str]:
    """[OPERAND=]FILE[:NAME] taken apart; the operand is x if none is named."""
    operand, equals, rest = text.partition("=")
    if not equals or ("/" in operand or "." in operand):
        operand, rest = "x", text
    file, colon, name = rest.rpartition(":")
    if not colon or Path(rest).exists():
        file, name = rest, ""
    if not file:
        raise CaseError(f"--input takes [OPERAND=]FILE[:NAME], got {text!r}")
    if operand not in operands:
        raise CaseError(f"no operand {operand!r}: expected one of {', '.join(operands)}")
    return operand, Path(file), name


class _Progress:
    """A progress bar on stderr where it is a terminal, nothing elsewhere."""

    def __init__(self, quiet: bool, total: int) -> None:
        self.bar: Any = None
        self.total = total
        if not quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                console=Console(stderr=True),
                transient=True,
            )

    def __enter__(self) -> Any:
        if self.bar is None:
            return lambda text, step=1: None
        self.bar.start()
        task = self.bar.add_task("", total=self.total)

        def advance(text: str, step: int = 1) -> None:
            self.bar.update(task, description=text, advance=step)

        return advance

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()
