# SPDX-License-Identifier: Apache-2.0
"""The command line.

Exit status: 0 everything held, 1 a violation was found, 2 usage or bad input, 3 the environment
lacks what was asked for, 70 a defect of assay itself.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from assay.fuzz.tolerance import tolerance

app = typer.Typer(
    name="assay",
    help="How far is a Triton reduction kernel from the truth, why, and what is the smallest input "
    "that shows it?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Device(StrEnum):
    """Where kernels run."""

    auto = "auto"
    cuda = "cuda"
    interpreter = "interpreter"


DeviceOption = Annotated[
    Device,
    typer.Option(
        "--device", help="Where kernels run; auto takes a GPU if there is one.", show_default=True
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Machine-readable result on stdout, and nothing else there.")
]
OperationOption = Annotated[
    str | None,
    typer.Option(
        "--operation", help="What a kernel of your own computes; `assay list` names them."
    ),
]
DtypesOption = Annotated[
    str | None,
    typer.Option("--dtypes", help="Claimed dtypes, comma separated: float32,float16,bfloat16."),
]
AccumulatorOption = Annotated[
    str | None, typer.Option("--accumulator", help="Claimed accumulator format: float32, ...")
]
PolicyOption = Annotated[
    list[str] | None,
    typer.Option("--policy", help="Claimed policy, NAME=VALUE; `assay list` names them."),
]

# An internal error must not look like a finding: sysexits.h calls it EX_SOFTWARE.
FAILED, USAGE, ENVIRONMENT, INTERNAL = 1, 2, 3, 70


@contextmanager
def _status() -> Iterator[None]:
    """Turns what may go wrong into one clear line and the exit status of the contract."""
    from assay.kernels.device import EnvironmentLacks

    try:
        yield
    except EnvironmentLacks as error:
        _stop(str(error), ENVIRONMENT)
    except ValueError as error:
        # CaseError, WitnessError, UnknownKernel and unknown names are ValueErrors with one line.
        if not _expected(error):
            raise
        _stop(str(error), USAGE)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _stop(f"{where}{error.strerror or error}", USAGE)
    except MemoryError:
        _stop("not enough memory for this input", USAGE)
    except KeyboardInterrupt:
        _stop("interrupted", 130)


def _expected(error: BaseException) -> bool:
    """Raised by our own argument checks, rather than by a defect deep in a library."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    return str(module).startswith("assay.")


def _stop(message: str, status: int) -> None:
    print(f"assay: {message}", file=sys.stderr)
    raise typer.Exit(status)


def _split_policies(policies: list[str] | None) -> dict[str, str]:
    chosen = {}
    for item in policies or ():
        name, equals, value = item.partition("=")
        if not equals:
            raise ValueError(f"--policy takes NAME=VALUE, got {item!r}")
        chosen[name] = value
    return chosen


def _resolve(
    target: str,
    operation: str | None = None,
    dtypes: str | None = None,
    accumulator: str | None = None,
    policies: list[str] | None = None,
) -> Any:
    from assay.kernels.target import resolve

    return resolve(
        target,
        operation=operation,
        dtypes=tuple(d.strip() for d in dtypes.split(",")) if dtypes else None,
        accumulator=accumulator,
        policies=_split_policies(policies),
    )


@app.command("list")
def list_(as_json: JsonOption = False, device: DeviceOption = Device.auto) -> None:
    """Operations, kernels with their claims, faults with their pitfall class."""
    with _status():
        from assay.fuzz.listing import as_data, show

        _select(device)
        if as_json:
            _print_json(as_data())
        else:
            show()


def _select(device: Device) -> None:
    from assay.kernels.device import select

    if select(device.value) == "interpreter":
        import torch

        # Tensors here are small: waking threads costs more than they bring.
        torch.set_num_threads(1)


def _print_json(data: Any) -> None:
    json.dump(data, sys.stdout, indent=2, allow_nan=False, default=str)
    print()


@app.command()
def check(
    kernel: Annotated[
        str, typer.Argument(help="A registered name, module:attribute or file.py:attribute.")
    ],
    input_: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            help="Your own tensor instead of generated cases: [OPERAND=]FILE[:NAME], FILE a .npy "
            "or .safetensors file; once for each operand. Leading axes become rows.",
        ),
    ] = None,
    checks: Annotated[
        list[str] | None, typer.Option("--check", help="Only this check; may be repeated.")
    ] = None,
    examples: Annotated[
        int, typer.Option("--examples", min=0, help="Generated cases for each check and dtype.")
    ] = 25,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Other generated cases than the usual ones.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for witnesses of violations.")] = Path(
        "witnesses"
    ),
    no_witness: Annotated[
        bool, typer.Option("--no-witness", help="Report violations as found, write nothing.")
    ] = False,
    operation: OperationOption = None,
    dtypes: DtypesOption = None,
    accumulator: AccumulatorOption = None,
    policy: PolicyOption = None,
    as_json: JsonOption = False,
    device: DeviceOption = Device.auto,
) -> None:
    """Every property that applies, on generated cases or on your own tensors.

    A violation is minimised and written as a witness file, which `assay replay` runs again.
    """
    with _status():
        from assay.fuzz.checking import check_kernel
        from assay.properties.checks import check_named

        _select(device)
        for name in checks or ():
            check_named(name)
        chosen = _resolve(kernel, operation, dtypes, accumulator, policy)
        report = check_kernel(
            chosen,
            inputs=input_ or [],
            only=checks,
            examples=examples,
            seed=seed,
            out=None if no_witness else out,
            quiet=as_json,
        )
        if as_json:
            _print_json(report.as_data())
        else:
            report.show()
        if report.failed:
            raise typer.Exit(FAILED)


