"""What `ladder list` shows is of this very code, kept or made, and made only once."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from chomsky_ladder.harness.cli import listing
from chomsky_ladder.harness.cli.listing import SHIPPED, key_of_sources, listed

ROOT = Path(__file__).parents[3]


def test_the_shipped_listing_is_of_these_sources() -> None:
    """Where this fails, `python scripts/golden.py --missing` writes it."""
    if any(listing.entry_points(group=group) for group in listing.GROUPS):
        pytest.skip("a plugin is installed here")
    assert json.loads(SHIPPED.read_text())["key"] == key_of_sources()


@pytest.mark.full
def test_the_shipped_listing_is_what_would_be_made() -> None:
    made = json.loads(json.dumps(listed()))  # by tests, the registry has been asked already
    kept = json.loads(SHIPPED.read_text())["listing"]
    assert {task["name"] for task in kept["tasks"]} == {task["name"] for task in made["tasks"]}
    for one, other in zip(kept["tasks"], made["tasks"], strict=True):
        floors, others = one.pop("floors"), other.pop("floors")
        assert one == other and floors == pytest.approx(others, abs=1e-9)
    assert kept["models"] == made["models"] and kept["protocols"] == made["protocols"]


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

    first, torch_was_there = said()
    assert torch_was_there == "False\n" and "  parity: " in first
    task = checkout / "tasks" / "parity.py"
    task.write_text(task.read_text().replace('"""', '"""Something else. ', 1))
    changed, asked = said()
    assert asked == "weighing every task and model once for this code ..\nTrue\n"
    assert "  parity: Something else. " in changed and "  parity: Something else. " not in first
    assert said() == (changed, "False\n"), "kept with the user's caches"
