"""Time a step of every model on this GPU: captured and compiled as a sweep would have it, alone and as packs.

    python tests/instruments/gpu_steps.py [--models NAME ..] [--replicas 9 1] [--jobs 14] [--minutes 6] [--out FOLDER]

Compiling takes a minute a model and no GPU, timing takes a second and all of it. So many processes get ready side by
side, as far as the memory goes; the one that is timed has the GPU to itself, as all others are stopped for so long.
Times are of the clock from a finished step to a finished step, over whole replays of ten: `ms` is the median of five
rounds of .15 seconds each, beside the least and the most. `gb` are the bytes that Inductor counts in what it
compiled, inputs and outputs of operations, and `of_copy_%` is what they make of a large copy's rate on the spot.
`gain` is what a pack gains each replica over a single run, captured and compiled like it. Steps of packs of
`--protocol` on parity, whose draws are among the cheapest.

`off_%` is how far the gradients of the first and the last run, on their first strings, are from those in fp32 of each
alone, not compiled, and `off_plain_%` how far the pack's are that is not compiled either, in the run's own precision:
what compiling may not add to. `apart_%` is how far these two are apart in the weights where they are furthest.

What the step consists of, kernel by kernel, is a table of its own (step_kernels.py).

What breaks costs its own row, which says why; the tables are written after each row, beside those of before.
"""

import argparse
import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import step_kernels
import torch
from captured_steps import Row, counted, markdown, rows_of_before, run_of
from gpu_processes import GO, READY, Idle, Process, alone
from torch._inductor import metrics

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.registry import all_models
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.harmless import csv_of
from chomsky_ladder.harness.store.places import default_results, publishing, refuse_unwritable_file
from chomsky_ladder.harness.throughput.measure import Meter, ceilings
from chomsky_ladder.harness.train.compiled import apart
from chomsky_ladder.harness.train.machine import driver, let_go, pinned, provenance
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.harness.train.replays import WARM_UP
from chomsky_ladder.harness.train.steps import UNROLLED, stepper

TIMES = ["model", "replicas", "ms", "ms_least", "ms_most", "steps_per_s", "gain"]
MADE = ["nodes", "gb", "gb_per_s", "of_copy_%", "compiled", "refused", "peak_mib", "off_%", "off_plain_%", "apart_%"]
BY = ["protocol", "device", "commit", "torch", "driver", "copy_gb_per_s", "product_gflop_per_s"]
COLUMNS = [*TIMES, *MADE, *BY, "error"]
ROUNDS, SECONDS = 5, 0.15
UNKNOWN_MIB, ALWAYS_MIB = 8_000, 1_000  # of a pack that no table has; of a process


def measured(model: str, replicas: int, protocol: str) -> Row:
    """A pack's row: ready, then timed when it is told to."""
    device, nodes = torch.device("cuda"), counted()
    metrics.num_bytes_accessed = 0
    run = run_of(model, protocol)
    rows = sorted({0, replicas - 1})
    exact = torch.cat([exact_gradient(replace(run, seed=seed), device) for seed in rows])
    torch.cuda.reset_peak_memory_stats()
    pack = Pack([replace(run, seed=seed) for seed in range(replicas)], device=device, backend="auto")
    steps = stepper(pack, Exec(compile="on", capture="on"))
    plain, found = gradient(pack), gradient(pack)  # the first is taken plainly
    off = [float((one[rows] - exact).norm() / exact.norm()) for one in (found, plain)]
    worst = apart(pack, found, plain)
    del exact, plain, found
    let_go(device)
    done = steps.advance(0, WARM_UP + 2 * UNROLLED, lambda _: None)
    torch.cuda.synchronize()
    print(READY, flush=True)
    assert sys.stdin.readline().strip() == GO

    def ms_of(count: int) -> float:
        nonlocal done
        torch.cuda.synchronize()
        start = time.perf_counter()
        done = steps.advance(done, done + count * UNROLLED, lambda _: None)
        torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - start) / (count * UNROLLED)

    count = max(1, round(1e3 * SECONDS / (UNROLLED * ms_of(1))))
    rounds = [ms_of(count) for _ in range(ROUNDS)]
    assert all(np.isfinite(seen.loss) for seen in pack.seen()), "a loss is not finite"
    ms, gb = float(np.median(rounds)), metrics.num_bytes_accessed / 1e9
    row: Row = {"model": model, "replicas": replicas, "ms": round(ms, 4), "steps_per_s": round(1e3 / ms, 1)}
    row |= {"ms_least": round(min(rounds), 4), "ms_most": round(max(rounds), 4), "nodes": per_step(nodes)}
    row |= {"gb": round(gb, 2), "gb_per_s": round(1e3 * gb / ms), "peak_mib": torch.cuda.max_memory_reserved() >> 20}
    parts = [name.removeprefix("compiled.") for name in sorted(pack.backends) if name.startswith("compiled.")]
    row |= {"off_%": round(100 * off[0], 2), "off_plain_%": round(100 * off[1], 2), "apart_%": round(100 * worst, 2)}
    row["kernels"] = step_kernels.kernels_of(UNROLLED, lambda: steps.advance(done, done + UNROLLED, lambda _: None))
    return row | {"compiled": " ".join(parts), "refused": "; ".join(f"{k}: {v}" for k, v in steps.refused.items())}


