"""Feedback in models that have none: does it compose a group, and what becomes of recall?

    ladder study feedback --budget smoke|cpu|gpu|full

In climb-v1 models that are computed for all tokens at once recall or do neither, and recurrences that read token after
token compose A5. Here each mixer of the former, or each block, reads its own output before a token
(models/layers/feedback.py), at climb-v1's settings and size. So what differs from their rows of the climb is the
feedback, and a few channels for it.

cpu is A5 and recall, model by model. gpu and full are all twelve rungs.
"""

from dataclasses import replace

from chomsky_ladder.harness.config.parts import replaced
from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.config.protocol import Rung
from chomsky_ladder.harness.config.protocols import find_protocol, grid, matched
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.sweep.study import Budget, in_smoke
from chomsky_ladder.harness.sweep.study_tables import beside_published
from chomsky_ladder.models.layers.feedback import Feedback

SUITE = "climb-v1"
RUNGS = ("compose A5", "recall")
MODELS: tuple[tuple[str, Feedback], ...] = (
    ("mamba2", "mixer"),
    ("gated_delta_net", "mixer"),
    ("transformer", "block"),
    ("gla", "mixer"),
    ("delta_net", "mixer"),
    ("transformer", "mixer"),
    ("mamba", "mixer"),
    ("retention", "mixer"),
)


def runs(budget: Budget = "cpu") -> list[Run]:
    by_name = {rung.name: rung for rung in PROTOCOLS[SUITE].rungs}
    names = RUNGS if budget in ("smoke", "cpu") else dict.fromkeys([*RUNGS, *by_name])
    found = [run for model in MODELS for name in names for run in _cell(by_name[name], *model)]
    return in_smoke(found) if budget == "smoke" else found


def _cell(rung: Rung, name: str, feedback: Feedback) -> list[Run]:
    """Return the runs of a model on a rung, the first seed first."""
    listed = grid(rung.task, name, protocol=SUITE)
    task = replaced(listed[0].task, rung.settings, where="task")
    model = matched(replace(listed[0].model, feedback=feedback), find_protocol(SUITE))
    return sorted((replace(run, task=task, model=model) for run in listed), key=lambda run: run.seed)


table = beside_published("climb", protocol=SUITE)
