"""A run's identity: one for equal choices, another for any other choice, and an impossible choice is refused."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from torch import Tensor

from harness import config
from harness.config import Eval, Exec, Run, Train, default_results, without_training_targets
from harness.parts import from_plain, plain, replaced
from harness.registry import all_models, all_tasks
from models.base import ModelConfig
from models.encoder import EncoderConfig
from models.lstm import LSTMConfig
from models.transformer import TransformerConfig
from tasks.base import Task
from tasks.even_pairs import EvenPairs
from tasks.layout import Classification
from tasks.mod_arithmetic import ModArithmetic
from tasks.parity import Parity
from tasks.reverse_string import ReverseString

RUN = Run(task=Parity(), model=LSTMConfig(d_model=16))
TASKS = [classes[0]() for classes in all_tasks().values()]
MODELS = [classes[0].tiny() for classes in all_models().values()]
CHOICES = [
    (where, part, field.name)
    for where, parts in (("task", TASKS), ("model", MODELS), ("train", [Train()]), ("eval", [Eval()]))
    for part in parts
    for field in fields(part)
]


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
class Peeking(LSTMConfig):
    """Has steps, but its outputs may depend on the whole prompt."""

    name, sees = "peeking", "prompt"


@dataclass(frozen=True, kw_only=True)
class Parallel(LSTMConfig):
    """Sees the past alone, but has no step form."""

    name, stepwise = "parallel", False


def alternatives(hint: Any, value: Any) -> Iterator[Any]:
    """Other values of a field's type, most of which it should admit."""
    if get_origin(hint) is Literal:
        yield from (choice for choice in get_args(hint) if choice != value)
    elif get_origin(hint) is tuple and get_args(hint)[-1] is Ellipsis:
        yield (*value, max(value, default=40) + 1)
    elif get_origin(hint) is tuple:
        for place, (one_hint, one) in enumerate(zip(get_args(hint), value, strict=True)):
            for other in alternatives(one_hint, one):
                yield (*value[:place], other, *value[place + 1 :])
    elif hint is bool:
        yield not value
    elif hint is int:
        yield from {value + 1, value * 2, value * 4} - {value}
    else:
        assert hint is float, f"teach this test what another {hint} is"
        yield from {value / 2, value + 0.25} - {value}


def with_part(where: str, part: Any) -> Run:
    return replace(RUN, **{where: part})


def reordered(tree: Any) -> Any:
    """The same JSON tree with every object's keys in the opposite order."""
    return {key: reordered(tree[key]) for key in reversed(tree)} if isinstance(tree, dict) else tree


def refusal(make: Any) -> str:
    """The one line with which a user's mistake is refused."""
    with pytest.raises(ValueError) as caught:
        make()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_equal_choices_are_one_run() -> None:
    again = Run(task=Parity(), model=LSTMConfig(d_model=16), train=Train(), eval=Eval(), seed=0, protocol="xlstm_20k")
    assert again == RUN and again is not RUN
    assert again.run_id == RUN.run_id
    assert RUN.run_id.startswith("parity-lstm-s0-")


@pytest.mark.parametrize(
    ("where", "part", "name"), CHOICES, ids=lambda x: x if isinstance(x, str) else type(x).__name__
)
def test_every_field_is_part_of_the_identity(where: str, part: Any, name: str) -> None:
    digests = [digest_of(with_part(where, part))]
    for other in alternatives(get_type_hints(type(part))[name], getattr(part, name)):
        try:
            run = with_part(where, replace(part, **{name: other}))
        except ValueError:
            continue  # not every type's value is a setting's: heads divide the width
        digests.append(digest_of(run))
    if len(digests) == 1:
        pytest.skip(f"{type(part).__name__}.{name} admits no other value")
    assert len(set(digests)) == len(digests)


def test_the_fields_of_a_run_are_part_of_the_identity() -> None:
    runs = [
        RUN,
        replace(RUN, seed=1),
        replace(RUN, protocol="xlstm"),
        replace(RUN, task=EvenPairs()),  # the same fields under another name
        replace(RUN, model=TransformerConfig(d_model=16)),
    ]
    assert {f.name for f in fields(Run)} == {"task", "model", "train", "eval", "seed", "protocol"}
    assert len({digest_of(run) for run in runs}) == len(runs)


