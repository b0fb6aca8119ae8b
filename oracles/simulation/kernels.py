# SPDX-License-Identifier: Apache-2.0
"""The algorithms that the catalogue runs: each operation in the ways it is computed.

Each takes the operands as tensors of the accumulator's dtype and a `Machine`, and gives the results
ahead of the final cast, (rows, columns).
"""

from __future__ import annotations

from assay.oracles.formats import FP32, round_nearest
from assay.oracles.simulation.arithmetic import Tensor, truncated_to, ulp_of
from assay.oracles.simulation.catalogue import (
    Machine,
    Operands,
    SimulatedKernel,
    _first_larger,
    _larger,
    _smaller,
    filled,
    ones,
)
from assay.oracles.simulation.orders import State

_INFINITY = float("inf")


def _side_by_side(*columns: Tensor) -> Tensor:
    import torch

    return torch.stack(columns, dim=1)


def total(inputs: Operands, machine: Machine) -> Tensor:
    return machine.sum(inputs["x"])[:, None]


def total_of_magnitudes(inputs: Operands, machine: Machine) -> Tensor:
    return machine.sum(inputs["x"].abs())[:, None]


def mean(inputs: Operands, machine: Machine) -> Tensor:
    return _mean(inputs["x"], machine)[:, None]


def _mean(x: Tensor, machine: Machine) -> Tensor:
    s = machine.sum(x)
    return machine.primitives.divide(s, filled(s, x.shape[1]))


def mean_by_reciprocal(inputs: Operands, machine: Machine) -> Tensor:
    x = inputs["x"]
    s = machine.sum(x)
    return (s * machine.primitives.divide(ones(s), filled(s, x.shape[1])))[:, None]


def l2_norm(inputs: Operands, machine: Machine) -> Tensor:
    x = inputs["x"]
    return machine.primitives.host_sqrt(machine.sum_of_products(x, x))[:, None]


def scaled_l2_norm(inputs: Operands, machine: Machine) -> Tensor:
    """Every element is divided by the largest one, so that no square overflows or vanishes."""
    x = inputs["x"]
    scale = x.abs().amax(dim=1)
    shown = scale.where(scale > 0.0, scale + 1.0)[:, None]
    ratio = machine.primitives.divide(x, shown.expand_as(x))
    return (scale * machine.primitives.host_sqrt(machine.sum_of_products(ratio, ratio)))[:, None]


def logsumexp(inputs: Operands, machine: Machine) -> Tensor:
    m, s, _ = machine.exponentials(inputs["x"])
    return (m + machine.primitives.log(s))[:, None]


def logsumexp_one_by_one(inputs: Operands, machine: Machine) -> Tensor:
    m, s, _ = machine.one_by_one(inputs["x"])
    return (m + machine.primitives.log(s))[:, None]


def softmax(inputs: Operands, machine: Machine) -> Tensor:
    _, s, p = machine.exponentials(inputs["x"])
    return machine.primitives.divide(p, s[:, None].expand_as(p))


def softmax_one_by_one(inputs: Operands, machine: Machine) -> Tensor:
    _, s, p = machine.one_by_one(inputs["x"])
    return machine.primitives.divide(p, s[:, None].expand_as(p))


def log_softmax(inputs: Operands, machine: Machine) -> Tensor:
    x = inputs["x"]
    m, s, _ = machine.exponentials(x)
    return (x - m[:, None]) - machine.primitives.log(s)[:, None]


def log_softmax_direct(inputs: Operands, machine: Machine) -> Tensor:
    x = inputs["x"]
    m, s, _ = machine.exponentials(x)
    return x - (m + machine.primitives.log(s))[:, None]


def log_softmax_one_by_one(inputs: Operands, machine: Machine) -> Tensor:
    x = inputs["x"]
    m, s, _ = machine.one_by_one(x)
    return (x - m[:, None]) - machine.primitives.log(s)[:, None]


def rms_norm(inputs: Operands, machine: Machine) -> Tensor:
    h = inputs["x"]
    if "residual" in inputs:
        h = h + inputs["residual"]
    s = machine.sum_of_products(h, h)
    v = machine.primitives.divide(s, filled(s, h.shape[1])) + filled(s, machine.params["eps"])
    return _weighted(h * machine.primitives.rsqrt(v)[:, None], inputs, machine)


def scaled_rms_norm(inputs: Operands, machine: Machine) -> Tensor:
    """Likewise scaled, with eps divided by the square of the scale, no smaller than its root."""
    divide = machine.primitives.divide
    h, eps = inputs["x"], machine.params["eps"]
    scale = h.abs().amax(dim=1).clamp(min=eps**0.5)
    ratio = divide(h, scale[:, None].expand_as(h))
    s = machine.sum_of_products(ratio, ratio)
    shift = divide(divide(filled(s, eps), scale), scale)
    v = divide(s, filled(s, h.shape[1])) + shift
    return _weighted(ratio * machine.primitives.rsqrt(v)[:, None], inputs, machine)


