"""Small packs for tests of how steps are taken."""

from dataclasses import replace
from typing import Any

from chomsky_ladder.harness.config.registry import find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train

SCORE = Eval(lengths=(8, 12), test=16, validation=8, every=0, bins=(8, 12), extrapolate=())


def small(model: str = "lstm", *, seeds: int = 1, **train: Any) -> list[Run]:
    settings = Train(**{"steps": 40, "batch": 4, "lengths": (3, 8), "lr": 1e-2, "precision": "fp64", **train})
    run = Run(task=find_task("cycle_nav")(), model=find_model(model).tiny(), train=settings, eval=SCORE)
    return [replace(run, seed=seed) for seed in range(seeds)]


def cannot_be_captured(given: object) -> None:
    raise RuntimeError("not while capturing")
