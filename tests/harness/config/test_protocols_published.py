"""The presets hold what the papers say, typed in from the protocols' table."""

from itertools import pairwise
from operator import attrgetter
from typing import Any

import pytest
import torch

from chomsky_ladder.harness.config.parts import plain
from chomsky_ladder.harness.config.protocols import (
    PROTOCOLS,
    preset_run,
)
from chomsky_ladder.harness.config.registry import all_models, all_tasks

torch.set_num_threads(1)

_XLSTM_LENGTHS = {"train.lengths": (3, 40), "train.lengths_per": "sequence", "eval.lengths": (40, 256)}
_XLSTM = {
    **_XLSTM_LENGTHS,
    "train.batch": 256,
    "train.betas": (0.9, 0.99),
    "train.weight_decay": 0.1,
    "train.schedule": "cosine",
    "train.lr_final": 1e-5,
    "train.clip": 1.0,
    "train.precision": "bf16",
    "eval.test": 8192,
    "model.dropout": 0.0,
}
PUBLISHED: dict[str, dict[str, Any]] = {
    "xlstm": {**_XLSTM, "train.steps": 100_000},
    "xlstm_20k": {**_XLSTM, "train.steps": 20_000},
    "xlstm_code": {
        **_XLSTM_LENGTHS,
        "train.steps": 20_000,
        "train.batch": 256,
        "train.betas": (0.9, 0.999),
        "train.weight_decay": 0.1,
        "train.lr_final": 1e-6,
        "train.clip": 0.0,
        "train.precision": "bf16",
        "model.dropout": 0.0,
    },
    "grazzi": {
        **_XLSTM_LENGTHS,
        "train.steps": 100_000,
        "train.batch": 1024,
        "train.weight_decay": 0.1,
        "train.lr_final": 1e-6,
        "train.clip": 0.0,
        "model.dropout": 0.0,
    },
    "deepmind": {
        "train.lengths": (1, 40),
        "train.lengths_per": "batch",
        "train.schedule": "constant",
        "train.steps": 1_000_000,
        "train.batch": 128,
        "train.weight_decay": 0.0,  # Adam
        "train.clip": 1.0,
        "train.precision": "fp32",
        "eval.lengths": (41, 500),
        "eval.score": "lengths",
    },
    "slice": {
        **_XLSTM_LENGTHS,
        "train.steps": 100_000,
        "train.batch": 256,
        "model.dropout": 0.01,
        "task.supervision": "final",
    },
    "mamba3": {"train.steps": 40_000, "train.curriculum": (40, 80, 120, 160)},
}
QUICK = {  # ours, and no paper's
    "train.steps": 800,
    "train.batch": 32,
    "train.precision": "fp32",
    "train.stop_after": 2,
    "eval.validation": 128,
    "eval.every": 100,
    "eval.extrapolate": (),
    "model.d_model": 64,
    "model.num_blocks": 2,
}
WARMUP_STEPS = {"xlstm": 10_000, "xlstm_20k": 2_000, "xlstm_code": 2_000}
RATES = {
    "xlstm": {1e-2, 1e-3, 1e-4},
    "xlstm_20k": {1e-2, 1e-3, 1e-4},
    "xlstm_code": {1e-3},
    "grazzi": {1e-2, 1e-3, 5e-4, 1e-4},
    "deepmind": {1e-4, 3e-4, 5e-4},
}
SEEDS = {"xlstm": 3, "xlstm_20k": 3, "xlstm_code": 1, "grazzi": 3, "deepmind": 10, "slice": 5}
SIZES = [  # blocks, width, heads
    ("xlstm", "parity", "transformer", (2, 128, 4)),
    ("xlstm", "mod_arithmetic", "lstm", (2, 128)),
    ("xlstm_20k", "parity", "transformer", (2, 128, 4)),
    ("xlstm_code", "mod_arithmetic", "transformer", (2, 64, 1)),
    ("xlstm_code", "parity", "lstm", (2, 64)),
    ("grazzi", "parity", "transformer", (2, 128, 4)),
    ("grazzi", "mod_arithmetic", "transformer", (3, 128, 4)),
    ("grazzi", "mod_arithmetic", "lstm", (3, 128)),
    ("deepmind", "parity", "lstm", (1, 256)),
    ("deepmind", "reverse_string", "encoder", (5, 64, 8)),
    ("deepmind", "reverse_string", "transformer", (5, 64, 8)),
    ("quick", "parity", "transformer", (2, 64, 4)),
    ("slice", "parity", "transformer", (2, 128)),
    ("mamba3", "parity", "transformer", (1,)),
    ("mamba3", "mod_arithmetic", "transformer", (3,)),
]


@pytest.mark.parametrize(
    ("protocol", "setting"), [(protocol, setting) for protocol in PUBLISHED for setting in PUBLISHED[protocol]]
)
def test_a_preset_holds_what_the_table_says(protocol: str, setting: str) -> None:
    for task in ("parity", "mod_arithmetic")[: 1 if setting == "eval.lengths" else 2]:
        run = preset_run(task, "lstm", protocol=protocol)
        assert attrgetter(setting)(run) == PUBLISHED[protocol][setting]


