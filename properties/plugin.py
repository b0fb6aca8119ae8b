# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: device choice, markers, report header, summary, and --require-gpu.

pytest imports this module in every project of the environment, so it imports nothing heavy.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

UNSKIP = "needs a CUDA GPU: run on a machine with one, or `make gpu-test`"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("assay", "assay: numerical checks of Triton reductions")
    group.addoption(
        "--assay-device",
        choices=("auto", "cuda", "interpreter"),
        default=None,
        help="where kernels run (default: ASSAY_DEVICE, else a GPU if there is one, else Triton's "
        "interpreter)",
    )
    group.addoption(
        "--require-gpu",
        action="store_true",
        default=False,
        help="fail when there is no GPU, or when a test was skipped for lack of one",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: needs a CUDA GPU")
    config.addinivalue_line("markers", "interpreter: needs Triton's interpreter")
    config.addinivalue_line("markers", "slow: takes more than ten seconds")
    chosen = config.getoption("--assay-device")
    if config.getoption("--require-gpu"):
        if chosen == "interpreter":
            raise pytest.UsageError("--require-gpu does not go with --assay-device interpreter")
        chosen = "cuda"
    if chosen is not None:
        # Read by assay.kernels.device, before any kernel module is imported.
        os.environ["ASSAY_DEVICE"] = chosen
    _one_gpu_a_worker()
    if "hypothesis" in sys.modules or "assay.properties.strategies" in sys.modules:
        from assay.properties import profiles

        profiles.register()


def _one_gpu_a_worker() -> None:
    """Under xdist each worker sees one GPU; this must come before anything touches CUDA."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    gpus = [g for g in visible.split(",") if g]
    if worker.startswith("gw") and len(gpus) > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[int(worker[2:]) % len(gpus)]


def _uses_assay() -> bool:
    return "assay.kernels.record" in sys.modules


def _platform() -> Any:
    from assay.kernels import device

    return device.current()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    gpu_marked = [i for i in items if i.get_closest_marker("gpu")]
    interpreter_marked = [i for i in items if i.get_closest_marker("interpreter")]
    if config.getoption("--require-gpu") or gpu_marked or interpreter_marked:
        from assay.kernels import device

        try:
            where = device.select()
        except (device.EnvironmentLacks, ValueError) as error:
            raise pytest.UsageError(str(error)) from None
        if where != "cuda":
            for item in gpu_marked:
                item.add_marker(pytest.mark.skip(reason=UNSKIP))
        else:
            reason = "needs Triton's interpreter: run with ASSAY_DEVICE=interpreter"
            for item in interpreter_marked:
                item.add_marker(pytest.mark.skip(reason=reason))


_skipped_for_gpu: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and UNSKIP in str(report.longrepr):
        _skipped_for_gpu.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if not session.config.getoption("--require-gpu") or hasattr(session.config, "workerinput"):
        return
    if session.testscollected == 0 or _skipped_for_gpu:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.getoption("--require-gpu") and _skipped_for_gpu:
        terminalreporter.write_line(
            f"--require-gpu: {len(_skipped_for_gpu)} tests were skipped for lack of a GPU", red=True
        )
    rows: dict[str, tuple[float, float, int]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == "assay":
                    kernel, share, ulps, cases = value
                    old = rows.get(kernel, (0.0, 0.0, 0))
                    rows[kernel] = (max(old[0], share), max(old[1], ulps), old[2] + cases)
    if not rows:
        return
    terminalreporter.section("assay: worst error for each kernel")
    if not hasattr(config, "workerinput"):
        platform = _platform()
        terminalreporter.write_line(f"{platform.device}: {platform.name}, Triton {platform.triton}")
    width = max(len(k) for k in rows)
    terminalreporter.write_line(f"{'kernel':{width}}  share of bound  ulps   cases passed")
    for kernel, (share, ulps, cases) in sorted(rows.items()):
        terminalreporter.write_line(f"{kernel:{width}}  {share:14.3f}  {ulps:5.3g}  {cases:12}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """What the checks measured goes into the report, and from there into JUnit."""
    bring = sys.modules.get("assay.properties.bring")
    if bring is not None:
        bring.SEEN.clear()
    yield
    bring = sys.modules.get("assay.properties.bring")
    if bring is None:
        return
    for kernel, (share, ulps, cases) in bring.SEEN.items():
        item.user_properties.append(("assay", (kernel, share, ulps, cases)))
        item.user_properties.append(("assay_ulp_max", ulps))
        item.user_properties.append(("assay_share_of_bound", share))
    bring.SEEN.clear()


def pytest_report_header(config: pytest.Config) -> list[str]:
    if not _uses_assay() and "ASSAY_DEVICE" not in os.environ:
        return []
    from assay.kernels.device import EnvironmentLacks

    try:
        platform = _platform()
    except (EnvironmentLacks, ValueError) as error:
        raise pytest.UsageError(str(error)) from None
    where = f"assay: {platform.device} ({platform.name}), Triton {platform.triton}"
    return [f"{where}, torch {platform.torch}"]
