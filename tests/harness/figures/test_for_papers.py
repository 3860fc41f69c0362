"""Figures for a paper: some models and tasks alone, without what a paper says itself, as PDF with text that is text."""

import re
from pathlib import Path

import pandas as pd
import pytest

from chomsky_ladder.harness.cli.figures import figures as figures_command
from chomsky_ladder.harness.figures import write as figures
from chomsky_ladder.harness.figures.panels import panels
from chomsky_ladder.harness.figures.plot import Scene, all_plots
from chomsky_ladder.harness.figures.write import write
from chomsky_ladder.harness.stats.cells import solved_text
from support.records_by_hand import frame, record

TASKS = (("parity", "regular"), ("majority", "counter"), ("word_problem (group=S3)", "regular"))


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    kept = [plot for plot in all_plots() if plot.name == "heat_map"]
    monkeypatch.setattr(figures, "all_plots", lambda: kept)
    models = ("lstm", "mamba", "xlstm (ratio=0:1)")
    return frame(*(record(task=task, level=level, model=model) for task, level in TASKS for model in models))


def test_models_and_tasks_are_named_by_label_or_by_name(records: pd.DataFrame, tmp_path: Path) -> None:
    write(records, tmp_path, models=["lstm", "xlstm"], tasks=["word_problem (group=S3)", "parity"])
    shown = pd.read_csv(tmp_path / "xlstm" / "heat_map.csv", keep_default_na=False)
    assert set(shown["model"]) == {"lstm", "xlstm (ratio=0:1)", ""}  # and the floors
    assert set(shown["task"]) == {"parity", "word_problem (group=S3)"}
    with pytest.raises(ValueError, match=r"no record is of model 'gru'; there are lstm, mamba, xlstm \(ratio=0:1\)"):
        write(records, tmp_path, models=["lstm", "gru"])
    with pytest.raises(ValueError, match="no record is of task 'majority v2'; did you mean majority"):
        write(records, tmp_path, tasks=["majority v2"])


def test_one_figure_is_drawn_by_its_name(tmp_path: Path) -> None:
    records = frame(record(task="parity", model="lstm"))
    assert {path.stem for path in write(records, tmp_path, names=["heat_map"])} == {"heat_map"}
    said: list[str] = []
    assert write(records, tmp_path, names=["climb"], tell=said.append) == []
    assert said == ["these records have no figure climb"]
    with pytest.raises(ValueError, match=r"heatmap.*did you mean heat_map"):
        write(records, tmp_path, names=["heatmap"])


def test_a_heat_map_of_few_tasks_is_as_wide_as_they_are(records: pd.DataFrame, tmp_path: Path) -> None:
    wide = []
    for tasks in (["parity"], ["parity", "majority"]):
        write(records, tmp_path, tasks=tasks, bare=True)
        (found,) = re.findall(r'<svg [^>]*width="([\d.]+)pt"', (tmp_path / "xlstm" / "heat_map.svg").read_text())
        wide.append(float(found) / 72)
    assert wide[0] < 3.2 and 1.3 < wide[1] - wide[0] < 1.6


def test_a_bare_one_has_neither_title_nor_caption(records: pd.DataFrame, tmp_path: Path) -> None:
    """The words of a picture stand in its SVG as text."""
    write(records, tmp_path / "whole")
    write(records, tmp_path / "bare", bare=True)
    whole, bare = ((tmp_path / name / "xlstm" / "heat_map.svg").read_text() for name in ("whole", "bare"))
    for words in (">Accuracy by task and model</text>", ">Protocol: xlstm</text>", solved_text("xlstm")):
        assert words in _read(whole) and words not in _read(bare)
    assert ">majority</text>" in whole and ">majority</text>" in bare


def _read(svg: str) -> str:
    """Return the lines of text one after the other, as a person reads them."""
    return " ".join(re.sub(r"</text>\s*<text[^>]*>", " ", svg).split())


@pytest.mark.parametrize(("width", "across"), [(3.25, 1), (4.5, 2), (7.2, 3), (12.0, 5)])
def test_a_width_decides_how_many_panels_stand_side_by_side(
    width: float, across: int, records: pd.DataFrame, tmp_path: Path
) -> None:
    """Letters keep their size, and the picture has the width within the margins of what stands over it."""
    write(records, tmp_path, width=width, bare=True)
    svg = (tmp_path / "xlstm" / "heat_map.svg").read_text()
    (wide,) = re.findall(r'<svg [^>]*width="([\d.]+)pt"', svg)
    assert float(wide) / 72 <= width + 0.3 and "font-size: 7px; font-family: 'DejaVu Sans', " in svg
    tasks = pd.DataFrame({"task": [f"task {i}" for i in range(6)], "level": "regular", "scaled": True})
    fig, _ = panels(tasks, lambda ax, rows: None, Scene((), None, {}, "xlstm", width), x="step")
    assert len({round(ax.get_position().x0, 3) for ax in fig.axes}) == across and fig.get_size_inches()[0] == width


@pytest.mark.parametrize("width", ["3.1", "41", "nan"])
def test_a_width_that_leaves_no_room_is_refused(width: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--width must lie in 3\.2\.\.40 inches"):
        figures_command(["--results", str(tmp_path), "--width", width])


@pytest.mark.full
def test_a_pdf_has_text_and_the_same_bytes_again(records: pd.DataFrame, tmp_path: Path) -> None:
    for name in ("one", "two"):
        paths = write(records, tmp_path / name, kinds=("pdf",))
        assert [path.suffix for path in paths] == [".csv", ".pdf"]
    one, two = ((tmp_path / name / "xlstm" / "heat_map.pdf").read_bytes() for name in ("one", "two"))
    assert one == two and one.startswith(b"%PDF") and b"/FontFile2" in one and b"CreationDate" not in one


def test_what_is_solved_is_said_by_the_protocol() -> None:
    assert solved_text("xlstm") == "scaled accuracy of 0.9 or more" == solved_text("of a plugin that is gone")
    assert solved_text("deepmind") == "raw accuracy of 0.9 or more"
