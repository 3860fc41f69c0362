"""State tracking against retrieval: a point for each model of a climb, with intervals over seeds.

The upper right corner is what nobody has yet: a model that does both. Models on the front have names, and as many of
the others as have room, those that do more first.
"""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from chomsky_ladder.harness.config.presets import PROTOCOLS, has_rungs
from chomsky_ladder.harness.figures.named import Point, front, name_points
from chomsky_ladder.harness.figures.plot import Plot, Scene, register, rows_of
from chomsky_ladder.harness.figures.style import FAINT, at, caption, head, labels
from chomsky_ladder.harness.stats.climb import climbs, longest
from chomsky_ladder.harness.stats.families import family_scores
from chomsky_ladder.harness.stats.looks import MEMBERS

ACROSS, UP = "state tracking", "retrieval"
_LEFT, _TALL = 0.5, 3.6  # inches
_COLUMNS = ("protocol", "model", "tracks", "tracks_low", "tracks_high", "recalls", "recalls_low", "recalls_high")
_FIRST = {names[0] for names in MEMBERS.values()}  # the model of each family that most readers know

Row = dict[str, Any]


def corner(scene: Scene) -> pd.DataFrame:
    """Return a row for every model that was run on all rungs of both families."""
    rows: list[Row] = []
    for one in climbs(scene.cells):
        scores = family_scores(one)
        if ACROSS in scores and UP in scores:
            tracks, recalls = scores[ACROSS], scores[UP]
            values = (tracks.value, tracks.low, tracks.high, recalls.value, recalls.low, recalls.high)
            rows.append(dict(zip(_COLUMNS, (scene.protocol, one.model, *values), strict=True)))
    return rows_of(rows, _COLUMNS)


def draw(data: pd.DataFrame, scene: Scene) -> Figure:
    fig = Figure(figsize=(scene.width, _TALL))
    wide = scene.width - _LEFT
    ax = at(fig, _LEFT, 0, wide, _TALL)
    ax.set(xlim=(-0.15, 1.12), ylim=(-0.08, 1.12))
    ax.set_xlabel("state tracking: mean of parity, a cycle of three, S3 and A5", labelpad=3)
    ax.set_ylabel("retrieval: key-value recall", labelpad=3)
    ax.grid(color=FAINT, lw=0.4)
    ax.set_axisbelow(True)
    points = data.to_dict("records")
    for row in points:
        look = scene.looked[row["model"]]
        bars: dict[str, Any] = {"color": look.color, "lw": 0.7, "alpha": 0.55, "zorder": 2}
        ax.plot([row["tracks_low"], row["tracks_high"]], [row["recalls"]] * 2, **bars)
        ax.plot([row["tracks"]] * 2, [row["recalls_low"], row["recalls_high"]], **bars)
        mark: dict[str, Any] = {
            "color": look.color,
            "marker": look.marker,
            "markersize": 5,
            "mec": "white",
            "mew": 0.4,
            "zorder": 5,
        }
        ax.plot(row["tracks"], row["recalls"], **mark)
    places = [Point(row["model"], row["tracks"], row["recalls"]) for row in points]
    known = {point.name for point in places} - {point.name for point in front(places)} - _FIRST
    order = sorted(places, key=lambda point: (point.name in known, -point.x - point.y))
    name_points(ax, places, labels([point.name for point in places], width=24, titles=scene.titles), order)
    head(fig, "Who tracks state, and who recalls?", scene)
    caption(
        fig,
        _TALL + 0.42,
        f"Mean scaled accuracy at lengths {longest(PROTOCOLS[scene.protocol])} over the rungs of each family, cut to "
        "0..1. Bars: 95% interval of a bootstrap over seeds. Each model at the learning rate chosen on validation. "
        f"{len(points)} models; those without a name stand where names would overlap.",
    )
    return fig


register(
    Plot(
        name="corner",
        title="State tracking against retrieval",
        data=corner,
        draw=draw,
        why_not="no model was run on all rungs of state tracking and retrieval",
        when=lambda scene: has_rungs(scene.protocol),
        rank=1,
    )
)
