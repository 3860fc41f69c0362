"""Take training steps of one checkout's models on request: the other end of roofline.py's pipe.

Reads requests from standard input and answers each on standard output, both a line of JSON. All other output goes to
standard error. PYTHONPATH decides which checkout answers, so this file only uses parts of the package that older
checkouts also have.

    {"ask": "make", "model": "lstm_block", "width": 71, "length": 40, "batch": 64}   makes it, or says why it is not run
    {"ask": "step", "model": "lstm_block"}          milliseconds of process time: forward, backward, update
    {"ask": "work", "model": "lstm_block"}          its operations, least bytes and weights
    {"ask": "names", "model": "lstm_block"}         milliseconds of a step's operations, by name and part
    {"ask": "drop", "model": "lstm_block"}          forgets it
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function

from chomsky_ladder.harness.config.registry import find_model
from chomsky_ladder.harness.throughput.bench import Bench, Training
from chomsky_ladder.harness.throughput.grid import Grid, Point, Way
from chomsky_ladder.harness.throughput.measure import Meter, ceilings
from chomsky_ladder.harness.throughput.memory import peak_of
from chomsky_ladder.harness.train.machine import keep_freed_memory, pinned, provenance
from chomsky_ladder.models.backbone import count_parameters

WARM_UP = 3
PROFILED = 5  # steps
PARTS = ("forward", "backward", "update")
PYTHON = "Python"  # time between the operations

Answer = dict[str, Any]


class Steps:
    """The models made so far, and the answers to requests."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.meter = Meter(self.device)
        self.made: dict[str, Training] = {}

    def make(self, model: str, width: int | None, length: int, batch: int) -> Answer:
        try:
            config = find_model(model)()
            if width is not None:
                config = replace(config, d_model=width)
            bench = Bench(config, "parameters", Grid(), self.meter)
            trial = Training(bench, Point(Way(), "train", batch, length))
            for _ in range(WARM_UP):
                trial.step()
        except Exception as error:  # an older checkout may lack the model, or fail on it
            return {"not_run": (str(error).splitlines() or [type(error).__name__])[0]}
        self.made[model] = trial
        return {"parameters": bench.parameters, "backends": sorted(trial.ctx.backends)}

    def step(self, model: str) -> Answer:
        trial, stamps = self.made[model], [time.process_time()]
        for part in PARTS:
            getattr(trial, part)()
            stamps.append(time.process_time())
        return {part: 1e3 * (stamps[i + 1] - stamps[i]) for i, part in enumerate(PARTS)}

    def work(self, model: str) -> Answer:
        """Return the forward pass's operations by harness/throughput/flops.py, and the least traffic."""
        trial = self.made[model]
        tokens, length = trial.inputs_BL.numel(), trial.inputs_BL.shape[1]
        weights = 4 * count_parameters(trial.model)
        saved = peak_of(trial.step, self.device).allocated
        moved = {"forward": weights + saved, "backward": 2 * weights + saved, "update": 7 * weights}
        return {"flops": trial.bench.work.forward(length) * tokens, "bytes": moved}

    def names(self, model: str) -> Answer:
        trial = self.made[model]
        with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiled:
            for _ in range(PROFILED):
                for part in PARTS:
                    with record_function(part):
                        getattr(trial, part)()
        spent: dict[str, Counter[str]] = {part: Counter() for part in PARTS}
        for event in profiled.events() or ():
            part = _part_of(event)
            if part is not None and event.name not in PARTS:
                spent[part][_plain(event.name)] += event.self_cpu_time_total / 1e3 / PROFILED
            elif event.name in PARTS:
                spent[event.name][PYTHON] += event.self_cpu_time_total / 1e3 / PROFILED
        return {part: dict(times.most_common()) for part, times in spent.items()}

    def drop(self, model: str) -> Answer:
        self.made.pop(model, None)
        return {}

    def hello(self) -> Answer:
        return {"provenance": provenance()}

    def ceilings(self) -> Answer:
        return ceilings(self.meter, "fp32")


def _part_of(event: FunctionEvent) -> str | None:
    """Return the part of a step in which an operation ran."""
    above = event.cpu_parent
    while above is not None and above.name not in PARTS:
        above = above.cpu_parent
    return None if above is None else above.name


def _plain(name: str) -> str:
    return name.removeprefix("aten::").removeprefix("autograd::engine::evaluate_function: ")


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr
    keep_freed_memory()
    with pinned(1):
        steps = Steps()
        for line in sys.stdin:
            request = json.loads(line)
            act: Callable[..., Answer] = getattr(steps, request.pop("ask"))
            print(json.dumps(act(**request)), file=answers, flush=True)


if __name__ == "__main__":
    main()
