"""`ladder list` shows the listing of this very code, from a cache where there is one."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chomsky_ladder.harness.cli import describe, listing
from chomsky_ladder.harness.cli.listing import of_these_sources
from chomsky_ladder.harness.config import rooms

ROOT = Path(__file__).parents[3]


@pytest.fixture
def weighed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each time that tasks and models are weighed; the cache is the test's own."""
    made: list[str] = []

    def made_now() -> dict[str, Any]:
        made.append(listing.key_of_sources())
        return {"tasks": [], "models": [], "problems": []}

    monkeypatch.setattr(listing, "_made", made_now)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return made


def test_it_is_made_once_and_again_after_an_edit(
    weighed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = of_these_sources()
    assert of_these_sources() == first and len(weighed) == 1
    monkeypatch.setattr(listing, "_OTHERS", (*listing._OTHERS, "harness/cli/say.py"))  # as if a source had come
    of_these_sources()
    assert len(weighed) == 2 and weighed[0] != weighed[1]
    of_these_sources()
    assert len(weighed) == 2 and len(list((tmp_path / "cache" / "chomsky-ladder").iterdir())) == 1


@pytest.mark.parametrize("content", ["", "[]", '{"key": 1}', '{"key": '])
def test_a_damaged_cache_is_made_again(weighed: list[str], content: str) -> None:
    of_these_sources()
    file = listing._cache_file()
    assert file is not None
    file.write_text(content)
    assert of_these_sources() == {"tasks": [], "models": [], "problems": []} and len(weighed) == 2
    assert json.loads(file.read_text())["key"] == weighed[0]


def test_a_folder_that_cannot_be_written_costs_time_alone(
    weighed: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert of_these_sources() == of_these_sources()
    assert len(weighed) == 2
    assert set(capsys.readouterr().err.splitlines()) == {"weighing every task and model once for this code .."}


def copied(tmp_path: Path) -> Path:
    """A checkout of its own, whose sources can be changed."""
    for name in ("harness", "models", "tasks"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "chomsky_ladder").mkdir()
    for name in ("harness", "models", "tasks"):
        (tmp_path / "chomsky_ladder" / name).symlink_to(Path("..") / name)
    for path in (ROOT / "chomsky_ladder").glob("*.py"):
        shutil.copy(path, tmp_path / "chomsky_ladder")
    return tmp_path


@pytest.mark.full
def test_it_is_read_without_torch_and_not_for_changed_code(tmp_path: Path) -> None:
    checkout = copied(tmp_path / "checkout")
    code = "import sys; from chomsky_ladder.harness.cli.main import main; main(['list', 'tasks']); "
    code += "print('torch' in sys.modules, file=sys.stderr)"
    environment = os.environ | {"PYTHONPATH": str(checkout), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def said() -> tuple[str, str]:
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600)
        return done.stdout, done.stderr

    first, asked = said()
    *told, has_torch = asked.splitlines()
    assert told[0] == "weighing every task and model once for this code .." and has_torch == "True"
    assert len(told) <= 2, "kernels in C are compiled where the checkout has its own cache"
    assert "  parity: " in first
    assert said() == (first, "False\n")
    task = checkout / "tasks" / "parity.py"
    task.write_text(task.read_text().replace('"""', '"""Something else. ', 1))
    changed, asked = said()
    assert asked == "weighing every task and model once for this code ..\nTrue\n"
    assert "  parity: Something else. " in changed and "  parity: Something else. " not in first
    assert said() == (changed, "False\n"), "kept with the user's caches"


def test_what_a_plugin_brings_is_weighed_beside_what_was_weighed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    weighed: list[str] = []

    def entry(cls: type) -> dict[str, Any]:
        weighed.append(cls.name)
        return {"name": cls.name}

    monkeypatch.setattr(describe, "_listed_model", entry)
    monkeypatch.setattr(describe, "_listed_task", entry)
    whole = describe.listing()
    assert describe.listing(whole) == whole and len(weighed) == len(whole["tasks"]) + len(whole["models"])
    before = whole | {"models": [model for model in whole["models"] if model["name"] != "lstm"]}
    weighed.clear()
    assert describe.listing(before) == whole and weighed == ["lstm"]


def test_what_is_kept_is_weighed_where_no_plugin_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "NAMED", ["mine.py"])
    monkeypatch.setenv(rooms.VARIABLE, "theirs.py")

    def ran(command: list[str], *, env: dict[str, str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        assert command[-2:] == ["list", "--json"] and rooms.VARIABLE not in env
        return subprocess.CompletedProcess(command, 0, stdout=b'{"tasks": []}')

    monkeypatch.setattr(listing.subprocess, "run", ran)
    assert listing._made() == {"tasks": []}
