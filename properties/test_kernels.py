# SPDX-License-Identifier: Apache-2.0
"""Every registered kernel passes every check: probes first, then Hypothesis examples."""

from __future__ import annotations

import os

import pytest

from assay.kernels import device
from assay.kernels.record import Kernel, kernels
from assay.properties.bring import BoundCheck, parametrize
from assay.properties.profiles import EXAMPLES


def _examples() -> int:
    """From the profile by name: compiled kernels run a case in a millisecond or two."""
    profile = os.environ.get("HYPOTHESIS_PROFILE")
    if profile is None:
        profile = "assay-gpu" if device.select() == "cuda" else "assay-quick"
    return EXAMPLES.get(profile, EXAMPLES["assay-quick"])


def _pairs() -> list[object]:
    return [
        pair
        for kernel in kernels().values()
        for pair in parametrize(kernel, examples=_examples()).args[1]
    ]


@pytest.mark.parametrize(("kernel", "check"), _pairs())
def test_kernel_keeps_its_claims(kernel: Kernel, check: BoundCheck) -> None:
    check(kernel)
