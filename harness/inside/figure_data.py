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

from chomsky_ladder.harness.inside.probe import FILE as PROBE
from chomsky_ladder.harness.inside.probe import SPLITS, Probes
from chomsky_ladder.harness.inside.probe_fit import Kind
from chomsky_ladder.harness.inside.streams import Trained, streams_of
from chomsky_ladder.harness.store.files import read_json
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.train.forward import autocast
from chomsky_ladder.models.block import Context
from chomsky_ladder.tasks.base import PAD
from chomsky_ladder.tasks.draw import Draw

COLOURS = {True: ("empty", "black", "white"), False: ("empty", "white", "black")}  # by class; True: black is to move
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
    task: Any = run.task  # Othello
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
    token_of = {name: token for token, name in enumerate(task.vocab) if token != PAD}
    rows = []
    for place, token in enumerate(tokens_BL[0].tolist()):
        names = COLOURS[black_L[place]]
        for cell, square in enumerate(task.squares):
            move = token_of.get(square)
            rows.append(
                {
                    "run_id": run.run_id,
                    "layer": layer,
                    "probe": kind,
                    "ply": place + 1,
                    "move": task.vocab[token],
                    "player": MOVERS[black_L[place - 1] if place else True],
                    "mover": MOVERS[black_L[place]] if legal_LV[place].any() else "nobody",
                    "square": square,
                    "true": names[int(true_LS[place, cell])],
                    "probed": names[int(odds_LSC[place, cell].argmax())],
                    "confidence": float(odds_LSC[place, cell].max()),
                    "legal": move is not None and bool(legal_LV[place, move]),
                    "probability": float(chance_LV[place, move]) if move is not None else 0.0,
                }
            )
    return pd.DataFrame(rows)


def edits(result: Mapping[str, Any], task: Any, *, edit: str = "flip") -> pd.DataFrame:
    """Return the examples that an intervene.json keeps whole."""
    token_of = {name: token for token, name in enumerate(task.vocab) if token != PAD}
    rows = []
    for case, example in enumerate(result["edits"][edit]["examples"]):
        black = bool(task.black_moves(torch.tensor([example["moves"]]))[0, -1])
        names = COLOURS[black]
        named = dict(zip(("empty", "mine", "theirs"), names, strict=True))
        for cell, square in enumerate(task.squares):
            move = token_of.get(square)
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
            for stage, prefix in (("before", ""), ("after", "edited_")):
                chance = example[f"{prefix}probabilities"][move] if move is not None else 0.0
                row[f"board_{stage}"] = names[example[f"{prefix}board" if prefix else "board"][cell]]
                row[f"legal_{stage}"] = move in example[f"{prefix}legal"]
                row[f"probability_{stage}"] = chance
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
