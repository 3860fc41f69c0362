"""Fill cells of a table on one GPU for some minutes, and leave the records to be carried home.

    python scripts/gpu_cells.py --minutes 9 --out FOLDER       of climb-v2; then, at home: ladder merge FOLDER
    python scripts/gpu_cells.py --cells fifteen-v1 ..          of the xLSTM paper's fifteen tasks, at a small budget
    python scripts/gpu_cells.py --cells xlstm_20k ..           of the same tasks at the paper's size
    python scripts/gpu_cells.py --cells authors ..             of PD-SSM, SLiCE and the sLSTM in their authors' settings
    python scripts/gpu_cells.py --cells last_answer ..         of climb-v2's groups, trained on the last answer alone
    python scripts/gpu_cells.py --plan                         the missing runs, in their order

A self-test comes first and stops everything if it fails: strings must equal those of a CPU, gradients those of float64.
Then processes that share the GPU train packs of one cell each, tasks without any result first. A cell of xlstm_20k is
one seed at two learning rates, compiled. A cell of fifteen-v1 is its tuning seed and its three fresh seeds at all three
learning rates, one of climb_pilot its seed at all of its learning rates. Their kernels are so small that twelve runs
cost little more than one, and compiling takes longer than training. A cell of climb-v2 is its tuning seed at five
learning rates, then five fresh seeds at the chosen one. Two cells for each process are tuned, then reported, then the
next ones.

FOLDER gets records.csv and curves.csv of finished runs. Unfinished ones are dropped. Runs that are in results/, in
results/underway or in a file of `--known` are skipped.

Nothing should be compiled twice: $TRITON_CACHE_DIR may hold kernels from a rehearsal on tests/instruments/null_gpu,
which needs no GPU. There every loss is garbage, so `--rehearse` accepts that and skips the self-test.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from chomsky_ladder.harness.climb.part import Part
from chomsky_ladder.harness.climb.runs import climb_runs, climber
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.config.registry import find_model
from chomsky_ladder.harness.config.rows import DECISIVE, DECISIVE_RUNGS, SECOND
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.stats.cells import FRESH, Row
from chomsky_ladder.harness.store import curves
from chomsky_ladder.harness.store.record import Record, collect, recorded
from chomsky_ladder.harness.sweep.engines.processes import ProcessesOptions
from chomsky_ladder.harness.sweep.report_seeds import fresh_runs
from chomsky_ladder.harness.sweep.studies import authors, climb_pilot, last_answer
from chomsky_ladder.harness.sweep.studies.fifteen import MODELS, SUITE
from chomsky_ladder.harness.sweep.studies.xlstm_table import ALL
from chomsky_ladder.harness.sweep.study import study_runs
from chomsky_ladder.harness.sweep.sweep import carry_out

ROOT = Path(__file__).resolve().parents[1]
RECORDS = (ROOT / "results" / "records.csv", ROOT / "results" / "underway" / "records.csv")
CLIMB = "climb-v2"
TASKS = PROTOCOLS[SUITE].table
RATES = (1e-2, 1e-3)  # two of xlstm_20k's three; 1e-4 is chosen least often at 20,000 steps
REPORTED = 3  # fresh seeds of a cell of the suite
SELF_TEST_S = 45.0
FIRST = 500  # runs whose models are tested
SCORING_S = 10.0  # at the end, for checkpoints and records


class Cells(NamedTuple):
    listed: Callable[[], list[Run]]
    """Every run, in the order of priority."""
    pack: int
    """Runs of a cell, which train together."""
    compiled: Literal["on", "off"]
    report: int = 0
    """Fresh seeds that follow at the learning rate that those runs choose."""


CELLS = {
    CLIMB: Cells(lambda: _climb(), len(PROTOCOLS[CLIMB].rates), "off", PROTOCOLS[CLIMB].report),
    "xlstm_20k": Cells(lambda: [run for task in TASKS for run in _published(task)], len(RATES), "on"),
    SUITE: Cells(lambda: [run for task in TASKS for run in _frozen(task)], 3 * (1 + REPORTED), "off"),
    "last_answer": Cells(lambda: last_answer.runs("gpu"), len(PROTOCOLS[CLIMB].rates), "off", PROTOCOLS[CLIMB].report),
    "authors": Cells(lambda: authors.runs("gpu"), len(authors.RATES), "off"),
    "climb_pilot": Cells(lambda: climb_pilot.runs("gpu"), len(climb_pilot.RATES), "off"),
    "climb_pilot_longer": Cells(climb_pilot.longer, 3, "off"),
}


def runs(*cells: str) -> list[Run]:
    """Return the runs of every cell in their order, without those that are on record."""
    there = on_record()
    return [run for name in cells for run in CELLS[name].listed() if run.run_id not in there]


def _climb() -> list[Run]:
    """Return the tuning runs of the decisive cells, then those of the others, row by row."""
    rungs = PROTOCOLS[CLIMB].rungs
    wanted = [(row, name) for name in DECISIVE_RUNGS for row in DECISIVE]
    wanted += [(row, rung.name) for row in SECOND for rung in rungs if (row, rung.name) not in wanted]
    return [run for row, name in wanted for run in _cell(row[0], json.dumps(row[1]), name)]


@cache
def _cell(model: str, changes: str, rung: str) -> list[Run]:
    part = Part.of(PROTOCOLS[CLIMB], rungs=rung)
    return climb_runs(climber(find_model(model), json.loads(changes), protocol=CLIMB), protocol=CLIMB, part=part)


def _published(task: str) -> list[Run]:
    """Return the first seed of a task's cells under xlstm_20k, at two rates."""
    return [run for run in study_runs("gpu", tasks=[task], models=ALL) if run.seed == 0 and run.train.lr in RATES]


