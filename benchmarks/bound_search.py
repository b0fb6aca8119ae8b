# SPDX-License-Identifier: Apache-2.0
"""How near simulated kernels come to the bounds of the operations: a longer search than the tests'.

Every algorithm in every order of summation with every set of primitives
(`assay.oracles.simulation.catalogue`) is put to the inputs of `assay.oracles.simulation.inputs`,
and climbed on from there. A share above 1 is a bound that is broken: then the exit status is 1.

    python benchmarks/bound_search.py
    python benchmarks/bound_search.py --operation softmax --budget 4096
    python benchmarks/bound_search.py --device cuda --json shares.json

--markdown prints the tables of docs/bounds.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from assay.oracles.operation import operations
from assay.oracles.simulation.catalogue import Simulated, catalogue
from assay.oracles.simulation.orders import SCHEDULES
from assay.oracles.simulation.search import search

Row = dict[str, Any]


def columns_of(simulated: Simulated) -> list[int | None]:
    """Results to look at one by one: those that are of different kinds."""
    return [0, 1] if simulated.operation.name == "mean_variance" else [None]


def name_of(simulated: Simulated, column: int | None) -> str:
    """The algorithm, with the result that is meant where there are two."""
    if column is None:
        return simulated.kernel.name
    return f"{simulated.kernel.name}: {simulated.operation.outputs[column].name}"


def measured(arguments: argparse.Namespace) -> list[Row]:
    """One row for each way to run an algorithm and each result."""
    rows = []
    for simulated in catalogue(arguments.operation):
        for column in columns_of(simulated):
            found = [
                search(simulated, n, arguments.budget, seed, column=column, device=arguments.device)
                for n in arguments.lengths
                for seed in range(arguments.seed, arguments.seed + arguments.seeds)
            ]
            best = max(found, key=lambda f: f.share)
            rows.append(
                {
                    "operation": simulated.operation.name,
                    "algorithm": name_of(simulated, column),
                    "order": simulated.schedule.name,
                    "primitives": simulated.primitives,
                    "exact": simulated.kernel.exact,
                    "share": best.share,
                    "worst": max(f.worst for f in found),
                    "family": best.family,
                    "n": len(best.x),
                    "x": [v.hex() for v in best.x.tolist()],
                    "tried": sum(f.tried for f in found),
                }
            )
    return rows


def plain_table(rows: list[Row]) -> str:
    lines = [f"{'share':>7}  {'worst':>7}  algorithm; order; primitives | input"]
    lines += [
        f"{r['share']:7.4f}  {r['worst']:7.4f}  {r['algorithm']}; {r['order']}; {r['primitives']}"
        f" | {r['family']}, n = {r['n']}"
        for r in rows
    ]
    return "\n".join(lines)


def markdown(rows: list[Row]) -> str:
    """A table an operation, and the highest share of each operation in each order."""
    parts = []
    by_algorithm: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if not row["exact"]:
            by_algorithm[row["operation"], row["algorithm"]].append(row)
    last = ""
    for (operation, algorithm), group in by_algorithm.items():
        if operation != last:
            parts += ["", f"`{operation}`", "", "| algorithm | highest | where | input | lowest |",
                      "|---|---|---|---|---|"]  # fmt: skip
            last = operation
        high, low = max(group, key=_share), min(group, key=_share)
        parts.append(
            f"| {algorithm} | {high['share']:.3f} | {high['order']}; {high['primitives']} "
            f"| {high['family']} | {low['share']:.3f} ({low['order']}) |"
        )
    names = list(dict.fromkeys(r["operation"] for r in rows if not r["exact"]))
    parts += ["", "| order | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for schedule in SCHEDULES:
        cells = []
        for operation in names:
            these = [
                r["share"]
                for r in rows
                if r["operation"] == operation and r["order"] == schedule.name
            ]
            cells.append(f"{max(these):.2f}" if these else "")
        parts.append(f"| {schedule.name} | " + " | ".join(cells) + " |")
    return "\n".join(parts)


def _share(row: Row) -> float:
    return float(row["share"])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--operation", choices=tuple(operations()), help="this one alone")
    parser.add_argument("--lengths", type=int, nargs="+", default=[3, 24], metavar="N")
    parser.add_argument("--budget", type=int, default=128, help="inputs tried in climbing")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many of them")
    parser.add_argument("--markdown", action="store_true", help="tables of docs/bounds.md")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all of it, inputs included")
    arguments = parser.parse_args()

    import torch

    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch sees no CUDA device")
    torch.set_num_threads(1)
    start = time.perf_counter()
    rows = measured(arguments)
    print(markdown(rows) if arguments.markdown else plain_table(rows))
    tried = sum(r["tried"] for r in rows)
    print(
        f"{len(rows)} kernels, {tried} inputs in {time.perf_counter() - start:.0f} s",
        file=sys.stderr,
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1), "utf-8")
    broken = [r for r in rows if not r["worst"] <= 1.0]
    for row in broken:
        print(f"broken: {row['algorithm']}; {row['order']}; {row['primitives']}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
