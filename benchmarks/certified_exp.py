# SPDX-License-Identifier: Apache-2.0
"""How fast certified exponentials, logsumexp and softmax are, beside what proves nothing.

One row of N normally distributed float32 values. Elements a second are the median of some repeats;
the ratio is to mpmath, naive, in the same run. mpmath's rate is taken from a part of the row: its
time grows with N, and 2**24 values would take it minutes.
Memory is the peak, input included, as a multiple of the input: from the allocator on CUDA, from a
run of its own under tracemalloc on a CPU.

    python benchmarks/certified_exp.py --device cpu
    python benchmarks/certified_exp.py --device cuda --max-log2n 30
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from assay.oracles.arrays import arrays_of
from assay.oracles.certified_exp import exp_elements, exp_row_sums
from assay.oracles.double_double import divide, quick_two_sum
from assay.oracles.exact import exact_sum
from assay.oracles.multiprecision import context, from_fraction

# Of a row, this many values go to mpmath.
MPMATH_VALUES = 1 << 13
# 50 decimal digits.
MPMATH_BITS = 169


class Host:
    """numpy, in one thread."""

    def random(self, n: int, seed: int) -> Any:
        return np.random.default_rng(seed).standard_normal((1, n), dtype=np.float32)

    def exp(self, a: Any) -> Any:
        return np.exp(a, out=a)

    def wait(self) -> None:
        pass

    def peak(self, run: Callable[[], object], x: Any) -> float:
        """Peak of the memory in use during a run, as a multiple of x."""
        tracemalloc.start()
        try:
            run()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        return float((x.nbytes + peak) / x.nbytes)


class Cuda:
    """torch, on the current CUDA device."""

    def __init__(self) -> None:
        import torch

        if not torch.cuda.is_available():
            raise SystemExit("torch finds no CUDA device here: try --device cpu")
        self.torch = torch

    def random(self, n: int, seed: int) -> Any:
        generator = self.torch.Generator("cuda").manual_seed(seed)
        return self.torch.randn((1, n), device="cuda", generator=generator)

    def exp(self, a: Any) -> Any:
        return a.exp_()

    def wait(self) -> None:
        self.torch.cuda.synchronize()

    def peak(self, run: Callable[[], object], x: Any) -> float:
        self.torch.cuda.empty_cache()
        self.torch.cuda.reset_peak_memory_stats()
        run()
        self.wait()
        return float(self.torch.cuda.max_memory_allocated() / (x.numel() * x.element_size()))


def chunks(x: Any) -> Any:
    step = arrays_of(x).chunk
    for column in range(0, x.shape[1], step):
        yield slice(column, column + step)


def bare_exp(device: Any, x: Any, maxima: Any) -> None:
    """float64 exp, and nothing done with it."""
    for place in chunks(x):
        device.exp(arrays_of(x).float64(x[:, place]))


def plain_logsumexp(device: Any, x: Any, maxima: Any) -> float:
    total = 0.0
    for place in chunks(x):
        shifted = arrays_of(x).float64(x[:, place])
        shifted -= float(maxima[0])
        total += float(device.exp(shifted).sum())
    return float(maxima[0] + np.log(total))


def certified_logsumexp(x: Any, maxima: Any, *, fine: bool) -> tuple[Any, Any]:
    """Two numbers with the logarithm between them."""
    ctx = context()
    low, high = exp_row_sums(x, maxima, fine=fine).interval(0)
    return maxima[0] + ctx.log(from_fraction(ctx, low)), maxima[0] + ctx.log(
        from_fraction(ctx, high)
    )


def certified_softmax(x: Any, maxima: Any, *, fine: bool) -> tuple[Any, Any]:
    """Pairs of float64 for all elements, which take the place of the exponentials."""
    high, low = exp_elements(x, maxima, fine=fine)
    total = exact_sum(high)[0] + exact_sum(low)[0]
    head = float(total)
    tail = float(total - type(total)(head))
    for place in chunks(x):
        h, l = quick_two_sum(high[:, place], low[:, place])
        high[:, place], low[:, place] = divide(h, l, head, tail)
    return high, low


def naive_mpmath(values: Any) -> Any:
    ctx = context(MPMATH_BITS)
    return ctx.log(sum((ctx.exp(v) for v in values), ctx.mpf(0)))


def measure(device: Any, run: Callable[[], object], repeats: int) -> float:
    """Median seconds of a run, after one that does not count."""
    run()
    found = []
    for _ in range(repeats):
        device.wait()
        start = time.perf_counter()
        run()
        device.wait()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def report(device: Any, log2n: int, repeats: int, seed: int) -> None:
    n = 1 << log2n
    x = device.random(n, seed)
    maxima = arrays_of(x).host(x.max(1) if isinstance(x, np.ndarray) else x.amax(1))
    maxima = maxima.astype(np.float64)
    values = x[0, :MPMATH_VALUES].tolist()
    naive = measure(device, lambda: naive_mpmath(values), 3) / len(values)
    rows: list[tuple[str, Callable[[], object]]] = [
        ("float64 exp alone", lambda: bare_exp(device, x, maxima)),
        ("logsumexp, float64", lambda: plain_logsumexp(device, x, maxima)),
        ("logsumexp, 2**-60", lambda: certified_logsumexp(x, maxima, fine=False)),
        ("logsumexp, 2**-85", lambda: certified_logsumexp(x, maxima, fine=True)),
        ("softmax, 2**-60", lambda: certified_softmax(x, maxima, fine=False)),
        ("softmax, 2**-85", lambda: certified_softmax(x, maxima, fine=True)),
    ]
    print(f"\nN = 2**{log2n}")
    print(f"{'':20} {'elements/s':>12} {'x mpmath':>10} {'memory':>8}")
    print(f"{'logsumexp, mpmath':20} {1 / naive:12.3g} {1:10} {'':>8}")
    for name, run in rows:
        each = measure(device, run, repeats) / n
        gc.collect()
        peak = device.peak(run, x)
        print(f"{name:20} {1 / each:12.3g} {naive / each:10.0f} {peak:7.2f}x", flush=True)
    low, high = certified_logsumexp(x, maxima, fine=True)
    print(f"logsumexp: {context().nstr(low, 30)}, known to {float(high - low):.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--log2n", type=int, nargs="+", help="default: 16 20 24, 27 and 30 on CUDA")
    parser.add_argument("--max-log2n", type=int, help="leave out what is larger")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    device: Any = Cuda() if arguments.device == "cuda" else Host()
    sizes = arguments.log2n or [16, 20, 24, *([27, 30] if arguments.device == "cuda" else [])]
    for log2n in sizes:
        if arguments.max_log2n is None or log2n <= arguments.max_log2n:
            report(device, log2n, arguments.repeats, arguments.seed)


if __name__ == "__main__":
    main()
