# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin and `parametrize` in a project that is not ours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from xml.etree import ElementTree as ET

import pytest
import torch

from assay.kernels.record import kernel_named
from assay.properties import parametrize
from assay.properties.bring import BoundCheck
from assay.properties.checks import checks_for
from assay.properties.plugin import UNSKIP
from assay.properties.search import Violation

pytest_plugins = ["pytester"]

PLUGIN = "assay.properties.plugin"
# Installed, it comes through its entry point; from a source tree it is asked for.
LOAD = () if any(e.value == PLUGIN for e in entry_points(group="pytest11")) else ("-p", PLUGIN)

CONFTEST = """\
from hypothesis import settings

settings.register_profile("theirs", max_examples=7, deadline=123)
settings.load_profile("theirs")
"""

# A user's kernel in torch, and its tests.
PROJECT = """\
import torch
from hypothesis import settings

from assay.properties import parametrize


def norm(x):
    return torch.sqrt(torch.sum(x.float() * x.float())).to(x.dtype)


def twice(x):
    return norm(x) * 2


@parametrize(norm, operation="l2_norm", dtypes=["float32", "bfloat16"],
             policies={"range": "naive"}, examples=1)
def test_norm(kernel, check):
    check(kernel)


@parametrize(twice, operation="l2_norm", dtypes=["float32"], policies={"range": "naive"},
             examples=0, expected_failures={"accuracy": "known to be twice too large"})
def test_twice(kernel, check):
    check(kernel)


def test_profile_is_theirs():
    assert settings().max_examples == 7
    assert settings().deadline.total_seconds() == 0.123
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder that is no part of ours, in which pytest runs as a process of its own."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in sys.path if p))
    for name in (*(n for n in os.environ if n.startswith("PYTEST_")), "HYPOTHESIS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.delenv("ASSAY_DEVICE", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    # Tensors are small: waking threads costs more than they bring.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return pytester


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    found = project.runpytest_subprocess(*LOAD, "-p", "no:cacheprovider", *arguments, timeout=240)
    assert "INTERNALERROR" not in text_of(found), text_of(found)
    return found


def text_of(found: pytest.RunResult) -> str:
    return f"{found.stdout.str()}\n{found.stderr.str()}"


def test_the_entry_module_imports_nothing_heavy() -> None:
    """pytest imports it in every project of the environment."""
    code = (
        f"import sys; sys.path[:0] = {[p for p in sys.path if p]!r}\n"
        f"import {PLUGIN}\n"
        "print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"torch", "triton", "hypothesis", "numpy", "mpmath", "matplotlib", "typer", "rich"}
    found = heavy & set(done.stdout.split())
    assert not found, f"importing the plugin imports {sorted(found)}"


def test_a_project_without_kernels_pays_nothing(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import os, sys

        def test_nothing_is_loaded():
            assert not {"torch", "triton", "hypothesis", "numpy"} & set(sys.modules)
            assert "TRITON_INTERPRET" not in os.environ
        """
    )
    # Hypothesis has a plugin of its own, which loads it.
    found = run(project, "-p", "no:hypothesispytest")
    found.assert_outcomes(passed=1)
    assert "assay" not in re.sub(r"plugins:.*|rootdir:.*", "", found.stdout.str()), text_of(found)


def test_markers_are_declared(project: pytest.Pytester) -> None:
    shown = run(project, "--markers").stdout.str()
    for marker in ("gpu: needs a CUDA GPU", "interpreter: needs", "slow: takes more than"):
        assert f"@pytest.mark.{marker}" in shown, f"{marker!r} is not declared"
    project.makepyfile("import pytest\n@pytest.mark.slow\ndef test_it(): pass\n")
    run(project, "--strict-markers").assert_outcomes(passed=1)


def test_options_are_explained(project: pytest.Pytester) -> None:
    shown = run(project, "--help").stdout.str()
    assert "--require-gpu" in shown and "--assay-device={auto,cuda,interpreter}" in shown, shown


