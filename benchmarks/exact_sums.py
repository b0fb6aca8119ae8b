# SPDX-License-Identifier: Apache-2.0
"""Speed and memory of the exact sums, beside mpmath's in the same run.

    python benchmarks/exact_sums.py
    python benchmarks/exact_sums.py --device cuda --max-log2n 30

Prints a table of elements a second (median of the repeats) for normal float32 data of 2**16,
2**20, 2**24 ... elements, with the ratio to `mpmath.fsum` and the peak memory as a multiple of the
input, which is counted in: of what numpy allocates, traced in a run of its own, or of the CUDA
allocator.
mpmath would take minutes at 2**24. At every N it adds the first 2**16 elements, and turning them
into its own numbers is part of that.
Bins are numpy's, and are left out on a GPU.
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

from assay.oracles.exact import exact_sum, exact_sum_of_magnitudes, exact_sum_of_squares
from assay.oracles.exact_bins import sum_by_exponent

SMALLEST_LOG2N = 16
STEP = 4
MPMATH_ELEMENTS = 1 << 16
DIGITS = 50
SEED = 20240229

Function = Callable[[Any], Any]


def naive_sum(values: list[float]) -> Any:
    return mpmath.fsum(mpmath.mpf(v) for v in values)


def naive_sum_of_squares(values: list[float]) -> Any:
    return mpmath.fsum((mpmath.mpf(v) for v in values), squared=True)


def naive_sum_of_magnitudes(values: list[float]) -> Any:
    return mpmath.fsum((mpmath.mpf(v) for v in values), absolute=True)


# name, function, what mpmath does instead, whether it runs on a GPU
ROWS: list[tuple[str, Function, Function, bool]] = [
    ("sum", exact_sum, naive_sum, True),
    ("sum of magnitudes", exact_sum_of_magnitudes, naive_sum_of_magnitudes, True),
    ("sum of squares", exact_sum_of_squares, naive_sum_of_squares, True),
    ("sum by bins", sum_by_exponent, naive_sum, False),
]


def numpy_data(n: int) -> Any:
    return np.random.default_rng(SEED).standard_normal(n, dtype=np.float32)


def cuda_data(n: int) -> Any:
    import torch

    generator = torch.Generator("cuda").manual_seed(SEED)
    return torch.randn(n, device="cuda", dtype=torch.float32, generator=generator)


def nothing_to_wait_for() -> None:
    """What torch.cuda.synchronize is on a GPU."""


def seconds(function: Function, x: Any, repeats: int, wait: Callable[[], None]) -> float:
    """Median time of a call, after one that is not timed."""
    function(x)
    times = []
    for _ in range(repeats):
        wait()
        start = time.perf_counter()
        function(x)
        wait()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def numpy_peak(function: Function, x: Any) -> float:
    """Peak of the memory that numpy and Python allocate, with the input, over the input."""
    tracemalloc.start()
    try:
        function(x)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return 1.0 + float(peak) / float(x.nbytes)


def cuda_peak(function: Function, x: Any) -> float:
    import torch

    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated() - x.nbytes  # what else is held on the device
    torch.cuda.reset_peak_memory_stats()
    function(x)
    return (torch.cuda.max_memory_allocated() - before) / float(x.nbytes)


def measure(device: str, max_log2n: int, repeats: int) -> None:
    on_gpu = device == "cuda"
    wait = nothing_to_wait_for
    if on_gpu:
        import torch

        if not torch.cuda.is_available():
            raise SystemExit("no CUDA device: use --device cpu")
        wait = torch.cuda.synchronize
        print(f"device: {torch.cuda.get_device_name()}, torch {torch.__version__}")
    else:
        print(f"device: CPU, numpy {np.__version__}")
    print(f"mpmath {mpmath.__version__}, {mpmath.libmp.BACKEND} integers, {DIGITS} digits")
    print("float32 normal data\n")
    print(
        f"{'N':>6}  {'':18} {'el/s':>9} {'seconds':>9} {'mpmath el/s':>12} {'ratio':>9} {'peak':>6}"
    )
    mpmath.mp.dps = DIGITS
    naive_speed: dict[Function, float] = {}
    for log2n in sorted({*range(SMALLEST_LOG2N, max_log2n, STEP), max_log2n}):
        x = cuda_data(1 << log2n) if on_gpu else numpy_data(1 << log2n)
        few = x[:MPMATH_ELEMENTS].tolist()
        for name, function, naive, runs_on_gpu in ROWS:
            if on_gpu and not runs_on_gpu:
                continue
            if naive not in naive_speed:
                naive_speed[naive] = len(few) / seconds(naive, few, repeats, wait)
            elapsed = seconds(function, x, repeats, wait)
            peak = cuda_peak(function, x) if on_gpu else numpy_peak(function, x)
            speed = (1 << log2n) / elapsed
            print(
                f"2**{log2n:<3}  {name:18} {speed:9.3g} {elapsed:9.3g} {naive_speed[naive]:12.3g} "
                f"{speed / naive_speed[naive]:9.4g} {peak:6.2f}",
                flush=True,
            )
        del x


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed and memory of the exact sums.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--max-log2n", type=int, default=24, help="largest N = 2**this")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.max_log2n < SMALLEST_LOG2N:
        parser.error(f"--max-log2n: expected at least {SMALLEST_LOG2N}")
    measure(arguments.device, arguments.max_log2n, max(1, arguments.repeats))


if __name__ == "__main__":
    main()
