"""Write the golden values that guard tasks and models: a hash of each task's first batch, five losses of each model,
and the titles of the models.

    python scripts/golden.py             all anew
    python scripts/golden.py --missing   those of new tasks and models, and nothing that is on record

A task's hash may change only with its `version`, a model's losses only with its own; say why in the commit.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch

from chomsky_ladder.harness.config.parts import default_settings
from chomsky_ladder.harness.config.registry import all_models, all_tasks, find_model
from chomsky_ladder.harness.config.run import SCHEMA, Eval, Run, Train
from chomsky_ladder.harness.store import titles
from chomsky_ladder.harness.train.data import TrainingStream
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.models.block import Backend
from chomsky_ladder.tasks.base import Task
from chomsky_ladder.tasks.cycle_nav import CycleNav

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "golden"
STEPS = 5


def task_hash(task: Task) -> str:
    """Return the sha256 of the first training batch of the task's defaults, in every bit."""
    run = Run(task=task, model=find_model("lstm")(), train=Train(batch=64))
    batch = TrainingStream([run], torch.device("cpu")).batch(0, longest=run.train.longest(0))
    digest = hashlib.sha256()
    for tensor in batch:
        digest.update(tensor.to(torch.int64).numpy().tobytes())
    return digest.hexdigest()


def first_losses(model: str, *, backend: Backend = "auto") -> list[float]:
    """Return the losses of the first AdamW steps in float64, on cycle_nav at a small size."""
    train = Train(steps=100, batch=8, lengths=(3, 12), lr=1e-2, warmup=0.0, clip=0.0, precision="fp64")
    run = Run(task=CycleNav(), model=find_model(model).tiny(), train=train)
    pack = Pack([run], device=torch.device("cpu"), backend=backend)
    losses = []
    for step in range(STEPS):
        pack.advance(train.longest(step))
        losses.append(pack.seen()[0].loss)
    return losses


def defaults() -> dict[str, Any]:
    """Return the defaults behind every run's identity, with the version that must rise when one of them changes."""
    registered = {name: classes[0] for name, classes in (all_tasks() | all_models()).items()}
    parts = {"train": Train, "eval": Eval, **registered}
    versions = {name: getattr(cls, "version", SCHEMA) for name, cls in parts.items()}
    return {name: {"version": versions[name], **default_settings(parts[name])} for name in sorted(parts)}


def main(words: list[str]) -> int:
    if words not in ([], ["--missing"]):
        print("golden.py: takes --missing or nothing", file=sys.stderr)
        return 2
    if not titles.FILE.resolve().is_relative_to(ROOT):
        print(f"golden.py: {titles.FILE} is no file of {ROOT}: set PYTHONPATH to that clone", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    makers = {
        "tasks": ({n: c[0] for n, c in all_tasks().items()}, lambda n, c: {"sha256": task_hash(c())}),
        "losses": ({n: c[0] for n, c in all_models().items()}, lambda n, c: {"losses": first_losses(n)}),
    }
    for file, (registered, make) in makers.items():
        path = FOLDER / f"{file}.json"
        kept = json.loads(path.read_text("utf-8")) if words else {}
        fresh = {n: {"version": c.version, **make(n, c)} for n, c in registered.items() if n not in kept}
        path.write_text(json.dumps(dict(sorted((kept | fresh).items())), indent=1) + "\n", "utf-8")
    kept = json.loads((FOLDER / "defaults.json").read_text("utf-8")) if words else {}
    titles.FILE.write_bytes(titles.content_of({name: found[0] for name, found in all_models().items()}))
    now = {name: {**part, **kept.get(name, {})} for name, part in defaults().items()}
    (FOLDER / "defaults.json").write_text(json.dumps(now, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