@app.command()
def minimise(
    kernel: Annotated[
        str, typer.Argument(help="A registered name, module:attribute or file.py:attribute.")
    ],
    input_: Annotated[
        list[str],
        typer.Option("--input", help="The captured tensor: [OPERAND=]FILE[:NAME], as for check."),
    ],
    checks: Annotated[
        list[str] | None, typer.Option("--check", help="Only this check; may be repeated.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for the witness.")] = Path("witnesses"),
    operation: OperationOption = None,
    dtypes: DtypesOption = None,
    accumulator: AccumulatorOption = None,
    policy: PolicyOption = None,
    device: DeviceOption = Device.auto,
) -> None:
    """The smallest input that still fails, from a captured tensor on which the kernel fails.

    Exit status 1 and a witness if a check fails on the tensor, 0 if none does.
    """
    check(
        kernel,
        input_=input_,
        checks=checks,
        examples=0,
        seed=None,
        out=out,
        no_witness=False,
        operation=operation,
        dtypes=dtypes,
        accumulator=accumulator,
        policy=policy,
        as_json=False,
        device=device,
    )


@app.command()
def replay(
    witnesses: Annotated[list[Path], typer.Argument(help="Witness files.")],
    record: Annotated[bool, typer.Option("--record", hidden=True)] = False,
    as_json: JsonOption = False,
    device: DeviceOption = Device.auto,
) -> None:
    """Rebuild a witness's input bit for bit, run, compare.

    Exit status 1 while the violation persists, 0 when it is gone, 2 when the input cannot be
    rebuilt.
    """
    with _status():
        from assay.properties import replay as replaying
        from assay.properties import witness as files

        read = [files.read(path) for path in witnesses]
        _select(device)
        results = []
        for path, item in zip(witnesses, read, strict=True):
            result = replaying.replay(item, path.parent)
            results.append((path, result))
            if record:
                again = files.rerecord(item, result.output, result.verdict)
                files.write_atomically(path, files.encode(again))
            elif not as_json:
                print(result.describe())
        if as_json:
            _print_json(
                [
                    {
                        "witness": str(path),
                        "persists": r.persists,
                        "same_bits": r.same_bits,
                        "message": r.verdict.message,
                        "changes": list(r.changes),
                    }
                    for path, r in results
                ]
            )
        if any(r.persists for _, r in results):
            raise typer.Exit(FAILED)


@app.command()
def audit(
    kernels: Annotated[
        list[str] | None, typer.Argument(help="Kernels by name; all right ones if left out.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer sizes and trials: a minute.")
    ] = False,
    max_n: Annotated[
        int | None, typer.Option("--max-n", min=1, help="Largest N; 2**16, or 2**28 on a GPU.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for the report.")] = Path(
        "assay-report"
    ),
    dtypes: DtypesOption = None,
    operation: OperationOption = None,
    accumulator: AccumulatorOption = None,
    policy: PolicyOption = None,
    as_json: JsonOption = False,
    device: DeviceOption = Device.auto,
) -> None:
    """Error against N for each data family, beside the proved bound: table, plots, a page.

    Writes audit.json, plots and index.html. Exit status 1 if an error was above its bound.
    """
    with _status():
        from assay.fuzz.audit import run_audit

        _select(device)
        from assay.kernels.record import kernels as registered

        names = kernels or list(registered())
        chosen = [_resolve(n, operation, dtypes, accumulator, policy) for n in names]
        result = run_audit(chosen, out=out, quick=quick, max_n=max_n, quiet=as_json)
        if as_json:
            _print_json(result.as_data())
        else:
            result.show()
        if result.violations:
            raise typer.Exit(FAILED)


app.command()(tolerance)


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """What this machine can run, versions, what is missing and how to get it."""
    with _status():
        from assay.fuzz.doctor import examine, show

        found = examine()
        if as_json:
            _print_json(found)
        else:
            show(found)
        if not found["can_run"]:
            raise typer.Exit(ENVIRONMENT)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `assay` command."""
    run: Callable[..., Any] = app
    try:
        run(args=arguments)
    except BrokenPipeError:
        # The reader of our output has seen enough.
        sys.stderr.close()
        raise SystemExit(0) from None
    except Exception:  # noqa: BLE001 - whatever it is, it must not exit with 1
        traceback.print_exc()
        print("assay: this is a defect of assay itself, not a finding", file=sys.stderr)
        raise SystemExit(INTERNAL) from None


if __name__ == "__main__":
    main()
