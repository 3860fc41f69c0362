"""`ladder clean` removes what it names, asks first, and leaves alone what runs, what is linked and what is no run."""

import io
from dataclasses import replace
from pathlib import Path

import pytest

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.store import clean
from chomsky_ladder.harness.store.folder import RunFolder
from support.records_by_hand import failure_of, filled, folder_of, result_of, runs

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """One done, diverged, failed, unfinished and preempted run, each with a checkpoint of 1000 bytes."""
    filled(tmp_path)
    folder_of(tmp_path, replace(runs()[0], seed=20)).preempt("SIGTERM", 7)
    for folder in (tmp_path / "runs").iterdir():
        (folder / "step_00000007.ckpt").write_bytes(bytes(1000))
    return tmp_path


DONE, DIVERGED, FAILED, UNFINISHED = (run.run_id for run in runs())
PREEMPTED = replace(runs()[0], seed=20).run_id
EVERY = {DONE, DIVERGED, FAILED, UNFINISHED, PREEMPTED}


def there(results: Path) -> set[str]:
    return {path.name for path in (results / "runs").iterdir()}


def checkpointed(results: Path) -> set[str]:
    return {path.parent.name for path in results.rglob("*.ckpt")}


def cleaned(results: Path, *words: str) -> int:
    return cli.main(["clean", *words, "--results", str(results), "--yes"])


@pytest.mark.parametrize(
    ("words", "gone"),
    [
        (["--failed"], {FAILED}),
        (["--preempted"], {PREEMPTED}),
        (["--unfinished"], {UNFINISHED}),
        (["--failed", "--unfinished"], {FAILED, UNFINISHED}),
        ([DONE], {DONE}),
        ([DONE, DIVERGED, DONE], {DONE, DIVERGED}),
        ([DONE, "--preempted"], {DONE, PREEMPTED}),
    ],
)
def test_what_is_named_goes_and_nothing_else(words: list[str], gone: set[str], results: Path, capsys: Capture) -> None:
    (results / "records.csv").write_text("run_id\n")
    assert cleaned(results, *words) == 0
    assert there(results) == EVERY - gone
    assert (results / "records.csv").exists()
    said = capsys.readouterr().out
    assert all(run_id in said for run_id in gone) and not any(run_id in said for run_id in EVERY - gone)


@pytest.mark.parametrize(
    ("words", "gone"),
    [
        (["--checkpoints"], {DONE, DIVERGED}),
        (["--checkpoints", "--failed"], {FAILED}),
        (["--checkpoints", UNFINISHED], {UNFINISHED}),
    ],
)
def test_checkpoints_alone(words: list[str], gone: set[str], results: Path, capsys: Capture) -> None:
    assert cleaned(results, *words) == 0
    assert there(results) == EVERY and checkpointed(results) == EVERY - gone
    assert RunFolder(results, DONE).result() is not None
    assert f"removed the checkpoints of {len(gone)} run" in capsys.readouterr().out
    assert cleaned(results, *words) == 0
    assert capsys.readouterr().out == "nothing to remove\n"


