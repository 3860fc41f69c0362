"""`ladder doctor --selftest`: is this machine right, a stage at a time, each in processes with a limit of their own.

A stage compares what runs here with something slower and surer: strings with those of a CPU, gradients with float64 by
the plain forms, replays with plain steps. A line of JSON a stage, as it ends; what a device has no use for says why.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from chomsky_ladder.harness.cli import describe
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.protocols import preset_run
from chomsky_ladder.harness.config.registry import all_models, all_tasks, find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.train.compiled import apart
from chomsky_ladder.harness.train.loop import execute
from chomsky_ladder.harness.train.machine import driver, find_device, let_go, pinned
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.harness.train.steps import PlainSteps, captures, stepper
from chomsky_ladder.tasks.draw import Draw

Facts = dict[str, Any]
Part = tuple[int, int]  # which, of how many
WHOLE: Part = (1, 1)
CPU = torch.device("cpu")
TIMED = ("lstm", "xlstm", "transformer", "mamba", "retention", "rwkv6")
MEMORY = 64 << 20  # bytes that may stay reserved behind a pack


class Wrong(Exception):
    """A failure that a stage found."""


def environment(device: torch.device) -> Facts:
    """Describe the machine: its devices, the packages a run uses, and the driver."""
    return {**describe.machine(), "driver": driver()}


def _runs(model: str, count: int, precision: Any) -> list[Run]:
    """Small ones that differ in their seeds."""
    train = Train(steps=40, batch=4, lengths=(3, 8), lr=1e-2, precision=precision)
    score = Eval(lengths=(8, 12), test=64, validation=16, every=0, bins=(8, 12), extrapolate=())
    run = Run(task=find_task("cycle_nav")(), model=find_model(model).tiny(), train=train, eval=score)
    return [replace(run, seed=seed) for seed in range(count)]


def strings(device: torch.device) -> Facts:
    """Compare the strings of every task with those of a CPU; on a CPU, with those of another batch."""
    wrong = []
    for name, (cls, *_) in sorted(all_tasks().items()):
        task = cls()
        legal = task.legal_lengths(3, 40)
        lengths_B = torch.tensor([legal[row % len(legal)] for row in range(32)])
        wanted = task.sample(_draw(CPU, 32), lengths_B, max(map(task.positions, legal)))
        rows = 32 if device.type != "cpu" else 16
        found = task.sample(_draw(device, rows), lengths_B[:rows].to(device), max(map(task.positions, legal)))
        same = all(torch.equal(one.cpu(), other[:rows]) for one, other in zip(found, wanted, strict=True))
        wrong += [] if same else [name]
    if wrong:
        raise Wrong(f"other strings than on a CPU: {', '.join(wrong)}")
    return {"tasks": len(all_tasks())}


def _draw(device: torch.device, rows: int) -> Draw:
    return Draw(seed=0, split="selftest", rows_B=torch.arange(rows, device=device))


def kernels(device: torch.device, models: Sequence[str]) -> Facts:
    """Gradients of models by the kernels taken here, alone and stacked, beside the plain forms in float64."""
    return _compared(device, models, {"fp32": 1e-2, "bf16": 0.5}, steps=1)


def golden(device: torch.device, models: Sequence[str]) -> Facts:
    """Five steps of training in float64, as by the plain forms on a CPU."""
    return _compared(device, models, {"fp64": 1e-7}, steps=5)


def _compared(device: torch.device, models: Sequence[str], tolerances: dict[str, float], *, steps: int) -> Facts:
    taken, wrong = {}, []
    for model in models:
        for count in (1, 3) if find_model(model)().stackable else (1,):
            wanted = _gradient(_runs(model, count, "fp64"), CPU, "reference", steps)[0]
            for precision, tolerance in tolerances.items():
                found, used = _gradient(_runs(model, count, precision), device, "auto", steps)
                off = float((found - wanted).norm() / wanted.norm())
                taken[f"{model} x{count} {precision}"] = [float(f"{off:.1e}"), *sorted(used)]
                wrong += [] if off <= tolerance else [f"{model} x{count} {precision} is off by {off:.1e}"]
    if wrong:
        raise Wrong("; ".join(wrong))
    return {"compared": taken}


def _gradient(runs: list[Run], device: torch.device, backend: str, steps: int) -> tuple[torch.Tensor, set[str]]:
    pack = Pack(runs, device=device, backend=backend)
    PlainSteps(pack, compiling=False).advance(0, steps - 1, lambda done: None)
    gradient_RP, *_ = pack.gradients(pack.step_number, pack.draw(pack.step_number, 8))
    return gradient_RP.double().cpu(), pack.backends


def capture(device: torch.device, models: Sequence[str]) -> Facts:
    """Forty steps from graphs beside forty plain ones, and what of them torch.compile takes."""
    if device.type != "cuda":
        return {"skipped": "nothing is captured on a CPU"}
    taken, wrong = {}, []
    for model in models:
        for count in (1, 3) if find_model(model)().stackable else (1,):
            runs = _runs(model, count, "fp32")
            plain, replayed = (Pack(runs, device=device, backend="auto") for _ in range(2))
            PlainSteps(plain, compiling=False).advance(0, 40, lambda done: None)
            steps = stepper(replayed, Exec(compile="on" if model in TIMED else "off"))
            steps.advance(0, 40, lambda done: None)
            losses = [[seen.loss for seen in pack.seen()] for pack in (plain, replayed)]
            close = all(abs(one - other) <= 1e-3 * abs(one) for one, other in zip(*losses, strict=True))
            compiled = sorted(name for name in replayed.backends if name.startswith("compiled"))
            taken[f"{model} x{count}"] = [*compiled, *steps.refused, f"{steps.preparing:.1f} s"]
            wrong += [] if close else [f"{model} x{count}: {losses}"]
    if wrong:
        raise Wrong("; ".join(wrong))
    return {"captured": taken}


def compiled(device: torch.device, models: Sequence[str]) -> Facts:
    """Gradients of a published size, compiled, beside plain ones: of large tensors compilers choose other strides."""
    if device.type != "cuda":
        return {"skipped": "nothing is compiled on a CPU unless it is asked for"}
    taken, wrong = {}, []
    for model in (name for name in models if name in TIMED):
        run = preset_run("parity", model, protocol="xlstm_20k")
        pack = Pack([replace(run, seed=seed) for seed in range(3)], device=device, backend="auto")
        steps = stepper(pack, Exec(compile="on"))
        batch = pack.draw(pack.step_number, run.train.longest(0))
        plain, found = (pack.parts.gradients(pack.step_number, batch)[0] for _ in range(2))  # the first is plain
        taken[model] = [float(f"{apart(pack, found, plain):.1e}"), *sorted(steps.refused)]
        wrong += [f"{model}: {name} {why}" for name, why in steps.refused.items()]
        del pack, steps, plain, found
        let_go(device)
    if wrong:
        raise Wrong("; ".join(wrong))
    return {"apart": taken}


def scoring(device: torch.device, folder: Path) -> Facts:
    """Compare a run's scores with graphs and without, and check the memory that is left after its pack."""
    results, held = {}, []
    for how in ("auto", "off"):
        settings = Exec(device=str(device), capture=how, results=folder / how)
        results[how] = execute(_runs("lstm", 1, "fp32")[0], settings, quiet=True)
        if results[how]["status"] != "done":
            raise Wrong(f"with capture {how} the run ended as {results[how]['status']}")
        held.append(torch.cuda.memory_reserved(device) if device.type == "cuda" else 0)
    if max(held) > MEMORY:
        raise Wrong(f"{max(held) >> 20} MiB of the device are held when nothing runs")
    if torch.backends.cudnn.allow_tf32:  # as a run has it, which a stage runs like
        raise Wrong("fp32 is TF32 in cuDNN")
    losses = [results[how]["test"]["loss"] for how in ("auto", "off")]
    if abs(losses[0] - losses[1]) > 1e-3 * abs(losses[1]):
        raise Wrong(f"test losses {losses} with graphs and without")
    return {"backends": results["auto"]["backends"], "reserved": held, "refused": results["auto"].get("refused", {})}


