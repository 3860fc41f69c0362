"""Copies of runs and tables at W&B: they are what the records say, no line is sent twice, every end is told."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from chomsky_ladder.harness.cli.wandb import wandb as wandb_command
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.tracking.card import Card
from chomsky_ladder.harness.tracking.tracker import Copy, find_tracker, sync
from chomsky_ladder.harness.tracking.trackers import wandb as tracking
from support.offline_copies import MADE, ROOT, history, read_back
from support.offline_copies import isolated as isolated
from support.records_by_hand import failure_of, filled, folder_of, result_of, runs


class Recorder:
    """A W&B run in plain Python."""

    def __init__(self, step: int) -> None:
        self.starting_step, self.rows, self.summary, self.config = step, [], {}, self
        self.exit_code: int | None = None
        self.preempting = False

    def define_metric(self, name: str, *, step_metric: str = "", hidden: bool = False) -> None:
        pass

    def log(self, row: dict[str, Any]) -> None:
        self.rows.append(row)

    def update(self, values: dict[str, Any], *, allow_val_change: bool) -> None:
        assert allow_val_change

    def mark_preempting(self) -> None:
        self.preempting = True

    def finish(self, *, exit_code: int) -> None:
        self.exit_code = exit_code


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Recorder]:
    def make(*, step: int = 0) -> Recorder:
        recorder = Recorder(step)
        monkeypatch.setattr(tracking, "begun", lambda *words, **settings: recorder)
        return recorder

    return make


def test_no_line_is_sent_twice(tmp_path: Path, recorded: Callable[..., Recorder]) -> None:
    run, there = runs()[0], recorded(step=2)
    folder = folder_of(tmp_path, run)
    copy = Copy(find_tracker("wandb"), Card.of(run, MADE), folder, mode="online", finish_within=1)
    for step in range(4):
        folder.log(step=step)
    assert not copy.look(last=False)
    assert [row["step"] for row in there.rows] == [2, 3]
    folder.cut_metrics(folder.metrics.read_bytes().index(b"\n") + 1)  # back to a checkpoint behind the first line
    assert not copy.look(last=False)
    for step in range(1, 6):
        folder.log(step=step)
    with folder.metrics.open("a") as file:
        file.write('{"step":6')
    assert not copy.look(last=False)
    assert [row["step"] for row in there.rows] == [2, 3, 4, 5]
    assert there.exit_code is None


def test_every_end_of_a_run_is_told(tmp_path: Path, recorded: Callable[..., Recorder]) -> None:
    run = runs()[0]
    ends: dict[str, Callable[[RunFolder], None]] = {
        "done": lambda folder: folder.finish(result_of(run)),
        "diverged": lambda folder: folder.finish(result_of(run, status="diverged", loss="nan")),
        "failed": lambda folder: folder.fail(failure_of(run)),
        "preempted": lambda folder: folder.preempt("SIGTERM", 7),
    }
    for status, write in ends.items():
        there, folder = recorded(), folder_of(tmp_path / status, run)
        write(folder)
        assert Copy(find_tracker("wandb"), Card.of(run, MADE), folder, mode="online", finish_within=1).look(last=False)
        assert there.summary["final"]["status"] == status
        assert there.exit_code == (0 if status in ("done", "diverged") else 1)
        assert there.preempting == (status == "preempted")
        end = folder.result() if status == "done" else None
        told = {} if end is None else {"tokens_per_s": end["tokens_per_step"] * end["steps"] / end["seconds"]["train"]}
        assert {name: there.summary[name] for name in there.summary if name == "tokens_per_s"} == pytest.approx(told)
        assert "counts" not in json.dumps(there.summary) and ".." not in json.dumps(there.summary)


def test_a_run_is_copied_offline_once_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_DIR", raising=False)
    run, made = runs()[0], []
    folder = folder_of(tmp_path, run)
    folder.log(step=1)

    def begun(run_id: str, *words: object, **settings: object) -> Recorder:
        made.append(tmp_path / "wandb" / f"offline-run-{len(made)}-{run_id}")
        made[-1].mkdir(parents=True)
        return Recorder(0)

    monkeypatch.setattr(tracking, "begun", begun)
    for _ in range(2):
        assert list(sync(find_tracker("wandb"), [folder], mode="offline")) == [run.run_id]
    assert len(made) == 1
    folder.finish(result_of(run))
    for _ in range(2):
        assert list(sync(find_tracker("wandb"), [folder], mode="offline")) == [run.run_id]
    assert len(made) == 2 and not made[0].exists() and made[1].exists()  # the earlier one was not of the whole run
    assert tracking.how_to_look(tmp_path, "offline").endswith(f"wandb sync {tmp_path}/wandb/offline-run-*")


def test_a_card_from_the_folder_is_the_one_from_the_run(tmp_path: Path) -> None:
    run = runs()[3]
    folder = folder_of(tmp_path, run)
    folder.finish(result_of(run))
    made = result_of(run)["provenance"]
    assert Card.read(folder, group="g") == Card.of(run, made, group="g")
    config = folder.path / "config.json"
    config.write_text(config.read_text().replace('"version": 1', '"version": 99'))
    old = Card.read(folder)
    assert (old.name, old.tags) == ("parity-lstm-7", ("regular", "xlstm_20k"))  # its family is not in the records
    assert old.config["protocol_label"] == "xlstm_20k (eval.test=9)"
    assert old.config["model_label"] == "lstm (d_model=16)"


@pytest.mark.full
def test_sync_copies_every_run_and_the_tables(tmp_path: Path) -> None:
    results = filled(tmp_path / "results")
    (results / "records.csv").write_text("run_id,test,error\na,0.5,\nb,,broke\n")
    (results / "tables").mkdir()
    (results / "tables" / "accuracy.csv").write_text("model,parity\nlstm,0.25\n")
    picture = results / "figures" / "xlstm" / "heat_map.png"
    picture.parent.mkdir(parents=True)
    Figure(figsize=(1, 1)).savefig(picture)
    code = "import sys; from chomsky_ladder.harness.cli.wandb import wandb; sys.exit(wandb(sys.argv[1:]))"
    words = ["sync", "--mode", "offline", "--group", "again", "--tables", "--results", str(results)]
    ended = subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    ids = sorted(run.run_id for run in runs())
    assert ended.stdout.splitlines() == [
        *(f"[{place}/4] {run_id}" for place, run_id in enumerate(ids, 1)),
        "tables: records.csv, accuracy.csv, xlstm/heat_map.png",
    ]
    names = [file.stem.removeprefix("run-") for file in results.glob("wandb/offline-run-*/*.wandb")]
    assert len(names) == 5 and sorted(names)[:4] == ids
    under_way = runs()[3].run_id
    copies = read_back(results, under_way, "tables")
    assert history(copies[under_way]) == [{"step": 1, "loss": 0.5}]
    assert next(r["run"]["run_group"] for r in copies[under_way] if r["type"] == "run") == "again"
    (tables,) = copies.keys() - {under_way}
    artifacts = [record["artifact"] for record in copies[tables] if record["type"] == "artifact"]
    entries = {
        entry["path"] for each in artifacts if each["type"] == "tables" for entry in each["manifest"]["contents"]
    }
    assert entries == {"records.csv", "accuracy.csv"}
    (shown,) = results.glob("wandb/offline-run-*/files/media/images/figures/xlstm/heat_map_*.png")
    assert shown.read_bytes() == picture.read_bytes()
    (media,) = results.glob("wandb/offline-run-*/files/media/table/records_*.table.json")
    table = json.loads(media.read_text())
    assert table["columns"] == ["run_id", "test", "error"]
    assert table["data"] == [["a", 0.5, None], ["b", None, "broke"]]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "ladder wandb needs one of sync, report"),
        (["sink"], "no such command: wandb sink; there are sync, report"),
        (["sync", "--mode", "on"], "invalid choice"),
        (["sync", "nothing"], "no run 'nothing'"),
        (["sync"], "no finished or stopped runs under"),
        (["sync", "--tables"], "no tables under"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, words: list[str], complaint: str) -> None:
    where = ["--results", str(tmp_path / "none")] if words else []
    with pytest.raises(ValueError, match=complaint):
        wandb_command([*words, *where])
