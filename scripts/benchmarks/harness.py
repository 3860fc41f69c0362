"""Measure what the harness costs: overhead per step against a bare loop, the share of data, samples per second.

    python scripts/benchmark.py harness [--steps 40] [--json]
    python scripts/benchmark.py harness --strings [TASK ..]   only the microseconds per string, of these tasks or of all

The bare loop has the same model, batch shape, loss, clipping and AdamW, over one batch made beforehand. The difference
is what the harness adds. Steps of the two alternate, so that a drift of the machine's speed slows both alike. The
results are medians, with the 20th and 80th percentile of the ratio step by step.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.config.registry import all_models, all_tasks, find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.config.sizing import total_parameters
from chomsky_ladder.harness.train.build import build_model
from chomsky_ladder.harness.train.data import TrainingStream
from chomsky_ladder.harness.train.forward import loss_of
from chomsky_ladder.harness.train.machine import find_device, pinned, processor
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Context
from chomsky_ladder.tasks.base import Batch, Task
from chomsky_ladder.tasks.draw import Draw

WARM_UP = 5


def overhead(steps: int, device: torch.device) -> dict[str, Any]:
    """Time the LSTM of width 64 on parity at batch 256 and length 40, in the harness and in a bare loop."""
    run = Run(
        task=find_task("parity")(),
        model=find_model("lstm")(d_model=64),
        train=Train(steps=10**6, batch=256),
        eval=Eval(every=0),
    )
    stream = TrainingStream([run], device)
    pack = Pack([run], device=device, backend="auto")
    bare = _bare_loop(run, stream, device, _loss_at_the_end)
    counter = iter(range(10**6))

    def inside_the_harness() -> None:
        pack.advance(40)
        pack.seen()

    inside, outside = _alternating(inside_the_harness, bare, steps, device)
    made = _times(lambda: stream.batch(next(counter), longest=40), steps, device)
    ratio = np.array(inside) / np.array(outside)
    return {
        "harness_ms": _median(inside),
        "bare_ms": _median(outside),
        "overhead_percent": round(100 * (float(np.median(ratio)) - 1), 2),
        "overhead_p20_p80": [round(100 * (float(np.quantile(ratio, q)) - 1), 2) for q in (0.2, 0.8)],
        "data_ms": _median(made),
        "data_share_percent": round(100 * float(np.median(made)) / float(np.median(inside)), 2),
    }


def _bare_loop(
    run: Run, stream: TrainingStream, device: torch.device, loss_of: Callable[[nn.Module, Batch, Context], Tensor]
) -> Callable[[], None]:
    """Return the training step that one would write without a harness."""
    model = build_model(run, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=run.train.lr, weight_decay=run.train.weight_decay, fused=True)
    batch = stream.batch(0, longest=40)

    def step() -> None:
        loss = loss_of(model, batch, Context())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        assert math.isfinite(loss.item())

    return step


def _loss_at_the_end(model: nn.Module, batch: Batch, ctx: Context) -> Tensor:
    """Return the loss of a task with one answer, read at the last position: all that a loop written for it needs."""
    rows_B = torch.arange(len(batch.length_B), device=batch.length_B.device)
    target_B = batch.targets_BL[rows_B, batch.length_B - 1]
    return nn.functional.cross_entropy(model(batch.tokens_BL, ctx)[rows_B, batch.length_B - 1], target_B)


def samples_per_second(device: torch.device) -> list[dict[str, Any]]:
    """Return for each task the strings made per second, and their share of a training step."""
    rows = []
    for name, classes in sorted(all_tasks().items()):
        step = smallest_step(classes[0](), device)
        row = {"task": name, "step_ms": step, **of_strings(name, device)}
        rows.append(row | {"share_of_step_percent": round(row["us_a_sample_to_40"] * 0.256 / step * 100, 1)})
    return rows


def of_strings(name: str, device: torch.device) -> dict[str, Any]:
    """Time a task's strings at batch 256, for lengths up to 40 and up to 256, or for the task's own lengths."""
    task, row = find_task(name)(), {}
    for low, high in ((3, 40), (40, 256)):
        legal = torch.tensor(task.legal_lengths(*(task.own_lengths or (low, high))), device=device)
        rows_B = torch.arange(256, device=device)
        lengths_B = legal[Draw(seed=0, split="benchmark", rows_B=rows_B).integers(len(legal))]
        width = task.positions(int(legal[-1]))

        def sample(rows_B: Tensor = rows_B, lengths_B: Tensor = lengths_B, width: int = width) -> None:
            task.sample(Draw(seed=0, split="benchmark", rows_B=rows_B), lengths_B, width)

        milliseconds = float(np.median(_times(sample, 50, device)))
        row[f"samples_a_second_to_{high}"] = round(256 / milliseconds * 1e3)
        row[f"us_a_sample_to_{high}"] = round(milliseconds / 256 * 1e3, 2)
    return row


def smallest_model() -> ModelConfig:
    """Return the registered model with the fewest parameters at its default size."""
    return min((classes[0]() for classes in all_models().values()), key=lambda config: total_parameters(config, 12))


def smallest_step(task: Task, device: torch.device) -> float:
    """Return the milliseconds of that model's training step, at batch 256 and lengths to 40, without data."""
    run = Run(task=task, model=smallest_model(), train=Train(steps=10**6, batch=256), eval=Eval(every=0))

    def loss(model: nn.Module, batch: Batch, ctx: Context) -> Tensor:
        return loss_of(model(batch.tokens_BL, ctx), batch, ctx)

    step = _bare_loop(run, TrainingStream([run], device), device, loss)
    return _median(_times(step, 8, device))