def digest_of(run: Run) -> str:
    """The hash alone, so that the names before it cannot tell two runs apart."""
    return run.run_id.rpartition("-")[2]


@pytest.mark.parametrize(("owner", "version"), [(Parity, "version"), (LSTMConfig, "version"), (config, "SCHEMA")])
def test_a_version_is_part_of_the_identity(owner: Any, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = RUN.run_id
    monkeypatch.setattr(owner, version, getattr(owner, version) + 1)
    assert RUN.run_id != before


def test_the_identity_does_not_depend_on_the_order_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    tree, run_id = RUN.plain(), RUN.run_id
    assert list(reordered(tree)) != list(tree)
    assert Run.from_plain(reordered(tree)).run_id == run_id
    monkeypatch.setattr(Run, "plain", lambda self: reordered(tree))
    assert RUN.run_id == run_id


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [
        ({"lr": 1}, {"lr": 1.0}),
        ({"clip": 1, "weight_decay": 0, "lr_final": 0}, {"clip": 1.0, "weight_decay": 0.0, "lr_final": 0.0}),
        ({"betas": (0, 0.5), "warmup": 1}, {"betas": (0.0, 0.5), "warmup": 1.0}),
        ({"lengths": [3, 40], "curriculum": [10, 20]}, {"lengths": (3, 40), "curriculum": (10, 20)}),
    ],
)
def test_the_identity_does_not_depend_on_spelling(spelled: dict[str, Any], meant: dict[str, Any]) -> None:
    if list in map(type, spelled.values()):  # JSON's spelling, taken where JSON values are, and nowhere else
        assert "not [3, 40]" in refusal(lambda: Train(**spelled))
        made = [replaced(Train(), spelled, where="train"), Train(**meant)]
    else:
        made = [Train(**spelled), Train(**meant)]
    one, other = (replace(RUN, train=train) for train in made)
    assert one.run_id == other.run_id
    assert one.plain() == other.plain()
    assert repr(one.train) == repr(other.train)  # 1 == 1.0, but their texts differ


def test_one_identity_is_pinned() -> None:
    """A change of canonicalisation would orphan every published record: it needs a new SCHEMA, and this text."""
    run = Run(
        task=Parity(count="input", query="token", supervision="dense"),
        model=LSTMConfig(d_model=16, num_blocks=1, final_norm="rms", dropout=0.125, forget_bias=1.0),
        train=Train(
            steps=7,
            batch=4,
            lengths=(3, 9),
            lengths_per="batch",
            curriculum=(5, 9),
            lr=1e-2,
            schedule="constant",
            lr_final=1e-5,
            warmup=0.25,
            betas=(0.9, 0.999),
            eps=1e-8,
            weight_decay=0.1,
            clip=0.5,
            precision="fp64",
            stop_after=2,
        ),
        eval=Eval(
            seed=1,
            lengths=(10, 20),
            test=32,
            validation=16,
            every=5,
            bins=(10, 15, 20),
            extrapolate=(40,),
            extrapolation=8,
            score="lengths",
            batch=16,
        ),
        seed=3,
        protocol="xlstm",
    )
    text = (
        '{"eval":{"batch":16,"bins":[10,15,20],"every":5,"extrapolate":[40],"extrapolation":8,"lengths":[10,20],'
        '"score":"lengths","seed":1,"test":32,"validation":16},"model":{"d_model":16,"dropout":0.125,'
        '"final_norm":"rms","forget_bias":1.0,"name":"lstm","num_blocks":1,"version":1},"protocol":"xlstm",'
        '"schema":1,"seed":3,"task":{"count":"input","name":"parity","query":"token","supervision":"dense",'
        '"version":1},"train":{"batch":4,"betas":[0.9,0.999],"clip":0.5,"curriculum":[5,9],'
        '"lengths":[3,9],"lengths_per":"batch","lr":0.01,"precision":"fp64","schedule":"constant",'
        '"steps":7,"stop_after":2,"warmup":0.25}}'
    )
    assert json.dumps(run.identity(), sort_keys=True, separators=(",", ":")) == text
    assert run.run_id == "parity-lstm-s3-" + hashlib.sha256(text.encode()).hexdigest()[:10]
    assert run.run_id == "parity-lstm-s3-1b571ff40f"
    left_out = {  # the defaults, which config.json holds all the same
        "task": set(),
        "model": set(),
        "train": {"lr_final", "eps", "weight_decay"},
        "eval": set(),
    }
    for where, names in left_out.items():
        assert set(run.plain()[where]) - set(run.identity()[where]) == names


