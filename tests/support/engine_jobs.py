"""Small runs for an engine to carry out, and how."""

from dataclasses import replace
from pathlib import Path

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.registry import find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train

TRAIN = Train(steps=40, batch=4, lengths=(3, 8))
SCORE = Eval(lengths=(8, 12), test=16, validation=8, every=20, bins=(8, 12), extrapolate=())


def cell(model: str = "lstm", *, seed: int = 0, steps: int = 40) -> Run:
    train = replace(TRAIN, steps=steps)
    return Run(task=find_task("parity")(), model=find_model(model).tiny(), train=train, eval=SCORE, seed=seed)


def settings_at(folder: Path, *, pack: int = 0) -> Exec:
    return Exec(results=folder, device="cpu", log_every=10, checkpoint_every=10, pack=pack)
