"""The presets hold what the papers say, typed in from the protocols' table, and labels name what deviates from them."""

from dataclasses import dataclass, fields, replace
from itertools import pairwise
from operator import attrgetter
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.config import Eval, Train
from harness.parts import plain
from harness.protocols import (
    PROTOCOLS,
    find_protocol,
    grid,
    model_label,
    preset_run,
    protocol_label,
    task_label,
)
from harness.registry import all_models, all_tasks, find_model, find_task
from models.base import Context
from tasks.base import TASKS
from tasks.draw import Draw
from tasks.layout import Classification

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
        "train.clip": 1.0,
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
        "task.supervision": "dense",
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
PAIRS = [*((task, "lstm") for task in all_tasks()), *(("mod_arithmetic", model) for model in all_models())]


@pytest.mark.parametrize(
    ("protocol", "setting"), [(protocol, setting) for protocol in PUBLISHED for setting in PUBLISHED[protocol]]
)
def test_a_preset_holds_what_the_table_says(protocol: str, setting: str) -> None:
    for task in ("parity", "mod_arithmetic"):
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


@pytest.mark.parametrize("protocol", sorted(set(PUBLISHED) - {"deepmind", "slice"}))
def test_supervision_and_decoding_are_final_and_parallel(protocol: str) -> None:
    assert preset_run("parity", "lstm", protocol=protocol).task.supervision == "final"
    assert preset_run("reverse_string", "lstm", protocol=protocol).task.decode == "parallel"


def test_accuracy_is_over_tokens_but_for_the_mean_over_lengths_of_one_paper() -> None:
    scores = {protocol: preset_run("parity", "lstm", protocol=protocol).eval.score for protocol in PUBLISHED}
    assert {protocol for protocol, score in scores.items() if score != "tokens"} == {"deepmind"}


def test_the_layout_of_deepmind() -> None:
    for task in all_tasks():
        run = preset_run(task, "encoder", protocol="deepmind")
        assert (run.task.count, run.task.query) == ("input", "token")
        assert getattr(run.task, "supervision", "final") == "final"
        assert getattr(run.task, "decode", "parallel") == "parallel"
    assert preset_run("parity", "encoder", protocol="deepmind").model.dropout == 0.1
    for model in ("lstm", "transformer"):
        assert preset_run("parity", model, protocol="deepmind").model.dropout == 0.0
    assert len(preset_run("bucket_sort", "lstm", protocol="deepmind").task.answers) == 5
    assert len(preset_run("reverse_string", "lstm", protocol="deepmind").task.answers) == 2


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


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_preset_reaches_every_task_and_model(protocol: str) -> None:
    preset = PROTOCOLS[protocol]
    for task, model in PAIRS:
        run = preset_run(task, model, protocol=protocol, seed=7)
        assert (run.task.name, run.model.name, run.protocol, run.seed) == (task, model, protocol, 7)
        of_model = preset.model | preset.models.get(model, {}) | preset.tasks.get(task, {}).get("model", {})
        dropped = {name for name, value in of_model.items() if plain(run.model).get(name, value) != value}
        assert not dropped, f"{protocol} cannot set {dropped} of {model} on {task}"
        of_task = {name: value for name, value in preset.tasks.get(task, {}).items() if name != "model"}
        assert plain(run.task) | of_task == plain(run.task)
        assert plain(run.train) | {**preset.train, "lr": preset.rates[0]} == plain(run.train)
        assert plain(run.eval) | preset.eval == plain(run.eval)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("task", "model"), [("parity", "lstm"), ("mod_arithmetic", "encoder")])
def test_a_preset_builds(protocol: str, task: str, model: str) -> None:
    run = preset_run(task, model, protocol=protocol)
    batch = run.task.sample(Draw(seed=0, split="train", rows_B=torch.arange(2)), torch.tensor([7, 7]), 9)
    logits_BLV = run.model.build(len(run.task.vocab))(batch.tokens_BL, Context())
    assert logits_BLV.shape == (2, 9, len(run.task.vocab))


