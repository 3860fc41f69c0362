"""Pictures of boards: the true board beside the one that a probe reads from the model, and boards before and after an
edit.

    stones         black and white, whoever sees them as mine; in chess pieces, with white at the bottom
    blue rings     the legal moves
    dots           squares that moves lead to; darker and larger means more probable to the model; illegal are orange
    frames         orange around squares that the probe gets wrong, purple around an edited square

The data have a line for each square of each board (harness/inside/figure_data.py).
"""

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle

from chomsky_ladder.harness.figures.style import INK, MUTED, WIDTH, at, caption, in_rows, words

BOARD, LINES = "#dde6d6", "#b3bfab"
WRONG, EDITED, LIKELY = "#D55E00", "#A0338A", "#0072B2"
LEAST = 0.01  # a move less probable than this has no dot
_KINDS = ("pawn", "knight", "bishop", "rook", "queen", "king")
PIECES: dict[str, dict[str, str]] = {
    colour: dict(zip(_KINDS, glyphs, strict=True)) for colour, glyphs in (("white", "♙♘♗♖♕♔"), ("black", "♟♞♝♜♛♚"))
}
_DARKEST = 0.5  # a move this probable has the darkest dot
_TINY = 5.0  # points: the names of rows and columns
_GAP, _TITLE = 0.22, 0.36  # inches


def game(data: pd.DataFrame) -> Figure:
    """Draw for each ply the true board and, under it, the board that the probe reads from the model."""
    size = math.isqrt(data["square"].nunique())
    across = 6 if size <= 6 else 4
    plies = [own for _, own in data.groupby("ply", sort=True)]
    left, under = 0.46, 0.1
    wide = (WIDTH - left - (across - 1) * _GAP) / across
    tall = _TITLE + 2 * wide + under + 0.24
    rows = in_rows(plies, across)
    men = _men(data["true"])
    fig = Figure(figsize=(WIDTH, tall * len(rows)))
    for down, row in enumerate(rows):
        top = down * tall
        for name, y in (("true", top + _TITLE), ("probed", top + _TITLE + wide + under)):
            words(fig, 0, y + wide / 2 - 0.06, name, color=MUTED)
        for place, own in enumerate(row):
            x = left + place * (wide + _GAP)
            first = own.iloc[0]
            wrong = int((own["true"] != own["probed"]).sum())
            words(fig, x, top, f"{first['ply']}. {first['player']} {first['move']}").set_fontweight("bold")
            read = f"{wrong} wrong" if wrong else "all right"
            turn = "game over" if first["mover"] == "nobody" else f"{first['mover']} to move"
            words(fig, x, top + 0.125, f"{turn} · {read}", size=6.0, color=MUTED)
            true, probed = (at(fig, x, y, wide, wide) for y in (top + _TITLE, top + _TITLE + wide + under))
            _board(true, size, men, names=place == 0)
            _board(probed, size, men, names=place == 0)
            for cell in own.to_dict("records"):
                _stone(true, cell, cell["true"])
                _ring(true, cell)
                _stone(probed, cell, cell["probed"])
                _ring(probed, cell)
                _dot(probed, cell, cell["probability"])
                if cell["true"] != cell["probed"]:
                    _frame(probed, cell, WRONG)
    first = data.iloc[0]
    accuracy = (data["true"] == data["probed"]).mean()
    shown = "every ply" if len(plies) == data["ply"].max() else f"{len(plies)} plies"
    _head(
        fig, "What the model takes the board for", f"{first['run_id']}, layer {first['layer']}, {first['probe']} probe"
    )
    caption(
        fig,
        tall * len(rows) - 0.08,
        f"{shown[:1].upper()}{shown[1:]} of one game the model has not seen. Upper boards: the {men} that stand there. "
        f"Lower boards: the {men} that a probe reads from the model's stream, an orange frame around each wrong square "
        f"({accuracy:.1%} of all squares are right), and the model's own next moves as dots, the darker and larger the "
        f"more probable (from {LEAST}), orange where illegal. Rings: legal moves, on a lower board missed if empty.",
    )
    return fig


