# SPDX-License-Identifier: Apache-2.0
"""The command line as a fixture, in this process and in a new one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from assay.fuzz.cli import main


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"exit {self.code}\nstdout: {self.out}\nstderr: {self.err}"


Command = Callable[..., Done]


@pytest.fixture
def assay(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs the command line in this process."""
    # Wide enough that no table or help text is cut, without colours.
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments: object) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return Done(int(stopped.value.code or 0), out, err)

    return run


@pytest.fixture(scope="session")
def assay_in_new_process() -> Command:
    """Runs the command line in a process that finds the packages where this one does."""

    def run(*arguments: object, **environment: str) -> Done:
        inherited = {
            k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "ASSAY_DEVICE")
        }
        inherited["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        done = subprocess.run(
            [sys.executable, "-c", "from assay.fuzz.cli import main; main()", *map(str, arguments)],
            env=inherited | environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return run