def draw_rate(device: torch.device) -> dict[str, float]:
    """Time the bare stream: [256, 40] integers."""
    rows_B = torch.arange(256, device=device)
    times = _times(lambda: Draw(seed=0, split="benchmark", rows_B=rows_B).integers(10, (40,)), 200, device)
    return {"ms": _median(times), "million_values_a_second": round(256 * 40 / float(np.median(times)) / 1e3, 1)}


def _alternating(
    one: Callable[[], Any], other: Callable[[], Any], count: int, device: torch.device
) -> tuple[list[float], list[float]]:
    pairs = [(_timed(one, device), _timed(other, device)) for _ in range(count + WARM_UP)][WARM_UP:]
    return [a for a, _ in pairs], [b for _, b in pairs]


def _times(function: Callable[[], Any], count: int, device: torch.device) -> list[float]:
    return [_timed(function, device) for _ in range(count + WARM_UP)][WARM_UP:]


def _timed(function: Callable[[], Any], device: torch.device) -> float:
    """Return the milliseconds of a call."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    function()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - start) * 1e3


def _median(times: list[float]) -> float:
    return round(float(np.median(times)), 3)


def _print_strings(names: Sequence[str], device: torch.device, *, as_json: bool) -> int:
    """Print task by task, as each is measured."""
    try:
        known = [find_task(name).name for name in names]
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    with pinned(1):
        if as_json:
            print(json.dumps([{"task": name, **of_strings(name, device)} for name in known], indent=1))
            return 0
        print(f"Microseconds a string, batch 256, {processor()}\n  {'':24}  {'to 40':>8}  {'to 256':>8}")
        for name in known:
            row = of_strings(name, device)
            print(f"  {name:24}  {row['us_a_sample_to_40']:8.2f}  {row['us_a_sample_to_256']:8.2f}", flush=True)
    return 0


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmark.py harness", description=str(__doc__).split("\n")[0])
    parser.add_argument("--steps", type=int, default=40, help="timed steps of each loop")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--strings", nargs="*", metavar="TASK", help="time nothing but strings: these tasks', or all")
    options = parser.parse_args(words)
    device = find_device(options.device)
    if options.strings is not None:
        return _print_strings(options.strings or sorted(all_tasks()), device, as_json=options.json)
    with pinned(1):
        report = {
            "machine": {"processor": processor(), "threads": 1, "torch": torch.__version__, "device": str(device)},
            "step": overhead(options.steps, device),
            "draw": draw_rate(device),
            "smallest_model": smallest_model().name,
            "tasks": samples_per_second(device),
        }
    if options.json:
        print(json.dumps(report, indent=1))
        return 0
    print("  ".join(f"{key} {value}" for key, value in report["machine"].items()))
    step = report["step"]
    print("\nTraining step: lstm d_model 64, parity, batch 256, length 40 (median)")
    print(f"  bare loop  {step['bare_ms']:8.2f} ms")
    low, high = step["overhead_p20_p80"]
    print(f"  harness    {step['harness_ms']:8.2f} ms   {step['overhead_percent']:+.1f} % ({low:+.1f} .. {high:+.1f})")
    print(f"  its data   {step['data_ms']:8.2f} ms   {step['data_share_percent']:.1f} % of the step")
    print(f"\nDraw of [256, 40] integers: {report['draw']['ms']} ms")
    model = report["smallest_model"]
    print(f"\nSamples at batch 256, lengths up to 40 and up to 256; the share is of a step of {model} on the task")
    print(f"  {'':24}  {'a second':>10}  {'us each':>8}  {'share':>7}  {'a second':>10}  {'us each':>8}")
    for row in report["tasks"]:
        print(
            f"  {row['task']:24}  {row['samples_a_second_to_40']:10,}  {row['us_a_sample_to_40']:8.2f}"
            f"  {row['share_of_step_percent']:5.1f} %"
            f"  {row['samples_a_second_to_256']:10,}  {row['us_a_sample_to_256']:8.2f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
