"""The machine of a run: its device, its numerics fingerprint, and the provenance of its result.

Equal fingerprints promise equal bits. With different fingerprints, data are equal and losses are close.
"""

import ctypes
import faulthandler
import functools
import gc
import hashlib
import importlib.metadata
import inspect
import json
import os
import platform
import resource
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.origin import Origin, origin, origin_of_module
from chomsky_ladder.harness.store.checkout import git_state, installed_version
from chomsky_ladder.harness.store.compiled import remove_damaged_kernels
from chomsky_ladder.harness.train.arithmetic import arithmetic
from chomsky_ladder.harness.train.switches import as_runs_say
from chomsky_ladder.models.kernels.choose import available
from chomsky_ladder.models.kernels.kernel import KERNELS
from chomsky_ladder.models.kernels.native import identity
from chomsky_ladder.models.scans.products import library
from chomsky_ladder.tasks.base import Task

PACKAGES = ("torch", "numpy", "einops", "pandas", "pydantic", "tyro")
GPU_PACKAGES = ("triton", "mlstm-kernels", "mamba-ssm", "causal-conv1d", "xlstm")
_ONEDNN = "ONEDNN_MAX_CPU_ISA"
_USUAL = 2**24  # multiplications in a usual matrix product
LIBRARIES = ("MKL_", "DNNL_", "ONEDNN_", "OPENBLAS_", "BLIS_")
_SAME_BITS = ("_NUM_THREADS", "_VERBOSE")  # these do not change bits: each run sets its own threads


def find_device(name: str) -> torch.device:
    """Return the device that the user named. Raise ValueError if it does not exist."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"no such device: {name!r}; there are cpu, cuda and cuda:N") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device {name!r} asked for, but this machine has no CUDA device")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device {name!r} asked for, but this machine has {torch.cuda.device_count()} CUDA devices")
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device {name!r} is not supported; there are cpu, cuda and cuda:N")
    return device


def emulates(precision: str, device: torch.device) -> bool:
    """Return True if the device has no instructions for this precision, so that it is slower than fp32."""
    if precision != "bf16" or device.type != "cpu":
        return False
    return not any(there is True and "bf16" in name for name, there in torch.cpu.get_capabilities().items())


def numerics(
    settings: Exec, device: torch.device, *, pack: int = 1, capture: str = "plain", processes: int = 1
) -> dict[str, Any]:
    """Return everything about the execution that may change the last bits of a number."""
    tf32 = [torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32] if device.type == "cuda" else []
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": settings.threads,
        "torch": str(torch.__version__),  # plain text: a checkpoint holds no other type
        "tf32": tf32,
        "backend": settings.backend,
        "pack": pack,
        "processes": processes,
        "steps": capture,
        "onednn": os.environ.get(_ONEDNN, ""),
        "kernels": [kernel.name for kernel in available() if not kernel.missing()],
        **({"products": by.name} if device.type == "cpu" and (by := library(settings.threads, _USUAL)) else {}),
        "compiled": identity(),
        "arithmetic": arithmetic(device, settings.threads),
        **({"libraries": asked} if (asked := _asked_of_libraries()) else {}),
        **(_of_cuda() if device.type == "cuda" else {}),
    }


def _asked_of_libraries() -> list[str]:
    """Return the environment variables by which matrix libraries choose instructions: they may change last bits."""
    found = ((name, value) for name, value in sorted(os.environ.items()) if name.startswith(LIBRARIES))
    return [f"{name}={value}" for name, value in found if name != _ONEDNN and not name.endswith(_SAME_BITS)]


def _of_cuda() -> dict[str, Any]:
    """Return the GPU libraries that last bits depend on. A CPU's fingerprint leaves them out."""
    installed = {name: version for name in GPU_PACKAGES if (version := _version_if_any(name))}
    return {
        "cuda": str(torch.version.cuda),
        "cudnn": str(torch.backends.cudnn.version()),
        "packages": [f"{name} {version}" for name, version in installed.items()],
    }


def driver() -> str:
    """Return the version of NVIDIA's driver; "" if there is none."""
    try:
        words = Path("/proc/driver/nvidia/version").read_text("utf-8").splitlines()[0].split()
    except (OSError, IndexError):
        return ""
    return next((word for word in words if word[:1].isdigit()), "")


