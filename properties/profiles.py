# SPDX-License-Identifier: Apache-2.0
"""Hypothesis profiles of the suite. They are offered, never loaded behind a user's back."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# The first call of a new launch configuration compiles for a second; deadlines would misjudge it.
_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)

EXAMPLES = {"assay-quick": 8, "assay-ci": 15, "assay-gpu": 150, "assay-nightly": 2000}


def register() -> None:
    """Make the profiles known to Hypothesis: assay-quick, assay-ci, assay-gpu, assay-nightly."""
    for name, examples in EXAMPLES.items():
        settings.register_profile(
            name,
            max_examples=examples,
            deadline=None,
            suppress_health_check=_SLOW,
            print_blob=True,
            # The same examples in every CI run; the nightly run and fuzzing look further.
            derandomize=name in ("assay-quick", "assay-ci"),
        )
