"""The published protocols as data: the settings in which each preset differs from a run's defaults.

Where a paper leaves choices open, they are ours, and `source` (harness/config/sources.py) says which. A preset only
sets what a task or a model has.
"""

import hashlib
import json
from importlib.resources import files
from typing import Any

from chomsky_ladder.harness.config.presets_groups import WORD_PROBLEMS
from chomsky_ladder.harness.config.presets_selectiv import SELECTIV
from chomsky_ladder.harness.config.protocol import Case, Protocol, Rung
from chomsky_ladder.harness.config.sources import SOURCES

_XLSTM = {"batch": 256, "betas": [0.9, 0.99], "weight_decay": 0.1, "warmup": 0.1, "lr_final": 1e-5, "precision": "bf16"}
_ADAM = {"betas": [0.9, 0.999], "weight_decay": 0.0, "warmup": 0.0, "schedule": "constant", "precision": "fp32"}
_LEARNT = {"positions": "learnt", "max_length": 64, "norm": "layer", "norm_place": "post"}
_REGULAR = ("parity", "even_pairs", "cycle_nav", "mod_arithmetic")
_FIFTEEN = (
    *_REGULAR,
    *("mod_arithmetic_brackets", "solve_equation", "bucket_sort", "missing_duplicate", "odds_first", "repetition"),
    *("reverse_string", "stack_manipulation", "set", "majority", "majority_count"),
)
_SIZE = {"d_model": 128, "num_blocks": 2, "num_heads": 4}
_ENCODER = {"num_blocks": 5, "d_model": 64, "num_heads": 8}
_POST_NORM = {"norm": "layer", "norm_place": "post", "final_norm": "none"}
_VASWANI = {**_POST_NORM, "positions": "sinusoidal", "feed_forward": "relu"}
_MODULAR = ("mod_arithmetic", "mod_arithmetic_brackets")
_THREE_BLOCKS = {name: {"model": {"num_blocks": 3}} for name in _MODULAR}

_RECALL = ("in_context_recall", "noisy_in_context_recall", "fuzzy_in_context_recall")


def _of_length(length: int, *tasks: str, **train: int) -> Case:
    """Return a case that trains and tests these tasks at one length."""
    score = {"lengths": [length, length], "bins": [length - 1, length], "extrapolate": []}
    return Case(tasks=tasks, train={"lengths": [length, length], **train}, eval=score)


