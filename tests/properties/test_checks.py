# SPDX-License-Identifier: Apache-2.0
"""Checks: each catches a kernel that is wrong in its way, none accuses one that is right.

The kernels are torch functions, so that what is tested here is the checks and nothing else. A check
without a pair in `PAIRS` fails the coverage test.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from assay.kernels.record import Kernel
from assay.kernels.target import adopt
from assay.oracles.operation import operation_named
from assay.properties.case import Case, Data, Layout, Literal, Recipe, Special, build
from assay.properties.checks import check_named, checks, checks_for, run_check
from assay.properties.search import investigate
from assay.properties.values import value_text

Function = Callable[..., Any]


# Right kernels, as torch computes them in float32.


def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    out.copy_(torch.softmax(x.float(), dim=-1))
    return out


def l2_norm(x: torch.Tensor) -> torch.Tensor:
    # Not torch.linalg.vector_norm: how that adds is not ours to claim.
    return torch.sqrt(torch.sum(x.float() * x.float())).to(x.dtype)


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    eps: float = 1e-6,
) -> torch.Tensor:
    h = x.float() if residual is None else x.float() + residual.float()
    out = h * torch.rsqrt((h * h).sum(dim=-1, keepdim=True) / max(1, x.shape[-1]) + eps)
    return (out if weight is None else out * weight.float()).to(x.dtype)


def sum_(x: torch.Tensor) -> torch.Tensor:
    return x.float().sum().to(x.dtype)


def mean(x: torch.Tensor) -> torch.Tensor:
    return (x.float().sum() / x.numel()).to(x.dtype)


def l1_norm(x: torch.Tensor) -> torch.Tensor:
    return x.float().abs().sum().to(x.dtype)


def count_nonzero(x: torch.Tensor) -> torch.Tensor:
    return (x != 0.0).sum()


def logsumexp(x: torch.Tensor) -> torch.Tensor:
    if x.numel() == 0:
        return x.new_full((), -torch.inf)
    top = x.float().amax()
    top = torch.where(top.isinf(), 0.0, top)
    return (torch.exp(x.float() - top).sum().log() + top).to(x.dtype)


def row_sum(x: torch.Tensor) -> torch.Tensor:
    return x.float().sum(dim=-1).to(x.dtype)


def row_mean(x: torch.Tensor) -> torch.Tensor:
    return (x.float().sum(dim=-1) / x.shape[-1]).to(x.dtype)


def row_max(x: torch.Tensor) -> torch.Tensor:
    return x.amax(dim=-1) if x.shape[-1] else x.new_full(x.shape[:-1], -torch.inf)


def row_min(x: torch.Tensor) -> torch.Tensor:
    return x.amin(dim=-1) if x.shape[-1] else x.new_full(x.shape[:-1], torch.inf)


def row_argmax(x: torch.Tensor) -> torch.Tensor:
    # Not torch.argmax, which takes any of equal elements.
    if x.shape[-1] == 0:
        return x.new_zeros(x.shape[:-1], dtype=torch.int64)
    top = x.amax(dim=-1, keepdim=True)
    found = torch.where(top.isnan(), x.isnan(), x == top)
    columns = torch.arange(x.shape[-1], device=x.device)
    return torch.where(found, columns, x.shape[-1]).amin(dim=-1)


def mean_variance(x: torch.Tensor, correction: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    h, n = x.float(), x.shape[-1]
    m = h.sum(dim=-1) / n
    squares = ((h - m[..., None]) ** 2).sum(dim=-1)
    variance = squares / (n - correction) if n > correction else torch.full_like(m, torch.nan)
    return m.to(x.dtype), variance.to(x.dtype)


def log_softmax(x: torch.Tensor) -> torch.Tensor:
    if x.numel() == 0:
        return torch.empty_like(x)
    t = x.float() - x.float().amax(dim=-1, keepdim=True)
    return (t - torch.exp(t).sum(dim=-1, keepdim=True).log()).to(x.dtype)


def min_max(x: torch.Tensor) -> torch.Tensor:
    if x.numel() == 0:
        return torch.empty_like(x)
    h = x.float()
    lo, hi = h.amin(dim=-1, keepdim=True), h.amax(dim=-1, keepdim=True)
    return ((h - lo) / (hi - lo)).to(x.dtype)


RIGHT: dict[str, Function] = {
    "count_nonzero": count_nonzero,
    "l1_norm": l1_norm,
    "l2_norm": l2_norm,
    "log_softmax": log_softmax,
    "logsumexp": logsumexp,
    "mean": mean,
    "mean_variance": mean_variance,
    "min_max": min_max,
    "rms_norm": rms_norm,
    "row_argmax": row_argmax,
    "row_max": row_max,
    "row_mean": row_mean,
    "row_min": row_min,
    "row_sum": row_sum,
    "softmax": softmax,
    "sum": sum_,
}


def kernel_of(function: Function, operation: str) -> Kernel:
    has_range = any(p.name == "range" for p in operation_named(operation).policies)
    return adopt(function, operation=operation, policies={"range": "naive"} if has_range else {})


def tiled(function: Function, operation: str) -> Kernel:
    """With two launch configurations, which the function sees as BLOCK."""

    @functools.wraps(function)
    def with_block(x: torch.Tensor, *, BLOCK: int) -> torch.Tensor:
        return function(x, BLOCK)

    return replace(
        kernel_of(with_block, operation), configs=lambda m, n, dtype: [{"BLOCK": 8}, {"BLOCK": 2}]
    )


# Cases.


def rows(*values: tuple[float, ...]) -> Literal:
    return Literal(tuple(tuple(value_text(v) for v in row) for row in values))


def case(
    operation: str,
    x: Data,
    shape: tuple[int, int],
    *,
    layout: Layout | None = None,
    **others: Data,
) -> Case:
    m, n = shape
    return Case(operation, "float32", m, n, {"x": x, **others}, layout=layout or Layout())


THREE = rows((0.0, 1.0, 2.0))
NORMAL = Recipe("normal", 3)
WITH_NAN = Recipe("normal", specials=(Special("nan", 1, 2),))
WITH_INF = Recipe("normal", specials=(Special("-inf", 0, 1),))


# Wrong kernels.


def times(factor: float, function: Function) -> Function:
    @functools.wraps(function)
    def scaled(*operands: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        return function(*operands, **named) * factor

    scaled.__name__ = f"times_{factor:.4g}"
    return scaled


def beside(tensor: torch.Tensor, place: int) -> torch.Tensor:
    """The element at `place` from the tensor's first one, wherever that lies."""
    return torch.as_strided(tensor, (1,), (1,), tensor.storage_offset() + place)


