# SPDX-License-Identifier: Apache-2.0
"""The rungs of the oracle ladder for each operation: speed, width of the enclosure, agreement.

    python benchmarks/rungs.py [--device cpu|cuda] [--log2n 20] [--json FILE]

R0 is mpmath: directly over 2**12 elements, and through value counts over the whole input. R2 is the
certified oracle on numpy, R3 the same lines on torch. Speeds are elements a second, the median of
the repeats; the width is the largest radius relative to the result, as a power of two.
Every pair of rungs is checked to intersect, and a disagreement ends the run with status 1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from assay.oracles.enclosure import Enclosure
from assay.oracles.formats import FP32
from assay.oracles.generators import generate
from assay.oracles.ladder import record_enclosure
from assay.oracles.operation import Operation, operations

# The direct form of mpmath is timed on so many elements, and scales linearly.
DIRECT = 1 << 12
# A row operation with a result for each element keeps 24 bytes an element of enclosures.
ROWS = 16
COLUMNS = 4
REDUCED_ONLY = 1 << 22


def timed(call: Callable[[], Any], device: str, repeats: int) -> tuple[float, Any]:
    """Median seconds of `repeats` calls after one that warms up, and the last result."""
    seconds = []
    result = call()
    for _ in range(repeats):
        start = time.perf_counter()
        result = call()
        if device == "cuda":
            import torch

            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), result


def inputs_of(op: Operation, count: int) -> dict[str, Any]:
    """Normal float32 data; row operations get `ROWS` rows."""
    rows = 1 if op.whole else ROWS
    n = max(1, count // rows)
    found: dict[str, Any] = {"x": generate("normal", rows, n, 3, FP32).astype(np.float32)}
    for operand in op.operands:
        if operand.shape == "second":
            found[operand.name] = generate("normal", n, COLUMNS, 5, FP32).astype(np.float32)
    return found


def width(exact: Enclosure) -> str:
    """Largest relative radius as a power of two, "exact" where every radius is zero."""
    size = np.abs(exact.center)
    share = np.where(size > 0.0, exact.radius / np.where(size > 0.0, size, 1.0), 0.0)
    worst = float(np.nanmax(share, initial=0.0))
    return "exact" if worst == 0.0 else f"2**{np.log2(worst):.1f}"


def peak(device: str) -> int:
    if device == "cpu":
        return 0
    import torch

    return int(torch.cuda.max_memory_allocated())


def measure(op: Operation, count: int, device: str, repeats: int) -> dict[str, Any]:
    inputs = inputs_of(op, count)
    size = int(np.prod(inputs["x"].shape))
    policies = op.default_policies()
    line: dict[str, Any] = {"operation": op.name, "n": size}

    some = inputs_of(op, DIRECT)
    direct, slow = timed(lambda: op.reference(some, op.params, policies, FP32), "cpu", 1)
    line["R0 direct"] = int(np.prod(some["x"].shape)) / direct
    small = op.enclose(some, op.params, policies, FP32)
    assert len(slow) == small.center.size

    seconds, exact = timed(lambda: op.enclose(inputs, op.params, policies, FP32), "cpu", repeats)
    line["R2"], line["R2 width"] = size / seconds, width(exact)
    line["R2 to R0"] = line["R2"] / line["R0 direct"]
    seconds, fine = timed(
        lambda: op.enclose(inputs, op.params, policies, FP32, "fine"), "cpu", repeats
    )
    line["R2 fine"], line["R2 fine width"] = size / seconds, width(fine)
    rungs = [exact, fine]
    if op.counted is not None and len(inputs) == 1:
        seconds, record = timed(
            lambda: record_enclosure(op, inputs, op.params, policies, FP32), "cpu", 1
        )
        line["R0 counted"] = size / seconds
        rungs.append(record)
    import torch

    if device == "cpu":
        torch.set_num_threads(1)
    tensors = {name: torch.from_numpy(v).to(device) for name, v in inputs.items()}
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds, same = timed(lambda: op.enclose(tensors, op.params, policies, FP32), device, repeats)
    line["R3"] = size / seconds
    if device == "cuda":
        line["R3 memory"] = peak(device) / tensors["x"].nbytes
    line["R3 = R2"] = all(
        np.array_equal(getattr(same, part), getattr(exact, part), equal_nan=True)
        for part in ("center", "tail", "radius")
    )
    rungs.append(same)
    line["agree"] = all(bool(a.intersects(b).all()) for a in rungs for b in rungs)
    return line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of rung R3")
    parser.add_argument("--log2n", type=int, default=20, help="elements of the input, default 20")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", help="write the table here too")
    parser.add_argument("operations", nargs="*", help="default: all")
    given = parser.parse_args()
    chosen = [op for name, op in operations().items() if name in (given.operations or operations())]
    lines = []
    columns = (
        "operation", "n", "R0 direct", "R0 counted", "R2", "R2 to R0", "R2 width", "R2 fine",
        "R2 fine width", "R3", "R3 = R2", "R3 memory", "agree",
    )  # fmt: skip
    print(" | ".join(columns))
    for op in chosen:
        count = 1 << given.log2n
        if op.elementwise or op.name in ("row_argmax", "matmul"):
            count = min(count, REDUCED_ONLY)
        line = measure(op, count, given.device, given.repeats)
        lines.append(line)
        cells = [line.get(c, "") for c in columns]
        print(" | ".join(f"{c:.2g}" if isinstance(c, float) else str(c) for c in cells), flush=True)
    if given.json:
        Path(given.json).write_text(json.dumps(lines, indent=1), encoding="utf-8")
    return 0 if all(line["agree"] for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
