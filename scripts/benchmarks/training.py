"""Measure the speed of training, alone and in packs, what bounds a step, and the public xLSTM experiment.

    python scripts/benchmark.py training [--device cuda] [--packs 3 9] [--padded 1:0] [--json] [--out FOLDER]

Every row is a way to take the steps of one model: `plain`, `captured` (replays of a CUDA graph), `packed R` (R seeds as
one step; captured on CUDA). Each is a Pack (harness/train/pack.py) under a stepper (harness/train/steps.py). A way that
cannot run says why. Ways alternate turn by turn, the order reversed in every other round. Medians stand with their 20th
and 80th percentile. Times are process time of one thread on a CPU, where other work on the machine hardly shows, and
wall time on CUDA. `gain` is what a pack gains for each replica: (ms of the single run x R) / ms, the single one
captured on CUDA.

`calls` of a step are CUDA kernels, or on a CPU the ATen operators that no other one called. A step's parts are timed
separately in plain steps. GFLOP are of products only, as FlopCounterMode sees them, and counted on the reference path,
since it cannot see into a fused recurrence. R replicas have R times a single run's. MB are a simple model: a weight is
read by the forward and the backward pass, its gradient written and read, and it and its two moments read and written by
AdamW. Tensors saved for the backward pass are written and read once, each storage counted once. Both are compared with
what a large product in the run's precision and a large copy reach here.

Rows `as in the package` have the public experiment's blocks (a convolution, recurrent matrices of 0). Beside them,
interleaved, is the package in its authors' own loop: public_xlstm.py says what that does and what is left out. `times
ours` is the time of a step there divided by that of a step here, data included.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from public_xlstm import Sizes, ceilings, interleaved, now, public_rows, rates, run_of
from torch.profiler import ProfilerActivity, profile

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.harmless import csv_of
from chomsky_ladder.harness.throughput.flops import flop_counter
from chomsky_ladder.harness.train.machine import find_device, pinned, processor, publishable_provenance
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.harness.train.steps import UNROLLED, WARM_UP, PlainSteps, stepper
from chomsky_ladder.models.backbone import count_parameters

RATIOS = ("1:0", "1:1", "0:1")
SPEED = ["model", "way", "parameters", "ms", "ms_p20", "ms_p80", "steps_per_s", "runs_per_hour", "gain", "not_run"]
WORK = ["model", "way", "calls", "draw_%", "forward_%", "backward_%", "update_%", "gflop", "gflop_per_s"]
WORK += ["of_product_%", "mb", "gb_per_s", "of_copy_%", "prepared_s", "backends"]
PUBLIC = [*SPEED[:-2], "loader_ms", "times_ours", "goal", "padding_factor", "not_run"]
COLUMNS = list(dict.fromkeys(["model", "way", "replicas", *SPEED, *WORK, *PUBLIC]))
ROOM = 0.6  # share of the free memory that a pack's saved tensors may take

Row = dict[str, Any]


class Runner:
    """Takes steps of a pack in turns of equal length."""

    def __init__(self, runs: list[Run], *, settings: Exec, device: torch.device) -> None:
        self.device, self.turn_steps = device, UNROLLED if device.type == "cuda" else 1
        self.pack = Pack(runs, device=device, backend="auto")
        self.steps = stepper(self.pack, settings)
        self._done = 0
        self._advance(WARM_UP + UNROLLED if device.type == "cuda" else 1)  # enough to capture a graph

    def turn(self) -> None:
        self._advance(self.turn_steps)

    def _advance(self, count: int) -> None:
        self.steps.advance(self._done, self._done + count, lambda done: None)
        self._done += count

    def calls(self) -> float:
        """Count the kernels or operators of a step."""
        count = kernels if self.device.type == "cuda" else operators
        return round(count(self.turn) / self.turn_steps, 1)

    def parts(self, repeats: int) -> dict[str, float]:
        """Return the share of each part of a plain step, and the milliseconds of its data."""
        if not isinstance(self.steps, PlainSteps) or "compiled" in self.steps.name:
            return {}
        spent: dict[str, list[float]] = {"draw": [], "losses": [], "gradients": [], "update": []}
        parts = self.pack.parts
        self.pack.instead = parts._replace(**{name: self._timed(getattr(parts, name), spent[name]) for name in spent})
        for _ in range(repeats):
            self._advance(1)
        self.pack.instead = None
        draw, forward, both, update = (float(np.median(times)) for times in spent.values())
        shares = {"draw_%": draw, "forward_%": forward, "backward_%": both - forward, "update_%": update}
        whole = draw + both + update
        return {name: round(100 * part / whole, 2) for name, part in shares.items()} | {"loader_ms": round(draw, 3)}

    def _timed(self, part: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            start = now(self.device)
            result = part(*arguments)
            spent.append(now(self.device) - start)
            return result

        return timed


def operators(function: Callable[[], Any]) -> int:
    """Count calls of ATen operators that no other one made."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        function()
    count = 0
    for event in seen.events() or ():
        above = event.cpu_parent
        while above is not None and not above.name.startswith("aten::"):
            above = above.cpu_parent
        count += event.name.startswith("aten::") and above is None
    return count