def test_the_smoke_run() -> None:
    run = preset_run("parity", "lstm", protocol="quick")
    assert {setting: attrgetter(setting)(run) for setting in QUICK} == QUICK
    assert run.model.forget_bias == 1.0
    models = [preset_run("parity", model, protocol="quick").model for model in all_models()]
    assert {model.d_inner for model in models if "d_inner" in plain(model)} == {64}
    assert {model.forget_bias for model in models if "forget_bias" in plain(model)} == {1.0}


@pytest.mark.parametrize(("protocol", "task", "model", "sizes"), SIZES)
def test_a_preset_has_the_published_sizes(protocol: str, task: str, model: str, sizes: tuple[int, ...]) -> None:
    config = preset_run(task, model, protocol=protocol).model
    assert (config.num_blocks, config.d_model, getattr(config, "num_heads", 0))[: len(sizes)] == sizes


def test_the_published_sweeps() -> None:
    assert {protocol: set(PROTOCOLS[protocol].rates) for protocol in RATES} == RATES
    assert {protocol: PROTOCOLS[protocol].seeds for protocol in SEEDS} == SEEDS
    for protocol, steps in WARMUP_STEPS.items():
        train = preset_run("parity", "lstm", protocol=protocol).train
        assert train.warmup * train.steps == steps


@pytest.mark.parametrize("protocol", sorted(set(PUBLISHED) - {"deepmind"}))
def test_supervision_and_decoding_are_final_and_parallel(protocol: str) -> None:
    assert preset_run("parity", "lstm", protocol=protocol).task.supervision == "final"
    assert preset_run("reverse_string", "lstm", protocol=protocol).task.decode == "parallel"


def test_accuracy_is_over_tokens_but_for_the_mean_over_lengths_of_one_paper() -> None:
    scores = {protocol: preset_run("parity", "lstm", protocol=protocol).eval.score for protocol in PUBLISHED}
    assert {protocol for protocol, score in scores.items() if score != "tokens"} == {"deepmind"}


def test_the_layout_of_deepmind() -> None:
    for task in PROTOCOLS["deepmind"].table:
        run = preset_run(task, "encoder", protocol="deepmind")
        assert (run.task.count, run.task.query) == ("input", "token")
        assert getattr(run.task, "supervision", "final") == "final"
        assert getattr(run.task, "decode", "parallel") == "parallel"
    assert preset_run("parity", "encoder", protocol="deepmind").model.dropout == 0.1
    for model in ("lstm", "transformer"):
        assert preset_run("parity", model, protocol="deepmind").model.dropout == 0.0
    assert len(preset_run("bucket_sort", "lstm", protocol="deepmind").task.answers) == 5
    bits = ("reverse_string", "odds_first", "missing_duplicate", "duplicate_string")
    assert all(len(preset_run(task, "lstm", protocol="deepmind").task.answers) == 2 for task in bits)
    stack = preset_run("stack_manipulation", "lstm", protocol="deepmind").task
    assert (stack.reads, stack.end, stack.push, stack.pop) == ("top_down", "token", 2, 1)  # POP, PUSH 0, PUSH 1
    assert preset_run("odds_first", "lstm", protocol="deepmind").task.first == "even"  # so their code, not their text
    for task, operators in (("mod_arithmetic_brackets", "+-*"), ("solve_equation", "+-")):
        assert preset_run(task, "lstm", protocol="deepmind").task.operators == operators


def test_the_widths_of_grazzi() -> None:
    names = ("xlstm", "transformer", "mamba")
    assert preset_run("parity", "xlstm", protocol="grazzi").model.d_model == 128
    sizes = {name: preset_run("mod_arithmetic", name, protocol="grazzi").model for name in names}
    assert (sizes["xlstm"].d_model, sizes["xlstm"].num_heads) == (64, 1)
    assert (sizes["transformer"].d_model, sizes["transformer"].num_heads) == (128, 4)
    assert sizes["mamba"].d_model == 128


def test_the_tasks_of_the_tables() -> None:
    for name, protocol in PROTOCOLS.items():
        assert set(protocol.table) <= set(all_tasks()), name
    assert len(set(PROTOCOLS["xlstm"].table)) == len(set(PROTOCOLS["deepmind"].table)) == 15


def test_the_rates_of_the_sweeps() -> None:
    slice_rates = PROTOCOLS["slice"].rates
    assert (max(slice_rates), min(slice_rates)) == (2e-3, 1e-5)
    mamba3 = sorted(PROTOCOLS["mamba3"].rates)
    assert len(mamba3) == 8 and (mamba3[0], mamba3[-1]) == (1e-4, 1e-2)
    steps = [high / low for low, high in pairwise(mamba3)]
    assert steps == pytest.approx([100 ** (1 / 7)] * 7, rel=0.03)  # log-spaced, to two digits
    for protocol, preset in PROTOCOLS.items():
        assert preset_run("parity", "lstm", protocol=protocol).train.lr in preset.rates


def test_mamba3_ends_at_256() -> None:
    for task in ("parity", "mod_arithmetic"):
        run = preset_run(task, "transformer", protocol="mamba3")
        assert run.eval.lengths[1] == 256
        assert max(run.task.legal_lengths(*run.eval.lengths)) in (255, 256)
