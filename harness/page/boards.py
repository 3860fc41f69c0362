"""Othello and chess for the page's script: of each study its table, its verdicts, and the numbers behind its pictures.

    <game>/tables/<study>.md                 the table, written by harness/inside/table.py
    <game>/figures/<study>/pictures.json     the pictures, beside each of which lie its numbers
    <game>/figures/<study>/*.csv             those: accuracy and error by layer, games, edits

The page measures nothing: it draws boards from what the study left. A board is a word of a letter a square: b and w for
stones, the letters of FEN for chess, where those of white are capitals.
"""

from pathlib import Path
from typing import Any

import pandas as pd

from chomsky_ladder.harness.figures.names import PICTURES
from chomsky_ladder.harness.page.columns import table
from chomsky_ladder.harness.store.files import read_json

GAMES = ("othello", "chess")
LETTERS = {"empty": ".", "black": "b", "white": "w"}
for _kind, _letter in zip(("pawn", "knight", "bishop", "rook", "queen", "king"), "pnbrqk", strict=True):
    LETTERS |= {f"black {_kind}": _letter, f"white {_kind}": _letter.upper()}
_EDITS = ("flip", "erase")
_LAYERS = {
    "accuracy_by_layer": ("model", "view", "source", "probe", "layer", "chosen", "cell", "board"),
    "error_by_layer": ("model", "edit", "kind", "layer", "chosen", "mean", "se"),
}
_NUMBERS = ("layer", "cell", "board", "mean", "se")
_OVER_SEEDS = {"chosen": "any", "cell": "mean", "board": "mean", "mean": "mean", "se": "mean"}


def studies(results: Path) -> list[dict[str, Any]]:
    """Return the studies under a results folder that have drawn something, without smoke runs."""
    found = [
        (game, path.parent.name) for game in GAMES for path in sorted(results.glob(f"{game}/figures/*/{PICTURES}"))
    ]
    return [_study(results, game, name) for game, name in found if name != "smoke"]


def _study(results: Path, game: str, name: str) -> dict[str, Any]:
    folder = results / game
    drawn = folder / "figures" / name
    layers = {kind: _layers(drawn / f"{kind}.csv", columns) for kind, columns in _LAYERS.items()}
    titles = {each["picture"]: each["title"] for each in read_json(drawn / PICTURES)}
    games = [_game(_read(path), titles[picture]) for picture, path in _of(drawn, titles, "game_every_ply")]
    edits = [_edit(_read(path), kind, titles[name]) for kind in _EDITS for name, path in _of(drawn, titles, kind)]
    about = {"name": f"{game}, {name}", "game": game}
    return {**about, **_table(folder / "tables", name), "layers": layers, "games": games, "edits": edits}


def _of(drawn: Path, titles: dict[str, str], kind: str) -> list[tuple[str, Path]]:
    """Return the pictures of a kind that have their numbers beside them."""
    paths = ((picture, drawn / f"{picture}.csv") for picture in titles if picture.rpartition("/")[2] == kind)
    return [(picture, path) for picture, path in paths if path.exists()]


def _read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype={"true": str, "probed": str}, keep_default_na=False)


def _layers(path: Path, columns: tuple[str, ...]) -> dict[str, Any]:
    """Return the mean of a model's seeds at each of its layers."""
    found = (
        pd.read_csv(path, keep_default_na=False, na_values=dict.fromkeys(_NUMBERS, ""))
        if path.exists()
        else pd.DataFrame()
    )
    if not found.empty:
        keys = [name for name in columns if name not in _OVER_SEEDS]
        over = {name: how for name, how in _OVER_SEEDS.items() if name in columns}
        found = found.groupby(keys, sort=False, dropna=False, as_index=False).agg(over)
    rows = found.astype(object).where(found.notna() & (found != ""), None).to_dict("records")
    return table(rows, columns)


def _table(folder: Path, name: str) -> dict[str, Any]:
    """Heads, lines and verdicts as the study wrote them."""
    said = folder / f"{name}.md"
    lines = said.read_text("utf-8").splitlines() if said.exists() else []
    rows = [[part.strip() for part in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    words = [line for line in lines if line and not line.startswith("|")]
    verdicts = "\n".join(words).replace("\n  ", "; ").splitlines()
    kept = [row for row in rows if set("".join(row)) - set("- :")]
    return {"table": kept, "verdicts": verdicts}


def _game(rows: pd.DataFrame, title: str) -> dict[str, Any]:
    """Return a board for each ply: the true one, the probed one, the probe's confidence, the model's next moves."""
    plies = []
    for ply, own in rows.groupby("ply", sort=True):
        first = own.iloc[0]
        plies.append(
            {
                "ply": int(str(ply)),
                "move": first["move"],
                "player": first["player"],
                "mover": first["mover"],
                "true": _letters(own["true"]),
                "probed": _letters(own["probed"]),
                "sure": _hundredths(own["confidence"]),
                "next": _hundredths(own["probability"]),
                "legal": _flags(own["legal"]),
            }
        )
    first = rows.iloc[0]
    about = {"title": title, "model": title.partition(": ")[0], "run_id": first["run_id"]}
    return {**about, "layer": int(first["layer"]), "probe": first["probe"], "plies": plies}


def _edit(rows: pd.DataFrame, kind: str, title: str) -> dict[str, Any]:
    """Boards before and after, with what the model expects next."""
    cases = []
    for _, own in rows.groupby("case", sort=True):
        first = own.iloc[0]
        cases.append(
            {
                **{name: first[name] for name in ("mover", "edited", "from", "to")},
                "ply": int(first["ply"]),
                "before": _letters(own["board_before"]),
                "after": _letters(own["board_after"]),
                "next_before": _hundredths(own["probability_before"]),
                "next_after": _hundredths(own["probability_after"]),
                "legal_before": _flags(own["legal_before"]),
                "legal_after": _flags(own["legal_after"]),
            }
        )
    first = rows.iloc[0]
    model = title.partition(": ")[0]
    return {"title": title, "model": model, "kind": kind, "run_id": first["run_id"], "cases": cases}


def _letters(values: pd.Series) -> str:
    return "".join(LETTERS.get(value, "?") for value in values)


def _hundredths(values: pd.Series) -> list[int]:
    return [round(100 * float(value)) for value in values]


def _flags(values: pd.Series) -> str:
    return "".join("1" if value in (True, "True") else "0" for value in values)
