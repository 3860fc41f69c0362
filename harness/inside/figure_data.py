"""The data of the pictures of boards and layers, as tables made from a run's folder, its probes and its interventions.

game             a line for each square after each ply: what lies there, what the probe reads, the next move
edits            a line for each square of each example of intervene.json, before and after
accuracy         a line for each probe of probe.json, by layer, of every seed
interventions    a line for each layer of intervene.json and each control, of every seed
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from chomsky_ladder.harness.inside.cases import board_of
from chomsky_ladder.harness.inside.probe import FILE as PROBE
from chomsky_ladder.harness.inside.probe import SPLITS, Probes
from chomsky_ladder.harness.inside.probe_fit import Kind
from chomsky_ladder.harness.inside.streams import Trained, streams_of
from chomsky_ladder.harness.store.files import read_json
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.train.forward import autocast
from chomsky_ladder.models.block import Context
from chomsky_ladder.tasks._board import BoardGame
from chomsky_ladder.tasks.base import PAD
from chomsky_ladder.tasks.draw import Draw

MOVERS = {True: "black", False: "white"}
INTERVENE = "intervene.json"


class Measured(NamedTuple):
    """A result file of a run, with the run's label."""

    label: str
    seed: int
    result: Mapping[str, Any]


@torch.no_grad()
def game(trained: Trained, probes: Probes, *, number: int = 0, kind: Kind = "linear") -> pd.DataFrame:
    """Return a game of the probes' test split, read at the layer that validation chose for this kind of probe."""
    run, model, _ = trained
    task = board_of(run.task)
    device = next(model.parameters()).device
    layer = probes.chosen[probes.views[0], kind]
    length = max(task.legal_lengths(*run.train.lengths))
    draw = Draw(seed=run.eval.seed, split=SPLITS["test"], rows_B=torch.tensor([number]))
    tokens_BL = task.sample(draw, torch.tensor([length]), task.positions(length)).tokens_BL
    tokens_BL = tokens_BL[:, : int((tokens_BL != PAD).sum())]
    with autocast(run, device):
        stream_BLD = streams_of(model, tokens_BL.to(device))[layer]
        logits_BLV = model(tokens_BL.to(device), Context())
    odds_LSC = probes.to(device).logits(stream_BLD, layer, kind=kind)[0].softmax(-1).cpu()
    chance_LV = logits_BLV[0].double().softmax(-1).cpu()
    true_LS, legal_LV = task.state(tokens_BL)[0], task.allowed(tokens_BL)[0]
    black_L = task.black_moves(tokens_BL)[0].tolist()
    chance_LS, can_LS = _by_square(task, chance_LV), _by_square(task, legal_LV.double())
    rows = []
    for place, token in enumerate(tokens_BL[0].tolist()):
        names = _names(task, black=black_L[place])
        for cell, square in enumerate(task.squares):
            rows.append(
                {
                    "run_id": run.run_id,
                    "layer": layer,
                    "probe": kind,
                    "ply": place + 1,
                    "move": task.vocab[token],
                    "player": MOVERS[black_L[place - 1]] if place else task.colours[0],
                    "mover": MOVERS[black_L[place]] if legal_LV[place].any() else "nobody",
                    "square": square,
                    "true": names[int(true_LS[place, cell])],
                    "probed": names[int(odds_LSC[place, cell].argmax())],
                    "confidence": float(odds_LSC[place, cell].max()),
                    "legal": bool(can_LS[place, cell]),
                    "probability": float(chance_LS[place, cell]),
                }
            )
    return pd.DataFrame(rows)


def _by_square(task: BoardGame, value_LV: Tensor) -> Tensor:
    """Sum the values of the moves that lead to each square, [L, S]."""
    square_C = torch.tensor([task.lands(token) for token in task.answers])
    sums_LS = value_LV.new_zeros(len(value_LV), len(task.squares))
    return sums_LS.index_add(1, square_C, value_LV[:, list(task.answers)])