def _weighted(normalised: Tensor, inputs: Operands, machine: Machine) -> Tensor:
    import torch

    if machine.policies["cast"] == "before_weight":
        stored = round_nearest(normalised.to(torch.float64).cpu().numpy(), machine.stored)
        normalised = torch.as_tensor(stored).to(normalised)
    weight = inputs.get("weight")
    return normalised if weight is None else normalised * weight[None, :]


def min_max(inputs: Operands, machine: Machine) -> Tensor:
    shifted, width = _shifted(inputs["x"])
    return machine.primitives.divide(shifted, width.expand_as(shifted))


def min_max_by_reciprocal(inputs: Operands, machine: Machine) -> Tensor:
    """By division where the reciprocal would leave the normal range."""
    shifted, width = _shifted(inputs["x"])
    fmt = machine.primitives.accumulator
    fits = (width >= 2.0 * fmt.smallest_normal) & (width <= 0.25 / fmt.smallest_normal)
    by_division = machine.primitives.divide(shifted, width.expand_as(shifted))
    return (shifted * machine.primitives.divide(ones(width), width)).where(fits, by_division)


def _shifted(x: Tensor) -> tuple[Tensor, Tensor]:
    low = x.amin(dim=1, keepdim=True)
    return x - low, x.amax(dim=1, keepdim=True) - low


def two_pass(inputs: Operands, machine: Machine) -> Tensor:
    x = inputs["x"]
    m = _mean(x, machine)
    d = x - m[:, None]
    return _side_by_side(m, _over_free(machine.sum_of_products(d, d), x, machine))


def _over_free(q: Tensor, x: Tensor, machine: Machine) -> Tensor:
    free = x.shape[1] - int(machine.params["correction"])
    if free <= 0:
        return filled(q, float("nan"))
    return machine.primitives.divide(q, filled(q, free))


def moments(inputs: Operands, machine: Machine) -> Tensor:
    x = inputs["x"]
    n, m = x.shape[1], _mean(x, machine)
    s = machine.sum_of_products(x, x)
    difference = machine.primitives.divide(s, filled(s, n)) - m * m
    if machine.params["correction"]:
        difference = _over_free(difference * n, x, machine)
    return _side_by_side(m, difference)


def welford(inputs: Operands, machine: Machine) -> Tensor:
    """Counts, means and squared deviations merged (Chan, Golub and LeVeque)."""
    return _merged(inputs["x"], machine, updates=False)


def welford_by_updates(inputs: Operands, machine: Machine) -> Tensor:
    """Single elements enter as Welford has it, M2 += (x - old mean) * (x - new mean)."""
    return _merged(inputs["x"], machine, updates=True)


def _merged(x: Tensor, machine: Machine, *, updates: bool) -> Tensor:
    divide = machine.primitives.divide

    def join(a: State, b: State) -> State:
        count = a[0] + b[0]
        share = divide(b[0], count.clamp(min=1.0))
        delta = b[1] - a[1]
        m = a[1] + delta * share
        more = delta * delta * (a[0] * share)
        if updates:
            single = (b[0] == 1.0) & (b[2] == 0.0)
            more = (delta * (b[1] - m)).where(single, more)
        return count, m, (a[2] + b[2]) + more

    _, m, q = machine.folder.fold((ones(x), x, filled(x, 0.0)), join, (0.0, 0.0, 0.0))
    return _side_by_side(m, _over_free(q, x, machine))


def matmul(inputs: Operands, machine: Machine) -> Tensor:
    x, w = inputs["x"], inputs["w"]
    if machine.policies["input_precision"] == "tf32":
        x, w = _tf32(x), _tf32(w)
    add = _tensor_core if machine.policies["accumulation"] == "truncated" else _cell
    return _side_by_side(*(add(x, w[:, j], machine) for j in range(w.shape[1])))


def _cell(x: Tensor, column: Tensor, machine: Machine) -> Tensor:
    return machine.sum_of_products(x, column[None, :].expand_as(x))


def _tf32(values: Tensor) -> Tensor:
    """float32 cut to 10 explicit significand bits."""
    import torch

    wide = values.to(torch.float64)
    return truncated_to(wide, ulp_of(wide, FP32) * 2.0**13).to(values.dtype)


# Products that a tensor core adds at once: four on Volta, the least of all generations.
_STEP = 4


def _tensor_core(x: Tensor, column: Tensor, machine: Machine) -> Tensor:
    """Steps of four exact products and the accumulator, aligned to the largest and cut to 24 bits.

    No bits are kept below the last place of the largest addend, as on Volta.
    """
    import torch

    products = x.to(torch.float64) * column.to(torch.float64)[None, :]
    acc = filled(products[:, 0], 0.0)
    for k in range(0, int(x.shape[1]), _STEP):
        addends = torch.cat([acc[:, None], products[:, k : k + _STEP]], dim=1)
        step = ulp_of(addends.abs().amax(dim=1), FP32)
        aligned = truncated_to(addends, step[:, None]).sum(dim=1)
        acc = truncated_to(aligned, ulp_of(aligned, FP32))
    return acc.to(x.dtype)


