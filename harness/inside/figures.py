"""The pictures of probed runs, each as PNG, SVG and CSV, with a title.

    accuracy_by_layer, error_by_layer       all runs together, a panel each
    <run_id>/game, game_every_ply           the true board beside the probed one, for each model's first seed
    <run_id>/flip, erase                    boards before and after an edit, with the model's moves on them, likewise

Pictures whose measurement is missing (`ladder probe`, `ladder intervene`) are left out. pictures.json lists the others.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.figure import Figure

from chomsky_ladder.harness.config.protocols import identity_of
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.figures.names import PICTURES
from chomsky_ladder.harness.figures.style import save, style
from chomsky_ladder.harness.inside import draw_boards as figure_boards
from chomsky_ladder.harness.inside import draw_layers as figure_layers
from chomsky_ladder.harness.inside import figure_data as tables
from chomsky_ladder.harness.inside.probe import WEIGHTS, load_probe
from chomsky_ladder.harness.inside.streams import load_trained
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.titles import name_of
from chomsky_ladder.harness.train.machine import find_device
from chomsky_ladder.tasks._board import BoardGame

PLIES = 12  # plies of a game in the short picture


class Picture(NamedTuple):
    title: str
    stem: Path  # path without .png, .svg or .csv


def write(folders: Sequence[RunFolder], out: Path, *, device: str = "cpu") -> list[Picture]:
    """Draw all pictures for some runs of one task. Return them in the order in which one looks at them."""
    names = labels_of(folders)
    with style():
        found = _of_all(folders, out)
        for folder in _first_seeds(folders):
            found += _of_one(folder, out / folder.path.name, label=names[folder.path.name], device=device)
    if found:
        listed = [{"title": picture.title, "picture": str(picture.stem.relative_to(out))} for picture in found]
        write_atomically(out / PICTURES, f"{json.dumps(listed, indent=1)}\n".encode())
    return found


def _of_all(folders: Sequence[RunFolder], out: Path) -> list[Picture]:
    found = []
    if probed := _measured(folders, tables.PROBE):
        data = tables.accuracy(probed)
        found.append(_saved(figure_layers.accuracy(data), data, out / "accuracy_by_layer", "The board, layer by layer"))
    if edited := _measured(folders, tables.INTERVENE):
        data = tables.interventions(edited)
        title = "What an edit of the board does, layer by layer"
        found.append(_saved(figure_layers.interventions(data), data, out / "error_by_layer", title))
    return found


def _measured(folders: Sequence[RunFolder], name: str) -> list[tables.Measured]:
    names = labels_of(folders)
    read = [(folder, tables.read(folder, name)) for folder in folders]
    return [
        tables.Measured(names[folder.path.name], Run.from_plain(folder.config()).seed, result)
        for folder, result in read
        if result is not None
    ]


def _of_one(folder: RunFolder, out: Path, *, label: str, device: str) -> list[Picture]:
    found = []
    task: Any = Run.from_plain(folder.config()).task
    if (folder.path / WEIGHTS).exists() and isinstance(task, BoardGame):
        trained = load_trained(folder, device=find_device(device))
        data = tables.game(trained, load_probe(folder.path))
        shown = data[data["ply"].isin(glance(data["ply"].max()))]
        title = f"{label}: the true board beside the probed one"
        found.append(_saved(figure_boards.game(shown), shown, out / "game", title))
        found.append(_saved(figure_boards.game(data), data, out / "game_every_ply", f"{title}, ply by ply"))
    if (result := tables.read(folder, tables.INTERVENE)) is not None:
        for edit in result["edits"]:
            data = tables.edits(result, task, edit=edit)
            title = f"{label}: boards before and after an edit ({edit})"
            if not data.empty:
                found.append(_saved(figure_boards.edits(data), data, out / edit, title))
    return found


def glance(plies: int) -> list[int]:
    """Return up to PLIES plies, evenly spread from the first to the last."""
    count = min(PLIES, plies)
    return sorted({1 + round(place * (plies - 1) / max(1, count - 1)) for place in range(count)})


def labels_of(folders: Sequence[RunFolder]) -> dict[str, str]:
    """Return each run's label among the others: the model's name, if needed with its settings, else the run's id."""
    runs, ids = [Run.from_plain(folder.config()) for folder in folders], [folder.path.name for folder in folders]
    identities = [identity_of(run) for run in runs]
    for names in (list(map(name_of, identities)), [identity.model for identity in identities]):
        if len(set(zip(names, (run.seed for run in runs), strict=True))) == len(runs):
            return dict(zip(ids, names, strict=True))
    return dict(zip(ids, ids, strict=True))


def _first_seeds(folders: Sequence[RunFolder]) -> list[RunFolder]:
    """Return one run for each model. Boards of other seeds would look the same."""
    first: dict[str, RunFolder] = {}
    for folder, label in zip(folders, labels_of(folders).values(), strict=True):
        first.setdefault(label, folder)
    return list(first.values())


def _saved(fig: Figure, data: pd.DataFrame, stem: Path, title: str) -> Picture:
    save(fig, data, stem)
    return Picture(title, stem)
