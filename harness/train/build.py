"""Build a run's model from its seed, or restore it from its folder."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.folder import RunFolder, find_run
from chomsky_ladder.harness.store.places import default_results
from chomsky_ladder.harness.train.adapt import adapted
from chomsky_ladder.harness.train.quantise import read_rounded
from chomsky_ladder.harness.train.same_code import refuse_checkpoint_of_other_code
from chomsky_ladder.models.backbone import Model, state_bytes
from chomsky_ladder.tasks.base import Task

STATE_LENGTH = 256  # the context length at which a model's state is measured


def build_model(run: Run, device: torch.device) -> Model:
    """Return the model with its initial weights. They are drawn on the CPU and depend on the run's seed alone."""
    make = partial(adapted, run) if run.train.base else partial(run.model.build, len(run.task.vocab))
    return _made(make, run, run.seed, device)


def untrained(run: Run, device: torch.device, *, seed: int) -> Model:
    """Return an untrained control: the same config with another seed and without a base run, rounded as the trained one
    is.
    """
    model = _made(partial(run.model.build, len(run.task.vocab)), run, seed, device)
    read_rounded(model, run.train.qat)
    return model.eval()


def _made(make: Callable[[], Model], run: Run, seed: int, device: torch.device) -> Model:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make()
    return model.to(device, torch.float64 if run.train.precision == "fp64" else torch.float32)


def restored(folder: RunFolder) -> tuple[Run, Model, int]:
    """Return a run, its model and the step of its weights: the newest intact ones, on the CPU, in eval mode."""
    run = Run.from_plain(folder.config())
    content = checkpoint.newest(folder.path)
    if content is None:
        raise ValueError(f"{folder.path.name} has no intact checkpoint yet")
    if content.get("run_id") != run.run_id:
        raise ValueError(f"a checkpoint of {content.get('run_id')} lies in {folder.path}")
    refuse_checkpoint_of_other_code(run, content)
    model = build_model(run, torch.device("cpu"))
    try:
        model.load_state_dict(content["model"])
        step = checkpoint.step_of(content)
    except (KeyError, TypeError, RuntimeError, ValueError) as error:
        raise ValueError(f"{folder.path} has a checkpoint that holds no state of this run: {error}") from None
    read_rounded(model, run.train.qat)
    return run, model.eval(), step


def load(run_id: str, *, results: Path | str | None = None) -> tuple[Model, Task, list[dict[str, Any]]]:
    """Load a run's trained model, its task and its history, for a notebook."""
    folder = find_run(Path(results or default_results()), run_id)
    run, model, _ = restored(folder)
    return model, run.task, folder.history()


def weigh_state(model: Model) -> int:
    """Return the bytes of state that one sequence carries after `STATE_LENGTH` tokens, measured on the state itself."""
    parameter = next(model.parameters())
    state = model.init_state(1, max_length=STATE_LENGTH, device=parameter.device, dtype=parameter.dtype)
    return state_bytes(state)