def writes_past_the_end(x: torch.Tensor) -> torch.Tensor:
    out = softmax(x)
    beside(out, out.numel()).fill_(0.0)
    return out


def writes_before_the_start(x: torch.Tensor) -> torch.Tensor:
    out = softmax(x)
    beside(out, -1).fill_(0.0)
    return out


def writes_between_rows(x: torch.Tensor) -> torch.Tensor:
    out = softmax(x)
    beside(x, x.shape[1]).fill_(0.0)
    return out


def changes_its_input(x: torch.Tensor) -> torch.Tensor:
    out = softmax(x)
    x.sub_(1.0)
    return out


def changes_its_weight(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    out = rms_norm(x, weight)
    weight.zero_()
    return out


def leaves_the_last(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    out[:, :-1] = softmax(x)[:, :-1]
    return out


def writes_nothing(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def reads_past_the_end(x: torch.Tensor) -> torch.Tensor:
    return softmax(x) + 0.0 * beside(x, x.numel())


def maximum_drops_nan_past_the_end(x: torch.Tensor) -> torch.Tensor:
    # Only the finite poison shows this one: fmax drops NaN.
    top = torch.fmax(x.max(dim=-1, keepdim=True).values, beside(x, x.numel()))
    p = torch.exp(x - top)
    return p / p.sum(dim=-1, keepdim=True)


def adds_to_fresh_memory(x: torch.Tensor) -> torch.Tensor:
    scratch = torch.empty(1, dtype=torch.float32, device=x.device)
    scratch += torch.sum(x.float() * x.float())
    return torch.sqrt(scratch[0]).to(x.dtype)


def never_zeroes(x: torch.Tensor, kept: list[torch.Tensor] = []) -> torch.Tensor:  # noqa: B006
    """An accumulator that lives on: the second call adds to the first."""
    kept.append(torch.sum(x.float() * x.float()))
    return torch.sqrt(sum(kept, torch.zeros_like(kept[0]))).to(x.dtype)


def remembers_the_largest(x: torch.Tensor, kept: list[int] = []) -> torch.Tensor:  # noqa: B006
    """Repeats well until an array larger than the first has come by."""
    kept.append(x.numel())
    return l2_norm(x) * (2.0 if max(kept) > kept[0] else 1.0)


def nan_to_zero(x: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(softmax(x))


def infinity_is_dropped(x: torch.Tensor) -> torch.Tensor:
    return l2_norm(torch.where(torch.isinf(x), 0.0, x))


def half_squares(x: torch.Tensor) -> torch.Tensor:
    half = x.to(torch.bfloat16)
    return torch.sqrt(torch.sum((half * half).float())).to(x.dtype)


def first_block(x: torch.Tensor, block: int) -> torch.Tensor:
    """Reduces as much as fits one block and leaves the rest out."""
    p = torch.exp(x - x.max(dim=-1, keepdim=True).values)
    return p / p[:, :block].sum(dim=-1, keepdim=True)


def all_blocks(x: torch.Tensor, block: int) -> torch.Tensor:
    p = torch.exp(x - x.max(dim=-1, keepdim=True).values)
    parts = [part.sum(dim=-1, keepdim=True) for part in p.split(block, dim=-1)]
    return p / sum(parts[1:], parts[0])


def smallest_first(x: torch.Tensor) -> torch.Tensor:
    return softmax(-x)


def positive_part(x: torch.Tensor) -> torch.Tensor:
    return l2_norm(torch.relu(x))


def absolute_values(x: torch.Tensor) -> torch.Tensor:
    return rms_norm(x.abs())


def never_below_zero(x: torch.Tensor) -> torch.Tensor:
    return softmax(x.clamp(min=0.0))


def counts_columns(x: torch.Tensor) -> torch.Tensor:
    return l2_norm(x) * x.numel()


def masked_counts_as_zero(x: torch.Tensor) -> torch.Tensor:
    return softmax(torch.nan_to_num(x, neginf=0.0))


def first_element_twice(x: torch.Tensor) -> torch.Tensor:
    return l2_norm(torch.cat([x, x[:1]]))


def first_column_decides(x: torch.Tensor) -> torch.Tensor:
    h = x.float()
    return h * torch.rsqrt(h[:, :1] ** 2 + 1e-6)


def adds_one(x: torch.Tensor) -> torch.Tensor:
    return l2_norm(x) + 1.0


def weight_plus_one(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return rms_norm(x, weight + 1.0)


def no_residual(x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
    return rms_norm(x)


def residual_afterwards(x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
    return rms_norm(x) if residual is None else rms_norm(x) + residual


def after(change: Callable[[torch.Tensor], torch.Tensor], operation: str, name: str) -> Function:
    """The right kernel of something else: of a changed x."""
    right = RIGHT[operation]

    @functools.wraps(right)
    def wrong(x: torch.Tensor, **named: Any) -> Any:
        return right(change(x), **named)

    wrong.__name__ = name
    return wrong


def plus_columns(operation: str) -> Function:
    right = RIGHT[operation]

    def plus_columns(x: torch.Tensor) -> torch.Tensor:
        return right(x) + x.shape[-1]

    return plus_columns


def plus_one(operation: str) -> Function:
    right = RIGHT[operation]

    def plus_one(x: torch.Tensor) -> torch.Tensor:
        return right(x) + 1.0

    return plus_one


def negative_variance(x: torch.Tensor, correction: float = 0.0) -> tuple[torch.Tensor, ...]:
    m, variance = mean_variance(x, correction)
    return m, -variance


@dataclass(frozen=True)
class Pair:
    """A wrong kernel, the case on which the check must catch it, and a right one to compare."""

    check: str
    operation: str
    wrong: Function
    case: Case
    # Where the wrong one needs to be made into a kernel in another way, so does the right one.
    make: Callable[[Function, str], Kernel] = kernel_of
    right: Function | None = None

    @property
    def kernels(self) -> tuple[Kernel, Kernel]:
        right = self.right or RIGHT[self.operation]
        return self.make(self.wrong, self.operation), self.make(right, self.operation)

    def __str__(self) -> str:
        return f"{self.check}-{self.operation}-{self.wrong.__name__}"


def whole(wrong: Function, check: str, x: Data, n: int) -> Pair:
    return Pair(check, "l2_norm", wrong, case("l2_norm", x, (1, n)))


def rowwise(wrong: Function, check: str, x: Data, shape: tuple[int, int]) -> Pair:
    return Pair(check, "softmax", wrong, case("softmax", x, shape))


def of(wrong: Function, check: str, operation: str, x: Data, shape: tuple[int, int]) -> Pair:
    shape = (1, shape[1]) if operation_named(operation).whole else shape
    return Pair(check, operation, wrong, case(operation, x, shape))


# Relations that hold for many operations, each broken in one way for all of them.
RELATED = [
    *(
        of(plus_one(operation), "scaling", operation, NORMAL, (2, 5))
        for operation in ("l1_norm", "mean", "row_max", "row_mean", "row_min", "row_sum", "sum")
    ),
    *(
        of(after(torch.relu, operation, "positive_part"), "sign_flip", operation, NORMAL, (2, 5))
        for operation in (
            "count_nonzero", "l1_norm", "mean", "mean_variance", "row_mean", "row_sum", "sum",
        )
    ),
    *(
        of(plus_columns(operation), "zero_padding", operation, NORMAL, (2, 5))
        for operation in (
            "count_nonzero", "l1_norm", "log_softmax", "logsumexp", "row_argmax", "row_max",
            "row_min", "row_sum", "sum",
        )
    ),
    *(
        of(after(torch.relu, operation, "never_below_zero"), "shift", operation, THREE, (1, 3))
        for operation in ("log_softmax", "logsumexp", "min_max")
    ),
    *(
        of(after(torch.neg, operation, "smallest_first"), "order", operation, THREE, (1, 3))
        for operation in ("log_softmax", "min_max")
    ),
    of(times(-1.0, min_max), "range", "min_max", NORMAL, (2, 5)),
    of(times(1.0 + 2.0**-10, min_max), "range", "min_max", NORMAL, (2, 5)),
    of(negative_variance, "range", "mean_variance", NORMAL, (2, 5)),
]  # fmt: skip

PAIRS = [
    *RELATED,
    rowwise(times(1.0 + 2.0**-10, softmax), "accuracy", NORMAL, (2, 5)),
    # The smallest arrays there are: the bound must not be infinite where the exact result is 0.
    whole(adds_one, "accuracy", rows((0.0, -0.0, 0.0)), 3),
    whole(adds_one, "accuracy", NORMAL, 0),
    whole(half_squares, "accuracy", rows((1.0 + 2.0**-7,) * 3), 3),
    Pair(
        "accuracy",
        "rms_norm",
        times(1.0 - 2.0**-10, rms_norm),
        case("rms_norm", NORMAL, (2, 5), weight=Recipe("uniform")),
    ),
    rowwise(nan_to_zero, "special_values", WITH_NAN, (2, 3)),
    whole(infinity_is_dropped, "special_values", WITH_INF, 3),
    rowwise(times(-1.0, softmax), "range", NORMAL, (2, 5)),
    rowwise(times(1.0 + 2.0**-10, softmax), "range", rows((0.0, -200.0)), (1, 2)),
    rowwise(times(1.0 - 2.0**-10, softmax), "row_sum", NORMAL, (2, 5)),
    rowwise(smallest_first, "order", THREE, (1, 3)),
    Pair(
        "launch_configurations",
        "softmax",
        first_block,
        case("softmax", NORMAL, (2, 5)),
        tiled,
        all_blocks,
    ),
    whole(adds_one, "scaling", NORMAL, 5),
    Pair(
        "scaling",
        "rms_norm",
        weight_plus_one,
        case("rms_norm", NORMAL, (2, 5), weight=Recipe("uniform")),
    ),
    whole(positive_part, "sign_flip", NORMAL, 5),
    Pair("sign_flip", "rms_norm", absolute_values, case("rms_norm", NORMAL, (2, 5))),
    whole(counts_columns, "zero_padding", NORMAL, 5),
    rowwise(masked_counts_as_zero, "zero_padding", NORMAL, (2, 5)),
    whole(first_element_twice, "permutation", Recipe("integers", 1), 9),
    Pair("permutation", "rms_norm", first_column_decides, case("rms_norm", NORMAL, (2, 5))),
    rowwise(never_below_zero, "shift", THREE, (1, 3)),
    Pair(
        "residual",
        "rms_norm",
        no_residual,
        case("rms_norm", NORMAL, (2, 5), residual=Recipe("normal", 8)),
    ),
    Pair(
        "residual",
        "rms_norm",
        residual_afterwards,
        case("rms_norm", NORMAL, (2, 5), residual=Recipe("normal", 8)),
    ),
    rowwise(writes_past_the_end, "canaries", NORMAL, (2, 5)),
    rowwise(writes_before_the_start, "canaries", NORMAL, (2, 5)),
    rowwise(changes_its_input, "canaries", NORMAL, (2, 5)),
    Pair(
        "canaries",
        "softmax",
        writes_between_rows,
        case("softmax", NORMAL, (2, 5), layout=Layout(row_gap=1)),
    ),
    Pair(
        "canaries",
        "rms_norm",
        changes_its_weight,
        case("rms_norm", NORMAL, (2, 5), weight=Recipe("uniform")),
    ),
    rowwise(leaves_the_last, "written", NORMAL, (2, 5)),
    rowwise(writes_nothing, "written", NORMAL, (2, 5)),
    rowwise(reads_past_the_end, "poison", NORMAL, (2, 5)),
    rowwise(maximum_drops_nan_past_the_end, "poison", NORMAL, (2, 5)),
    whole(adds_to_fresh_memory, "poison", NORMAL, 5),
    whole(never_zeroes, "repeat", NORMAL, 5),
    whole(remembers_the_largest, "repeat", NORMAL, 5),
]


def test_every_check_has_a_wrong_kernel_for_each_operation_it_is_made_for() -> None:
    known = {p.check for p in PAIRS}
    assert known == set(checks()), (
        f"checks without a wrong kernel here: {sorted(set(checks()) - known)}; "
        f"pairs for checks that are not there: {sorted(known - set(checks()))}"
    )
    for check in checks().values():
        tried = {p.operation for p in PAIRS if p.check == check.name}
        missing = set(check.operations or ()) - tried
        assert not missing, f"{check.name} is made for {sorted(missing)} and never tried there"


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_check_catches_the_wrong_kernel_and_passes_the_right_one(pair: Pair) -> None:
    wrong, right = pair.kernels
    problem = build(pair.case)
    (caught,) = run_check(pair.check, wrong, [problem])
    assert caught.failed, f"{pair.check} says {caught.status} ({caught.message}) of {pair}"
    assert caught.message, f"{pair.check} fails {pair} and does not say why"
    assert "\n" not in caught.message, f"more than one line: {caught.message!r}"
    (passed,) = run_check(pair.check, right, [problem])
    assert passed.status == "pass", (
        f"{pair.check} says {passed.status} of the right kernel on {pair.case}: {passed.message}"
    )


@pytest.mark.parametrize("operation", sorted(RIGHT))
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_no_check_accuses_a_right_kernel(operation: str, dtype: str) -> None:
    kernel = kernel_of(RIGHT[operation], operation)
    # A torch function has one configuration; an index moves with its element; no probe has a sum
    # that float16 holds.
    quiet = {"launch_configurations"}
    quiet |= {"permutation"} if operation == "row_argmax" else set()
    quiet |= {"residual"} if dtype != "float32" else set()
    for check in checks_for(operation):
        tally = investigate(kernel, check.name, dtype, examples=3)
        assert tally.failure is None, (
            f"{check.name} accuses torch on {tally.failure[0]} (probe {tally.probe}): "
            f"{tally.failure[1].message}"
        )
        assert tally.passed > 0 or check.name in quiet, f"{check.name} is silent: {tally.reasons}"


def test_a_kernel_that_raises_fails_every_check() -> None:
    def raises(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no such luck")

    problem = build(case("softmax", NORMAL, (2, 5)))
    for check in checks_for("softmax"):
        (verdict,) = run_check(check.name, kernel_of(raises, "softmax"), [problem])
        if check.name == "launch_configurations":
            assert verdict.status == "skip", f"one configuration: {verdict}"
            continue
        assert verdict.failed, f"{check.name} says {verdict.status} of a kernel that raises"
        assert "RuntimeError: no such luck" in verdict.message, verdict.message


def test_a_check_skips_what_the_kernel_does_not_claim() -> None:
    narrow = replace(kernel_of(softmax, "softmax"), dtypes=("float16",), max_n=4)
    problems = [
        build(case("softmax", NORMAL, (1, 3))),
        build(Case("softmax", "float16", 1, 5, {"x": NORMAL})),
        build(Case("softmax", "float16", 1, 4, {"x": NORMAL})),
    ]
    found = run_check("accuracy", narrow, problems)
    assert [v.status for v in found] == ["skip", "skip", "pass"], [v.message for v in found]
    assert "claims no float32" in found[0].message, found[0].message
    assert "rows up to 4, N is 5" in found[1].message, found[1].message


def test_a_check_skips_an_operation_that_it_says_nothing_about() -> None:
    problem = build(case("l2_norm", NORMAL, (1, 3)))
    (verdict,) = run_check("row_sum", kernel_of(l2_norm, "l2_norm"), [problem])
    assert (verdict.status, verdict.message) == ("skip", "row_sum says nothing about l2_norm")


def test_verdicts_come_in_the_order_of_the_problems() -> None:
    problems = [
        build(case("softmax", data, (2, 3))) for data in (NORMAL, WITH_NAN, NORMAL, WITH_NAN)
    ]
    found = run_check("special_values", kernel_of(nan_to_zero, "softmax"), problems)
    assert [v.status for v in found] == ["skip", "fail", "skip", "fail"], [v.message for v in found]


def test_bits_are_compared_where_determinism_is_claimed() -> None:
    """A difference within the bound passes a kernel that claims nothing, and no other."""

    def last_bit_varies(x: torch.Tensor, calls: list[int] = []) -> torch.Tensor:  # noqa: B006
        calls.append(1)
        out = l2_norm(x)
        return torch.nextafter(out, out + len(calls) % 2)

    problem = build(case("l2_norm", Recipe("normal"), (1, 33)))
    loose = kernel_of(last_bit_varies, "l2_norm")
    for kernel, status in ((loose, "pass"), (replace(loose, deterministic=True), "fail")):
        (verdict,) = run_check("repeat", kernel, [problem])
        assert verdict.status == status, (
            f"deterministic={kernel.deterministic}: {verdict.status}, {verdict.message}"
        )


def test_a_failed_accuracy_names_the_worst_element() -> None:
    def third_is_off(x: torch.Tensor) -> torch.Tensor:
        out = softmax(x)
        out[1, 2] *= 2.0
        return out

    problem = build(case("softmax", NORMAL, (2, 5)))
    (verdict,) = run_check("accuracy", kernel_of(third_is_off, "softmax"), [problem])
    assert (verdict.details["row"], verdict.details["column"]) == (1, 2), verdict.details
    for word in ("[1, 2]", "ulp", "of the bound", "0x"):
        assert word in verdict.message, f"{word!r} is not in {verdict.message!r}"
    assert verdict.share is not None and verdict.share > 1.0, verdict.share


def test_unknown_check_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown check 'speed': expected one of .*accuracy"):
        check_named("speed")
