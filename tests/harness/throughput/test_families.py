"""A figure of many models has a panel for every family, on the same axes, and leaves no model out."""

from pathlib import Path

import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import same_color

from chomsky_ladder.harness.figures.style import FAINT, log_axis, style
from chomsky_ladder.harness.stats.looks import Look
from chomsky_ladder.harness.store.files import read_json
from chomsky_ladder.harness.throughput.families import MANY, families, panels
from chomsky_ladder.harness.throughput.figures import write

ROOT = Path(__file__).parents[3]
MODELS = ["lstm", "gru", "xlstm", "rnn", "mamba", "of_a_plugin $^{", "transformer"]


def test_models_are_told_apart_by_their_family() -> None:
    assert families(MODELS) == {
        "attention": ["transformer"],
        "recurrent": ["gru", "lstm", "rnn", "xlstm"],
        "state space": ["mamba"],
        "": ["of_a_plugin $^{"],
    }


def test_every_panel_shows_its_own_before_the_others() -> None:
    data = pd.DataFrame([{"model": m, "length": n, "value": n * i} for i, m in enumerate(MODELS, 1) for n in (8, 16)])

    def prepare(ax: Axes) -> None:
        log_axis(ax, data["length"], which="x")
        log_axis(ax, data["value"], which="y")

    def draw(ax: Axes, data: pd.DataFrame, looked: dict[str, Look]) -> None:
        for model, rows in data.groupby("model"):
            ax.plot(rows["length"], rows["value"], color=looked[model].color)

    with style():
        fig, top = panels(data, draw, prepare, ("length", "value"))
    found = families(MODELS)
    assert len(fig.axes) == len(found) and top > 0
    for ax, models in zip(fig.axes, found.values(), strict=True):
        bright = [line for line in ax.lines if not same_color(line.get_color(), FAINT)]
        first = sorted(line.get_ydata()[0] / 8 for line in bright)
        assert first == sorted(MODELS.index(model) + 1 for model in models) and len(ax.lines) == len(MODELS)
        assert ax.lines[-len(models) :] == bright
        assert (ax.get_xlim(), ax.get_ylim()) == (fig.axes[0].get_xlim(), fig.axes[0].get_ylim())
    keys = [text.get_text() for key in fig.legends for text in key.get_texts()]
    assert len(keys) == len(MODELS) and "of_a_plugin $^{" in keys


@pytest.mark.full
@pytest.mark.parametrize("number", [MANY - 1, MANY])
def test_the_published_report_is_drawn(number: int, tmp_path: Path) -> None:
    report = read_json(ROOT / "results" / "throughput" / "cpu" / "report.json")
    kept = sorted({row["model"] for row in report["rows"]})[:number]
    report["rows"] = [row for row in report["rows"] if row["model"] in kept]
    said: list[str] = []
    paths = write(report, tmp_path, tell=said.append)
    assert {path.stem for path in paths} == {"throughput", "memory", "decode", "roofline"} and len(said) == 1
    assert set(pd.read_csv(tmp_path / "throughput.csv")["model"]) == set(kept)
