"""records.csv loses no line: whatever is cut, flipped, written at once or killed in the middle of a rewrite."""

import errno
import hashlib
import multiprocessing
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.store import files, record, records_file
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.record import Record, collect, keep, recorded, stored
from support.cases import full
from support.folders_to_merge import finished, row_of
from support.records_by_hand import failure_of, filled, folder_of, frame, runs

RUNS = runs()
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A records.csv of three lines without the folders of their runs."""
    collect(filled(tmp_path / "there"))
    here = tmp_path / "here"
    here.mkdir()
    keep(here, recorded(tmp_path / "there" / "records.csv"))
    return here / "records.csv"


@pytest.mark.parametrize("times", [12, full(60)])  # each waits for a writer who might be at it
def test_what_is_cut_anywhere_is_refused(times: int, whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, rng = whole.read_bytes(), random.Random(0)
    ends = sorted({0, len(content) - 1, *(rng.randrange(len(content)) for _ in range(times))})
    for end in ends:
        whole.write_bytes(content[:end])
        with pytest.raises(ValueError, match=r"records.csv is not as it was written .* of \(3 records\)"):
            recorded(whole)
    assert cli.main(["table", "--results", str(whole.parent)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "Put back" in said and whole.read_bytes() == content[: ends[-1]]


@pytest.mark.parametrize("times", [12, full(60)])
def test_a_flipped_bit_is_refused(times: int, whole: Path) -> None:
    content, rng = whole.read_bytes(), random.Random(1)
    for _ in range(times):
        flipped = bytearray(content)
        flipped[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        whole.write_bytes(flipped)
        with pytest.raises(ValueError, match="is not as it was written"):
            recorded(whole)
    whole.unlink()
    with pytest.raises(ValueError, match="has gone"):
        recorded(whole)


def test_a_long_cell_locks_nobody_out(tmp_path: Path) -> None:
    done, failed = RUNS[:2]
    finished(tmp_path, done)
    folder_of(tmp_path, failed).fail(failure_of(failed, "x" * 200_000))
    collect(tmp_path)
    assert len(recorded(tmp_path / "records.csv")[failed.run_id].error) == 2000, "a message is cut"
    (tmp_path / "long").mkdir()
    frame(row_of(done, backends="x" * 200_000)).to_csv(tmp_path / "long" / "records.csv", index=False)
    assert list(recorded(tmp_path / "long" / "records.csv")) == [done.run_id], "and what was written is read"


def test_one_without_a_digest_is_read_as_it_stands(whole: Path) -> None:
    records_file.digest_file(whole).unlink()
    before = whole.read_bytes()
    assert len(collect(whole.parent)) == 3
    assert whole.read_bytes() == before and not records_file.digest_file(whole).exists(), "nothing changed"
    whole.write_bytes(before.rpartition(b",")[0])
    with pytest.raises(ValueError, match="is no table of records"):
        recorded(whole)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a bin that is none": ({"test_bins": '{"a..b":0.5}'}, "'a..b' should be lengths"),
    "a length that is none": ({"extrapolation": '{"far":0.5}'}, "'far' should be lengths"),
    "a chance of one": ({"s_rand": 1.0}, "column.s_rand: Input should be less than 1, not '1.0'"),
    "seconds that sum to more than there is": ({"train_seconds": 1e300}, "column.train_seconds: Input should be less"),
    "settings that are a list": ({"settings": "[1]"}, "settings should be the JSON of names with values, not '[1]'"),
    "settings that are deep": ({"settings": '{"a":' + "[" * 900 + "]" * 900 + "}"}, "settings should be the JSON of"),
    "settings that are too deep": ({"settings": "[" * 5000 + "]" * 5000}, "settings should be the JSON of"),
    "no settings": ({"settings": "{"}, "settings should be the JSON of names with values, not '{'"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_cell_that_no_command_could_read_is_refused(name: str, tmp_path: Path) -> None:
    changes, says = BAD[name]
    frame(row_of(RUNS[0]) | changes).to_csv(tmp_path / "records.csv", index=False)
    with pytest.raises(ValueError, match=rf"no table of records: line 1, .*{re.escape(says)}"):
        recorded(tmp_path / "records.csv")


def test_a_run_or_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path, row = tmp_path / "records.csv", row_of(RUNS[0])
    frame(row, row).to_csv(path, index=False)
    assert len(recorded(path)) == 1, "the same twice is the same"
    frame(row, row | {"test": 0.5}).to_csv(path, index=False)
    with pytest.raises(ValueError, match=f"line 2 has other numbers of {RUNS[0].run_id} again"):
        recorded(path)
    head, line = frame(row).to_csv(index=False).splitlines()
    path.write_text(f"{head},test\n{line},0.5\n")
    with pytest.raises(ValueError, match="a column is there twice, test"):
        recorded(path)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("written", range(4))
def test_a_rewrite_that_is_killed_leaves_the_old_or_the_new(
    written: int, is_first: bool, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After none, one, two or all three of its files."""
    results, left = (tmp_path / "fresh" if is_first else whole.parent), written
    results.mkdir(exist_ok=True)

    def dies(path: Path, content: bytes) -> None:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        write_atomically(path, content)

    monkeypatch.setattr(records_file, "write_atomically", dies)
    new = Record(**row_of(RUNS[3]))
    if written < 3:
        with pytest.raises(KeyboardInterrupt):
            keep(results, {new.run_id: new})
        monkeypatch.undo()
    else:
        keep(results, {new.run_id: new})
    old = set() if is_first else {run.run_id for run in RUNS[:3]}
    assert set(recorded(results / "records.csv")) in (old, old | {new.run_id})
    assert len(keep(results, {new.run_id: new})) == len(old) + 1
    assert len(list(results.glob("records.csv*"))) == 2
    digests = records_file.digest_file(results / "records.csv").read_text().splitlines()[1:]
    assert digests == [f"{hashlib.sha256((results / 'records.csv').read_bytes()).hexdigest()}  records.csv"]


