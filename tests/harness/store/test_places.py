"""Mine and published apart: what commands write to, what they only read, and what they say where they would write."""

import hashlib
import shutil
from pathlib import Path

import pytest

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.store import curves, places
from chomsky_ladder.harness.store.places import (
    MARKER,
    is_published,
    publishing,
    refuse_published,
    with_published,
)
from chomsky_ladder.harness.store.record import collect
from chomsky_ladder.harness.sweep.merge import merge
from support.records_by_hand import failure_of, filled, folder_of, result_of, runs

ROOT = Path(__file__).parents[3]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone whose published folder has records, curves, and folders of runs that are in neither yet."""
    clone = tmp_path / "clone"
    results = filled(clone / "results")
    collect(results)
    (results / MARKER).write_text("read me\n")
    folder_of(results, runs()[3]).finish(result_of(runs()[3]))
    (clone / "pyproject.toml").touch()
    monkeypatch.setattr(places, "CHECKOUT", clone)
    monkeypatch.chdir(clone)
    monkeypatch.delenv("LADDER_RESULTS", raising=False)
    return results


def state(folder: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


def test_the_committed_folder_is_marked() -> None:
    assert is_published(ROOT / "results") and is_published(ROOT / "results" / "records.csv")
    assert not is_published(ROOT / "results" / "mine") and not is_published(ROOT / "results" / "mine" / "runs" / "one")
    assert not is_published(ROOT) and is_published(ROOT / "results" / "othello" / "tables")
    assert "results/mine/" in (ROOT / ".gitignore").read_text().splitlines()


def test_a_word_stands_for_it(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_published(["--results", "published", "published"]) == ["--results", str(published), "published"]
    assert with_published(["--exec.results=published"]) == [f"--exec.results={published}"]
    assert with_published(["--results", "./published", "--results"]) == ["--results", "./published", "--results"]
    (published / MARKER).unlink()
    with pytest.raises(ValueError, match="no part of an installed package"):
        with_published(["--results", "published"])


def test_a_link_and_a_path_around_it_are_seen_through(published: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(published)
    for path in (tmp_path / "link", published / "mine" / "..", Path("results/tables/../runs")):
        with pytest.raises(ValueError, match="is published, and commands only read it"):
            refuse_published(path)
    refuse_published(published / "mine")
    with publishing():
        refuse_published(published)
    assert places.is_read_only(published)


@pytest.mark.full
def test_reading_commands_read_it_and_leave_it_as_it_was(published: Path, tmp_path: Path, capsys: Capture) -> None:
    before = state(published)
    assert len(collect(published)) == 4  # with the run that its records.csv does not have yet
    assert len(curves.collect(published)) == 1
    for words in (["table"], ["table", "--kind", "accuracy"], ["status"], ["diff", runs()[0].run_id, runs()[1].run_id]):
        assert main([*words, "--results", "published"]) == 0
    assert main(["figures", "--results", "published", "--out", str(tmp_path / "drawn")]) == 0
    assert main(["page", "--results", "published", "--out", str(tmp_path / "page.html")]) == 0
    assert main(["merge", "results", "--dry-run"]) == 0
    assert "| LSTM |" in capsys.readouterr().out and state(published) == before
    with publishing():
        collect(published)
    assert state(published) != before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["table", "--all", "--results", "published"], "leave out --all to print a table"),
        (["figures", "--results", "results"], "say where to draw with --out FOLDER"),
        (["figures", "--out", "results/figures"], "say where to draw with --out FOLDER"),
        (["page", "--results", "results"], "say where to write with --out FILE"),
        (["page", "--results", "results", "--out", "results/my.html"], "say where to write with --out FILE"),
        (["run", "parity", "lstm", "--exec.results", "published"], "results/mine, or name another folder"),
        (["climb", "lstm", "--card", "--exec.results=published"], "results/mine, or name another folder"),
        (["sweep", "mine.py", "--exec.results", "results"], "results/mine, or name another folder"),
        (["plan", "mine.py", "--exec.results", "results"], "results/mine, or name another folder"),
        (["clean", "--failed", "--results", "results"], "results/mine, or name another folder"),
        (["merge", "elsewhere", "--results", "published"], "results/mine, or name another folder"),
        (["throughput", "--out", "results/throughput/cpu", "--device", "cpu"], "say where to write with --out FOLDER"),
        (["wandb", "sync", "--results", "published"], "$WANDB_DIR says where"),
    ],
)
def test_what_would_write_there_is_refused_in_one_line(
    words: list[str], says: str, published: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_DIR", raising=False)
    filled(Path("elsewhere"))
    script = "from chomsky_ladder import preset_run\ndef runs():\n    return [preset_run('parity', 'lstm')]\n"
    Path("mine.py").write_text(script)
    before = state(published)
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.err.startswith("ladder: ") and says in said.err and said.err.count("\n") == 1 and not said.out
    assert state(published) == before


def test_the_refusal_names_no_folder_that_is_refused(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADDER_RESULTS", str(published))
    with pytest.raises(ValueError, match="name a folder of your own"):
        refuse_published(published)


def test_who_has_no_runs_is_told_of_the_published_ones(published: Path, capsys: Capture) -> None:
    for words in (["table"], ["status"], ["page"], ["figures"]):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert f"{published / 'mine'}; `--results published` has the committed ones" in said and said.count("\n") == 1
    assert not (published / "mine").exists()
    assert main(["table", "--results", "nowhere"]) == 2
    assert capsys.readouterr().err == "ladder: no finished runs under nowhere\n"  # a folder that was named
    (published / MARKER).unlink()
    assert main(["table"]) == 2
    assert "published" not in capsys.readouterr().err


def test_a_run_without_a_folder_is_told_of_its_record(published: Path, capsys: Capture) -> None:
    done = runs()[0].run_id
    shutil.rmtree(published / "runs")
    for folder in ("published", "elsewhere"):
        assert main(["errors", done, "--results", folder]) == 2
        said = capsys.readouterr().err
        assert f"only its record is in {published}/records.csv: `ladder reproduce {done}` runs it again" in said


def test_a_merge_takes_from_it(published: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    lines = [run.run_id for run in runs()[:2]]
    shutil.rmtree(published / "runs")
    assert merge([published], own).lines == lines
    run = runs()[2]
    folder_of(own, run).fail(failure_of(run))
    assert len(collect(own)) == 3