def kernels(function: Callable[[], Any]) -> int:
    """Count CUDA kernels, without copies and fills of memory."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        function()
        torch.cuda.synchronize()
    on_device = [event for event in seen.events() or () if event.device_type == torch.autograd.DeviceType.CUDA]
    return sum(not event.is_user_annotation and not event.name.startswith("Mem") for event in on_device)


def products(run: Run, device: torch.device) -> float:
    """Return the GFLOP of a step's matrix products and convolutions."""
    pack = Pack([run], device=device, backend="reference")
    with flop_counter() as counter:
        pack.gradients(pack.step_number, pack.draw(pack.step_number, run.train.longest(0)))
    return counter.get_total_flops() / 1e9


def saved_bytes(runs: list[Run], device: torch.device) -> int:
    """Return the bytes that the forward pass of these runs as one pack keeps for the backward pass, without weights."""
    pack = Pack(runs, device=device, backend="auto")
    weights, storages = pack.weight_RP.untyped_storage().data_ptr(), {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() != weights:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    batch = pack.draw(pack.step_number, runs[0].train.longest(0))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        pack.gradients(pack.step_number, batch)
    return sum(storages.values())


def free_bytes(device: torch.device) -> float:
    """Return the bytes of memory that a pack could take; infinite if unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    lines = about.read_text("utf-8").splitlines() if (about := Path("/proc/meminfo")).exists() else []
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")), float("inf"))


def model_rows(
    name: str, run: Run, options: argparse.Namespace, reached: dict[str, float], device: torch.device
) -> Iterator[Row]:
    """Yield a row for each way to train a model. `reached` is what `ceilings` found."""
    torch.compiler.reset()  # a function compiled for more than eight packs would not be compiled for the next
    runs = [replace(run, seed=seed) for seed in range(max(2, *options.packs))]
    ways = {"plain": 1, "captured": 1, **{f"packed {count}": count for count in options.packs}}
    saved, gflop = saved_bytes(runs[:1], device), products(run, device)
    each = saved_bytes(runs[:2], device) / 2 if options.packs and run.model.stackable else 0
    runners: dict[str, Runner] = {}
    not_run = {} if device.type == "cuda" else {"captured": "no CUDA device"}
    for way, count in ways.items():
        free = free_bytes(device)
        if count > 1 and not run.model.stackable:
            not_run[way] = f"{run.model.name} does not stack"
        elif count > 1 and count * each > ROOM * free:
            not_run[way] = f"saves {count * each / 1e9:.1f} GB for its backward pass; {free / 1e9:.1f} are free"
        elif way not in not_run:
            capture, compiling = ("off", "off") if way == "plain" else ("auto", options.compile)
            settings = Exec(device=str(device), capture=capture, compile=compiling)
            runners[way] = Runner(runs[:count], settings=settings, device=device)
    parameters = count_parameters(runners["plain"].pack.models[0])
    turns, steps = {way: runner.turn for way, runner in runners.items()}, runners["plain"].turn_steps
    times = interleaved(turns, dict.fromkeys(turns, options.repeats), device=device, steps=steps)  # pyright: ignore[reportArgumentType]
    single = times.get("captured", times["plain"])["ms"]
    for way, count in ways.items():
        row: Row = {"model": name, "way": way, "replicas": count, "parameters": parameters}
        if way in not_run:
            yield row | {"not_run": not_run[way]}
            continue
        runner, ms = runners[way], times[way]["ms"]
        assert all(seen.live for seen in runner.pack.seen()), "a replica that diverged takes no steps"
        row |= {**times[way], **rates(ms, steps=run.train.steps, replicas=count), "calls": runner.calls()}
        row |= runner.parts(min(3, options.repeats)) | {"prepared_s": round(runner.steps.preparing, 1)}
        if count > 1:
            row["gain"] = round(single * count / ms, 2)
        row["gflop"], row["mb"] = round(count * gflop, 5), round(count * (40 * parameters + 2 * saved) / 1e6, 3)
        row["gflop_per_s"], row["gb_per_s"] = round(1e3 * row["gflop"] / ms, 3), round(row["mb"] / ms, 3)
        row["of_product_%"] = round(100 * row["gflop_per_s"] / reached["product_gflop_per_s"], 2)
        row["of_copy_%"] = round(100 * row["gb_per_s"] / reached["copy_gb_per_s"], 2)
        yield row | {"backends": " ".join(sorted(runner.pack.backends))}


def tables(rows: list[Row]) -> dict[str, pd.DataFrame]:
    """Return the table's three parts as text: speed, work, and the comparison with the package."""
    beside = [row for row in rows if "as in the package" in row["model"]]
    here = [row for row in rows if row not in beside]
    parts = {"Speed": (here, SPEED), "Work": ([row for row in here if "ms" in row], WORK)}
    parts["Beside the public experiment"] = (beside, PUBLIC)
    return {
        name: pd.DataFrame([[_text(row.get(key, "")) for key in keys] for row in part], columns=keys)
        for name, (part, keys) in parts.items()
        if part
    }


def _text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:,}"


