# SPDX-License-Identifier: Apache-2.0
"""Checks that the launchers make before a launch, with one wording for all kernels."""

from __future__ import annotations

import os

import torch
import triton

# Triton refuses tensors of more elements than this (TRITON_MAX_TENSOR_NUMEL).
MAX_TILE = 1 << 20
# A row of 2**17 elements is the longest that one program holds in registers within reason.
MAX_ROW = 1 << 17

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def require_tensor(name: str, tensor: torch.Tensor, *, kernel: str) -> None:
    """TypeError or ValueError unless `tensor` is a float tensor where the kernels can run."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{kernel}: {name} must be a torch tensor, got {type(tensor).__name__}")
    if tensor.dtype not in FLOATS:
        raise TypeError(
            f"{kernel}: {name} must be float32, float16 or bfloat16, got {short(tensor.dtype)}"
        )
    interpreted = os.environ.get("TRITON_INTERPRET", "0") not in ("", "0")
    if tensor.device.type != "cuda" and not (interpreted and tensor.device.type == "cpu"):
        raise ValueError(
            f"{kernel}: {name} must be on a CUDA device, got {tensor.device}; to run without a "
            "GPU set TRITON_INTERPRET=1 before triton is imported"
        )


def require_same(name: str, tensor: torch.Tensor, like: torch.Tensor, *, kernel: str) -> None:
    """ValueError unless `tensor` has the shape and the device of `like` (the operand x)."""
    if tensor.shape != like.shape:
        raise ValueError(
            f"{kernel}: {name} must have x's shape {tuple(like.shape)}, got {tuple(tensor.shape)}"
        )
    require_same_device(name, tensor, like, kernel=kernel)


def require_same_device(
    name: str, tensor: torch.Tensor, like: torch.Tensor, *, kernel: str
) -> None:
    if tensor.device != like.device:
        raise ValueError(
            f"{kernel}: {name} must be on x's device {like.device}, got {tensor.device}"
        )


def as_rows(name: str, tensor: torch.Tensor, *, kernel: str) -> torch.Tensor:
    """The tensor as a matrix of rows, leading axes flattened (a view where strides allow it)."""
    if tensor.ndim == 0:
        raise ValueError(f"{kernel}: {name} must have at least one axis, got a scalar")
    if tensor.ndim == 2:
        return tensor
    n = tensor.shape[-1]
    rows = tensor.shape[:-1].numel()
    return tensor.reshape(rows, n)


def row_block(n: int, block: int | None, *, kernel: str, block_m: int = 1) -> int:
    """BLOCK_N for a row of n elements: the next power of two, or the one asked for if it fits."""
    if n > MAX_ROW:
        raise ValueError(f"{kernel}: a row must fit one tile of {MAX_ROW} elements, got N = {n}")
    chosen = triton.next_power_of_2(max(1, n)) if block is None else block
    require_power_of_two("BLOCK_N", chosen, kernel=kernel)
    if chosen < n:
        raise ValueError(f"{kernel}: BLOCK_N must be at least N = {n}, got {chosen}")
    if chosen * block_m > MAX_TILE:
        raise ValueError(
            f"{kernel}: a tile must have at most {MAX_TILE} elements, got BLOCK_M x BLOCK_N = "
            f"{block_m} x {chosen}"
        )
    return chosen


def require_power_of_two(name: str, value: int, *, kernel: str) -> None:
    if value < 1 or value & (value - 1):
        raise ValueError(f"{kernel}: {name} must be a power of two, got {value}")


def warps_for(block: int) -> int:
    """Warps for a row of `block` elements, so that a thread holds at most 128 values or so."""
    if block <= 2048:
        return 4
    if block <= 8192:
        return 8
    return 16 if block <= 32768 else 32


def short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
