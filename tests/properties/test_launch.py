# SPDX-License-Identifier: Apache-2.0
"""Launching: many problems at once judge as one by one, and a kernel's misbehaviour is reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from assay.kernels import device
from assay.kernels.record import Kernel, kernel_named
from assay.kernels.target import adopt
from assay.oracles.formats import FORMATS
from assay.properties.case import Case, Data, Layout, Problem, Recipe, Special, build
from assay.properties.judge import judge
from assay.properties.launch import COUNTER, Launch, as_torch, config_of, launch, supports


def softmax_problem(
    rows: int, n: int, data: Data, dtype: str = "float32", layout: Layout | None = None
) -> Problem:
    return build(Case("softmax", dtype, rows, n, {"x": data}, layout=layout or Layout()))


def norm_problem(n: int, data: Data, dtype: str = "float32") -> Problem:
    return build(Case("l2_norm", dtype, 1, n, {"x": data}))


def softmax_like(function: Callable[..., Any]) -> Kernel:
    return adopt(function, operation="softmax")


def norm_like(function: Callable[..., Any]) -> Kernel:
    return adopt(function, operation="l2_norm", policies={"range": "naive"})


def one(kernel: Kernel, problem: Problem, poison: str = "nan") -> Launch:
    (found,) = launch(kernel, [problem], poison=poison)
    return found


# Many at once.


def same_judgement(kernel: Kernel, problems: list[Problem]) -> None:
    platform = device.current()
    together = launch(kernel, problems)
    assert len(together) == len(problems)
    for problem, found in zip(problems, together, strict=True):
        alone = one(kernel, problem)
        assert found.bits is not None and alone.bits is not None, (found, alone)
        assert (found.bits == alone.bits).all(), "stacked and single launch give other bits"
        assert found.bits.shape == alone.bits.shape
        if found.bits.size:
            assert np.array_equal(found.poisoned, alone.poisoned)
        a, b = (judge(kernel, problem, f, platform) for f in (found, alone))
        for name in ("allowed", "error", "wrong", "special", "values"):
            x, y = getattr(a, name), getattr(b, name)
            assert np.array_equal(x, y, equal_nan=x.dtype.kind == "f"), f"{name}: {x} and {y}"


MANY = [
    softmax_problem(rows, 9, Recipe(family, seed, specials=specials))
    for rows, family, seed, specials in (
        (1, "normal", 1, ()),
        (3, "wide_logits", 2, ()),
        (2, "normal", 3, (Special("nan", 1, 4),)),
        (0, "normal", 4, ()),
        (5, "masked", 5, (Special("-inf", 2, None),)),
    )
]


@pytest.mark.parametrize("name", ["softmax.one_tile", "softmax.one_tile_masked_zero"])
def test_stacked_problems_judge_as_one_by_one(name: str) -> None:
    before = COUNTER.launches, COUNTER.problems
    launch(kernel_named(name), MANY)
    made = COUNTER.launches - before[0], COUNTER.problems - before[1]
    assert made == (1, len(MANY)), f"{made[0]} launches for {made[1]} problems of one shape class"
    same_judgement(kernel_named(name), MANY)


def test_stacked_rms_norms_share_a_weight() -> None:
    kernel = kernel_named("rms_norm.one_tile")

    def problem(seed: int, weight: int | None) -> Problem:
        operands: dict[str, Data] = {"x": Recipe("normal", seed), "residual": Recipe("normal", 9)}
        if weight is not None:
            operands["weight"] = Recipe("normal", weight)
        return build(Case("rms_norm", "float16", 2, 5, operands))

    problems = [problem(1, 7), problem(2, 7), problem(3, 8), problem(4, None), problem(5, 7)]
    before = COUNTER.launches
    launch(kernel, problems)
    assert COUNTER.launches - before == 3, "one launch for each weight"
    same_judgement(kernel, problems)


def test_what_differs_in_more_than_rows_is_launched_apart() -> None:
    x = Recipe("normal", 1)
    problems = [
        softmax_problem(2, 9, x),
        softmax_problem(2, 8, x),
        softmax_problem(2, 9, x, "float16"),
        softmax_problem(2, 9, x, layout=Layout(1, 0)),
        softmax_problem(2, 9, x).with_launch({"BLOCK_M": 1, "BLOCK_N": 16, "num_warps": 4}),
        softmax_problem(3, 9, x),
    ]
    before = COUNTER.launches
    launch(kernel_named("softmax.one_tile"), problems)
    assert COUNTER.launches - before == 5, "the first and the last belong together, no others"
    same_judgement(kernel_named("softmax.one_tile"), problems)


def test_parameters_are_launched_apart() -> None:
    problems = [
        build(Case("rms_norm", "float32", 1, 4, {"x": Recipe("normal", 1)}, {"eps": eps}))
        for eps in (1e-6, 1.0, 1e-6)
    ]
    found = launch(kernel_named("rms_norm.one_tile"), problems)
    bits = [f.bits.tolist() for f in found if f.bits is not None]
    assert bits[0] == bits[2] != bits[1], "problems with another eps were launched together"


def test_whole_arrays_are_launched_one_by_one() -> None:
    problems = [norm_problem(5, Recipe("integers", seed)) for seed in range(3)]
    before = COUNTER.launches
    same_judgement(kernel_named("l2_norm.atomic"), problems)
    assert COUNTER.launches - before == 6


def test_one_bad_row_fails_its_own_problem_alone() -> None:
    def drops_nan(x: torch.Tensor) -> torch.Tensor:
        return torch.nan_to_num(torch.softmax(x, dim=-1))

    kernel = softmax_like(drops_nan)
    found = launch(kernel, MANY)
    wrong = [
        bool(judge(kernel, p, f, device.current()).wrong.any())
        for p, f in zip(MANY, found, strict=True)
    ]
    assert wrong == [False, False, True, False, True]


def test_no_problems() -> None:
    assert launch(kernel_named("softmax.one_tile"), []) == []


# What the kernel sees.


def test_the_kernel_gets_the_operands_as_described() -> None:
    seen: dict[str, Any] = {}

    def norm(
        x: torch.Tensor,
        weight: torch.Tensor | None = None,
        residual: torch.Tensor | None = None,
        eps: float = 0.0,
    ) -> torch.Tensor:
        seen.update(x=x, weight=weight, residual=residual, eps=eps)
        return x.clone()

    kernel = adopt(norm, operation="rms_norm")
    operands: dict[str, Data] = {
        name: Recipe("integers", 3) for name in ("x", "weight", "residual")
    }
    one(
        kernel,
        build(Case("rms_norm", "float32", 2, 5, operands, {"eps": 0.5}, Layout(3, 1))),
    )
    assert seen["eps"] == 0.5
    assert (tuple(seen["x"].shape), seen["x"].stride()) == ((2, 5), (8, 1))
    assert (tuple(seen["residual"].shape), seen["residual"].stride()) == ((2, 5), (8, 1))
    assert (tuple(seen["weight"].shape), seen["weight"].stride()) == ((5,), (1,))
    assert seen["x"].device.type == device.torch_device()
    assert seen["x"].data_ptr() % 16 == 4, "the offset does not break the alignment"


def test_a_whole_array_is_a_vector() -> None:
    seen: list[tuple[int, ...]] = []

    def norm(x: torch.Tensor) -> torch.Tensor:
        seen.append(tuple(x.shape))
        return x.sum()

    one(norm_like(norm), norm_problem(7, Recipe("ones")))
    assert seen == [(7,)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_bits_go_in_and_out_unchanged(dtype: str) -> None:
    specials = (Special("nan", 0, 0), Special("-0", 1, 1), Special("smallest_subnormal", 2, 2))
    problem = softmax_problem(3, 4, Recipe("normal", 1, 0, specials), dtype)
    found = one(softmax_like(lambda x: x.clone()), problem)
    assert found.bits is not None and (found.bits == problem.x.bits).all()
    assert (as_torch(problem.x).float().numpy() == problem.x.values)[1:].all()


def test_configurations_come_from_the_problem_or_the_kernel() -> None:
    kernel = kernel_named("softmax.one_tile")
    problem = softmax_problem(2, 9, Recipe("ones"))
    assert config_of(kernel, problem) == kernel.default_config(2, 9, "float32")
    chosen = {"BLOCK_M": 1, "BLOCK_N": 32, "num_warps": 1}
    assert config_of(kernel, problem.with_launch(chosen)) == chosen


# What comes back.

RETURNS: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "nothing": (lambda x: None, "returned NoneType, expected a tensor"),
    "list": (lambda x: x.tolist(), "returned list, expected a tensor"),
    "tuple": (lambda x: (x, x), "returned tuple, expected a tensor"),
    "numpy": (lambda x: x.cpu().numpy(), "returned ndarray, expected a tensor"),
    "whole numbers": (lambda x: x.int(), "returned dtype int32, expected a float"),
    "complex": (lambda x: x.to(torch.complex64), "returned dtype complex64, expected a float"),
    "wider": (lambda x: x.double(), "returned dtype float64, expected float32"),
    "narrower": (lambda x: x.half(), "returned dtype float16, expected float32"),
    "meta": (lambda x: x.to("meta"), "returned a tensor on meta, expected"),
    "transposed": (lambda x: x.T.contiguous(), "returned shape (5, 2), expected (2, 5)"),
    "flat": (lambda x: x.reshape(-1), "returned shape (10,), expected (2, 5)"),
    "one axis more": (lambda x: x[None], "returned shape (1, 2, 5), expected (2, 5)"),
    "one row less": (lambda x: x[:1], "returned shape (1, 5), expected (2, 5)"),
    "sparse": (lambda x: x.to_sparse(), "sparse"),
}


@pytest.mark.parametrize("name", RETURNS)
def test_wrong_returns_are_reported(name: str) -> None:
    function, text = RETURNS[name]
    found = one(softmax_like(function), softmax_problem(2, 5, Recipe("normal")))
    assert found.bits is None
    assert found.error is not None and text in found.error, found.error
    assert "\n" not in found.error


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_scalar_may_have_axes(shape: tuple[int, ...]) -> None:
    kernel = norm_like(lambda x: x.sum().reshape(shape))
    assert one(kernel, norm_problem(3, Recipe("ones"))).values.tolist() == [[3.0]]


def test_a_vector_is_no_scalar() -> None:
    found = one(norm_like(lambda x: x), norm_problem(3, Recipe("ones")))
    assert found.error == "returned shape (3,), expected a scalar"


def test_strided_and_differentiable_outputs_are_read() -> None:
    def strided(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(x.shape[::-1], dtype=x.dtype, device=x.device).T
        out += x
        return out.requires_grad_()

    problem = softmax_problem(2, 5, Recipe("integers", 1))
    assert (one(softmax_like(strided), problem).values == problem.x.values).all()


class Odd(BaseException):
    """Not an Exception."""


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RuntimeError("no luck"), "raised RuntimeError: no luck"),
        (ValueError("one\ntwo\n   three"), "raised ValueError: one two three"),
        (AssertionError(), "raised AssertionError: "),
        (MemoryError(), "raised MemoryError: "),
        (KeyError("x"), "raised KeyError: 'x'"),
        (SystemExit(5), "raised SystemExit: 5"),
    ],
    ids=lambda e: type(e).__name__ if isinstance(e, BaseException) else "",
)
def test_raising_is_reported(error: BaseException, text: str) -> None:
    def raises(x: torch.Tensor) -> torch.Tensor:
        raise error

    found = one(softmax_like(raises), softmax_problem(2, 5, Recipe("normal")))
    assert (found.bits, found.error) == (None, text)


def test_what_a_kernel_prints_is_kept_off_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    def prints(x: torch.Tensor) -> torch.Tensor:
        print("hello")
        return x.clone()

    one(softmax_like(prints), softmax_problem(1, 3, Recipe("ones")))
    assert capsys.readouterr().out == "", "it would stand between the JSON of --json"


def test_a_long_message_is_cut() -> None:
    def raises(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("word " * 10_000)

    found = one(softmax_like(raises), softmax_problem(2, 5, Recipe("normal")))
    assert found.error is not None and len(found.error) < 400


@pytest.mark.parametrize("error", [KeyboardInterrupt, Odd])
def test_an_interrupt_goes_through(error: type[BaseException]) -> None:
    def raises(x: torch.Tensor) -> torch.Tensor:
        raise error

    with pytest.raises(error):
        one(softmax_like(raises), softmax_problem(2, 5, Recipe("normal")))


def test_a_wrong_signature_is_reported() -> None:
    kernel = replace(softmax_like(lambda x: x), configs=lambda m, n, dtype: [{"BLOCK": 4}])
    found = one(kernel, softmax_problem(2, 5, Recipe("normal")))
    assert found.error is not None and found.error.startswith("raised TypeError: "), found.error


def test_warnings_of_the_kernel_end_no_launch() -> None:
    """pytest turns warnings into errors here; NaN and overflow are what is looked for."""

    def warns(x: torch.Tensor) -> torch.Tensor:
        np.array([1e300]) * np.array([1e300])
        return x.clone()

    assert one(softmax_like(warns), softmax_problem(1, 3, Recipe("ones"))).error is None


# Damage.


def past_the_end(x: torch.Tensor, count: int = 1) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    out.copy_(x)
    torch.as_strided(out, (count,), (1,), out.storage_offset() + out.numel()).fill_(0.0)
    return out


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("poison", ["nan", "huge"])
def test_a_write_past_the_output_is_damage(dtype: str, poison: str) -> None:
    found = one(softmax_like(past_the_end), softmax_problem(2, 5, Recipe("ones"), dtype), poison)
    (line,) = found.damage
    assert line.startswith("wrote outside output or scratch memory of shape (2, 5): "), line
    assert line.endswith(": 1 elements, up to 1 after the last"), line
    assert found.bits is not None, "there is still an output to look at"


def test_a_write_to_the_input_is_damage() -> None:
    found = one(softmax_like(lambda x: x.mul_(2.0)), softmax_problem(2, 5, Recipe("ones")))
    assert found.damage == ("changed 10 elements of the operand x, first at offset 0",)


def test_damage_is_told_beside_a_wrong_return() -> None:
    def both(x: torch.Tensor) -> None:
        x.zero_()

    found = one(softmax_like(both), softmax_problem(2, 5, Recipe("ones")))
    assert found.error == "returned NoneType, expected a tensor"
    assert len(found.damage) == 1


def test_damage_of_a_stacked_launch_is_told_to_all_of_it() -> None:
    found = launch(softmax_like(past_the_end), [p for p in MANY if p.rows])
    assert len(found) == 4 and all(f.damage for f in found), found


def test_what_was_not_written_is_marked() -> None:
    def half(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        out[:, ::2] = x[:, ::2]
        return out

    for poison in ("nan", "huge"):
        for name, fmt in FORMATS.items():
            if name == "float64":
                continue
            found = one(softmax_like(half), softmax_problem(2, 5, Recipe("ones"), name), poison)
            assert found.poisoned.tolist() == [[False, True, False, True, False]] * 2, (
                f"{poison} {fmt.name}: {found.poisoned}"
            )


def test_memory_of_other_origin_is_not_judged_for_poison() -> None:
    assert (
        one(softmax_like(lambda x: x + 0.0), softmax_problem(1, 3, Recipe("ones"))).poisoned is None
    )


# Claims.


def test_what_a_kernel_does_not_claim() -> None:
    kernel = replace(softmax_like(lambda x: x), dtypes=("float32",), max_n=4)
    assert supports(kernel, softmax_problem(2, 4, Recipe("ones"))) is None
    assert supports(kernel, softmax_problem(2, 5, Recipe("ones"))) is not None
    assert supports(kernel, softmax_problem(2, 4, Recipe("ones"), "float16")) is not None


def test_operands_and_parameters_that_a_kernel_does_not_take() -> None:
    kernel = adopt(lambda x: x, operation="rms_norm")

    def problem(eps: float = 1e-6, **operands: Data) -> Problem:
        case = Case("rms_norm", "float32", 2, 3, {"x": Recipe("ones"), **operands}, {"eps": eps})
        return build(case)

    assert supports(kernel, problem()) is None, "the default of eps is no demand"
    assert str(supports(kernel, problem(eps=1.0))).endswith("takes no eps")
    assert str(supports(kernel, problem(weight=Recipe("ones")))).endswith("takes no weight")
    assert str(supports(kernel, problem(residual=Recipe("ones")))).endswith("takes no residual")
