# SPDX-License-Identifier: Apache-2.0
"""`assay tolerance`: the tolerance to write into a test, and where it comes from."""

from __future__ import annotations

import math
import sys
import tomllib
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from assay.kernels.record import Kernel
    from assay.oracles.tolerances.claimed_error import Claims
    from assay.oracles.tolerances.power import Line, SelfAudit
    from assay.oracles.tolerances.tolerance import Longest, Tolerance


def tolerance(
    operation: Annotated[
        str | None, typer.Argument(help="What is computed; `assay list` names them.")
    ] = None,
    n: Annotated[int | None, typer.Option("--n", min=1, help="Elements reduced.")] = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", help="Of input and output: float32, float16, bfloat16.")
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            "--kernel",
            help="Whose order of summation counts; the operation's first registered one if left "
            "out, `any` for no claim at all.",
        ),
    ] = None,
    family: Annotated[
        str, typer.Option("--family", help="Data that the test draws.", show_default=True)
    ] = "normal",
    rows: Annotated[int, typer.Option("--rows", min=1, help="Rows that the test compares.")] = 1,
    checks: Annotated[
        int, typer.Option("--checks", min=1, help="Tests that share the false alarm.")
    ] = 1,
    false_alarm: Annotated[
        float | None,
        typer.Option(
            "--false-alarm", help="Probability that a right kernel fails; 1e-7 if left out."
        ),
    ] = None,
    extrapolate: Annotated[
        bool, typer.Option("--extrapolate", help="Go beyond the measured range of a curve.")
    ] = False,
    device_name: Annotated[
        str | None,
        typer.Option("--device-name", help="Whose curves count: a folder of curves, nvidia-h200."),
    ] = None,
    curves: Annotated[
        list[Path] | None,
        typer.Option("--curves", help="Folder of your own curves; may be repeated."),
    ] = None,
    largest_n: Annotated[
        bool, typer.Option("--largest-n", help="The inverse: the largest N for --error.")
    ] = False,
    error: Annotated[
        float | None,
        typer.Option("--error", help="With --largest-n: rtol, or the error relative to sum |x|."),
    ] = None,
    self_audit: Annotated[
        bool,
        typer.Option(
            "--self-audit", help="Which wrong kernels the criteria reject, and from which N."
        ),
    ] = False,
    max_n: Annotated[
        int | None, typer.Option("--max-n", min=1, help="With --self-audit: the largest N.")
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Machine-readable result on stdout, and nothing else there."),
    ] = False,
) -> None:
    """The tolerance to write into a test, and where it comes from.

    `assay tolerance l2_norm --n 1000000 --dtype float32` prints the line to copy and its
    derivation. `--largest-n --error E` answers the inverse. `--self-audit` shows which wrong
    kernels the criteria of this suite reject, in some minutes for all operations to N = 2**24;
    exit status 1 if one gets past all of them. Needs no GPU.
    """
    from assay.fuzz import cli

    with cli._status():  # noqa: SLF001 - the command line is one thing in several modules
        from assay.oracles.operation import operation_named
        from assay.oracles.tolerances.curve_files import load

        found = load([*(curves or ()), *_own_curves()])
        if self_audit:
            from assay.oracles.tolerances.power import audit

            if operation is not None:
                operation_named(operation)
            result = audit(
                [operation] if operation else None,
                claims=_registered_claims(),
                curves=found,
                max_n=max_n,
                say=_say if sys.stderr.isatty() else None,
            )
            if sys.stderr.isatty():
                _say("")
            if as_json:
                cli._print_json(result.as_data())  # noqa: SLF001
            else:
                show_audit(result)
            if result.survivors:
                raise typer.Exit(cli.FAILED)
            return
        if operation is None:
            raise ValueError("which operation? `assay list` names them")
        op = operation_named(operation)
        if dtype is None:
            raise ValueError("--dtype is missing: float32, float16 or bfloat16")
        claims, notes = _claims(op.name, kernel, dtype)
        options: dict[str, Any] = {
            "kernel": claims,
            "family": family,
            "device": device_name,
            "checks": checks,
            "rows": rows,
            "extrapolate": extrapolate,
            "curves": found,
        }
        if false_alarm is not None:
            options["false_alarm"] = false_alarm
        if largest_n:
            from assay.oracles.tolerances.tolerance import largest_n as search

            if error is None:
                raise ValueError("--largest-n needs --error E, the error that must not be exceeded")
            answer = search(op, dtype, error, **options)
            if as_json:
                cli._print_json(  # noqa: SLF001
                    {
                        "largest_n": answer.n,
                        "limit": answer.limit,
                        "notes": notes,
                        **as_data(answer.at),
                    }
                )
            else:
                show_longest(answer, error, notes)
            return
        if error is not None:
            raise ValueError("--error belongs to --largest-n")
        if n is None:
            raise ValueError("--n is missing: how many elements are reduced?")
        from assay.oracles.tolerances.tolerance import tolerance as derive

        answers = [derive(op, n, dtype, output=i, **options) for i in range(len(op.outputs))]
        if as_json:
            cli._print_json(  # noqa: SLF001
                {"notes": notes, "outputs": [as_data(a) for a in answers]}
            )
        else:
            show(answers, notes)


def _own_curves() -> list[Path]:
    """The folder that the project at hand names as `[tool.assay] curves`."""
    path = Path("pyproject.toml")
    if not path.is_file():
        return []
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not TOML ({error})") from None
    named = data.get("tool", {}).get("assay", {}).get("curves")
    if named is None:
        return []
    if not isinstance(named, str):
        raise ValueError(  # noqa: TRY004 - it is the file that is wrong
            f"{path}: [tool.assay] curves must be a folder, got {named!r}"
        )
    # Before the first audit there is none.
    return [Path(named)] if Path(named).is_dir() else []