def per_step(nodes: dict[int, int]) -> float | None:
    """Return the nodes of one step, from a graph of ten steps if there is one."""
    return round(nodes[UNROLLED] / UNROLLED, 1) if UNROLLED in nodes else nodes.get(1)


def exact_gradient(run: Run, device: torch.device) -> torch.Tensor:
    """Return the gradient in fp32, of a run alone: a pack may not fit."""
    found = gradient(Pack([replace(run, train=replace(run.train, precision="fp32"))], device=device, backend="auto"))
    let_go(device)
    return found


def gradient(pack: Pack) -> torch.Tensor:
    """[R, P], of the first strings."""
    return pack.parts.gradients(pack.step_number, pack.draw(pack.step_number, pack.run.train.longest(0)))[0]


def rows_of(
    jobs: Sequence[tuple[str, int]],
    words: Sequence[str],
    *,
    at_once: int,
    mib: dict[Any, int],
    still: Sequence[int],
    settle: Callable[[], None],
) -> Iterator[Row]:
    """A row of each, in the order in which they are ready, timed when all others have settled."""
    total = torch.cuda.get_device_properties(0).total_memory >> 20
    waiting, running = list(jobs), selectors.DefaultSelector()
    processes: list[Process] = []
    try:
        while waiting or processes:
            free = total - sum(process.memory_mib + ALWAYS_MIB for process in processes) - ALWAYS_MIB
            fitting = [job for job in waiting if not processes or mib.get(job, UNKNOWN_MIB) + ALWAYS_MIB <= free]
            if fitting and len(processes) < at_once:
                waiting.remove(fitting[0])
                process = Process(__file__, *fitting[0], words, mib.get(fitting[0], UNKNOWN_MIB))
                processes.append(process)
                running.register(process.process.stdout, selectors.EVENT_READ, process)  # pyright: ignore[reportArgumentType]
                continue
            for key, _ in running.select():
                process: Process = key.data
                if process.line() == READY:
                    with alone([other for other in processes if other is not process], still, settle):
                        row = process.timed()
                        row.setdefault("error", None)
                else:
                    row = process.ended()
                running.unregister(key.fileobj)
                processes.remove(process)
                process.close()
                yield row
    finally:
        running.close()
        for process in processes:
            process.close()


def with_gains(rows: Sequence[Row]) -> list[Row]:
    """Add the gain of a pack over single runs, where both exist for one device and one commit."""

    def of(row: Row) -> tuple[Any, ...]:
        return tuple(row.get(name) for name in ("model", "protocol", "device", "commit"))

    single = {of(row): row["ms"] for row in rows if row["replicas"] == 1 and row.get("ms")}
    gains = [
        round(single[of(row)] * row["replicas"] / row["ms"], 2)
        if row["replicas"] > 1 and row.get("ms") and of(row) in single
        else None
        for row in rows
    ]
    return [row | {"gain": gain} for row, gain in zip(rows, gains, strict=True)]


