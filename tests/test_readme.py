# SPDX-License-Identifier: Apache-2.0
"""What the README shows is what comes out."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from assay.kernels.record import kernels
from assay.oracles.operation import operations

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def test_the_example_says_what_the_readme_says(tmp_path: Path) -> None:
    block = re.search(r"```console\n\$ assay (.*)\n\.\.\.\n(.*?)```", README, re.DOTALL)
    assert block, "the README no longer shows a run of `assay check`"
    command = [sys.executable, "-c", "from assay.fuzz.cli import main; main()"]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "ASSAY_DEVICE": "interpreter",
    }
    done = subprocess.run(
        [*command, *shlex.split(block[1])],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    for line in block[2].strip().splitlines():
        assert line in done.stdout, f"the README shows {line!r}, it says:\n{done.stdout}"


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), f"README.md links to {target}"


def test_operations_are_named() -> None:
    for name in operations():
        assert f"`{name}`" in README, f"the README does not name {name}"
    assert kernels(), "no kernel is registered"
