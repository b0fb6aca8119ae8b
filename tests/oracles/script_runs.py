# SPDX-License-Identifier: Apache-2.0
"""Scripts beside the tests, run in processes of their own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NO_TRITON = "needs Triton: pip install triton (Linux only)"
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason=NO_TRITON)


def run(script, *arguments, text=None, **environment):
    """Output of a script in a process that has not imported Triton as an interpreter."""
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | environment
    done = subprocess.run(
        [sys.executable, str(script), *map(str, arguments)],
        input=text,
        capture_output=True,
        text=True,
        env=env,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"{script.name} failed:\n{done.stderr[-3000:]}"
    return done.stdout
