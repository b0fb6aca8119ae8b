# SPDX-License-Identifier: Apache-2.0
"""Launchers refuse what they cannot run, in words; strided, 3-D, 1-D and empty input they take."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from assay.kernels import device
from assay.kernels.arguments import MAX_ROW, MAX_TILE
from assay.kernels.count_nonzero import count_nonzero
from assay.kernels.l1_norm import l1_norm
from assay.kernels.l2_norm import l2_norm
from assay.kernels.log_softmax import log_softmax
from assay.kernels.logsumexp import logsumexp
from assay.kernels.matmul import matmul
from assay.kernels.mean import mean
from assay.kernels.mean_variance import mean_variance
from assay.kernels.min_max import min_max
from assay.kernels.record import kernels
from assay.kernels.rms_norm import rms_norm
from assay.kernels.row_extremes import row_argmax, row_max, row_min
from assay.kernels.row_sum import row_mean, row_sum
from assay.kernels.softmax import softmax
from assay.kernels.sum import sum as array_sum
from assay.oracles.operation import operation_named

# The last test is about these; the others are about results.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")

WHERE = device.torch_device()


def times_its_transpose(x: Any) -> torch.Tensor:
    matrix_ = isinstance(x, torch.Tensor) and x.ndim == 2
    return matmul(x, x.T if matrix_ else torch.ones(4, 4, device=WHERE))


def same(a: Any, b: Any) -> bool:
    """Equal in every element, NaN for NaN, of one result or several."""
    if isinstance(a, tuple):
        return all(same(x, y) for x, y in zip(a, b, strict=True))
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def at(out: Any, row: int, shape: torch.Size, *, elements: bool) -> Any:
    """What a result says of one row."""
    if isinstance(out, tuple):
        return tuple(at(o, row, shape, elements=elements) for o in out)
    return out.reshape(-1, shape[-1])[row] if elements else out.reshape(-1)[row]


LAUNCHERS: dict[str, Callable[..., Any]] = {
    "softmax": softmax,
    "l2_norm": l2_norm,
    "rms_norm": rms_norm,
    "sum": array_sum,
    "mean": mean,
    "l1_norm": l1_norm,
    "count_nonzero": count_nonzero,
    "logsumexp": logsumexp,
    "row_sum": row_sum,
    "row_mean": row_mean,
    "row_max": row_max,
    "row_min": row_min,
    "row_argmax": row_argmax,
    "mean_variance": mean_variance,
    "log_softmax": log_softmax,
    "min_max": min_max,
    "matmul": times_its_transpose,
}


def matrix(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Small whole numbers, no two rows alike."""
    count = torch.Size(shape).numel()
    return (torch.arange(count, device=WHERE) * 7 % 11 - 4).reshape(shape).to(dtype)


def test_every_operation_with_a_kernel_has_a_launcher_here() -> None:
    assert set(LAUNCHERS) == {k.operation for k in kernels().values()}


# What every launcher refuses.

X = [pytest.param(f, name, id=name) for name, f in LAUNCHERS.items()]


@pytest.mark.parametrize(("launcher", "name"), X)
@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.int32, torch.bool, torch.complex64, torch.float8_e4m3fn]
)
def test_other_dtypes(launcher: Callable[..., Any], name: str, dtype: torch.dtype) -> None:
    expected = str(dtype).removeprefix("torch.")
    with pytest.raises(
        TypeError, match=f"^{name}: x must be float32, float16 or bfloat16, got {expected}$"
    ):
        launcher(torch.zeros(3, 4, device=WHERE).to(dtype))


@pytest.mark.parametrize(("launcher", "name"), X)
@pytest.mark.parametrize(("value", "kind"), [([[1.0]], "list"), (1.0, "float"), (None, "NoneType")])
def test_no_tensor(launcher: Callable[..., Any], name: str, value: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=f"^{name}: x must be a torch tensor, got {kind}$"):
        launcher(value)


@pytest.mark.parametrize(("launcher", "name"), X)
def test_other_device(launcher: Callable[..., Any], name: str) -> None:
    with pytest.raises(
        ValueError, match=f"^{name}: x must be on a CUDA device, got meta; .*TRITON"
    ):
        launcher(torch.zeros(3, 4, device="meta"))


