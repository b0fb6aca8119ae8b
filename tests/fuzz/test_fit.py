# SPDX-License-Identifier: Apache-2.0
"""Fitting: known slopes come back within the fit's own interval, and no slope out of nothing."""

from __future__ import annotations

import numpy as np
import pytest

from assay.fuzz.fit import fit

DEPTHS = [16**k for k in range(1, 5)]
TRIALS = 12


def random_walk(seed: int, depths: list[int], trials: int = TRIALS) -> list[np.ndarray]:
    """Roundings that go either way: errors grow with the root of the depth."""
    draw = np.random.default_rng(seed)
    return [draw.standard_normal(trials) * np.sqrt(d) for d in depths]


def biased(seed: int, depths: list[int]) -> list[np.ndarray]:
    """Roundings that go the same way, of a size that the data decides."""
    draw = np.random.default_rng(seed)
    return [draw.uniform(0.2, 0.5, TRIALS) * d for d in depths]


@pytest.mark.parametrize(
    ("errors", "slope"), [(random_walk, 0.5), (biased, 1.0)], ids=["random walk", "biased"]
)
def test_the_slope_lies_in_its_own_interval(errors: object, slope: float) -> None:
    covered = 0
    seeds = range(8)
    for seed in seeds:
        found = fit(DEPTHS, errors(seed, DEPTHS))
        assert found is not None and found.low <= found.slope <= found.high, found
        assert found.points == len(DEPTHS)
        covered += found.low <= slope <= found.high
    # All eight of such intervals hold it with a chance of two in three, six of them nearly always.
    assert covered >= 6, f"{covered} of {len(seeds)} intervals hold the slope {slope}"


def test_the_two_laws_are_told_apart() -> None:
    for seed in range(4):
        walk, bias = fit(DEPTHS, random_walk(seed, DEPTHS)), fit(DEPTHS, biased(seed, DEPTHS))
        assert walk is not None and bias is not None
        assert walk.high < bias.low, f"seed {seed}: {walk} and {bias} overlap"


@pytest.mark.parametrize(("power", "slope"), [(1, 0.5), (2, 1.0), (0, 0.0), (3, 1.5)])
def test_data_without_noise_give_the_slope_exactly(power: int, slope: float) -> None:
    # Powers of two, so that the logarithms are whole numbers.
    errors = [np.full(TRIALS, 4.0 ** (power * k) * 8.0) for k in range(1, 5)]
    found = fit(DEPTHS, errors)
    assert found is not None
    assert (found.slope, found.low, found.high) == (slope, slope, slope), found
    assert found.constant == 8.0, found


def test_more_trials_give_a_narrower_interval() -> None:
    few, many = (fit(DEPTHS, random_walk(3, DEPTHS, trials)) for trials in (6, 600))
    assert few is not None and many is not None
    assert many.high - many.low < few.high - few.low, f"{few} and {many}"


def test_the_sign_of_the_errors_does_not_matter() -> None:
    errors = biased(5, DEPTHS)
    assert fit(DEPTHS, errors) == fit(DEPTHS, [-e for e in errors])


def test_the_unit_does_not_matter_to_the_slope() -> None:
    errors = biased(5, DEPTHS)
    found, scaled = fit(DEPTHS, errors), fit(DEPTHS, [2.0**-30 * e for e in errors])
    assert found is not None and scaled is not None
    assert np.isclose(found.slope, scaled.slope, rtol=2.0**-40), f"{found} and {scaled}"


def test_equal_data_give_equal_fits() -> None:
    errors = random_walk(7, DEPTHS)
    assert fit(DEPTHS, errors) == fit(DEPTHS, errors), "the resampling is not reproducible"


def test_a_point_with_more_trials_weighs_more() -> None:
    """A stray point of one trial beside points of many pulls less than one of as many trials."""
    depths = [1, 4, 16, 64]

    def slope(trials: int) -> float:
        exact = [np.full(100, float(d)) for d in depths[:-1]]
        found = fit(depths, [*exact, np.full(trials, 1.0)])
        assert found is not None
        return found.slope

    assert slope(1) > slope(100), f"{slope(1)} and {slope(100)}"


NOTHING: dict[str, tuple[list[int], list[np.ndarray]]] = {
    "no points": ([], []),
    "one point": ([4], [np.ones(3)]),
    "two points": ([4, 16], [np.ones(3), np.ones(3)]),
    "one depth": ([8, 8, 8, 8], [np.ones(3)] * 4),
    "two depths": ([4, 8, 8, 4], [np.ones(3)] * 4),
    "no errors": ([1, 4, 16, 64], [np.zeros(3)] * 4),
    "two points with errors": ([1, 4, 16], [np.zeros(3), np.ones(3), np.ones(3)]),
    "depth 0": ([0, 4, 16], [np.ones(3)] * 3),
    "no trials": ([1, 4, 16], [np.zeros(0)] * 3),
}


@pytest.mark.parametrize("name", NOTHING)
def test_too_few_points_give_nothing(name: str) -> None:
    assert fit(*NOTHING[name]) is None, "a slope out of nothing"


def test_points_without_errors_are_left_out() -> None:
    errors = biased(2, DEPTHS)
    with_zeros = fit([1, 2, *DEPTHS], [np.zeros(TRIALS), np.zeros(TRIALS), *errors])
    without = fit(DEPTHS, errors)
    assert with_zeros is not None and without is not None
    assert (with_zeros.slope, with_zeros.points) == (without.slope, without.points)


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shorter|longer"):
        fit([1, 4, 16], [np.ones(3)] * 4)
