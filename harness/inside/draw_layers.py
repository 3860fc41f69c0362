"""Figures by layer, a panel for each model: how well probes read the board, and how an edit of it changes the moves."""

import math
from collections.abc import Callable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from chomsky_ladder.harness.figures.style import FAINT, INK, MUTED, WIDTH, at, caption, labels, legend, words
from chomsky_ladder.harness.inside.table import headline

_ACROSS, _MOST_ACROSS, _MOST_TOLD = 3, 4, 4
_LEFT, _BETWEEN, _STRIP, _TALL, _UNDER = 0.5, 0.34, 0.34, 1.5, 0.46  # inches
_BLUE, _GREEN, _ORANGE, _RED, _PINK = "#0072B2", "#009E73", "#E69F00", "#D55E00", "#CC79A7"

# (view, source, probe) -> the name and look of a line; one without a layer spans the panel
_READINGS: dict[tuple[str, str, str], tuple[str, dict]] = {
    ("mine_theirs", "model", "two_layer"): ("two-layer probe", {"color": _GREEN, "marker": "s", "ls": "-"}),
    ("mine_theirs", "model", "linear"): ("linear probe", {"color": _BLUE, "marker": "o", "ls": "-"}),
    ("black_white", "model", "linear"): ("linear, black and white", {"color": _PINK, "marker": "^", "ls": "-"}),
    ("mine_theirs", "random_network", "linear"): ("random network", {"color": MUTED, "marker": "o", "ls": "--"}),
    ("mine_theirs", "history", "two_layer"): ("raw history, two layers", {"color": _ORANGE, "ls": "-"}),
    ("mine_theirs", "history", "linear"): ("raw history, linear", {"color": _ORANGE, "ls": "--"}),
    ("mine_theirs", "majority", "none"): ("majority of square and ply", {"color": INK, "ls": ":"}),
}
_ERRORS: dict[str, tuple[str, dict]] = {
    "edited": ("edited", {"color": _BLUE, "marker": "o", "ls": "-"}),
    "random": ("random direction", {"color": _ORANGE, "marker": "s", "ls": "-"}),
    "wrong square": ("another square's direction", {"color": _PINK, "marker": "^", "ls": "-"}),
    "null": ("null: not edited", {"color": INK, "ls": "--"}),
    "own boards": ("not edited, on its own boards", {"color": MUTED, "ls": ":"}),
}


def accuracy(data: pd.DataFrame) -> Figure:
    keyed = list(zip(data["view"], data["source"], data["probe"], strict=True))
    data = data.assign(line=[_READINGS.get(key, ("", {}))[0] for key in keyed])
    looks = {name: look for name, look in _READINGS.values() if name in set(data["line"])}
    low = data.loc[data["line"] != "", "cell"].min()

    def draw(ax: Axes, rows: pd.DataFrame) -> None:
        _lines(ax, rows, looks, value="cell")
        ax.set_ylim(math.floor(low * 20) / 20 - 0.02, 1.02)

    def told(rows: pd.DataFrame) -> str:
        best = rows[(rows["line"] == "linear probe") & rows["chosen"].astype(bool)]
        return f"linear {_spread(best['cell'], 3)} at layer {_layers(best)}" if len(best) else ""

    fig, top = _panels(data, draw, told, rows_by=None)
    top += legend(fig, top, [Line2D([], [], **look) for look in looks.values()], list(looks))
    games = " and ".join(f"{count:,}" for count in sorted(set(data["games"])))
    _head(fig, _reading(data), f"squares read rightly from each layer, share of {games} test games{_of_seeds(data)}")
    caption(
        fig,
        top + 0.05,
        "Mine, theirs or empty unless a line says black and white. Layer 0 is the embedding, layer l the stream "
        "behind block l; the number is that of the layer chosen on other games. The random network has the same config "
        "and was never trained; raw history reads the moves without a network; the majority is the commonest label of "
        "each square at each ply. Lines without marks have no layers.",
    )
    return fig


def interventions(data: pd.DataFrame) -> Figure:
    looks = dict(_ERRORS.values())
    data = data.assign(line=[_ERRORS.get(kind, ("", {}))[0] for kind in data["kind"]])
    high = data.loc[data["line"] != "", "mean"].max()

    def draw(ax: Axes, rows: pd.DataFrame) -> None:
        _lines(ax, rows, looks, value="mean")
        ax.set_ylim(0, 1.08 * high)

    def told(rows: pd.DataFrame) -> str:
        best, null = (rows[(rows["kind"] == kind) & rows["chosen"].astype(bool)] for kind in ("edited", "null"))
        return f"{rows['edit'].iloc[0]}: {null['mean'].mean():.2f} unedited, {_spread(best['mean'], 2)} edited"

    fig, top = _panels(data, draw, told, rows_by="edit")
    top += legend(fig, top, [Line2D([], [], **look) for look in looks.values()], list(looks))
    cases = " and ".join(f"{count:,}" for count in sorted(set(data["cases"])))
    spread = _of_seeds(data) or ", ± standard error"
    _head(fig, _following(data), f"errors a board of the moves after an edit, mean of {cases} boards{spread}")
    caption(
        fig,
        top + 0.05,
        "One square of the model's board is flipped or erased by pushing the stream at the last position along the "
        "linear probe's direction, from a layer on. Errors of the model's likeliest moves, as many as the edited board "
        "has: illegal ones taken and legal ones missed. The null is the unedited model against the edited board; the "
        "controls are pushes of the same size. The number over a panel is that of the layer chosen on other games.",
    )
    return fig


