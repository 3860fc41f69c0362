"""A report holds what the records say and nothing else, in three formats; a mistake is one line before any work."""

import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.cli.report import FOURTEEN
from chomsky_ladder.harness.config.protocols import identity_of, preset_run
from chomsky_ladder.harness.sweep.studies.fifteen import MODELS
from support.records_by_hand import folder_of, result_of

SCORES = {("parity", "lstm"): (1.0, 1.0), ("parity", "rnn"): (1.0, 0.6), ("even_pairs", "lstm"): (0.7, 0.5)}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A results folder with four cells: held, learnt and lost, and two not learnt."""
    for task in ("parity", "even_pairs"):
        for model in ("lstm", "rnn"):
            run = preset_run(task, model, protocol="xlstm_20k")
            trained, test = SCORES.get((task, model), (0.5, 0.5))
            result: dict[str, Any] = result_of(run)
            result["in_distribution"] = result["in_distribution"] | {"accuracy": trained}
            result["test"] = result["test"] | {"accuracy": test, "scaled": 2 * test - 1}
            folder_of(tmp_path / "mine", run).finish(result)
    return tmp_path / "mine"


def test_every_number_of_a_report_is_one_of_the_records(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["report", "--results", str(results), "--out", str(out), "--models", "*", "--title", "Four <cells>"]
    assert main(words) == 0
    assert f"written: {out}/report.html, .md, .tex, and 2 figures" in capsys.readouterr().out
    text = (out / "report.md").read_text()
    assert "4 cells have a result, of 1 seed each. 1 is held," in text
    assert "1 is learnt and lost: " in text and "2 are not learnt." in text
    assert "The paper (xlstm) has a value for 2 of them." in text, "of the LSTM, not of the RNN"
    assert "## Provenance" in text and text.count("ladder reproduce ") == 2 and "## Climb" not in text
    for picture in ("heat_map", "lengths"):
        assert (out / f"figures/xlstm_20k/{picture}.png").exists() and f"figures/xlstm_20k/{picture}.png" in text
    html = (out / "report.html").read_text()
    assert "Four &lt;cells&gt;" in html and html.count("data:image/png;base64,") == 2 and "http" not in html
    source = (out / "report.tex").read_text()
    assert source.count("\\includegraphics") == 2 and "\\detokenize{figures/xlstm_20k/lengths}.pdf" in source


def test_board_games_are_sections_and_smoke_runs_are_not(results: Path, tmp_path: Path) -> None:
    head = "model,is_result,parameters,size,legal,model_linear,random_network_linear,history_linear"
    for game, study in (("othello", "cpu"), ("chess", "cpu"), ("chess", "smoke")):
        folder = results / game / "tables"
        folder.mkdir(parents=True, exist_ok=True)
        row = "LSTM,True,200000,6,0.9,0.75,0.25,0.5" if study == "cpu" else "LSTM,True,7,6,0.9,0.123,0.25,0.5"
        (folder / f"{study}.csv").write_text(f"{head}\n{row}\n")
    assert main(["report", "--results", str(results), "--out", str(tmp_path / "out"), "--models", "*"]) == 0
    text = (tmp_path / "out/report.md").read_text()
    assert "## World models: Othello" in text and "## World models: Chess" in text and "0.123" not in text
    assert "python scripts/othello.py --game chess --budget cpu" in text
    assert "The linear probe reads most squares from LSTM: 0.750 of them." in text


def test_the_command_of_a_section_prints_its_table(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for task in ("parity", "even_pairs"):
        run = preset_run(task, "transformer", protocol="xlstm_20k")
        folder_of(results, run).finish(result_of(run))
    out = tmp_path / "out"
    assert main(["report", "--results", str(results), "--out", str(out)]) == 0
    text = (out / "report.md").read_text()
    command = next(line for line in text.splitlines() if line.startswith("ladder table --kind accuracy"))
    capsys.readouterr()
    assert main([*shlex.split(command)[1:], "--format", "markdown"]) == 0
    printed = capsys.readouterr().out.strip()
    assert printed in text and "LSTM" in printed and "RNN" not in printed, "it is none of the fourteen"


@pytest.mark.full
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex here")
def test_pdflatex_takes_it(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["report", "--results", str(results), "--out", str(out), "--models", "*", "--pdf"]) == 0
    assert (out / "report.pdf").read_bytes().startswith(b"%PDF")


def test_a_mistake_is_one_line_before_any_work(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    out = ["--out", str(tmp_path / "out")]
    for words, message in (
        (["--results", "published"], "say where to write with --out FOLDER"),
        (["--results", str(results), "--against", "nobody", *out], "nobody"),
        (["--results", str(results), "--pdf", *out], "--pdf needs pdflatex, which is not here"),
        (["--results", str(results), "--models", "gru", *out], "no record is of model 'gru'"),
        (["--results", str(results), "--models", "lstm", *out], "nothing to compare: a report needs two models"),
        (["--results", str(tmp_path / "nowhere"), *out], "nowhere"),
    ):
        assert main(["report", *words]) == 2, words
        said = capsys.readouterr().err
        assert message in said and said.count("\n") == 1, said
    assert not (tmp_path / "out").exists()


def test_the_fourteen_are_those_of_the_study() -> None:
    found = set()
    for model in MODELS:
        name, changes = model if isinstance(model, tuple) else (model, {})
        run = preset_run("parity", name, protocol="fifteen-v1")
        found.add(identity_of(run).model if not changes else f"{name} (ratio={changes['ratio']})")
    assert {label.replace(" (ratio=1:1)", "") for label in found} == set(FOURTEEN)
