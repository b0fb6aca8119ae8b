# SPDX-License-Identifier: Apache-2.0
"""Wrong kernels, simulated in numpy: what each cheat would return for given data.

The criteria of a suite are only as good as what they reject, and these are the kernels that a weak
tolerance lets through:

zeros     nothing was computed
constant  1 everywhere
stale     the result of the call before
dropped   the last block of `BLOCK` elements is left out of the reduction
half      the running sums are float16: lanes over tiles of `BLOCK`, then a tree
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from assay.oracles.formats import Float64, Format, round_nearest
from assay.oracles.operation import Operation

BLOCK = 1024
CHEATS = {
    "zeros": "returns zeros",
    "constant": "returns 1 everywhere",
    "stale": "returns the result of the call before",
    "dropped": "leaves the last block out",
    "half": "adds in float16",
}

Sum = Callable[[Float64], Float64]


def full_sum(values: Float64) -> Float64:
    """Row sums in float64, as a column."""
    return np.asarray(values.sum(axis=1, keepdims=True))


def half_sum(values: Float64) -> Float64:
    """Row sums in float16, as a column: each term is rounded, then each addition."""
    rows, n = values.shape
    tiles = max(1, -(-n // BLOCK))
    with np.errstate(over="ignore", invalid="ignore"):
        padded = np.zeros((rows, tiles * BLOCK), dtype=np.float16)
        padded[:, :n] = values
        lanes = padded.reshape(rows, tiles, BLOCK)
        total = np.zeros((rows, BLOCK), dtype=np.float16)
        for tile in range(tiles):
            total += lanes[:, tile]
        while total.shape[1] > 1:
            total = total[:, 0::2] + total[:, 1::2]
    return total.astype(np.float64)


def _half(values: Float64) -> Float64:
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float64)


# Each model takes (x, other operands, kept, add, n, eps): `kept` are the columns of x that enter
# the reduction; elementwise results come for all columns of x.
Model = Callable[[Float64, Mapping[str, Any], Float64, Sum, Mapping[str, float]], Float64]


def _sum(x: Float64, other: Any, kept: Float64, add: Sum, params: Any) -> Float64:
    return add(kept)


def _mean(x: Float64, other: Any, kept: Float64, add: Sum, params: Any) -> Float64:
    return np.asarray(add(kept) / x.shape[1])


def _l1(x: Float64, other: Any, kept: Float64, add: Sum, params: Any) -> Float64:
    return add(np.abs(kept))


def _l2(x: Float64, other: Any, kept: Float64, add: Sum, params: Any) -> Float64:
    return np.asarray(np.sqrt(add(kept * kept)))


def _count(x: Float64, other: Any, kept: Float64, add: Sum, params: Any) -> Float64:
    return add((kept != 0.0).astype(np.float64))


def _exponentials(x: Float64, kept: Float64, add: Sum) -> tuple[Float64, Float64]:
    top = kept.max(axis=1, keepdims=True)
    return top, add(np.exp(kept - top))


def _logsumexp(x: Float64, other: Any, kept: Float64, add: Sum, params: Any) -> Float64:
    top, total = _exponentials(x, kept, add)
    return np.asarray(top + np.log(total))


def _softmax(x: Float64, other: Any, kept: Float64, add: Sum, params: Any) -> Float64:
    top, total = _exponentials(x, kept, add)
    return np.asarray(np.exp(x - top) / total)


def _log_softmax(x: Float64, other: Any, kept: Float64, add: Sum, params: Any) -> Float64:
    top, total = _exponentials(x, kept, add)
    return np.asarray((x - top) - np.log(total))


def _rms_norm(x: Float64, other: Any, kept: Float64, add: Sum, params: Any) -> Float64:
    return np.asarray(x / np.sqrt(add(kept * kept) / x.shape[1] + params["eps"]))


def _mean_variance(x: Float64, other: Any, kept: Float64, add: Sum, params: Any) -> Float64:
    n = x.shape[1]
    mean = add(kept) / n
    square = add((kept - mean) ** 2) / (n - params["correction"])
    return np.hstack([mean, square])


def _min_max(x: Float64, other: Any, kept: Float64, add: Sum, params: Any) -> Float64:
    lo, hi = kept.min(axis=1, keepdims=True), kept.max(axis=1, keepdims=True)
    return np.asarray((x - lo) / (hi - lo))


def _matmul(x: Float64, other: Any, kept: Float64, add: Sum, params: Any) -> Float64:
    w = other["w"][: kept.shape[1]]
    return np.hstack([add(kept * w[:, j]) for j in range(w.shape[1])])


def _row_max(x: Float64, other: Any, kept: Float64, add: Sum, params: Any) -> Float64:
    return np.asarray(kept.max(axis=1, keepdims=True))


def _row_min(x: Float64, other: Any, kept: Float64, add: Sum, params: Any) -> Float64:
    return np.asarray(kept.min(axis=1, keepdims=True))


def _row_argmax(x: Float64, other: Any, kept: Float64, add: Sum, params: Any) -> Float64:
    return np.asarray(kept.argmax(axis=1)[:, None].astype(np.float64))


MODELS: dict[str, Model] = {
    "count_nonzero": _count,
    "l1_norm": _l1,
    "l2_norm": _l2,
    "log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "matmul": _matmul,
    "mean": _mean,
    "mean_variance": _mean_variance,
    "min_max": _min_max,
    "rms_norm": _rms_norm,
    "row_argmax": _row_argmax,
    "row_max": _row_max,
    "row_mean": _mean,
    "row_min": _row_min,
    "row_sum": _sum,
    "softmax": _softmax,
    "sum": _sum,
}
# Nothing is added there: a float16 accumulator means that elements are compared in float16.
_COMPARES = ("min_max", "row_argmax", "row_max", "row_min")


def results(
    operation: Operation, inputs: Mapping[str, Any], fmt: Format, *, kept: int, half: bool = False
) -> Float64:
    """What a kernel returns that reduces the first `kept` columns, in float64 or in float16.

    Raises KeyError for an operation without a model in `MODELS`.
    """
    x = np.asarray(inputs["x"], dtype=np.float64)
    if half and operation.name in _COMPARES:
        x = _half(x)
    add = half_sum if half else full_sum
    with np.errstate(all="ignore"):
        found = MODELS[operation.name](x, inputs, x[:, :kept], add, operation.params)
    return found if operation.integer else round_nearest(found, fmt)


def cheat(
    name: str,
    operation: Operation,
    inputs: Mapping[str, Any],
    before: Mapping[str, Any],
    fmt: Format,
    shape: tuple[int, ...],
) -> Float64:
    """What the cheat called `name` returns for `inputs`, when `before` were those before."""
    n = int(inputs["x"].shape[1])
    if name == "zeros":
        return np.zeros(shape)
    if name == "constant":
        return np.ones(shape)
    if name == "stale":
        return results(operation, before, fmt, kept=n)
    if name == "dropped":
        return results(operation, inputs, fmt, kept=n - min(BLOCK, n - 1))
    return results(operation, inputs, fmt, kept=n, half=True)
