"""Results as a data set: the Parquet holds the very records, the strings are the suite's, the files describe them."""

import hashlib
import json
import sys
from pathlib import Path

import pandas as pd
import pytest

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.hub import strings
from chomsky_ladder.harness.hub.export import Part, export_results, loaded
from chomsky_ladder.harness.store.record import stored
from chomsky_ladder.harness.tables.write import table, text
from support.records_by_hand import frame, record

pytest.importorskip("pyarrow")
PUBLISHED = Path(__file__).parents[3] / "results"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[Part]]:
    results, folder = tmp_path_factory.mktemp("results"), tmp_path_factory.mktemp("made") / "data"
    rows = [record(seed=seed, test_scaled=score) for seed, score in enumerate((0.1, 1.0))]
    frame(*rows, record(model="mamba", status="diverged")).to_csv(results / "records.csv", index=False)
    parts = export_results(results, folder, suites=["climb-v1"], tell=lambda said: None, count=64)
    return results, folder, parts


def test_its_records_are_the_very_records(made: tuple[Path, Path, list[Part]]) -> None:
    results, folder, _ = made
    records = loaded(folder)
    pd.testing.assert_frame_equal(records, stored(results / "records.csv"))
    assert text(table(records, "accuracy"), "markdown") == text(
        table(stored(results / "records.csv"), "accuracy"), "markdown"
    )


@pytest.mark.full
def test_the_published_records_are_the_same_in_parquet(tmp_path: Path) -> None:
    export_results(PUBLISHED, tmp_path / "data", suites=[], tell=lambda said: None)
    records = loaded(tmp_path / "data")
    pd.testing.assert_frame_equal(records, stored(PUBLISHED / "records.csv"))
    assert text(table(records, "climb"), "csv") == (PUBLISHED / "tables" / "climb.csv").read_text()


def test_the_folder_is_a_results_folder(
    made: tuple[Path, Path, list[Part]], capsys: pytest.CaptureFixture[str]
) -> None:
    results, folder, _ = made
    shown = []
    for place in (results, folder):
        assert main(["table", "--kind", "accuracy", "--protocol", "xlstm", "--results", str(place)]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] and "0.55" in shown[0]


def test_the_strings_are_those_of_the_suite(made: tuple[Path, Path, list[Part]]) -> None:
    _, folder, _ = made
    for rung in PROTOCOLS["climb-v1"].rungs:
        found = pd.read_parquet(folder / "strings" / "climb-v1" / f"{rung.name.replace(' ', '_')}.parquet")
        task = strings.tasks_of("climb-v1")[rung.name.replace(" ", "_")].task
        number = {word: place for place, word in enumerate(task.vocab)}
        lines = [
            json.dumps(
                {
                    "length": int(row.length),
                    "tokens": [number[word] for word in row.tokens.split(" ")],
                    "read_at": [int(place) for place in row.read_at],
                    "answer": [number[word] for word in row.answer.split(" ")],
                },
                separators=(",", ":"),
            )
            for row in found.itertuples()
        ]
        assert hashlib.sha256("\n".join(lines).encode()).hexdigest() == rung.strings, rung.name


def test_card_and_croissant_name_each_table(made: tuple[Path, Path, list[Part]]) -> None:
    _, folder, parts = made
    card, tree = (folder / "README.md").read_text(), json.loads((folder / "croissant.json").read_text())
    assert len(parts) == 13 and card.startswith("---\nlicense: apache-2.0\n")
    assert [file["@id"] for file in tree["distribution"]] == [part.path for part in parts]
    for part, file in zip(parts, tree["distribution"], strict=True):
        assert f"data_files: {part.path}\n" in card
        assert hashlib.sha256((folder / part.path).read_bytes()).hexdigest() == file["sha256"]
    (places,) = (field for field in tree["recordSet"][1]["field"] if field["name"] == "read_at")
    assert places["dataType"] == "sc:Integer" and places["repeated"] is True


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "needs the FOLDER"),
        (["data", "--suites", "climb-v9"], "no frozen suite is called 'climb-v9'"),
        (["data", "--results", "nowhere"], "nowhere has no records.csv"),
        ([".", "--results", "published"], "is there already and not empty"),
    ],
)
def test_refusals(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").write_text("")
    assert main(["export-results", *words]) == 2
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1


def test_without_pyarrow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"pip install 'chomsky-ladder\[hub\]'"):
        export_results(PUBLISHED, tmp_path / "data", suites=[], tell=lambda said: None)