def _version_if_any(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def without_arithmetic(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the numerics as older results and checkpoints have them, without the digest of computed values."""
    return {name: value for name, value in tree.items() if name != "arithmetic"}


def fingerprint(tree: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:12]


@functools.lru_cache(maxsize=1)
def keep_freed_memory() -> bool:
    """Have glibc reuse freed memory instead of returning it to the system after every step. Return True if it will.

    A training step frees and allocates tens of megabytes, and each fresh page costs a fault. On an LSTM of width 64 at
    batch 256 we measured 17,000 faults and 75 ms a step, against none and 45 ms.
    """
    m_trim_threshold, m_mmap_threshold, bound = -1, -3, 1 << 30
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    return bool(mallopt(m_trim_threshold, bound)) and bool(mallopt(m_mmap_threshold, bound))


def let_go(device: torch.device) -> None:
    """Free the memory of a finished pack now, with its CUDA graphs, so that the next pack fits.

    Without this, a process holds for ever the memory of its largest run. After an xLSTM[1:0] of 100,000 parameters we
    measured 1,070 MB, and 450 MB with it.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch._C._cuda_clearCublasWorkspaces()  # one of 32 MiB for each stream that ever multiplied
        torch.cuda.empty_cache()
    elif keep_freed_memory():
        ctypes.CDLL(None).malloc_trim(0)


@functools.lru_cache(maxsize=1)
def avoid_faulty_tiles() -> bool:
    """Keep oneDNN from using the CPU's matrix tiles (AMX) if they kill the process. Return True if that was needed.

    Some virtual machines announce AMX, but stop every user with an illegal instruction, which every bf16 product then
    meets. A forked child tries one product. oneDNN reads its environment variable once, so this runs before its first
    use.
    """
    if os.environ.get(_ONEDNN) or "amx_bf16" not in _cpuinfo("flags"):
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about a fork beside threads: the child only multiplies
        child = os.fork()
    if child == 0:
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        torch.set_num_threads(1)  # the parent's other threads are not in the child, which would wait for them
        torch.ones(64, 64, dtype=torch.bfloat16).mm(torch.ones(64, 64, dtype=torch.bfloat16))
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    faulty = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGILL
    if faulty:
        os.environ[_ONEDNN] = "AVX512_CORE_FP16"
    return faulty


def provenance(*parts: Any) -> dict[str, Any]:
    """Return code, versions, machine and command of this process, and hashes of the source files of a run's parts.

    `plugins` lists the parts that are not ours: the digest of their code, and the distribution and commit they come
    from.
    """
    theirs = plugins_of(*parts)
    return {
        "distribution": "chomsky-ladder",
        "version": installed_version(),
        **git_state(),
        "sources": {type(part).__name__: source_hash(type(part)) for part in parts},
        **({"plugins": {name: found.plain() for name, found in theirs.items()}} if theirs else {}),
        "python": platform.python_version(),
        "packages": dict(_versions()),
        "machine": {
            "system": platform.system(),
            "processor": processor(),
            "cores": os.cpu_count(),
            **({"driver": driver()} if torch.cuda.is_available() else {}),
        },
        "command": [_spelled_out(word) for word in (Path(sys.argv[0]).name, *sys.argv[1:])],
    }


def publishable_provenance() -> dict[str, Any]:
    """Return the provenance of a committed measurement, without names of folders of this machine."""
    made = provenance()
    return {**made, "command": without_folders(made["command"])}


def without_folders(command: Sequence[str]) -> list[str]:
    """Return the words of a command, with absolute paths cut to their last part."""
    return [Path(word).name if Path(word).is_absolute() else word for word in command]


def plugins_of(*parts: Any) -> dict[str, Origin]:
    """Return the origins of a run's task, model and the kernels serving the model, for those that plugins brought."""
    found = {f"{'task' if isinstance(part, Task) else 'model'} {part.name}": origin(type(part)) for part in parts}
    names = {part.name for part in parts}
    for kernel in KERNELS:
        if kernel.serving(names):
            found[f"kernel {kernel.name}"] = origin_of_module(kernel.module)
    return {name: made for name, made in found.items() if made is not None}


def _spelled_out(word: str) -> str:
    """Return a word of a command as valid UTF-8.

    Bytes that are not UTF-8 become Python escapes, since JSON cannot hold them.
    """
    return word.encode("utf-8", "backslashreplace").decode("utf-8")


@functools.lru_cache(maxsize=1)  # what a process has imported does not change
def _versions() -> tuple[tuple[str, str], ...]:
    return tuple((name, importlib.metadata.version(name)) for name in PACKAGES)


@functools.cache
def source_hash(cls: type) -> str:
    """Return the hash of the source file of a class."""
    try:
        return hashlib.sha256(Path(inspect.getfile(cls)).read_bytes()).hexdigest()[:12]
    except (OSError, TypeError):  # a class typed into a session has no file
        return "no file"


@functools.lru_cache(maxsize=1)
def processor() -> str:
    """Return the CPU's model name."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _cpuinfo(key: str) -> str:
    """Return an entry of Linux's /proc/cpuinfo for the first CPU; "" on other systems."""
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines():
            if line.startswith(key):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""


@contextmanager
def pinned(threads: int) -> Iterator[None]:
    """Set the thread count and switches of a run, and restore them afterwards. Freed memory stays with the process."""
    keep_freed_memory()
    avoid_faulty_tiles()
    remove_damaged_kernels()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with as_runs_say():
            yield
    finally:
        torch.set_num_threads(before)
