"""Time a training step of every model against the least time this machine needs for it, and against another checkout.

    python scripts/benchmark.py roofline [--before CHECKOUT] [--models NAME ..] [--length 40] [--batch 64]
                                         [--parameters 100000] [--repeats 15] [--sittings 2] [--json] [--out FOLDER]

Models have matched parameters. Forward pass, backward pass and AdamW's update of a step are timed separately, in
process time on one thread. This checkout, the one of `--before` and `lstm_block` here take turns, step by step, each in
its own process (roofline_worker.py), so that a drift of the machine's speed slows all alike. Every sitting starts new
processes. Medians are of all turns, and ratios are medians of ratios turn by turn.

The least time is the larger of two: the operations of harness/throughput/flops.py at the speed of a large product, and
the least traffic at the speed of a large copy, both measured on the spot. `binds` says which it is. The traffic is that
of harness/throughput/bench.py: weights and saved tensors moved once each way. A model of this size cannot reach the
speed of a large product, since its products are small. Shares say how far it is from that, not that it can be reached.

Operations have the names of PyTorch's profiler, C kernels that of the class that calls them, with their share of the
step. What no operation accounts for is `Python`. The profiler slows small operations more than large ones.

    --before    another checkout of this project, whose models take turns with these; a model it lacks has no `before`
    --out       a folder for roofline.md, roofline.csv and roofline.json
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from roofline_worker import PARTS, PYTHON

from chomsky_ladder.harness.config.registry import all_models, find_model
from chomsky_ladder.harness.config.sizing import sized
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.harmless import csv_of
from chomsky_ladder.harness.tables.formats import markdown
from chomsky_ladder.harness.tables.sheets import DASH, Column, Entry, Line, Sheet
from chomsky_ladder.harness.throughput.entries import digits
from chomsky_ladder.harness.throughput.grid import Grid
from chomsky_ladder.harness.train.machine import processor, publishable_provenance

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("roofline_worker.py")
BESIDE = "lstm_block"
NAMED = 5  # operations of a model that are listed

Row = dict[str, Any]


class Asked:
    """A worker of one checkout."""

    def __init__(self, root: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER)],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.commit = self("hello")["provenance"]["commit"]

    def __call__(self, ask: str, **request: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps({"ask": ask, **request}), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            assert self._process.stderr is not None
            said = self._process.stderr.read().strip().splitlines() or ["it said nothing"]
            raise RuntimeError(f"a worker ended: {said[-1]}")
        return json.loads(answer)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def workers(before: Path | None) -> Iterator[dict[str, Asked]]:
    made: dict[str, Asked] = {}
    try:
        made["now"] = Asked(ROOT)
        if before is not None:
            made["before"] = Asked(before)
        yield made
    finally:
        for worker in made.values():
            worker.close()


def turns_of(model: str, asked: dict[str, Asked], size: dict[str, Any], repeats: int) -> Row:
    """Time steps of one model, of the same in the other checkout and of the one beside it, in turns."""
    row: Row = {}
    for name, worker in asked.items():
        answer = worker("make", model=model, **size)
        row |= {f"{name}_not_run": answer["not_run"]} if "not_run" in answer else {f"{name}_made": answer}
    acts = {name: (worker, model) for name, worker in asked.items() if f"{name}_made" in row}
    if "now" in acts:
        acts["beside"] = (asked["now"], BESIDE)
    taken: dict[str, list[list[float]]] = {name: [] for name in acts}
    for turn in range(repeats):
        for name in reversed(list(acts)) if turn % 2 else acts:
            worker, what = acts[name]
            step = worker("step", model=what)
            taken[name].append([step[part] for part in PARTS])
    if "now" in acts:
        row["work"], row["names"] = asked["now"]("work", model=model), asked["now"]("names", model=model)
    if model != BESIDE:
        for worker in asked.values():
            worker("drop", model=model)
    return row | {"turns": taken}


def sitting(sizes: dict[str, dict[str, Any]], before: Path | None, repeats: int) -> Row:
    with workers(before) as asked:
        reached = asked["now"]("ceilings")
        asked["now"]("make", model=BESIDE, **sizes[BESIDE])
        rows = {}
        for model, size in sizes.items():
            rows[model] = turns_of(model, asked, size, repeats)
            print(".", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        return {"ceilings": reached, "rows": rows, "commits": {name: worker.commit for name, worker in asked.items()}}


def row_of(model: str, size: dict[str, Any], sittings: Sequence[Row]) -> Row:
    """Combine all sittings of a model into a row."""
    found = [one["rows"][model] for one in sittings]
    row: Row = {"model": model, "width": size["width"]}
    if "now_not_run" in found[0]:
        return row | {"not_run": found[0]["now_not_run"]}
    turns = {name: np.array([step for one in found for step in one["turns"][name]]) for name in found[0]["turns"]}
    whole = {name: steps.sum(1) for name, steps in turns.items()}
    row |= {"parameters": found[0]["now_made"]["parameters"], "ms": float(np.median(whole["now"]))}
    row["of_lstm_block"] = float(np.median(whole["now"] / whole["beside"]))
    row["by_sitting"] = [
        round(float(np.median([sum(a) / sum(b) for a, b in zip(t["now"], t["beside"], strict=True)])), 3)
        for t in (one["turns"] for one in found)
    ]
    if "before" in whole:
        row["before_ms"], row["times"] = (
            float(np.median(value)) for value in (whole["before"], whole["before"] / whole["now"])
        )
    reached = {key: float(np.median([one["ceilings"][key] for one in sittings])) for key in sittings[0]["ceilings"]}
    work = found[0]["work"]
    for i, part in enumerate(PARTS):
        ms = float(np.median(turns["now"][:, i]))
        flops = work["flops"] * {"forward": 1, "backward": 2, "update": 0}[part]
        by = {"products": flops / reached["product_gflop_per_s"] / 1e6}
        by["memory"] = work["bytes"][part] / reached["copy_gb_per_s"] / 1e6
        binds = max(by, key=lambda name: by[name])
        row |= {f"{part}_ms": ms, f"{part}_gflop_per_s": flops / ms / 1e6, f"{part}_least_ms": by[binds]}
        row |= {f"{part}_binds": binds, f"{part}_share": by[binds] / ms}
        row[f"{part}_of_product"] = flops / ms / 1e6 / reached["product_gflop_per_s"]
    row["backends"] = " ".join(found[0]["now_made"]["backends"])
    return row | {"operations": operations([one["names"] for one in found])}


def operations(sittings: Sequence[Row]) -> list[tuple[str, float]]:
    """Return the operations that took most of a step, with their shares, the mean of the sittings."""
    shares: dict[str, float] = {}
    for names in sittings:
        total = sum(sum(times.values()) for times in names.values())
        for times in names.values():
            for name, ms in times.items():
                shares[name] = shares.get(name, 0.0) + ms / total / len(sittings)
    first = sorted(shares.items(), key=lambda pair: -pair[1])
    return [(name, round(share, 4)) for name, share in first[: NAMED + (PYTHON in dict(first[:NAMED]))]]


def sheet(report: Row) -> Sheet:
    has_before = any("before_ms" in row for row in report["rows"])
    columns = [Column("width"), Column("before", "ms of a step")] if has_before else [Column("width")]
    columns += [Column("now", "ms of a step"), *([Column("times as fast")] if has_before else [])]
    columns += [Column("of an LSTM block")]
    columns += [Column(part, "ms") for part in PARTS]
    columns += [Column(part, "of the product ceiling") for part in PARTS[:2]]
    columns += [Column(part, "least ms, what binds, its share") for part in PARTS[:2]]
    columns += [Column("most of the step")]
    lines = [Line(row["model"], _entries(row, has_before)) for row in report["rows"] if "ms" in row]
    notes = [f"{row['model']}: {row['not_run']}." for row in report["rows"] if "not_run" in row]
    notes += [
        f"{row['model']}: the formula counts more operations than are done, so its shares say nothing."
        for row in report["rows"]
        if row.get("backward_share", 0) > 1
    ]
    reached, settings = report["ceilings"], report["settings"]
    products = " and ".join(f"{one['product_gflop_per_s']:.0f}" for one in reached)
    copies = " and ".join(f"{one['copy_gb_per_s']:.1f}" for one in reached)
    lead = (
        f"A training step at {settings['parameters']:,} parameters, {settings['batch']} strings of "
        f"{settings['length']}, fp32. {report['device']}, torch {report['torch']}, one thread, process time, medians "
        f"of {settings['repeats']} turns in each of {settings['sittings']} sittings; a large product reached "
        f"{products} GFLOP/s, a large copy {copies} GB/s."
    )
    said = "; ".join(f"{name}: {commit}" for name, commit in report["commits"].items())
    return Sheet(
        "A step and its least", (lead, f"Commits: {said}."), "model", tuple(columns), tuple(lines), tuple(notes)
    )


def _entries(row: Row, has_before: bool) -> tuple[Entry, ...]:
    def entry(key: str, form: str = "") -> Entry:
        return Entry((format(row[key], form) if form else digits(row[key]),)) if key in row else DASH

    found = [entry("width", "d") if row["width"] else DASH]
    found += [entry("before_ms"), entry("ms"), entry("times", ".2f")] if has_before else [entry("ms")]
    spread = " .. ".join(f"{ratio:.2f}" for ratio in sorted(row["by_sitting"]))
    found += [Entry((f"{row['of_lstm_block']:.2f}", spread))]
    found += [entry(f"{part}_ms") for part in PARTS]
    found += [entry(f"{part}_of_product", ".0%") for part in PARTS[:2]]
    for part in PARTS[:2]:
        text = f"{digits(row[f'{part}_least_ms'])} {row[f'{part}_binds']}"
        found.append(Entry((text, f"{row[f'{part}_share']:.0%}")))
    return (*found, Entry((", ".join(f"{name} {share:.0%}" for name, share in row["operations"]),)))


def write(folder: Path, report: Row) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = f"# What a step takes, and the least it could\n\n{markdown((sheet(report),))}"
    write_atomically(folder / "roofline.md", text.encode())
    made = {"device": report["device"], "torch": report["torch"], **report["commits"]}
    flat = [{key: _flat(value) for key, value in row.items()} | made for row in report["rows"]]
    write_atomically(folder / "roofline.csv", csv_of(pd.DataFrame(flat), float_format="%.5g").encode())
    write_atomically(folder / "roofline.json", f"{json.dumps(report, indent=1)}\n".encode())


def _flat(value: Any) -> Any:
    """Return a list as text for one field."""
    if not isinstance(value, list):
        return value
    return "; ".join(str(one) if isinstance(one, float) else f"{one[0]} {one[1]}" for one in value)


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmark.py roofline", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, help="another checkout")
    parser.add_argument("--models", nargs="+", default=[], help="default: all")
    for name, default in (("length", 40), ("batch", 64), ("parameters", 100_000), ("repeats", 15), ("sittings", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--out", type=Path, help="a folder for roofline.md, .csv and .json")
    options = parser.parse_args(words)
    if min(options.length, options.batch, options.parameters, options.repeats, options.sittings) < 1:
        parser.error("--length, --batch, --parameters, --repeats and --sittings are at least 1")
    if options.before is not None and not (options.before / "chomsky_ladder" / "__init__.py").is_file():
        parser.error(f"--before names a checkout of this project, not {options.before}")
    return options


def sizes_of(models: Sequence[str], options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return the width and strings of each model, `lstm_block` first."""
    sizes = {}
    for name in dict.fromkeys([BESIDE, *(models or sorted(all_models()))]):
        config = sized(find_model(name)(), vocab=Grid().vocab, target=options.parameters)
        sizes[name] = {"width": config.d_model, "length": options.length, "batch": options.batch}
    return sizes


def main(words: Sequence[str] | None = None) -> int:
    options = parse(words)
    try:
        sizes = sizes_of(options.models, options)
        before = options.before and options.before.resolve()
        sittings = [sitting(sizes, before, options.repeats) for _ in range(options.sittings)]
    except (ValueError, RuntimeError) as mistake:
        print(mistake, file=sys.stderr)
        return 2
    rows = [row_of(model, size, sittings) for model, size in sizes.items()]
    report = {
        "device": processor(),
        "torch": str(torch.__version__),
        "settings": {key: getattr(options, key) for key in ("length", "batch", "parameters", "repeats", "sittings")},
        "ceilings": [one["ceilings"] for one in sittings],
        "commits": sittings[0]["commits"],
        "rows": rows,
        "provenance": publishable_provenance(),
    }
    if options.out:
        write(options.out, report)
    print(json.dumps(report, indent=1) if options.json else markdown((sheet(report),)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
