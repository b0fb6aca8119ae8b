# SPDX-License-Identifier: Apache-2.0
"""Facts about the rows of a matrix that decide special values: NaN, infinities, extremes.

For numpy arrays and torch tensors alike, a chunk of columns at a time, so that the temporaries stay
small beside the input.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.oracles.arrays import arrays_of
from assay.oracles.formats import Float64

Rows = NDArray[np.bool_]


@dataclass(frozen=True)
class Facts:
    """What a (rows, n) matrix holds, a numpy vector of `rows` entries each.

    largest, smallest: over the elements that are not NaN; -inf and inf where there are none.
    nonzero: elements that differ from zero, NaN included, int64.
    """

    nan: Rows
    positive_infinity: Rows
    negative_infinity: Rows
    largest: Float64
    smallest: Float64
    nonzero: NDArray[np.int64]

    @property
    def finite(self) -> Rows:
        return ~(self.nan | self.positive_infinity | self.negative_infinity)


def facts(x: Any) -> Facts:
    """Facts about the rows of a (rows, n) array of any float dtype."""
    rows, n = int(x.shape[0]), int(x.shape[1])
    largest, smallest = np.full(rows, -np.inf), np.full(rows, np.inf)
    nan = np.zeros(rows, dtype=bool)
    nonzero = np.zeros(rows, dtype=np.int64)
    arrays = arrays_of(x)
    step = max(1, arrays.chunk // max(1, rows)) if rows <= arrays.chunk else 1
    high_rows = max(1, min(rows, arrays.chunk))
    for top in range(0, rows, high_rows):
        band = slice(top, top + high_rows)
        for column in range(0, n, step):
            part = x[band, column : column + step]
            is_nan = part != part
            # torch has no reduction that drops NaN: both backends get it masked.
            nan[band] |= arrays.row_max(arrays.int64(is_nan)) > 0
            nonzero[band] += arrays.row_sum(arrays.int64(part != 0))
            high = arrays.row_max(arrays.where(is_nan, -np.inf, part))
            low = arrays.row_max(arrays.where(is_nan, -np.inf, -part))
            largest[band] = np.maximum(largest[band], high)
            smallest[band] = np.minimum(smallest[band], -low)
    return Facts(nan, np.isposinf(largest), np.isneginf(smallest), largest, smallest, nonzero)


def on_host(x: Any) -> Float64:
    """A float64 numpy array of an array of any float dtype, numpy or torch on any device."""
    return np.asarray(arrays_of(x).host(arrays_of(x).float64(x)))


def only(x: Any, chosen: Rows) -> Any:
    """The chosen rows of x; x itself, not a copy, where all are chosen."""
    if chosen.all():
        return x
    index = np.flatnonzero(chosen)
    return x[arrays_of(x).constant(index)]


def sum_of_magnitudes(x: Any) -> Float64:
    """An upper bound of sum_j |x_j| for each row, within a relative n * 2**-52; (rows, 1).

    Added in float64: the n - 1 roundings lose at most n * 2**-53 of the sum, which is put on top.
    NaN and infinities go through.
    """
    rows, n = int(x.shape[0]), int(x.shape[1])
    arrays = arrays_of(x)
    total = np.zeros(rows)
    step = max(1, arrays.chunk // max(1, rows))
    with np.errstate(invalid="ignore", over="ignore"):
        for column in range(0, n, step):
            total += arrays.row_sum(abs(arrays.float64(x[:, column : column + step])))
        return (total * (1.0 + n * 2.0**-52))[:, None]
