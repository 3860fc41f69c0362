"""Figures as files: the same bytes in any process, protocols apart, and no name that breaks a picture."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pandas as pd
import pytest
from matplotlib.image import imread

from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.figures import write as figures
from chomsky_ladder.harness.figures.kinds.cost import cost
from chomsky_ladder.harness.figures.kinds.heat_map import draw as draw_heat_map
from chomsky_ladder.harness.figures.names import folder_name
from chomsky_ladder.harness.figures.plot import Scene
from chomsky_ladder.harness.figures.style import labels
from chomsky_ladder.harness.figures.write import write
from chomsky_ladder.harness.stats.looks import MEMBERS, looks
from chomsky_ladder.harness.stats.view import cells_of
from chomsky_ladder.harness.store.harmless import cell_of
from support.faults import Child
from support.pages import climb
from support.records_by_hand import frame, record
from support.scenes import heat_map, ladder, learning, lengths

FIGURES = ("heat_map", "ladder", "lengths", "cost", "validation", "loss")
ROOT = Path(__file__).parents[3]


def small() -> pd.DataFrame:
    """Two tasks, two models, two seeds, all with accuracy by length."""
    bins = {"test_bins": '{"40..64":0.9,"65..96":0.8}', "content_free_bins": '{"40..64":0.5,"65..96":0.6}'}
    return frame(
        *(
            record(
                task=task,
                level=level,
                model=model,
                seed=seed,
                extrapolation='{"512":0.6}',
                test_scaled=0.9 + 0.02 * seed,
                parameters=1000 * (1 + (model == "lstm")),
                state_bytes=256,
                **bins,
            )
            for task, level in (("parity", "regular"), ("majority", "counter"))
            for model in ("lstm", "mamba")
            for seed in (0, 1)
        )
    )


def curves_for(records: pd.DataFrame) -> pd.DataFrame:
    done = records[records["status"] == "done"]
    return pd.DataFrame(
        [
            {"run_id": run, "step": step, "loss": 1 / step, "validation": 0.5 + step / 100 if step == 20 else None}
            for run in done["run_id"]
            for step in (10, 20)
        ]
    )


def silent(line: str) -> None:
    raise AssertionError(line)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The figures of `small`, made once."""
    path = tmp_path_factory.mktemp("figures")
    records = small()
    before = dict(matplotlib.rcParams)
    written = write(records, path, curves=curves_for(records), tell=silent)
    assert dict(matplotlib.rcParams) == before
    assert (
        sorted(written)
        == sorted(path.rglob("*.*"))
        == sorted(path / "xlstm" / f"{name}.{kind}" for name in FIGURES for kind in ("csv", "png", "svg"))
    )
    return path / "xlstm"


def test_the_order_of_records_moves_no_number() -> None:
    records = small()
    curves = curves_for(records)
    makers: list[Callable[[pd.DataFrame], pd.DataFrame]] = [
        lambda records: heat_map(cells_of(records)),
        lambda records: lengths(cells_of(records)),
        lambda records: cost(cells_of(records)),
        lambda records: ladder(cells_of(records)),
        lambda records: learning(cells_of(records), curves, of="loss"),
    ]
    for make in makers:
        pd.testing.assert_frame_equal(make(records), make(records.sample(frac=1, random_state=1)), check_exact=True)


def test_a_picture_shows_its_data_whole(folder: Path) -> None:
    """The CSV is the frame; the border of a picture is white, so nothing is cut; an SVG is XML."""
    data = pd.read_csv(folder / "heat_map.csv")
    assert data.loc[(data["task"] == "parity") & (data["model"] == "lstm"), "median"].tolist() == [0.91]
    for name in FIGURES:
        picture = imread(folder / f"{name}.png")[..., :3]
        assert picture.min() < 0.5 and 1300 < picture.shape[1] < 1600
        edges = [picture[:6], picture[-6:], picture[:, :6], picture[:, -6:]]
        assert all((edge == 1).all() for edge in edges), name
        assert ElementTree.parse(folder / f"{name}.svg").getroot().tag.endswith("svg")