def test_sizes_are_those_of_the_files(results: Path, capsys: Capture) -> None:
    (RunFolder(results, FAILED).path / "step_00000009.ckpt").write_bytes(bytes(2_500_000))
    cleaned(results, "--checkpoints", "--failed", PREEMPTED)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:2]] == [
        [FAILED, "failed", "2.5", "MB"],
        [PREEMPTED, "preempted", "1", "kB"],
    ] or [line.split() for line in lines[:2]] == [[PREEMPTED, "preempted", "1", "kB"], [FAILED, "failed", "2.5", "MB"]]
    assert lines[2] == "removed the checkpoints of 2 runs, 2.5 MB"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("answer", "agreed"), [("y\n", True), ("yes\n", True), ("n\n", False), ("\n", False), ("", False)]
)
def test_it_asks(answer: str, agreed: bool, results: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    code = cli.main(["clean", "--failed", "--results", str(results)])
    said = capsys.readouterr().out
    assert (code, there(results)) == ((0, EVERY - {FAILED}) if agreed else (1, EVERY))
    assert said.index(FAILED) < said.index("remove 1 run, ")
    assert ("nothing was removed" in said) == (not agreed)


def test_it_refuses_where_nobody_can_be_asked(results: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert cli.main(["clean", "--failed", "--results", str(results)]) == 2
    assert "confirm with --yes" in capsys.readouterr().err
    assert there(results) == EVERY


def test_it_must_be_told_what(results: Path, capsys: Capture) -> None:
    assert cleaned(results) == 2
    assert "say what to remove: a RUN_ID, --failed" in capsys.readouterr().err
    assert there(results) == EVERY


def test_a_running_one_is_never_touched(results: Path, capsys: Capture) -> None:
    with RunFolder(results, UNFINISHED).locked(), RunFolder(results, FAILED).locked():
        assert cleaned(results, "--unfinished", "--failed") == 0
        assert capsys.readouterr().out == "nothing to remove\n"
        for words in ([UNFINISHED], [DONE, UNFINISHED], ["--checkpoints", FAILED]):
            assert cleaned(results, *words) == 2
            assert "runs now (process " in capsys.readouterr().err
    assert there(results) == checkpointed(results) == EVERY


def test_one_that_starts_after_the_list_is_kept(results: Path) -> None:
    (target,) = clean.targets(results, states=["unfinished"], run_ids=[], what="runs")
    with RunFolder(results, UNFINISHED).locked():
        assert "is being written by process" in clean.remove(target)
    folder_of(results, runs()[3]).finish(result_of(runs()[3]))
    assert clean.remove(target) == "it has gone on since it was listed"
    assert there(results) == checkpointed(results) == EVERY


def test_one_that_is_kept_is_reported(results: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean, "remove", lambda target: "it clings" if target.run.run_id == FAILED else "")
    assert cleaned(results, FAILED, DONE) == 1
    said = capsys.readouterr()
    assert said.err == f"ladder: {FAILED} was kept: it clings\n"
    assert "removed 1 run, " in said.out


@pytest.mark.parametrize(
    "name",
    [
        *("..", ".", "", "/", "../outside", "../../outside", f"../runs/{DONE}", f"{DONE}/", f"./{DONE}", "*"),
        *(DONE[:-1], "linked", "no_config", "file"),
    ],
)
def test_what_is_no_run_is_refused(name: str, results: Path, capsys: Capture) -> None:
    outside = results.parent / f"{results.name}_outside"
    outside.mkdir()
    folder_of(outside, runs()[0])
    (results / "outside").mkdir()
    (results / "outside" / "config.json").write_text("{}")
    (results / "runs" / "linked").symlink_to(outside / "runs" / DONE)
    (results / "runs" / "no_config").mkdir()
    (results / "runs" / "file").touch()
    before = sorted(results.rglob("*"))
    assert cleaned(results, name) == 2
    assert "is no run under" in capsys.readouterr().err
    assert cleaned(results, DONE, name) == 2
    assert sorted(results.rglob("*")) == before
    assert (outside / "runs" / DONE / "config.json").exists()


def test_links_are_removed_and_not_followed(results: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "keep").write_text("kept")
    (outside / "big").write_bytes(bytes(10_000_000))
    folder = RunFolder(results, FAILED).path
    (folder / "folder").symlink_to(outside)
    (folder / "step_00000008.ckpt").symlink_to(outside / "big")
    (folder / "deep").mkdir()
    (folder / "deep" / "link").symlink_to(outside)
    (folder / "lock").unlink(missing_ok=True)
    (folder / "lock").symlink_to(outside / "keep")
    (target,) = clean.targets(results, states=["failed"], run_ids=[], what="runs")
    assert target.bytes < 100_000
    assert cleaned(results, "--failed") == 0
    assert there(results) == EVERY - {FAILED}
    assert (outside / "keep").read_text() == "kept" and (outside / "big").stat().st_size == 10_000_000


def test_a_kill_in_the_middle_leaves_an_unfinished_run(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(self: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "iterdir", killed)
    assert cli.main(["clean", DONE, "--results", str(results), "--yes"]) == 130
    monkeypatch.undo()
    assert RunFolder(results, DONE).result() is None
    assert cleaned(results, "--unfinished") == 0
    assert there(results) == EVERY - {DONE, UNFINISHED}


def test_a_removed_run_can_be_started_again(results: Path) -> None:
    run = runs()[2]
    assert cleaned(results, run.run_id) == 0
    folder = folder_of(results, run)
    with folder.locked():
        folder.fail(failure_of(run))
    assert there(results) == EVERY
