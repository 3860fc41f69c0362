"""Shared code for tests of Triton kernels: guarded buffers, an interpreting process, registers of compiled code.

Triton decides on import whether it interprets. So a file with such tests is also the program of a separate process
(tests/support/interpreter.py), which makes all comparisons and prints what is wrong with each:

    if __name__ == "__main__":
        print_failures(CHECKS)
"""

import atexit
import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.cli.selftest import CPU, _gradient, _runs
from chomsky_ladder.models.kernels.choose import named
from chomsky_ladder.models.kernels.kernel import KERNELS

MISSING = importlib.util.find_spec("triton") is None
if MISSING and os.environ.get("LADDER_ORACLES") == "required":
    raise pytest.UsageError("install triton: it cannot be imported")
needs_triton = pytest.mark.skipif(MISSING, reason="triton cannot be imported")

COMPILED = "LADDER_TRITON_COMPILED"  # set for a process that runs what is compiled
BORDER = 4096  # elements around every output
_LEAST = -(2**31)


@contextmanager
def walled_rooms(module: ModuleType) -> Iterator[list[Tensor]]:
    """Outputs hold NaN until they are written (integers the least), walled in by NaN that nothing may write over.

    `module` asks its `_room` for all memory that kernels write.
    """
    rooms, walls, plain = [], [], module._room

    def room(*asked: Any) -> Tensor:
        like: Tensor = plain(*asked)
        nothing = torch.nan if like.dtype.is_floating_point else _LEAST
        whole = torch.full((like.numel() + 2 * BORDER,), nothing, dtype=like.dtype, device=like.device)
        walls.extend([whole[:BORDER], whole[BORDER + like.numel() :]])
        rooms.append(whole[BORDER : BORDER + like.numel()].view(like.shape))
        return rooms[-1]

    module._room = room
    try:
        yield rooms
    finally:
        module._room = plain
    kept = all(torch.equal(wall.nan_to_num(nan=_LEAST), torch.full_like(wall, _LEAST)) for wall in walls)
    assert walls and kept, "a kernel wrote outside its outputs"


def weighted(outputs: Sequence[Tensor]) -> Tensor:
    """A scalar in which no element can hide another's error."""
    return sum((z.double() * torch.arange(1.0, z.numel() + 1).cos().to(z.device).view_as(z)).sum() for z in outputs)


def in_a_model(kernel: str, model: str, replicas: int, device: str) -> None:
    """The gradient of a pack's first step, where the kernel is what blocks get, beside the plain forms in float64.

    Of a model whose plain forms in fp32 are further off, about as near as those.
    """
    kernels = list(KERNELS)
    KERNELS.append(replace(named(kernel), name="anywhere", device="any", missing=lambda: "", rank=1000))
    try:
        found, used = _gradient(_runs(model, replicas, "fp32"), torch.device(device), "auto", 1)
    finally:
        KERNELS[:] = kernels
    wanted, _ = _gradient(_runs(model, replicas, "fp64"), CPU, "reference", 1)
    assert "anywhere" in used
    if (found - wanted).norm() > 1e-5 * wanted.norm():
        plain, _ = _gradient(_runs(model, replicas, "fp32"), torch.device(device), "reference", 1)
        assert (found - wanted).norm() <= 1.2 * (plain - wanted).norm()


def interpreted(file: str, names: Sequence[str], *, compiled: bool = False) -> dict[str, str]:
    """Return what is wrong with each of the named checks of a file under Triton's interpreter. Passed checks are
    missing.

    With `compiled`, the code is compiled for a GPU and run on a CPU: slower, and with the compiler's changes.
    """
    interpreter = _interpreter(compiled)
    assert interpreter.stdin and interpreter.stdout
    interpreter.stdin.write(json.dumps([file, *names]) + "\n")
    interpreter.stdin.flush()
    line = interpreter.stdout.readline()
    assert line, "the process that interprets has ended"
    status, said, wrong = json.loads(line)
    assert status == 0, wrong
    return json.loads(said)


