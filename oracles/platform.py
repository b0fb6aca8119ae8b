# SPDX-License-Identifier: Apache-2.0
"""What arithmetic a kernel gets: the device, its Triton version, and the error of each primitive.

The records here are plain data. Who detects the platform at hand is `assay.kernels.device`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assay.oracles.formats import BF16, FP32, FP64, Float64, Format

# fl32(log2 e) is off by 0.224u relative, and its product with t is rounded once.
_LOG2E_ERROR_IN_U = 1.224


@dataclass(frozen=True)
class Platform:
    """The device that runs a kernel and the Triton version that compiles or interprets it."""

    device: str  # "cuda" or "interpreter"
    name: str  # "NVIDIA H200", or the interpreter's numpy version
    arch: str  # "sm_90", "" for the interpreter
    triton: str
    torch: str
    python: str

    @property
    def is_interpreter(self) -> bool:
        return self.device == "interpreter"

    @property
    def triton_release(self) -> tuple[int, int]:
        major, minor = self.triton.split(".")[:2]
        return int(major), int(minor)

    def misreads_subnormals(self, stored: Format) -> bool:
        """Subnormal operands of this format do not come out of `tl.load` as what they are.

        The interpreter turns subnormal bfloat16 into other numbers, most of them into zero (Triton
        3.6 to 3.9, read off and measured).
        """
        return self.is_interpreter and stored is BF16

    def arithmetic(
        self,
        accumulator: Format = FP32,
        casts_on_host: bool = False,
        *,
        compensated_exponent: bool = False,
    ) -> Arithmetic:
        """Error of each primitive operation when computing in `accumulator` on this platform."""
        return Arithmetic(accumulator, self.is_interpreter, casts_on_host, compensated_exponent)


@dataclass(frozen=True)
class Arithmetic:
    """Relative error of the primitives that Triton reductions use, in absolute numbers, not in u.

    Compiled for NVIDIA (sources: PTX ISA, entries ex2, rsqrt, div; the instructions that Triton
    emits were read in PTX for sm_90):
      exp     2**(t * log2 e) by ex2.approx (2 ulp, so 4u) after a rounded product
      division  div.full, 2 ulp, so 4u
      rsqrt   rsqrt.approx.ftz, 2**-22.9 = 2.14u; a subnormal argument gives infinity
      sqrt    on the host through torch: correctly rounded on CUDA; on the CPU within 1 ulp, what
              Intel states for the vector library that torch calls (0.75 ulp was measured)
    Interpreter (numpy): division and square root are correctly rounded, rsqrt is a root and a
    division, and float32 exp is within 2.52 ulp (numpy's stated limit of its vector code).
    float64 accumulators use the same multiples of their own u.

    compensated_exponent: the kernel feeds the rounding of x - max (TwoSum) and that of the product
    p with log2(e) (a fused multiply-add and the second word of log2(e)) back as q + q * c * ln 2.
    For |p| <= 150, beyond which powers of two vanish, |c| <= 2 * 150u: what 2**c has beyond
    1 + c ln 2 is below 0.003u, roundings inside c are of the order of u**2, and the product and the
    addition at the end round once each, the former scaled by c: 1.02u in all. The power of two is
    then `tl.exp2`, which flushes results below the smallest normal number. The interpreter's
    multiply-add rounds twice, so there the rounding of the product stays: u |t|.
    """

    accumulator: Format
    interpreted: bool
    casts_on_host: bool = False
    compensated_exponent: bool = False

    @property
    def u(self) -> float:
        return self.accumulator.u

    def exp(self, t: Float64) -> Float64:
        """Relative error of exp at the argument t as the kernel holds it."""
        # exp2 of a product with log2 e is an honest way to compute exp on either device.
        return np.expm1(self.exp_growth * np.abs(t)) + self.exp_constant

    @property
    def exp_growth(self) -> float:
        """The part of exp's relative error that grows with |t|, for each unit of it."""
        if self.compensated_exponent:
            return 0.0 if self.fused else self.u
        return _LOG2E_ERROR_IN_U * self.u

    @property
    def shift_growth(self) -> float:
        """What the rounding of x - max adds to that."""
        return 0.0 if self.compensated_exponent else self.u

    @property
    def fused(self) -> bool:
        """`tl.fma` rounds once: the interpreter's multiplies and adds."""
        return not self.interpreted

    @property
    def exp_constant(self) -> float:
        """The part of exp's relative error that does not depend on the argument."""
        own = 5.04 if self.interpreted else 4.0
        return (own + (1.02 if self.compensated_exponent else 0.0)) * self.u

    @property
    def exp_floor(self) -> float:
        """Absolute error of exp where the result is subnormal, where an ulp is their spacing."""
        if self.compensated_exponent and not self.interpreted:
            return self.accumulator.smallest_normal
        return (2.52 if self.interpreted else 2.0) * self.accumulator.smallest_subnormal

    def log(self, value: Float64) -> Float64:
        """Absolute error of the natural logarithm at `value`."""
        # Compiled: logf errs by 1 ulp; lg2.approx by 2**-22 absolute near 1 and relative elsewhere,
        # and an honest kernel may use it times ln 2: a rounding more, and fl32(ln 2) is off by
        # 0.046u. Interpreter: 3.83 ulp, numpy's stated limit.
        size = np.abs(np.log(value))
        if self.interpreted:
            return 7.7 * self.u * size
        return 4.0 * self.u * np.maximum(np.log(2.0), size) + 1.05 * self.u * size

    @property
    def division(self) -> float:
        return self.u if self.interpreted else 4.0 * self.u

    @property
    def division_floor(self) -> float:
        """Absolute error of a division whose result is subnormal: half a spacing, or 2 ulp.

        The half is given as a whole one, since float64 has no half of its own last spacing.
        """
        return (1.0 if self.interpreted else 2.0) * self.accumulator.smallest_subnormal

    @property
    def rsqrt(self) -> float:
        # Two correctly rounded steps: (1 + u)**2 - 1, with room for the square of u.
        return 2.001 * self.u if self.interpreted else 2.0**-22.9 * (self.u / FP32.u)

    @property
    def rsqrt_smallest_argument(self) -> float:
        """Arguments below are flushed to zero by the approximate instruction."""
        return 0.0 if self.interpreted else self.accumulator.smallest_normal

    @property
    def host_sqrt(self) -> float:
        return 2.0 * self.u if self.interpreted else self.u

    @property
    def atomic_flush(self) -> float:
        """Absolute error of one global atomic addition: float32 ones flush subnormals on NVIDIA.

        The input and the result may each be flushed, so two times the smallest normal number.
        """
        return 0.0 if self.interpreted else 2.0 * self.accumulator.smallest_normal

    def cast(self, target: Format) -> float:
        """Largest error of the final cast to `target` in ulps: 1/2 to nearest, 1 when truncated.

        The interpreter truncates float32 to bfloat16 (Triton 3.6 to 3.9, read off and measured).
        """
        if target is self.accumulator or target is FP64:
            return 0.0
        if self.interpreted and target is BF16 and not self.casts_on_host:
            return 1.0
        if self.accumulator is FP64 and target.precision < FP32.precision:
            # float64 to 16 bits goes through float32 in torch and in Triton: two roundings.
            return 0.5 + 2.0 ** (target.precision - FP32.precision - 1)
        return 0.5

    def cast_floor(self, target: Format) -> float:
        """Absolute error of the final cast where its result is subnormal.

        The interpreter gets the exponent of bfloat16 subnormals wrong (Triton 3.6 to 3.9: 7.2e-40
        becomes 1.1e-38), so that nothing is known there but that the result stays subnormal.
        """
        if self.interpreted and target is BF16 and not self.casts_on_host:
            return target.smallest_normal
        return 0.0