def _frozen(task: str) -> list[Run]:
    """Return the tuning seed of a task's cells and their fresh seeds, at all rates: whichever is chosen is there."""
    seeds = (0, *range(FRESH, FRESH + REPORTED))
    return [run.with_seed(seed) for run in study_runs("cpu", tasks=[task], models=MODELS, cpu=SUITE) for seed in seeds]


def on_record(known: Sequence[Path] = ()) -> dict[str, Record]:
    """Return the records there are, by the ids of their runs."""
    return {run_id: record for file in (*RECORDS, *known) for run_id, record in _recorded(file).items()}


def _recorded(file: Path) -> dict[str, Record]:
    return recorded(file) if file.exists() else {}


def self_test(models: Iterable[str]) -> str:
    """Compare strings and gradients on the GPU with a CPU's. Return what is wrong, or "" if nothing is."""
    ladder = [sys.executable, "-m", "chomsky_ladder", "doctor", "--device", "cuda"]
    commands = [[*ladder, "--stage", "strings"]]
    commands += [[*ladder, "--stage", "kernels", "--models", model] for model in models]
    end = time.monotonic() + SELF_TEST_S

    def problem(command: list[str]) -> str:
        try:
            left = end - time.monotonic()
            done = subprocess.run(command, capture_output=True, text=True, timeout=left, check=False)
        except subprocess.TimeoutExpired:
            return ""  # not wrong as far as it came
        last = (done.stdout.splitlines() or done.stderr.splitlines() or ["no output"])[-1]
        return last if done.returncode else ""

    with ThreadPoolExecutor(len(commands)) as pool:
        return "; ".join(filter(None, pool.map(problem, commands)))


class Crew(NamedTuple):
    """Processes that share the GPU until an end."""

    settings: Exec
    processes: int
    end: float

    @property
    def minutes(self) -> float:
        return (self.end - time.monotonic()) / 60

    def train(self, listed: list[Run]) -> int:
        """Train runs for as long as there is time. Return how many ended."""
        if not listed or self.minutes <= 0:
            return 0
        engine = ProcessesOptions(processes=self.processes, minutes=self.minutes)
        return carry_out(listed, self.settings, engine=engine).done


