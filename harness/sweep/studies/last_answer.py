"""State tracking of climb-v2 trained on the last answer alone, beside training on every prefix's answer.

    ladder study last_answer --budget smoke|cpu|gpu|full --report-seeds 5
    ladder table --beside task.supervision

The study runs the eight decisive models on the four groups. In the pilot PD-SSM held a cycle of three at five learning
rates when trained on the last answer alone, and at none with every prefix's answer. cpu is the cycle alone. gpu and
full are all four groups.
"""

from dataclasses import replace
from typing import Any

from chomsky_ladder.harness.config.parts import replaced
from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.config.protocols import find_protocol, grid, matched
from chomsky_ladder.harness.config.rows import DECISIVE
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.sweep.study import Budget, in_smoke
from chomsky_ladder.harness.sweep.study_tables import published_tables

SUITE = "climb-v2"
RUNGS = ("count mod 3", "compose A5", "count mod 2", "compose S3")


def runs(budget: Budget = "cpu") -> list[Run]:
    rungs = RUNGS if budget in ("gpu", "full") else RUNGS[:1]
    found = [run for rung in rungs for name, changes in DECISIVE for run in _cell(rung, name, changes)]
    return in_smoke(found) if budget == "smoke" else found


def _cell(name: str, model: str, changes: dict[str, Any]) -> list[Run]:
    """Return the tuning runs of a model on a rung."""
    rung = next(rung for rung in PROTOCOLS[SUITE].rungs if rung.name == name)
    listed = grid(rung.task, model, protocol=SUITE)
    task = replaced(listed[0].task, rung.settings | {"supervision": "final"}, where="task")
    form = matched(replaced(listed[0].model, changes, where="model"), find_protocol(SUITE))
    return [replace(run, task=task, model=form) for run in listed]


table = published_tables("accuracy")
