"""The runs of a climb: every rung of a protocol at each of its learning rates with each of its seeds, for one model.

climb_runs(find_model("lstm")())      12 rungs x 2 learning rates x 3 seeds = 72 runs, the first seed of all rungs first

If a protocol reports fresh seeds, these runs choose each rung's learning rate, and fresh seeds follow at that rate.
"""

from dataclasses import replace
from typing import Any

from chomsky_ladder.harness.climb.part import Part
from chomsky_ladder.harness.config.parts import replaced
from chomsky_ladder.harness.config.presets import PROTOCOLS, Protocol
from chomsky_ladder.harness.config.protocols import find_protocol, matched, preset_run
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.stats.cells import FRESH
from chomsky_ladder.harness.stats.climb import CLIMB
from chomsky_ladder.models.base import ModelConfig


def climb_protocol(name: str) -> Protocol:
    """Return a protocol that has rungs. Refuse any other."""
    protocol = find_protocol(name)
    if not protocol.rungs:
        there = ", ".join(key for key, value in PROTOCOLS.items() if value.rungs)
        raise ValueError(f"{name} is no climb; there is {there}")
    return protocol


def climber(model: type[ModelConfig], changes: dict[str, Any] | None = None, *, protocol: str = CLIMB) -> ModelConfig:
    """Return the model at the protocol's size. Its settings are changed before it is sized."""
    rungs = climb_protocol(protocol).rungs
    usual = preset_run(rungs[0].task, model.name, protocol=protocol).model
    changed = replaced(usual, changes or {}, where="model")
    widths = {"d_model", "d_inner"} & set(changes or {})
    return changed if widths else matched(changed, find_protocol(protocol))


def climb_runs(model: ModelConfig, *, protocol: str = CLIMB, seeds: int = 0, part: Part | None = None) -> list[Run]:
    """Return all runs of a model's climb, or of a part of it. `seeds` replaces the protocol's number."""
    found = climb_protocol(protocol)
    part = part or Part.of(found, seeds=seeds)
    runs = []
    for seed in range(part.seeds):
        for rung in part.rungs:
            base = preset_run(rung.task, model.name, protocol=protocol, seed=seed)
            task = replaced(base.task, rung.settings, where="task")
            budget = replace(base.train, steps=part.steps) if part.steps else base.train
            for rate in found.rates:
                train = replace(budget, lr=rate, lr_final=min(rate, budget.lr_final))
                runs.append(replace(base, task=task, model=model, train=train))
    return runs


def fresh_candidates(runs: list[Run], count: int) -> list[Run]:
    """Return each run with every fresh seed. Whichever learning rate is chosen, its runs are among them."""
    rates = {(run.task, run.model, run.train, run.eval): run for run in runs}
    return [run.with_seed(FRESH + place) for run in rates.values() for place in range(count)]