def test_the_identity_of_defaults_holds_the_names_and_versions_alone() -> None:
    assert Run(task=Parity(), model=LSTMConfig()).identity() == {
        "schema": config.SCHEMA,
        "protocol": "xlstm_20k",
        "task": {"name": "parity", "version": Parity.version},
        "model": {"name": "lstm", "version": LSTMConfig.version},
        "train": {},
        "eval": {},
        "seed": 0,
    }


@dataclass(frozen=True, kw_only=True)
class WiderLSTM(LSTMConfig):
    """The LSTM of a later day, with a setting more."""

    lately_added: float = 0.5


@dataclass(frozen=True, kw_only=True)
class WiderParity(Parity):
    lately_added: int = 2


@dataclass(frozen=True, kw_only=True)
class WiderTrain(Train):
    lately_added: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WiderEval(Eval):
    lately_added: bool = False


@pytest.mark.parametrize(
    ("where", "wider", "other"),
    [
        ("task", WiderParity, 3),
        ("model", WiderLSTM, 0.25),
        ("train", WiderTrain, (1,)),
        ("eval", WiderEval, True),
    ],
)
def test_a_setting_added_later_leaves_old_runs_their_names(where: str, wider: type, other: Any) -> None:
    before = replace(RUN, train=Train(steps=7), eval=Eval(test=9))
    old = plain(getattr(before, where))
    later = replace(
        before, **{where: wider(**old)} if where in ("task", "model") else {where: from_plain(wider, old, where=where)}
    )
    assert later.plain()[where] == before.plain()[where] | {"lately_added": plain(wider())["lately_added"]}
    assert later.run_id == before.run_id and later.identity() == before.identity()
    changed = replace(later, **{where: replace(getattr(later, where), lately_added=other)})
    assert changed.run_id != before.run_id


@pytest.mark.parametrize(
    "run",
    [
        *(replace(RUN, task=task) for task in TASKS),
        *(replace(RUN, model=model) for model in MODELS),
        Run(
            task=ReverseString(decode="teacher", num_symbols=3),
            model=LSTMConfig(d_model=8, dropout=0.5),
            train=Train(steps=9, curriculum=(10, 20), betas=(0.8, 0.9), precision="bf16"),
            eval=Eval(bins=(), score="lengths", extrapolate=()),
            seed=2**63 - 1,
            protocol="deepmind",
        ),
    ],
    ids=lambda run: f"{run.task.name}-{run.model.name}",
)
def test_a_run_survives_its_canonical_tree(run: Run) -> None:
    tree = json.loads(json.dumps(run.plain()))
    assert tree == run.plain()  # JSON values only: no tuple, no path
    again = Run.from_plain(tree)
    assert again == run
    assert type(again.task) is type(run.task) and type(again.model) is type(run.model)
    assert again.run_id == run.run_id
    assert tree == run.plain()  # reading it leaves it as it was


def test_the_tree_names_what_a_class_cannot_say_itself() -> None:
    tree = RUN.plain()
    assert tree["schema"] == config.SCHEMA
    assert (tree["task"]["name"], tree["task"]["version"]) == (Parity.name, Parity.version)
    assert (tree["model"]["name"], tree["model"]["version"]) == (LSTMConfig.name, LSTMConfig.version)


@pytest.mark.parametrize("where", ["task", "model", "train", "eval"])
def test_an_unknown_setting_of_a_record_is_refused(where: str) -> None:
    tree = RUN.plain()
    tree[where] = {**tree[where], "colour": 1}
    assert refusal(lambda: Run.from_plain(tree)).startswith(f"{where} has no setting 'colour'")