def edits(data: pd.DataFrame) -> Figure:
    """Draw boards before and after one square of the model's board was changed, with its move probabilities on them."""
    size = math.isqrt(data["square"].nunique())
    cases = [own for _, own in data.groupby("case", sort=True)]
    between, beside = 0.5, 0.3
    wide = (WIDTH - beside - between - 2 * 0.16) / 4
    tall = _TITLE + 0.12 + wide + 0.3
    rows = in_rows(cases, 2)
    men = _men(data["board_before"])
    fig = Figure(figsize=(WIDTH, tall * len(rows)))
    for down, row in enumerate(rows):
        for place, own in enumerate(row):
            top, x = down * tall, 0.16 + place * (2 * wide + beside + between)
            first = own.iloc[0]
            title = f"{first['edited']}: {first['from']} to {first['to']}" if first["to"] != "empty" else ""
            title = title or f"{first['edited']}: {first['from']} erased"
            words(fig, x, top, f"After {first['ply']} moves, {first['mover']} to move").set_fontweight("bold")
            for stage, offset, text in (
                ("before", 0.0, f"the board · {_errors(own, 'before')}"),
                ("after", wide + beside, f"{title} · {_errors(own, 'after')}"),
            ):
                words(fig, x + offset, top + 0.15, text, size=6.0, color=MUTED)
                ax = at(fig, x + offset, top + _TITLE, wide, wide)
                _board(ax, size, men, names=stage == "before")
                for cell in own.to_dict("records"):
                    seen = {**cell, "legal": cell[f"legal_{stage}"]}
                    _stone(ax, seen, cell[f"board_{stage}"])
                    _ring(ax, seen)
                    _dot(ax, seen, cell[f"probability_{stage}"])
                    if cell["square"] == cell["edited"]:
                        _frame(ax, cell, EDITED)
            _arrow(fig, x + wide + beside / 2, top + _TITLE + wide / 2)
    first = data.iloc[0]
    _head(fig, "Changing one square of the model's board", f"{first['run_id']}, pushed from layer {first['layer']} on")
    caption(
        fig,
        tall * len(rows) - 0.12,
        "Left: the board of the game and the moves of the model as it is. Right: the model's stream is pushed along "
        "the probe's direction of the framed square; the board is the one it should now see, the dots its moves. "
        f"Rings: moves legal on the board shown. Dots: moves of a probability from {LEAST}, orange where illegal. "
        "Errors: of as many likeliest moves as are legal, the illegal ones, and the legal ones missed.",
    )
    return fig


def _errors(own: pd.DataFrame, stage: str) -> str:
    """Return the false positives and negatives of the model's top N moves against the board of this stage."""
    legal = own[f"legal_{stage}"].astype(bool)
    top = own[f"probability_{stage}"].rank(method="first", ascending=False) <= legal.sum()
    errors = int((legal != top).sum())
    return f"{errors} error{'' if errors == 1 else 's'}"


def _head(fig: Figure, title: str, what: str) -> None:
    words(fig, 0, -0.5, title, size=10.0).set_fontweight("bold")
    words(fig, 0, -0.28, what, color=MUTED)


def _men(labels: pd.Series) -> str:
    """Return what stands on the squares: pieces of several kinds, or stones."""
    return "pieces" if labels.str.contains(" ").any() else "stones"


def _board(ax: Axes, size: int, men: str, *, names: bool) -> None:
    """Draw an empty board: row 1 at the top for stones, at the bottom for pieces, as players of each game see it."""
    upwards = men == "pieces"
    ax.set(xlim=(0, size), ylim=(0, size) if upwards else (size, 0))
    ax.axis("off")
    ax.add_patch(Rectangle((0, 0), size, size, facecolor=BOARD, edgecolor=LINES, lw=0.8, clip_on=False))
    for line in range(1, size):
        ax.plot([line, line], [0, size], color=LINES, lw=0.4, zorder=1)
        ax.plot([0, size], [line, line], color=LINES, lw=0.4, zorder=1)
    if names:
        for number in range(size):
            ax.text(-0.15, number + 0.5, str(number + 1), size=_TINY, color=MUTED, ha="right", va="center")
    for number in range(size):
        below = -0.12 if upwards else size + 0.12
        ax.text(number + 0.5, below, "abcdefgh"[number], size=_TINY, color=MUTED, ha="center", va="top")


def _middle(cell: dict) -> tuple[float, float]:
    return "abcdefgh".index(cell["square"][0]) + 0.5, int(cell["square"][1:]) - 0.5


def _stone(ax: Axes, cell: dict, stone: str) -> None:
    colour, *piece = stone.split()
    if piece:
        size = 0.8 * 72 * WIDTH * ax.get_position().width / ax.get_xlim()[1]
        ax.text(*_middle(cell), PIECES[colour][piece[0]], size=size, color=INK, ha="center", va="center", zorder=2)
    elif stone != "empty":
        face = INK if stone == "black" else "white"
        ax.add_patch(Circle(_middle(cell), 0.38, facecolor=face, edgecolor=INK, lw=0.5, zorder=2))


def _ring(ax: Axes, cell: dict) -> None:
    if cell["legal"]:
        ax.add_patch(Circle(_middle(cell), 0.4, facecolor="none", edgecolor=LIKELY, lw=0.7, zorder=3))


def _dot(ax: Axes, cell: dict, probability: float) -> None:
    """Draw a move's probability as the area and shade of a dot."""
    if probability >= LEAST:
        strength = min(1.0, probability / _DARKEST)
        pale, full = (0.72, 0.82, 0.93), to_rgb(LIKELY)
        if not cell["legal"]:
            pale, full = (0.95, 0.60, 0.36), to_rgb(WRONG)
        mix = strength**0.5
        shade = tuple(a + (b - a) * mix for a, b in zip(pale, full, strict=True))
        radius = 0.12 + 0.24 * strength**0.5
        ax.add_patch(Circle(_middle(cell), radius, facecolor=shade, edgecolor="white", lw=0.3, zorder=4))


def _frame(ax: Axes, cell: dict, colour: str) -> None:
    x, y = _middle(cell)
    ax.add_patch(Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, facecolor="none", edgecolor=colour, lw=1.3, zorder=5))


def _arrow(fig: Figure, x: float, y: float) -> None:
    words(fig, x - 0.06, y - 0.1, "→", size=11.0, color=MUTED)
