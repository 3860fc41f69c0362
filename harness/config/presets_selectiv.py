"""The published protocol of SelectivBench (tasks/hidden_states.py), from its paper and code. The rest is ours."""

from chomsky_ladder.harness.config.protocol import Case, Protocol
from chomsky_ladder.harness.config.sources import SOURCES

_STEPS = 200_000 // 64

SELECTIV: dict[str, Protocol] = {
    "selectiv": Protocol(
        source=SOURCES["selectiv"],
        version=2,
        measure="raw",
        rates=(1e-3, 5e-4, 2e-3),
        seeds=4,
        table=("hidden_states",),
        train={
            "batch": 64,
            "betas": [0.9, 0.999],
            "weight_decay": 0.0,
            "warmup": 476 / _STEPS,
            "lr_final": 1e-4,
            "precision": "fp32",
        },
        model={"d_model": 256, "num_blocks": 8, "num_heads": 4, "d_state": 128, "dropout": 0.2},
        tasks={"hidden_states": {"symbols": 40, "ambiguous": 40, "copies": 40, "ends": 1, "steps": [2, 2]}},
        cases=(
            Case(
                tasks=("hidden_states",),
                train={"steps": _STEPS, "lengths": [400, 400]},
                eval={"lengths": [400, 400], "bins": [399, 400], "extrapolate": [], "every": 625},
            ),
        ),
    ),
}
