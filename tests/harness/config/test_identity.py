"""A run's identity: one for equal choices, another for any other choice, and the same after later additions."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from chomsky_ladder.harness.config import run as config
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.parts import from_plain, plain, replaced
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.models.transformer import TransformerConfig
from chomsky_ladder.tasks.even_pairs import EvenPairs
from chomsky_ladder.tasks.parity import Parity
from support.run_and_refusal import MODELS, RUN, TASKS, refusal, with_part

CHOICES = [
    (where, part, field.name)
    for where, parts in (("task", TASKS), ("model", MODELS), ("train", [Train()]), ("eval", [Eval()]))
    for part in parts
    for field in fields(part)
    if field.name not in ("file", "file_sha256")  # tests/harness/config/test_frozen.py
]
TEXTS = ("(aa)*b*", "abc", "even: a>odd b>even; odd: a>even b>odd; accept odd", "mamba,lstm_block", "1:0", "7:1")


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
    elif hint is str:
        yield from (text for text in TEXTS if text != value)
    elif hint is int:
        yield from {value + 1, value * 2, value * 4} - {value}
    else:
        assert hint is float, f"teach this test what another {hint} is"
        yield from {value / 2, value + 0.25} - {value}


def reordered(tree: Any) -> Any:
    """The same JSON tree with every object's keys in the opposite order."""
    return {key: reordered(tree[key]) for key in reversed(tree)} if isinstance(tree, dict) else tree


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


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1])
def test_another_seed_is_that_of_a_run_made_with_it(seed: int) -> None:
    assert RUN.with_seed(seed) == replace(RUN, seed=seed)
    assert RUN.with_seed(seed).run_id == replace(RUN, seed=seed).run_id


@pytest.mark.parametrize("seed", [-1, 2**32, True, "1", 1.0])
def test_another_seed_is_a_seed(seed: Any) -> None:
    assert refusal(lambda: RUN.with_seed(seed)) == refusal(lambda: replace(RUN, seed=seed))


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
        "model": {"before_head", "ends_init", "short_conv", "conv_places", "feedback"},
        "train": {"lr_final", "eps", "weight_decay", "decayed", "loss_over", "qat", "stop_above", "examples"}
        | {"cut", "passed", "next_symbol", "next_set", "base", "lora_rank", "lora_layers", "lora_ends"},
        "eval": {"lengths_by", "validate", "file", "file_sha256"},
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


def test_nothing_of_the_execution_is_in_the_identity() -> None:
    assert not {f.name for f in fields(Exec)} & {f.name for f in chain(fields(Run), fields(Train))}
