"""The picture that a link to the page is shown with: 1200 x 630 pixels, the headline beside the ladder in small."""

import io
import textwrap

import pandas as pd
from matplotlib.figure import Figure

from chomsky_ladder.harness.config.presets import PROTOCOLS, has_rungs
from chomsky_ladder.harness.figures.style import INK, MUTED, style
from chomsky_ladder.harness.stats.climb import Climb, climbs_of
from chomsky_ladder.harness.stats.findings import findings

WIDTH, HEIGHT = 1200, 630
_DPI = 100
_QUESTION = "How far up does a sequence model climb?"


def card(records: pd.DataFrame) -> bytes:
    """Return a PNG of the first climb of the records; of records without one, the words alone."""
    labels = [label for label in sorted(records["protocol"].unique()) if label in PROTOCOLS and has_rungs(label)]
    climbs = climbs_of(records, labels[0]) if labels else []
    found = findings(climbs)
    headline = found[0].headline if found else _QUESTION
    with style():
        fig = Figure(figsize=(WIDTH / _DPI, HEIGHT / _DPI), dpi=_DPI)
        fig.text(0.05, 0.86, "Chomsky Ladder", size=20, weight="bold", color=MUTED)
        fig.text(0.05, 0.76, textwrap.fill(headline, 23), size=30, weight="bold", color=INK, va="top", linespacing=1.25)
        if climbs:
            about = f"{len(climbs)} models on {len(climbs[0].steps)} tasks, at one size"
            fig.text(0.05, 0.1, about, size=15, color=MUTED)
            _ladder(fig, climbs)
        content = io.BytesIO()
        fig.savefig(content, format="png", metadata={"Software": None}, facecolor="white")
    return content.getvalue()


def _ladder(fig: Figure, climbs: list[Climb]) -> None:
    """Draw a row a model and a column a rung, as dark as seeds hold it."""
    ax = fig.add_axes((0.57, 0.06, 0.39, 0.72))
    shares = [[step.held / step.n if step.n else 0.0 for step in one.steps] for one in climbs]
    ax.pcolormesh(shares[::-1], cmap="Blues", vmin=-0.08, vmax=1.15, edgecolors="white", linewidth=0.8)
    ax.xaxis.tick_top()
    names = [step.rung.name for step in climbs[0].steps]
    ax.set_xticks([place + 0.5 for place in range(len(names))], names, rotation=55, ha="left", size=12)
    ax.set_yticks([])
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
