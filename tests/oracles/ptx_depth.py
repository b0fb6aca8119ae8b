# SPDX-License-Identifier: Apache-2.0
"""Depth of a sum, read off the PTX that Triton compiles for a GPU that need not be there.

A program of its own, run by `test_depth.py`: Triton must not have been imported as an interpreter,
so it needs a process without TRITON_INTERPRET. Standard input is a JSON list of requests:

    {"ptx": "..."}                              measure the text given
    {"kernel": "sum_of_squares", "arch": 90, "block": 1024, "num_warps": 4, "dtype": "fp32",
     "layout": "aligned"}                       compile, then measure
    {"kernel": "softmax", "rows": 4, ...}       likewise

layout: "aligned" (pointers and strides are multiples of 16), "unaligned" (nothing is known), or,
for softmax, "transposed" (aligned, and x has a row stride of 1 and some column stride).
Standard output is {"triton": version, "depths": [one number a request]}.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

_INSTRUCTION = re.compile(r"^(?:@!?(%\w+)\s+)?([a-z][\w.:]*)\s+(.*);$")
_LABEL = re.compile(r"^(\$?\w+):")
_REGISTER = re.compile(r"%[a-z]+\d+")
_FLOAT_ADDITION = re.compile(r"^(add|fma)\..*f(16|32|64)|^(add|fma)\..*bf16")
_LEAVES_THE_KERNEL = ("st.global", "atom.global", "red.global")


@triton.jit
def sum_of_squares(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0).to(tl.float32)
    tl.atomic_add(out_ptr, tl.sum(x * x, axis=0))


@triton.jit
def softmax(
    x_ptr,
    out_ptr,
    m,
    n,
    x_row_stride,
    x_column_stride,
    out_stride,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    offsets = rows[:, None] * x_row_stride + columns[None, :] * x_column_stride
    x = tl.load(x_ptr + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    p = tl.exp(x - tl.max(x, axis=1)[:, None])
    out = p / tl.sum(p, axis=1)[:, None]
    out_offsets = rows[:, None] * out_stride + columns[None, :]
    tl.store(out_ptr + out_offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


def compiled(request: Mapping[str, Any]) -> str:
    """PTX of one of the two kernels above."""
    dtype, layout = request["dtype"], request["layout"]
    constants = {"BLOCK": request["block"]}
    if request["kernel"] == "sum_of_squares":
        function, out = sum_of_squares, "fp32"
    else:
        function, out = softmax, dtype
        # The launcher makes a constant of a stride that is 1.
        unit = "x_row_stride" if layout == "transposed" else "x_column_stride"
        constants |= {"ROWS": request["rows"], unit: 1}
    pointers = {"x_ptr": f"*{dtype}", "out_ptr": f"*{out}"}
    names = function.arg_names
    signature = {n: "constexpr" if n in constants else pointers.get(n, "i32") for n in names}
    plain = [i for i, name in enumerate(names) if name not in constants]
    divisible = [["tt.divisibility", 16]]
    source = ASTSource(
        function,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={} if layout == "unaligned" else {(i,): divisible for i in plain},
    )
    target = GPUTarget("cuda", request["arch"], 32)
    kernel = triton.compile(source, target=target, options={"num_warps": request["num_warps"]})
    return kernel.asm["ptx"]


def depth_of(ptx: str) -> int:
    """Float additions on the longest path to a value that is stored to global memory.

    The instructions are followed in the order of the text, so a loop is refused.
    A load from shared memory counts as the deepest value stored there before: never too low.
    A multiply-add counts as one addition.
    """
    depths: defaultdict[str, int] = defaultdict(int)
    labels: set[str] = set()
    shared = deepest = 0
    for line in ptx.splitlines():
        text = line.split("//")[0].strip()
        label = _LABEL.match(text)
        if label:
            labels.add(label.group(1))
            continue
        match = _INSTRUCTION.match(text)
        if not match:
            continue
        predicate, name, arguments = match.groups()
        if name.startswith("bra"):
            if arguments.split(",")[0].strip() in labels:
                raise ValueError(f"a loop: {text!r} jumps backwards, the depth is not in the text")
            continue
        # The destination is one register, a vector in braces or a pair `%r1|%p1`.
        destination, _, sources = _split_destination(arguments)
        read = max((depths[r] for r in _REGISTER.findall(sources)), default=0)
        if name.startswith(_LEAVES_THE_KERNEL):
            written = _REGISTER.findall(arguments)
            deepest = max([deepest, *(depths[r] for r in written)])
            continue
        if name.startswith(("st.", "stmatrix.")):
            if ".shared" in name:
                shared = max(shared, read)
            continue
        if name.startswith(("ld.shared", "ldmatrix.")):
            read = shared
        elif _FLOAT_ADDITION.match(name):
            read += 1
        for register in _REGISTER.findall(destination):
            # A predicated instruction may leave the old value in place.
            depths[register] = max(read, depths[register]) if predicate else read
    return deepest


def _split_destination(arguments: str) -> tuple[str, str, str]:
    if arguments.startswith("{"):
        return arguments.partition("}")
    return arguments.partition(",")


def main() -> None:
    requests = json.load(sys.stdin)
    depths = [depth_of(r["ptx"] if "ptx" in r else compiled(r)) for r in requests]
    json.dump({"triton": triton.__version__, "depths": depths}, sys.stdout)


if __name__ == "__main__":
    main()
