"""A run imports its own model and task and none of the others, and means by their names what everybody else means."""

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from chomsky_ladder.harness.config import rooms
from chomsky_ladder.harness.config.registry import _MODELS as MODELS
from chomsky_ladder.harness.config.registry import _TASKS as TASKS

IMPORTED = """
import json, sys
from chomsky_ladder.harness.config.protocols import preset_run
run = preset_run({task!r}, {model!r})
found = [sys.modules[type(part).__module__].__file__ for part in (run.task, run.model)]
folders = ("chomsky_ladder.tasks.", "chomsky_ladder.models.")
print(json.dumps([run.run_id, found, sorted(name for name in sys.modules if name.startswith(folders))]))
"""


def imported(task: str, model: str, **environment: str) -> tuple[str, list[str], set[str]]:
    """Return our tasks and models that a process imports if it only resolves a run."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED.format(task=task, model=model)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | environment,
    )
    run_id, found, modules = json.loads(done.stdout)
    return run_id, found, {name.rpartition(".")[2] for name in modules}


@pytest.fixture
def nothing_installed() -> None:
    if any(rooms.entry_points(group=group) for group in ("ladder.tasks", "ladder.models", "ladder.kernels")):
        pytest.skip("a plugin is installed here, which is imported")


@pytest.mark.full
def test_a_run_imports_its_own_files_and_no_others(nothing_installed: None) -> None:
    _, found, modules = imported("parity", "lstm")
    assert [Path(file).name for file in found] == ["parity.py", "lstm.py"]
    assert not {"mamba", "xlstm", "hybrid", "flip_flop", "othello", "dyck"} & modules


@pytest.mark.full
def test_one_that_names_other_models_knows_them_all(nothing_installed: None) -> None:
    assert {"hybrid", "mamba", "xlstm", "lstm"} <= imported("parity", "hybrid")[2]
    assert [model.name for model in MODELS.all() if model.names_others] == ["autoencoder", "hybrid"]


@pytest.mark.full
def test_the_run_is_the_same_however_its_classes_were_found(tmp_path: Path) -> None:
    plugin = tmp_path / "nothing.py"
    plugin.write_text("")
    alone, found, _ = imported("parity", "lstm")
    among_all, same, modules = imported("parity", "lstm", LADDER_PLUGINS=str(plugin))
    assert (alone, found) == (among_all, same) and {"mamba", "othello"} <= modules


def test_every_one_of_ours_is_at_hand_or_says_that_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of a name gives the same class as the room. If a file has several, only exploring tells."""
    expected = {(room.what, name): room.find(name) for room in (TASKS, MODELS) for name in room.names()}
    monkeypatch.setattr(rooms, "_explored", set[str]())
    monkeypatch.setattr(rooms, "installed", lambda group: ())
    monkeypatch.delenv(rooms.VARIABLE, raising=False)
    found = {(what, name): (TASKS if what == "task" else MODELS).at_hand(name) for what, name in expected}
    known = {key: cls for key, cls in found.items() if cls is not None}
    assert len(known) > 0.8 * len(expected) and known == {key: expected[key] for key in known}


def a_room(folder: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> rooms.Room:
    package = folder / f"room_{folder.name}"
    package.mkdir()
    (package / "__init__.py").write_text("ENTRIES = []\n")
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(rooms, "_rooms", [])
    entries = __import__(package.name).ENTRIES
    return rooms.open_room("nut", package.name, f"ladder.{package.name}", entries)


NUT = """
import {package} as room
class Nut:
    name = {name!r}
room.ENTRIES.append(Nut)
"""


def test_a_file_that_fails_or_holds_another_name_is_left_to_exploring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = f"room_{tmp_path.name}"
    hazel = NUT.format(package=package, name="hazel")
    files = {
        "hazel": hazel,
        "broken": hazel.replace("hazel", "broken") + "1 / 0\n",
        "odd": hazel.replace("hazel", "pea"),
    }
    room = a_room(tmp_path, files, monkeypatch)
    assert room.at_hand("hazel").name == "hazel" and f"{package}.odd" not in sys.modules
    assert [room.at_hand(name) for name in ("broken", "odd", "wal.nut", "_hidden", "none")] == [None] * 5
    assert [entry.name for entry in room.entries] == ["hazel", "pea"]  # nothing of the broken one stays
    monkeypatch.setattr(rooms, "_problems", [])
    assert room.names() == ["hazel", "pea"] and "broken.py does not import: ZeroDivisionError" in rooms._problems[0]
    assert room.at_hand("hazel") is None  # explored: the room itself says


def test_where_a_plugin_is_installed_or_named_the_room_is_explored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = a_room(tmp_path, {"hazel": NUT.format(package=f"room_{tmp_path.name}", name="hazel")}, monkeypatch)
    monkeypatch.setenv(rooms.VARIABLE, "mine.py")
    assert room.at_hand("hazel") is None
    monkeypatch.delenv(rooms.VARIABLE)
    entry = EntryPoint(name="mine", value="mine", group=room.group)
    monkeypatch.setattr(rooms, "installed", lambda group: (entry,))
    assert room.at_hand("hazel") is None