def speed(device: torch.device) -> Facts:
    """Milliseconds a step at the published width and batch of a GPU, or at a CPU's; alone and as a pack of nine."""
    cuda = device.type == "cuda"
    protocol, found = ("xlstm_20k" if cuda else "xlstm_cpu"), {}
    for model in TIMED if cuda else TIMED[:1]:
        run = preset_run("parity", model, protocol=protocol)
        for count in (1, 9) if cuda else (1,):
            pack = Pack([replace(run, seed=seed) for seed in range(count)], device=device, backend="auto")
            steps = stepper(pack, Exec(compile="off", capture="auto"))
            steps.advance(0, 13, lambda done: None)
            start = time.monotonic()
            steps.advance(13, 33, lambda done: None)
            pack.seen()  # waits for the device
            found[f"{model} x{count}"] = round((time.monotonic() - start) * 50, 3)
            del pack, steps
            let_go(device)
    return {"ms": found, "protocol": protocol, "captured": captures(Exec(), device)}


def learning(device: torch.device, folder: Path) -> Facts:
    """An LSTM learns parity in seconds."""
    run = preset_run("parity", "lstm", protocol="quick")
    result = execute(run, Exec(device=str(device), results=folder), quiet=True)
    if result["status"] != "done":
        raise Wrong(f"the run ended as {result['status']}")
    accuracy = result["test"]["accuracy"]
    if accuracy < 0.9:
        raise Wrong(f"an LSTM has {accuracy:.3f} of parity right")
    return {"accuracy": accuracy, "seconds": result["seconds"], "backends": result["backends"]}


