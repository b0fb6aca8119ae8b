# SPDX-License-Identifier: Apache-2.0
"""Pitfall classes that faults and probes belong to: how reductions go wrong.

The classes come from public bug reports. COMBINE is added for the mistake that the L2 norm invites
most: a non-linear step on the wrong side of the combine.
"""

PITFALLS: dict[str, str] = {
    "COMBINE": "a non-linear step is taken before the partials are combined, or the combine first",
    "MASK-OTHER": "a masked load has no fill value, or one that the next step does not leave alone",
    "PAD-IDENTITY": "padding holds something other than the identity of the reduction, or counts",
    "PAD-REENTRY": "padding that was the identity is changed by a map, and reduced once more",
    "MASK-BOUND": "a mask compares with the wrong bound",
    "STORE-OOB": "a store without mask, or with the load's wrapped index",
    "COVERAGE": "part of the input or of the output is never visited for some shapes",
    "STRIDE": "contiguous addressing of a strided operand",
    "EMPTY": "block or grid computed from 0, or unwritten memory returned",
    "NEG-INF-ROW": "-inf minus -inf in a row that is masked as a whole",
    "NAN-LAUNDER": "a guard for empty rows turns NaN into a number",
    "POS-INF": "inf minus inf in the combine",
    "NAN-MINMAX": "NaN drops out of a maximum, a minimum or a comparison",
    "ARG-TIES": "another of equal elements is found, or their indices are mixed",
    "DEGENERATE-DIV": "a range of zero, or next to it, is divided by",
    "SQ-RANGE": "squares overflow or underflow ahead of the root",
    "EXP-RANGE": "the argument of exp can be positive, or all of them so low that nothing is left",
    "LOWP-ACC": "accumulates, or squares, in float16 or bfloat16",
    "VAR-CANCEL": "mean of squares minus squared mean",
    "EPS-FORMULA": "eps outside the root, or lost",
    "NORM-CONV": "cast before the weight where after was promised, or the reverse",
    "APPROX-FTZ": "approximate instructions, subnormals flushed",
    "FSUM-SAT": "one serial accumulator, or one global atomic, for a long sum",
    "INT-ACC": "counts in a type that cannot hold the next number",
    "SCRATCH-STALE": "scratch that is not zeroed, or shared between launches",
    "RACE": "programs write one place, and the last one wins",
    "DOF-N1": "one element, one row: special paths",
    "SIGNED-ZERO": "-0 where 0 is meant, or the reverse",
}
