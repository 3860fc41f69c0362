"""A run survives its canonical tree, and a record of another shape, version or task is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chomsky_ladder.harness.config import run as config
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.parts import from_plain, plain, replaced
from chomsky_ladder.harness.config.run import Eval, Run, Train, without_training_targets
from chomsky_ladder.harness.store.places import default_results
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.tasks.base import Task
from chomsky_ladder.tasks.parity import Parity
from chomsky_ladder.tasks.reverse_string import ReverseString
from support.run_and_refusal import MODELS, RUN, TASKS, refusal


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
            seed=2**32 - 1,
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


@pytest.mark.parametrize(
    "changes", [{"task": {}}, {"task": 3}, {"model": {"name": ["lstm"]}}, {"model": {"name": "own"}, "plugins": 3}]
)
def test_a_config_that_is_no_runs_is_refused(changes: dict[str, Any]) -> None:
    assert refusal(lambda: Run.from_plain(RUN.plain() | changes)) == "its config.json is no run's"


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


@pytest.mark.parametrize("task", [Parity(supervision="dense"), Parity(), ReverseString(decode="teacher")])
def test_a_task_is_scored_without_its_training_targets(task: Task) -> None:
    scored = without_training_targets(task)
    assert getattr(scored, "supervision", "final") == "final"
    assert {**plain(scored), "supervision": 0} == {**plain(task), "supervision": 0}


def test_results_go_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADDER_RESULTS", str(tmp_path / "elsewhere"))
    assert default_results() == tmp_path / "elsewhere" == Exec().results
    monkeypatch.delenv("LADDER_RESULTS")
    assert default_results() == Path(__file__).parents[3] / "results" / "mine" == Exec().results
    monkeypatch.chdir(tmp_path)
    assert default_results() == Path("results")
