"""The soak in small: it finds nothing where nothing is wrong, and whatever was changed behind its back."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from chomsky_ladder.harness.store.finished import sealed

FOLDER = Path(__file__).parent


@pytest.fixture
def soak() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        import soak

        yield soak


@pytest.mark.full
def test_a_result_changed_between_rounds_is_found(soak: ModuleType, tmp_path: Path) -> None:
    kinds = ["sweep", "table", "status", "clean RUN_ID"]
    soaked = soak.Soak(tmp_path / "out", seed=5, cells="parity-lstm", seeds=2, kinds=kinds, looks=["table"])
    try:
        soaked.prepare()
        soaked.round(4.0)
        soaked.must(soaked.commands.sweep(0, soaked.shared))
        soaked.compare(soaked.shared)
        assert not soaked.findings and soaked.started.total() > 4 and len(soaked.weights) == 2
        run_id = soaked.run_ids[1]
        folder = soaked.shared / "runs" / run_id
        result = json.loads((folder / "result.json").read_text())
        result["test"]["loss"] += 1e-6
        (folder / "result.json").write_bytes(sealed(result, folder / "metrics.jsonl"))
        (folder / "clock.17").touch()
        soaked.must(["table", "--results", str(soaked.shared)])
        soaked.compare(soaked.shared)
    finally:
        soaked.close()
    assert list(soaked.findings) == [
        f"shared/{run_id}: result.json has other values than one never killed: ['test']",
        "shared/records.csv: other values than of runs never killed: ['test_loss']",
        f"shared/: left behind: ['runs/{run_id}/clock.17']",
    ]
    assert not soak.checks.processes_of(soaked.mark) and not list(soaked.other.iterdir())


@pytest.mark.parametrize(
    ("word", "code", "said", "signals", "found"),
    [
        ("table", 0, "", [], ""),
        ("table", 1, "", [], "exit code 1: "),
        ("table", 2, "ladder: no finished runs under a", [], ""),
        ("table", 2, "ladder: records.csv is damaged", [], "exit code 2: ladder: records.csv is damaged"),
        ("sweep", 143, "", [15], ""),
        ("sweep", -9, "", [], "exit code -9: "),
        ("merge", 1, "a has other numbers in b; kept as it is here", [], "exit code 1: "),
        ("page", -2, "Traceback\n  File cli/main.py\nKeyboardInterrupt", [2], "it says: Traceback"),
    ],
)
def test_what_a_command_may_end_with(
    soak: ModuleType, word: str, code: int, said: str, signals: list[int], found: str
) -> None:
    assert not soak.checks.is_pythons(said, signals)
    messages = list(soak.checks.judge(word, code, said, signals, is_short=False))
    assert messages[:1] == [] if not found else messages[0].startswith(found)
