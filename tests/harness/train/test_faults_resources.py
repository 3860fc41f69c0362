"""Out of memory, out of disk, nowhere to write: recorded as such, nothing half-written taken for done, done later."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.sweep.sweep import sweep
from chomsky_ladder.harness.train.pack import Pack
from support.faults import (
    Child,
    assert_same,
    ladder,
    mounted,
    outcome,
    put_into,
    short_of_files,
    short_of_memory,
    sweeps,
    the_run,
)

PAGE = 4096
WORDS = (
    *("run", "parity", "lstm", "--train.steps", "12", "--train.batch", "4", "--train.lengths", "3", "8", "--quiet"),
    *("--model.d-model", "8", "--eval.test", "8", "--eval.validation", "8", "--eval.every", "6"),
    *("--eval.lengths", "8", "12", "--eval.bins", "8", "12", "--eval.extrapolate", "14", "--eval.extrapolation", "4"),
    *("--exec.log-every", "2", "--exec.checkpoint-every", "5", "--exec.device", "cpu"),
)


def large(run: Run, batch: int) -> Run:
    return replace(run, train=replace(run.train, steps=3, batch=batch))


@pytest.mark.parametrize("pack", [1, 2])
def test_what_is_out_of_memory_says_so_and_stops_nothing_else(pack: int, tmp_path: Path) -> None:
    """The system refuses memory (RLIMIT_AS) to a run or to a pack of two; test_pack.py has one that fits in halves."""
    runs = [large(the_run(seed=seed), 100_000_000) for seed in range(pack)] + [the_run(seed=9)]
    settings = put_into(tmp_path / "results", pack=pack)
    child = Child(tmp_path / "notes", short_of_memory, 500, sweeps, runs, settings)
    assert child.ended() == 0, child.said
    *broken, last = [RunFolder(settings.results, run.run_id) for run in runs]
    for folder in broken:
        failure = folder.failure()
        assert folder.result() is None
        assert failure is not None and failure["kind"] == "out of memory", failure
    assert last.result() is not None and last.result()["status"] == "done"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    folder = tmp_path / "disk"
    reason = mounted(folder, "size=1m")
    if reason:
        pytest.skip(reason)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_full_of_checkpoints(disk: Path, tmp_path: Path) -> None:
    """Two checkpoints of this run fit on the disk, a third does not."""
    small = the_run()
    run = replace(small, model=replace(small.model, d_model=64))
    settings = put_into(disk)
    assert sweep([run], settings, quiet=True) == [None]
    folder = RunFolder(disk, run.run_id)
    failure = folder.failure()
    assert failure is not None and failure["kind"] == "disk full" and "No space left on device" in failure["error"]
    assert not list(folder.path.glob("*.part"))
    kept = checkpoint.steps(folder.path)
    assert kept and all(checkpoint.read(checkpoint.path_of(folder.path, step)) for step in kept)
    assert sweep([run], settings, quiet=True) == [None]  # there is still no room
    assert checkpoint.steps(folder.path) == kept

    subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
    assert all(sweep([run], settings, quiet=True)) and folder.failure() is None
    sweep([run], put_into(tmp_path / "whole"), quiet=True)
    assert_same(outcome(disk, run), outcome(tmp_path / "whole", run))


@pytest.mark.full
@pytest.mark.parametrize("pages", [0, 1, 2, 3, 4, 6, 9, 14, 20])
def test_a_disk_with_room_for_so_many_pages(
    pages: int, disk: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whichever write finds no room, there is one line and no result; with room, the result equals any other disk's."""
    filler = disk / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 2**20 - pages * PAGE)
    code = cli.main([*WORDS, "--exec.results", str(disk)])
    said = capfd.readouterr().err
    assert code in (1, 2), "there was room after all"
    assert said.startswith("ladder: ") and said.count("\n") == 1 and "No space left on device" in said
    assert not list(disk.glob("runs/*/result.json")) and not list(disk.glob("runs/*/*.part"))
    for path in disk.glob("runs/*/failure.json"):
        assert RunFolder(disk, path.parent.name).failure()["kind"] == "disk full"

    filler.unlink()
    results = tmp_path / "whole"
    assert [cli.main([*WORDS, "--exec.results", str(folder)]) for folder in (disk, results)] == [0, 0]
    (path,) = (results / "runs").iterdir()
    run = Run.from_plain(RunFolder(results, path.name).config())
    assert_same(outcome(disk, run), outcome(results, run))


def test_a_quota_of_a_files_size(tmp_path: Path) -> None:
    """The same without a disk of our own: the system refuses to let a checkpoint grow (RLIMIT_FSIZE)."""
    run, settings = the_run(), put_into(tmp_path / "results")
    child = Child(tmp_path / "notes", short_of_files, 2 * PAGE, sweeps, [run], settings)
    assert child.ended() == 0, child.said
    folder = RunFolder(settings.results, run.run_id)
    failure = folder.failure()
    assert failure is not None and "File too large" in failure["error"]
    assert folder.result() is None and not checkpoint.steps(folder.path) and not list(folder.path.glob("*.part"))
    assert all(sweep([run], settings, quiet=True)) and folder.failure() is None
    sweep([run], put_into(tmp_path / "whole"), quiet=True)
    assert_same(outcome(settings.results, run), outcome(tmp_path / "whole", run))


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder that may not be written, by its mode, or for root, who ignores that, by its file system."""
    folder = tmp_path / "read_only"
    folder.mkdir()
    if os.geteuid() != 0:
        folder.chmod(0o555)
        yield folder
        return
    reason = mounted(folder, "ro,size=1m")
    if reason:
        pytest.skip(f"root may write anywhere, and {reason}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_read_only_folder_is_refused_before_training(
    below: str, read_only: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pack, "advance", lambda pack, longest: pytest.fail("trained before it was refused"))
    assert cli.main([*WORDS, "--exec.results", str(read_only / below)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("ladder: cannot write results to ") and said.count("\n") == 1
    with pytest.raises(ValueError, match="cannot write results to"):
        sweep([the_run()], Exec(results=read_only / below), quiet=True)


def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    results = tmp_path / "not" / "there yet"
    child = Child(tmp_path / "notes", ladder, [*WORDS, "--exec.results", str(results)])
    assert child.ended() == 0, child.said
    assert len(list(results.glob("runs/*/result.json"))) == 1
