"""`ladder table` with options: what it prints, what it writes, what it leaves as it was, and what it refuses."""

import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.cli.tables import TableOptions
from chomsky_ladder.harness.tables.kind import all_kinds
from chomsky_ladder.harness.tables.published import Paper
from chomsky_ladder.harness.tables.write import ENDINGS, Format, write
from support.records_by_hand import filled, frame, record

ROOT = Path(__file__).parents[3]
KINDS = [kind.name for kind in all_kinds() if kind.name not in ("bits", "text", "metrics", "climb")]  # of any suite
COMPARED = [kind.name for kind in all_kinds() if kind.against]
CURVE = {"test_bins": '{"40..64":0.9}', "content_free_bins": '{"40..64":0.5}'}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder with records of a task of every kind, and nothing else."""
    rows = [record(task=task, seed=seed, **CURVE) for task in ("parity", "set") for seed in range(3)]
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


@pytest.mark.parametrize("name", ["accuracy.md", "accuracy.csv"])
def test_the_committed_tables_come_from_the_committed_records(name: str, tmp_path: Path) -> None:
    (tmp_path / "records.csv").write_bytes((ROOT / "results" / "records.csv").read_bytes())
    write(tmp_path)
    assert files(tmp_path)[name] == (ROOT / "results" / "tables" / name).read_bytes()


@pytest.mark.parametrize("form", ENDINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_and_a_format_are_printed_and_not_written(
    kind: str, form: Format, results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["table", "--kind", kind, "--format", form, "--results", str(results)]) == 0
    begins = {"markdown": "### ", "csv": "protocol,", "latex": "% needs", "html": "<div>"}
    assert capsys.readouterr().out.startswith(begins[form])
    assert not (results / "tables").exists()


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
    assert len(said) == 2 and all(line.startswith("ladder: nothing to show in a table of ") for line in said)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--all", "--kind", "cost"], "--all is every --kind"),
        (["--all", "--format", "html"], "--all is every --kind"),
        (["--kind", "speed"], "unknown table kind 'speed'; there are accuracy, bits"),
        (["--kind", "acuracy"], "unknown table kind 'acuracy'; did you mean accuracy?"),
        (["--format", "pdf"], "invalid choice 'pdf'"),
        (["--against", "mamba3"], "invalid choice 'mamba3'"),
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
    for name, there in (("format", Format), ("against", Paper)):
        assert get_args(hints[name]) == (there, type(None))


def test_no_option_loads_torch(results: Path) -> None:
    code = "import sys; from chomsky_ladder.harness.cli.main import main\n"
    code += "for words in (['--all', '--against', 'xlstm'], ['--kind', 'lengths', '--format', 'html']):\n"
    code += "    assert main(['table', *words, '--results', sys.argv[1]]) == 0 and 'torch' not in sys.modules, words"
    command = [sys.executable, "-c", code, str(results)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
