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
        (tmp_path / corpus.file).write_text(f"{corpus.file} begins here. " * 200)
        corpora.append(corpus._replace(sha256=digest(corpus.file)))
    monkeypatch.setattr(text, "CORPORA", tuple(corpora))
    return tmp_path


def test_every_model_of_the_climb_reads_the_bible_at_three_rates(here: Path) -> None:
    runs = text.runs("cpu")
    cells = Counter((columns_of(run)["task"], columns_of(run)["model"]) for run in runs)
    assert len(cells) == len(ROWS) - 2 and set(cells.values()) == {3}
    assert {task for task, _ in cells} == {f"text (file_sha256={text.CORPORA[0].sha256})"}
    assert {(run.protocol, run.seed, run.train.steps, run.eval.lengths) for run in runs} == {
        ("text-v1", 0, 1000, (128, 128))
    }
    first = list(dict.fromkeys(run.model.name for run in runs))
    assert first[:4] == ["lstm", "transformer", "mamba", "xlstm"] and not {"ntm", "dnc"} & set(first)


def test_the_models_have_the_widths_of_the_climb(here: Path) -> None:
    of_climb = {preset_run("mqar", name, protocol="climb-v1").model for name, changes in ROWS if not changes}
    assert {model.name for model in of_climb - {run.model for run in text.runs("cpu")}} == {"ntm", "dnc"}


def test_larger_budgets_add_the_dictionary_and_smoke_needs_no_text(here: Path) -> None:
    assert len(text.runs("gpu")) == 2 * len(text.runs("cpu"))
    assert {run.train.steps for run in text.runs("full")} == {10_000}
    for corpus in text.CORPORA:
        (here / corpus.file).unlink()
    smoke = text.runs("smoke")
    assert {(columns_of(run)["task"], run.train.steps) for run in smoke} == {("text", 20)}


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
