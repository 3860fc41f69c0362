"""The first half hour on a new GPU: is it right, what does a step cost, the first cells, what do models cost.

    python scripts/first_light.py right --out FOLDER            9 minutes; then steps, cells, costs, or all
    python scripts/first_light.py all --device cpu --rehearse   small sizes, on any machine: does all of it work?

A stage is a few commands, each with its share of the stage's minutes. When these are over, the command and its process
group are ended, and what it wrote until then is kept. A line of JSON says how each ended. FOLDER/first_light.jsonl has
all lines, and FOLDER/STAGE.tar.gz what the commands wrote, without checkpoints: few and small files, to be carried
away. Started again with the same --work, successful commands are not run again, and sweeps are resumed. Exit code 1:
some command failed.

As a script for `ladder sweep` this file lists the first cells, with the published budget except for the number of
steps: LSTM and sLSTM on three tasks of `xlstm_20k`, 54 runs in 6 packs.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chomsky_ladder.harness.config.protocols import grid
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.sweep.study import study_runs

ROOT = Path(__file__).resolve().parents[1]
# Other pytest plugins on a machine may warn, and a warning is an error.
PYTEST = ("env", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1", sys.executable, "-m", "pytest", "-p", "xdist.plugin")
LADDER = (sys.executable, "-m", "chomsky_ladder")
SMALL = "LADDER_FIRST_LIGHT_SMALL"  # set for a rehearsal's sweep
MODELS = ("lstm", "transformer", "xlstm[0:1]", "xlstm[1:0]", "mamba")
AT_END = 10.0  # seconds that a command has to write what it holds


@dataclass(frozen=True)
class Step:
    """A command of a stage."""

    name: str
    share: float
    """Share of its stage's minutes."""
    words: tuple[str, ...]


def runs() -> list[Run]:
    """Return the first cells, for `ladder sweep`."""
    tasks, models = ("parity", "cycle_nav", "bucket_sort"), ("lstm", ("xlstm", {"ratio": "0:1"}))
    if os.environ.get(SMALL):
        few = [grid(task, "lstm", protocol="quick")[0] for task in tasks[:2]]
        return [
            replace(run, train=replace(run.train, steps=20, stop_after=0), eval=replace(run.eval, every=0))
            for run in few
        ]
    return study_runs("gpu", tasks=tasks, models=models)


def right(device: str, work: Path, minutes: float, *, small: bool) -> list[Step]:
    smi = [Step("nvidia-smi", 0.02, ("nvidia-smi",))] if device != "cpu" else []
    selftest = ("--device", device, "--minutes", f"{0.6 * minutes:g}", "--out", str(work / "selftest"))
    report = ("--junitxml", str(work / "gpu.xml"), "-p", "no:cacheprovider", "-q")
    tests = "tests/harness/train/test_replays.py" if small else "tests"
    return [
        *smi,
        Step("doctor", 0.04, (*LADDER, "doctor", "--json")),
        Step("selftest", 0.62, (*LADDER, "doctor", "--selftest", *selftest)),
        Step("tests", 0.32, (*PYTEST, "-m", "gpu", "-n", "0" if small else "8", *report, tests)),
    ]


def steps(device: str, work: Path, minutes: float, *, small: bool) -> list[Step]:
    benchmark = (sys.executable, str(ROOT / "scripts" / "benchmark.py"), "training", "--device", device)
    if small:
        tiny = (
            "--width=16",
            "--batch=8",
            "--heads=2",
            "--lengths",
            "3",
            "10",
            "--packs=2",
            "--repeats=1",
            "--models=lstm",
        )
        return [Step("fp32", 1.0, (*benchmark, *tiny, "--out", str(work / "fp32")))]
    all_models = (sys.executable, str(ROOT / "tests" / "instruments" / "gpu_steps.py"), "--out", str(work / "models"))
    size = ["--width", "128", "--heads", "4", "--packs", "8", "9", "--repeats", "5"]  # 8 and 9: a second wave shows
    named = ("--models", *MODELS, "--public", "0:1", "--padded", "0:1")
    return [
        Step("models", 0.6, (*all_models, "--minutes", f"{0.58 * minutes:g}")),
        Step("bf16", 0.3, (*benchmark, *size, "--precision", "bf16", *named, "--out", str(work / "bf16"))),
        Step("fp32", 0.1, (*benchmark, *size, "--precision", "fp32", "--models", "lstm", "--out", str(work / "fp32"))),
    ]


