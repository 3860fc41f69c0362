"""The frozen suites say today what they said when they were written."""

import hashlib
import importlib.util
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from chomsky_ladder.harness.config import presets
from chomsky_ladder.harness.config.parts import default_settings, plain, replaced
from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.config.protocols import grid, identity_of, preset_run
from chomsky_ladder.harness.config.registry import find_task
from chomsky_ladder.harness.train import suite
from chomsky_ladder.tasks.parity import Parity

ROOT = Path(__file__).parents[3]
SUITES = {  # these never change
    "climb-v1": "0533b75c7addb425ce24bc44047da313a6c5668b130c3cf0a1ed5377009513cc",
    "climb-v2": "847b73fe3868cacc219c8bbc6d8445890d21bce3bda65ca573e440bf9d1266db",
    "fifteen-v1": "969582ddb8d515b59478e104d84f806613832332e2712cc5fa7eeb38b8e6f03e",
    "ladder-v1": "ba371c41feadbf602b6a63e754a80a4814e3af555db7d6cdd3a01189fa716789",
    "text-v1": "b7274fa30a40c35d43e61be727a588b24c3709030d085c0161e14ab75b4cd4cd",
}
# Settings of training, scoring and tasks that came later; off by default, which is what the suites were frozen with.
LATER_OFF = {"qat", "base", "lora_rank", "lora_layers", "lora_ends", "decayed", "loss_over", "stop_above"}
LATER_OFF |= {"lengths_by", "every_length", "examples", "pick", "tokens_per", "asks", "reveal", "undo"}
LATER_OFF |= {"held_pairs", "observe", "effect"}
LATER_OFF |= {"cut", "passed", "next_symbol", "next_set", "noise", "validate", "silence", "nesting"}


def test_no_suite_was_touched() -> None:
    files = {path.stem: path.read_bytes() for path in (ROOT / "harness" / "config" / "suites").glob("*.json")}
    assert {name: hashlib.sha256(content).hexdigest() for name, content in files.items()} == SUITES


def test_an_edited_suite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of it would stand in tables as the suite's; a file of another name is another suite."""
    shutil.copytree(ROOT / "harness" / "config" / "suites", tmp_path / "suites")
    monkeypatch.setattr(presets, "files", lambda package: tmp_path)
    edited = tmp_path / "suites" / "climb-v1.json"
    shutil.copy(edited, edited.with_name("mine-v1.json"))
    assert set(presets.frozen_suites()) == {*SUITES, "mine-v1"}
    edited.write_text(edited.read_text().replace('"steps": 2000', '"steps": 200'))
    with pytest.raises(ValueError, match=r"^climb-v1\.json is not as it was frozen.*: put it back, or rename it$"):
        presets.frozen_suites()


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_leaves_nothing_to_a_default(name: str) -> None:
    frozen, run = PROTOCOLS[name], preset_run("parity", "lstm", protocol=name)
    assert set(plain(run.train)) - LATER_OFF == set(frozen.train) - LATER_OFF
    assert set(plain(run.eval)) - LATER_OFF == (set(frozen.eval) | {"file", "file_sha256"}) - LATER_OFF
    assert set(frozen.table) == set(frozen.tasks) == set(frozen.versions)
    assert set(frozen.table) == (set(frozen.strings) or {rung.task for rung in frozen.rungs})
    for task in frozen.table:
        of_task, later = plain(preset_run(task, "lstm", protocol=name).task), default_settings(find_task(task))
        off = {name: later[name] for name in LATER_OFF & set(of_task)}
        assert of_task == off | frozen.tasks[task]


@pytest.mark.parametrize(
    ("name", "task", "settings", "strings"),
    [(name, task, {}, strings) for name in SUITES for task, strings in PROTOCOLS[name].strings.items()]
    + [(name, rung.task, rung.settings, rung.strings) for name in SUITES for rung in PROTOCOLS[name].rungs],
)
def test_the_strings_of_a_suite_are_those_it_was_frozen_with(
    name: str, task: str, settings: dict[str, object], strings: str
) -> None:
    run = preset_run(task, "lstm", protocol=name)
    drawn = replaced(run.task, settings, where="task")
    assert suite.strings_hash(drawn, lengths=run.eval.lengths, seed=run.eval.seed) == strings


def test_the_hash_is_of_the_strings() -> None:
    one = suite.strings_hash(Parity(), lengths=(40, 256), seed=0)
    assert one == suite.strings_hash(Parity(supervision="dense"), lengths=(40, 256), seed=0)  # scored alike
    others = [
        suite.strings_hash(Parity(), lengths=(40, 255), seed=0),
        suite.strings_hash(Parity(), lengths=(40, 256), seed=1),
    ]
    assert len({one, *others}) == 3


def test_a_default_that_moves_leaves_a_suite_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    before = preset_run("mod_arithmetic", "lstm", protocol="ladder-v1").task
    cls = find_task("mod_arithmetic")
    monkeypatch.setattr(cls.__init__, "__kwdefaults__", {**cls.__init__.__kwdefaults__, "modulus": 7})
    assert cls().modulus == 7
    from chomsky_ladder.harness.config import protocols

    protocols._preset.cache_clear()
    try:
        assert preset_run("mod_arithmetic", "lstm", protocol="ladder-v1").task == before
        assert preset_run("mod_arithmetic", "lstm", protocol="xlstm").task != before
    finally:
        protocols._preset.cache_clear()


def test_another_version_of_a_task_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = PROTOCOLS["ladder-v1"]
    monkeypatch.setitem(PROTOCOLS, "older", replace(frozen, versions=frozen.versions | {"parity": 0}))
    with pytest.raises(ValueError, match=r"^older has version 0 of parity, and this code makes 1$"):
        grid("parity", "lstm", protocol="older")
    run = preset_run("even_pairs", "lstm", protocol="older")
    assert (identity_of(run).protocol, identity_of(run).task) == ("older", "even_pairs")


def test_a_suite_is_frozen_once(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("freeze", ROOT / "scripts" / "freeze.py")
    freeze = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(freeze)
    assert freeze.main(["ladder-v1"]) == 2 and "take another name" in capsys.readouterr().err
    assert freeze.main([]) == 2 and freeze.main(["../x"]) == 2
    file = json.loads((ROOT / "harness/config/suites/ladder-v1.json").read_text())
    today = json.loads(json.dumps(freeze.languages()))
    for part in (today["train"], today["eval"], *today["tasks"].values()):
        for name in LATER_OFF & set(part):
            del part[name]
    assert {name for name in file if file[name] != today[name]} == set()