def write(folder: Path, report: dict[str, Any]) -> None:
    """Write the table as Markdown and, complete, as CSV, both with their provenance."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "# Training speed\n"
    for name, frame in tables(report["rows"]).items():
        lines = [list(frame.columns), ["---"] * frame.shape[1], *frame.values.tolist()]
        text += "\n".join([f"\n## {name}\n", *(f"| {' | '.join(line)} |" for line in lines), ""])
    about = json.dumps({key: value for key, value in report.items() if key != "rows"}, indent=1)
    (folder / "training.md").write_text(f"{text}\n## Where it comes from\n\n```json\n{about}\n```\n", "utf-8")
    made = {"device": report["device"], "torch": report["torch"], "commit": report["provenance"]["commit"]}
    whole = pd.DataFrame([row | made for row in report["rows"]], columns=[*COLUMNS, *made])
    write_atomically(folder / "training.csv", csv_of(whole).encode())


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmark.py training", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--models", nargs="*", default=["transformer", "lstm", "xlstm[0:1]", "xlstm[1:0]", "mamba"])
    parser.add_argument("--packs", type=int, nargs="*", default=[3, 9, 27], help="replicas of a pack")
    parser.add_argument("--task", default="parity")
    for name, default in (("batch", 256), ("width", 64), ("blocks", 2), ("heads", 1), ("context", 256)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--run-steps", type=int, default=20_000, dest="steps", help="of a run, for runs an hour")
    parser.add_argument("--lengths", type=int, nargs=2, default=[3, 40])
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--compile", choices=("auto", "on", "off"), default="auto", help="of all but the plain way")
    parser.add_argument("--repeats", type=int, default=5, help="timed turns of each way")
    parser.add_argument("--public", nargs="*", choices=RATIOS, default=RATIOS, help="ratios set beside the package")
    parser.add_argument("--padded", nargs="*", choices=RATIOS, default=RATIOS, help="of these, those padded as well")
    parser.add_argument("--public-repeats", type=int, default=2, help="timed steps of the padded loop")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--out", type=Path, help="folder to write training.md and training.csv to")
    options = parser.parse_args(words)
    if min(options.repeats, options.public_repeats) < 1 or any(count < 2 for count in options.packs):
        parser.error("--repeats and --public-repeats start at 1, a pack at 2")
    if options.public and not 2 <= options.lengths[0] <= options.lengths[1] <= options.context:
        parser.error("the public experiment's strings have 2 tokens or more and no more than --context")
    return options


def measured(options: argparse.Namespace, runs: dict[str, Run], sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Return the report: the table's rows, and the versions and machine behind them."""
    reached = ceilings(device, sizes.precision)
    rows = [row for name, run in runs.items() for row in model_rows(name, run, options, reached, device)]
    for ratio in options.public:
        padded = options.public_repeats if ratio in options.padded else 0
        rows += public_rows(ratio, sizes, device=device, repeats=options.repeats, padded_repeats=padded)
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else processor(),
        "torch": str(torch.__version__),
        "settings": {key: value for key, value in vars(options).items() if key not in ("json", "out")},
        "ceilings": reached,
        "rows": rows,
        "provenance": publishable_provenance(),
    }


def main(words: list[str] | None = None) -> int:
    options = parse(words)
    options.lengths = tuple(options.lengths)
    sizes = Sizes(**{field.name: getattr(options, field.name) for field in fields(Sizes)})
    try:
        device = find_device(options.device)
        runs = {name: run_of(name, sizes, task=options.task) for name in options.models}
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    with pinned(1):
        report = measured(options, runs, sizes, device)
    if options.out:
        write(options.out, report)
    if options.json:
        print(json.dumps(report, indent=1))
        return 0
    print(report["device"], report["torch"], *(f"{key} {value}" for key, value in report["ceilings"].items()))
    for name, frame in tables(report["rows"]).items():
        print(f"\n{name}\n{frame.to_string(index=False)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
