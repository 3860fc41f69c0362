"""The curve of sample efficiency, as a table and as a figure: which cells stand side by side, and a real one."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.image import imread

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.protocols import grid, identity_of, preset_run
from chomsky_ladder.harness.figures.names import folder_name
from chomsky_ladder.harness.figures.write import write
from chomsky_ladder.harness.stats.examples import in_order, size_of, whole
from chomsky_ladder.harness.store.record import collect
from chomsky_ladder.harness.tables.write import table, write_all
from chomsky_ladder.harness.train.loop import execute
from support.records_by_hand import frame, record

PLAIN, DENSE = "xlstm", "xlstm (task.supervision=dense)"


def of(examples: int) -> str:
    return f"xlstm (train.examples={examples})" if examples else PLAIN


@pytest.mark.parametrize("examples", [0, 100, 10_000])
@pytest.mark.parametrize("changes", [{}, {"steps": 7}, {"steps": 7, "schedule": "constant"}])
def test_the_label_of_a_run_tells_its_size_and_whom_it_stands_beside(examples: int, changes: dict) -> None:
    run = preset_run("parity", "lstm", protocol="xlstm")
    endless = replace(run, train=replace(run.train, **changes))
    of_set = identity_of(replace(endless, train=replace(endless.train, examples=examples))).columns()
    assert size_of(of_set) == examples and whole(of_set) == identity_of(endless).protocol


def test_every_size_stands_at_its_own_rate_in_rising_order() -> None:
    rows = [
        record(protocol=of(1000), lr=lr, seed=seed, test_scaled=scaled, validation=validation)
        for lr, seed, scaled, validation in ((1e-2, 0, 0.4, 0.9), (1e-2, 1, 0.6, 0.9), (1e-3, 0, 0.99, 0.5))
    ]
    rows += [record(protocol=of(n), test_scaled=scaled) for n, scaled in ((20_000, 0.95), (300, 0.1), (0, 1.0))]
    rows += [record(protocol=PLAIN, model="gru"), record(protocol=of(300), model="mamba", status="diverged")]
    made = table(frame(*rows), "examples")
    (sheet,) = made.sheets
    assert sheet.title == f"{PLAIN}: examples of parity"
    assert [column.name for column in sheet.columns] == ["300", "1,000", "20,000", "endless"]
    shown = {line.name: [entry.lines[0] for entry in line.entries] for line in sheet.lines}
    assert shown == {  # a GRU has seen no finite set
        "LSTM": ["0.10 0/1", "0.50 [0.40, 0.60] 0/2", "0.95 1/1", "1.00 1/1"],
        "Mamba": ["1 diverged", "-", "-", "-"],
    }
    assert made.data.loc[made.data["model"] == "lstm", "examples"].tolist() == [0, 300, 1000, 20_000]
    assert in_order({0, 5, 3}) == [3, 5, 0]


def test_what_differs_in_more_than_its_size_stands_apart() -> None:
    labels = (PLAIN, DENSE, of(50), "xlstm (train.examples=70, task.supervision=dense)")
    made = table(frame(*(record(protocol=label) for label in labels)), "examples")
    assert [sheet.title for sheet in made.sheets] == [f"{name}: examples of parity" for name in (PLAIN, DENSE)]
    columns = [[column.name for column in sheet.columns] for sheet in made.sheets]
    assert columns == [["50", "endless"], ["70", "endless"]]


@pytest.mark.full
def test_they_are_made_where_a_set_is_finite(tmp_path: Path) -> None:
    for rows, is_there in ([record(protocol=PLAIN)], False), ([record(protocol=of(50))], True):
        folder = tmp_path / str(is_there)
        folder.mkdir()
        frame(*rows).to_csv(folder / "records.csv", index=False)
        write_all(folder)
        assert (folder / "tables" / "examples.md").exists() == is_there
        said: list[str] = []
        drawn = write(frame(*rows), folder / "figures", kinds=("svg",), tell=said.append)
        assert any(path.stem == "examples" for path in drawn) == is_there
        assert not any("no figure examples" in line for line in said)
    with pytest.raises(ValueError, match="examples: no run is of a finite training set"):
        table(frame(record(protocol=PLAIN)), "examples")


@pytest.mark.full
def test_a_figure_joins_the_sizes_of_one_protocol_alone(tmp_path: Path) -> None:
    rows = [record(protocol=of(n), seed=seed, test=test) for n, test in ((0, 1.0), (50, 0.6)) for seed in (0, 1)]
    rows += [record(protocol="quick (train.examples=9)"), record(protocol=of(50), seed=2, status="failed")]
    records = frame(*rows)
    files = [path for path in write(records, tmp_path, kinds=("png",), tell=list) if path.stem == "examples"]
    assert {path.parent.name for path in files} == {"xlstm", "quick"}
    data = pd.read_csv(tmp_path / "xlstm" / "examples.csv")
    assert data[["protocol", "examples", "median", "n"]].to_numpy().tolist() == [
        [PLAIN, 0, 1.0, 2],
        [PLAIN, 50, pytest.approx(0.2), 2],
    ]
    written = write(records, tmp_path / "one", protocol=of(50), kinds=("svg",), tell=list)
    assert {path.parent.name for path in written} == {folder_name(of(50)), "xlstm"}
    (picture,) = [imread(path) for path in files if path.suffix == ".png" and path.parent.name == "xlstm"]
    assert picture[..., :3].min() < 0.5


@pytest.mark.full
def test_a_small_curve_from_end_to_end(tmp_path: Path) -> None:
    """Two strings teach an LSTM these two; endless ones teach it parity."""
    changes = {
        "train.lr": 3e-2,
        "train.steps": 200,
        "task.supervision": "dense",
        "train.lengths": [6, 6],
        "model.d_model": 16,
        "eval.every": 40,
    }
    changes |= {"eval.lengths": [6, 6], "eval.bins": [5, 6], "eval.extrapolate": [], "eval.test": 128}
    for examples in (2, 0):
        overrides = changes | {"train.examples": examples}
        for run in grid("parity", "lstm", protocol="quick", overrides=overrides, seeds=1):
            execute(run, Exec(results=tmp_path, device="cpu"), quiet=True)
    records = collect(tmp_path)
    made = table(records, "examples")
    few, endless = (made.data.loc[made.data["examples"] == n, "median"].item() for n in (2, 0))
    assert few < 0.6 < 0.9 < endless
    paths = [path for path in write(records, tmp_path / "figures", tell=list) if path.stem == "examples"]
    assert [path.suffix for path in paths] == [".csv", ".png", ".svg"]
