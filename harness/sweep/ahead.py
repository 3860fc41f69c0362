"""Compile the next pack while this one trains.

    with Ahead(settings) as ahead:
        ahead.prepare(job)      another process fills torch.compile's cache with the steps of the next pack

torch.compile caches its output on disk, keyed by the graph. On a GPU the first steps of a pack wait for compilation,
while the GPU does nothing. LSTM packs of nine in the public experiment took 9 s on a busy CPU core, and 2 s with a full
cache. xLSTM[1:1] took 18 and 4 s. The other process takes the first steps with the same shapes and compiles them. It
starts when the pack in training has allocated its memory, uses at most half of the GPU's free memory and writes no
record. If it fails, the pack compiles as usual.
"""

import json
import os
import subprocess
import sys
from threading import Timer
from typing import Any

import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.registry import load_plugin
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.sweep.engines.base import Job
from chomsky_ladder.harness.sweep.sources import sources
from chomsky_ladder.harness.train.machine import find_device
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.harness.train.steps import WARM_UP, PlainSteps, compiles

WAIT = 20.0  # seconds until a pack has compiled and recorded its own steps
_SHARE = 0.5  # of a GPU's free memory


class Ahead:
    def __init__(self, settings: Exec, *, wait: float = WAIT) -> None:
        self._settings, self._wait = settings, wait
        self._timer: Timer | None = None
        self._helper: subprocess.Popen[str] | None = None

    def __enter__(self) -> "Ahead":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def prepare(self, job: Job) -> None:
        """Start the helper after some time, unless it is stopped before."""
        self.stop()
        device = find_device(self._settings.device)
        if (os.cpu_count() or 1) > 1 and compiles(self._settings, device, steps=job.runs[0].train.steps):
            self._timer = Timer(self._wait, self._begin, [job])
            self._timer.daemon = True
            self._timer.start()

    def wait(self) -> int | None:
        """Return the exit code of the helper; None if there was none."""
        if self._timer:
            self._timer.join()
        return self._helper.wait() if self._helper else None

    def stop(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer.join()
        if self._helper:
            self._helper.kill()
            self._helper.wait()
        self._timer = self._helper = None

    def _begin(self, job: Job) -> None:
        told = {"runs": [run.plain() for run in job.runs], "sources": sources(job.runs), "path": sys.path}
        told |= {"device": self._settings.device, "backend": self._settings.backend}
        command = [sys.executable, "-m", __name__]
        self._helper = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
        )
        assert self._helper.stdin
        with self._helper.stdin as told_to:
            told_to.write(json.dumps(told))


def _compile(told: dict[str, Any]) -> None:
    """Take the first steps of a pack in the helper process. Only the compiler's cache remains."""
    os.nice(10)
    torch.set_num_threads(1)
    sys.path += [folder for folder in told["path"] if folder not in sys.path]
    for source in told["sources"]:
        load_plugin(source)
    device = find_device(told["device"])
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        free, all_there_is = torch.cuda.mem_get_info(index)
        torch.cuda.set_per_process_memory_fraction(_SHARE * free / all_there_is, index)
    pack = Pack([Run.from_plain(tree) for tree in told["runs"]], device=device, backend=told["backend"])
    PlainSteps(pack, compiling=True).advance(0, WARM_UP, lambda step: None)


if __name__ == "__main__":
    _compile(json.load(sys.stdin))