STAGES: dict[str, Callable[..., Facts]] = {
    stage.__name__: stage
    for stage in (environment, strings, kernels, golden, capture, compiled, scoring, speed, learning)
}
# By what they took on 16 processors beside an H100, and what half of them make of it.
SHARES = {
    "environment": 1.0,
    "strings": 1.5,
    "kernels": 3.0,
    "golden": 2.0,
    "capture": 5.0,
    "compiled": 7.0,
    "scoring": 1.0,
    "speed": 3.0,
    "learning": 2.0,
}


SKIPPED_ON_A_CPU = ("capture", "compiled")
BY_MODEL = (kernels, golden, capture, compiled)
IN_A_ROOM = (scoring, learning)


def one_stage(name: str, device: str, part: Part = WHOLE, models: Sequence[str] = ()) -> Facts:
    """Carry out a stage in this process, for all models or for a part of them. Nobody keeps its runs."""
    there, stage, (which, of) = find_device(device), STAGES[name], part
    with pinned(1), tempfile.TemporaryDirectory() as room:
        try:
            if stage in BY_MODEL:
                facts = stage(there, sorted(models or all_models())[which - 1 :: of])
            else:
                facts = stage(there, Path(room)) if stage in IN_A_ROOM else stage(there)
        except Wrong as wrong:
            return {"ok": False, "wrong": str(wrong)}
    return {"ok": True, **facts}


def stages(names: tuple[str, ...], device: str, *, minutes: float, jobs: int) -> Iterator[Facts]:
    """Run each stage in processes of its own, with its share of the minutes. Print a line as each ends."""
    device = str(find_device(device))
    for name in names:
        counted = [SHARES[each] for each in SHARES if device != "cpu" or each not in SKIPPED_ON_A_CPU]
        limit = max(1.0, 60 * minutes * SHARES[name] / sum(counted))
        command = [sys.executable, "-m", "chomsky_ladder", "doctor", "--stage", name, "--device", device]
        parts = jobs if STAGES[name] in BY_MODEL else 1
        commands = [[*command, "--part", f"{which}/{parts}"] for which in range(1, parts + 1)]
        start = time.monotonic()
        with ThreadPoolExecutor(parts) as pool:
            found = list(pool.map(_found, commands, [limit] * parts))
        yield {"stage": name, "device": device, **together(found), "s": round(time.monotonic() - start, 1)}


def together(parts: Sequence[Facts]) -> Facts:
    """Join what the parts of a stage found: all is well where each part is."""
    facts: Facts = {"ok": all(part["ok"] for part in parts)}
    for part in parts:
        for name, fact in part.items():
            if name == "wrong" and "wrong" in facts:
                facts["wrong"] = "; ".join(dict.fromkeys([*facts["wrong"].split("; "), fact]))
            elif isinstance(fact, dict):
                facts[name] = dict(sorted((facts.get(name, {}) | fact).items()))
            elif name != "ok":
                facts[name] = fact
    return facts


def _found(command: list[str], limit: float) -> Facts:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"ok": False, "wrong": f"over its {limit:.0f} s"}
    except (IndexError, ValueError):
        return {"ok": False, "wrong": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]}