def _names(task: BoardGame, *, black: bool) -> tuple[str, ...]:
    """Return the names by colour of the labels that the player to move sees."""
    _, (empty, *kinds) = task.state_views.values()
    half = len(kinds) // 2
    own, other = (kinds[:half], kinds[half:]) if MOVERS[black] == task.colours[0] else (kinds[half:], kinds[:half])
    return empty, *own, *other


def edits(result: Mapping[str, Any], task: BoardGame, *, edit: str = "flip") -> pd.DataFrame:
    """Return the examples that an intervene.json keeps whole."""
    rows = []
    for case, example in enumerate(result["edits"][edit]["examples"]):
        black = bool(task.black_moves(torch.tensor([example["moves"]]))[0, -1])
        names = _names(task, black=black)
        named = dict(zip(next(iter(task.state_views.values())), names, strict=True))
        stages = {}
        for stage, prefix in (("before", ""), ("after", "edited_")):
            legal_V, chance_V = torch.zeros(2, len(task.vocab), dtype=torch.float64)
            legal_V[example[f"{prefix}legal"]] = 1
            chance_V += torch.tensor(example[f"{prefix}probabilities"], dtype=torch.float64)
            can_S, chance_S = _by_square(task, torch.stack([legal_V, chance_V]))
            stages[stage] = example[f"{prefix}board"], can_S > 0, chance_S
        for cell, square in enumerate(task.squares):
            row = {
                "run_id": result["run_id"],
                "layer": example["layer"],
                "strength": example["strength"],
                "case": case,
                "ply": len(example["moves"]),
                "mover": MOVERS[black],
                "edited": example["square"],
                "from": named[example["from"]],
                "to": named[example["to"]],
                "square": square,
            }
            for stage, (board, can_S, chance_S) in stages.items():
                row[f"board_{stage}"] = names[board[cell]]
                row[f"legal_{stage}"] = bool(can_S[cell])
                row[f"probability_{stage}"] = float(chance_S[cell])
            rows.append(row)
    return pd.DataFrame(rows)


def accuracy(results: Sequence[Measured]) -> pd.DataFrame:
    """Return the tables of probe.json files, each with its model's label and its seed."""
    kept = ("view", "source", "probe", "layer", "chosen", "cell", "board", "occupied", "cell_sd_games")
    rows = [
        {"model": label, "seed": seed, "run_id": result["run_id"], "games": result["games"]["test"]}
        | {key: row[key] for key in kept}
        for label, seed, result in results
        for row in result["rows"]
    ]
    return pd.DataFrame(rows)


def interventions(results: Sequence[Measured]) -> pd.DataFrame:
    """Return the errors of intervene.json files, each with its model's label. A value for all layers has no layer."""
    rows = []
    for label, seed, result in results:
        for edit, found in result["edits"].items():
            own = {"model": label, "seed": seed, "run_id": result["run_id"], "edit": edit}
            rows += [own | {"cases": found["cases"]["test"]} | row for row in _errors(found)]
    return pd.DataFrame(rows)


def _errors(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    levels = {"null": found["null"], "own boards": found["own_error"]}
    for kind, level in levels.items():
        yield {"kind": kind, "layer": None, "chosen": True, "mean": level["mean"], "se": level["se"]}
    yield {"kind": "perfect null", "layer": None, "chosen": True, "mean": found["perfect_null"], "se": None}
    for row in found["layers"]:
        for kind, name in (("error", "edited"), ("random", "random"), ("wrong_square", "wrong square")):
            chosen = row["layer"] == found["best"]["layer"]
            yield {
                "kind": name,
                "layer": row["layer"],
                "chosen": chosen,
                "mean": row[kind]["mean"],
                "se": row[kind]["se"],
            }


def read(folder: RunFolder, name: str = PROBE) -> dict[str, Any] | None:
    """Return a run's probe.json or intervene.json, if it has one."""
    return read_json(folder.path / name)
