# SPDX-License-Identifier: Apache-2.0
"""Primitives for simulated kernels: float32 or float64 on torch tensors, one rounding a step.

Two sets. Correctly rounded: every result is the format's nearest value to the exact one.
At the limit: exp, log, rsqrt and division give the farthest value that the documentation lets them
give (the figures of `Arithmetic`), on a side that the caller chooses for each row and primitive.

torch is imported where it is used. Its eager operations are one IEEE operation each, on the CPU and
on CUDA, without fused multiply-add and without flushing of subnormals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from assay.oracles.formats import FP32, FP64, Format
from assay.oracles.platform import Arithmetic, Platform

# A torch tensor; torch itself is loaded late.
Tensor = Any

# What errs, and so has a side: the exponential of 0, other exponentials, and the rest.
SIDES = ("top", "exp", "log", "divide", "rsqrt", "sqrt")

_FL32_LOG2E = float.fromhex("0x1.715476p0")
_FL32_LN2 = float.fromhex("0x1.62e43p-1")


def dtype_of(fmt: Format) -> Any:
    """torch's dtype of float32 or float64."""
    import torch

    return {FP32.name: torch.float32, FP64.name: torch.float64}[fmt.name]


def ulp_of(values: Tensor, fmt: Format) -> Tensor:
    """ulp of `fmt` (16 to 32 bits) at each float64 value; that of the subnormals at zero."""
    import torch

    size = torch.where(torch.isfinite(values), values.abs(), torch.zeros_like(values))
    mantissa, e = torch.frexp(size)
    e = torch.where(mantissa == 0.0, fmt.emin, e.to(torch.int64) - 1).clamp(fmt.emin, fmt.emax)
    # 2**k through its bits: torch's own powers of two go through float32.
    return ((e - fmt.precision + 1 + 1023) << 52).view(torch.float64)


def last_within(limit: Tensor, side: Tensor) -> Tensor:
    """The float32 next to each float64 limit, or on it, from below (side 1) or above (side -1)."""
    import torch

    nearest = limit.to(torch.float32)
    beyond = side * (nearest.to(torch.float64) - limit) > 0.0
    inward = torch.nextafter(nearest, (-side * torch.inf).to(torch.float32).expand_as(nearest))
    return torch.where(beyond, inward, nearest)


def stepped(values: Tensor, side: Tensor, steps: int) -> Tensor:
    """Values moved by so many neighbours to the side of the sign of `side`."""
    import torch

    toward = (side * torch.inf).to(values.dtype).expand_as(values)
    for _ in range(steps):
        values = torch.nextafter(values, toward)
    return values


def flushed(values: Tensor, fmt: Format) -> Tensor:
    """Subnormal numbers as zeros."""
    return values.where(values.abs() >= fmt.smallest_normal, 0.0)


def two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """(s, e): s the rounded a + b, s + e the exact one (Knuth's TwoSum, six operations)."""
    s = a + b
    shown = s - a
    return s, (a - (s - shown)) + (b - shown)


def product_error(a: Tensor, b: Tensor, product: Tensor) -> Tensor:
    """a * b - product, as an FMA gives it: exact but below the format's range.

    float32: through float64, which holds the product. float64: Dekker's splitting.
    """
    import torch

    if a.dtype == torch.float32:
        exact = a.to(torch.float64) * b.to(torch.float64)
        return (exact - product.to(torch.float64)).to(torch.float32)
    ah, bh = _upper_half(a), _upper_half(b)
    al, bl = a - ah, b - bh
    return al * bl - (((product - ah * bh) - al * bh) - ah * bl)


def _upper_half(a: Tensor) -> Tensor:
    scaled = a * (2.0**27 + 1.0)
    return scaled - (scaled - a)


def correct_root(v: Tensor) -> Tensor:
    """Correctly rounded square root: numpy's on the CPU, where torch's is off by up to 0.75 ulp."""
    import torch

    if v.device.type != "cpu":
        return v.sqrt()
    return torch.as_tensor(np.sqrt(v.numpy()))


def truncated_to(values: Tensor, step: Tensor) -> Tensor:
    """Values cut, toward zero, to multiples of powers of two."""
    return (values / step).trunc() * step


