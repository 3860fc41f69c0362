"""An impossible choice is refused by its name and place, and the extreme possible ones are taken."""

from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

import pytest
from torch import Tensor

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.parts import from_plain, replaced
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.encoder import EncoderConfig
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.models.transformer import TransformerConfig
from chomsky_ladder.tasks.layout import Classification
from chomsky_ladder.tasks.mod_arithmetic import ModArithmetic
from chomsky_ladder.tasks.parity import Parity
from chomsky_ladder.tasks.reverse_string import ReverseString
from support.run_and_refusal import RUN, refusal, with_part


@dataclass(frozen=True, kw_only=True)
class WholeOnly(Classification):
    """A language that answers the whole string and no prefix."""

    name, version, level = "whole_only", 1, "regular"
    vocab = ("PAD", "a", "b")
    answers = (1, 2)

    def symbols(self, draw: Any, size_B: Tensor, columns: int) -> Tensor:
        return draw.integers(2, (columns,)) + 1

    def answer(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        return x_BL[:, 0]


@dataclass(frozen=True, kw_only=True)
class Thresholded(LSTMConfig):
    """A model with a setting that any number may be."""

    name = "thresholded"
    threshold: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Peeking(LSTMConfig):
    """Has steps, but its outputs may depend on the whole prompt."""

    name, sees = "peeking", "prompt"


@dataclass(frozen=True, kw_only=True)
class Parallel(LSTMConfig):
    """Sees the past alone, but has no step form."""

    name, stepwise = "parallel", False


WRONG = [
    (Train, "steps", "500"),
    (Train, "steps", 500.0),
    (Train, "steps", True),
    (Train, "steps", None),
    (Train, "lr", "1e-3"),
    (Train, "lr", True),
    (Train, "lr", None),
    (Train, "lengths", [3]),
    (Train, "lengths", [3, 4, 5]),
    (Train, "lengths", [3, 40.0]),
    (Train, "lengths", "3..40"),
    (Train, "betas", [0.9, "0.99"]),
    (Train, "curriculum", [40, True]),
    (Train, "curriculum", 40),
    (Train, "precision", "fp16"),
    (Train, "lengths_per", "step"),
    (Train, "schedule", "linear"),
    (Eval, "seed", None),
    (Eval, "test", 8192.0),
    (Eval, "bins", [40, "64"]),
    (Eval, "extrapolate", [512.0]),
    (Eval, "score", "mean"),
    (Parity, "count", "all"),
    (Parity, "query", True),
    (ReverseString, "num_symbols", "10"),
    (LSTMConfig, "d_model", "16"),
    (LSTMConfig, "d_model", 16.0),
    (LSTMConfig, "d_model", True),
    (LSTMConfig, "final_norm", "batch"),
    (LSTMConfig, "dropout", "0"),
]


@pytest.mark.parametrize(("cls", "name", "value"), WRONG)
def test_a_wrong_type_is_refused_by_its_place(cls: type, name: str, value: Any) -> None:
    message = refusal(lambda: from_plain(cls, {name: value}, where="part"))
    assert message.startswith(f"part.{name}")
    shown = [value, *value] if isinstance(value, list) else [value]
    assert any(message.endswith(f"not {bad!r}") for bad in shown)


def test_a_setting_that_is_no_number_is_refused() -> None:
    """A run could not be told from another by it: nan equals nothing, itself included."""
    message = refusal(lambda: with_part("model", Thresholded(threshold=float("nan"))))
    assert message == "model.threshold must be a number, not nan: nan equals nothing"


@pytest.mark.parametrize(
    ("where", "cls", "settings"),
    [
        ("train", Train, {"steps": True}),
        ("train", Train, {"steps": 500.0}),
        ("train", Train, {"steps": "500"}),
        ("train", Train, {"steps": None}),
        ("train", Train, {"lr": True}),
        ("train", Train, {"lr": "1e-3"}),
        ("train", Train, {"precision": "fp16"}),
        ("train", Train, {"schedule": "linear"}),
        ("train", Train, {"lengths": (3, 40.0)}),
        ("train", Train, {"lengths": (3,)}),
        ("eval", Eval, {"test": 16.0}),
        ("eval", Eval, {"seed": None}),
        ("eval", Eval, {"score": "mean"}),
        ("task", Parity, {"count": "all"}),
        ("model", LSTMConfig, {"d_model": 16.0}),
    ],
)
def test_a_run_refuses_parts_of_wrong_types(where: str, cls: type, settings: dict[str, Any]) -> None:
    message = refusal(lambda: with_part(where, cls(**settings)))
    assert message.startswith(f"{where}.{next(iter(settings))}")
    if cls in (Train, Eval):  # which refuse by themselves
        assert refusal(lambda: cls(**settings)) == message


@pytest.mark.parametrize("where", ["task", "model", "train", "eval"])
def test_a_run_refuses_parts_of_the_wrong_kind(where: str) -> None:
    for part in (None, {}, getattr(RUN, {"task": "model", "model": "task", "train": "eval", "eval": "train"}[where])):
        assert refusal(lambda part=part: with_part(where, part)).startswith(f"{where} must be a ")


def test_a_run_refuses_an_unknown_protocol() -> None:
    assert refusal(lambda: replace(RUN, protocol="xlstm_20")).startswith(
        "unknown protocol 'xlstm_20'; did you mean xlstm_20k"
    )
    assert refusal(lambda: replace(RUN, protocol="zzz")) == "unknown protocol 'zzz'"
    assert "unknown protocol" in refusal(lambda: Run.from_plain({**RUN.plain(), "protocol": "zzz"}))


def test_a_run_refuses_to_stop_early_without_validations() -> None:
    train, never = Train(stop_after=1), Eval(every=0)
    assert "stop_after" in refusal(lambda: replace(RUN, train=train, eval=never))
    assert replace(RUN, train=train).train == train
    assert replace(RUN, eval=never).eval == never


def test_a_run_refuses_a_task_of_an_unknown_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Parity, "level", "irregular")
    message = refusal(lambda: Run(task=Parity(), model=LSTMConfig()))
    assert "parity" in message and "'irregular'" in message


