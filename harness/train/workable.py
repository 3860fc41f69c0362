"""What can be seen to fail before a run begins: a kernel, a device or a module that cannot be had here, a mistake in
somebody's own model or task.

refuse_unworkable(FLAConfig(), backend="auto", device=torch.device("cpu"))
->  ValueError: fla runs on a CUDA device alone, not on cpu
"""

import traceback
from pathlib import Path

import torch

from chomsky_ladder.harness.config.origin import is_ours
from chomsky_ladder.harness.train.mistakes import own_dropout, unregistered
from chomsky_ladder.models.backbone import Model
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Backend, require
from chomsky_ladder.models.kernels.choose import demand
from chomsky_ladder.tasks.base import Task
from chomsky_ladder.tasks.draw import Draw

_VOCAB = 16  # to look at its modules, whatever the task
_TRIED, _STRINGS = 40, 8  # the longest and the number of strings that are looked at


def refuse_unworkable(model: ModelConfig, *, backend: Backend, device: torch.device, stacked: bool = False) -> None:
    """Refuse, in one line, a model that cannot run so."""
    demand(backend, model=model.name, device=device, stacked=stacked)
    fits = model.device in ("any", device.type)
    require(fits, f"{model.name} runs on a CUDA device alone, not on {device}")
    why = model.unworkable()
    require(not why, why)
    if not is_ours(type(model).__module__):  # ours are held to it by the tests
        built = _built(model)
        for said in (*unregistered(built), *own_dropout(built)):
            raise ValueError(f"{model.name}: {said}")


def refuse_mistaken(task: Task) -> None:
    """Refuse, in one line, somebody's own task that says it asks once and scores other positions too."""
    if not task.asks_once or is_ours(type(task).__module__):
        return
    lengths = task.legal_lengths(1, _TRIED)[-_STRINGS:]
    rows_B = torch.arange(len(lengths))
    width = max(map(task.positions, lengths), default=0)
    batch = task.sample(Draw(seed=0, split="check", rows_B=rows_B), torch.tensor(lengths, dtype=torch.int64), width)
    is_last_BL = torch.arange(width) == batch.length_B[:, None] - 1
    said = f"{task.name} says that it asks_once, which is for one answer a string, at its last position: leave it out"
    require(torch.equal(batch.scored_BL, is_last_BL), said)


def _built(model: ModelConfig) -> Model:
    """Somebody's own model may break in any way as it is made."""
    with torch.random.fork_rng(devices=[]):
        try:
            return model.build(_VOCAB)
        except ValueError:  # of its own, to be told as it stands
            raise
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(frame.filename).name}:{frame.lineno}"
            raise ValueError(f"{model.name} cannot be made: {type(error).__name__}: {error} ({where})") from error
