"""`ladder table` with options: what it prints, what it writes, what it leaves as it was, and what it refuses."""

import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.cli.tables import _FORMATS, TableOptions
from chomsky_ladder.harness.tables.kind import all_kinds
from chomsky_ladder.harness.tables.published import sources
from chomsky_ladder.harness.tables.write import ENDINGS, Format, write
from support.records_by_hand import OF_SOME_SUITES, filled, frame, record

ROOT = Path(__file__).parents[3]
KINDS = [kind.name for kind in all_kinds() if kind.name not in OF_SOME_SUITES]
COMPARED = [kind.name for kind in all_kinds() if kind.against]
CURVE = {"test_bins": '{"40..64":0.9}', "content_free_bins": '{"40..64":0.5}'}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder with records of a task of every kind, and nothing else."""
    rows = [record(task=task, seed=seed, **CURVE) for task in ("parity", "set") for seed in range(3)]
    rows += [record(task=task, model="mamba", **CURVE) for task in ("parity", "set")]
    rows += [record(task="set", protocol="quick", model="mamba", **CURVE)]
    frame(*rows).to_csv(tmp_path / "records.csv", index=False)
    return tmp_path


def files(results: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (results / "tables").glob("*")}


def test_without_options_it_is_what_it_was(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "--results", str(filled(tmp_path))]) == 0
    said, written = capsys.readouterr().out, files(tmp_path)
    assert set(written) == {"accuracy.csv", "accuracy.md"} and said.encode() == written["accuracy.md"]
    assert "bold" not in said
    assert write(tmp_path) == said and files(tmp_path) == written


@pytest.mark.parametrize("form", ENDINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_and_a_format_are_printed_and_not_written(
    kind: str, form: Format, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["table", "--kind", kind, "--format", form, "--results", str(results)]) == 0
    begins = {"markdown": "### ", "csv": "protocol,", "latex": "% needs", "html": "<div>"}
    assert capsys.readouterr().out.startswith(begins[form])
    assert not (results / "tables").exists()


def test_seeds_that_are_not_shown_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [record(task="parity", seed=seed) for seed in (0, 1, 2, 1234)]
    frame(*rows).to_csv(tmp_path / "records.csv", index=False)
    assert main(["table", "--results", str(tmp_path)]) == 0
    why = "they chose the learning rates, and seeds from 1000 on are shown in their place"
    assert capsys.readouterr().err == f"ladder: xlstm: 3 of 4 runs, of seeds below 1000, are left out: {why}\n"
    frame(*rows, record(task="set")).to_csv(tmp_path / "records.csv", index=False)
    (tmp_path / "records.csv.sha256").unlink(missing_ok=True)
    assert main(["table", "--results", str(tmp_path)]) == 0
    why = "not every task and model of the protocol has some at its chosen learning rate"
    assert capsys.readouterr().err == f"ladder: xlstm: 1 of 5 runs, of seeds from 1000 on, are left out: {why}\n"


def test_what_is_left_out_is_accuracy_in_markdown(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for words in (["--kind", "accuracy"], ["--format", "markdown"], ["--kind", "accuracy", "--format", "markdown"]):
        assert main(["table", *words, "--results", str(results)]) == 0
        said.append(capsys.readouterr().out)
    assert len(set(said)) == 1
    before = said[0]
    assert main(["table", "--against", "xlstm", "--results", str(results)]) == 0
    assert "paper 0.18" not in before and "paper 0.12" in capsys.readouterr().out


def test_all_writes_every_kind_in_every_format_twice_the_same(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accuracy = write(results)
    before = files(results)
    assert main(["table", "--all", "--against", "xlstm", "--results", str(results)]) == 0
    said, written = capsys.readouterr(), files(results)
    names = {f"{kind}.{ending}" for kind in KINDS for ending in ENDINGS.values()}
    names |= {f"sources.{ending}" for ending in ENDINGS.values()}  # these records are of the paper's family
    names |= {f"{kind}_against_xlstm.{ending}" for kind in COMPARED for ending in ENDINGS.values()}
    assert set(written) == names == {Path(line).name for line in said.out.splitlines()}
    assert said.err == ""
    assert {name: written[name] for name in before} == before and written["accuracy.md"].decode() == accuracy
    assert main(["table", "--all", "--against", "xlstm", "--results", str(results)]) == 0
    assert files(results) == written
    printed = capsys.readouterr()
    assert main(["table", "--kind", "hard", "--format", "latex", "--results", str(results)]) == 0
    assert capsys.readouterr().out.encode() == written["hard.tex"] and printed.out == said.out


def test_all_says_which_kinds_there_are_none_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame(record(task="dyck", **CURVE)).to_csv(tmp_path / "records.csv", index=False)
    assert main(["table", "--all", "--results", str(tmp_path)]) == 0
    assert {name.split(".")[0] for name in files(tmp_path)} == {"accuracy", "lengths", "cost", "learning"}
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 4 and all(line.startswith("ladder: nothing to show in a table of ") for line in said)


def test_all_leaves_out_a_paper_that_shares_no_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame(record(task="parity", model="lstm")).to_csv(tmp_path / "records.csv", index=False)
    for paper, shares in (("xlstm", True), ("fp_mamba", False)):  # the second only has arithmetic with brackets
        assert main(["table", "--all", "--against", paper, "--results", str(tmp_path)]) == 0
        said = capsys.readouterr().err
        assert (f"accuracy_against_{paper}.md" in files(tmp_path)) == shares
        assert (f"ladder: no accuracy of these runs is in {paper}" in said.splitlines()) != shares


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--all", "--kind", "cost"], "--all writes every kind"),
        (["--all", "--format", "html"], "--all writes every kind"),
        (["--kind", "speed"], "unknown table kind 'speed'; there are accuracy, bits"),
        (["--kind", "acuracy"], "unknown table kind 'acuracy'; did you mean accuracy?"),
        (["--format", "pdf"], "invalid choice 'pdf'"),
        (["--against", "mamba"], "no paper 'mamba'; there are xlstm, grazzi"),
        (["--against", "mamba3"], "mamba3 stands beside mamba3 v2 alone: quick, which is not of its family; xlstm"),
        (["--against", "gone.csv"], "there is no file gone.csv"),
        (["--all", "--models", "lstm"], "--all takes all records"),
        (["--out", "table.pdf"], "--out table.pdf: its ending names no format. Use .txt"),
        (["--models", "lstn"], "no record is of model 'lstn'; did you mean lstm?"),
        (["--protocol", "grazzi"], "no record is of protocol 'grazzi'; there are quick, xlstm"),
        (["--protocol", "quick", "--models", "lstm"], "no record is of all that is asked for"),
        (["--beside", "train.steps"], "no record differs from its protocol in 'train.steps'"),
        (["--kind", "lengths", "--against", "xlstm"], "no published values for a table of lengths"),
    ],
)
def test_mistakes_are_one_line(words: list[str], says: str, results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", *words, "--results", str(results)]) == 2
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1
    assert not (results / "tables").exists()


def test_the_kinds_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "--kinds"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [kind.name for kind in all_kinds()]


def test_the_options_are_the_formats_and_papers_there_are() -> None:
    """They are written out a second time, so that a line is parsed without pandas."""
    hints = get_type_hints(TableOptions)
    assert get_args(hints["format"]) == (Format, type(None))
    assert set(_FORMATS.values()) == set(get_args(Format))
    assert {form: ending for ending, form in _FORMATS.items() if form != "text"} == {
        form: f".{ending}" for form, ending in ENDINGS.items()
    }


def test_no_option_loads_torch(results: Path) -> None:
    code = "import sys; from chomsky_ladder.harness.cli.main import main\n"
    code += "for words in (['--all', '--against', 'xlstm'], ['--kind', 'lengths', '--format', 'html']):\n"
    code += "    assert main(['table', *words, '--results', sys.argv[1]]) == 0 and 'torch' not in sys.modules, words"
    command = [sys.executable, "-c", code, str(results)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def printed(capsys: pytest.CaptureFixture[str], results: Path, *words: str) -> str:
    assert main(["table", *words, "--results", str(results)]) == 0
    return capsys.readouterr().out


def test_what_is_asked_for_is_shown_and_nothing_else(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def heads(*words: str) -> tuple[list[str], list[str]]:
        text = printed(capsys, results, *words)
        titles = [line[4:] for line in text.splitlines() if line.startswith("### ")]
        return titles, [line.split("|")[1].strip() for line in text.splitlines() if line.startswith(("| L", "| M"))]

    assert heads() == (["quick", "xlstm"], ["Mamba", "LSTM", "Mamba"])
    assert heads("--protocol", "xlstm") == (["xlstm"], ["LSTM", "Mamba"])
    assert heads("--models", "m*") == (["quick", "xlstm"], ["Mamba", "Mamba"])
    assert heads("--tasks", "set", "--models", "lstm", "--protocol", "xl*") == (["xlstm"], ["LSTM"])
    assert "parity" not in printed(capsys, results, "--tasks", "set")


def test_settings_of_the_protocol_stand_side_by_side_where_that_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    protocols = {"xlstm": 0.1, "xlstm (task.supervision=dense)": 0.2, "xlstm (train.steps=9)": 0.3}
    rows = [record(protocol=protocol, test_scaled=score) for protocol, score in protocols.items()]
    frame(*rows).to_csv(tmp_path / "records.csv", index=False)
    assert printed(capsys, tmp_path).count("### ") == 3
    text = printed(capsys, tmp_path, "--beside", "task.supervision", "train.steps")
    assert text.count("### ") == 1
    assert "| model | parity<br>regular | parity (supervision=dense)<br>regular | s a run |" in text
    assert "| LSTM | 0.10 0/1 | 0.20 0/1 | 4.0 |" in text and "| lstm (train.steps=9) | 0.30 0/1 | - | 4.0 |" in text


@pytest.mark.parametrize(
    ("ending", "begins"), [("tex", "% needs"), ("txt", "quick\n"), ("csv", "protocol,"), ("md", "### quick")]
)
def test_a_file_has_the_format_of_its_name(
    ending: str, begins: str, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "paper" / f"table.{ending}"
    assert printed(capsys, results, "--out", str(out)) == f"{out}\n"
    assert out.read_text().startswith(begins)
    assert printed(capsys, results, "--out", str(out), "--format", "html") and out.read_text().startswith("<div>")


def test_a_file_of_ones_own_stands_beside_the_protocols_it_names(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("model,task,value\nlstm,parity,0.8\n")
    assert main(["table", "--against", str(path), "--results", str(results)]) == 2
    assert "does not say which protocols it is of" in capsys.readouterr().err
    text = printed(capsys, results, "--against", str(path), "--protocol", "xlstm")
    assert "0.80 0/3 ○<br>paper 0.8" in text.replace("paper 0.80", "paper 0.8") and "mean +0.00 ≈" in text


def test_the_papers_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "--papers"]) == 0
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} == set(sources())
