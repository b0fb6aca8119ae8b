# SPDX-License-Identifier: Apache-2.0
"""Modules that the tests of the oracles share can be imported from this folder.

They are imported under their own names, which no package of the rooms has.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.append(HERE)
pytest.register_assert_rewrite("condition_checks", "oracle_agreement", "special_value_checks")
