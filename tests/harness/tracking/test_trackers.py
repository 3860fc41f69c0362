"""Trackers as a kind of plugin: trackio's own store read back, and one of a user's file."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.protocols import preset_run
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.tracking.card import Card
from chomsky_ladder.harness.tracking.tracker import Copy, find_tracker
from chomsky_ladder.harness.train.loop import execute_together
from support.offline_copies import MADE
from support.offline_copies import isolated as isolated
from support.records_by_hand import folder_of, result_of, runs

ROOT = Path(__file__).parents[3]
PLUGIN = """
from pathlib import Path
from chomsky_ladder.harness.tracking.tracker import Tracker, register

class Lines:
    def __init__(self, card, folder, mode, finish_within):
        self._path = Path(__file__).with_name(f"{card.run_id}.txt")
        self.there = len(self._path.read_text().splitlines()) if self._path.exists() else 0
    def log(self, row):
        with self._path.open("a") as file:
            print(row["step"], file=file)
    def finish(self, end):
        self._path.with_suffix(".end").write_text(end["status"])

register(Tracker(name="lines", title="Lines", begin=Lines))
"""


def tiny(seed: int) -> Run:
    run = preset_run("parity", "lstm", protocol="quick", seed=seed)
    train = replace(run.train, steps=4, batch=4, lengths=(3, 8))
    evaluate = replace(run.eval, lengths=(8, 12), test=8, validation=8, every=2, bins=(8, 12), extrapolate=())
    return replace(run, model=replace(run.model, d_model=8), train=train, eval=evaluate)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder of trackio's own files, which it finds once a process."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("trackio")
        patch.setenv("TRACKIO_DIR", str(folder))
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield folder


def rows_of(store: Path, run_id: str) -> list[dict[str, Any]]:
    """Return the rows of a run from trackio's data base, read without its code."""
    with sqlite3.connect(store / "chomsky-ladder.db") as base:
        rows = base.execute("select step, metrics from metrics where run_name = ? order by id", (run_id,)).fetchall()
    return [{"step": step, **json.loads(metrics)} for step, metrics in rows]


@pytest.mark.full
def test_two_runs_trained_as_one_are_copied_to_trackio(tmp_path: Path, store: Path) -> None:
    pair = [tiny(3), tiny(4)]
    settings = Exec(device="cpu", log_every=1, results=tmp_path, tracker="trackio", wandb_group="a sweep")
    results = execute_together(pair, settings, quiet=True)
    for run, result in zip(pair, results, strict=True):
        assert isinstance(result, dict)
        lines, rows = RunFolder(tmp_path, run.run_id).history(), rows_of(store, run.run_id)
        assert [row["step"] for row in rows] == [*(line["step"] for line in lines), 4]
        assert [row.get("loss") for row in rows[:-1]] == [line.get("loss") for line in lines]
        assert (rows[-1]["final/status"], rows[-1]["final/test/accuracy"]) == ("done", result["test"]["accuracy"])
        with sqlite3.connect(store / "chomsky-ladder.db") as base:
            ((config,),) = base.execute("select config from configs where run_name = ?", (run.run_id,))
        kept = json.loads(config)
        assert kept["train"]["steps"] == 4 and kept["_Group"] == "a sweep"
        assert kept["provenance"]["commit"] == result["provenance"]["commit"]


def test_two_runs_are_copied_side_by_side(tmp_path: Path, store: Path) -> None:
    pair = runs()[:2]
    folders = [folder_of(tmp_path, run) for run in pair]
    copies = [
        Copy(find_tracker("trackio"), Card.of(run, MADE), folder, mode="online", finish_within=1)
        for run, folder in zip(pair, folders, strict=True)
    ]
    for step in (1, 2):
        for place, (folder, copy) in enumerate(zip(folders, copies, strict=True)):
            folder.log(step=step, loss=place + step)
            assert not copy.look(last=False)
    assert all(copy.look(last=True) for copy in copies)
    for place, run in enumerate(pair):
        assert [row.get("loss") for row in rows_of(store, run.run_id)] == [place + 1, place + 2, None]


def test_what_is_at_trackio_is_not_sent_again(tmp_path: Path, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = runs()[2]
    folder = folder_of(tmp_path, run)
    folder.log(step=1, loss=0.5)
    folder.preempt("SIGTERM", 1)
    words = ["track", "trackio", "--results", str(tmp_path)]
    for _ in range(2):
        assert main(words) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[0] == f"[1/1] {run.run_id}"
    assert said.err.splitlines()[-1] == "to see the copies: trackio show --project chomsky-ladder"
    assert [row.get("final/status") for row in rows_of(store, run.run_id)] == [None, "preempted"]
    folder.log(step=2, loss=0.25)
    folder.finish(result_of(run))
    for _ in range(2):
        assert main(words) == 0
    rows = rows_of(store, run.run_id)
    assert [row.get("final/status") for row in rows] == [None, "preempted", None, "done"]
    assert [row["loss"] for row in rows if "loss" in row] == [0.5, 0.25]


@pytest.mark.full
def test_a_tracker_of_a_users_file_follows_a_run(tmp_path: Path) -> None:
    plugin = tmp_path / "lines_tracker.py"
    plugin.write_text(PLUGIN)
    words = "run parity lstm --protocol quick --exec.device cpu --exec.tracker lines --train.steps 4 --train.batch 4"
    words += f" --eval.test 8 --eval.validation 8 --eval.every 2 --exec.results {tmp_path} --plugin {plugin}"
    command = [sys.executable, "-c", "from chomsky_ladder.harness.cli.main import script; script()", *words.split()]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr.count("left alone")) == (0, 0), ended.stderr
    (lines,) = tmp_path.glob("*.txt")
    folder = RunFolder(tmp_path, lines.stem)
    assert lines.read_text().splitlines() == [str(line["step"]) for line in folder.history()] != []
    assert lines.with_suffix(".end").read_text() == "done"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "ladder track needs a TRACKER: trackio, wandb"),
        (["trakio"], "unknown tracker 'trakio'; did you mean trackio?"),
        (["trackio", "--results", "/nowhere"], "no finished or stopped runs under /nowhere"),
        (["trackio", "nothing"], "no run 'nothing'"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["track", *words]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert complaint in said


def test_a_tracker_without_its_package_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)
    with pytest.raises(ValueError, match="tracker trackio needs the package trackio: pip install trackio"):
        execute_together([tiny(3)], Exec(device="cpu", results=tmp_path, tracker="trackio"), quiet=True)
    with pytest.raises(ValueError, match="unknown tracker 'tracks'"):
        execute_together([tiny(3)], Exec(device="cpu", results=tmp_path, tracker="tracks"), quiet=True)
    assert not (tmp_path / "runs").exists()