@pytest.mark.full
def test_two_processes_write_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    records = small()
    pd.to_pickle((records.sample(frac=1, random_state=2), curves_for(records)), tmp_path / "data")
    script = """
import matplotlib, pandas, sys
from pathlib import Path
from chomsky_ladder.harness.figures.write import write

matplotlib.rcParams.update({"font.size": 30, "axes.grid": True, "svg.hashsalt": "other", "text.parse_math": True})
records, curves = pandas.read_pickle("data")
write(records, Path(), curves=curves)
"""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "PYTHONHASHSEED": "7",
        "TZ": "Asia/Tokyo",
        "SOURCE_DATE_EPOCH": "86400",
    }
    subprocess.run([sys.executable, "-W", "error", "-c", script], check=True, env=environment, cwd=tmp_path)
    for path in sorted(folder.iterdir()):
        assert (tmp_path / "xlstm" / path.name).read_bytes() == path.read_bytes(), path.name


def csv_alone(fig: object, data: pd.DataFrame, stem: Path, **how: object) -> list[Path]:
    stem.parent.mkdir(parents=True, exist_ok=True)
    data.to_csv(stem.with_suffix(".csv"), index=False)
    return [stem.with_suffix(".csv")]


def test_protocols_are_never_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "save", csv_alone)
    other = "xlstm (train.steps=7)"
    records = frame(record(), record(protocol=other, model="mamba", seed=5))
    said: list[str] = []
    written = write(records, tmp_path, tell=said.append)
    folders = {"xlstm": "lstm", folder_name(other): "mamba"}
    assert {path.parent.name for path in written} == set(folders)
    for name, model in folders.items():
        for path in (tmp_path / name).glob("*.csv"):
            data = pd.read_csv(path, keep_default_na=False)
            assert set(data["model"]) - {""} == {model} and data["protocol"].nunique() == 1
    assert f"{other}: no figure validation: no curves were given" in said


def test_one_protocol_may_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "save", csv_alone)
    records = frame(record(), record(protocol="quick"))
    assert {path.parent.name for path in write(records, tmp_path, protocol="quick", tell=list)} == {"quick"}
    with pytest.raises(ValueError, match="no records of the protocol 'slice'; there are quick, xlstm"):
        write(records, tmp_path, protocol="slice")


def test_folders_of_protocols_are_plain_and_different() -> None:
    names = ["quick", "quick (train.steps=1)", "quick (train.steps=2)", "Quick", "../up", "", "é" * 300]
    folders = [folder_name(name) for name in names]
    assert folders[0] == "quick" and len(set(folders)) == len(names)
    assert all(
        name and len(name) < 60 and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-") for name in folders
    )


def test_a_figure_with_nothing_to_show_is_not_written_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = frame(record(status="failed"))
    curves = pd.DataFrame([("x", 1, 1.0, 0.5)], columns=["run_id", "step", "loss", "validation"])
    written = write(records, tmp_path, curves=curves)
    assert written == [] == list(tmp_path.rglob("*.*"))
    said = capsys.readouterr().err
    assert all(f"xlstm: no figure {name}: " in said for name in ("ladder", "lengths", "cost", "validation", "loss"))
    assert "xlstm: no figure heat_map: 1 cells, fewer than 4" in said  # and yet who asks for it by name has it:
    assert {path.stem for path in write(records, tmp_path, names=["heat_map"])} == {"heat_map"}
    assert write(frame(), tmp_path / "none") == [] and "no records" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


HOSTILE = (
    "$\\frac{x$",
    "_hidden",
    '<b>&amp;"]]>',
    "-->x<!--",
    "日本語モデル",
    "日本語モデム",
    "🤖\x07\n\t",
    "\u202egnp",
    " ",
    "a (d_model=32, num_heads=8, some_very_long_setting=1..2..3, other=4)",
    "a (d_model=32, num_heads=8, some_very_long_setting=1..2..3, other=5)",
    "W" * 300,
)


