"""Kernels in C for a CPU: compiled by the machine's own compiler when first asked for, and kept for later processes.

`kernel("slstm_forward", torch.float32)` takes tensors, which it sees as addresses alone: the caller vouches for their
type, size and order in memory. The sources beside this file are compiled once for float and once for double, for the
very processor they are to run on: what is kept goes by the hash of the sources, the flags and what the compiler says of
itself and of the processor. Without a compiler the models compute the same in plain torch.

The sources' bytes are part of a record's fingerprint, their comments too: those name scans/ and layers/ as they stood
in models/ before, since a comment is no reason for a resumed run to be called mixed.
"""

import contextlib
import ctypes
import fcntl
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from chomsky_ladder.models.block import Context

HERE = Path(__file__).parent
SOURCES = sorted(HERE.glob("_native_*.c"))
FLAGS = (
    *("-O3", "-march=native", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math"),
    # For AMD's processors GCC would part products from sums where one sum waits for itself: a row of a product would
    # not be the same beside any others.
    *("-ffp-contract=fast", "--param=avoid-fma-max-bits=0", "-shared", "-fPIC"),
    # For Intel's processors GCC would make halves, which a whole vector then waits for.
    *(["-mprefer-vector-width=512"] if platform.machine() in ("x86_64", "AMD64") else []),
)
REAL = {torch.float32: "float", torch.float64: "double"}
PATIENCE_S = 120
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
    """What the kernels' last bits depend on besides their inputs; empty where there are none."""
    return "" if missing() else Path(_library(torch.float32)._name).stem


@functools.lru_cache
def _library(dtype: torch.dtype) -> ctypes.CDLL:
    command = [*_compiler(), *FLAGS, f"-DREAL={REAL[dtype]}"]
    parts = [*(path.read_text("utf-8") for path in sorted(HERE.glob("_native*.[ch]"))), *command]
    parts.append(_run([*command, "-dM", "-E", "-x", "c", os.devnull]))  # every macro: its version and its target
    name = f"{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:24]}.so"
    with _folder() as folder:
        if not (folder / name).exists():
            with _alone(folder):
                if not (folder / name).exists():
                    _compile(command, folder / name)
        return ctypes.CDLL(str(folder / name))


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While no other process compiles there, unless one takes too long or the folder knows no locks."""
    held = os.open(folder, os.O_RDONLY)
    try:
        for _ in range(10 * PATIENCE_S):
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.1)
            except OSError:
                break
            else:
                break
        yield
    finally:
        os.close(held)


def _compile(command: list[str], library: Path) -> None:
    if sys.stderr and sys.stderr.isatty():  # someone waits
        print("compiling the kernels in C for this processor, once: a minute of one core", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as room:
        made = Path(room) / library.name
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(lambda source: _compiled(command, source, Path(room)), SOURCES))
        _run([*command, *objects, "-lm", "-o", str(made)])
        made.replace(library)  # whole at once, whoever else is compiling it


def _compiled(command: list[str], source: Path, room: Path) -> str:
    made = str(room / f"{source.stem}.o")
    _run([*command, "-c", str(source), "-o", made])
    return made


def _compiler() -> list[str]:
    asked = shlex.split(os.environ.get("CC", ""))
    found = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if asked:
        return asked
    if found is None:
        raise RuntimeError("no C compiler on the PATH")
    return [found]


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {(done.stderr.strip() or f'exit {done.returncode}').splitlines()[0]}")
    return done.stdout


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Where compiled kernels are kept: with the user's caches, or nowhere for longer than it takes to load them."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "chomsky-ladder"
        folder.mkdir(parents=True, exist_ok=True)
        keeps = os.access(folder, os.W_OK | os.X_OK)
    except (OSError, RuntimeError):  # no home, or one that is not ours
        keeps = False
    if keeps:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="chomsky-ladder-") as room:
        yield Path(room)
