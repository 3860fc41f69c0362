"""A record's identity is data; labels are made of it, and only those of records from before are ever read."""

import csv
import json
import re
from pathlib import Path

import pytest

from chomsky_ladder.harness.config.protocols import columns_of, identity_of, preset_run
from chomsky_ladder.harness.config.registry import all_models, all_tasks
from chomsky_ladder.harness.store.labels import COLUMNS, TRAITS, Identity
from chomsky_ladder.harness.store.record import Record, recorded
from support.records_by_hand import record

ROOT = Path(__file__).parents[3]


def of(protocol: str = "xlstm", task: str = "parity", model: str = "lstm") -> Identity:
    return Identity.of({"protocol": protocol, "task": task, "model": model})


@pytest.mark.parametrize(
    ("label", "settings"),
    [
        ("quick", {}),
        ("quick (train.steps=9, train.lr_final=1e-05)", {"train.steps": 9, "train.lr_final": 1e-05}),
        (
            "quick (train.lengths=3..40, train.betas=0.9..0.999)",
            {"train.lengths": [3, 40], "train.betas": [0.9, 0.999]},
        ),
        ("quick (eval.extrapolate=512)", {"eval.extrapolate": [512]}),  # a list of one is no number
        ("quick (eval.extrapolate=)", {"eval.extrapolate": []}),
        ("quick (train.lora_layers=blocks.0.*,*.weight_hh)", {"train.lora_layers": "blocks.0.*,*.weight_hh"}),
        ("quick (eval.file=0123456789ab)", {"eval.file_sha256": "0123456789ab"}),
        ("quick (task.supervision=dense)", {"task.supervision": "dense"}),
    ],
)
def test_a_protocols_label_of_before_is_read_once_and_made_again(label: str, settings: dict) -> None:
    identity = of(protocol=label)
    assert identity.protocol == label and identity.protocol_name == "quick" and identity.settings == settings


@pytest.mark.parametrize(
    ("label", "name", "settings"),
    [
        ("regular (pattern=(a, b)*)", "regular", {"task.pattern": "(a, b)*"}),
        ("regular (pattern=(ab|ba)*a?, seed=3)", "regular", {"task.pattern": "(ab|ba)*a?", "task.seed": 3}),
        ("walnut v2 (deep=True, size=None)", "walnut", {"task.version": 2, "task.deep": True, "task.size": None}),
        ("of (old", "of (old", {}),
        ("of old", "of old", {}),
        ("regular (a b)", "regular (a b)", {}),  # nothing that was made: a name as it stands
    ],
)
def test_a_tasks_label_of_before(label: str, name: str, settings: dict) -> None:
    identity = of(task=label)
    assert (identity.task, identity.task_name, identity.settings) == (label, name, settings)


def test_columns_give_the_identity_back() -> None:
    run = preset_run("word_problem", "xlstm", protocol="xlstm_cpu")
    for task in all_tasks().values():
        for model in [found for found in all_models().values() if found[0]().stepwise][:3]:
            run = preset_run(task[0].name, model[0].name, protocol="xlstm")
            identity = identity_of(run)
            assert Identity.of(identity.columns()) == identity == Identity.of(columns_of(run))
            assert identity.labels() == {"protocol": "xlstm", "task": run.task.name, "model": run.model.name}


def test_the_committed_records_say_the_same_by_their_labels_alone() -> None:
    path = ROOT / "results" / "records.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row, kept in zip(rows, recorded(path).values(), strict=True):
        before = {name: value for name, value in row.items() if name not in (*COLUMNS, "traits") and value != ""}
        assert told(Record.model_validate(before)) == told(kept)


def told(one: Record) -> dict[str, object]:
    """Return a record's columns with settings in any order, and without traits that came after the column."""
    tree = one.model_dump()
    later = {} if one.task_name in TRAITS else {"traits": ""}
    return tree | {"settings": json.loads(tree["settings"])} | later


def test_a_label_that_says_something_else_than_the_columns_is_made_anew() -> None:
    told = record(model="lstm (d_model=8)") | {"model": "mamba"}
    assert Record.model_validate({k: v for k, v in told.items() if v is not None}).model == "lstm (d_model=8)"


def test_no_other_module_reads_a_label() -> None:
    """Nothing outside store/labels.py takes a label's settings apart."""
    asking = re.compile(r"""(?:partition|split|removesuffix)\(["'] ?\(?["']\)|split\(["'] ["']\)""")
    assert all(asking.search(f"label.{way}") for way in ("partition(' (')", "split(' ')[0]", "removesuffix(' (')"))
    assert [path for path in (ROOT / "harness").rglob("*.py") if asking.search(path.read_text())] == []
