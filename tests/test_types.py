# SPDX-License-Identifier: Apache-2.0
"""The type checker of `make lint` sees all four rooms, and what they import from each other.

A checker that cannot find a package takes everything in it for `Any` and reports success. So a
right and a wrong call are planted in each room of a small copy, and the checker must tell them
apart.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("oracles", "kernels", "properties", "fuzz")

CALL = "from assay.oracles.formats import format_named\n\nresult = format_named({argument})\n"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the lint step's own script says about a copy of the layout."""
    copy = tmp_path_factory.mktemp("copy")
    for name in ("pyproject.toml", "tools/typecheck.sh", "oracles/formats.py"):
        (copy / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    for room in ROOMS:
        (copy / room).mkdir(exist_ok=True)
        shutil.copy(ROOT / room / "__init__.py", copy / room)
        (copy / room / "planted_right.py").write_text(CALL.format(argument='"float32"'))
        (copy / room / "planted_wrong.py").write_text(CALL.format(argument="32"))
    done = subprocess.run(
        [copy / "tools" / "typecheck.sh"],
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    # 1 means that errors were found; anything else, that the checker did not get that far.
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("room", ROOMS)
def test_planted_error_is_reported(report: str, room: str) -> None:
    expected = rf'^assay/{room}/planted_wrong\.py:3: error: .*"format_named".*\[arg-type\]$'
    assert re.search(expected, report, re.MULTILINE), report


@pytest.mark.parametrize("room", ROOMS)
def test_right_twin_is_not(report: str, room: str) -> None:
    assert f"assay/{room}/planted_right.py" not in report
