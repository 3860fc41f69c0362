"""The picture of horizons: scaled accuracy by position, a line for each run, and how far each holds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from chomsky_ladder.harness.figures.style import (
    FAINT,
    LARGE,
    MUTED,
    WIDTH,
    around,
    at,
    caption,
    labels,
    legend,
    log_axis,
    save,
    style,
    words,
)
from chomsky_ladder.harness.inside.horizon import HELD
from chomsky_ladder.harness.stats.looks import looks
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.store.titles import title_of

_LEFT, _TALL = 0.55, 2.4  # inches


def draw(results: Sequence[dict[str, Any]], file: Path) -> None:
    """Draw each bin's accuracy at its last position, with the training lengths shaded.

    Write the numbers beside it as CSV.
    """
    looked = looks({result["model"] for result in results})
    with style():
        fig = Figure(figsize=(WIDTH, _TALL))
        ax = at(fig, _LEFT, 0, WIDTH - _LEFT - 0.05, _TALL)
        ends = [each["to"] for result in results for each in result["bins"]]
        log_axis(ax, ends, which="x")
        ax.axvspan(ax.get_xlim()[0], min(result["trained_to"] for result in results), color=FAINT, alpha=0.45, lw=0)
        ax.axhline(HELD, color=MUTED, lw=0.6, linestyle=":")
        ax.set(xlabel="position", ylabel="scaled accuracy")
        ax.set_ylim(min(-0.06, *(each["scaled"] - 0.03 for result in results for each in result["bins"])), 1.06)
        marks, names = [], names_of(results)
        for place, result in enumerate(results):
            look: dict[str, Any] = looked[result["model"]]._asdict() | {"linestyle": ("-", "--", ":", "-.")[place % 4]}
            ax.plot([e["to"] for e in result["bins"]], [e["scaled"] for e in result["bins"]], **look, markeredgewidth=0)
            marks.append(Line2D([], [], **look, markeredgewidth=0))
        told = [f"{name}, to {_position(result['holds_to'])}" for name, result in zip(names, results, strict=True)]
        top = _TALL + 0.42
        top += legend(fig, top, marks, told)
        _head(fig, results)
        caption(
            fig,
            top + 0.05,
            f"Behind each name, the last position to which scaled accuracy stays at {HELD} (dotted) or above. Grey: "
            "the lengths trained on. A point is the mean over a range of positions and stands at its end.",
        )
        save(fig, numbers(results), file.with_suffix(""), kinds=(file.suffix.removeprefix("."),))


def names_of(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return a name for each run: its model, with the task if there are several, or its id if names would be equal."""
    tasks = {result["run_id"].partition("-")[0] for result in results}
    titles = [title_of(Identity.of({"protocol": "", "task": "", "model": result["model"]})) for result in results]
    plain = [
        title if len(tasks) == 1 else f"{title} on {result['run_id'].partition('-')[0]}"
        for title, result in zip(titles, results, strict=True)
    ]
    shown = labels(plain, width=44)
    return [
        shown[name] if plain.count(name) == 1 else result["run_id"] for name, result in zip(plain, results, strict=True)
    ]


def _position(position: int) -> str:
    return f"{position:,}" if position else "none"


def _head(fig: Figure, results: Sequence[dict[str, Any]]) -> None:
    """Write over the picture how many runs hold to the end."""
    last = max(result["length"] for result in results)
    whole = sum(result["holds_to"] >= result["length"] for result in results)
    tasks = ", ".join(sorted({result["run_id"].partition("-")[0] for result in results}))
    seen = f"{whole} of {len(results)} runs hold{'s' * (whole == 1)} to position {last:,}"
    around(words(fig, 0, -0.5, f"Who breaks where: {seen}", size=LARGE)).set_fontweight("bold")
    around(words(fig, 0, -0.28, f"Task: {tasks}", color=MUTED))


def numbers(results: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return a line for each bin of every run, with the settings of the measurement."""
    rows = []
    for result in results:
        made = result["provenance"]
        about = {
            name: result[name] for name in ("run_id", "step", "state_bytes", "holds_to", "finite_to", "without_mistake")
        }
        about |= {"commit": made["commit"], "torch": made["packages"]["torch"], "device": result["numerics"]["device"]}
        rows += [{**about, **each} for each in result["bins"]]
    return pd.DataFrame(rows)