def _add(results: Path, start: int, count: int) -> None:
    for seed in range(start, start + count):
        line = Record(**row_of(RUNS[0]) | {"run_id": f"parity-lstm-s{seed}-{seed:010x}", "seed": seed})
        keep(results, {line.run_id: line})


def test_several_who_write_at_once_lose_nothing(tmp_path: Path) -> None:
    writers = [FORK.Process(target=_add, args=(tmp_path, 100 * i, 6)) for i in range(3)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        stored(tmp_path / "records.csv")  # refused where it is torn
        time.sleep(0.005)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert len(recorded(tmp_path / "records.csv")) == 18
    assert sorted(path.name for path in tmp_path.iterdir()) == ["records.csv", "records.csv.sha256"]


def test_what_is_merged_while_a_table_is_made_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other command ends between the table's look at the runs and its writing of records.csv."""
    finished(tmp_path, RUNS[0])
    of_runs, other = record.of_runs, Record(**row_of(RUNS[1]))

    def slow(results: Path) -> tuple[dict[str, Record], dict[str, str]]:
        found = of_runs(results)
        monkeypatch.undo()
        keep(results, {other.run_id: other})
        return found

    monkeypatch.setattr(record, "of_runs", slow)
    collect(tmp_path)
    assert set(recorded(tmp_path / "records.csv")) == {RUNS[0].run_id, other.run_id}


def test_writers_of_one_file_never_write_into_each_other(tmp_path: Path) -> None:
    path, sizes = tmp_path / "x", (300_000, 200_000)
    path.write_bytes(b"a" * sizes[0])

    def write(letter: bytes, size: int) -> None:
        for _ in range(40):
            write_atomically(path, letter * size)

    writers = [FORK.Process(target=write, args=pair) for pair in zip((b"a", b"b"), sizes, strict=True)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert path.read_bytes() in (b"a" * sizes[0], b"b" * sizes[1])
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert list(tmp_path.iterdir()) == [path]


def test_what_killed_writers_left_goes_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left, other = tmp_path / "x.4711-abcdef.part", tmp_path / "y.4711-abcdef.part"
    left.touch()
    other.touch()
    write_atomically(tmp_path / "x", b"1")
    assert left.exists(), "its writer may be at work"
    monkeypatch.setattr(files, "_ABANDONED", -1.0)
    write_atomically(tmp_path / "x", b"2")
    assert not left.exists() and other.exists()


def test_a_clock_that_is_ahead_costs_no_writer_its_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left, now = tmp_path / "x.4711-abcdef.part", time.time()
    left.touch()
    monkeypatch.setattr(time, "time", lambda: now + 2 * files._ABANDONED)
    write_atomically(tmp_path / "x", b"1")
    assert left.exists(), "its writer may be at work"


def test_a_file_that_cannot_be_written_is_named_as_it_was_given(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "x"
    with pytest.raises(FileNotFoundError) as refused:
        write_atomically(path, b"1")
    assert refused.value.filename == str(path), "not its part"


def test_a_read_only_disk_is_said_of_the_file_that_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(path: Path, *_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "open", refuses)
    monkeypatch.setattr(Path, "unlink", refuses)
    with pytest.raises(OSError, match="Read-only") as caught:
        write_atomically(tmp_path / "x.tex", b"")
    assert caught.value.filename == str(tmp_path / "x.tex")
