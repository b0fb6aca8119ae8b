# SPDX-License-Identifier: Apache-2.0
"""Inputs at the edges of an operation's range, by operation; every value is a float32."""

from __future__ import annotations

import numpy as np

from assay.oracles.formats import FP32, round_nearest


def rows_of(*rows):
    return np.array(rows, dtype=np.float64)


def float32(*rows):
    return {"x": round_nearest(rows_of(*rows), FP32)}


_SUMS = {
    "one unit left": float32([2.0**100, 1.0, 2.0**-149, -(2.0**100), -1.0]),
    "partial sums beyond float32": float32([3e38, 3e38, -3e38], [-3e38, -3e38, 3e38]),
    "a sum beyond float32": float32([3e38, 3e38, 3e38]),
    "exact cancellation": float32([1.0, -1.0, 2.0**-149, -(2.0**-149)]),
    "subnormals": float32([2.0**-149, 2.0**-149, -(2.0**-148)], [2.0**-149, 0.0, -0.0]),
    "one element": float32([-7.25]),
}
_MEANS = _SUMS | {
    "thirds": float32([1.0, 0.0, 0.0], [2.0**-149, 0.0, 0.0], [3e38, 3e38, 3e38]),
}
_EXTREMES = {
    "the ends of float32": float32([FP32.largest, -FP32.largest, 0.0]),
    "subnormals": float32([2.0**-149, -(2.0**-149), 0.0]),
    "neighbours": float32([1.0, 1.0 + 2.0**-23, 1.0]),
    "one element": float32([-7.25]),
    "all equal": float32([-3.0, -3.0, -3.0]),
}
_EXPONENTIALS = {
    "at the edges of exp in float32": float32([0.0, -87.33, -88.72, -103.28, -103.97, -104.0]),
    "a long way off": float32([0.0, -300.0, -600.0, -650.0], [1e30, 1e30, 0.0, -1e30]),
    "subnormal in float64": float32([0.25, -709.0, -715.5, -730.25, -744.0, -745.0]),
    "between the end of float64 and the cut": float32([0.0, -745.5, -799.0, -800.5, 0.5]),
    "spread over the cut": float32(np.linspace(-1000.0, 0.0, 41)),
    "cut terms beside one that is 1": float32([0.0, -705.0, -720.0], [0.0, -1e4, -1e4]),
    "on both cuts": float32([0.0, -679.75, -680.0, -680.25, -699.75, -700.0, -700.25]),
    "ties for the maximum": float32([2.0, 2.0, 2.0, 1.0]),
    "16-bit extremes": float32([65504.0, 65504.0, 65472.0, -65504.0]),
    "float32 extremes": float32([FP32.largest, -FP32.largest, FP32.largest]),
    "one element": float32([12345.0], [-12345.0], [0.0]),
    "one element beside minus infinity": float32([-np.inf, 3.25, -np.inf]),
    "one term and a little": float32([0.0, -103.0], [0.0, -40.0], [5.0, -95.0]),
    "a result near zero": float32([-np.log(2.0), -np.log(2.0)], [-np.log(2.0), -0.69]),
}

EDGES = {
    "sum": _SUMS,
    "row_sum": _SUMS,
    "mean": _MEANS,
    "row_mean": _MEANS,
    "l1_norm": _SUMS,
    "count_nonzero": {
        "zeros and subnormals": float32([0.0, -0.0, 2.0**-149, -(2.0**-149), np.inf]),
        "none": float32([0.0, -0.0]),
    },
    "row_max": _EXTREMES,
    "row_min": _EXTREMES,
    "row_argmax": _EXTREMES,
    "l2_norm": {
        "the largest and the smallest float32": float32([FP32.largest, 2.0**-149, 1.0]),
        "squares just below and above overflow": float32([1.8446743e19, 1.8446744e19, 2e19]),
        "squares that underflow": float32([2.0**-63, 2.0**-75, 2.0**-149]),
        "whole roots": float32([3.0, 4.0, 0.0], [5.0, 12.0, 0.0], [8.0, 9.0, 12.0]),
        "one element": float32([-7.25]),
        "nearly a whole root": float32([3.0, 4.0, 2.0**-60]),
    },
    "mean_variance": {
        "one element": float32([-7.25]),
        "two equal": float32([0.1, 0.1]),
        "a deviation of one last place": float32([1.0, 1.0 + 2.0**-23, 1.0]),
        "a mean far above the deviation": float32([1e30, 1e30, 0.9999999e30]),
        "squares that underflow or overflow": float32([1e-30, -1e-30, 0.0], [1e30, -1e30, 0.0]),
        "ends of float32": float32([FP32.largest, -FP32.largest, 2.0**-149]),
    },
    "min_max": {
        "a range beyond float32": float32([FP32.largest, -FP32.largest, 1.0]),
        "subnormals": float32([2.0**-149, 3 * 2.0**-149, 0.0, 2.0**-148]),
        "far apart": float32([FP32.largest, 2.0**-149, 1.0, -(2.0**-100)]),
        "one last place": float32([1.0, 1.0 + 2.0**-23, 1.0 + 2.0**-22]),
        "one element": float32([3.0]),
    },
    "matmul": {
        "products that underflow": float32([2.0**-149, 2.0**-100, 1.0])
        | {"w": rows_of([2.0**-149, 1.0], [2.0**-100, 0.0], [2.0**-149, -1.0])},
        "products that overflow": float32([3e38, -3e38, 1.0])
        | {"w": round_nearest(rows_of([3e38, 1.0], [3e38, 1.0], [1.0, 0.1]), FP32)},
        "exact cancellation": float32([0.1, 0.1, 0.0]) | {"w": rows_of([3.0], [-3.0], [1.0])},
    },
    "softmax": _EXPONENTIALS,
    "log_softmax": _EXPONENTIALS,
    "logsumexp": _EXPONENTIALS,
    "rms_norm": {
        "the largest and the smallest float32": float32([FP32.largest, 2.0**-149, 1.0]),
        "squares that overflow or underflow": float32([2e19, 2e19, 1.0], [1e-23, 1e-23, 1e-23]),
        "subnormals": float32([2.0**-149, 2.0**-148, 0.0]),
        "a whole root": float32([1.0, 7.0, 1.0, 7.0]),
        "the residual cancels but for a last bit": {
            "x": rows_of([1.0, 2.0, 3.0]),
            "residual": rows_of([-1.0 + 2.0**-24, -2.0, -3.0]),
        },
        "the residual is far smaller": {
            "x": rows_of([2.0**127, 1.0, 3.0]),
            "residual": rows_of([2.0**-149, 2.0**-60, -(2.0**-100)]),
        },
        "weights of every size": {
            "x": rows_of([1.0, -2.0, 3.0, 0.5]),
            "weight": np.array([FP32.largest, 2.0**-149, 0.0, -1.0]),
        },
    },
}
