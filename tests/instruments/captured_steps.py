"""Count what a step gives a GPU: the kernels of a captured step, its compiled parts, their seconds, the memory held.

    python tests/instruments/captured_steps.py [--models NAME ..] [--replicas 1 9] [--compile off on] [--minutes 3]
                                               [--out FOLDER]

Each model trains 24 steps of a published protocol on a CUDA device as a sweep would have it, alone and as a pack, in a
process of its own and for so many minutes at most; a model that breaks costs its own rows, which say why, and what
there is when the script is ended stands in the tables. `nodes` are
what CUDA counts in the graph of one step: kernels, copies and fills. `held` is what the allocator has reserved when the
pack is done, `peak` the most it had. A last process trains packs of `--in-a-row` one after the other. Rows of models
that are not named stay in the folder's table as they are: a row says what made it, and on which device. `refused` also
says where compiled code reads beyond what it allocates (compiled_views.py).

Nodes, memory and what compiles hang on no value, so null_gpu, a CUDA runtime that does nothing, gives the same
ones where there is no GPU; the table says so. Seconds are then those of this machine's compilers.
"""

import argparse
import ctypes
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from compiled_views import watched
from torch._inductor import metrics

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.protocols import overridden, preset_run
from chomsky_ladder.harness.config.registry import all_models
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.harmless import csv_of
from chomsky_ladder.harness.store.places import default_results, publishing
from chomsky_ladder.harness.train import member
from chomsky_ladder.harness.train.loop import execute_together
from chomsky_ladder.harness.train.machine import provenance
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.harness.train.score import Score
from chomsky_ladder.harness.train.steps import GraphSteps

Row = dict[str, Any]
COLUMNS = [
    "model",
    "replicas",
    "compile",
    "nodes",
    "gb",
    "compiled",
    "refused",
    "prepared_s",
    "peak_mib",
    "held_mib",
    "protocol",
    "device",
    "commit",
    "torch",
    "error",
]
IN_A_ROW = ("transformer", "xlstm", "retention", "mamba", "lstm", "rwkv6")
PACKS = "Packs one after the other in one process:"
STEPS = 24
STOOD_IN = "a stand-in"  # in place of a device
STAND_IN = "nc_reset"  # which null_gpu exports, and no CUDA runtime


def is_null_gpu() -> bool:
    """Return True if the CUDA runtime in this process is the stand-in that does nothing."""
    return hasattr(ctypes.CDLL(None), STAND_IN)


def nodes_of(graph: torch.cuda.CUDAGraph) -> int:
    """Return the number of nodes of a kept graph, as CUDA counts them."""
    count = ctypes.c_size_t()
    get = ctypes.CDLL(None).cudaGraphGetNodes
    get.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
    code = get(graph.raw_cuda_graph(), None, ctypes.byref(count))
    assert code == 0, f"cudaGraphGetNodes: error {code}"
    return count.value


def counted() -> dict[int, int]:
    """Keep every captured graph from now on. Return the nodes of the graphs of steps, by number of steps."""
    graph_of = GraphSteps._graph
    found: dict[int, int] = {}
    if is_null_gpu():
        unscored()
    bytes_are_counted()
    kept: Any = partial(torch.cuda.CUDAGraph, keep_graph=True)
    torch.cuda.CUDAGraph = kept

    def counting(self: GraphSteps, longest: int, steps: int) -> torch.cuda.CUDAGraph:
        graph = graph_of(self, longest, steps)
        found[steps] = nodes_of(graph)
        return graph

    GraphSteps._graph = counting
    return found


def bytes_are_counted() -> None:
    """Inductor does so where somebody listens; what it has to say stays here."""
    logger = torch._logging.getArtifactLogger("torch._inductor.compile_fx", "inductor_metrics")
    logger.setLevel(logging.INFO)
    logger.propagate = False