@dataclass(frozen=True)
class Primitives:
    """exp, log, rsqrt and division of one platform in one accumulator format.

    at_limit: off by all that the documentation allows; correctly rounded otherwise.
    sides: (rows, 1, ...) tensors of +1 and -1 by name of `SIDES`; missing ones are +1.
    """

    platform: Platform
    accumulator: Format = FP32
    at_limit: bool = False
    sides: Mapping[str, Tensor] = field(default_factory=dict)

    def arithmetic(self, *, casts_on_host: bool = False) -> Arithmetic:
        return self.platform.arithmetic(self.accumulator, casts_on_host)

    def _side(self, name: str, like: Tensor) -> Tensor:
        import torch

        side = self.sides.get(name)
        if side is None:
            return torch.ones_like(like, dtype=torch.float64)
        return side.reshape(side.shape[:1] + (1,) * (like.dim() - 1)).expand_as(like)

    def _moved(self, exact: Tensor, side: Tensor, ulps: float) -> Tensor:
        """The last value within so many ulps of the exact one, given in float64.

        In float64 the given value has an error of its own, for which one ulp is kept back.
        """
        if self.accumulator is FP64:
            return stepped(exact, side, max(0, math.floor(ulps - 1.0)))
        return last_within(exact + side * ulps * ulp_of(exact, FP32), side)

    def _finish(self, exact: Tensor) -> Tensor:
        return exact.to(dtype_of(self.accumulator))

    def exp(self, t: Tensor) -> Tensor:
        """At the limit: 2 to the rounded product with log2 e, as the compiler has it."""
        import torch

        if not self.at_limit:
            return self._finish(t.to(torch.float64).exp())
        log2e = _FL32_LOG2E if self.accumulator is FP32 else math.log2(math.e)
        exact = (t * log2e).to(torch.float64).exp2()
        side = torch.where(t == 0.0, self._side("top", t), self._side("exp", t))
        ulps = 2.52 if self.platform.is_interpreter else 2.0
        off = self._moved(exact, side, ulps).clamp(min=0.0)
        return torch.where(torch.isneginf(t), torch.zeros_like(off), off)

    def divide(self, a: Tensor, b: Tensor) -> Tensor:
        import torch

        if self.platform.is_interpreter or not self.at_limit:
            return a / b
        exact = a.to(torch.float64) / b.to(torch.float64)
        inexact = torch.isfinite(exact) & (exact != 0.0)
        shown = torch.where(inexact, exact, torch.ones_like(exact))
        moved = self._moved(shown, self._side("divide", shown) * shown.sign(), 2.0)
        return torch.where(inexact, moved, self._finish(exact))

    def host_sqrt(self, v: Tensor) -> Tensor:
        """The root that torch takes on the host; at the limit of torch's vector library, 1 ulp."""
        root = correct_root(v)
        if not self.at_limit or not self.platform.is_interpreter:
            return root
        side = self._side("sqrt", root)
        if self.accumulator is FP64:
            return root
        exact = correct_root(v.double())
        return last_within(exact + side * ulp_of(exact, FP32), side).where(exact > 0.0, root)

    def rsqrt(self, v: Tensor) -> Tensor:
        import torch

        if self.platform.is_interpreter or not self.at_limit or self.accumulator is FP64:
            return 1.0 / correct_root(v)
        exact = 1.0 / correct_root(flushed(v, FP32).to(torch.float64))
        side = self._side("rsqrt", exact)
        return last_within(exact * (1.0 + side * 2.0**-22.9), side)

    def log(self, v: Tensor) -> Tensor:
        """At the limit, compiled: lg2.approx, 2**-22 absolute near 1 or relative, times ln 2."""
        import torch

        v64 = v.to(torch.float64)
        side = self._side("log", v64)
        if not self.at_limit:
            return self._finish(v64.log())
        if self.platform.is_interpreter or self.accumulator is FP64:
            exact = v64.log()
            moved = self._moved(exact, torch.where(exact < 0.0, -side, side), 3.83)
            return moved.where((exact != 0.0) & (v64 > 0.0), self._finish(exact))
        exact = v64.log2()
        near = (v64 > 0.5) & (v64 < 2.0)
        limit = torch.where(near, torch.ones_like(exact), exact.abs()) * 2.0**-22
        moved = last_within(exact + side * limit, side) * _FL32_LN2
        return moved.where(v64 > 0.0, -torch.inf)
