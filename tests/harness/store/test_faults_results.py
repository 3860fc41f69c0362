"""One damaged run costs its own row and is named; what the system refuses is one line; a line can be taken out."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.store import lock, record, records_file
from chomsky_ladder.harness.store.folder import RunFolder, expected_seconds, plan_file
from chomsky_ladder.harness.store.record import Record, collect, keep, recorded
from chomsky_ladder.harness.store.status import status_of
from chomsky_ladder.harness.sweep.sweep import left_of
from support.folders_to_merge import OTHER, RUN, finished, row_of
from support.records_by_hand import frame

Capture = pytest.CaptureFixture[str]
Spoil = Callable[[Path], object]


def digit(folder: Path) -> None:
    path = folder / "result.json"
    path.write_text(path.read_text().replace('"accuracy": 0.875', '"accuracy": 0.876', 1))


DAMAGES: dict[str, Spoil] = {
    "result.json cut": lambda folder: os.truncate(folder / "result.json", 100),
    "result.json empty": lambda folder: os.truncate(folder / "result.json", 0),
    "result.json null": lambda folder: (folder / "result.json").write_text("null"),
    "one digit of it": digit,
    "metrics.jsonl cut": lambda folder: os.truncate(folder / "metrics.jsonl", 3),
    "metrics.jsonl gone": lambda folder: (folder / "metrics.jsonl").unlink(),
    "one bad byte in it": lambda folder: (folder / "metrics.jsonl").write_bytes(b'{"step":\xff}\n'),
    "config.json cut": lambda folder: os.truncate(folder / "config.json", 30),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_costs_its_own_row(damage: str, tmp_path: Path, capsys: Capture) -> None:
    """Status, sweep and table agree that it is not done, and the others are shown."""
    finished(tmp_path, OTHER)
    folder = finished(tmp_path, RUN)
    DAMAGES[damage](folder)
    assert status_of(folder).state == "failed" and status_of(folder).error
    assert left_of([RUN, OTHER], tmp_path) == [RUN]
    assert list(collect(tmp_path)["run_id"]) == [OTHER.run_id]
    said = capsys.readouterr().err
    assert said.startswith(f"ladder: {RUN.run_id} is left out: ") and str(folder) in said and said.count("\n") == 1
    assert cli.main(["status", "--all", "--results", str(tmp_path)]) == 0
    assert cli.main(["table", "--results", str(tmp_path)]) == 0
    assert cli.main(["page", "--results", str(tmp_path)]) == 0


def test_its_line_stands_as_it_was(tmp_path: Path, capsys: Capture) -> None:
    folder = finished(tmp_path, RUN)
    collect(tmp_path)
    before = (tmp_path / "records.csv").read_bytes()
    digit(folder)
    assert list(collect(tmp_path)["test"]) == [0.875]
    assert "its line in records.csv stands as it was" in capsys.readouterr().err
    assert (tmp_path / "records.csv").read_bytes() == before


@pytest.mark.parametrize("content", ['{"a": 1', "[]", '{"x": NaN, "y": "1", "z": -1}', "null", "\x00"])
def test_a_damaged_plan_breaks_nothing(content: str, tmp_path: Path) -> None:
    plan_file(tmp_path).write_text(content)
    assert expected_seconds(tmp_path) == {}
    assert RunFolder(tmp_path, RUN.run_id).expected_seconds() is None


@pytest.mark.parametrize("lr", ["nan", "inf", "0"])
def test_a_poisoned_line_is_refused_at_the_door_and_can_be_taken_out(lr: str, tmp_path: Path, capsys: Capture) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    file = there / "records.csv"
    frame(row_of(RUN) | {"lr": lr}, row_of(OTHER)).to_csv(file, index=False)
    head, _, other = file.read_text().splitlines()
    assert cli.main(["merge", str(there), "--results", str(here)]) == 2
    said = capsys.readouterr().err
    assert "line 1, column.lr: Input should be" in said and f"ladder clean --records {RUN.run_id}" in said
    assert cli.main(["clean", "--records", RUN.run_id, "--yes", "--results", str(there)]) == 0
    assert capsys.readouterr().out == "removed 1 line of records.csv\n"
    assert file.read_text().splitlines() == [head, other]
    assert cli.main(["clean", "--records", RUN.run_id, "--yes", "--results", str(there)]) == 2
    assert cli.main(["merge", str(there), "--results", str(here)]) == 0


def test_a_cell_never_switches_from_scaled_to_raw(tmp_path: Path, capsys: Capture) -> None:
    lines = [Record(**row_of(RUN)), Record(**row_of(OTHER, test_scaled=None))]
    keep(tmp_path, {line.run_id: line for line in lines})
    assert cli.main(["table", "--results", str(tmp_path)]) == 2
    assert f"{OTHER.run_id} has no scaled accuracy, and other runs of its cell have" in capsys.readouterr().err


def test_a_folder_that_may_only_be_read_is_printed(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(tmp_path, RUN)

    def refused(path: Path, *rest: object, **named: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(lock, "held_file", refused)
    monkeypatch.setattr("chomsky_ladder.harness.store.files.write_atomically", refused)
    assert cli.main(["table", "--results", str(tmp_path)]) == 0
    assert "| LSTM |" in capsys.readouterr().out
    assert not (tmp_path / "records.csv").exists() and not list(tmp_path.rglob("*.part"))


def test_a_run_that_may_not_be_looked_into_is_said(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(tmp_path, OTHER)
    finished(tmp_path, RUN)
    of = Record.of

    def refused(folder: RunFolder) -> Record | None:
        if folder.path.name == RUN.run_id:
            raise PermissionError(13, "Permission denied", str(folder.path))
        return of(folder)

    monkeypatch.setattr(record.Record, "of", refused)
    assert list(collect(tmp_path)["run_id"]) == [OTHER.run_id]
    assert f"{RUN.run_id} is left out: [Errno 13] Permission denied" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (OSError(28, "No space left on device", "x"), 74, "No space left on device: x"),
        (PermissionError(13, "Permission denied", "y"), 2, "Permission denied: y"),
        (IsADirectoryError(21, "Is a directory", "z"), 2, "Is a directory: z"),
        (MemoryError(), 74, "out of memory"),
    ],
)
def test_what_the_system_refuses_is_one_line(
    error: BaseException, code: int, says: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*words: object) -> None:
        raise error

    monkeypatch.setattr("chomsky_ladder.harness.store.status.survey", refused)
    assert cli.main(["status", "--results", str(tmp_path)]) == code
    assert capsys.readouterr().err == f"ladder: {says}\n"


@pytest.mark.parametrize(("shell", "code"), [(">&- 2>&-", 0), ("<&-", 0), ("> /dev/full", 74), ("2> /dev/full", 0)])
def test_closed_and_full_streams(shell: str, code: int, tmp_path: Path) -> None:
    finished(tmp_path, RUN)
    command = f"{sys.executable} -m chomsky_ladder status --results {tmp_path} {shell}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == code and "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_pipes_are_refused_and_never_waited_for(tmp_path: Path, capsys: Capture) -> None:
    folder = finished(tmp_path, RUN)
    (folder / "result.json").unlink()
    (folder / "lock").unlink()
    os.mkfifo(folder / "result.json")
    os.mkfifo(folder / "lock")
    assert status_of(folder).state == "failed"
    os.mkfifo(tmp_path / "records.csv")
    assert cli.main(["table", "--results", str(tmp_path)]) == 2
    assert "is no plain file" in capsys.readouterr().err


def test_a_lock_of_random_bytes_is_nobodys(tmp_path: Path) -> None:
    folder = finished(tmp_path, RUN)
    (folder / "lock").write_bytes(b"\xff\x00process \xfe")
    assert lock.holder(folder) is None and status_of(folder).state == "done"


def test_a_full_disk_can_be_cleaned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no room for the name of who holds the lock."""
    folder = finished(tmp_path, RUN)

    def full(*words: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lock.Holder, "__str__", full)
    assert cli.main(["clean", "--checkpoints", "--yes", "--results", str(tmp_path)]) == 0
    assert not list(folder.glob("*.ckpt"))
    with pytest.raises(OSError, match="No space left"), lock.held(folder):
        pass


def test_what_is_kept_of_the_published_records_fits_them() -> None:
    file = Path(__file__).resolve().parents[3] / "results" / "records.csv"
    assert records_file.digest_file(file).exists() and len(recorded(file)) == len(records_file.rows(file))
    assert json.dumps(sorted(recorded(file))) == json.dumps([row["run_id"] for row in records_file.rows(file)])
