"""Learning curves: validation accuracy and training loss by step, a panel a task."""

from collections.abc import Sequence
from functools import partial
from typing import Literal

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from chomsky_ladder.harness.figures.panels import (
    BAND,
    GREY,
    SCALED,
    above_chance,
    accuracy_axis,
    by_family,
    is_many,
    lines,
    panel_key,
    panels,
)
from chomsky_ladder.harness.figures.plot import Plot, Scene, register, rows_of, spread
from chomsky_ladder.harness.figures.style import (
    caption,
    head,
    log_axis,
    short,
)

Of = Literal["validation", "loss"]

CURVE_COLUMNS = ("run_id", "step", "loss", "validation")

_LEAST_LOSS = 1e-6  # what is drawn of a smaller one, on an axis without a zero


def learning(scene: Scene, *, of: Of) -> pd.DataFrame:
    """Validation accuracy, or training loss, by step over a cell's seeds.

    One that stopped early, its validation being perfect, keeps its last value to the last step of its cell.
    """
    curves = scene.curves
    columns = ("protocol", "level", "task", "model", "scaled", "step", "median", "min", "max", "n")
    if curves is None:
        return rows_of([], columns)
    missing = [name for name in CURVE_COLUMNS if name not in curves]
    if missing:
        raise ValueError(f"curves have the columns {', '.join(CURVE_COLUMNS)}; these lack {', '.join(missing)}")
    twice = curves[curves.duplicated(["run_id", "step"])]
    if len(twice):
        raise ValueError(f"curves hold step {twice['step'].iloc[0]} of {twice['run_id'].iloc[0]} twice")
    by_run: dict[str, dict[int, float]] = {}
    there = curves.dropna(subset=[of]).sort_values("step")
    for run_id, step, value in zip(*(there[name].tolist() for name in ("run_id", "step", of)), strict=True):
        by_run.setdefault(run_id, {})[int(step)] = float(value)
    rows = []
    for cell in scene.cells:
        kept = [run for run in cell.runs if run["run_id"] in by_run]
        steps = sorted({step for run in kept for step in by_run[run["run_id"]]})
        held = [_held(by_run[run["run_id"]], steps) if run["stopped_early"] else by_run[run["run_id"]] for run in kept]
        for step in steps:
            values = [curve.get(step) for curve in held]
            found = spread([cell.scaled(value) for value in values] if of == "validation" else values)
            if found["n"]:
                rows.append({**cell.place, "step": step, **found})
    return rows_of(rows, columns)


def _held(curve: dict[int, float], steps: Sequence[int]) -> dict[int, float]:
    """Return the curve with its last value at all later steps."""
    last = max(curve)
    return curve | {step: curve[last] for step in steps if step > last}


def draw_learning(data: pd.DataFrame, scene: Scene, *, of: Of) -> Figure:
    is_loss, many = of == "loss", is_many(data, scene)
    if is_loss:
        data = data.assign(**{name: data[name].clip(lower=_LEAST_LOSS) for name in ("median", "min", "max")})
    else:
        data = above_chance(data)

    def panel(ax: Axes, rows: pd.DataFrame) -> None:
        lines(ax, rows, scene, x="step", marks=3 if many else 8)
        ax.set_xlim(0, 1.03 * data["step"].max())
        ax.xaxis.set_major_locator(MaxNLocator(2 if many else 4))
        ax.xaxis.set_major_formatter(FuncFormatter(short))
        if is_loss:
            log_axis(ax, [*data["min"], *data["max"]], which="y")
        else:
            accuracy_axis(ax)

    fig, top = by_family(data, panel, scene, x="step", column="step") if many else panels(data, panel, scene, x="step")
    top += panel_key(fig, top, data, scene, {})
    title = "Training loss" if is_loss else "Validation accuracy at the test lengths"
    head(fig, f"{title} by step", scene)
    what = "Cross entropy in nats." if is_loss else SCALED
    held = "A seed that stopped early, its validation being perfect, keeps its last value; runs that did not finish"
    caption(fig, top + 0.05, f"{BAND} {f'{GREY} ' if many else ''}{what} {held} are not shown.")
    return fig


def why_not(scene: Scene) -> str:
    if scene.curves is None:
        return "no curves were given"
    return "its runs have no curve: they end before the first validation (eval.every), or their folders are gone"


_TITLES: dict[Of, str] = {"validation": "Validation accuracy by step", "loss": "Training loss by step"}

for _of, _title in _TITLES.items():
    register(
        Plot(
            name=_of,
            title=_title,
            data=partial(learning, of=_of),
            draw=partial(draw_learning, of=_of),
            why_not=why_not,
            rank=4,
        )
    )
