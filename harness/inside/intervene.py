"""Test whether a model uses the board in its stream: change one square, and see if its moves follow the edited board.

    error       false positives + false negatives of the N likeliest moves, N = legal moves of the edited board
    null        error of the unedited model: an edit has to be below it
    edited      error of the model whose stream was pushed along the linear probe's direction (harness/inside/push.py)
    controls    a random direction and another square's, with steps of the same length; errors on those squares alone
                that the edit makes legal or illegal

The push is at the last position, from block l on. For each l the strength, and then l itself, are chosen on other games
than those reported. For the carried edit, the model is pushed once and the game goes on. An effect one to five moves
later must have come through the state (for attention, its cache), because a token's stream has no other way to later
tokens. After Li et al. 2023 (2210.13382) and Nanda et al. 2023 (2309.00941), for every model with a residual stream.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.parts import plain, require
from chomsky_ladder.harness.inside.cases import EDITS, Cases, board_of, cases_of
from chomsky_ladder.harness.inside.probe import SCHEMA, Probes, load_probe
from chomsky_ladder.harness.inside.probe_table import paired
from chomsky_ladder.harness.inside.push import Push, Pushed, Pusher, mean_of, wrong_moves
from chomsky_ladder.harness.inside.settings import InterveneSettings
from chomsky_ladder.harness.inside.streams import Trained, load_trained, views_of
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.train.machine import (
    avoid_faulty_tiles,
    find_device,
    keep_freed_memory,
    numerics,
    provenance,
)
from chomsky_ladder.harness.train.progress import Progress
from chomsky_ladder.tasks._board import Edit

FILE = "intervene.json"
MEASURES = ("error", "random", "wrong_square")


def intervene_run(
    folder: RunFolder, settings: InterveneSettings | None = None, *, device: str = "auto", quiet: bool = True
) -> dict[str, Any]:
    """Intervene in a run that has been probed, and write intervene.json into its folder."""
    trained = load_trained(folder, device=find_device(device))
    board_of(trained.run.task)
    probes = load_probe(folder.path)
    with folder.locked():
        result = intervene(trained, probes, settings, quiet=quiet)
        write_atomically(folder.path / FILE, (json.dumps(result, indent=1) + "\n").encode())
    return result


def intervene(
    trained: Trained, probes: Probes, settings: InterveneSettings | None = None, *, quiet: bool = True
) -> dict[str, Any]:
    """Measure both kinds of edits of a model's board, at every layer, with their controls."""
    task = board_of(trained.run.task)
    run_id, settings = trained.run.run_id, settings or InterveneSettings()
    ours = (probes.run_id, probes.step) == (run_id, trained.step)
    require(ours, f"the probes are of {probes.run_id} at step {probes.step}: `ladder probe {run_id}` first")
    avoid_faulty_tiles()
    keep_freed_memory()
    device = next(trained.model.parameters()).device
    pusher = Pusher(trained, probes, seed=settings.seed, games=settings.cases_validation)
    pushes = 2 * (2 * trained.model.num_layers + 1) * (len(settings.strengths) + 2)
    progress, done = Progress(f"intervene {run_id}", pushes, quiet=quiet), 0

    def show(note: str) -> None:
        nonlocal done
        done += 1
        progress.update(done, note)

    edits = {edit: _Editing(pusher, settings, edit, show).result() for edit in EDITS}
    flip = edits["flip"]
    progress.close(f"flip: null {flip['null']['mean']:.3f}, edited {flip['best']['error']['mean']:.3f}")
    return {
        "schema": SCHEMA,
        "kind": "intervene",
        "run_id": run_id,
        "step": trained.step,
        "task": task.name,
        "model": trained.run.model.name,
        "num_layers": trained.model.num_layers,
        "board": task.size,
        "cells": list(task.state_parts),
        "settings": plain(settings),
        "seeds": {"strings": trained.run.eval.seed, "intervene": settings.seed},
        "edits": edits,
        "numerics": numerics(Exec(threads=torch.get_num_threads()), device),
        "provenance": provenance(task, trained.run.model),
    }


