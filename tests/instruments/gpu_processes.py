"""Processes that get ready to be timed on a GPU side by side, and one by one have it to themselves.

All others are stopped for so long. What a process has launched outlasts its being stopped, and ten steps of a slow
model take a second, so that before anything is timed a copy has to be as fast as it was when nothing else was there.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any

import torch

READY, GO = "ready", "go"
COPIES, NOISE, LONGEST = 50, 1.1, 15.0  # seconds, that is waited for others' launches


class Process:
    """One that gets a row ready, says so, and waits."""

    def __init__(self, script: str, model: str, replicas: int, words: Sequence[str], memory_mib: int) -> None:
        self.model, self.replicas, self.memory_mib = model, replicas, memory_mib
        self.said: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, script, *words, "--one", model, "--replicas", str(replicas)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            text=True,
            start_new_session=True,
            env=os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "1"},
        )

    def send(self, what: signal.Signals) -> None:
        """Send a signal to the process and all that it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, what)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def timed(self) -> dict[str, Any]:
        """Let the process start, and return what it measures."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{GO}\n")
        self.process.stdin.flush()
        return json.loads(self.line() or "{}") or self.ended()

    def ended(self) -> dict[str, Any]:
        """The row of one that has none."""
        self.send(signal.SIGKILL)
        code = self.process.wait()
        self.said.seek(0)
        lines = self.said.read().strip().splitlines() or [""]
        said = next((line for line in lines if "Error: " in line or "Assertion" in line), lines[-1])
        return {"model": self.model, "replicas": self.replicas, "error": f"exit {code}: {said[:300]}"}

    def close(self) -> None:
        self.send(signal.SIGKILL)
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.said):
            with suppress(BrokenPipeError):
                file.close()  # pyright: ignore[reportOptionalMemberAccess]


class Idle:
    """Tells if anything else uses the GPU, by the time that copies take."""

    def __init__(self) -> None:
        self.x, self.y = torch.zeros(2, 1 << 28, dtype=torch.uint8, device="cuda")
        self.least = min(self.took() for _ in range(9))

    def took(self) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(COPIES):
            self.y.copy_(self.x)
        torch.cuda.synchronize()
        return time.perf_counter() - start

    def wait(self) -> None:
        start = time.perf_counter()
        while max(self.took() for _ in range(3)) > NOISE * self.least and time.perf_counter() - start < LONGEST:
            pass


@contextmanager
def alone(others: Sequence[Process], groups: Sequence[int], settle: Callable[[], None]) -> Iterator[None]:
    """The GPU is nobody else's for so long."""
    send_all(others, groups, signal.SIGSTOP)
    try:
        settle()
        yield
    finally:
        send_all(others, groups, signal.SIGCONT)


def send_all(processes: Sequence[Process], groups: Sequence[int], what: signal.Signals) -> None:
    for process in processes:
        process.send(what)
    for group in groups:
        with suppress(ProcessLookupError):
            os.killpg(group, what)