def unscored() -> None:
    """Replace scores by constants, since nothing was computed. They never leave this script."""
    seen_of = Pack.seen
    Pack.seen = lambda self: [seen._replace(live=True, loss=1.0, norm=1.0, loss_sum=1.0) for seen in seen_of(self)]
    for name, value in {"accuracy": 0.5, "exact_share": 0.5, "is_perfect": False}.items():
        setattr(Score, name, lambda *_, value=value, **__: value)
    member.summary = lambda *_: {"accuracy": 0.5}


def run_of(label: str, protocol: str) -> Run:
    """Return the run of a model such as lstm or xlstm[0:1]."""
    name, _, ratio = label.rstrip("]").partition("[")
    run = preset_run("parity", name, protocol=protocol)
    return overridden(run, {"model.ratio": ratio}) if ratio else run


def trained(model: str, replicas: int, compiling: str, *, asked: argparse.Namespace, found: dict[int, int]) -> Row:
    """A pack's row."""
    run = run_of(model, asked.protocol)
    run = replace(
        run,
        train=replace(run.train, steps=STEPS, stop_after=0),
        eval=replace(run.eval, every=STEPS // 2, extrapolate=(), test=run.eval.validation),
    )
    found.clear()
    metrics.num_bytes_accessed = 0
    torch.cuda.reset_peak_memory_stats()
    with tempfile.TemporaryDirectory() as room:
        settings = Exec(device="cuda", compile=compiling, log_every=STEPS // 2, results=Path(room))  # pyright: ignore[reportArgumentType]
        with watched() as too_far:
            outcomes = execute_together([replace(run, seed=seed) for seed in range(replicas)], settings, quiet=True)
    row: Row = {"model": model, "replicas": replicas, "compile": compiling, "nodes": found.get(1)}
    row |= {"held_mib": torch.cuda.memory_reserved() >> 20, "peak_mib": torch.cuda.max_memory_reserved() >> 20}
    (result, *_) = outcomes
    if isinstance(result, Exception):
        return row | {"error": f"{type(result).__name__}: {result}".splitlines()[0]}
    parts = [name.removeprefix("compiled.") for name in result["backends"] if name.startswith("compiled.")]
    refused = [f"{name.removeprefix('compiled.')}: {why}" for name, why in result.get("refused", {}).items()]
    refused += [f"reads beyond {what}" for what in too_far]
    if not asked.untimed:
        row["prepared_s"] = round(result["seconds"]["prepare"] * replicas, 1)
    row["gb"] = round(metrics.num_bytes_accessed / 1e9, 1) or None
    return row | {"compiled": " ".join(parts), "refused": "; ".join(refused)}


def rows_of_one(asked: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of one model, measured in this process."""
    found = counted()
    replicas = asked.replicas if run_of(asked.one, asked.protocol).model.stackable else [1]
    for compiling in asked.compile:
        for count in replicas:
            yield trained(asked.one, count, compiling, asked=asked, found=found)


def rows_in_a_row(asked: argparse.Namespace) -> Iterator[Row]:
    """Packs one after the other in this process: what is held after each."""
    found = counted()
    for model in asked.in_a_row:
        yield trained(model, max(asked.replicas), "off", asked=asked, found=found)


def rows_in_processes(models: Sequence[str], words: Sequence[str], *, minutes: float) -> Iterator[Row]:
    """Every model's rows, and what became of those that have none."""
    for model in models:
        which = ["--one", model] if model else ["--rows-in-a-row"]
        try:
            done = subprocess.run(
                [sys.executable, __file__, *words, *which],
                capture_output=True,
                text=True,
                timeout=60 * minutes,
                env=os.environ | {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"},
            )
            said = (done.stderr.strip().splitlines() or [""])[-1]
            printed, ended = done.stdout, f"exit {done.returncode}: {said}" if done.returncode else ""
        except subprocess.TimeoutExpired as late:
            printed, ended = (late.stdout or b"").decode(), f"over its {minutes:g} minutes"
        rows = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
        yield from rows
        if ended:
            yield {"model": model, "error": ended}


def rows_of_before(file: Path) -> list[Row]:
    """Return the rows of a table file, with empty cells as None."""
    if not file.exists():
        return []
    before = pd.read_csv(file).convert_dtypes()
    cells = before.astype(object).where(before.notna(), None).to_dict("records")
    return [{str(name): cell for name, cell in row.items()} for row in cells]


def with_those_of_before(rows: Sequence[Row], file: Path) -> list[Row]:
    """These rows, in the places of their models, among those that the table has of other models."""
    by_model: dict[str, list[Row]] = {}
    for row in rows_of_before(file):
        by_model.setdefault(str(row["model"]), []).append(row)
    for model in dict.fromkeys(row["model"] for row in rows):
        by_model[model] = [row for row in rows if row["model"] == model]
    return [row for model in by_model for row in by_model[model]]


def frame_of(rows: Sequence[Row]) -> pd.DataFrame:
    """Whole numbers stay whole, also beside a model that has none."""
    return pd.DataFrame(rows, columns=COLUMNS).convert_dtypes()


def packs_of_before(file: Path) -> list[str]:
    """The lines of the table's second part."""
    return file.read_text("utf-8").partition(PACKS)[2].strip().splitlines() if file.exists() else []


def packs(in_a_row: Sequence[Row]) -> list[str]:
    return markdown(["model", "replicas", "peak_mib", "held_mib", "error"], in_a_row)


def table(rows: Sequence[Row], packs: Sequence[str]) -> str:
    """Markdown of both parts."""
    lines = [
        "# Captured steps",
        "",
        "Made by tests/instruments/captured_steps.py, row by row as its last columns say; "
        f"on {STOOD_IN} no kernel runs.",
        "",
    ]
    lines += markdown(COLUMNS[:-1], [{**row, "refused": row.get("error") or row.get("refused")} for row in rows])
    return "\n".join([*lines, "", PACKS, "", *packs]) + "\n"


def write(rows: Sequence[Row], in_a_row: Sequence[str], folder: Path) -> str:
    """Both tables, among what they have of other models; the second."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = with_those_of_before(rows, folder / "captured_steps.csv")
    text = table(rows, in_a_row)
    with publishing():
        write_atomically(folder / "captured_steps.csv", csv_of(frame_of(rows)).encode())
        write_atomically(folder / "captured_steps.md", text.encode())
    return text


def markdown(columns: Sequence[str], rows: Sequence[Row]) -> list[str]:
    lines = [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    for row in rows:
        cells = ("" if row.get(name) is None else str(row[name]).replace("|", "\\|") for name in columns)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main(words: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if words is None else words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=[], help="all of the registry unless named; also xlstm[1:0]")
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 9])
    parser.add_argument("--compile", nargs="+", choices=["off", "on"], default=["off", "on"])
    parser.add_argument("--in-a-row", nargs="*", default=list(IN_A_ROW), help="packs that one process trains")
    parser.add_argument("--protocol", default="xlstm_20k")
    parser.add_argument("--untimed", action="store_true", help="leave the seconds out: other work runs beside this")
    parser.add_argument("--minutes", type=float, default=3.0, help="of a model's process at most")
    parser.add_argument("--out", type=Path, default=default_results() / "tables", help="folder of captured_steps.*")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    parser.add_argument("--rows-in-a-row", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(words)
    if not torch.cuda.is_available():
        parser.error("this takes a CUDA device, or tests/instruments/null_gpu")
    if asked.one or asked.rows_in_a_row:
        for row in rows_of_one(asked) if asked.one else rows_in_a_row(asked):
            print(json.dumps(row), flush=True)
        return 0
    device = STOOD_IN if is_null_gpu() else torch.cuda.get_device_name()
    rows, by = [], {"protocol": asked.protocol, "device": device}
    by |= {"commit": provenance()["commit"][:7], "torch": torch.__version__}
    in_a_row = packs_of_before(asked.out / "captured_steps.md")
    for row in rows_in_processes(asked.models or sorted(all_models()), words, minutes=asked.minutes):
        print(json.dumps(row), flush=True)
        rows.append(row | by)
        write(rows, in_a_row, asked.out)
    if asked.in_a_row:
        in_a_row = packs(list(rows_in_processes([""], words, minutes=5 * asked.minutes)))
    print(write(rows, in_a_row, asked.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