def write(rows: Sequence[Row], folder: Path) -> str:
    """Both tables, these rows in the places of those of the same model and as many replicas; the second."""
    folder.mkdir(parents=True, exist_ok=True)
    known = {(row["model"], row["replicas"]): row for row in (*rows_of_before(folder / "gpu_steps.csv"), *rows)}
    merged = with_gains([known[key] for key in sorted(known)])
    head = ["# Steps on a GPU", "", "Made by tests/instruments/gpu_steps.py, row by row as its last columns say.", ""]
    text = "\n".join([*head, *markdown([*TIMES, *MADE, *BY[:4], "error"], merged)]) + "\n"
    with publishing():
        write_atomically(
            folder / "gpu_steps.csv", csv_of(pd.DataFrame(merged, columns=COLUMNS).convert_dtypes()).encode()
        )
        write_atomically(folder / "gpu_steps.md", text.encode())
    return text


def known_mib(file: Path) -> dict[Any, int]:
    """Return the peak memory of packs, from the table of captured steps."""
    if not file.exists():
        return {}
    table = pd.read_csv(file).query("compile == 'on'").dropna(subset=["peak_mib"])
    return {(row["model"], int(row["replicas"])): int(row["peak_mib"]) for row in table.to_dict("records")}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=[], help="all of the registry unless named")
    parser.add_argument("--replicas", type=int, nargs="+", default=[9, 1], help="in this order")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="processes at once")
    parser.add_argument("--still", type=int, nargs="*", default=[], help="groups of other processes, to stop as well")
    parser.add_argument("--minutes", type=float, default=0.0, help="for all; what is not done by then has no row")
    parser.add_argument("--protocol", default="xlstm_20k")
    parser.add_argument("--out", type=Path, default=default_results() / "tables", help="folder of gpu_steps.*")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args(words)
    if not torch.cuda.is_available():
        parser.error("this takes a CUDA device")
    if asked.one:
        with pinned(1):
            print(json.dumps(measured(asked.one, asked.replicas[0], asked.protocol)), flush=True)
        return 0
    if min(asked.replicas) < 1 or asked.jobs < 1 or asked.minutes < 0:
        parser.error("--replicas and --jobs must be positive, and --minutes not negative")
    models, mib = asked.models or sorted(all_models()), known_mib(default_results() / "tables" / "captured_steps.csv")
    try:
        stackable = {model: run_of(model, asked.protocol).model.stackable for model in models}
        asked.out.mkdir(parents=True, exist_ok=True)
        refuse_unwritable_file(asked.out / "gpu_steps.csv", "--out")
    except (ValueError, OSError) as error:
        parser.error(str(error))
    jobs = [(model, count) for count in asked.replicas for model in models if count == 1 or stackable[model]]
    if not asked.models:
        jobs.sort(key=lambda job: (asked.replicas.index(job[1]), job not in mib))  # what may be large, last
    for said in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(said, lambda *_: sys.exit(1))
    signal.setitimer(signal.ITIMER_REAL, 60 * asked.minutes)
    with pinned(1):
        tops = ceilings(Meter(torch.device("cuda")), "bf16")
    torch.cuda.empty_cache()
    print(json.dumps(tops), flush=True)
    by = {"protocol": asked.protocol, "device": torch.cuda.get_device_name(), "driver": driver(), **tops}
    by |= {"commit": provenance()["commit"][:7], "torch": torch.__version__}
    rows: list[Row] = []
    of_kernels: list[Row] = []
    how = {"at_once": asked.jobs, "mib": mib, "still": asked.still, "settle": Idle().wait}
    for row in rows_of(jobs, ["--protocol", asked.protocol], **how):
        if row.get("gb_per_s"):
            row["of_copy_%"] = round(100 * row["gb_per_s"] / tops["copy_gb_per_s"], 1)
        kernels = row.pop("kernels", [])
        print(json.dumps(row), flush=True)
        rows.append(row | by)
        of_kernels += step_kernels.rows_of(row, kernels, by)
        write(rows, asked.out)
        step_kernels.write(of_kernels, asked.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
