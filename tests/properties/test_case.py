# SPDX-License-Identifier: Apache-2.0
"""Cases: a few lines that rebuild the same bits, and one clear line where they do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.kernels.record import kernels
from assay.oracles.formats import FORMATS, FP32, Format, decode, format_named
from assay.oracles.generators import FAMILIES
from assay.properties.case import (
    Case,
    Layout,
    Literal,
    Recipe,
    Special,
    Stored,
    Tensor,
    build,
    literal_case,
    literal_of,
)
from assay.properties.probes import probes_for
from assay.properties.tensors import load_bits
from assay.properties.values import SPECIAL_VALUES, CaseError, parse_value, value_text

ALL = pytest.mark.parametrize("fmt", FORMATS.values(), ids=lambda f: f.name)


def norm(
    n: int, data: Recipe | Literal | Stored, dtype: str = "float32", **changes: object
) -> Case:
    return msgspec.structs.replace(Case("l2_norm", dtype, 1, n, {"x": data}), **changes)


def rms(rows: int, n: int, **operands: Recipe | Literal | Stored) -> Case:
    return Case("rms_norm", "float32", rows, n, dict(operands))


def through_json(case: Case) -> Case:
    return msgspec.json.decode(msgspec.json.encode(case), type=Case)


# The same bits.


@pytest.mark.parametrize("family", FAMILIES)
@ALL
def test_a_recipe_rebuilds_the_same_bits(family: str, fmt: Format) -> None:
    case = norm(37, Recipe(family, 11, 1, (Special("-0", 0, 3),)), fmt.name)
    first, again = build(case).x, build(through_json(case)).x
    assert (first.bits == again.bits).all() and first.digest == again.digest
    assert first.format is fmt and first.bits.dtype == fmt.bits_dtype
    assert first.bits.shape == (1, 37)


def test_a_new_process_rebuilds_the_same_bits() -> None:
    case = norm(300, Recipe("normal", 5, -3, (Special("nan", 0, -1),)), "bfloat16")
    code = (
        "import sys, msgspec\n"
        f"sys.path[:0] = {[p for p in sys.path if p]!r}\n"
        "from assay.properties.case import Case, build\n"
        "print(build(msgspec.json.decode(sys.stdin.buffer.read(), type=Case)).x.digest)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=msgspec.json.encode(case),
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode().strip() == build(case).x.digest


def test_seed_scale_and_length_decide_the_bits() -> None:
    digests = {
        build(norm(n, Recipe("normal", seed, scale))).x.digest
        for n in (5, 6)
        for seed in (0, 1)
        for scale in (0, 1)
    }
    assert len(digests) == 8, "two different recipes give the same bits"


def test_the_digest_knows_shape_and_format() -> None:
    zeros = np.zeros((2, 3))
    digests = {
        Tensor.of(values, fmt).digest
        for values in (zeros, zeros.T, zeros.reshape(1, 6))
        for fmt in FORMATS.values()
    }
    assert len(digests) == 12


def test_the_scale_is_a_power_of_two() -> None:
    plain = build(norm(20, Recipe("uniform", 3))).x.values
    assert (build(norm(20, Recipe("uniform", 3, -7))).x.values == plain * 2.0**-7).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_probe_survives_json(dtype: str) -> None:
    for kernel in kernels().values():
        for probe in probes_for(kernel):
            case = probe.case(dtype)
            assert through_json(case) == case, probe.name
            first, again = build(case), build(through_json(case))
            for name, tensor in first.tensors.items():
                assert tensor.digest == again.tensors[name].digest, f"{probe.name}: {name}"


# Literals.


@ALL
@given(data=st.data())
def test_any_bits_are_spelled_out_and_read_back(fmt: Format, data: st.DataObject) -> None:
    patterns = data.draw(st.lists(st.integers(0, (1 << fmt.width) - 1), min_size=1, max_size=6))
    tensor = Tensor(np.array([patterns], dtype=fmt.bits_dtype), fmt)
    case = norm(len(patterns), literal_of(tensor), fmt.name)
    again = build(through_json(case)).x
    nan = np.isnan(tensor.values)
    # A NaN keeps no payload: it has no name of its own.
    assert (np.isnan(again.values) == nan).all(), f"{case}"
    assert (again.bits == tensor.bits)[~nan].all(), f"{case}"


@ALL
def test_special_values_are_what_their_names_say(fmt: Format) -> None:
    row = tuple(SPECIAL_VALUES)
    values = build(norm(len(row), Literal((row,)), fmt.name)).x.values[0]
    found = dict(zip(row, values.tolist(), strict=True))
    assert np.isnan(found.pop("nan"))
    assert np.signbit(found.pop("-0"))
    assert found == {
        "inf": np.inf,
        "-inf": -np.inf,
        "largest": fmt.largest,
        "-largest": -fmt.largest,
        "smallest_normal": fmt.smallest_normal,
        "smallest_subnormal": fmt.smallest_subnormal,
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (np.inf, "inf"),
        (-np.inf, "-inf"),
        (np.nan, "nan"),
        (1.0, "0x1p+0"),
        (-1.5, "-0x1.8p+0"),
        (0.1, "0x1.999999999999ap-4"),
        (2.0**-149, "0x1p-149"),
    ],
)
def test_values_are_short_texts(value: float, text: str) -> None:
    assert value_text(value) == text
    again = parse_value(text, FP32)
    assert np.array_equal(again, value, equal_nan=True) and np.signbit(again) == np.signbit(value)


@given(value=st.floats(allow_nan=False))
def test_texts_are_read_back_to_the_bit(value: float) -> None:
    again = parse_value(value_text(value), format_named("float64"))
    assert again == value and np.signbit(again) == np.signbit(value), value_text(value)


# Special elements.


def specials(*places: Special, rows: int = 3, n: int = 4) -> np.ndarray:
    case = Case("softmax", "float32", rows, n, {"x": Recipe("ones", specials=places)})
    return build(case).x.values == 0.0


@pytest.mark.parametrize(
    ("row", "column", "expected"),
    [
        (1, 2, [(1, 2)]),
        (-1, -1, [(2, 3)]),
        (-3, -4, [(0, 0)]),
        (0, None, [(0, 0), (0, 1), (0, 2), (0, 3)]),
        (None, 1, [(0, 1), (1, 1), (2, 1)]),
        (None, None, [(i, j) for i in range(3) for j in range(4)]),
    ],
)
def test_specials_go_where_they_say(
    row: int | None, column: int | None, expected: list[tuple[int, int]]
) -> None:
    found = [tuple(place) for place in np.argwhere(specials(Special("0", row, column))).tolist()]
    assert found == expected


def test_later_specials_win() -> None:
    found = specials(Special("0"), Special("0x1p+0", 1, None), Special("0", 1, 1))
    assert found.sum() == 4 + 4 + 1


@pytest.mark.parametrize(
    ("row", "column", "text"),
    [
        (3, 0, "row 3, but there are 3"),
        (-4, 0, "row -4, but there are 3"),
        (0, 4, "column 4, but there are 4"),
        (None, -5, "column -5, but there are 4"),
    ],
)
def test_specials_outside_the_matrix_are_refused(
    row: int | None, column: int | None, text: str
) -> None:
    with pytest.raises(CaseError, match=f"^special value at {text}$"):
        specials(Special("0", row, column))


def test_specials_of_nothing_are_all_of_nothing() -> None:
    assert specials(Special("0"), rows=0).shape == (0, 4)
    with pytest.raises(CaseError, match="row 0, but there are 0"):
        specials(Special("0", 0, None), rows=0)


# Refusals.

ONES = Recipe("ones")

ERRORS: dict[str, tuple[Case, str]] = {
    "operation": (Case("product", "float32", 1, 3, {"x": ONES}), "unknown operation 'product'"),
    "dtype": (norm(3, ONES, "float8"), "unknown dtype 'float8'"),
    "dtype of an operand": (norm(3, ONES, dtypes={"x": "float8"}), "unknown dtype 'float8'"),
    "dtype of no operand": (norm(3, ONES, dtypes={"y": "float32"}), "no operand 'y'"),
    "operand": (
        norm(3, ONES, operands={"x": ONES, "y": ONES}),
        "no operand 'y': expected one of x",
    ),
    "no operand": (norm(3, ONES, operands={}), "l2_norm needs the operand x"),
    "parameter": (norm(3, ONES, params={"eps": 1.0}), "no parameter eps: expected none"),
    "negative rows": (Case("softmax", "float32", -1, 3, {"x": ONES}), "must not be negative"),
    "negative columns": (norm(-1, ONES), "must not be negative, got 1, -1, 1"),
    "two rows": (norm(3, ONES, rows=2), "rows must be 1, got 2"),
    "no row": (norm(3, ONES, rows=0), "rows must be 1, got 0"),
    "gap": (norm(3, ONES, layout=Layout(row_gap=-1)), "layout must not be negative"),
    "offset": (norm(3, ONES, layout=Layout(offset=-1)), "layout must not be negative"),
    "family": (norm(3, Recipe("odd")), "unknown data family 'odd': expected one of normal"),
    "large scale": (norm(3, Recipe("ones", scale=2001)), "between -2000 and 2000, got 2001"),
    "small scale": (norm(3, Recipe("ones", scale=-(1 << 62))), "between -2000 and 2000"),
    "special": (norm(3, Recipe("ones", specials=(Special("big"),))), "'big' is neither a hex"),
    "short literal": (norm(3, Literal((("0", "0"),))), "x needs 1 rows of 3 values, got rows of"),
    "ragged literal": (
        Case("softmax", "float32", 2, 2, {"x": Literal((("0", "0"), ("0",)))}),
        "x needs 2 rows of 2 values, got rows of [2, 1]",
    ),
    "no literal": (norm(3, Literal(())), "got rows of []"),
    "text": (norm(1, Literal((("one",),))), "'one' is neither a hex float like 0x1.8p-3"),
    "empty text": (norm(1, Literal((("",),))), "'' is neither"),
    "two signs": (norm(1, Literal((("--inf",),))), "'--inf' is neither"),
    "huge exponent": (norm(1, Literal((("0x1p+99999",),))), "neither a hex float"),
    "not in the format": (norm(1, Literal((("0x1.000001p+0",),))), "is no float32 value"),
    "too large": (norm(1, Literal((("0x1p+128",),))), "0x1.0000000000000p+128 is no float32 value"),
    "too small": (norm(1, Literal((("0x1p-150",),))), "is no float32 value"),
    "weight of rows": (rms(2, 2, x=ONES, weight=Literal((("0", "0"),) * 2)), "weight needs 1 rows"),
    "missing file": (norm(3, Stored("/nowhere/x.npy", "", "0" * 64)), "cannot read /nowhere/x.npy"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_cannot_be_built_is_refused_in_one_line(name: str) -> None:
    case, text = ERRORS[name]
    with pytest.raises(CaseError) as error:
        build(case)
    message = str(error.value)
    assert text in message, f"{text!r} is not in {message!r}"
    assert "\n" not in message, message


def test_a_stored_tensor_must_be_the_one_meant(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(3, dtype=np.float32))
    digest = load_bits(path).digest
    assert build(norm(3, Stored("x.npy", "", digest)), tmp_path).x.values.tolist() == [[0, 1, 2]]
    assert build(norm(3, Stored(str(path), "", digest))).x.digest == digest
    wrong = {
        "SHA-256": norm(3, Stored("x.npy", "", "0" * 64)),
        "should be float32 (1, 4)": norm(4, Stored("x.npy", "", digest)),
        "should be float16 (1, 3)": norm(3, Stored("x.npy", "", digest), "float16"),
    }
    for text, case in wrong.items():
        with pytest.raises(CaseError) as error:
            build(case, tmp_path)
        assert text in str(error.value) and "\n" not in str(error.value), str(error.value)


# The problem.


def test_inputs_have_the_shapes_that_the_operation_takes() -> None:
    problem = build(rms(2, 5, x=ONES, weight=Recipe("normal"), residual=Recipe("uniform")))
    shapes = {name: value.shape for name, value in problem.inputs.items()}
    assert shapes == {"x": (2, 5), "weight": (5,), "residual": (2, 5)}
    assert all(v.dtype == np.float64 for v in problem.inputs.values())
    assert (problem.rows, problem.n) == (2, 5)
    assert problem.params == {"eps": 1e-6}, "the default of a parameter is filled in"
    assert build(norm(5, ONES)).inputs["x"].shape == (1, 5)


@pytest.mark.parametrize(("rows", "n"), [(0, 3), (3, 0), (0, 0)])
def test_empty_problems(rows: int, n: int) -> None:
    problem = build(rms(rows, n, x=ONES, weight=ONES))
    assert problem.x.bits.shape == (rows, n)
    assert problem.inputs["weight"].shape == (n,)
    assert literal_of(problem.x).values == ((),) * rows
    spelled = literal_case(problem, "float32")
    assert build(spelled).x.digest == problem.x.digest


def test_an_operand_may_have_a_dtype_of_its_own() -> None:
    case = msgspec.structs.replace(
        rms(2, 5, x=ONES, weight=Recipe("normal")), dtype="bfloat16", dtypes={"weight": "float32"}
    )
    problem = build(through_json(case))
    assert [t.format.name for t in problem.tensors.values()] == ["bfloat16", "float32"]
    spelled = literal_case(problem, "bfloat16")
    assert spelled.dtypes == {"weight": "float32"}
    assert build(spelled).tensors["weight"].digest == problem.tensors["weight"].digest


def test_changed_problems_leave_the_first_one_alone() -> None:
    problem = build(norm(4, Recipe("normal", 2)))
    before = problem.x.digest
    turned = problem.map_matrices(lambda bits: bits[:, ::-1])
    assert turned.x.values.tolist() == [problem.x.values[0, ::-1].tolist()]
    problem.with_launch({"BLOCK": 4})
    problem.with_tensors(x=Tensor.of(np.zeros((1, 4)), FP32))
    assert (problem.x.digest, problem.launch) == (before, {})


def test_stored_bits_are_decoded_exactly() -> None:
    for fmt in FORMATS.values():
        tensor = Tensor(np.array([[1, 1 << (fmt.width - 1)]], dtype=fmt.bits_dtype), fmt)
        assert tensor.values.tolist() == [[fmt.smallest_subnormal, -0.0]]
        assert (tensor.values == decode(tensor.bits, fmt)).all()


# Text.


def test_text_of_a_case_is_short() -> None:
    long = Literal((tuple("0x1.234567p-89" for _ in range(5000)),))
    for case in (norm(5000, long), norm(1 << 40, Recipe("normal", 10**18, -99))):
        assert len(str(case)) <= 120, str(case)
        assert "\n" not in str(case) and repr(case) == str(case)
    assert str(norm(5000, long)) == "l2_norm float32[5000], x=5000 literal values"


def test_text_of_a_case_names_all_of_it() -> None:
    case = Case(
        "rms_norm",
        "bfloat16",
        2,
        3,
        {
            "x": Recipe("wide", 7, -2, (Special("nan", 1, None), Special("-inf", 0, -1))),
            "weight": Literal((("0x1p+0", "-0", "inf"),)),
            "residual": Stored("w.safetensors", "residual", "0" * 64),
        },
        {"eps": 1.0},
        Layout(3, 1),
        {"BLOCK_N": 4},
    )
    assert str(case) == (
        "rms_norm bfloat16[2, 3], x=wide(seed 7) * 2**-2, nan at [1, all], -inf at [0, -1], "
        "weight=[0x1p+0 -0 inf], residual=w.safetensors:residual, eps=1.0, row_gap=3 offset=1, "
        "BLOCK_N=4"
    )