def cells(device: str, work: Path, minutes: float, *, small: bool) -> list[Step]:
    results = str(work / "results")
    into = ("--exec.results", results, "--exec.device", device)
    return [
        Step("sweep", 0.94, (*LADDER, "sweep", str(Path(__file__).resolve()), *into)),
        Step("table", 0.06, (*LADDER, "table", "--results", results, "--format", "csv")),
    ]


def costs(device: str, work: Path, minutes: float, *, small: bool) -> list[Step]:
    lengths = ("64", "1024") if not small else ("16",)
    grid_of = ("--grid.lengths", *lengths, "--grid.batches", "64" if not small else "2")
    grid_of += ("--grid.growing", *(("256", "1024", "4096") if not small else ("16", "32")))
    grid_of += ("--grid.prefill", lengths[-1], "--grid.contexts", "1", "4096" if not small else "8")
    grid_of += ("--grid.precisions", "bf16") if not small else ("--grid.precisions", "fp32", "--grid.repeats", "3")
    models = ("lstm", "transformer", "mamba") if not small else ("lstm",)
    out = ("--out", str(work / "throughput"), "--results", str(work / "results"))
    return [Step("throughput", 1.0, (*LADDER, "throughput", "--device", device, "--models", *models, *grid_of, *out))]


STAGES: dict[str, tuple[float, Callable[..., list[Step]]]] = {
    "right": (9.0, right),
    "steps": (8.0, steps),
    "cells": (8.5, cells),
    "costs": (3.5, costs),
}


def carried_out(step: Step, seconds: float, log: Path, *, small: bool) -> dict[str, Any]:
    """Run a command for this many seconds at most. Its output goes to a file of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"} | ({SMALL: "1"} if small else {})
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    start = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        try:
            child = subprocess.Popen(
                step.words, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as error:
            return {"rc": None, "said": f"{step.words[0]}: {error.strerror}", "seconds": 0.0}
        over = False
        for sent, wait in ((signal.SIGTERM, seconds), (signal.SIGKILL, AT_END), (None, None)):
            try:
                child.wait(wait)
                break
            except subprocess.TimeoutExpired:
                over = True
                os.killpg(child.pid, sent or signal.SIGKILL)
    said = [line for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    took = round(time.monotonic() - start, 1)
    return {"rc": child.returncode, "over": over, "seconds": took, "said": said[-1][:300] if said else ""}


def stage(name: str, *, out: Path, work: Path, device: str, minutes: float, small: bool) -> bool:
    """Run a stage's commands one after the other. Return True if all of them succeeded."""
    folder, lines = work / name, out / "first_light.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    well = True
    for step in STAGES[name][1](device, folder, minutes, small=small):
        mark = folder / f"{step.name}.done"
        if mark.exists():
            found = json.loads(mark.read_text("utf-8")) | {"again": False}
        else:
            found = carried_out(step, 60 * minutes * step.share, folder / f"{step.name}.log", small=small)
            if found["rc"] == 0:
                mark.write_text(json.dumps(found), "utf-8")
        line = json.dumps({"stage": name, "step": step.name, **found})
        print(line, flush=True)
        with lines.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        well &= found["rc"] == 0
        packed(folder, out / f"{name}.tar.gz")  # after each command: the next may be the last
    return well


def packed(folder: Path, archive: Path) -> None:
    """Pack all of a folder but checkpoints and weights."""
    with tarfile.open(archive, "w:gz") as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix not in (".ckpt", ".pt", ".part"):
                tar.add(path, str(path.relative_to(folder.parent)), recursive=False)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="first_light.py"
    )
    parser.add_argument("stage", choices=[*STAGES, "all"])
    parser.add_argument("--out", type=Path, default=Path("first_light"), help="folder of what is to be carried away")
    parser.add_argument("--work", type=Path, help="folder of all that is written; FOLDER/work unless said")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=0.0, help="of a stage at most; 0: 9, 8, 8.5 and 3.5")
    parser.add_argument("--rehearse", action="store_true", help="small sizes: does all of it work?")
    asked = parser.parse_args(words)
    if asked.minutes < 0:
        parser.error(f"--minutes must not be negative, not {asked.minutes:g}")
    out, work = asked.out.resolve(), (asked.work or asked.out / "work").resolve()
    out.mkdir(parents=True, exist_ok=True)
    well = [
        stage(
            name,
            out=out,
            work=work,
            device=asked.device,
            minutes=asked.minutes or STAGES[name][0],
            small=asked.rehearse,
        )
        for name in (STAGES if asked.stage == "all" else [asked.stage])
    ]
    return 0 if all(well) else 1


if __name__ == "__main__":
    sys.exit(main())
