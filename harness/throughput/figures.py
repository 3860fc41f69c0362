"""Figures of a throughput report: PNG, SVG and, beside them, the numbers each shows as CSV.

throughput   tokens per second against length, at constant tokens per step    decode     latency against context
memory       peak against length, at constant batch                           roofline   FLOP/s against FLOP per byte
accuracy     mean scaled accuracy, from records, against training tokens per second
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from chomsky_ladder.harness.config.presets import remark_of
from chomsky_ladder.harness.figures.kinds.cost import cost
from chomsky_ladder.harness.figures.named import Point, front, name_points
from chomsky_ladder.harness.figures.style import (
    FAINT,
    INK,
    LARGE,
    MUTED,
    WIDTH,
    at,
    caption,
    labels,
    legend,
    log_axis,
    save,
    style,
    words,
)
from chomsky_ladder.harness.stats import view
from chomsky_ladder.harness.stats.looks import Look, looks
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.throughput.bench import Row
from chomsky_ladder.harness.throughput.families import MANY, Draw, panels
from chomsky_ladder.harness.throughput.table import Found

_LEFT, _WIDE, _TALL = 0.55, WIDTH - 0.6, 3.1  # inches

Tell = Callable[[str], None]


def write(report: Row, folder: Path, *, records: pd.DataFrame | None = None, tell: Tell) -> list[Path]:
    """Write every figure that has data, and say which ones do not."""
    found = Found(report)
    paths: list[Path] = []
    with style():
        for name, (data_of, draw) in _FIGURES.items():
            data = data_of(found) if name != "accuracy" else accuracy(found, records)
            if data.empty:
                tell(f"no figure {name}: nothing to show in it")
            else:
                paths += save(draw(data, report, looks(found.models)), data, folder / name)
    return paths


def _lines(found: Found, column: str, places: list[tuple[str, str, int, int]]) -> pd.DataFrame:
    """Return a column of the rows at (model, what, length, batch), with its percentiles."""
    rows = []
    for model, what, length, batch in places:
        row = found.row(model, what, length=length, batch=batch)
        if row is None or row.get(column) is None:
            continue
        shown = {"model": model, "length": length, "batch": batch, "value": row[column]}
        if column == "tokens_per_s":
            shown |= {"low": row[column] * row["ms"] / row["ms_p80"], "high": row[column] * row["ms"] / row["ms_p20"]}
        elif column == "ms":
            shown |= {"low": row["ms_p20"], "high": row["ms_p80"]}
        rows.append(shown)
    return pd.DataFrame(rows)


def throughput(found: Found) -> pd.DataFrame:
    grid = found.grid
    places = [(m, "train", length, grid["tokens"] // length) for m in found.models for length in grid["lengths"]]
    return _lines(found, "tokens_per_s", places)


def memory(found: Found) -> pd.DataFrame:
    places = [(m, "train", length, found.grid["batch"]) for m in found.models for length in found.grid["growing"]]
    return _lines(found, "peak_bytes", places)


def decode(found: Found) -> pd.DataFrame:
    return _lines(found, "ms", [(m, "decode", c, 1) for m in found.models for c in found.grid["contexts"]])


def roofline(found: Found) -> pd.DataFrame:
    """Return operations per byte and per second, in training and decoding, at the length where models are compared."""
    grid, rows = found.grid, []
    for model in found.models:
        for what, batch in (("train", grid["tokens"] // grid["at"]), ("decode", 1)):
            row = found.row(model, what, length=grid["at"], batch=batch)
            if row is not None and row.get("gb_per_s"):
                intensity = row["gflop_per_s"] / row["gb_per_s"]
                rows.append({"model": model, "what": what, "intensity": intensity, "gflop_per_s": row["gflop_per_s"]})
    return pd.DataFrame(rows)


def accuracy(found: Found, records: pd.DataFrame | None) -> pd.DataFrame:
    """Return accuracy and speed for the protocol that has most of the models. Protocols are never mixed."""
    best = pd.DataFrame()
    if records is None or records.empty:
        return best
    grid = found.grid
    for _, group in records.groupby("protocol", sort=True):
        scores = cost(view.cells_of(group))
        rows = []
        for score in scores[scores["runs"] > 0].to_dict("records"):
            row = found.row(score["model"], "train", length=grid["at"], batch=grid["tokens"] // grid["at"])
            if row is not None and row.get("tokens_per_s"):
                kept = {key: score[key] for key in ("protocol", "model", "tasks", "mean", "low", "high")}
                rows.append(kept | {"tokens_per_s": row["tokens_per_s"]})
        if len(rows) > len(best):
            best = pd.DataFrame(rows)
            best.attrs["remark"] = remark_of(Identity.of(group.iloc[0]).protocol_name)
    return best


def draw_throughput(data: pd.DataFrame, report: Row, looked: dict[str, Look]) -> Figure:
    said = (
        f"Training (forward, backward, AdamW) at matched parameters ({report['grid']['parameters']:,}) and "
        f"{report['grid']['tokens']:,} tokens a step, {report['grid']['precisions'][0]}."
    )
    axes = ("length of a string", "training tokens a second")
    return _curves(data, report, looked, "Throughput against length", axes, said)


def draw_memory(data: pd.DataFrame, report: Row, looked: dict[str, Look]) -> Figure:
    said = (
        f"Most memory that torch had handed out at once in a training step, weights and moments included, at matched "
        f"parameters ({report['grid']['parameters']:,}) and a batch of {report['grid']['batch']}."
    )
    return _curves(data, report, looked, "Memory against length", ("length of a string", "bytes at the peak"), said)


def draw_decode(data: pd.DataFrame, report: Row, looked: dict[str, Look]) -> Figure:
    said = (
        f"One more token at matched parameters ({report['grid']['parameters']:,}), a batch of 1, from a state made for "
        "the context. Steps are pure: one that lengthens a cache copies it."
    )
    axes = ("tokens before", "ms a decoded token")
    return _curves(data, report, looked, "Decode latency against context", axes, said)


def _curves(
    data: pd.DataFrame, report: Row, looked: dict[str, Look], title: str, axes: tuple[str, str], said: str
) -> Figure:
    ends = data[["value", *({"low", "high"} & set(data))]]

    def prepare(ax: Axes) -> None:
        log_axis(ax, data["length"], which="x")
        log_axis(ax, ends.stack(), which="y")

    def draw(ax: Axes, data: pd.DataFrame, looked: dict[str, Look]) -> None:
        for model, rows in data.groupby("model"):
            rows, look = rows.sort_values("length"), looked[model]
            is_faint = not look.marker
            size: dict[str, Any] = {"lw": 0.6} if is_faint else {"mec": "white", "mew": 0.3, "markersize": 4}
            ax.plot(rows["length"], rows["value"], **look._asdict(), **size)
            if "low" in rows and not is_faint:
                ax.fill_between(rows["length"], rows["low"], rows["high"], color=look.color, alpha=0.12, lw=0)

    bands = " Bands: 20th to 80th percentile." if "low" in data else ""
    if bands and report.get("sittings", 1) > 1:
        bands = " Bands: lowest 20th to highest 80th percentile of the sittings."
    return _drawn(data, report, looked, draw, prepare, axes, title, said + bands)


def draw_roofline(data: pd.DataFrame, report: Row, looked: dict[str, Look]) -> Figure:
    tops = report["ceilings"][report["grid"]["precisions"][0]]
    product, copy = tops["product_gflop_per_s"], tops["copy_gb_per_s"]

    def prepare(ax: Axes) -> None:
        log_axis(ax, [*data["intensity"], product / copy * 2], which="x")
        log_axis(ax, [*data["gflop_per_s"], product], which="y")
        low, high = ax.get_xlim()
        ax.plot([low, product / copy, high], [low * copy, product, product], color=INK, lw=1)

    def draw(ax: Axes, data: pd.DataFrame, looked: dict[str, Look]) -> None:
        for row in data.to_dict("records"):
            look = looked[row["model"]]
            face: dict[str, Any] = (
                {"mfc": "none", "mec": look.color} if row["what"] == "decode" else {"mfc": look.color, "mec": "white"}
            )
            size: dict[str, Any] = (
                {"marker": look.marker, "markersize": 5} if look.marker else {"marker": "o", "markersize": 2.5}
            )
            ax.plot(row["intensity"], row["gflop_per_s"], ls="", mew=0.6, **size, **face)

    said = (
        f"Filled: training at length {report['grid']['at']:,}; hollow: decoding there, in a batch of 1. Operations by "
        "formula, bytes the least there can be (both in the table), so what reads more stands further left in truth. "
        f"The roof was measured on the spot, in the same run: copying at {copy:,.1f} GB/s, a product of matrices at "
        f"{product:,.0f} GFLOP/s."
    )
    return _drawn(data, report, looked, draw, prepare, ("operations a byte", "GFLOP/s"), "Roofline", said)


def draw_accuracy(data: pd.DataFrame, report: Row, looked: dict[str, Look]) -> Figure:
    fig = Figure(figsize=(WIDTH, _TALL))
    ax = _axes(fig, "training tokens a second", "mean scaled accuracy")
    log_axis(ax, data["tokens_per_s"], which="x")
    ax.set_ylim(min(-0.03, data[["low", "mean"]].min(axis=None) - 0.03), 1.04)
    for row in data.to_dict("records"):
        look = looked[row["model"]]
        if pd.notna(row["low"]):
            ax.plot([row["tokens_per_s"]] * 2, [row["low"], row["high"]], color=look.color, lw=0.9)
        ax.plot(row["tokens_per_s"], row["mean"], ls="", color=look.color, marker=look.marker, markersize=5.5)
    points = [Point(row["model"], row["tokens_per_s"], row["mean"]) for row in data.to_dict("records")]
    order = [*front(points), *sorted(points, key=lambda point: -point.y)]
    name_points(ax, points, labels([point.name for point in points], width=24), list(dict.fromkeys(order)))
    protocol = labels([data["protocol"].iloc[0]], width=90)[data["protocol"].iloc[0]]
    tasks = labels(data["tasks"].iloc[0].split("; "), width=30).values()
    remark = f" ({data.attrs['remark']})" if data.attrs["remark"] else ""
    said = (
        f"Accuracy of the protocol {protocol}{remark}: over {', '.join(tasks)}; bars: 95 % interval of a bootstrap. "
        f"The speed is that of models of {report['grid']['parameters']:,} parameters at length "
        f"{report['grid']['at']:,}, not of the very sizes that were scored."
    )
    return _finished(fig, data, report, looked, "Accuracy against throughput", said)


def _drawn(
    data: pd.DataFrame,
    report: Row,
    looked: dict[str, Look],
    draw: Draw,
    prepare: Callable[[Axes], None],
    axes: tuple[str, str],
    title: str,
    said: str,
) -> Figure:
    """Draw the data on one pair of axes, or with many models a panel for every family."""
    if len(set(data["model"])) >= MANY:
        fig, top = panels(data, draw, prepare, axes)
        return _titled(fig, report, title, f"{said} Grey: the other models.", top)
    fig = Figure(figsize=(WIDTH, _TALL))
    ax = _axes(fig, *axes)
    prepare(ax)
    draw(ax, data, looked)
    return _finished(fig, data, report, looked, title, said)


def _axes(fig: Figure, across: str, up: str) -> Axes:
    ax = at(fig, _LEFT, 0, _WIDE, _TALL)
    ax.grid(color=FAINT, lw=0.4)
    ax.set_axisbelow(True)
    ax.set_xlabel(across, labelpad=3)
    ax.set_ylabel(up, labelpad=3)
    return ax


def _finished(fig: Figure, data: pd.DataFrame, report: Row, looked: dict[str, Look], title: str, said: str) -> Figure:
    """Add a key, a title and a note to a figure."""
    models = sorted(set(data["model"]))
    names = labels(models, width=44)
    keys = [Line2D([], [], **looked[model]._asdict(), markersize=4.5) for model in models]
    top = _TALL + 0.5
    top += legend(fig, top, keys, [names[model] for model in models])
    return _titled(fig, report, title, said, top + 0.05)


def _titled(fig: Figure, report: Row, title: str, said: str, top: float) -> Figure:
    words(fig, 0, -0.5, title, size=LARGE).set_fontweight("bold")
    clock = f"torch {report['torch']}, {report['clock']}"
    words(fig, 0, -0.28, f"{labels([report['device']], width=70)[report['device']]}, {clock}", color=MUTED)
    caption(fig, top, said)
    return fig


_FIGURES: dict[str, tuple[Callable[..., pd.DataFrame], Callable[..., Figure]]] = {
    "throughput": (throughput, draw_throughput),
    "memory": (memory, draw_memory),
    "decode": (decode, draw_decode),
    "roofline": (roofline, draw_roofline),
    "accuracy": (accuracy, draw_accuracy),
}