@dataclass(frozen=True, kw_only=True)
class WholeOnly(Classification):
    """A language that answers the whole string and no prefix, hence without dense supervision."""

    name, version, level = "whole_only", 1, "regular"
    vocab = ("PAD", "a", "b")
    answers = (1, 2)

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return draw.integers(2, (columns,)) + 1

    def answer(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        return x_BL[:, 0]


def test_a_preset_leaves_a_task_what_it_does_not_admit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.registry.TASKS", [*TASKS, WholeOnly])
    assert preset_run("whole_only", "lstm", protocol="slice").task == WholeOnly()
    assert preset_run("whole_only", "lstm", protocol="deepmind").task == WholeOnly(count="input", query="token")


@dataclass(frozen=True, kw_only=True)
class OfItsOwn(WholeOnly):
    """A game, whose strings are as long as it takes."""

    name, own_lengths = "of_its_own", (7, 23)


@dataclass(frozen=True, kw_only=True)
class OfOneLength(WholeOnly):
    name, own_lengths = "of_one_length", (64, 64)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_preset_obeys_a_tasks_own_lengths(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.registry.TASKS", [*TASKS, OfItsOwn])
    run = preset_run("of_its_own", "lstm", protocol=protocol)
    assert run.train.lengths == run.eval.lengths == run.eval.bins == (7, 23)
    assert run.eval.extrapolate == ()
    assert {run.train.longest(step) for step in (0, run.train.steps - 1)} == {23}
    other = preset_run("parity", "lstm", protocol=protocol)
    free = {"train": ("lengths", "curriculum"), "eval": ("lengths", "bins", "extrapolate")}
    for where, names in free.items():  # the rest is the protocol's
        one, two = plain(getattr(run, where)), plain(getattr(other, where))
        assert {name for name in one if one[name] != two[name]} <= set(names)
    assert (protocol_label(run), task_label(run), model_label(run)) == (protocol, "of_its_own", "lstm")
    assert all(cell.train.lengths == (7, 23) for cell in grid("of_its_own", "lstm", protocol=protocol))
    longer = replace(run, eval=replace(run.eval, lengths=(7, 24)))
    assert protocol_label(longer) == f"{protocol} (eval.lengths=7..24)"


def test_a_task_may_have_one_length_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.registry.TASKS", [*TASKS, OfOneLength])
    run = preset_run("of_one_length", "lstm")
    assert run.train.lengths == run.eval.lengths == (64, 64)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_grid_is_every_rate_with_every_seed(protocol: str) -> None:
    preset = PROTOCOLS[protocol]
    cell = grid("parity", "lstm", protocol=protocol)
    assert [(run.train.lr, run.seed) for run in cell] == [
        (rate, seed) for rate in preset.rates for seed in range(preset.seeds)
    ]
    assert len({run.run_id for run in cell}) == len(preset.rates) * preset.seeds
    base = preset_run("parity", "lstm", protocol=protocol)
    assert cell[0] == base
    for run in cell:
        assert replace(run, seed=0, train=replace(run.train, lr=base.train.lr)) == base
        assert (protocol_label(run), task_label(run), model_label(run)) == (protocol, "parity", "lstm")


def test_a_grid_is_of_the_usual_protocol_and_refuses_an_unknown_one() -> None:
    assert grid("parity", "lstm") == grid("parity", "lstm", protocol="xlstm_20k")
    with pytest.raises(ValueError, match="unknown protocol"):
        grid("parity", "lstm", protocol="zzz")


def test_a_protocol_is_applied_to_a_model_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that are only possible together: neither order, one after the other, would do."""
    preset = replace(PROTOCOLS["xlstm"], model={"d_model": 18, "num_heads": 3}, rates=(1e-3,))
    monkeypatch.setitem(PROTOCOLS, "thirds", preset)
    default = find_model("encoder")()
    for change in ({"d_model": 18}, {"num_heads": 3}):
        with pytest.raises(ValueError, match="does not split"):
            replace(default, **change)
    model = preset_run("parity", "encoder", protocol="thirds").model
    assert (model.d_model, model.num_heads) == (18, 3)


@pytest.mark.parametrize(("version", "suffix"), [(1, ""), (2, " v2"), (13, " v13")])
def test_a_label_says_the_version_from_the_second_on(
    version: int, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = preset_run("parity", "lstm")
    monkeypatch.setattr(find_task("parity"), "version", version)
    assert (task_label(run), model_label(run)) == ("parity" + suffix, "lstm")
    monkeypatch.setattr(find_model("lstm"), "version", version)
    assert model_label(run) == "lstm" + suffix
    changed = replace(run, model=replace(run.model, d_model=16))
    assert model_label(changed) == f"lstm{suffix} (d_model=16)"
    assert protocol_label(run) == "xlstm_20k"


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^unknown protocol 'xlstm_20'; did you mean xlstm_20k"):
        find_protocol("xlstm_20")
    with pytest.raises(ValueError, match=r"^unknown protocol 'zzz'; there are xlstm, .*quick$"):
        preset_run("parity", "lstm", protocol="zzz")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_preset_is_labelled_with_its_name_alone(protocol: str) -> None:
    for task, model in PAIRS:
        run = preset_run(task, model, protocol=protocol)
        assert (protocol_label(run), task_label(run), model_label(run)) == (protocol, task, model)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_rate_and_the_seed_are_in_no_label(protocol: str) -> None:
    run = preset_run("parity", "lstm", protocol=protocol)
    run = replace(run, seed=5, train=replace(run.train, lr=0.5))
    assert (protocol_label(run), task_label(run), model_label(run)) == (protocol, "parity", "lstm")


OTHER: dict[str, dict[str, tuple[Any, str]]] = {
    "train": {
        "steps": (7, "7"),
        "batch": (9, "9"),
        "lengths": ((5, 30), "5..30"),
        "lengths_per": ("batch", "batch"),
        "curriculum": ((10, 20), "10..20"),
        "schedule": ("constant", "constant"),
        "lr_final": (0.0078125, "0.0078125"),
        "warmup": (0.5, "0.5"),
        "betas": ((0.5, 0.75), "0.5..0.75"),
        "eps": (0.125, "0.125"),
        "weight_decay": (0.5, "0.5"),
        "clip": (2.0, "2.0"),
        "precision": ("fp64", "fp64"),
        "stop_after": (3, "3"),
    },
    "eval": {
        "seed": (5, "5"),
        "lengths": ((40, 64), "40..64"),
        "test": (9, "9"),
        "validation": (9, "9"),
        "every": (9, "9"),
        "bins": ((40, 64), "40..64"),
        "extrapolate": ((300,), "300"),
        "extrapolation": (9, "9"),
        "score": ("lengths", "lengths"),
        "batch": (9, "9"),
    },
}


def test_every_setting_of_training_and_evaluation_is_tried() -> None:
    assert {*OTHER["train"], "lr"} == {field.name for field in fields(Train)}
    assert {*OTHER["eval"]} == {field.name for field in fields(Eval)}


@pytest.mark.parametrize(("where", "name"), [(where, name) for where, names in OTHER.items() for name in names])
def test_a_deviating_setting_is_in_the_protocols_label(where: str, name: str) -> None:
    run, (value, shown) = preset_run("parity", "lstm", protocol="xlstm"), OTHER[where][name]
    run = replace(run, **{where: replace(getattr(run, where), **{name: value})})
    assert protocol_label(run) == f"xlstm ({where}.{name}={shown})"
    assert (task_label(run), model_label(run)) == ("parity", "lstm")


def test_several_deviations_are_all_named() -> None:
    run = preset_run("mod_arithmetic", "transformer", protocol="grazzi", seed=2)
    run = replace(
        run,
        task=replace(run.task, count="input", query="token", supervision="dense", modulus=7, operators="+-"),
        model=replace(run.model, num_blocks=2, num_heads=2),
        train=replace(run.train, lr=0.5, steps=7, clip=0.5),
        eval=replace(run.eval, test=9),
    )
    assert protocol_label(run) == (
        "grazzi (train.steps=7, train.clip=0.5, eval.test=9, "
        "task.count=input, task.query=token, task.supervision=dense)"
    )
    assert task_label(run) == "mod_arithmetic (modulus=7, operators=+-)"
    assert model_label(run) == "transformer (num_blocks=2, num_heads=2)"


@pytest.mark.parametrize(
    ("task", "name", "value"),
    [
        ("parity", "count", "input"),
        ("parity", "query", "token"),
        ("parity", "supervision", "dense"),
        ("mod_arithmetic", "query", "none"),
        ("reverse_string", "decode", "teacher"),
    ],
)
def test_a_layout_is_a_protocol_of_its_own(task: str, name: str, value: str) -> None:
    run = preset_run(task, "lstm")
    run = replace(run, task=replace(run.task, **{name: value}))
    assert protocol_label(run) == f"xlstm_20k (task.{name}={value})"
    assert (task_label(run), model_label(run)) == (task, "lstm")


def test_a_deviation_is_from_the_runs_own_preset() -> None:
    run = preset_run("parity", "lstm", protocol="slice")
    assert protocol_label(replace(run, task=replace(run.task, supervision="final"))) == "slice (task.supervision=final)"
    assert protocol_label(replace(preset_run("parity", "lstm"), protocol="xlstm")) == "xlstm (train.steps=20000)"
    assert model_label(replace(preset_run("mod_arithmetic", "lstm"), protocol="grazzi")) == "lstm (num_blocks=2)"