@functools.cache
def _interpreter(compiled: bool) -> subprocess.Popen[str]:
    """One for all files of a session."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    environment |= {COMPILED if compiled else "TRITON_INTERPRET": "1"}
    command = [sys.executable, str(Path(__file__).with_name("interpreter.py"))]
    started = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(started.communicate)  # without another line it ends
    return started


def multiply_bf16() -> None:
    """Triton's interpreter holds bf16 as whole numbers and multiplies those; from here on what they stand for."""
    from triton import language as tl
    from triton.runtime import interpreter

    builder: Any = interpreter.InterpreterBuilder
    plain = builder.create_dot

    def dot(self: Any, a: Any, b: Any, *others: Any) -> Any:
        a, b = (self.cast_impl(x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x for x in (a, b))
        return plain(self, a, b, *others)

    builder.create_dot = dot


def print_failures(checks: Mapping[str, tuple[Any, ...]]) -> None:
    """Run the checks named in the command, each a function with arguments and the device, and print the failures."""
    found = {}
    if COMPILED in os.environ:
        from instruments.compiled_on_a_cpu import compiled_on_a_cpu

        compiled_on_a_cpu()
    else:
        multiply_bf16()
    for name in sys.argv[1:]:
        check: Callable[..., None]
        check, *arguments = checks[name]
        try:
            check(*arguments, "cpu")
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    print(json.dumps(found))


def compiled_for_an_h100(
    kernel: Any,
    constants: Mapping[str, Any],
    *,
    axes: int = 0,
    warps: int,
    of: str = "fp32",
    fp32: Sequence[str] = (),
    i32: Sequence[str] = (),
) -> Any:
    """A kernel whose `of_*` are strides over so many axes, of tensors in that precision but for those of another."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature: dict[str, Any] = {}
    for name in kernel.arg_names:
        if name in constants:
            signature[name] = "constexpr"
        elif name.startswith("of_"):
            signature[name] = ("i32",) * axes
        else:
            number = name in ("batch", "heads", "parts", "length", "tokens", "span", "jump")
            kind = "fp32" if name in fp32 else "i32" if name in i32 else of
            signature[name] = "i32" if number else f"*{kind}"
    constants = {name: value for name, value in constants.items() if name in signature}
    by_16: Any = [["tt.divisibility", 16]]
    kinds = list(enumerate(signature.values()))
    aligned = {(place,): by_16 for place, kind in kinds if kind[0] == "*"}
    aligned |= {(place, axis): by_16 for place, kind in kinds if isinstance(kind, tuple) for axis in range(axes)}
    source = ASTSource(kernel, signature, constants, aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
    # Triton makes some sums of products such ones by itself, and they are those of 10 bits.
    in_tf32 = re.search(r"inputPrecision = tf32\b", compiled.asm["ttir"])  # and not in three of them, tf32x3
    assert not in_tf32, "a product in TF32 that nobody asked for"
    if "wgmma" in compiled.asm["ptx"]:  # addresses of what such products multiply are sums that may lose a zero
        from instruments.machine_code import disassembled, lost_zeros

        with tempfile.TemporaryDirectory() as folder:
            code = disassembled(compiled.asm["cubin"], Path(folder))
        assert not lost_zeros(code), "it reads elsewhere than it was told"
    return compiled


def registers_and_spilled(cubin: bytes, folder: Path) -> tuple[int, int]:
    """Registers of a thread, and bytes of what did not fit into them."""
    import triton

    (folder / "cubin").write_bytes(cubin)
    dump = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    usage = subprocess.run([dump, "-res-usage", folder / "cubin"], capture_output=True, text=True, check=True).stdout
    registers, spilled = (int(re.search(rf"{name}:(\d+)", usage)[1]) for name in ("REG", "STACK"))
    return registers, spilled