@pytest.mark.parametrize(("launcher", "name"), X)
def test_the_cpu_without_the_interpreter(
    launcher: Callable[..., Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    with pytest.raises(ValueError, match=f"^{name}: x must be on a CUDA device, got cpu; "):
        launcher(torch.zeros(3, 4))


ROWS = [p for p in X if not operation_named(p.id).whole and p.id != "matmul"]


@pytest.mark.parametrize(("launcher", "name"), ROWS)
def test_a_scalar_has_no_rows(launcher: Callable[..., Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: x must have at least one axis, got a scalar$"):
        launcher(torch.tensor(1.0, device=WHERE))


@pytest.mark.parametrize(("launcher", "name"), ROWS)
def test_rows_too_long(launcher: Callable[..., Any], name: str) -> None:
    long = torch.zeros(1, device=WHERE).expand(1, MAX_ROW + 1)
    with pytest.raises(
        ValueError, match=f"^{name}: a row must fit one tile of {MAX_ROW} elements, got N = 131073$"
    ):
        launcher(long)


@pytest.mark.parametrize(("launcher", "name"), ROWS)
@pytest.mark.parametrize("block", [0, -8, 3, 12])
def test_tiles_that_are_no_power_of_two(
    launcher: Callable[..., Any], name: str, block: int
) -> None:
    with pytest.raises(ValueError, match=f"^{name}: BLOCK_N must be a power of two, got {block}$"):
        launcher(matrix(2, 3), BLOCK_N=block)


@pytest.mark.parametrize(("launcher", "name"), ROWS)
def test_tiles_that_are_too_small(launcher: Callable[..., Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: BLOCK_N must be at least N = 9, got 8$"):
        launcher(matrix(2, 9), BLOCK_N=8)


# What one launcher refuses.


@pytest.mark.parametrize("block", [0, -1, 3, 1000])
def test_blocks_of_the_norm(block: int) -> None:
    with pytest.raises(ValueError, match=f"^l2_norm: BLOCK must be a power of two, got {block}$"):
        l2_norm(matrix(9), BLOCK=block)


def test_a_block_of_the_norm_larger_than_triton_takes() -> None:
    with pytest.raises(ValueError, match=rf"^l2_norm: .*{MAX_TILE}.*got {2 * MAX_TILE}"):
        l2_norm(matrix(9), BLOCK=2 * MAX_TILE)


@pytest.mark.parametrize("block", [0, 3])
def test_rows_of_a_tile_of_softmax(block: int) -> None:
    with pytest.raises(ValueError, match=f"^softmax: BLOCK_M must be a power of two, got {block}$"):
        softmax(matrix(2, 3), BLOCK_M=block)


def test_a_tile_of_softmax_larger_than_triton_takes() -> None:
    with pytest.raises(
        ValueError,
        match=rf"^softmax: a tile must have at most {MAX_TILE} elements, got "
        r"BLOCK_M x BLOCK_N = 1024 x 2048$",
    ):
        softmax(matrix(2, 3), BLOCK_M=1024, BLOCK_N=2048)


@pytest.mark.parametrize("value", ["", "none", "NaN", None, 0])
def test_policies_of_softmax(value: Any) -> None:
    with pytest.raises(
        ValueError, match=rf"^softmax: masked_row must be 'nan' or 'zero', got {value!r}$"
    ):
        softmax(matrix(2, 3), masked_row=value)


@pytest.mark.parametrize("value", ["", "start", None])
def test_casts_of_rms_norm(value: Any) -> None:
    with pytest.raises(
        ValueError, match=rf"^rms_norm: cast must be 'end' or 'before_weight', got {value!r}$"
    ):
        rms_norm(matrix(2, 3), cast=value)


@pytest.mark.parametrize("eps", [-1e-6, float("-inf"), float("nan")])
def test_eps_of_rms_norm(eps: float) -> None:
    with pytest.raises(ValueError, match=f"^rms_norm: eps must not be negative, got {eps}$"):
        rms_norm(matrix(2, 3), eps=eps)


@pytest.mark.parametrize("shape", [(4,), (1,), (1, 3), (2, 3), ()])
def test_shapes_of_the_weight(shape: tuple[int, ...]) -> None:
    weight = torch.ones(shape, device=WHERE)
    with pytest.raises(
        ValueError, match=r"^rms_norm: weight must have shape \(3,\), .*, got \("
    ) as e:
        rms_norm(matrix(2, 3), weight)
    assert str(tuple(shape)) in str(e.value), str(e.value)


@pytest.mark.parametrize("shape", [(3,), (3, 2), (2, 4), (1, 3), (1, 2, 3)])
def test_shapes_of_the_residual(shape: tuple[int, ...]) -> None:
    residual = torch.ones(shape, device=WHERE)
    with pytest.raises(
        ValueError, match=r"^rms_norm: residual must have x's shape \(2, 3\), got \("
    ) as error:
        rms_norm(matrix(2, 3), residual=residual)
    assert str(tuple(shape)) in str(error.value), str(error.value)


@pytest.mark.parametrize("operand", ["weight", "residual"])
def test_dtypes_and_devices_of_the_others(operand: str) -> None:
    good = torch.ones(3 if operand == "weight" else (2, 3), device=WHERE)
    with pytest.raises(TypeError, match=f"^rms_norm: {operand} must be float32, .*, got float64$"):
        rms_norm(matrix(2, 3), **{operand: good.double()})
    with pytest.raises(TypeError, match=f"^rms_norm: {operand} must be a torch tensor, got list$"):
        rms_norm(matrix(2, 3), **{operand: good.tolist()})
    with pytest.raises(
        ValueError, match=f"^rms_norm: {operand} must be on a CUDA device, got meta"
    ):
        rms_norm(matrix(2, 3), **{operand: good.to("meta")})


@pytest.mark.gpu
@pytest.mark.parametrize("operand", ["weight", "residual"])
def test_operands_on_two_devices(operand: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Only the interpreter takes tensors of the CPU at all.
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    other = torch.ones(3 if operand == "weight" else (2, 3))
    with pytest.raises(ValueError, match=f"^rms_norm: {operand} must be on x's device cuda"):
        rms_norm(matrix(2, 3), **{operand: other})


# What every launcher takes: whole numbers, so that equal rows give equal bits however they lie.

SHAPES = {
    "1-D": (lambda: matrix(7)),
    "one column": (lambda: matrix(5, 1)),
    "one row": (lambda: matrix(1, 33)),
    "3-D": (lambda: matrix(2, 3, 5)),
    "4-D": (lambda: matrix(2, 1, 3, 2)),
    "transposed": (lambda: matrix(5, 3).T),
    "every second column": (lambda: matrix(3, 10)[:, ::2]),
    "every second row": (lambda: matrix(6, 5)[::2]),
    "columns in the middle": (lambda: matrix(3, 9)[:, 2:7]),
    "vector with a stride": (lambda: matrix(20)[::3]),
    "one row many times": (lambda: matrix(1, 5).expand(4, 5)),
    "one value many times": (lambda: matrix(3, 1).expand(3, 6)),
    "axes in another order": (lambda: matrix(3, 4, 2).permute(1, 2, 0)),
    "axes that no view flattens": (lambda: matrix(4, 3, 6)[::2, :, ::2].transpose(0, 1)),
    "no rows": (lambda: matrix(0, 4)),
    "no columns": (lambda: matrix(3, 0)),
    "no elements": (lambda: matrix(0)),
    "nothing in 3-D": (lambda: matrix(2, 0, 3)),
}


# A product takes matrices only; tests of its own are those of every operation.
@pytest.mark.parametrize(("launcher", "name"), [p for p in X if p.id != "matmul"])
@pytest.mark.parametrize("shape", SHAPES)
def test_layouts(launcher: Callable[..., torch.Tensor], name: str, shape: str) -> None:
    x = SHAPES[shape]()
    before = x.clone()
    out = launcher(x)
    operation = operation_named(name)
    expected = x.shape[:-1] if not operation.elementwise else x.shape
    expected = torch.Size([]) if operation.whole else expected
    for part in out if isinstance(out, tuple) else (out,):
        assert part.shape == expected, f"{shape}: {tuple(part.shape)}"
        assert part.device == x.device
        assert part.dtype == (torch.int64 if operation.integer else x.dtype)
    plain = launcher(x.contiguous().clone())
    assert same(out, plain), f"{shape}: {out} strided, {plain} contiguous"
    assert torch.equal(x, before), f"{shape}: the input was changed"
    if operation.whole or not x.numel():
        return
    for i, row in enumerate(x.reshape(-1, x.shape[-1])):
        alone = launcher(row.contiguous().clone())
        found = at(plain, i, x.shape, elements=operation.elementwise)
        assert same(found, alone), f"{shape}: row {i} is {found}, alone {alone}"


def test_the_norm_of_nothing_is_zero() -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        out = l2_norm(torch.empty(0, dtype=dtype, device=WHERE))
        assert (out.item(), out.dtype) == (0.0, dtype)


def test_the_norm_of_a_scalar_is_its_absolute_value() -> None:
    assert l2_norm(torch.tensor(-3.0, device=WHERE)).item() == 3.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_operands_of_rms_norm_may_have_strides_and_dtypes_of_their_own(dtype: torch.dtype) -> None:
    x = matrix(3, 5)
    weight = matrix(10).to(dtype)[::2]
    residual = matrix(5, 3).T.to(dtype)
    out = rms_norm(x, weight, residual)
    plain = rms_norm(x, weight.float().contiguous(), residual.float().contiguous())
    assert torch.equal(out, plain), f"{out} strided, {plain} contiguous"


def test_policies_do_what_they_say() -> None:
    x = torch.full((2, 3), float("-inf"), device=WHERE)
    x[1] = 0.0
    assert softmax(x, masked_row="nan")[0].isnan().all()
    assert (softmax(x, masked_row="zero")[0] == 0.0).all()
    assert torch.equal(softmax(x, masked_row="nan")[1], softmax(x, masked_row="zero")[1])


@pytest.mark.parametrize(("launcher", "name"), X)
def test_inputs_that_need_gradients_run(launcher: Callable[..., torch.Tensor], name: str) -> None:
    x = matrix(2, 3).requires_grad_()
    assert same(launcher(x), launcher(x.detach())), name


@pytest.mark.interpreter
@pytest.mark.parametrize(("launcher", "name"), X)
def test_a_launch_on_the_interpreter_warns_of_nothing(
    launcher: Callable[..., torch.Tensor], name: str
) -> None:
    """Three rows leave a row of a tile of four empty: no invalid operation happens there."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        launcher(matrix(3, 5))