def count_nonzero(inputs: Operands, machine: Machine) -> Tensor:
    import torch

    ones = (inputs["x"] != 0.0).to(torch.int32)
    return machine.folder.fold((ones,), lambda a, b: (a[0] + b[0],), (0,))[0][:, None]


def largest(inputs: Operands, machine: Machine) -> Tensor:
    return machine.folder.fold((inputs["x"],), _larger, (-_INFINITY,))[0][:, None]


def smallest(inputs: Operands, machine: Machine) -> Tensor:
    return machine.folder.fold((inputs["x"],), _smaller, (_INFINITY,))[0][:, None]


def place_of_largest(inputs: Operands, machine: Machine) -> Tensor:
    import torch

    x = inputs["x"]
    index = torch.arange(x.shape[1], device=x.device).expand_as(x)
    state = machine.folder.fold((x, index), _first_larger, (-_INFINITY, x.shape[1]))
    return state[1][:, None]


_SCALED = {"range": "scaled"}
_WEIGHTED = ("x", "weight")

KERNELS = (
    SimulatedKernel("sum", "sum", total),
    SimulatedKernel("row_sum", "row_sum", total),
    SimulatedKernel("l1_norm", "l1_norm", total_of_magnitudes),
    SimulatedKernel("mean", "mean", mean),
    SimulatedKernel("mean", "mean by reciprocal", mean_by_reciprocal),
    SimulatedKernel("row_mean", "row_mean", mean),
    SimulatedKernel("l2_norm", "l2_norm", l2_norm, casts_on_host=True),
    SimulatedKernel("l2_norm", "l2_norm scaled", scaled_l2_norm, _SCALED, casts_on_host=True),
    SimulatedKernel("logsumexp", "logsumexp", logsumexp),
    SimulatedKernel("logsumexp", "logsumexp one by one", logsumexp_one_by_one, online=True),
    SimulatedKernel("softmax", "softmax", softmax),
    SimulatedKernel("softmax", "softmax one by one", softmax_one_by_one, online=True),
    SimulatedKernel("log_softmax", "log_softmax shifted", log_softmax),
    SimulatedKernel("log_softmax", "log_softmax direct", log_softmax_direct, {"form": "direct"}),
    SimulatedKernel(
        "log_softmax", "log_softmax one by one", log_softmax_one_by_one, online=True
    ),
    SimulatedKernel("rms_norm", "rms_norm", rms_norm, params={"eps": 0.0}),
    SimulatedKernel("rms_norm", "rms_norm weighted", rms_norm, operands=_WEIGHTED),
    SimulatedKernel(
        "rms_norm",
        "rms_norm cast before weight",
        rms_norm,
        {"cast": "before_weight"},
        operands=_WEIGHTED,
    ),
    SimulatedKernel("rms_norm", "rms_norm with residual", rms_norm, operands=("x", "residual")),
    SimulatedKernel("rms_norm", "rms_norm scaled", scaled_rms_norm, _SCALED, {"eps": 2.0**-40}),
    SimulatedKernel("min_max", "min_max", min_max, ordered=False),
    SimulatedKernel("min_max", "min_max by reciprocal", min_max_by_reciprocal, ordered=False),
    SimulatedKernel("mean_variance", "mean_variance two_pass", two_pass),
    SimulatedKernel(
        "mean_variance", "mean_variance two_pass, sample", two_pass, params={"correction": 1.0}
    ),
    SimulatedKernel("mean_variance", "mean_variance moments", moments, {"algorithm": "moments"}),
    SimulatedKernel(
        "mean_variance", "mean_variance merged", welford, {"algorithm": "welford"}, merges=True
    ),
    SimulatedKernel(
        "mean_variance",
        "mean_variance updated",
        welford_by_updates,
        {"algorithm": "welford"},
        merges=True,
    ),
    SimulatedKernel("matmul", "matmul ieee", matmul, operands=("x", "w")),
    SimulatedKernel(
        "matmul",
        "matmul tf32",
        matmul,
        {"input_precision": "tf32"},
        operands=("x", "w"),
        stored=FP32,
    ),
    SimulatedKernel(
        "matmul",
        "matmul tensor core",
        matmul,
        {"input_precision": "tf32", "accumulation": "truncated"},
        operands=("x", "w"),
        stored=FP32,
        ordered=False,
    ),
    SimulatedKernel("count_nonzero", "count_nonzero", count_nonzero, exact=True),
    SimulatedKernel("row_max", "row_max", largest, exact=True),
    SimulatedKernel("row_min", "row_min", smallest, exact=True),
    SimulatedKernel("row_argmax", "row_argmax", place_of_largest, exact=True),
)  # fmt: skip


def kernel_named(name: str) -> SimulatedKernel:
    """The simulated kernel called `name`; ValueError lists the known ones otherwise."""
    for kernel in KERNELS:
        if kernel.name == name:
            return kernel
    raise ValueError(
        f"unknown simulated kernel {name!r}: expected one of {', '.join(k.name for k in KERNELS)}"
    )
