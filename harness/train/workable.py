"""The preflight: refuse before any work a run that must fail, because this machine lacks a kernel, a device or a
module, or because the user's own model or task has a mistake.

refuse_unworkable(FLAConfig(), backend="auto", device=torch.device("cpu"))
->  ValueError: fla runs on a CUDA device alone, not on cpu
"""

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.origin import is_ours
from chomsky_ladder.harness.config.protocols import identity_of
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store.ranges import LONGEST
from chomsky_ladder.harness.tracking.tracker import find_tracker
from chomsky_ladder.harness.train.adapt import base_folder
from chomsky_ladder.harness.train.machine import find_device
from chomsky_ladder.harness.train.mistakes import own_dropout, unregistered
from chomsky_ladder.harness.train.same_code import refuse_other_code
from chomsky_ladder.harness.train.steps import capturable
from chomsky_ladder.models.backbone import Model
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Backend, Context, require
from chomsky_ladder.models.kernels import native
from chomsky_ladder.models.kernels.choose import demand
from chomsky_ladder.tasks.base import Task
from chomsky_ladder.tasks.draw import Draw

_VOCAB = 16  # enough to look at a model's modules, whatever the task
_TRIED, _STRINGS = 40, 8  # the longest length and the number of strings that are looked at
_TORCH = Path(torch.__file__).parent
_READ = 1024  # the longest string a model is tried with: a longer one takes long if the cost is quadratic


def preflight(runs: Sequence[Run], settings: Exec, *, stacked: bool = False) -> torch.device:
    """Refuse, in one line and before any work, what cannot be trained here. Return the device.

    On a CPU it also compiles the kernels in C if that has not been done, so that no run and no estimate pays for it.
    """
    device = find_device(settings.device)
    capturable(settings, device)
    for tracker in settings.mirrors:
        find_tracker(tracker)
    for model in dict.fromkeys(run.model for run in runs):
        refuse_unworkable(model, backend=settings.backend, device=device, stacked=stacked)
    for task in dict.fromkeys(run.task for run in runs):
        refuse_mistaken(task)
    for run in {(run.model, run.task, run.train.lengths, run.eval): run for run in runs}.values():
        refuse_unrecordable(run)
        refuse_unreadable(run)
    for base in dict.fromkeys(run.train.base for run in runs if run.train.base):
        if not any(base in run.run_id for run in runs):  # else the base is one of these runs and is trained first
            base_folder(base, settings.results)
    refuse_other_code(runs, settings.results)
    if device.type == "cpu" and (why := native.missing()) and settings.backend == "auto":
        _say_slower(why)
    return device


@cache
def _say_slower(why: str) -> None:
    """Say once that no kernels in C can be compiled. Only the time differs."""
    reason = why.partition(": ")[2] or why
    print(f"ladder: no kernels in C here ({reason}): plain torch does their work, more slowly", file=sys.stderr)


def refuse_unrecordable(run: Run) -> None:
    """Refuse, in one line, a run whose settings do not fit into records.csv."""
    longest = max(len(text) for text in identity_of(run).columns_and_labels().values())
    require(longest <= LONGEST, f"its settings are {longest:,} characters, and a record has room for {LONGEST:,}")


def refuse_unworkable(model: ModelConfig, *, backend: Backend, device: torch.device, stacked: bool = False) -> None:
    """Refuse, in one line, a model that cannot run with this backend and device."""
    demand(backend, model=model.name, device=device, stacked=stacked)
    fits = model.device in ("any", device.type)
    require(fits, f"{model.name} runs on a CUDA device alone, not on {device}")
    why = model.unworkable()
    require(not why, why)
    if model.short_conv:
        _built(model)  # its blocks may have none of the places
    if not is_ours(type(model).__module__):  # tests check ours
        built = _built(model)
        for said in (*unregistered(built), *own_dropout(built)):
            raise ValueError(f"{model.name}: {said}")


def refuse_mistaken(task: Task) -> None:
    """Refuse, in one line, a user's task whose strings cannot be drawn, contain unnamed symbols, or are scored at
    positions other than it declares.
    """
    if is_ours(type(task).__module__):
        return
    lengths = task.legal_lengths(1, _TRIED)[-_STRINGS:]
    if not lengths:
        return
    draw, width = Draw(seed=0, split="check", rows_B=torch.arange(len(lengths))), max(map(task.positions, lengths))
    with _told(f"{task.name} draws no strings"):
        batch = task.sample(draw, torch.tensor(lengths, dtype=torch.int64), width)
    symbols, most = len(task.vocab), max(int(batch.tokens_BL.max()), int(batch.targets_BL.max()))
    require(most < symbols, f"{task.name} draws a symbol {most}, but names {symbols}; see `ladder check {task.name}`")
    is_last_BL = torch.arange(width) == batch.length_B[:, None] - 1
    said = f"{task.name} says that it asks_once, which is for one answer a string, at its last position: leave it out"
    require(not task.asks_once or torch.equal(batch.scored_BL, is_last_BL), said)


def refuse_unreadable(run: Run) -> None:
    """Refuse, in one line, a user's model that cannot read strings as long as those of its run."""
    model, task = run.model, run.task
    if is_ours(type(model).__module__) or model.device == "cuda":
        return
    longest = max(*run.train.lengths, *run.eval.lengths, *run.eval.extrapolate)
    lengths = task.legal_lengths(1, min(longest, _READ))
    if not lengths:
        return
    width, built = task.positions(lengths[-1]), _built(model, len(task.vocab)).eval()
    said = f"{model.name} cannot read {width} positions, as many as it is trained or scored on"
    with torch.random.fork_rng(devices=[]), torch.no_grad(), _told(said):
        built(torch.zeros(1, width, dtype=torch.int64), Context())


def _built(model: ModelConfig, vocab: int = _VOCAB) -> Model:
    with torch.random.fork_rng(devices=[]), _told(f"{model.name} cannot be made"):
        return model.build(vocab)


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn any exception of user code into one line. The line number named is in their file, not in torch."""
    try:
        yield
    except ValueError:  # their own message, shown as it is
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        frame = [frame for frame in frames if _TORCH not in Path(frame.filename).parents][-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        raise ValueError(f"{what}: {type(error).__name__}: {error} ({where})") from error
