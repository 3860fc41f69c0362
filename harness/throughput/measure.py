"""Measure times the way kernel libraries do, and the best speeds of the machine.

    CPU     process time of one thread, which neighbours hardly disturb, with wall time beside it; for several threads
            wall time alone
    CUDA    events, with the L2 cache overwritten before every repetition of work that would not find its data there

After a few warm-up calls, at least 30 are timed. The result is the median with the 20th and 80th percentile. Calls too
short for a clock are timed in blocks of many. A CUDA graph replays the recorded first calls with one launch instead of
hundreds. Running out of memory is a result, too: `ran_out` distinguishes it from a mistake.
"""

import contextlib
import gc
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.harness.train.replays import WARM_UP, Act
from chomsky_ladder.models.scans.products import product

REPEATS = 30
BLOCK_MS = 5.0  # the shortest block of short calls
_LONGEST_BLOCK = 256
_COPIED = {"cpu": 1 << 28, "cuda": 1 << 31}  # bytes
_PRODUCT = {"cpu": 2048, "cuda": 8192}  # rows and columns
_CEILING_ROUNDS = 6

Stamp = tuple[float, float]  # ms of the process, ms of wall time


class Spread(NamedTuple):
    """Milliseconds of one call."""

    ms: float
    p20: float
    p80: float
    wall_ms: float | None  # median wall time, if `ms` is process time

    def named(self, stem: str = "") -> dict[str, float]:
        """Return columns ms, ms_p20, ms_p80 and wall_ms, with a prefix."""
        columns = {f"{stem}ms": self.ms, f"{stem}ms_p20": self.p20, f"{stem}ms_p80": self.p80}
        return columns | ({} if self.wall_ms is None else {f"{stem}wall_ms": self.wall_ms})


class Meter:
    """A clock for one device."""

    def __init__(self, device: torch.device, *, repeats: int = REPEATS, threads: int = 1) -> None:
        self.device, self.repeats, self.by_process = device, repeats, threads == 1
        self._flushed: Tensor | None = None
        if device.type == "cuda":
            size = torch.cuda.get_device_properties(device).L2_cache_size
            self._flushed = torch.empty(2 * max(size, 1 << 20), dtype=torch.int8, device=device)

    @property
    def clock(self) -> str:
        if self.device.type == "cuda":
            return "CUDA events"
        return "process time" if self.by_process else "wall clock"

    def parts(self, acts: Mapping[str, Act], *, flush: bool = True) -> dict[str, Spread]:
        """Time each of the acts, in turn, and `whole`, all of them from the first to the last."""
        for act in acts.values():  # callers have warmed it up otherwise
            act()
        rounds = [self._round(acts, flush=flush) for _ in range(self.repeats)]
        spans = {name: [(row[i], row[i + 1]) for row in rounds] for i, name in enumerate(acts)}
        spans["whole"] = [(row[0], row[-1]) for row in rounds]
        return {name: self._spread(pairs, calls=1) for name, pairs in spans.items()}

    def call(self, act: Act, *, flush: bool = True) -> Spread:
        return self.parts({"act": act}, flush=flush)["whole"]

    def turns(self, acts: Mapping[str, Act]) -> dict[str, Spread]:
        """Time each of the acts by itself, in turns. The order is reversed in every other round, to be fair to both."""
        for act in acts.values():
            for _ in range(WARM_UP):
                act()
        pairs: dict[str, list[tuple[Stamp, Stamp]]] = {name: [] for name in acts}
        for repeat in range(self.repeats):
            for name in reversed(list(acts)) if repeat % 2 else acts:
                start, end = self._round({name: acts[name]}, flush=True)
                pairs[name].append((start, end))
        return {name: self._spread(own, calls=1) for name, own in pairs.items()}

    def fastest(self, act: Act) -> float:
        """Return the milliseconds of the fastest repetition."""
        act()
        return min(self.once(act) for _ in range(self.repeats))

    def once(self, act: Act) -> float:
        """Return the milliseconds of one call."""
        which = 0 if self.device.type == "cpu" and self.by_process else 1
        start, end = self._round({"act": act}, flush=False)
        return end[which] - start[which]

    def blocks(self, act: Act) -> Spread:
        """Time one of many calls in a row, with caches as the previous call left them."""
        act()
        first = self._round({"act": act}, flush=False)
        took = first[1][1] - first[0][1]
        calls = max(1, min(_LONGEST_BLOCK, round(BLOCK_MS / max(took, 1e-6))))

        def block() -> None:
            for _ in range(calls):
                act()

        rounds = [self._round({"block": block}, flush=False) for _ in range(self.repeats)]
        return self._spread([(row[0], row[1]) for row in rounds], calls=calls)

    def first(self, act: Act) -> float:
        """Return the seconds of wall time of a first call, which compiles or tunes."""
        self.settle()
        start = time.perf_counter()
        act()
        self.settle()
        return time.perf_counter() - start

    def settle(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _round(self, acts: Mapping[str, Act], *, flush: bool) -> list[Stamp]:
        if self.device.type == "cuda":
            return self._cuda_round(acts, flush=flush)
        stamps = [_stamp()]
        for act in acts.values():
            act()
            stamps.append(_stamp())
        return stamps

    def _cuda_round(self, acts: Mapping[str, Act], *, flush: bool) -> list[Stamp]:
        """Return event times. The device is idle before, so that an act only waits for its own launches."""
        torch.cuda.synchronize(self.device)
        if flush and self._flushed is not None:
            self._flushed.zero_()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(len(acts) + 1)]
        events[0].record()
        for event, act in zip(events[1:], acts.values(), strict=True):
            act()
            event.record()
        torch.cuda.synchronize(self.device)
        spent = [events[0].elapsed_time(event) for event in events]
        return [(ms, ms) for ms in spent]

    def _spread(self, pairs: list[tuple[Stamp, Stamp]], *, calls: int) -> Spread:
        process, wall = ([(end[i] - start[i]) / calls for start, end in pairs] for i in (0, 1))
        of_process = self.device.type == "cpu" and self.by_process
        low, middle, high = (float(q) for q in np.quantile(process if of_process else wall, (0.2, 0.5, 0.8)))
        return Spread(middle, low, high, float(np.median(wall)) if of_process else None)


