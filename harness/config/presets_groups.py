"""The published protocols of word problems (tasks/word_problem.py), as far as their papers and code were read.

The rest is ours, and `source` (harness/config/sources.py) says what. Some protocols train at one length, for a number
of passes over a finite set. These values hold for word problems alone. Other tasks keep the usual lengths.
"""

from typing import Any

from chomsky_ladder.harness.config.protocol import Case, Protocol
from chomsky_ladder.harness.config.sources import SOURCES

_ADAMW = {"betas": [0.9, 0.999], "weight_decay": 0.01, "warmup": 0.0, "precision": "fp32"}
_EVERY: dict[str, Any] = {"count": "input", "asks": "every"}


def _at(trained: list[int], tested: int) -> Case:
    """Return a case with word problems of these lengths in training, and of one length in the tests."""
    lengths = {"lengths": [tested, tested], "bins": [tested - 1, tested], "extrapolate": []}
    return Case(tasks=("word_problem",), train={"lengths": trained}, eval=lengths)


WORD_PROBLEMS: dict[str, Protocol] = {
    "grazzi_groups": Protocol(
        source=SOURCES["grazzi_groups"],
        measure="raw",
        rates=(1e-4,),
        seeds=3,
        table=("word_problem",),
        train={
            **_ADAMW,
            "steps": 100 * 1_600_000 // 512,
            "batch": 512,
            "examples": 1_600_000,
            "schedule": "constant",
            "clip": 1.0,
        },
        eval={"test": 40_000, "score": "strings", "every": 5000},
        model={"d_model": 128, "num_blocks": 1, "num_heads": 4},
        tasks={"word_problem": _EVERY},
        cases=(_at([32, 32], 500),),
    ),
    "delta_product": Protocol(
        source=SOURCES["delta_product"],
        measure="raw",
        rates=(1e-3,),
        seeds=3,
        table=("word_problem",),
        train={**_ADAMW, "steps": 100 * 100_000 // 2048, "batch": 2048, "examples": 100_000, "clip": 0.0},
        eval={"test": 100_000, "score": "strings", "every": 500},
        model={"d_model": 128, "num_blocks": 1, "num_heads": 8},
        tasks={"word_problem": {**_EVERY, "group": "S3"}},
        cases=(_at([128, 128], 512),),
    ),
    "merrill": Protocol(
        source=SOURCES["merrill"],
        measure="raw",
        rates=(1e-4,),
        seeds=3,
        table=("word_problem",),
        train={
            **_ADAMW,
            "steps": 100_000,
            "batch": 32,
            "schedule": "constant",
            "clip": 0.0,
            "stop_after": 1,
            "stop_above": 0.99,
        },
        eval={"score": "strings"},
        model={"d_model": 512, "num_blocks": 1, "num_heads": 8},
        tasks={"word_problem": {**_EVERY, "group": "A5"}},
        cases=(_at([2, 20], 20),),
    ),
    "pdssm_groups": Protocol(
        source=SOURCES["pdssm_groups"],
        version=2,
        measure="raw",
        rates=(2e-3, 1e-3, 5e-4, 1e-4, 1e-5),
        seeds=5,
        table=("word_problem",),
        train={
            **_ADAMW,
            "steps": 100_000,
            "batch": 256,
            "decayed": "all_but_embedding",
            "warmup": 0.1,
            "lr_final": 1e-5,
            "clip": 0.0,
            "stop_after": 1,
            "stop_above": 0.9995,
        },
        eval={"validation": 8192, "every": 5000},
        model={"d_model": 128, "num_blocks": 1, "num_heads": 4},
        tasks={"word_problem": {"count": "input", "group": "A5", "inputs": "generators=2"}},
    ),
}
