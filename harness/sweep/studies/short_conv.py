"""The source of recall: models of climb-v1 with a short convolution added, and others with theirs taken away.

    ladder study short_conv --budget smoke|cpu|gpu|full
    ladder merge results MINE --results BOTH       beside the other half, the published rows of the models as they are
    ladder table --kind short_conv --protocol climb-v1 --results BOTH

In climb-v1 most models that hold recall have a short convolution or a token shift, and GLA, RetNet, GSA, TTT-Linear and
xLSTM (large) have neither and miss it. Eight models get a convolution of width 4 at the places A and C
(models/layers/canon.py), and five lose their own, at climb-v1's settings. DeltaNet also has one in place of the other.
Widths are those of climb-v1: a convolution adds about 1 % of parameters, which are not counted. Without their own,
models are sized again by their feed-forward.

cpu is three rungs, recall first. gpu and full are all twelve.
"""

from dataclasses import replace

from chomsky_ladder.harness.config.parts import replaced
from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.config.protocol import Rung
from chomsky_ladder.harness.config.protocols import find_protocol, grid, matched
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.sweep.study import Budget, in_smoke
from chomsky_ladder.harness.sweep.study_tables import beside_published

SUITE = "climb-v1"
RUNGS = ("recall", "remember", "compare ends")
ADDED, TAKEN = {"short_conv": 4}, {"conv_width": 1}
MODELS = (
    ("gla", ADDED),
    ("delta_net", TAKEN),
    ("delta_net", TAKEN | ADDED),
    ("retention", ADDED),
    ("gated_delta_net", TAKEN),
    ("gated_slot_attention", ADDED),
    ("xlstm", {"ratio": "1:0"} | TAKEN),
    ("lstm", ADDED),
    ("mamba2", TAKEN),
    ("transformer", ADDED),
    ("xlstm_large", ADDED),
    ("ttt_linear", ADDED),
    ("hgrn2", ADDED),
    ("mamba", TAKEN),
)


def runs(budget: Budget = "cpu") -> list[Run]:
    by_name = {rung.name: rung for rung in PROTOCOLS[SUITE].rungs}
    names = RUNGS if budget in ("smoke", "cpu") else dict.fromkeys([*RUNGS, *by_name])
    found = [run for name in names for run in _rung(by_name[name])]
    return in_smoke(found) if budget == "smoke" else found


def _rung(rung: Rung) -> list[Run]:
    """Return the runs of all models on a rung, the first seed of each first."""
    found = []
    for name, changes in MODELS:
        listed = grid(rung.task, name, protocol=SUITE)
        task = replaced(listed[0].task, rung.settings, where="task")
        model = matched(replaced(listed[0].model, changes, where="model"), find_protocol(SUITE))
        found += [replace(run, task=task, model=model) for run in listed]
    return sorted(found, key=lambda run: run.seed)


table = beside_published("short_conv", protocol=SUITE)
