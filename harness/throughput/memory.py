"""Measure peak memory, under a bound that makes allocations fail before they bring down the machine.

Allocated memory is the most that torch's allocators had handed out: on CUDA by their own count, on a CPU by the
profiler's ordered record of every allocation. Reserved memory is what they held for that: CUDA's pools, or on a CPU the
growth of the process's resident memory, by Linux's high-water mark. Both count from before the call. The caller adds
what is always there (weights, moments).

When a CPU runs out of memory, some process is killed. `bounded` limits a process's memory, so that an allocation fails.
"""

import contextlib
import ctypes
import resource
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig

SHARE = 0.9  # of the available memory that a point may take
_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # see proc(5): sets VmHWM to the present resident size


class Peak(NamedTuple):
    """Bytes above those before the call."""

    allocated: int
    reserved: int | None  # None where the system does not tell


def peak_of(act: Callable[[], Any], device: torch.device) -> Peak:
    """Return the peak of one call, after another call as warm-up."""
    if device.type == "cuda":
        return _cuda_peak(act, device)
    return Peak(_highest(_allocations(act)), _resident_growth(act))


def _cuda_peak(act: Callable[[], Any], device: torch.device) -> Peak:
    torch.cuda.reset_peak_memory_stats(device)
    before, held = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    act()
    torch.cuda.synchronize(device)
    allocated = torch.cuda.max_memory_allocated(device) - before
    return Peak(allocated, torch.cuda.max_memory_reserved(device) - held)


def _allocations(act: Callable[[], Any]) -> list[int]:
    """Return the bytes of every allocation, negative when freed, in order.

    Uses torch's older profiler: the newer one takes a tenth of a second to start, and prints a line.
    """
    kinds = (False, True, False, False, False)  # record memory alone
    torch._C._autograd._enable_profiler_legacy(ProfilerConfig(ProfilerState.CPU, *kinds, _ExperimentalConfig()))  # pyright: ignore[reportAttributeAccessIssue]
    try:
        act()
    finally:
        threads = torch._C._autograd._disable_profiler_legacy()  # pyright: ignore[reportAttributeAccessIssue]
    return [event.cpu_memory_usage() for events in threads for event in events if event.kind() == "memory_alloc"]


def _highest(sizes: Sequence[int]) -> int:
    held = highest = 0
    for size in sizes:
        held += size
        highest = max(highest, held)
    return highest


def _resident_growth(act: Callable[[], Any]) -> int | None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    before = _status("VmRSS")
    try:
        _CLEAR.write_text(_RESET_PEAK, "ascii")
    except OSError:
        before = None
    act()
    highest = _status("VmHWM")
    return None if before is None or highest is None else max(0, highest - before)


def _status(key: str) -> int | None:
    """Return a number of bytes from Linux's status of this process; None on other systems."""
    return _read_kilobytes(_STATUS, key)


def _read_kilobytes(path: Path, key: str) -> int | None:
    try:
        lines = path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{key}:")), None)


def free_bytes(device: torch.device) -> int | None:
    """Return the bytes that are available; None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return _read_kilobytes(Path("/proc/meminfo"), "MemAvailable")


@contextlib.contextmanager
def bounded(device: torch.device, most: int | None = None) -> Iterator[None]:
    """Let allocations fail beyond `most` bytes more than now; with None, beyond most of what is available."""
    free, data = free_bytes(device), _status("VmData")
    if device.type == "cuda" or free is None or data is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    room = int(SHARE * free) if most is None else most
    limits = [data + room, *(limit for limit in before if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
