"""The roofline of a step: rows of every model asked for, beside another checkout, and mistakes in a line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.cases import full

ROOT = Path(__file__).parents[1]
SMALL = ["--length", "4", "--batch", "2", "--parameters", "3000", "--repeats", "2"]
PARTS = ("forward", "backward", "update")


def ran(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "benchmarks" / "roofline.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.full
def test_steps_stand_beside_their_least_and_another_checkouts(tmp_path: Path) -> None:
    done = ran(*SMALL, "--models", "rnn", "--sittings", "1", "--before", str(ROOT), "--out", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    block, rnn = report["rows"]
    assert (block["model"], rnn["model"]) == ("lstm_block", "rnn") and set(report["commits"]) == {"now", "before"}
    for row in (block, rnn):
        assert row["ms"] > 0 and row["before_ms"] > 0 and row["times"] > 0 and len(row["by_sitting"]) == 1
        for part in PARTS:
            assert row[f"{part}_least_ms"] == pytest.approx(row[f"{part}_share"] * row[f"{part}_ms"])
            assert row[f"{part}_binds"] in ("products", "memory")
        assert row["update_binds"] == "memory" and row["operations"]
    # A backward pass does twice the work of a forward pass.
    rate = {part: rnn[f"{part}_gflop_per_s"] * rnn[f"{part}_ms"] for part in PARTS}
    assert rate["backward"] == pytest.approx(2 * rate["forward"]) and rate["update"] == 0
    assert {path.name for path in tmp_path.iterdir()} == {"roofline.md", "roofline.csv", "roofline.json"}
    assert str(tmp_path) not in (tmp_path / "roofline.json").read_text(), (
        "what is committed names no folder of a machine"
    )
    written = (tmp_path / "roofline.md").read_text()
    assert "| rnn |" in written and "times as fast" in written


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["--models", "lstn"], "did you mean lstm"),
        full(["--repeats", "0"], "are at least 1"),
        full(["--before", "/nowhere"], "names a checkout of this project, not /nowhere"),
    ],
)
def test_mistakes_are_a_line(words: list[str], wrong: str) -> None:
    done = ran(*SMALL, *words)
    assert done.returncode == 2 and wrong in done.stderr and "Traceback" not in done.stderr


@pytest.mark.full
def test_what_a_checkout_lacks_has_no_before(tmp_path: Path) -> None:
    """A folder that only looks like a checkout: its workers end, which is said and not hung upon."""
    (tmp_path / "chomsky_ladder").mkdir()
    (tmp_path / "chomsky_ladder" / "__init__.py").write_text("raise ImportError('an older one')\n")
    done = ran(*SMALL, "--models", "rnn", "--sittings", "1", "--before", str(tmp_path))
    assert done.returncode == 2 and "a worker ended: ImportError: an older one" in done.stderr