def _stamp() -> Stamp:
    return time.process_time() * 1e3, time.perf_counter() * 1e3


def ran_out(error: BaseException) -> bool:
    """Return True if an error means that there was no more memory."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    said = str(error)
    return isinstance(error, RuntimeError) and ("allocate memory" in said or "bad_alloc" in said)


@contextlib.contextmanager
def little_garbage() -> Iterator[None]:
    """Keep the garbage collector from scanning existing objects: those of torch alone take a tenth of a second."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Interrupt work, above all a compiler, after some seconds; 0 for never. Only works in a process's main thread."""
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"over {seconds:g} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def release(device: torch.device) -> None:
    """Free unused memory, so that the next point starts from the same place."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()


def ceilings(meter: Meter, precision: str) -> dict[str, float]:
    """Return GB per second of a large copy and GFLOP per second of a large product, each the best of six."""
    device = meter.device
    source = torch.ones(_COPIED[device.type] // 4, device=device)
    target, size = torch.zeros_like(source), _PRODUCT[device.type]
    # Random numbers: a GPU multiplies constants faster, as fewer of its wires change.
    a = torch.randn(size, size, generator=torch.Generator().manual_seed(0)).to(device)
    a = a.to(torch.bfloat16 if precision == "bf16" else torch.float32)
    rounds = Meter(device, repeats=_CEILING_ROUNDS, threads=1 if meter.by_process else 2)
    acts = {"copy": lambda: target.copy_(source), "product": lambda: product(a, a)}
    best = {name: rounds.fastest(act) for name, act in acts.items()}
    copied, multiplied = 2 * source.nbytes / best["copy"] / 1e6, 2 * size**3 / best["product"] / 1e6
    return {"copy_gb_per_s": round(copied, 2), "product_gflop_per_s": round(multiplied, 2)}