MARKED = """\
import pytest

@pytest.mark.gpu
def test_on_gpu():
    pass

@pytest.mark.interpreter
def test_on_interpreter():
    pass

def test_anywhere():
    pass
"""


def test_gpu_tests_are_skipped_with_a_way_out(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    project.makepyfile(MARKED)
    found = run(project, "-rs")
    found.assert_outcomes(passed=2, skipped=1)
    found.stdout.fnmatch_lines([f"SKIPPED*{UNSKIP}"])


@pytest.mark.gpu
def test_interpreter_tests_are_skipped_on_a_gpu(project: pytest.Pytester) -> None:
    project.makepyfile(MARKED)
    found = run(project, "-rs", "--require-gpu")
    found.assert_outcomes(passed=2, skipped=1)
    assert found.ret == 0, text_of(found)
    found.stdout.fnmatch_lines(["SKIPPED*ASSAY_DEVICE=interpreter*"])


ORDINARY = "def test_it(): pass\n"


@pytest.mark.parametrize("quiet", [(), ("-q",)], ids=["header", "quiet"])
def test_require_gpu_without_gpu_is_one_clear_line(
    quiet: tuple[str, ...], project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    project.makepyfile(MARKED if quiet else ORDINARY)
    found = run(project, "--require-gpu", *quiet)
    text = text_of(found)
    assert found.ret not in (0, 5), f"a run without a GPU succeeds: {text}"
    assert "Traceback" not in text and " passed" not in text, text
    lines = [line for line in text.splitlines() if "no CUDA device is visible" in line]
    assert len(lines) == 1, f"not one clear line: {text}"
    assert lines[0].startswith("ERROR: "), lines[0]


def test_require_gpu_on_the_interpreter_is_a_contradiction(project: pytest.Pytester) -> None:
    project.makepyfile(ORDINARY)
    found = run(project, "--require-gpu", "--assay-device", "interpreter")
    assert found.ret == pytest.ExitCode.USAGE_ERROR, text_of(found)
    assert "does not go with" in text_of(found)


def test_a_device_that_makes_no_sense(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_DEVICE", "abacus")
    project.makepyfile(MARKED)
    found = run(project)
    text = text_of(found)
    assert found.ret not in (0, 5), text
    assert "ASSAY_DEVICE is 'abacus': expected one of auto, cuda, interpreter" in text, text
    assert "Traceback" not in text, text


def check_run(found: pytest.RunResult, **expected: int) -> None:
    """What a run of PROJECT must show, in one process or several."""
    text = text_of(found)
    outcomes = {k: v for k, v in found.parseoutcomes().items() if k != "deselected"}
    assert outcomes == expected, f"{outcomes}, expected {expected}\n{text}"
    assert "assay: worst error for each kernel" in text, text
    assert re.search(r"^norm +\d\.\d{3} ", text, re.MULTILINE), f"no line for the kernel: {text}"


def test_a_project_with_its_own_conftest_and_profile(project: pytest.Pytester) -> None:
    project.makeconftest(CONFTEST)
    project.makepyfile(test_theirs=PROJECT)
    found = run(
        project,
        *("-W", "error", "-rx", "--junitxml=report.xml", "-v", "--assay-device", "interpreter"),
    )
    count = len(checks_for("l2_norm"))
    # launch_configurations says nothing about a function that takes none.
    check_run(found, passed=3 * count - 3 - 1 + 1, skipped=3, xfailed=1)
    text = text_of(found)
    assert "test_theirs.py::test_norm[norm-float32-accuracy] PASSED" in text, text
    assert "test_theirs.py::test_norm[norm-bfloat16-special_values] PASSED" in text, text
    assert "known to be twice too large" in text, text
    found.stdout.fnmatch_lines(["assay: interpreter (*), Triton *, torch *"])
    cases = ET.parse(project.path / "report.xml").getroot().iter("testcase")  # noqa: S314
    properties = {
        case.get("name"): {p.get("name"): p.get("value") for p in case.iter("property")}
        for case in cases
    }
    measured = properties["test_norm[norm-float32-accuracy]"]
    assert 0.0 < float(measured["assay_share_of_bound"]) <= 1.0, measured
    assert float(measured["assay_ulp_max"]) > 0.0, measured
    assert not properties["test_profile_is_theirs"], "a test without kernels has properties of ours"


def test_a_project_on_two_workers(project: pytest.Pytester) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    project.makeconftest(CONFTEST)
    project.makepyfile(test_theirs=PROJECT)
    arguments = ("-n", "2", "--assay-device", "interpreter", "-k", "accuracy or profile")
    check_run(run(project, *arguments), passed=3, xfailed=1)


def test_violations_and_unexpected_passes_fail(project: pytest.Pytester) -> None:
    project.makepyfile(
        PROJECT.replace('"accuracy": "known to be twice', '"repeat": "said to be twice')
    )
    found = run(project, "--assay-device", "interpreter", "-k", "twice and (accuracy or repeat)")
    found.assert_outcomes(failed=2)
    text = text_of(found)
    assert "[XPASS(strict)] said to be twice too large" in text, text
    assert "Violation: twice: accuracy failed on l2_norm float32[" in text, text
    assert "outside the proved bound" in text, text


# `parametrize` itself.


def norm(x: torch.Tensor) -> torch.Tensor:
    return torch.sqrt(torch.sum(x.float() * x.float())).to(x.dtype)


def test_every_check_and_dtype_is_a_test_with_a_readable_name() -> None:
    mark = parametrize(norm, operation="l2_norm", dtypes=["float16", "float32"])
    names, pairs = mark.args
    assert tuple(names) == ("kernel", "check")
    ids = [p.id for p in pairs]
    expected = [
        f"norm-{dtype}-{check.name}"
        for check in checks_for("l2_norm")
        for dtype in ("float16", "float32")
    ]
    assert ids == expected
    assert all(re.fullmatch(r"[\w.-]+", i) for i in ids), ids


def test_a_kernel_record_brings_its_own_claims() -> None:
    kernel = kernel_named("rms_norm.one_tile")
    pairs = parametrize(kernel).args[1]
    assert all(p.values[0] is kernel for p in pairs)
    assert len(pairs) == len(checks_for("rms_norm")) * len(kernel.dtypes)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "operation="),
        ({"operation": "product"}, "unknown operation 'product': expected one of count_nonzero"),
        ({"operation": "l2_norm", "dtypes": ["float8"]}, "unknown dtype 'float8'"),
        ({"operation": "l2_norm", "accumulator": "int"}, "unknown dtype 'int'"),
        ({"operation": "l2_norm", "policies": {"cast": "end"}}, "no policy 'cast'"),
        ({"operation": "l2_norm", "policies": {"range": "wide"}}, "cannot be 'wide'"),
        ({"operation": "l2_norm", "expected_failures": {"speed": ""}}, "no check of ours: speed"),
        ({"operation": "l2_norm", "expected_failures": {"row_sum": ""}}, "row_sum"),
    ],
    ids=lambda value: None if isinstance(value, str) else "-".join(map(str, value)) or "nothing",
)
def test_bad_arguments_are_refused(arguments: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)) as error:
        parametrize(norm, **arguments)
    assert "\n" not in str(error.value)


def test_a_bound_check_passes_fails_and_skips() -> None:
    good, bad = (
        parametrize(f, operation="l2_norm", policies={"range": "naive"}).args[1][0].values[0]
        for f in (norm, lambda x: norm(x) * 2)
    )
    BoundCheck("accuracy", "float32", 0)(good)
    with pytest.raises(Violation, match="accuracy failed on l2_norm") as error:
        BoundCheck("accuracy", "float32", 0)(bad)
    assert error.value.verdict.failed and error.value.case.operation == "l2_norm"
    with pytest.raises(pytest.skip.Exception, match="names one launch configuration"):
        BoundCheck("launch_configurations", "float32", 0)(good)
