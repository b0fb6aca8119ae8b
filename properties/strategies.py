# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies that draw descriptions of cases, not arrays.

A description is a few small values: shape, data family, seed, a few special elements, layout,
launch configuration. It shrinks fast and prints in one line.
"""

from __future__ import annotations

from hypothesis import strategies as st

from assay.kernels import device
from assay.kernels.record import Kernel
from assay.oracles.formats import format_named
from assay.oracles.operation import Operand
from assay.properties.case import Case, Data, Layout, Recipe, Special
from assay.properties.values import SPECIAL_VALUES

# Lengths around the edges of tiles, vectors, warps and powers of two, none of them "nice" alone.
LENGTHS = (1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 101, 127, 128, 129, 255, 256, 257)
LONG_LENGTHS = (500, 777, 1000, 1023, 1024, 1025, 2049)
GPU_LENGTHS = (4095, 4096, 4097, 10007, 65537)
# A kernel that reduces the whole array sees several programs, at the edges of its block.
WHOLE_LENGTHS = (511, 513, 1023, 1025, 2047, 2049, 3001, 4097, 5000)
GPU_WHOLE_LENGTHS = (65537, 100_003, 262_145, 1_048_577)
ROWS = (1, 2, 3, 4, 5, 8, 9, 17, 18)
GPU_ROWS = (33, 49, 131, 133, 257)
# Of the right-hand side of a product.
COLUMNS = (1, 2, 3, 16, 17)


def _lengths(kernel: Kernel) -> st.SearchStrategy[int]:
    compiled = device.current().device == "cuda"
    pool = [*LENGTHS]
    if kernel.op.whole:
        pool += WHOLE_LENGTHS + (GPU_WHOLE_LENGTHS if compiled else ())
    else:
        pool += LONG_LENGTHS + (GPU_LENGTHS if compiled else ())
    if kernel.max_n is not None:
        pool = [n for n in pool if n <= kernel.max_n]
    # 0 last but one: shrinking goes to the front of the list, and an empty row shows little.
    return st.sampled_from([*pool[:6], 0, *pool[6:]]) | st.integers(
        1, min(1100 if compiled else 300, max(pool))
    )


def _rows(kernel: Kernel) -> st.SearchStrategy[int]:
    if kernel.op.whole:
        return st.just(1)
    compiled = device.current().device == "cuda"
    return st.sampled_from([*ROWS, 0, *(GPU_ROWS if compiled else ())])


@st.composite
def _specials(draw: st.DrawFn, rows: int, n: int, columns: bool) -> tuple[Special, ...]:
    if rows == 0 or n == 0 or not draw(st.booleans()):
        return ()
    places = []
    for _ in range(draw(st.integers(1, 3))):
        value = draw(st.sampled_from(SPECIAL_VALUES))
        # The ends of a row and its middle: first and last lane, the edge of a tile.
        column = draw(st.sampled_from(sorted({0, n - 1, n // 2, min(n - 1, 128)})))
        row = None if columns else draw(st.integers(0, rows - 1))
        whole_row = not columns and draw(st.integers(0, 5)) == 5
        places.append(Special(value, row, None if whole_row else column))
    return tuple(places)


def _scales(dtype: str) -> st.SearchStrategy[int]:
    # The ends of the exponent range now and then, where squares leave it.
    reach = 4 if format_named(dtype).emax < 16 else 60
    return st.sampled_from((0, 0, 0, 1, -1, reach // 2, -reach // 2, reach, -reach))


@st.composite
def _data(draw: st.DrawFn, kernel: Kernel, operand: Operand, rows: int, n: int, dtype: str) -> Data:
    columns = operand.shape == "columns"
    plain = operand.shape != "matrix"
    families = ("normal", "uniform", "constant", "integers") if plain else kernel.op.families
    return Recipe(
        family=draw(st.sampled_from(families)),
        seed=draw(st.integers(0, 999)),
        scale=0 if columns else draw(_scales(dtype)),
        specials=draw(_specials(1 if columns else rows, n, columns)),
    )


@st.composite
def cases(draw: st.DrawFn, kernel: Kernel, dtype: str) -> Case:
    """Cases of a kernel within its claims, in one dtype."""
    n, rows = draw(_lengths(kernel)), draw(_rows(kernel))
    product = any(o.shape == "second" for o in kernel.op.operands)
    columns = draw(st.sampled_from(COLUMNS)) if product else 1
    assert kernel.operands is not None
    operands: dict[str, Data] = {}
    for operand in kernel.op.operands:
        if operand.name not in kernel.operands:
            continue
        if operand.default == "required" or draw(st.booleans()):
            height = columns if operand.shape == "second" else rows
            operands[operand.name] = draw(_data(kernel, operand, height, n, dtype))
    params = {}
    if "eps" in (kernel.params or ()):
        # Six decades and beyond: an eps in the wrong place shows where it matters.
        params["eps"] = draw(st.sampled_from((1e-6, 1e-5, 1e-12, 0.01, 1.0)))
    if "correction" in (kernel.params or ()):
        params["correction"] = draw(st.sampled_from((0.0, 1.0)))
    layout = Layout(
        row_gap=draw(st.sampled_from((0, 0, 1, 3))), offset=draw(st.sampled_from((0, 0, 1)))
    )
    configs = kernel.configs(rows, n, dtype)
    launch = draw(st.sampled_from([{}, *configs[1:]]))
    return Case(
        operation=kernel.operation,
        dtype=dtype,
        rows=rows,
        n=n,
        columns=columns,
        operands=operands,
        params=params,
        layout=Layout() if kernel.op.whole and layout.offset == 0 else layout,
        launch=launch,
    )
