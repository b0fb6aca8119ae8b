# SPDX-License-Identifier: Apache-2.0
"""Bring your own kernel: one decorator in a user's test file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.kernels.record import Kernel
from assay.kernels.target import adopt
from assay.properties.checks import checks, checks_for
from assay.properties.search import Violation, investigate

DEFAULT_EXAMPLES = 25


class BoundCheck:
    """A check with its dtype and number of examples; call it with the kernel.

    Raises `Violation`, an AssertionError with the smallest failing case, and pytest.skip's outcome
    where the check says nothing about any case of the kernel.
    """

    def __init__(self, name: str, dtype: str, examples: int) -> None:
        self.name, self.dtype, self.examples = name, dtype, examples

    def __repr__(self) -> str:
        return f"{self.name}[{self.dtype}]"

    def __call__(self, kernel: Kernel) -> None:
        import pytest

        tally = investigate(kernel, self.name, self.dtype, examples=self.examples)
        record(tally.kernel, tally.worst_share, tally.worst_ulps, tally.passed)
        if tally.failure is not None:
            case, verdict = tally.failure
            raise Violation(case, verdict)
        if tally.passed == 0:
            pytest.skip(f"{self.name} speaks about no case: {'; '.join(sorted(tally.reasons))}")


def parametrize(
    function: Callable[..., Any] | Kernel,
    *,
    operation: str | None = None,
    dtypes: Sequence[str] | None = None,
    accumulator: str | None = None,
    policies: Mapping[str, str] | None = None,
    examples: int = DEFAULT_EXAMPLES,
    expected_failures: Mapping[str, str] | None = None,
) -> Any:
    """Parametrize a test with `kernel` and `check` over every check that applies.

        @parametrize(my_softmax, operation="softmax", dtypes=["bfloat16"])
        def test_my_softmax(kernel, check):
            check(kernel)

    function: a callable on tensors, or a `Kernel` record with claims of its own.
    accumulator, policies: what the kernel claims; what is not claimed is held to the default.
    examples: Hypothesis examples for each check and dtype, after the probes.
    expected_failures: {check: reason}; one that passes is an error.
    Raises ValueError for an unknown operation, dtype, policy or check.
    """
    import pytest

    if isinstance(function, Kernel):
        kernel = function
    elif operation is None:
        raise ValueError("parametrize needs operation=...: which operation is implemented?")
    else:
        kernel = adopt(
            function,
            operation=operation,
            dtypes=tuple(dtypes) if dtypes is not None else None,
            accumulator=accumulator,
            policies=policies,
        )
    expected = dict(expected_failures or {})
    unknown = set(expected) - set(checks())
    if unknown:
        raise ValueError(
            f"expected_failures names no check of ours: {', '.join(sorted(unknown))}; expected "
            f"some of {', '.join(checks())}"
        )
    silent = [c for c in expected if not checks()[c].applies(kernel.operation)]
    if silent:
        raise ValueError(
            f"expected_failures names {', '.join(silent)}, which says nothing about "
            f"{kernel.operation}: delete it"
        )
    pairs = []
    for check in checks_for(kernel.operation):
        for dtype in kernel.dtypes:
            marks = []
            if check.name in expected:
                marks.append(pytest.mark.xfail(reason=expected[check.name], strict=True))
            pairs.append(
                pytest.param(
                    kernel,
                    BoundCheck(check.name, dtype, examples),
                    marks=marks,
                    id=f"{kernel.name}-{dtype}-{check.name}",
                )
            )
    return pytest.mark.parametrize(("kernel", "check"), pairs)


# Worst share of the bound and number of passed cases for each kernel of this process.
SEEN: dict[str, tuple[float, float, int]] = {}


def record(kernel: str, share: float, ulps: float, passed: int) -> None:
    old = SEEN.get(kernel, (0.0, 0.0, 0))
    SEEN[kernel] = (max(old[0], share), max(old[1], ulps), old[2] + passed)
