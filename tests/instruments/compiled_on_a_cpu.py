"""Triton with a CPU for a GPU: kernels are compiled for an H100, and a launch runs what was compiled.

compiled_on_a_cpu()        from here on kernels take tensors of a CPU
"""

import ctypes
import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from instruments.ptx_machine import Machine, Memory, Program


def compiled_on_a_cpu() -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import CompiledKernel

    target = GPUTarget("cuda", 90, 32)
    driver: Any = SimpleNamespace(
        get_current_device=lambda: 0, get_current_stream=lambda _: 0, get_current_target=lambda: target
    )
    triton.runtime.driver.set_active(driver)
    CompiledKernel._init_handles = _ready


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Cycles that the first program of each kernel waits for shared memory, all its launches together."""
    global _cycles
    _cycles = Counter()
    try:
        yield _cycles
    finally:
        _cycles = None


_cycles: Counter[str] | None = None


def _ready(self: Any) -> None:
    if self.module is None:
        self.module = self.function = Program(self.asm["ptx"])

        def launch(x: int, y: int, z: int, *others: Any) -> None:
            launched(self, (x, y, z), others[len(others) - len(self.src.signature) :])

        self._run = launch


def launched(kernel: Any, grid: tuple[int, int, int], arguments: tuple[Any, ...]) -> None:
    """All programs of a grid, one after the other."""
    memory: Memory = []
    values: list[int] = []
    for kind, value in zip(kernel.src.signature.values(), arguments, strict=True):
        _add(kind, value, values, memory)
    for at in itertools.product(*map(range, reversed(grid))):
        counts = _cycles is not None and not any(at)
        machine = Machine(kernel.metadata.num_warps, kernel.metadata.shared, at[::-1], grid, memory, counts)
        machine.run(kernel.function, values)
        if _cycles is not None:
            _cycles[kernel.name] += machine.cycles


def _add(kind: Any, value: Any, values: list[int], memory: Memory) -> None:
    """A parameter's number, and the memory that it is the address of; what is known when compiling is none."""
    if isinstance(kind, tuple):
        for one, part in zip(kind, value, strict=True):
            _add(one, part, values, memory)
    elif isinstance(value, torch.Tensor) and kind != "constexpr":
        held = value.untyped_storage()
        data = (ctypes.c_uint8 * held.nbytes()).from_address(held.data_ptr())
        memory.append((held.data_ptr(), np.frombuffer(data, np.uint8)))
        values.append(value.data_ptr())
    elif kind != "constexpr":
        assert not isinstance(value, float), "a number with a point would be another parameter"
        values.append(int(value))