@pytest.mark.full
def test_no_name_breaks_a_picture(tmp_path: Path) -> None:
    records = frame(
        *(
            record(
                protocol=f"quick (train.lengths=3..64, {HOSTILE[0]}{'y' * 300})",
                task=HOSTILE[-1 - place],
                level=("regular", "<own>")[place],
                model=model,
                run_id=f"run-{number}-{place}",
                test_bins='{"40..64":0.0}',
                in_distribution=0.5,
                state_bytes=0,
                train_seconds=0.0,
            )
            for number, model in enumerate(HOSTILE)
            for place in (0, 1)
        )
    )
    written = write(records, tmp_path, tell=list)
    for path in written:
        if path.suffix == ".png":
            picture = imread(path)[..., :3]
            assert picture.shape[1] < 1800
            edges = [picture[:6], picture[-6:], picture[:, :6], picture[:, -6:]]
            assert all((edge == 1).all() for edge in edges), path.name
        elif path.suffix == ".svg":
            ElementTree.parse(path)
        else:
            models = pd.read_csv(path, keep_default_na=False)["model"].map(cell_of)
            assert set(models) - {""} == set(HOSTILE)


def test_labels_fit_and_differ() -> None:
    for width, lines in ((20, 1), (23, 2), (44, 1)):
        shown = labels(HOSTILE, width=width, lines=lines)
        assert len(set(shown.values())) == len(HOSTILE)
        for label in shown.values():
            assert label.strip() and label.count("\n") < lines and all(len(row) <= width for row in label.split("\n"))
    assert shown["_hidden"] == "_hidden" and set(HOSTILE[4:6]) == {
        name for name in HOSTILE if shown[name].startswith("??????")
    }
    assert sorted(shown[name] for name in HOSTILE[4:6]) == ["??????", "?????? ~2"]
    cut = labels(["lstm (d_model=32, heads=4)"], width=16, lines=2).popitem()[1]
    assert "…" in cut and cut.startswith("lstm (d_model=") and cut.endswith("heads=4)")


@pytest.mark.full
def test_each_family_of_many_models_stands_over_the_others(tmp_path: Path) -> None:
    models = [name for names in MEMBERS.values() for name in names[:2]]
    records = frame(*(record(model=model, test_bins='{"40..64":0.2,"65..96":0.8}') for model in models))
    write(records, tmp_path, names=["lengths", "heat_map"], tell=silent)
    svg = (tmp_path / "xlstm" / "lengths.svg").read_text()
    assert all(f">{family.split()[0]}" in svg for family in MEMBERS) and "other families" in svg
    assert imread(tmp_path / "xlstm" / "heat_map.png").shape[0] < 2000


def test_a_climb_has_its_rungs_for_columns() -> None:
    cells = cells_of(frame(*climb(models=("lstm", "gru"), whole=True)))
    fig = draw_heat_map(heat_map(cells), Scene(cells, None, looks({"lstm", "gru"})))
    texts = [text.get_text() for ax in fig.axes for text in ax.texts]
    rungs = [rung.name for rung in PROTOCOLS["climb-v1"].rungs]
    assert [text for text in texts if text in rungs] == rungs


def test_no_two_models_look_alike() -> None:
    looked = looks(f"model {i:02}" for i in range(77))
    assert len({(look.color, look.marker) for look in looked.values()}) == 77


DRAWING = re.compile(
    r"figures\.(?!plot$|names$)[\w.]+|page\.card|inside\.(draw_\w+|figures)|throughput\.(figures|families)"
)


def test_nothing_but_figures_imports_matplotlib(tmp_path: Path) -> None:
    """No other command has to wait for matplotlib; code that draws imports it inside the function."""
    files = (path.relative_to(ROOT / "harness").with_suffix("") for path in (ROOT / "harness").rglob("*.py"))
    modules = sorted(".".join(file.parts).removesuffix(".__init__") for file in files if len(file.parts) > 1)
    others = [name for name in modules if not DRAWING.fullmatch(name)]
    assert 100 < len(others) < len(modules) - 8
    code = "import importlib, sys\nfor name in names: importlib.import_module(f'chomsky_ladder.harness.{name}')"
    code += "\nassert 'matplotlib' not in sys.modules"
    child = Child(tmp_path, exec, code, {"names": others})
    assert child.ended() == 0, child.said