def test_an_unknown_setting_gets_a_hint() -> None:
    assert refusal(lambda: from_plain(Train, {"weight_decy": 5}, where="train")) == (
        "train has no setting 'weight_decy'; did you mean weight_decay?"
    )
    assert refusal(lambda: from_plain(Train, {"xyzzy": 5}, where="train")) == "train has no setting 'xyzzy'"
    assert "did you mean d_model?" in refusal(lambda: replaced(LSTMConfig(), {"dmodel": 5}, where="model"))


def test_an_unknown_key_beside_the_parts_is_refused() -> None:
    message = refusal(lambda: Run.from_plain({**RUN.plain(), "colour": 1}))
    assert message == "a record's config has the keys eval, model, protocol, schema, seed, task, train"


@pytest.mark.parametrize("key", ["schema", "protocol", "task", "model", "train", "eval", "seed"])
def test_a_record_without_one_of_its_keys_is_refused(key: str) -> None:
    tree = RUN.plain()
    assert set(tree) == {"schema", "protocol", "task", "model", "train", "eval", "seed"}
    del tree[key]
    assert "has the keys" in refusal(lambda: Run.from_plain(tree))


@pytest.mark.parametrize("schema", [config.SCHEMA + 1, str(config.SCHEMA), None])
def test_a_record_of_another_schema_is_refused(schema: Any) -> None:
    assert "schema" in refusal(lambda: Run.from_plain({**RUN.plain(), "schema": schema}))


def test_a_record_without_a_schema_is_refused() -> None:
    tree = {key: value for key, value in RUN.plain().items() if key != "schema"}
    assert "schema" in refusal(lambda: Run.from_plain(tree))


@pytest.mark.parametrize(("where", "name"), [("task", "parity"), ("model", "lstm")])
def test_a_record_of_another_version_is_refused(where: str, name: str) -> None:
    tree = RUN.plain()
    tree[where] = {**tree[where], "version": 99}
    message = refusal(lambda: Run.from_plain(tree))
    assert name in message and "99" in message


def test_a_record_of_an_unknown_task_is_refused() -> None:
    tree = RUN.plain()
    tree["task"] = {**tree["task"], "name": "partiy"}
    assert "did you mean parity?" in refusal(lambda: Run.from_plain(tree))


def test_replaced_takes_python_values_and_json_ones() -> None:
    assert replaced(Train(), {"lengths": [5, 6]}, where="train") == Train(lengths=(5, 6))
    assert replaced(Train(steps=9), {"lengths": (5, 6), "lr": 1}, where="train") == Train(
        steps=9, lengths=(5, 6), lr=1.0
    )
    assert replaced(Train(steps=9), {}, where="train") == Train(steps=9)
    assert plain(replaced(Eval(), {"test": 5}, where="eval")) == {**plain(Eval()), "test": 5}


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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("device", 0),
        ("threads", 1.0),
        ("threads", True),
        ("threads", None),
        ("backend", "fast"),
        ("checkpoint_every", "1000"),
        ("log_every", 10.0),
        ("results", "results"),
    ],
)
def test_an_execution_of_a_wrong_type_is_refused(name: str, value: Any) -> None:
    assert refusal(lambda: Exec(**{name: value})).startswith(f"exec.{name}")


def test_nothing_of_the_execution_is_in_the_identity() -> None:
    assert not {f.name for f in fields(Exec)} & {f.name for f in chain(fields(Run), fields(Train))}


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


@pytest.mark.parametrize("task", [Parity(supervision="dense"), Parity(), ReverseString(decode="teacher")])
def test_a_task_is_scored_without_its_training_targets(task: Task) -> None:
    scored = without_training_targets(task)
    assert getattr(scored, "supervision", "final") == "final"
    assert {**plain(scored), "supervision": 0} == {**plain(task), "supervision": 0}


def test_results_go_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADDER_RESULTS", str(tmp_path / "elsewhere"))
    assert default_results() == tmp_path / "elsewhere" == Exec().results
    monkeypatch.delenv("LADDER_RESULTS")
    assert default_results() == Path(config.__file__).parents[1] / "results"


def test_every_refusal_of_train_and_eval_is_tried() -> None:
    tried = {name for _, settings in IMPOSSIBLE for name in settings}
    free = {"lengths_per", "schedule", "precision", "score"}  # their types say it all
    assert tried | free >= set(chain.from_iterable([f.name for f in fields(cls)] for cls in (Train, Eval)))