PROTOCOLS: dict[str, Protocol] = {
    "xlstm": Protocol(
        source=SOURCES["xlstm"],
        rates=(1e-2, 1e-3, 1e-4),
        seeds=3,
        table=_FIFTEEN,
        train={**_XLSTM, "steps": 100_000},
        model=_SIZE,
    ),
    "xlstm_20k": Protocol(
        source=SOURCES["xlstm_20k"],
        rates=(1e-2, 1e-3, 1e-4),
        seeds=3,
        table=_FIFTEEN,
        train={**_XLSTM, "steps": 20_000},
        model=_SIZE,
    ),
    "xlstm_code": Protocol(
        source=SOURCES["xlstm_code"],
        version=2,
        measure="raw",
        rates=(1e-3,),
        seeds=1,
        table=_REGULAR,
        train={**_XLSTM, "steps": 20_000, "betas": [0.9, 0.999], "lr_final": 1e-6, "clip": 0.0},
        model={"d_model": 64, "num_blocks": 2, "num_heads": 1, "ends_init": "small"},
        models={"xlstm": {"conv": "causal4", "recurrent_init": "zeros"}},
        cases=(Case(tasks=("mod_arithmetic",), eval={"lengths": [39, 256]}),),
    ),
    "grazzi": Protocol(
        source=SOURCES["grazzi"],
        version=2,
        reports="best",
        rates=(1e-2, 1e-3, 5e-4, 1e-4),
        seeds=3,
        table=("parity", *_MODULAR),
        train={**_XLSTM, "steps": 100_000, "batch": 1024, "lr_final": 1e-6, "clip": 0.0, "precision": "fp32"},
        model=_SIZE,
        tasks=_THREE_BLOCKS,
        cases=(
            Case(models=("transformer", "mamba", "delta_net"), tasks=_MODULAR, train={"clip": 1.0}),
            Case(models=("xlstm",), tasks=_MODULAR, model={"d_model": 64, "num_heads": 1}),
            Case(models=("xlstm",), where={"ratio": "1:0"}, train={"batch": 512}),
        ),
    ),
    "deepmind": Protocol(
        source=SOURCES["deepmind"],
        version=2,
        reports="best",
        measure="raw",
        solved=0.9,
        rates=(1e-4, 3e-4, 5e-4),
        seeds=10,
        table=(
            *_REGULAR,
            *("mod_arithmetic_brackets", "solve_equation", "reverse_string", "stack_manipulation", "bucket_sort"),
            *("missing_duplicate", "odds_first", "duplicate_string"),
            *("binary_addition", "binary_multiplication", "compute_sqrt"),
        ),
        train={
            "steps": 1_000_000,
            "batch": 128,
            "lengths": [1, 40],
            "lengths_per": "batch",
            "betas": [0.9, 0.999],
            "weight_decay": 0.0,
            "warmup": 0.0,
            "schedule": "constant",
            "clip": 1.0,
            "loss_over": "slots",
        },
        eval={
            "lengths": [41, 500],
            "test": 512 * 460,
            "lengths_by": "turn",
            "score": "lengths",
            "bins": [41, 100, 200, 300, 400, 500],
            "extrapolate": [],
        },
        model={"num_blocks": 1, "d_model": 256},
        models={
            "rnn": {"activation": "relu", "before_head": "relu"},
            "lstm": {"forget_bias": 1.0, "before_head": "relu"},
            "gru": {"before_head": "relu"},
            "stack_rnn": {"before_head": "relu"},
            "tape_rnn": {"tape_cells": 40, "jump": "input", "before_head": "relu"},
            "encoder": {**_ENCODER, **_VASWANI, "dropout": 0.1},
            "transformer": _ENCODER,
        },
        task={"count": "input", "query": "token", "every_length": True},
        tasks={
            "solve_equation": {"operators": "+-"},
            "bucket_sort": {"num_symbols": 5},
            "reverse_string": {"num_symbols": 2},
            "odds_first": {"num_symbols": 2, "first": "even"},
            "missing_duplicate": {"num_symbols": 2, "hole": "either"},
            "stack_manipulation": {"num_symbols": 2, "reads": "top_down", "end": "token", "push": 2},
            "binary_addition": {"padding": "none"},
            "binary_multiplication": {"padding": "none"},
        },
    ),
    "slice": Protocol(
        source=SOURCES["slice"],
        version=3,
        measure="raw",
        rates=(2e-3, 1e-3, 5e-4, 1e-4, 1e-5),
        seeds=5,
        table=_REGULAR,
        train={
            **_XLSTM,
            "steps": 100_000,
            "betas": [0.9, 0.999],
            "weight_decay": 0.01,
            "decayed": "all_but_embedding",
            "clip": 0.0,
            "precision": "fp32",
            "stop_after": 1,
            "stop_above": 0.9995,
        },
        eval={"validation": 8192, "every": 5000},
        model={"d_model": 128, "num_blocks": 2, "num_heads": 4, "dropout": 0.01},
        task={"count": "input"},
        cases=(Case(tasks=("mod_arithmetic",), eval={"lengths": [39, 256]}),),
        models={"slice": {"block_size": 4, "mixer": "tanh", "input_at": "first", "norm_penalty": 0.001}},
    ),
    "mamba3": Protocol(
        source=SOURCES["mamba3"],
        version=2,
        reports="best",
        rates=(1e-4, 1.9e-4, 3.7e-4, 7.2e-4, 1.4e-3, 2.7e-3, 5.2e-3, 1e-2),
        seeds=3,
        table=("parity", *_MODULAR),
        train={**_XLSTM, "steps": 40_000, "curriculum": [40, 80, 120, 160], "precision": "fp32"},
        eval={"lengths": [255, 256], "bins": [255, 256], "extrapolate": [512, 1024]},
        model={"d_model": 64, "num_blocks": 1, "num_heads": 4, "d_state": 64},
        tasks=_THREE_BLOCKS,
    ),
    **WORD_PROBLEMS,
    "mlregtest": Protocol(
        source=SOURCES["mlregtest"],
        measure="raw",
        rates=(1e-2, 1e-4),
        seeds=1,
        table=("mlregtest",),
        train={**_ADAM, "steps": 100_000, "batch": 64, "lengths": [20, 29], "examples": 100_000, "clip": 0.0},
        eval={
            "lengths": [20, 50],
            "test": 5000 * 31,
            "lengths_by": "turn",
            "bins": [20, 29, 50],
            "extrapolate": [],
            "every": 1562,
        },
        model={"d_model": 256, "num_blocks": 1, "dropout": 0.1},
        models={
            "rnn": {"d_model": 32},
            "gru": {"d_model": 32},
            "lstm": {"dropout": 0.0},
            "transformer": {"num_blocks": 2, "num_heads": 2, **_LEARNT},
            "encoder": {"num_blocks": 2, "num_heads": 2, **_LEARNT},
        },
        task={"count": "input"},
    ),
    "flare": Protocol(
        source=SOURCES["flare"],
        measure="raw",
        rates=(1e-2, 3e-3, 1e-3, 3e-4, 1e-4),
        seeds=10,
        table=("flare_regular", "flare_context_free", "flare_context_sensitive"),
        train={**_ADAM, "steps": 20_000, "batch": 64, "lengths": [1, 40], "examples": 10_000, "clip": 5.0},
        eval={
            "lengths": [1, 500],
            "test": 10 * 500,
            "lengths_by": "turn",
            "validation": 1000,
            "bins": [1, 40, 80, 160, 240, 320, 400, 500],
            "extrapolate": [],
        },
        model={"num_blocks": 5, "num_heads": 8, "dropout": 0.1},
        params=64_000,
        models={"transformer": {"positions": "sinusoidal"}},
        task={"count": "input"},
    ),
    "mad": Protocol(
        source=SOURCES["mad"],
        version=2,
        measure="raw",
        rates=(5e-4, 1e-4, 1e-3),
        seeds=1,
        table=(*_RECALL, "memorization", "selective_copying", "compression"),
        train={
            "steps": 200 * 12_800 // 128,
            "batch": 128,
            "examples": 12_800,
            "betas": [0.9, 0.999],
            "weight_decay": 0.0,
            "warmup": 0.0,
            "lr_final": 1e-6,
            "clip": 0.0,
            "precision": "bf16",
        },
        eval={"test": 1280, "validation": 1280},
        model={"d_model": 128, "num_blocks": 2},
        tasks={
            "selective_copying": {"num_symbols": 14, "data": 16, "noise": "before", "count": "total"},
            "compression": {"count": "input"},
        },
        cases=(
            _of_length(128, "in_context_recall", "noisy_in_context_recall"),
            _of_length(129, "fuzzy_in_context_recall"),
            _of_length(32, "memorization", steps=200 * 256 // 128, examples=256),
            _of_length(257, "selective_copying"),
            _of_length(31, "compression"),
        ),
    ),
    **SELECTIV,
    "xlstm_cpu": Protocol(
        source=SOURCES["xlstm_cpu"],
        rates=(1e-2, 1e-3),
        seeds=3,
        table=(*_REGULAR, "bucket_sort", "majority"),
        train={**_XLSTM, "steps": 1000, "batch": 32, "precision": "fp32", "stop_after": 2},
        eval={"test": 1024, "validation": 256, "every": 125, "extrapolate": [512], "extrapolation": 128},
        model={"d_model": 64, "num_blocks": 2, "num_heads": 4, "forget_bias": 1.0},
    ),
    "quick": Protocol(
        source=SOURCES["quick"],
        remark="a smoke run, not a result",
        rates=(1e-2,),
        seeds=3,
        table=("parity", "even_pairs", "cycle_nav", "bucket_sort"),
        train={
            **_XLSTM,
            "steps": 800,
            "batch": 32,
            "precision": "fp32",
            "stop_after": 2,
        },
        eval={"test": 512, "validation": 128, "every": 100, "extrapolate": []},
        # Forget bias 1 (Jozefowicz et al. 2015): without it some seeds need more than the budget for parity.
        model={"d_model": 64, "num_blocks": 2, "num_heads": 4, "forget_bias": 1.0, "d_inner": 64},
    ),
}


def frozen_suites() -> dict[str, Protocol]:
    """Return the frozen suites as their files have them, by name."""
    found = sorted((files("chomsky_ladder.harness.config") / "suites").iterdir(), key=lambda file: file.name)
    contents = {file.name: file.read_bytes() for file in found}
    for line in contents.pop("frozen.sha256").decode().splitlines():
        digest, name = line.split()
        if name in contents and hashlib.sha256(contents[name]).hexdigest() != digest:
            raise ValueError(
                f"{name} is not as it was frozen, so its results are no suite's: put it back, or rename it"
            )
    trees: dict[str, dict[str, Any]] = {name.removesuffix(".json"): json.loads(text) for name, text in contents.items()}
    for tree in trees.values():
        tree |= {key: tuple(tree[key]) for key in ("rates", "table") if key in tree}
        tree["rungs"] = tuple(Rung(**rung) for rung in tree.get("rungs", ()))
        tree["cases"] = tuple(Case(**case) for case in tree.get("cases", ()))
    return {name: Protocol(**tree) for name, tree in trees.items()}


PROTOCOLS |= frozen_suites()


def remark_of(name: str) -> str:
    """Return the remark of a known protocol; "" if there is none."""
    return PROTOCOLS[name].remark if name in PROTOCOLS else ""


def warning_of(name: str) -> str:
    """Return the remark as a sentence."""
    return f"{name.capitalize()}: {remark_of(name)}." if remark_of(name) else ""


def has_rungs(name: str) -> bool:
    """Return True if a protocol is a climb.

    Its tasks have their own settings, so no paper's values may stand beside them.
    """
    return name in PROTOCOLS and bool(PROTOCOLS[name].rungs)
