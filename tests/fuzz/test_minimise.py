# SPDX-License-Identifier: Apache-2.0
"""Minimising: the known smallest answers are found, and what is returned was seen to fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.fuzz.minimise import Minimised, minimise
from assay.kernels.record import Kernel
from assay.kernels.target import adopt
from assay.properties.case import Case, Data, Layout, Literal, Recipe, Special, Stored, build
from assay.properties.checks import run_check
from assay.properties.tensors import load_bits
from assay.properties.values import value_text

Predicate = Callable[[torch.Tensor], bool]


def norm_wrong_if(predicate: Predicate) -> Kernel:
    """An L2 norm that is far too large where `predicate` holds."""

    def norm(x: torch.Tensor) -> torch.Tensor:
        out = torch.sqrt(torch.sum(x.float() * x.float()))
        return (2.0 * out + 1.0 if predicate(x) else out).to(x.dtype)

    return adopt(norm, operation="l2_norm", policies={"range": "naive"})


def softmax_wrong_if(predicate: Predicate) -> Kernel:
    """A softmax that is twice too large where `predicate` holds."""

    def softmax(x: torch.Tensor) -> torch.Tensor:
        out = torch.softmax(x.float(), dim=-1)
        return (out * 2.0 if predicate(x) else out).to(x.dtype)

    return adopt(softmax, operation="softmax")


def norm_case(n: int, data: Data, dtype: str = "float32", layout: Layout | None = None) -> Case:
    return Case("l2_norm", dtype, 1, n, {"x": data}, layout=layout or Layout())


def softmax_case(rows: int, n: int, data: Data, dtype: str = "float32") -> Case:
    return Case("softmax", dtype, rows, n, {"x": data})


def smallest(
    kernel: Kernel,
    case: Case,
    *,
    check: str = "accuracy",
    base: Path | None = None,
    trials: int = 2000,
) -> Minimised:
    """The minimised case, after running it once more."""
    (verdict,) = run_check(check, kernel, [build(case, base)])
    assert verdict.failed, f"the kernel should be wrong on {case}: {verdict}"
    found = minimise(kernel, check, case, verdict, trials=trials, base=base)
    (again,) = run_check(check, kernel, [build(found.case, base)])
    assert again.failed, f"the minimised case holds: {found.case}"
    assert found.verdict == again, f"the verdict is of another case: {found.verdict}, {again}"
    assert found.trials <= trials, f"{found.trials} trials, allowed {trials}"
    return found


def literal(*rows: tuple[float, ...]) -> Literal:
    return Literal(tuple(tuple(value_text(v) for v in row) for row in rows))


SEVEN = literal((7.0,))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_one_element_is_to_blame(dtype: str) -> None:
    kernel = norm_wrong_if(lambda x: bool((x == 7).any()))
    found = smallest(kernel, norm_case(60, Recipe("integers", 2), dtype))
    assert found.case == norm_case(1, SEVEN, dtype), str(found.case)
    assert not found.exhausted


def test_the_length_is_to_blame() -> None:
    kernel = softmax_wrong_if(lambda x: x.shape[1] > 5)
    found = smallest(kernel, softmax_case(3, 300, Recipe("normal", 9, 3)))
    assert found.case == softmax_case(1, 6, literal((0.0,) * 6)), str(found.case)
    assert not found.exhausted


def test_the_length_of_long_arrays_is_to_blame() -> None:
    """Too long to spell out: the description is what gets smaller."""
    kernel = norm_wrong_if(lambda x: x.numel() > 5000)
    # Halving finds it in some thirteen steps.
    found = smallest(kernel, norm_case(8192, Recipe("normal", 9)), trials=300)
    assert (found.case.n, found.exhausted) == (5001, False), (
        f"n = {found.case.n} after {found.trials} trials, the smallest is 5001"
    )
    assert found.case == norm_case(5001, Recipe("ones")), str(found.case)


def test_the_number_of_rows_is_to_blame() -> None:
    kernel = softmax_wrong_if(lambda x: x.shape[0] > 3)
    found = smallest(kernel, softmax_case(17, 33, Recipe("normal", 4)))
    assert found.case == softmax_case(4, 1, literal((0.0,), (0.0,), (0.0,), (0.0,))), str(
        found.case
    )


def test_one_row_is_to_blame() -> None:
    kernel = softmax_wrong_if(lambda x: bool((x[:, -1] == 7).any()))
    data = Recipe("normal", 4, specials=(Special(value_text(7.0), 11, -1),))
    found = smallest(kernel, softmax_case(17, 33, data))
    assert found.case == softmax_case(1, 1, SEVEN), str(found.case)


def test_two_values_interplay() -> None:
    def both(x: torch.Tensor) -> bool:
        return bool(((x == 3).any(dim=-1) & (x == 5).any(dim=-1)).any())

    found = smallest(softmax_wrong_if(both), softmax_case(8, 64, Recipe("integers", 1)))
    assert (found.case.rows, found.case.n) == (1, 2), str(found.case)
    (row,) = found.case.operands["x"].values
    assert set(row) == {value_text(3.0), value_text(5.0)}, str(found.case)


def test_two_columns_interplay() -> None:
    def second_and_fifth(x: torch.Tensor) -> bool:
        return x.shape[1] > 5 and bool(((x[:, 2] != 0) & (x[:, 5] != 0)).any())

    found = smallest(softmax_wrong_if(second_and_fifth), softmax_case(9, 65, Recipe("normal", 1)))
    assert found.case == softmax_case(1, 6, literal((0.0, 0.0, 1.0, 0.0, 0.0, 1.0))), str(
        found.case
    )


def test_two_rows_interplay() -> None:
    def twice(x: torch.Tensor) -> bool:
        return int((x == 7).any(dim=-1).sum()) > 1

    data = Recipe(
        "normal", specials=(Special(value_text(7.0), 2, 5), Special(value_text(7.0), 14, 0))
    )
    found = smallest(softmax_wrong_if(twice), softmax_case(17, 9, data))
    # Seven in one column of two rows would do with n = 1; here they stand in two.
    assert found.case.rows == 2, str(found.case)
    assert found.case.n == 2, str(found.case)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_special_value_is_to_blame(value: str) -> None:
    kernel = norm_wrong_if(lambda x: False)

    def dropped(x: torch.Tensor) -> torch.Tensor:
        return kernel.function(torch.where(torch.isfinite(x), x, 0.0))

    wrong = adopt(dropped, operation="l2_norm", policies={"range": "naive"})
    data = Recipe("wide", 5, specials=(Special(value, 0, 100), Special("-0", 0, 3)))
    found = smallest(wrong, norm_case(129, data), check="special_values")
    assert found.case == norm_case(1, literal((float(value),))), str(found.case)


@pytest.mark.parametrize(
    ("predicate", "value"),
    [
        (lambda x: bool((x > 1.5).any()), 2.0),
        (lambda x: bool((x < -0.25).any()), -1.0),
        (lambda x: bool((x.abs() > 1000).any()), 1024.0),
        (lambda x: bool(((x > 0) & (x < 0.01)).any()), 2.0**-7),
        (lambda x: bool((x != 0).any()), 1.0),
    ],
    ids=["above 1.5", "below -1/4", "above 1000", "below 1/100", "not zero"],
)
def test_values_become_round(predicate: Predicate, value: float) -> None:
    data = Recipe("wide", 6)
    found = smallest(norm_wrong_if(predicate), norm_case(50, data))
    (row,) = found.case.operands["x"].values
    assert len(row) == 1, str(found.case)
    significand = row[0].removeprefix("-").partition("p")[0]
    assert significand == "0x1", f"{row[0]} is no power of two, {value_text(value)} would do"


def test_a_threshold_is_stepped_over_to_a_round_number() -> None:
    kernel = norm_wrong_if(lambda x: bool((x >= 21).any()))
    found = smallest(kernel, norm_case(3, literal((20.0, 777.0, 100.0))))
    assert found.case == norm_case(1, literal((32.0,))), str(found.case)


def test_layout_and_launch_go_if_they_may() -> None:
    kernel = replace(
        norm_wrong_if(lambda x: bool((x == 7).any())), configs=lambda m, n, dtype: [{}]
    )
    case = norm_case(60, Recipe("integers", 2), layout=Layout(0, 1))
    assert smallest(kernel, case).case.layout == Layout()


def test_layout_stays_where_it_is_to_blame() -> None:
    kernel = softmax_wrong_if(lambda x: x.stride(0) > x.shape[1])
    case = replace_case(softmax_case(5, 9, Recipe("normal")), layout=Layout(row_gap=3, offset=1))
    found = smallest(kernel, case).case
    assert found.layout == Layout(row_gap=1), f"smaller would be row_gap=1 alone: {found}"
    # One row has the stride too.
    assert (found.rows, found.n) == (1, 1), str(found)


def replace_case(case: Case, **changes: object) -> Case:
    from msgspec.structs import replace as changed

    return changed(case, **changes)


def test_launch_stays_where_it_is_to_blame() -> None:
    def softmax(x: torch.Tensor, *, BLOCK: int, num_warps: int) -> torch.Tensor:
        out = torch.softmax(x.float(), dim=-1)
        return (out * 2.0 if BLOCK == 2 else out).to(x.dtype)

    kernel = replace(
        adopt(softmax, operation="softmax"),
        configs=lambda m, n, dtype: [
            {"BLOCK": 8, "num_warps": 4},
            {"BLOCK": 2, "num_warps": 4},
        ],
    )
    launch = {"BLOCK": 2, "num_warps": 4}
    case = replace_case(softmax_case(3, 33, Recipe("normal")), launch=launch)
    found = smallest(kernel, case).case
    assert found.launch == launch, f"without it the kernel is right: {found}"
    assert found == replace_case(softmax_case(1, 1, literal((0.0,))), launch=launch), str(found)


def test_operands_and_parameters_go_if_they_may() -> None:
    def rms_norm(
        x: torch.Tensor,
        weight: torch.Tensor | None = None,
        residual: torch.Tensor | None = None,
        eps: float = 1e-6,
    ) -> torch.Tensor:
        h = x if residual is None else x + residual
        out = h * torch.rsqrt((h * h).mean(dim=-1, keepdim=True) + eps)
        out = out if weight is None else out * weight
        return out * 2.0 if residual is not None else out

    kernel = adopt(rms_norm, operation="rms_norm", policies={"range": "naive"})
    case = Case(
        "rms_norm",
        "float32",
        3,
        17,
        {"x": Recipe("normal"), "weight": Recipe("normal", 3), "residual": Recipe("normal", 2)},
        {"eps": 1.0},
    )
    found = smallest(kernel, case).case
    assert set(found.operands) == {"x", "residual"}, f"weight is not to blame: {found}"
    assert not found.params, f"eps is not to blame: {found}"
    assert (found.rows, found.n) == (1, 1), str(found)


def test_a_captured_tensor_becomes_literal_values(tmp_path: Path) -> None:
    values = np.linspace(-1.0, 1.0, 300, dtype=np.float32).reshape(10, 30)
    values[6, 20] = 7.0
    np.save(tmp_path / "captured.npy", values)
    digest = load_bits(tmp_path / "captured.npy").digest
    kernel = softmax_wrong_if(lambda x: bool((x == 7).any()))
    case = softmax_case(10, 30, Stored("captured.npy", "", digest))
    found = smallest(kernel, case, base=tmp_path)
    assert found.case == softmax_case(1, 1, SEVEN), str(found.case)


def test_a_large_captured_tensor_loses_what_is_not_to_blame(tmp_path: Path) -> None:
    values = np.ones((3, 5000), dtype=np.float32)
    values[1, 4321] = 7.0
    np.save(tmp_path / "captured.npy", values)
    digest = load_bits(tmp_path / "captured.npy").digest
    kernel = softmax_wrong_if(lambda x: bool((x == 7).any()))
    case = softmax_case(3, 5000, Stored("captured.npy", "", digest))
    found = smallest(kernel, case, base=tmp_path)
    assert found.case == softmax_case(1, 1, SEVEN), (
        f"15000 elements, one of them to blame, and what is left is {found.case}"
    )


def test_damage_minimises_too() -> None:
    def writes_past_the_end(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        out.copy_(torch.softmax(x.float(), dim=-1))
        torch.as_strided(out, (1,), (1,), out.storage_offset() + out.numel()).fill_(0.0)
        return out

    kernel = adopt(writes_past_the_end, operation="softmax")
    found = smallest(kernel, softmax_case(5, 9, Recipe("normal", 3)), check="canaries")
    assert found.case == softmax_case(1, 1, literal((0.0,))), str(found.case)


@pytest.mark.parametrize("trials", [0, 1, 7, 20])
def test_the_budget_of_trials_is_kept(trials: int) -> None:
    calls: list[int] = []

    def seven(x: torch.Tensor) -> bool:
        calls.append(x.numel())
        return bool((x == 7).any())

    kernel = norm_wrong_if(seven)
    case = norm_case(60, Recipe("integers", 2))
    (verdict,) = run_check("accuracy", kernel, [build(case)])
    assert verdict.failed
    calls.clear()
    found = minimise(kernel, "accuracy", case, verdict, trials=trials)
    assert found.trials == len(calls) <= trials, f"{len(calls)} runs, {found.trials} said"
    assert found.exhausted, "the budget was too small and it is not said"
    (again,) = run_check("accuracy", kernel, [build(found.case)])
    assert again.failed, f"an early end returned a case that holds: {found.case}"


def test_the_budget_of_seconds_is_kept() -> None:
    kernel = norm_wrong_if(lambda x: bool((x == 7).any()))
    case = norm_case(60, Recipe("integers", 2))
    (verdict,) = run_check("accuracy", kernel, [build(case)])
    found = minimise(kernel, "accuracy", case, verdict, seconds=0.0)
    assert (found.case, found.verdict, found.trials) == (case, verdict, 0)
    assert found.exhausted


def test_a_kernel_that_fails_once_keeps_its_case() -> None:
    """Nothing smaller was seen to fail, so nothing smaller is returned."""
    calls: list[int] = []

    def first_time(x: torch.Tensor) -> bool:
        calls.append(x.numel())
        return len(calls) == 1

    kernel = norm_wrong_if(first_time)
    case = norm_case(60, Recipe("normal", 2))
    (verdict,) = run_check("accuracy", kernel, [build(case)])
    assert verdict.failed
    found = minimise(kernel, "accuracy", case, verdict)
    assert (found.case, found.verdict) == (case, verdict), f"this was seen to hold: {found.case}"
    assert not found.exhausted


def test_every_case_that_is_kept_was_run_and_failed() -> None:
    """Whatever the kernel does: a verdict that depends on nothing but the size modulo three."""
    kernel = softmax_wrong_if(lambda x: x.shape[1] % 3 == 2)
    found = smallest(kernel, softmax_case(4, 101, Recipe("normal", 2)))
    assert found.case == softmax_case(1, 2, literal((0.0, 0.0))), str(found.case)


def test_rows_that_the_kernel_does_not_claim_are_not_tried() -> None:
    seen: list[int] = []

    def long(x: torch.Tensor) -> bool:
        seen.append(x.numel())
        return True

    kernel = replace(norm_wrong_if(long), max_n=20)
    smallest(kernel, norm_case(20, Recipe("normal")))
    assert max(seen) <= 20, f"ran N = {max(seen)}, the kernel claims 20"
