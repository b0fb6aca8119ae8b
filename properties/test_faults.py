# SPDX-License-Identifier: Apache-2.0
"""Every fault is caught by each check that it names, and the equivalent mutant by none."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from assay.kernels import device
from assay.kernels.faults.softmax import EQUIVALENT_MUTANT
from assay.kernels.record import Fault, faults, kernel_named
from assay.properties.case import build
from assay.properties.checks import checks, checks_for, run_check
from assay.properties.launch import launch
from assay.properties.pitfalls import PITFALLS
from assay.properties.probes import probes_for
from assay.properties.search import investigate

PAIRS = [
    pytest.param(fault, check, id=f"{fault.name}-{check}")
    for fault in faults().values()
    for check in fault.caught_by
]


@pytest.mark.parametrize(("fault", "check"), PAIRS)
def test_fault_is_caught(fault: Fault, check: str) -> None:
    if fault.isolated:
        _caught_in_own_process(fault, check)
        return
    tallies = []
    for dtype in fault.kernel.dtypes:
        tally = investigate(fault.kernel, check, dtype, examples=25)
        if tally.failure is not None:
            error = tally.failure[1].details.get("error")
            assert not isinstance(error, str), f"{fault.name} gives nothing to judge: {error}"
            return
        tallies.append(f"{dtype}: {tally.passed} cases")
    pytest.fail(f"{check} did not catch {fault.name} ({fault.mistake}): {', '.join(tallies)}")


def _caught_in_own_process(fault: Fault, check: str) -> None:
    """The kernel may write where it must not: a crash of its process must not be ours."""
    command = [sys.executable, "-c", "from assay.fuzz.cli import main; main()"]
    command += ["check", fault.name, "--check", check, "--dtypes", "float32", "--examples", "0"]
    command += ["--json", "--no-witness", "--device", device.select()]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1, f"{fault.name}: {done.stdout}{done.stderr}"
    (found,) = json.loads(done.stdout)["checks"]
    assert found["failed"] and found["check"] == check, found


def test_faults_name_what_exists() -> None:
    for fault in faults().values():
        assert fault.pitfall in PITFALLS, f"{fault.name}: unknown pitfall {fault.pitfall}"
        assert fault.caught_by, f"{fault.name} names no check"
        twin = kernel_named(fault.twin)
        assert twin.operation == fault.kernel.operation
        for check in fault.caught_by:
            assert check in checks(), f"{fault.name}: unknown check {check}"
            assert checks()[check].applies(fault.kernel.operation)


def test_equivalent_mutant_changes_no_stored_bit() -> None:
    """Without its guard for rows past M the softmax stores the same bits: no check can see it."""
    twin = kernel_named("softmax.one_tile")
    for dtype in twin.dtypes:
        problems = [build(probe.case(dtype)) for probe in probes_for(twin)]
        for problem in problems:
            (a,), (b,) = launch(twin, [problem]), launch(EQUIVALENT_MUTANT, [problem])
            assert a.bits is not None and b.bits is not None
            assert (a.bits == b.bits).all(), f"the guard changes stored bits in {dtype}"
        for check in checks_for("softmax"):
            verdicts = run_check(check.name, EQUIVALENT_MUTANT, problems)
            assert not any(v.failed for v in verdicts), [v.message for v in verdicts if v.failed]
