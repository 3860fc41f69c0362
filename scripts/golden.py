"""Write the golden values that guard tasks and models: a hash of each task's first batch, five losses of each model.

    python scripts/golden.py

A task's hash may change only with its `version`, a model's losses only with its own; say why in the commit.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

from harness.config import SCHEMA, Eval, Run, Train
from harness.data import TrainingStream
from harness.pack import Pack
from harness.parts import default_settings
from harness.registry import all_models, all_tasks, find_model
from models.base import Backend
from tasks.base import Task
from tasks.cycle_nav import CycleNav

FOLDER = Path(__file__).parents[1] / "tests" / "golden"
STEPS = 5


def task_hash(task: Task) -> str:
    """sha256 of the first training batch of the task's defaults, in every bit."""
    run = Run(task=task, model=find_model("lstm")(), train=Train(batch=64))
    batch = TrainingStream([run], torch.device("cpu")).batch(0, longest=run.train.longest(0))
    digest = hashlib.sha256()
    for tensor in batch:
        digest.update(tensor.to(torch.int64).numpy().tobytes())
    return digest.hexdigest()


def first_losses(model: str, *, backend: Backend = "auto") -> list[float]:
    """The losses of the first AdamW steps in float64, on cycle_nav at a small size."""
    train = Train(steps=100, batch=8, lengths=(3, 12), lr=1e-2, warmup=0.0, clip=0.0, precision="fp64")
    run = Run(task=CycleNav(), model=find_model(model).tiny(), train=train)
    pack = Pack([run], device=torch.device("cpu"), backend=backend)
    losses = []
    for step in range(STEPS):
        pack.advance(train.longest(step))
        losses.append(pack.seen()[0].loss)
    return losses


def defaults() -> dict[str, Any]:
    """The defaults behind every run's identity, with the version that must rise when one of them changes."""
    registered = {name: classes[0] for name, classes in (all_tasks() | all_models()).items()}
    parts = {"train": Train, "eval": Eval, **registered}
    versions = {name: getattr(cls, "version", SCHEMA) for name, cls in parts.items()}
    return {name: {"version": versions[name], **default_settings(parts[name])} for name in sorted(parts)}


def main() -> None:
    hashes = {
        name: {"version": classes[0].version, "sha256": task_hash(classes[0]())}
        for name, classes in sorted(all_tasks().items())
    }
    losses = {
        name: {"version": classes[0].version, "losses": first_losses(name)}
        for name, classes in sorted(all_models().items())
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, tree in (("tasks", hashes), ("losses", losses), ("defaults", defaults())):
        (FOLDER / f"{name}.json").write_text(json.dumps(tree, indent=1) + "\n")


if __name__ == "__main__":
    main()
