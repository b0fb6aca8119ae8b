# SPDX-License-Identifier: Apache-2.0
"""The self-audit of the criteria: no cheat survives, and the audit can fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from assay.oracles.depth import Sequential, TileThenAtomics
from assay.oracles.formats import FP16, FP32
from assay.oracles.generators import generate
from assay.oracles.operation import operation_named, operations
from assay.oracles.tolerances.cheats import BLOCK, CHEATS, MODELS, cheat, half_sum, results
from assay.oracles.tolerances.claimed_error import Claims
from assay.oracles.tolerances.curve_files import load
from assay.oracles.tolerances.power import CRITERIA, DTYPES, Line, SelfAudit, audit
from assay.oracles.tolerances.tolerance import Tolerance, tolerance

CAP = 1 << 14


def config(rows: int, n: int, dtype: str) -> Mapping[str, int]:
    return {"BLOCK": BLOCK, "num_warps": 4}


ATOMIC = Claims(
    "l2_norm.atomic",
    TileThenAtomics("BLOCK"),
    config,
    policies={"range": "naive"},
    casts_on_host=True,
)


def line(found: SelfAudit, dtype: str, name: str) -> Line:
    (chosen,) = (x for x in found.lines() if (x.dtype, x.cheat) == (dtype, name))
    return chosen


def test_every_operation_has_a_model() -> None:
    assert set(operations()) == MODELS.keys(), "oracles/tolerances/cheats.py needs one model each"


@pytest.mark.parametrize("name", list(operations()))
def test_no_cheat_survives(name: str) -> None:
    found = audit([name], max_n=CAP, curves=load(), claims={"l2_norm": ATOMIC})
    assert not found.survivors, "\n".join(found.survivors)
    assert len(found.lines()) == len(DTYPES) * len(CHEATS)
    for x in found.lines():
        for o in x.outcomes:
            assert all(m > 1.0 for m in o.margins.values())
            assert set(o.margins) <= set(o.changed)
        if x.cheat in ("zeros", "constant"):
            # Nothing computed is wrong at every length but for rows of one element.
            assert set(x.idle) <= {1}, (x.dtype, x.cheat, x.idle)
        if x.cheat == "dropped":
            assert x.idle == (1,), "a kernel without its last block is wrong wherever there is one"


def test_a_cheat_survives_where_a_criterion_is_missing() -> None:
    # float16 sums of bfloat16 data: only a huge element leaves float16's range.
    without = [c for c in CRITERIA if c not in ("exact", "huge")]
    found = audit(["l2_norm"], dtypes=["bfloat16"], max_n=64, curves=[], criteria=without)
    assert line(found, "bfloat16", "half").survived or line(found, "bfloat16", "half").idle
    # A tolerance in any order of 2**24 additions allows more than the sum itself.
    loose = {"sum": Claims("sum.any", Sequential())}
    options: dict[str, Any] = {"dtypes": ["float32"], "max_n": 1 << 20, "curves": []}
    alone = audit(["sum"], claims=loose, criteria=["tolerance"], **options)
    assert line(alone, "float32", "zeros").survived
    assert (
        line(alone, "float32", "zeros").loses_power == line(alone, "float32", "zeros").survived[0]
    )
    assert line(alone, "float32", "dropped").survived
    assert any("returns zeros" in text for text in alone.survivors)
    together = audit(["sum"], claims=loose, **options)
    assert not together.survivors


def atol_times_n(*arguments: Any, **options: Any) -> Tolerance:
    """The kind of tolerance that grows with N because a test failed once."""
    usual = tolerance(*arguments, **options)
    return replace(usual, rtol=0.0 * usual.rtol, atol=usual.n * 2.0**-14)


def test_a_tolerance_that_grows_with_n_is_exposed() -> None:
    options: dict[str, Any] = {
        "dtypes": ["float32"],
        "max_n": 1 << 20,
        "curves": load(),
        "claims": {"l2_norm": ATOMIC},
    }
    usual = audit(["l2_norm"], criteria=["tolerance"], **options)
    assert not usual.survivors
    grown = audit(["l2_norm"], criteria=["tolerance"], tolerance_of=atol_times_n, **options)
    for name in ("stale", "dropped", "half"):
        lost = line(grown, "float32", name).loses_power
        assert lost is not None and lost <= 1 << 17, name
    assert grown.survivors
    # With the others the cheats are caught all the same, and the table says from where it is blind.
    whole = audit(["l2_norm"], tolerance_of=atol_times_n, **options)
    assert not whole.survivors
    assert line(whole, "float32", "dropped").loses_power is not None


def test_data_of_an_audit() -> None:
    found = audit(["row_max", "sum"], dtypes=["float16"], max_n=64, curves=[])
    data = found.as_data()
    assert data["survivors"] == []
    assert len(data["lines"]) == 2 * len(CHEATS)
    (dropped,) = (
        x for x in data["lines"] if (x["operation"], x["cheat"]) == ("row_max", "dropped")
    )
    assert dropped["idle"] == [1]
    assert dropped["outcomes"][1]["margins"]["exact"] is None  # nothing is allowed there
    assert found.judged == 2 * len(CHEATS) * 3


# The cheats themselves.


def test_half_sums_lose_what_float16_loses() -> None:
    ones = np.ones((1, 1 << 15))
    assert half_sum(ones)[0, 0] == float(1 << 15)
    assert np.isinf(half_sum(np.ones((1, 1 << 17)))[0, 0])
    # 2048 + 1 is 2048: a lane of 4096 ones stops there.
    lane = np.zeros((1, 4096 * BLOCK))
    lane[0, ::BLOCK] = 1.0
    assert half_sum(lane)[0, 0] == 2048.0
    assert half_sum(np.zeros((3, 1))).shape == (3, 1)


@pytest.mark.parametrize("name", list(operations()))
def test_models_agree_with_the_oracle(name: str) -> None:
    """A model that reduces all columns in float64 is a right kernel."""
    op = operation_named(name)
    x = generate("normal", 4, 100, 5, FP32)
    inputs: dict[str, Any] = {"x": x}
    if name == "matmul":
        inputs["w"] = generate("normal", 2, 100, 6, FP32).T.copy()
    exact = op.enclose(inputs, op.params, op.default_policies(), FP32)
    out = results(op, inputs, FP32, kept=100)
    right = exact.center if op.integer else exact.round(FP32)[0]
    assert np.mean(out == right) > 0.99
    if not op.integer:
        assert (exact.ulps(out, FP32) <= 1.0).all()


def test_a_dropped_block_is_one_block_or_all_but_one_element() -> None:
    op = operation_named("sum")
    for n, kept in ((1, 1), (4, 1), (BLOCK + 5, 5), (3 * BLOCK, 2 * BLOCK)):
        x = np.ones((1, n))
        out = cheat("dropped", op, {"x": x}, {"x": x}, FP16, (1, 1))
        assert out[0, 0] == kept