def claims_of(kernel: Kernel) -> Claims:
    """A kernel's claims as the oracles take them."""
    from assay.oracles.tolerances.claimed_error import Claims

    return Claims(
        name=kernel.name,
        order=kernel.order,
        config=kernel.default_config,
        accumulator=kernel.accumulator,
        policies=kernel.policies,
        casts_on_host=kernel.casts_on_host,
        compensated_exponent=kernel.compensated_exponent,
        max_n=kernel.max_n,
    )


def _kernels() -> tuple[dict[str, Kernel], str]:
    """The registered kernels, or none and why."""
    from assay.kernels.device import EnvironmentLacks

    try:
        from assay.kernels.record import kernels

        return kernels(), ""
    except (ImportError, EnvironmentLacks) as error:
        return {}, f"The registered kernels cannot be loaded here ({error})."


def _registered_claims() -> dict[str, Claims]:
    """The first registered kernel of each operation."""
    found: dict[str, Claims] = {}
    for kernel in _kernels()[0].values():
        found.setdefault(kernel.operation, claims_of(kernel))
    return found


def _claims(operation: str, named: str | None, dtype: str) -> tuple[Claims | None, list[str]]:
    """The claims that count for an operation, and what to say about the choice."""
    from assay.oracles.formats import format_named

    format_named(dtype)
    if named == "any":
        return None, ["No kernel: the bound of any order of additions in float32."]
    if named is not None:
        from assay.kernels.target import resolve

        target = resolve(named, operation=operation if ":" in named else None)
        if target.operation != operation:
            raise ValueError(f"{target.name} implements {target.operation}, not {operation}")
        if dtype not in target.dtypes:
            raise ValueError(f"{target.name} takes {', '.join(target.dtypes)}, not {dtype}")
        return claims_of(target), []
    every, why = _kernels()
    chosen = [k for k in every.values() if k.operation == operation and dtype in k.dtypes]
    if not chosen:
        reason = why or f"No kernel is registered for {operation} in {dtype}."
        sharper = (
            "A claimed order is sharper: over tiles of 1024, h is about N / 1024 and the tolerance "
            "that much smaller; name yours with --kernel."
        )
        bound = "The bound is that of any order of additions in float32, h = N - 1."
        return None, [f"{reason} {bound}", sharper]
    notes = []
    if len(chosen) > 1:
        others = ", ".join(k.name for k in chosen[1:])
        notes.append(f"For {chosen[0].name}, the first registered kernel; there are also {others}.")
    return claims_of(chosen[0]), notes


def as_data(found: Tolerance) -> dict[str, Any]:
    """A tolerance as plain data; None stands for infinity."""
    data = asdict(replace(found, provenance=dict(found.provenance)))
    data["line"] = found.line
    data["bound"] = {"rtol": found.bound[0], "atol": found.bound[1]}
    return {
        k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in data.items()
    }


def show(answers: list[Tolerance], notes: list[str]) -> None:
    """The line to copy for each output, then the derivation."""
    for found in answers:
        if len(answers) > 1:
            print(f"# {found.output}")
        print(found.line)
        print()
        print(found.text)
        if len(answers) > 1:
            print()
    for note in notes:
        print(note)


def show_longest(answer: Longest, error: float, notes: list[str]) -> None:
    """The answer to --largest-n."""
    at = answer.at
    what = "rtol" if at.measure == "result" else f"the error relative to {at.measure}"
    if at.measure == "absolute":
        what = "atol"
    print(
        f"N = {answer.n:,} is the largest N for which {what} stays within {error:g} "
        f"({at.kind}); limited by {answer.limit}."
    )
    print()
    print(at.line)
    print()
    print(at.text)
    for note in notes:
        print(note)


def _say(text: str) -> None:
    print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _cells(line: Line) -> tuple[str, ...]:
    """A line of the self-audit as its table shows it."""
    from assay.fuzz.curves import show_n

    loses = "never" if line.loses_power is None else show_n(line.loses_power)
    by = ("-", "-", "-")
    if line.weakest is not None:
        margin, criterion = line.weakest.best
        by = (f"{margin:.3g}", show_n(line.weakest.n), criterion)
    idle = ", ".join(show_n(n) for n in line.idle) or "-"
    if len(line.idle) > 2:
        idle = f"{show_n(line.idle[0])} .. {show_n(line.idle[-1])}"
    return (line.operation, line.dtype, line.cheat, loses, *by, idle)


def show_audit(result: SelfAudit) -> None:
    """The table of the self-audit, without colours and as wide as it needs when piped."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 110)
    table = Table(
        title="Wrong kernels against the criteria of this suite",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for name in ("operation", "dtype", "cheat"):
        table.add_column(name, no_wrap=True)
    for name in ("blind", "margin", "at N", "by", "idle"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in result.lines():
        table.add_row(*_cells(line), style="bold red" if line.survived else "")
    console.print(table)
    for text in (
        "blind: the smallest N at which the tolerance alone accepts the cheat's wrong results",
        "margin: error / allowed of the criterion that rejects best, at the N where that is least",
        "idle: N at which the cheat returns the right results on all data",
    ):
        console.print(text, highlight=False)
    for text in result.survivors:
        console.print(f"survives: {text}", style="bold red", soft_wrap=True, markup=False)
    if not result.survivors:
        console.print(f"{result.judged:,} cheats judged, none survives.", highlight=False)