def _tuned_and_reported(listed: list[Run], known: Mapping[str, Record], cells: Cells, crew: Crew) -> int:
    """Tune so many cells that every process has two, report them, and go on with the next."""
    rows = {run_id: record.model_dump() for run_id, record in known.items()}
    done, at_once = 0, 2 * crew.processes * cells.pack
    for start in range(0, len(listed), at_once):
        tuning = listed[start : start + at_once]
        done += crew.train([run for run in tuning if run.run_id not in known])
        cells_of = [tuning[place : place + cells.pack] for place in range(0, len(tuning), cells.pack)]
        fresh = [run for cell in cells_of for run in _fresh(cell, crew.settings.results, cells.report, rows)]
        done += crew.train([run for run in fresh if run.run_id not in known])
    return done


def _fresh(cell: list[Run], results: Path, count: int, known: Mapping[str, Row]) -> list[Run]:
    """Return the fresh seeds of a cell that is tuned. A result that cannot be read costs its own cell alone."""
    try:
        return fresh_runs(cell, results, count, known=known)[0]
    except ValueError as error:
        print(f"gpu_cells.py: not reported: {error}", file=sys.stderr)
        return []


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=9.0, help="for all of it")
    parser.add_argument("--processes", type=int, default=max(1, min(9, (os.cpu_count() or 2) - 2)))
    parser.add_argument("--out", type=Path, default=Path("gpu_cells"), help="folder of what is to be carried home")
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=[CLIMB], help="one behind the other")
    parser.add_argument("--tasks", nargs="+", help="some of the tasks; all unless given")
    parser.add_argument("--known", nargs="+", type=Path, default=[], help="records.csv of an earlier call")
    parser.add_argument("--compile", choices=["on", "off"], help="as the cells say unless given")
    parser.add_argument("--plan", action="store_true", help="print the runs, and train nothing")
    parser.add_argument("--rehearse", action="store_true", help="without the self-test, on tests/instruments/null_gpu")
    options = parser.parse_args(words)
    end = time.monotonic() + 60 * options.minutes
    asked = [CELLS[name] for name in options.cells]
    compiled, *other = {cells.compiled for cells in asked}
    if other and not options.compile:
        parser.error("--cells: xlstm_20k is compiled and the others are not, so it goes by itself")
    if any(cells.report for cells in asked) and len(asked) > 1:
        parser.error("--cells: what is tuned and then reported goes by itself, as climb-v2 does")
    listed, known = [run for cells in asked for run in cells.listed()], on_record(options.known)
    if unknown := {*(options.tasks or ())} - {run.task.name for run in listed}:
        parser.error(f"--tasks: {' and '.join(options.cells)} has no task {' and '.join(sorted(unknown))}")
    listed = [run for run in listed if not options.tasks or run.task.name in options.tasks]
    todo = [run for run in listed if run.run_id not in known]
    if options.plan:
        for run in todo:
            print(run.run_id, run.train.lr)
        return 0
    if not options.rehearse and (problem := self_test(sorted({run.model.name for run in todo[:FIRST]}))):
        print(f"gpu_cells.py: the self-test failed, so nothing was trained: {problem}", file=sys.stderr)
        return 1
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        pack = max(cells.pack for cells in asked)
        how: Any = {"device": "cuda", "pack": pack, "compile": options.compile or compiled, "checkpoint_every": 20_000}
        settings = Exec(results=Path(scratch), **how)
        crew = Crew(settings, options.processes, end - SCORING_S)
        done = _tuned_and_reported(listed, known, asked[0], crew) if asked[0].report else crew.train(todo)
        collect(settings.results)
        curves.collect(settings.results)
        for name in ("records.csv", "records.csv.sha256", "curves.csv", "curves.csv.sha256"):
            if (settings.results / name).exists():
                (options.out / name).write_bytes((settings.results / name).read_bytes())
    print(f"{done} runs in {options.out}, {done / options.minutes:.1f} a minute")
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main())