class _Editing:
    """One kind of edit of one model."""

    def __init__(self, pusher: Pusher, settings: InterveneSettings, edit: Edit, show: Callable[[str], None]) -> None:
        self.pusher, self.settings, self.edit, self.show = pusher, settings, edit, show
        self.validation, self.test = (
            cases_of(
                pusher.run,
                f"intervene/{split}",
                edit,
                count=count,
                low=settings.after_moves,
                moves_on=settings.moves_on,
                device=pusher.device,
            )
            for split, count in (("validation", settings.cases_validation), ("test", settings.cases_test))
        )

    def result(self) -> dict[str, Any]:
        unedited, test, now = self.pusher.logits(self.test), self.test, self.test.moments[0]
        null_B, changed_B = _errors(test, unedited)
        rows, kept = [], []
        for layer in range(self.pusher.num_layers + 1):
            row, errors, edited = self._layer(layer)
            rows.append(row)
            kept.append((errors, edited))
        best = min(range(len(rows)), key=lambda place: rows[place]["validation"])
        errors, edited = kept[best]
        carried, refused = self._carried(unedited)
        own_B = wrong_moves(unedited.logits_BJV[:, 0], now.legal_BV).sum(1)
        return {
            "cases": {"validation": self.validation.count, "test": test.count},
            "null": mean_of(null_B),
            "null_changed": mean_of(changed_B),
            "perfect_null": _perfect_null(test, 0),
            "own_error": mean_of(own_B),
            "layers": rows,
            "best": rows[best],
            "comparisons": [
                {"what": f"{one} - {other}", "cases": test.count, **paired(one_B, other_B)}
                for one, one_B, other, other_B in (
                    ("null", null_B, "edited", errors["error"]),
                    ("null", null_B, "random", errors["random"]),
                    ("random", errors["random"], "edited", errors["error"]),
                    ("null", null_B, "wrong_square", errors["wrong_square"]),
                )
            ],
            "carried": carried,
            "carried_refused": refused,
            "examples": self._examples(unedited, edited, rows[best]),
        }

    def _layer(self, layer: int) -> tuple[dict[str, Any], dict[str, Tensor], Pushed]:
        """Return the results of pushes from a layer on: its row, the errors, and the model's logits after the push."""
        strength, validation = self._chosen(layer, _mean_error)
        edited, controls = self._pushed(layer, strength)
        errors, changed = {}, {}
        for name, pushed in zip(MEASURES, (edited, *controls), strict=True):
            errors[name], changed[name] = _errors(self.test, pushed)
        row = {
            "layer": layer,
            "strength": strength,
            "validation": validation,
            "norm": float(edited.share_KB[0].double().mean()),
            "error": mean_of(errors["error"]),
            "changed": mean_of(changed["error"]),
            "random": mean_of(errors["random"]),
            "random_changed": mean_of(changed["random"]),
            "wrong_square": mean_of(errors["wrong_square"]),
        }
        self.show(f"{self.edit} from {layer}: {row['error']['mean']:.3f}")
        return row, errors, edited

    def _chosen(self, layer: int, score: Callable[[Cases, Pushed], float]) -> tuple[float, float]:
        """Return the best strength on the validation cases (the first of equal ones), and its score."""
        found = []
        for strength in self.settings.strengths:
            found.append((score(self.validation, self.pusher.logits(self.validation, Push(layer, strength))), strength))
            self.show(f"{self.edit} from {layer}")
        validation, strength = min(found, key=lambda pair: pair[0])
        return strength, validation

    def _pushed(self, layer: int, strength: float) -> tuple[Pushed, list[Pushed]]:
        """Push the test cases along the probe's direction, and along a random and another square's direction."""
        edited = self.pusher.logits(self.test, Push(layer, strength))
        along = (Push(layer, strength, "random"), Push(layer, strength, "wrong_square"))
        return edited, [self.pusher.logits(self.test, push, edited) for push in along]

    def _carried(self, unedited: Pushed) -> tuple[dict[str, Any] | None, str | None]:
        """Return the errors some moves after the push, over cases still played; else the reason why there are none."""
        model = self.pusher.run.model
        if not model.stepwise or model.sees != "past":
            return None, f"{model.name} has no step form: nothing is carried from one token to the next"
        found = []
        for layer in range(self.pusher.num_layers):  # the stream after the last block enters no state
            strength, validation = self._chosen(layer, _mean_error_later)
            found.append((validation, layer, strength))
        validation, layer, strength = min(found, key=lambda row: row[0])
        edited, (random, _) = self._pushed(layer, strength)
        after = []
        for moves, moment in enumerate(self.test.moments[1:], start=1):
            going_B = moment.going_B
            if not bool(going_B.any()):
                continue
            own_B = wrong_moves(unedited.logits_BJV[:, moves], moment.legal_BV).sum(1)
            row: dict[str, Any] = {"moves": moves, "cases": int(going_B.sum())}
            for name, pushed in (("null", unedited), ("edited", edited), ("random", random)):
                row[name] = mean_of(_errors(self.test, pushed, moves)[0][going_B])
            after.append({**row, "perfect_null": _perfect_null(self.test, moves), "own_error": mean_of(own_B[going_B])})
        return {"layer": layer, "strength": strength, "validation": validation, "after": after}, None

    def _examples(self, unedited: Pushed, edited: Pushed, row: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the first cases with all their data."""
        test, now, found = self.test, self.test.moments[0], []
        names = views_of(self.pusher.run.task)[self.pusher.probes.views[0]]
        for case in range(min(self.settings.examples, test.count)):
            cell = int(test.change.cell_B[case])
            found.append(
                {
                    "moves": test.tokens_BL[case, : int(test.last_B[case]) + 1].tolist(),
                    "square": self.pusher.probes.cells[cell],
                    "cell": cell,
                    "from": names[int(test.change.before_B[case])],
                    "to": names[int(test.change.after_B[case])],
                    "board": test.board_BS[case].tolist(),
                    "edited_board": test.edited_BS[case].tolist(),
                    "legal": _numbers(now.legal_BV[case]),
                    "edited_legal": _numbers(now.edited_legal_BV[case]),
                    "probabilities": unedited.logits_BJV[case, 0].softmax(0).tolist(),
                    "edited_probabilities": edited.logits_BJV[case, 0].softmax(0).tolist(),
                    "layer": row["layer"],
                    "strength": row["strength"],
                }
            )
        return found


def _errors(cases: Cases, pushed: Pushed, moves: int = 0) -> tuple[Tensor, Tensor]:
    """Return errors against the edited board some moves later: on all squares, and on those that changed, [B]."""
    moment = cases.moments[moves]
    wrong_BV = wrong_moves(pushed.logits_BJV[:, moves], moment.edited_legal_BV)
    return wrong_BV.sum(1), (wrong_BV & (moment.legal_BV ^ moment.edited_legal_BV)).sum(1)


def _mean_error(cases: Cases, pushed: Pushed) -> float:
    return float(_errors(cases, pushed)[0].double().mean())


def _mean_error_later(cases: Cases, pushed: Pushed) -> float:
    """Return the mean error of cases still played, averaged over the number of moves after the push."""
    means: Sequence[Tensor] = [
        _errors(cases, pushed, moves)[0][moment.going_B].double().mean()
        for moves, moment in enumerate(cases.moments)
        if moves and bool(moment.going_B.any())
    ]
    return float(sum(means) / len(means)) if means else 0.0


def _perfect_null(cases: Cases, moves: int) -> float:
    """Return the error of a player who gives equal chances to all legal moves of the unedited board, and no others."""
    moment = cases.moments[moves]
    wrong_BV = wrong_moves(moment.legal_BV.double(), moment.edited_legal_BV)
    return float(wrong_BV[moment.going_B].sum(1).double().mean())


def _numbers(mask_V: Tensor) -> list[int]:
    return mask_V.nonzero()[:, 0].tolist()
