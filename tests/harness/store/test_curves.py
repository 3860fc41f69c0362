"""curves.csv holds a row for each validation of a finished run, and keeps what other machines left."""

import json
from pathlib import Path

import pandas as pd
import pytest

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.store import curves
from chomsky_ladder.harness.store.folder import RunFolder

HISTORY = [
    {"step": 5, "loss": 1.0, "lr": 0.1},
    {"step": 10, "loss": 0.5, "lr": 0.1},
    {"step": 10, "validation": 0.6, "exact": 0.1},
    {"step": 15, "loss": 0.25, "lr": 0.1},
    {"step": 18, "validation": 0.8, "exact": 0.2},
]


def put(results: Path, run_id: str, history: list[dict], *, done: bool = True) -> None:
    folder = RunFolder(results, run_id)
    folder.path.mkdir(parents=True)
    folder.metrics.write_text("".join(json.dumps(line) + "\n" for line in history))
    tree = {
        "protocol": "p",
        "task": {"name": "t"},
        "model": {"name": "m"},
        "seed": 0,
        "train": {"lr": 0.1, "steps": 18},
    }
    (folder.path / "config.json").write_text(json.dumps(tree))
    if done:
        said = {"protocol": "p", "task": "t", "model": "m", "seed": 0, "lr": 0.1, "steps": 18}
        folder.finish({"run_id": run_id, "status": "done", **said})


def test_a_row_for_each_validation_with_the_newest_loss(tmp_path: Path) -> None:
    put(tmp_path, "b", HISTORY)
    put(tmp_path, "a", HISTORY[:2])
    put(tmp_path, "c", HISTORY, done=False)
    put(tmp_path, "d", [])
    found = curves.collect(tmp_path)
    rows = found.astype(object).where(found.notna(), None).values.tolist()
    assert rows == [["a", 10, 0.5, None], ["b", 10, 0.5, 0.6], ["b", 18, 0.25, 0.8]]
    assert (tmp_path / "curves.csv").read_text().splitlines()[0] == "run_id,step,loss,validation"


def test_validations_of_a_run_that_is_trained_anew_are_those_of_its_record(tmp_path: Path) -> None:
    """The folder was removed, its lines of curves.csv stand, and training has begun again."""
    put(tmp_path, "b", HISTORY[:3], done=False)
    assert curves.validations(tmp_path, "b") == {}
    pd.DataFrame([["b", 10, 0.5, 0.6], ["b", 18, 0.25, 0.8]], columns=list(curves.COLUMNS)).to_csv(
        tmp_path / "curves.csv", index=False
    )
    assert curves.validations(tmp_path, "b") == {10: 0.6, 18: 0.8}


def test_what_other_machines_left_stays(tmp_path: Path) -> None:
    put(tmp_path, "b", HISTORY)
    old = pd.DataFrame([["a", 7, 0.1, 0.9], ["b", 3, 0.3, 0.3]], columns=list(curves.COLUMNS))
    old.to_csv(tmp_path / "curves.csv", index=False)
    first = curves.collect(tmp_path)
    assert first["run_id"].tolist() == ["a", "b", "b"]
    assert first["step"].tolist() == [7, 10, 18]
    before = (tmp_path / "curves.csv").read_bytes()
    curves.collect(tmp_path)
    assert (tmp_path / "curves.csv").read_bytes() == before


def test_a_row_without_a_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text("run_id,step,loss,validation\na,1,0.5,\n,2,0.25,\n")
    with pytest.raises(ValueError, match=r"curves\.csv is damaged: a row of it names no run; put it back"):
        curves.collect(tmp_path)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("a,1,0.5,9.0", "validation lies outside 0..1"),
        ("a,1,0.5,-1", "validation lies outside 0..1"),
        ("a,1,0.5,nan", "validation is no number"),
        ("a,1,low,0.5", "loss is no number"),
        ("a,one,0.5,0.5", "step is no number"),
    ],
)
def test_a_number_that_is_none_is_refused(row: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text(f"run_id,step,loss,validation\na,0,0.5,0.5\n{row}\n")
    with pytest.raises(ValueError, match=rf"curves\.csv is damaged: {says}\b.* in a row of it"):
        curves.collect(tmp_path)


def test_what_is_cut_is_refused_and_stays(tmp_path: Path) -> None:
    put(tmp_path, "a", HISTORY)
    curves.collect(tmp_path)
    file = tmp_path / "curves.csv"
    file.write_bytes(half := file.read_bytes()[:50])
    for read in (lambda: curves.collect(tmp_path), lambda: curves.validations(tmp_path, "b")):
        with pytest.raises(ValueError, match=r"curves\.csv is not as it was written .* of \(2 rows\)"):
            read()
    assert file.read_bytes() == half


def test_no_runs_leave_no_file(tmp_path: Path) -> None:
    assert curves.collect(tmp_path).empty
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_figures_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = Path(__file__).parents[3] / "results" / "records.csv"
    (tmp_path / "records.csv").write_bytes(records.read_bytes())
    assert cli.main(["figures", "--results", str(tmp_path), "--protocol", "quick"]) == 0
    assert "files under" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "figures" / "quick").glob("*.csv")} >= {"heat_map.csv", "ladder.csv"}
    assert cli.main(["figures", "--results", str(tmp_path), "--protocol", "nothing"]) == 2
    assert "no records of the protocol 'nothing'" in capsys.readouterr().err
