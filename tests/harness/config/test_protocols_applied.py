"""A preset reaches every task and model and obeys their own limits, and labels name what deviates from it."""

from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.config.parts import plain
from chomsky_ladder.harness.config.protocols import (
    PROTOCOLS,
    find_protocol,
    grid,
    identity_of,
    preset_run,
)
from chomsky_ladder.harness.config.registry import all_models, all_tasks, find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Train
from chomsky_ladder.models.block import Context
from chomsky_ladder.tasks.base import TASKS
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification
from support.cases import some

torch.set_num_threads(1)
LABEL = {name: name if protocol.version == 1 else f"{name} v{protocol.version}" for name, protocol in PROTOCOLS.items()}
PAIRS = [*((task, "lstm") for task in all_tasks()), *(("mod_arithmetic", model) for model in all_models())]


@pytest.mark.full
@pytest.mark.parametrize("protocol", some(PROTOCOLS, always=6))
def test_a_preset_reaches_every_task_and_model(protocol: str) -> None:
    preset = PROTOCOLS[protocol]
    for task, model in PAIRS:
        run = preset_run(task, model, protocol=protocol, seed=7)
        assert (run.task.name, run.model.name, run.protocol, run.seed) == (task, model, protocol, 7)
        of_model = preset.model_of(task, model)
        dropped = {name for name, value in of_model.items() if plain(run.model).get(name, value) != value}
        assert not dropped, f"{protocol} cannot set {dropped} of {model} on {task}"
        of_task = {name: value for name, value in preset.tasks.get(task, {}).items() if name != "model"}
        assert plain(run.task) | of_task == plain(run.task)
        own = {"lengths", "curriculum", "bins", "extrapolate"} if run.task.own_lengths else set()
        stages = [most for most in preset.train.get("curriculum", []) if run.task.legal_lengths(3, most)]
        assert own or list(run.train.curriculum) == stages
        own |= {"curriculum"}
        parts = preset.train_of(task, model), preset.eval_of(task, model)
        train, score = ({k: v for k, v in part.items() if k not in own} for part in parts)
        assert plain(run.train) | {"lr": preset.rates[0], **train} == plain(run.train)
        assert plain(run.eval) | score == plain(run.eval)


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
    TASKS.append(WholeOnly)
    monkeypatch.setitem(PROTOCOLS, "every_prefix", replace(PROTOCOLS["xlstm"], task={"supervision": "dense"}))
    assert preset_run("parity", "lstm", protocol="every_prefix").task.supervision == "dense"
    assert preset_run("whole_only", "lstm", protocol="every_prefix").task == WholeOnly()
    assert preset_run("whole_only", "lstm", protocol="deepmind").task == WholeOnly(count="input", query="token")


@dataclass(frozen=True, kw_only=True)
class OfItsOwn(WholeOnly):
    """A game, whose strings are as long as it takes."""

    name, own_lengths = "of_its_own", (7, 23)


@dataclass(frozen=True, kw_only=True)
class OfOneLength(WholeOnly):
    name, own_lengths = "of_one_length", (64, 64)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_preset_obeys_a_tasks_own_lengths(protocol: str) -> None:
    TASKS.append(OfItsOwn)
    run = preset_run("of_its_own", "lstm", protocol=protocol)
    assert run.train.lengths == run.eval.lengths == run.eval.bins == (7, 23)
    assert run.eval.extrapolate == ()
    assert {run.train.longest(step) for step in (0, run.train.steps - 1)} == {23}
    other = preset_run("parity", "lstm", protocol=protocol)
    free = {"train": ("lengths", "curriculum"), "eval": ("lengths", "bins", "extrapolate")}
    for where, names in free.items():  # the rest is the protocol's
        one, two = plain(getattr(run, where)), plain(getattr(other, where))
        assert {name for name in one if one[name] != two[name]} <= set(names)
    assert tuple(identity_of(run).labels().values()) == (LABEL[protocol], "of_its_own", "lstm")
    assert all(cell.train.lengths == (7, 23) for cell in grid("of_its_own", "lstm", protocol=protocol))
    longer = replace(run, eval=replace(run.eval, lengths=(7, 24)))
    assert identity_of(longer).protocol == f"{LABEL[protocol]} (eval.lengths=7..24)"


def test_a_task_may_have_one_length_of_its_own() -> None:
    TASKS.append(OfOneLength)
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
    assert base in cell
    for run in cell:
        assert replace(run, seed=0, train=replace(run.train, lr=base.train.lr)) == base
        assert tuple(identity_of(run).labels().values()) == (LABEL[protocol], "parity", "lstm")


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
    assert (identity_of(run).task, identity_of(run).model) == ("parity" + suffix, "lstm")
    monkeypatch.setattr(find_model("lstm"), "version", version)
    assert identity_of(run).model == "lstm" + suffix
    changed = replace(run, model=replace(run.model, d_model=16))
    assert identity_of(changed).model == f"lstm{suffix} (d_model=16)"
    assert identity_of(run).protocol == "xlstm_20k"


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^unknown protocol 'xlstm_20'; did you mean xlstm_20k"):
        find_protocol("xlstm_20")
    with pytest.raises(
        ValueError,
        match=r"^unknown protocol 'zzz'; there are xlstm, .*, climb-v1, climb-v2, fifteen-v1, ladder-v1, text-v1$",
    ):
        preset_run("parity", "lstm", protocol="zzz")