def _panels(
    data: pd.DataFrame,
    draw: Callable[[Axes, pd.DataFrame], None],
    told: Callable[[pd.DataFrame], str],
    *,
    rows_by: str | None,
) -> tuple[Figure, float]:
    """Draw a panel for every model, or every model and value of a column.

    Return the figure and its lower edge in inches.
    """
    kinds = list(dict.fromkeys(data[rows_by])) if rows_by else [None]
    models = list(dict.fromkeys(data["model"]))
    shown = labels(models, width=30)
    panels = [(model, kind) for kind in kinds for model in models]
    height = _STRIP + _TALL + _UNDER
    across = len(models) if 1 < len(models) <= _MOST_ACROSS else min(_ACROSS, len(panels))
    wide = (WIDTH - _LEFT - (max(across, _ACROSS) - 1) * _BETWEEN) / max(across, _ACROSS)
    downs = math.ceil(len(panels) / across)
    fig = Figure(figsize=(WIDTH, height * downs))
    for number, (model, kind) in enumerate(panels):
        down, place = divmod(number, across)
        left = _LEFT + place * (wide + _BETWEEN)
        rows = data[data["model"] == model]
        rows = rows if kind is None else rows[rows[rows_by] == kind]
        words(fig, left, down * height, shown[model]).set_fontweight("bold")
        words(fig, left, down * height + 0.13, told(rows), size=6.0, color=MUTED)
        ax = at(fig, left, down * height + _STRIP, wide, _TALL)
        ax.grid(axis="y", color=FAINT, lw=0.4)
        ax.set_axisbelow(True)
        draw(ax, rows)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        if place:
            ax.tick_params(labelleft=False)
        if number + across >= len(panels):
            ax.set_xlabel("layer", labelpad=2)
    return fig, height * downs


def _lines(ax: Axes, rows: pd.DataFrame, looks: dict[str, dict], *, value: str) -> None:
    layers = rows["layer"].dropna()
    ends = (layers.min(), layers.max())
    ax.set_xlim(ends[0] - 0.25, ends[1] + 0.25)
    for order, (name, look) in enumerate(reversed(looks.items())):
        own = rows[rows["line"] == name]
        if own.empty:
            continue
        if own["layer"].isna().all():
            ax.axhline(own[value].mean(), color=look["color"], ls=look["ls"], lw=1.0, zorder=2)
            continue
        seeds = own.groupby("layer")
        error = seeds[value].std() if own["seed"].nunique() > 1 else seeds["se"].first() if "se" in own else None
        mean = seeds[value].mean()
        ax.errorbar(mean.index, mean, error, **look, lw=1.2, elinewidth=0.8, zorder=3 + order)


def _reading(data: pd.DataFrame) -> str:
    """Return the headline: for which models the stream tells more of the board than the moves do, on every seed."""
    chosen = data[data["chosen"].astype(bool)]
    best = chosen.pivot_table(index=["model", "seed"], columns="line", values="cell", sort=False)
    if not {"linear probe", "raw history, linear"} <= set(best):
        return "How well the board is read from each layer"
    above = (best["linear probe"] > best["raw history, linear"]).groupby("model", sort=False).all()
    return headline(above.to_dict())


def _following(data: pd.DataFrame) -> str:
    """Return the headline: the share of errors that an edit removes, for models where it works on every seed.

    An edit works if it leaves fewer errors than no edit, and fewer than a random push of the same size.
    """
    flips = data[(data["edit"] == data["edit"].iloc[0]) & data["chosen"].astype(bool)]
    best = flips.pivot_table(index=["model", "seed"], columns="kind", values="mean", sort=False)
    near = best["edited"] < best[["null", "random"]].min(axis=1)
    follow = [str(model) for model, does in near.groupby("model", sort=False).all().items() if does]
    mean = best.groupby("model", sort=False).mean()
    removed = (1 - mean["edited"] / mean["null"]).loc[follow].sort_values(ascending=False, kind="stable")
    if removed.empty:
        return "No moves follow an edit of the board"
    shown = [f"{model} {share:.0%}" for model, share in removed.items()]
    shown = shown if len(shown) <= _MOST_TOLD else [*shown[: _MOST_TOLD - 1], "..", shown[-1]]
    return f"Errors an edit removes: {', '.join(shown)}"


def _spread(values: pd.Series, digits: int) -> str:
    mean = f"{values.mean():.{digits}f}"
    return f"{mean} ± {values.std():.{digits}f}" if len(values) > 1 else mean


def _layers(rows: pd.DataFrame) -> str:
    return ", ".join(f"{layer:.0f}" for layer in dict.fromkeys(rows["layer"]))


def _of_seeds(data: pd.DataFrame) -> str:
    seeds = data["seed"].nunique()
    return f", ± deviation of {seeds} seeds" if seeds > 1 else ""


def _head(fig: Figure, title: str, what: str) -> None:
    words(fig, 0, -0.5, title, size=10.0).set_fontweight("bold")
    words(fig, 0, -0.28, what, color=MUTED)
