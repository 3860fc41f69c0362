"""Tasks and models give the very strings and losses that are on record for their versions."""

import importlib.util
import json
from pathlib import Path

import pytest

from chomsky_ladder.harness.config.registry import all_models, all_tasks

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("golden", ROOT / "scripts" / "golden.py")
golden = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(golden)

HASHES, LOSSES = (json.loads((golden.FOLDER / f"{name}.json").read_text()) for name in ("tasks", "losses"))


@pytest.mark.parametrize("name", sorted(all_tasks()))
def test_first_batch(name: str) -> None:
    cls = all_tasks()[name][0]
    assert HASHES.get(name) == {"version": cls.version, "sha256": golden.task_hash(cls())}, (
        f"{name} makes other strings than on record: raise its version and run scripts/golden.py"
    )


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("name", sorted(all_models()))
def test_first_losses(name: str, backend: str) -> None:
    recorded = LOSSES[name]
    assert recorded["version"] == all_models()[name][0].version
    assert golden.first_losses(name, backend=backend) == pytest.approx(recorded["losses"], rel=1e-9)


def test_the_defaults_behind_the_identities() -> None:
    """A run is named by what differs from its defaults, so a default may change only with a version."""
    recorded = json.loads((golden.FOLDER / "defaults.json").read_text())
    for name, part in golden.defaults().items():
        known = recorded.get(name, {})
        kept = {key: value for key, value in part.items() if key in known}
        assert kept == known, f"a default of {name} changed: raise its version and run scripts/golden.py"
        assert set(part) == set(known), f"{name} has new settings: run scripts/golden.py --missing"


def test_the_records_name_nothing_else() -> None:
    assert sorted(HASHES) == sorted(all_tasks())
    assert sorted(LOSSES) == sorted(all_models())


def test_values_of_another_clone_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(golden.titles, "FILE", tmp_path / "titles.json")
    monkeypatch.setattr(golden, "FOLDER", tmp_path / "golden")
    assert golden.main(["--missing"]) == 2 and "set PYTHONPATH to that clone" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