def test_a_rate_that_rises_to_its_end_is_refused_under_a_cosine() -> None:
    assert "train.lr_final=0.5" in refusal(lambda: Train(lr=0.1, lr_final=0.5))
    assert Train(lr=0.1, lr_final=0.1).lr_final == 0.1
    assert Train(lr=1e-6, schedule="constant").lr_final == 1e-5  # of no effect there


NAN, INF = float("nan"), float("inf")
IMPOSSIBLE: list[tuple[type, dict[str, Any]]] = [
    (Train, {"steps": 0}),
    (Train, {"batch": 0}),
    *((Train, {"examples": bad}) for bad in (-1, 2**31)),
    (Train, {"examples": 9, "lengths_per": "batch"}),
    *((Train, {name: bad}) for name in ("next_symbol", "next_set") for bad in (-0.1, INF, NAN)),
    (Train, {"cut": -1}),
    *((Train, {"passed": bad}) for bad in (-1, 65)),
    (Train, {"next_symbol": 1.0, "cut": 8}),
    (Train, {"lengths": (0, 40)}),
    (Train, {"lengths": (41, 40)}),
    (Train, {"curriculum": (40, 2)}),
    (Train, {"curriculum": (40, 50), "steps": 1}),
    *((Train, {"lr": bad}) for bad in (0.0, -1e-3, INF, NAN)),
    *((Train, {"lr_final": bad}) for bad in (-1e-9, INF, NAN)),
    *((Train, {"warmup": bad}) for bad in (-0.1, 1.1, NAN)),
    *((Train, {"betas": bad}) for bad in ((1.0, 0.9), (0.9, 1.0), (-0.1, 0.9), (0.9, -0.1), (NAN, 0.9))),
    *((Train, {"eps": bad}) for bad in (0.0, -1e-8, INF, NAN)),
    *((Train, {"weight_decay": bad}) for bad in (-0.1, INF, NAN)),
    *((Train, {"clip": bad}) for bad in (-1.0, INF, NAN)),
    (Train, {"stop_after": -1}),
    *((Train, {"stop_above": bad}) for bad in (0.0, 1.1, NAN)),
    (Train, {"base": "parity-lstm-s0"}),
    *((Train, {"lora_rank": bad}) for bad in (-1, 2)),
    (Train, {"qat": 4, "base": "parity-lstm-s0", "lora_rank": 2}),
    (Eval, {"lengths": (0, 5)}),
    (Eval, {"lengths": (6, 5)}),
    *((Eval, {name: 0}) for name in ("test", "validation", "extrapolation", "batch")),
    *((Eval, {"seed": bad}) for bad in (-1, 2**63)),
    (Eval, {"every": -1}),
    (Eval, {"bins": (64, 40)}),
    (Eval, {"bins": (40, 40)}),
    (Eval, {"extrapolate": (512, 0)}),
    (LSTMConfig, {"d_model": 0}),
    (LSTMConfig, {"num_blocks": 0}),
    (LSTMConfig, {"dropout": 1.0}),
    (LSTMConfig, {"dropout": -0.1}),
    (ModArithmetic, {"modulus": 1}),
]
PLACES = {Train: "train.", Eval: "eval.", LSTMConfig: "", ModArithmetic: ""}


@pytest.mark.parametrize(("cls", "settings"), IMPOSSIBLE)
def test_an_impossible_value_is_refused_by_its_name(cls: type, settings: dict[str, Any]) -> None:
    message = refusal(lambda: cls(**settings))
    assert PLACES[cls] + next(iter(settings)) in message
    assert refusal(lambda: from_plain(cls, settings, where="part")) == message


