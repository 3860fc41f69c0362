"""Three sweeps, tables, merges, cleaning and kills at once on one results folder: at its end it holds the bits of a
sweep that nobody disturbed.

`LADDER_SOAK` says for how many seconds; two minutes unless it does.
"""

import multiprocessing
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.record import recorded
from chomsky_ladder.harness.store.status import survey
from chomsky_ladder.harness.sweep.sweep import sweep
from support.engine_jobs import cell, settings_at
from support.faults import Child, Hindrance, ladder, sweeps

SECONDS = float(os.environ.get("LADDER_SOAK", "120"))
_CONTEXT = multiprocessing.get_context("fork")


def looking(words: list[str], notes: Path, seconds: float) -> Callable[[], None]:
    """Work of a child: a command, over and over, which must never end in a traceback."""

    def work() -> None:
        from chomsky_ladder.harness.cli import main as cli

        with (notes / f"{words[0]}.said").open("a") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        torch.set_num_threads(1)
        end, draw = time.monotonic() + seconds, random.Random(words[0])
        while time.monotonic() < end:
            code = cli.main(words)
            assert code in (0, 1, 2), code
            time.sleep(draw.uniform(0.05, 0.5))

    return work


@pytest.mark.slow
def test_a_folder_outlives_all_at_once(tmp_path: Path) -> None:
    draw, results, notes = random.Random(11), tmp_path / "soaked", tmp_path / "notes"
    notes.mkdir()
    runs = [cell(model, seed=seed, steps=200) for model in ("lstm", "gru") for seed in range(4)]
    sweep(runs, settings_at(tmp_path / "undisturbed"), quiet=True)
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / "undisturbed" / "runs", elsewhere / "runs")
    for run in runs[1:]:  # one run comes by merge, again and again
        shutil.rmtree(elsewhere / "runs" / run.run_id)
    place = ["--results", str(results)]
    commands = [["table", *place], ["status", *place], ["merge", str(elsewhere), *place], ["page", *place]]
    commands.append(["clean", "--unfinished", "--yes", *place])
    lookers: list[BaseProcess] = [_CONTEXT.Process(target=looking(words, notes, SECONDS)) for words in commands]
    for looker in lookers:
        looker.start()
    settings, end, kills, rounds = settings_at(results), time.monotonic() + SECONDS, 0, 0
    while time.monotonic() < end:
        kills += disturbed(runs, settings, notes / str(rounds), draw, end)
        rounds += 1
        if time.monotonic() < end and survey(results) and draw.random() < 0.5:
            done = [status.run_id for status in survey(results) if status.state == "done"]
            for run_id in draw.sample(done, len(done) // 2):
                Child(notes / f"clean-{rounds}-{run_id}", ladder, ["clean", run_id, "--yes", *place]).ended()
    for looker in lookers:
        looker.join(60)
        assert looker.exitcode == 0, (notes / "table.said").read_text()[-2000:]
    assert kills >= SECONDS / 20, (kills, rounds)
    sweep(runs, settings, quiet=True)
    for file in notes.glob("*.said"):
        assert "Traceback" not in file.read_text(), file.read_text()[-3000:]
    the_bits_of(runs, results, tmp_path / "undisturbed")
    assert not list(results.rglob("*.part")) and not (results / "runs" / ".merging").exists()
    print(f"soaked for {SECONDS:.0f} s: {rounds} rounds of three sweeps, {kills} kills")


def disturbed(runs: list[Run], settings: Exec, notes: Path, draw: random.Random, end: float) -> int:
    """Three sweeps of the runs, each killed at a random moment; how many were."""
    children = [
        Child(notes / str(number), sweeps, runs, replace(settings), hindrance=Hindrance(pause=0.002))
        for number in range(3)
    ]
    killed = 0
    for child in children:
        child.ended(within=min(draw.uniform(0, 6), max(0.0, end - time.monotonic())))
        killed += child.killed()
        assert "Traceback" not in child.said, child.said
    return killed


def the_bits_of(runs: list[Run], ours: Path, theirs: Path) -> None:
    for run in runs:
        mine, yours = (RunFolder(folder, run.run_id) for folder in (ours, theirs))
        assert mine.metrics.read_bytes() == yours.metrics.read_bytes() != b"", run.run_id
        weights = [checkpoint.newest(folder.path) for folder in (mine, yours)]
        assert weights[0] is not None and weights[1] is not None
        assert all(torch.equal(value, weights[1]["model"][name]) for name, value in weights[0]["model"].items())
        one, other = mine.result(), yours.result()
        assert one is not None and other is not None
        assert {name: one[name] for name in ("test", "validation", "fingerprint")} == {
            name: other[name] for name in ("test", "validation", "fingerprint")
        }
    from chomsky_ladder.harness.cli import main as cli

    for folder in (ours, theirs):
        assert cli.main(["table", "--results", str(folder)]) == 0
    scores = [{r.run_id: (r.test, r.steps_to_95) for r in recorded(f / "records.csv").values()} for f in (ours, theirs)]
    assert scores[0] == scores[1]
