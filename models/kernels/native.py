"""Kernels in C for a CPU: compiled by the machine's own compiler when first asked for, and kept for later processes.

`kernel("slstm_forward", torch.float32)` takes tensors, which it sees as addresses alone: the caller vouches for their
type, size and order in memory. native_library.py compiles the sources; without a compiler the models compute the same
in plain torch.

The sources' bytes are part of a record's fingerprint, their comments too: those name scans/ and layers/ as they stood
in models/ before, since a comment is no reason for a resumed run to be called mixed.
"""

import ctypes
import functools
import subprocess
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.native_library import REALS, library

REAL = dict(zip((torch.float32, torch.float64), REALS, strict=True))
FEW = 2**11


@functools.lru_cache(maxsize=1)
def missing() -> str:
    """Why there are no such kernels here; empty if there are."""
    try:
        _library(torch.float32)
    except (OSError, subprocess.SubprocessError, RuntimeError, ValueError) as error:  # ValueError: quotes in CC
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def untraced(x: Tensor, ctx: Context) -> bool:
    """Compilers that trace cannot follow these kernels."""
    return not torch.compiler.is_compiling()


def worth_a_call(x: Tensor, ctx: Context) -> bool:
    """Not so few numbers that torch is as fast with them, by a call less in Python."""
    return untraced(x, ctx) and x.numel() >= FEW


@functools.lru_cache
def kernel(name: str, dtype: torch.dtype) -> Callable[..., None]:
    """A function of tensors (None: a null pointer) and, last, of any number of integers, which C sees as a struct."""
    function = getattr(_library(dtype), name)
    function.restype = None

    def call(*tensors: Tensor | None, sizes: ctypes.Array) -> None:
        if not function.argtypes:
            function.argtypes = [ctypes.c_void_p] * (len(tensors) + 1)
        function(*[None if x is None else x.data_ptr() for x in tensors], sizes)

    return call


@functools.cache
def lanes(dtype: torch.dtype) -> int:
    """Numbers of a vector."""
    return ctypes.c_int64.in_dll(_library(dtype), "vector_lanes").value


def whole_vectors(width: int, dtype: torch.dtype) -> int:
    """Numbers of a row that ends with a vector."""
    return -(-width // lanes(dtype)) * lanes(dtype)


def integers(*values: int) -> ctypes.Array:
    return (ctypes.c_int64 * len(values))(*values)


def in_rows(x: Tensor) -> tuple[Tensor, int]:
    """x, or a copy of it, whose last axis lies in one piece and each at one distance from the one before; and that."""
    sizes, strides = x.shape, x.stride()
    even = all(sizes[i] == 1 or strides[i] == strides[i + 1] * sizes[i + 1] for i in range(x.ndim - 2))
    return (x, strides[-2]) if x.ndim > 1 and even and strides[-1] == 1 else (x.contiguous(), sizes[-1])


def identity() -> str:
    """Return what the kernels' last bits depend on besides their inputs; empty where there are none."""
    return "" if missing() else Path(_library(torch.float32)._name).stem


@functools.lru_cache
def _library(dtype: torch.dtype) -> ctypes.CDLL:
    with library(REAL[dtype]) as path:
        return ctypes.CDLL(str(path))