def test_the_extreme_possible_values_are_taken() -> None:
    train = Train(
        steps=1,
        batch=1,
        lengths=(1, 1),
        curriculum=(1,),
        lr_final=0.0,
        warmup=0.0,
        betas=(0.0, 0.0),
        weight_decay=0.0,
        clip=0.0,
    )
    measured = Eval(lengths=(1, 1), test=1, validation=1, every=0, bins=(), extrapolate=(1,), extrapolation=1, batch=1)
    run = Run(task=Parity(count="input"), model=LSTMConfig(d_model=1, num_blocks=1), train=train, eval=measured)
    assert (run.train, run.eval) == (train, measured)
    assert Train(warmup=1.0).warmup == 1.0


@pytest.mark.parametrize("seed", [-1, 2**63, True, 1.0, "0", None])
def test_an_impossible_seed_is_refused(seed: Any) -> None:
    assert "seed" in refusal(lambda: replace(RUN, seed=seed))


def test_an_impossible_execution_is_refused() -> None:
    assert "exec.threads" in refusal(lambda: Exec(threads=0))
    assert "exec.checkpoint_every" in refusal(lambda: Exec(checkpoint_every=0))
    assert "exec.log_every" in refusal(lambda: Exec(log_every=0))
    assert Exec(threads=1, checkpoint_every=1, log_every=1).log_every == 1


def test_a_kernel_that_there_is_not_gets_a_hint() -> None:
    assert refusal(lambda: Exec(backend="native_scn")).startswith("exec.backend: unknown kernel 'native_scn'; did you")
    assert "did you mean reference?" in refusal(lambda: Exec(backend="refrence"))
    assert "`ladder doctor` has all " in refusal(lambda: Exec(backend="qqqq"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("device", 0),
        ("threads", 1.0),
        ("threads", True),
        ("threads", None),
        ("backend", "fast"),
        ("backend", None),
        ("checkpoint_every", "1000"),
        ("log_every", 10.0),
        ("results", 3),
    ],
)
def test_an_execution_of_a_wrong_type_is_refused(name: str, value: Any) -> None:
    assert refusal(lambda: Exec(**{name: value})).startswith(f"exec.{name}")


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"train": Train(lengths=(4, 4))}, r"4\.\.4 \(train\.lengths\)"),
        ({"train": Train(lengths=(4, 40), curriculum=(40, 4))}, r"4\.\.4 \(train\.lengths\)"),
        ({"eval": Eval(lengths=(40, 40))}, r"40\.\.40 \(eval\.lengths\)"),
    ],
)
def test_a_range_without_a_legal_length_is_refused(changes: dict[str, Any], place: str) -> None:
    run = Run(task=ModArithmetic(), model=LSTMConfig())  # its strings, with '=' and answer, are of odd length
    with pytest.raises(ValueError, match=f"mod_arithmetic has no string of length {place}"):
        replace(run, **changes)


def test_the_longest_training_length_counts_only_without_a_curriculum() -> None:
    train = Train(lengths=(4, 4), curriculum=(5,))
    assert Run(task=ModArithmetic(), model=LSTMConfig(), train=train).train == train


@pytest.mark.parametrize("model", [EncoderConfig(), Peeking(), Parallel()], ids=lambda model: model.name)
def test_feeding_answers_back_needs_a_stepwise_causal_model(model: ModelConfig) -> None:
    assert Run(task=ReverseString(), model=model).model == model
    message = refusal(lambda: Run(task=ReverseString(decode="teacher"), model=model))
    assert "decode='teacher'" in message and model.name in message


@pytest.mark.parametrize("model", [LSTMConfig(), TransformerConfig()], ids=lambda model: model.name)
def test_stepwise_causal_models_may_have_answers_fed_back(model: ModelConfig) -> None:
    assert Run(task=ReverseString(decode="teacher"), model=model).task == ReverseString(decode="teacher")


def test_dense_supervision_needs_prefix_answers() -> None:
    assert "dense" in refusal(lambda: WholeOnly(supervision="dense"))
    assert "dense" in refusal(lambda: replaced(WholeOnly(), {"supervision": "dense"}, where="task"))
    assert Parity(supervision="dense").supervision == "dense"


def test_strings_longer_than_the_model_takes_are_refused_at_once() -> None:
    learnt = TransformerConfig(positions="learnt", max_length=300)
    said = refusal(lambda: replace(RUN, model=learnt))
    assert said == "transformer takes at most 300 positions (model.max_length); length 512 has 511"
    assert replace(RUN, model=learnt, eval=Eval(extrapolate=())).model == learnt
    assert replace(RUN, model=replace(learnt, max_length=1023)).model.longest_input == 1023


def test_every_refusal_of_train_and_eval_is_tried() -> None:
    tried = {name for _, settings in IMPOSSIBLE for name in settings}
    free = {"lengths_per", "lengths_by", "schedule", "decayed", "loss_over", "precision", "score"}  # types say it all
    free |= {"validate"}
    free |= {"file", "file_sha256"}  # tests/harness/config/test_frozen.py
    free |= {"lora_layers", "lora_ends"}  # tests/harness/train/test_adapt.py
    assert tried | free >= set(chain.from_iterable([f.name for f in fields(cls)] for cls in (Train, Eval)))
