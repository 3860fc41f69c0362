"""Test whether a model carries the world behind its strings, or only what comes next (Vafa et al. 2024, 2406.03689).

    compression   two prefixes of one state     must accept the same suffixes
    distinction   two prefixes of two states    must differ in the suffixes that distinguish the states

The boundary of two prefixes is the set of suffixes that are accepted after one of them alone and whose shorter
beginnings are accepted after both. Compression precision is the share of pairs of one state whose boundary is empty in
the model. Distinction precision is the share of the model's boundary that the two states also have. Recall is the share
of the states' boundary that the model has. Both are means over pairs of states. A model accepts a token if it gives it
a probability above `eps`.

    othello      walks of bounded length over what both prefixes accept      games.py
    automata     every string has an answer, which distinguishes states      automata.py

A model that accepts everything has perfect compression and no distinction. So an untrained network is measured as well.
"""

import json
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.parts import plain
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.inside import automata as worldmodel_automata
from chomsky_ladder.harness.inside import games as worldmodel_games
from chomsky_ladder.harness.inside.games import Walks
from chomsky_ladder.harness.inside.settings import WorldModelSettings
from chomsky_ladder.harness.inside.streams import Trained, load_trained
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.train.build import untrained
from chomsky_ladder.harness.train.forward import autocast
from chomsky_ladder.harness.train.machine import (
    avoid_faulty_tiles,
    find_device,
    keep_freed_memory,
    numerics,
    provenance,
)
from chomsky_ladder.models.base import Model
from chomsky_ladder.models.block import Context
from chomsky_ladder.tasks.layout import Classification

SCHEMA, FILE = 1, "worldmodel.json"
METRICS = ("compression_precision", "distinction_precision", "distinction_recall")
_ROWS = 512  # strings in a forward pass


def world_model_run(
    folder: RunFolder, settings: WorldModelSettings | None = None, *, device: str = "auto"
) -> dict[str, Any]:
    """Measure a finished run and write worldmodel.json into its folder."""
    trained = load_trained(folder, device=find_device(device))
    with folder.locked():
        result = world_model(trained, settings)
        write_atomically(folder.path / FILE, (json.dumps(result, indent=1, allow_nan=False) + "\n").encode())
    return result


def world_model(trained: Trained, settings: WorldModelSettings | None = None) -> dict[str, Any]:
    """Return the metrics of a model, and of an untrained network with its config."""
    avoid_faulty_tiles()
    keep_freed_memory()
    settings = settings or WorldModelSettings()
    run, model, step = trained
    device = next(model.parameters()).device
    random_seed = (run.seed + 1) % 2**63
    random = untrained(run, device, seed=random_seed)
    return {
        "schema": SCHEMA,
        "kind": "worldmodel",
        "run_id": run.run_id,
        "step": step,
        "task": run.task.name,
        "model": run.model.name,
        "settings": plain(settings),
        "seeds": {"strings": settings.seed, "random_network": random_seed},
        "model_metrics": metrics(run, model, settings),
        "random_network_metrics": metrics(run, random, settings),
        "numerics": numerics(Exec(threads=torch.get_num_threads()), device),
        "provenance": provenance(run.task, run.model),
    }


def metrics(run: Run, model: Model, settings: WorldModelSettings) -> dict[str, dict[str, float | int | None]]:
    """Return each metric's mean over pairs, its standard error, and the number of pairs."""
    if run.model.sees != "past":
        raise ValueError(f"{run.model.name} reads ahead: what it says behind a prefix depends on what follows")
    task, behind = run.task, reader(run, model)
    if task.allowed(torch.zeros(1, 1, dtype=torch.int64)) is not None:
        walks = Walks(count=settings.walks, depth=settings.depth, seed=settings.seed)
        values = worldmodel_games.score(
            task,
            lambda *strings: _accepted(behind(*strings), task.answers, settings.eps),
            length=max(task.legal_lengths(*run.train.lengths)),
            pairs=settings.pairs,
            walks=walks,
        )
    elif isinstance(task, Classification):
        answers = torch.tensor(task.answers)
        values = worldmodel_automata.score(
            task,
            lambda *strings: answers[behind(*_closed(task, *strings))[:, answers].argmax(1)],
            lengths=run.train.lengths,
            pairs=settings.pairs,
            seed=settings.seed,
        )
    else:
        raise ValueError(f"{task.name} is neither a game nor an automaton: it has no world-model metrics")
    return {name: _summary(values[name]) for name in METRICS}


def _summary(value_P: Tensor) -> dict[str, float | int | None]:
    value_P = value_P[~value_P.isnan()]
    count = len(value_P)
    error = value_P.std().item() / math.sqrt(count) if count > 1 else None
    return {"mean": value_P.mean().item() if count else None, "se": error, "pairs": count}


def reader(run: Run, model: Model) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function from strings [B, L] and lengths [B] to a model's logits [B, V], float64 on the CPU."""
    device = next(model.parameters()).device

    @torch.no_grad()
    def behind(tokens_BL: Tensor, length_B: Tensor) -> Tensor:
        found = []
        for part_BL, last_B in zip(tokens_BL.split(_ROWS), (length_B - 1).split(_ROWS), strict=True):
            part_BL, last_B = part_BL[:, : int(last_B.max()) + 1].to(device), last_B.to(device)
            inside_BL = torch.arange(part_BL.shape[1], device=device) <= last_B[:, None]
            with autocast(run, device):
                logits_BLV = model(part_BL, Context(valid_BL=inside_BL, prompt_B=last_B + 1))
            found.append(logits_BLV[torch.arange(len(part_BL), device=device), last_B].double().cpu())
        return torch.cat(found)

    return behind


def _accepted(logits_BV: Tensor, answers: tuple[int, ...], eps: float) -> Tensor:
    """Return the possible next tokens whose probability is above eps."""
    can_V = torch.zeros(logits_BV.shape[1], dtype=torch.bool)
    can_V[list(answers)] = True
    return (logits_BV.softmax(-1) > eps) & can_V


def _closed(task: Classification, tokens_BL: Tensor, length_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return strings followed by the tokens that ask for the answer."""
    for token in task.closing:
        tokens_BL = pad(tokens_BL, (0, 1)).scatter(1, length_B[:, None], token)
        length_B = length_B + 1
    return tokens_BL, length_B
