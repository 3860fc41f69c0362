"""The study of a text: its corpus is checked before any work, and its models are the climb's."""

from collections import Counter
from pathlib import Path

import pytest

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.config.protocols import columns_of, preset_run
from chomsky_ladder.harness.config.rows import ROWS
from chomsky_ladder.harness.sweep.studies import text
from chomsky_ladder.tasks._text_files import digest


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with short texts in place of the corpora."""
    monkeypatch.chdir(tmp_path)
    corpora = []
    for corpus in text.CORPORA:
        (tmp_path / corpus.file).write_text(f"{corpus.title}: in the beginning was the word. " * 100)
        corpora.append(corpus._replace(sha256=digest(corpus.file)))
    monkeypatch.setattr(text, "CORPORA", tuple(corpora))
    return tmp_path


def test_every_model_of_the_climb_but_two_reads_and_the_slowest_comes_last() -> None:
    assert sorted(map(str, text.MODELS)) == sorted(str(row) for row in ROWS if row[0] not in ("ntm", "dnc"))
    names = [name for name, _ in text.MODELS]
    assert names[:3] == ["lstm", "transformer", "mamba"] and set(names[-2:]) == {"looped_transformer", "tape_rnn"}


def test_a_cell_is_a_seed_at_three_rates_and_larger_budgets_add_the_dictionary(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "MODELS", (("lstm", {}), ("xlstm", {"ratio": "1:0"})))
    runs = text.runs("cpu")
    cells = Counter((columns_of(run)["task"], columns_of(run)["model"]) for run in runs)
    task = f"text (file_sha256={text.CORPORA[0].sha256})"
    assert cells == {(task, "lstm"): 3, (task, "xlstm (ratio=1:0)"): 3}
    shared = {(run.protocol, run.seed, run.train.steps, run.train.lengths, run.eval.lengths) for run in runs}
    assert shared == {("text-v1", 0, 1000, (128, 128), (128, 128))}
    assert runs[0].model == preset_run("mqar", "lstm", protocol="climb-v1").model  # of the same widths
    assert len(text.runs("gpu")) == 2 * len(runs) and {run.train.steps for run in text.runs("full")} == {10_000}
    for corpus in text.CORPORA:
        (here / corpus.file).unlink()
    assert {(columns_of(run)["task"], run.train.steps) for run in text.runs("smoke")} == {("text", 20)}


def test_a_missing_text_is_one_line_that_says_how_to_make_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "kjv.txt").unlink()
    assert main(["study", "text", "--exec.results", str(here / "results")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and said.startswith("ladder study text: no kjv.txt here.")
    assert "bible-kjv-text: bible -f gen1:1-rev22:21 | cut -d' ' -f2- > kjv.txt" in said


def test_another_text_of_that_name_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "kjv.txt").write_text("another text")
    assert main(["study", "text", "--exec.results", str(here / "results")]) == 2
    assert "kjv.txt has another text now than file_sha256=" in capsys.readouterr().err
    assert not (here / "results").exists()
