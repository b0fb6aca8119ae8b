# SPDX-License-Identifier: Apache-2.0
"""mpmath with a precision of our own: the user's is neither read nor changed."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from oracle_inputs import with_x

from assay.oracles.formats import FP32
from assay.oracles.generators import generate
from assay.oracles.multiprecision import context, from_fraction
from assay.oracles.operation import operations


def enclose(op, x):
    return op.enclose(with_x(op, x), op.params, op.default_policies(), FP32)


def reference(op, x):
    return op.reference(with_x(op, x), op.params, op.default_policies(), FP32)


def as_fraction(value):
    sign, mantissa, exponent, _ = value._mpf_
    return (-1) ** sign * Fraction(int(mantissa)) * Fraction(2) ** exponent


def bits_of(enclosure):
    parts = (enclosure.center, enclosure.tail, enclosure.radius)
    return [np.ascontiguousarray(p).view(np.uint64).tolist() for p in parts]


@pytest.mark.parametrize("op", operations().values(), ids=lambda op: op.name)
def test_the_users_mpmath_is_neither_read_nor_changed(op):
    x = generate("normal", 2, 30, 31, FP32)
    expected = bits_of(enclose(op, x))
    record = [v._mpf_ for v in reference(op, x)]
    before = (mpmath.mp.prec, mpmath.mp.dps)
    try:
        for prec in (5, 53, 1000):
            mpmath.mp.prec = prec
            settings = (mpmath.mp.prec, mpmath.mp.dps)
            again = bits_of(enclose(op, x))
            record_again = [v._mpf_ for v in reference(op, x)]
            assert (mpmath.mp.prec, mpmath.mp.dps) == settings, f"{op.name} changed mpmath.mp"
            assert again == expected, f"{op.name}: enclose depends on mpmath.mp.prec = {prec}"
            assert record_again == record, f"{op.name}: reference depends on it"
    finally:
        mpmath.mp.prec = before[0]
    assert (mpmath.mp.prec, mpmath.mp.dps) == before, "and it is put back here"


def test_contexts_are_separate():
    one, other = context(100), context(300)
    assert (one.prec, other.prec) == (100, 300), "each context has its own precision"
    assert mpmath.mp not in (one, other), "and none is the user's"
    assert context(100) is one, "making one takes longer than most sums"
    third = from_fraction(other, Fraction(1, 3))
    off = abs(as_fraction(third) - Fraction(1, 3)) * 3
    assert off <= Fraction(1, 2**300), "a Fraction is rounded once, to the context's precision"