@pytest.mark.full
@pytest.mark.parametrize("protocol", some(PROTOCOLS, always=6))
def test_a_preset_is_labelled_with_its_name_alone(protocol: str) -> None:
    for task, model in PAIRS:
        run = preset_run(task, model, protocol=protocol)
        assert tuple(identity_of(run).labels().values()) == (LABEL[protocol], task, model)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_rate_and_the_seed_are_in_no_label(protocol: str) -> None:
    run = preset_run("parity", "lstm", protocol=protocol)
    run = replace(run, seed=5, train=replace(run.train, lr=0.5))
    assert tuple(identity_of(run).labels().values()) == (LABEL[protocol], "parity", "lstm")


OTHER: dict[str, dict[str, tuple[Any, str]]] = {
    "train": {
        "steps": (7, "7"),
        "batch": (9, "9"),
        "lengths": ((5, 30), "5..30"),
        "lengths_per": ("batch", "batch"),
        "curriculum": ((10, 20), "10..20"),
        "schedule": ("constant", "constant"),
        "examples": (9, "9"),
        "lr_final": (0.0078125, "0.0078125"),
        "warmup": (0.5, "0.5"),
        "betas": ((0.5, 0.75), "0.5..0.75"),
        "eps": (0.125, "0.125"),
        "weight_decay": (0.5, "0.5"),
        "decayed": ("all_but_embedding", "all_but_embedding"),
        "clip": (2.0, "2.0"),
        "precision": ("fp64", "fp64"),
        "cut": (8, "8"),
        "passed": (2, "2"),
        "qat": (4, "4"),
        "stop_after": (3, "3"),
        "stop_above": (0.5, "0.5"),
        "loss_over": ("slots", "slots"),
        "lora_layers": ("blocks.*", "blocks.*"),
        "lora_ends": ("keep", "keep"),
    },
    "eval": {
        "seed": (5, "5"),
        "lengths": ((40, 64), "40..64"),
        "test": (9, "9"),
        "validation": (9, "9"),
        "every": (9, "9"),
        "lengths_by": ("turn", "turn"),
        "validate": ("training", "training"),
        "bins": ((40, 64), "40..64"),
        "extrapolate": ((300,), "300"),
        "extrapolation": (9, "9"),
        "score": ("lengths", "lengths"),
        "batch": (9, "9"),
    },
}


def test_every_setting_of_training_and_evaluation_is_tried() -> None:
    needing_each_other = {"base", "lora_rank"}  # test_adapt.py
    needing_each_other |= {"next_symbol", "next_set"}  # and a task that says what follows: train/test_following.py
    assert {*OTHER["train"], "lr", *needing_each_other} == {field.name for field in fields(Train)}
    assert {*OTHER["eval"], "file", "file_sha256"} == {field.name for field in fields(Eval)}  # test_frozen.py


@pytest.mark.parametrize(("where", "name"), [(where, name) for where, names in OTHER.items() for name in names])
def test_a_deviating_setting_is_in_the_protocols_label(where: str, name: str) -> None:
    run, (value, shown) = preset_run("parity", "lstm", protocol="xlstm"), OTHER[where][name]
    run = replace(run, **{where: replace(getattr(run, where), **{name: value})})
    assert identity_of(run).protocol == f"xlstm ({where}.{name}={shown})"
    assert (identity_of(run).task, identity_of(run).model) == ("parity", "lstm")


def test_several_deviations_are_all_named() -> None:
    run = preset_run("mod_arithmetic", "transformer", protocol="grazzi", seed=2)
    run = replace(
        run,
        task=replace(run.task, count="input", query="token", supervision="dense", modulus=7, operators="+-"),
        model=replace(run.model, num_blocks=2, num_heads=2),
        train=replace(run.train, lr=0.5, steps=7, clip=0.5),
        eval=replace(run.eval, test=9),
    )
    assert identity_of(run).protocol == (
        "grazzi v2 (train.steps=7, train.clip=0.5, eval.test=9, "
        "task.count=input, task.query=token, task.supervision=dense)"
    )
    assert identity_of(run).task == "mod_arithmetic (modulus=7, operators=+-)"
    assert identity_of(run).model == "transformer (num_blocks=2, num_heads=2)"


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
    assert identity_of(run).protocol == f"xlstm_20k (task.{name}={value})"
    assert (identity_of(run).task, identity_of(run).model) == (task, "lstm")


def test_a_deviation_is_from_the_runs_own_preset() -> None:
    run = preset_run("parity", "lstm", protocol="slice")
    assert (
        identity_of(replace(run, task=replace(run.task, supervision="dense"))).protocol
        == "slice v3 (task.supervision=dense)"
    )
    assert identity_of(replace(preset_run("parity", "lstm"), protocol="xlstm")).protocol == "xlstm (train.steps=20000)"
    assert identity_of(replace(preset_run("mod_arithmetic", "lstm"), protocol="grazzi")).model == "lstm (num_blocks=2)"
