# SPDX-License-Identifier: Apache-2.0
"""`assay list`: what is registered and what it claims."""

from __future__ import annotations

from typing import Any

from assay.kernels.record import Kernel, faults, kernels
from assay.oracles.operation import operations
from assay.properties.checks import checks
from assay.properties.pitfalls import PITFALLS


def _claims(kernel: Kernel) -> dict[str, Any]:
    return {
        "dtypes": list(kernel.dtypes),
        "accumulator": kernel.accumulator,
        "order": kernel.order.describe(),
        "deterministic": kernel.deterministic,
        "policies": dict(kernel.policies),
        "max_n": kernel.max_n,
    }


def as_data() -> dict[str, Any]:
    """Everything that is registered, as plain data."""
    return {
        "operations": {
            o.name: {
                "formula": o.formula,
                "operands": [x.name for x in o.operands],
                "outputs": [x.name for x in o.outputs],
                "params": dict(o.params),
                "policies": {
                    p.name: {"values": list(p.values), "default": p.default, "meaning": p.meaning}
                    for p in o.policies
                },
                "families": list(o.families),
                "empty": "nothing" if o.empty is None else str(o.empty),
            }
            for o in operations().values()
        },
        "kernels": {k.name: _claims(k) for k in kernels().values()},
        "faults": {
            f.name: {
                "pitfall": f.pitfall,
                "mistake": f.mistake,
                "caught_by": list(f.caught_by),
                "twin": f.twin,
            }
            for f in faults().values()
        },
        "checks": {c.name: c.property for c in checks().values()},
        "pitfalls": dict(PITFALLS),
    }


def show() -> None:
    """The same as tables for a person."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    data = as_data()

    def titled(title: str, name: str, *others: str) -> Table:
        # Names are there to be copied: they are never cut.
        table = Table(title=title)
        table.add_column(name, no_wrap=True)
        for other in others:
            table.add_column(other)
        return table

    table = titled("Operations", "operation", "formula", "policies (default first)")
    for name, o in data["operations"].items():
        policies = "\n".join(f"{p}: {' | '.join(v['values'])}" for p, v in o["policies"].items())
        table.add_row(name, escape(o["formula"]), policies)
    console.print(table)
    table = titled("Kernels", "kernel", "order of summation", "bitwise", "policies", "longest row")
    for name, k in data["kernels"].items():
        policies = "\n".join(f"{p}={v}" for p, v in k["policies"].items())
        table.add_row(
            name,
            k["order"],
            "repeatable" if k["deterministic"] else "may vary",
            policies,
            str(k["max_n"] or "any"),
        )
    console.print(table)
    table = titled("Faults: wrong on purpose", "fault", "pitfall", "mistake", "caught by")
    for name, f in data["faults"].items():
        table.add_row(name, f["pitfall"], f["mistake"], ", ".join(f["caught_by"]))
    console.print(table)
    table = titled("Checks", "check", "what must hold")
    for name, text in data["checks"].items():
        table.add_row(name, text)
    console.print(table)
