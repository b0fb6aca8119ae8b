# SPDX-License-Identifier: Apache-2.0
"""The statistical bound: where it holds, how near errors come to it, and where it fails.

It takes roundings for independent in the mean. Random data in any order fit that; equal data do
not, whose roundings all go one way for as long as the running sum stays in one binade.
"""

from __future__ import annotations

import numpy as np
import pytest

from assay.oracles.bounds import statistical_gamma
from assay.oracles.formats import FP32, round_nearest
from assay.oracles.generators import generate
from assay.oracles.simulation.catalogue import INTERPRETER, PAIRWISE, Simulated
from assay.oracles.simulation.kernels import kernel_named
from assay.oracles.simulation.orders import schedule_named
from assay.oracles.simulation.search import Question, ask, run, shares

# 2 exp(-lambda**2 / 2) is 5e-7 for it: a failure in the trials here would be no chance.
CONFIDENCE = 5.5
TRIALS = 400


def trial_shares(simulated: Simulated, question: Question) -> np.ndarray:
    """Errors as shares of the statistical bound, one for each row."""
    claim = simulated.claim(question.n, CONFIDENCE)
    ahead, _ = shares(simulated, question, run(simulated, question), claim)
    return ahead.ravel()


def question_of(simulated: Simulated, x: np.ndarray) -> Question:
    return ask(simulated, [""] * len(x), {"x": round_nearest(x, FP32)})


# Errors of random data as a share of the bound, (rms, largest): at least, and at most.
# Normal data has partial sums of about sqrt(n) beside sum |x| of about n.
SEEN = {
    ("sum", "uniform", "sequential"): ((0.02, 0.08), (0.07, 0.3)),
    ("sum", "uniform", "tile, then atomics"): ((0.02, 0.08), (0.07, 0.3)),
    ("sum", "normal", "sequential"): ((0.001, 0.006), (0.006, 0.03)),
    ("sum", "normal", "tile, then atomics"): ((0.001, 0.006), (0.006, 0.03)),
    ("l2_norm", "normal", "sequential"): ((0.02, 0.08), (0.06, 0.3)),
    ("l2_norm", "normal", "tile, then atomics"): ((0.02, 0.08), (0.06, 0.3)),
    ("logsumexp", "normal", "tile, then atomics"): ((0.02, 0.1), (0.07, 0.3)),
}


@pytest.mark.parametrize(("name", "family", "order"), SEEN)
def test_the_statistical_bound_holds_for_random_data(name: str, family: str, order: str) -> None:
    simulated = Simulated(kernel_named(name), schedule_named(order), PAIRWISE)
    question = question_of(simulated, generate(family, TRIALS, 1024, 5, FP32))
    found = trial_shares(simulated, question)
    rms, largest = float(np.sqrt((found**2).mean())), float(found.max())
    assert largest <= 1.0, f"{simulated} of {family}: {largest} of the bound in {TRIALS} trials"
    (rms_least, rms_most), (least, most) = SEEN[name, family, order]
    assert rms_least <= rms <= rms_most, f"{simulated} of {family}: rms {rms} of the bound"
    assert least <= largest <= most, f"{simulated} of {family}: largest {largest} of the bound"


@pytest.mark.parametrize("order", ["sequential", "tile, then atomics"])
def test_the_statistical_bound_fails_for_equal_data(order: str) -> None:
    """Documented in `bounds.statistical_gamma`: whoever uses it must look at the data first."""
    simulated = Simulated(kernel_named("sum"), schedule_named(order), INTERPRETER)
    n = 16_384 if order == "sequential" else 131_072
    x = np.broadcast_to((1.0 + np.linspace(0.0, 1.0, 24, endpoint=False))[:, None], (24, n))
    question = question_of(simulated, x)
    found = trial_shares(simulated, question)
    assert found.max() > 1.0, f"{order}: {found.max()} of the statistical bound for equal data"
    ahead, _ = shares(simulated, question, run(simulated, question))
    assert ahead.max() <= 1.0, f"{order}: the proved bound holds for them all the same"


def test_the_statistical_bound_is_the_smaller_one_for_long_sums() -> None:
    for h in (100, 1000, 100_000):
        proved = h * FP32.u / (1.0 - h * FP32.u)
        statistical = statistical_gamma(h, FP32.u, CONFIDENCE)
        assert statistical < proved, f"h = {h}"
        assert statistical >= CONFIDENCE * np.sqrt(h) * FP32.u, f"h = {h}"
