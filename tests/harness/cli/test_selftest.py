"""The self-test of a machine: each stage finds what it is for; one that is wrong or late says so and stops no other."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from chomsky_ladder.harness.cli import selftest
from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.config.registry import all_models
from chomsky_ladder.harness.train.steps import PlainSteps
from chomsky_ladder.tasks.draw import Draw
from support.cases import full

CPU = torch.device("cpu")


def stage(name: str) -> dict[str, Any]:
    return selftest.one_stage(name, "cpu")


@pytest.mark.parametrize(
    "name",
    ["strings", "scoring", "capture", "compiled", *(full(each) for each in ("kernels", "golden", "speed", "learning"))],
)
def test_a_stage_on_a_cpu(name: str) -> None:
    found = stage(name)
    assert found["ok"] and len(found) > 1
    assert ("skipped" in found) == (name in ("capture", "compiled"))
    json.dumps(found)


def test_strings_of_another_kind_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked = Draw.permutation, []

    def permutation(draw: Draw, size: int) -> torch.Tensor:
        asked.append(size)
        return made(draw, size).flip(1) if len(draw.rows_B) == 16 else made(draw, size)

    monkeypatch.setattr(Draw, "permutation", permutation)
    found = stage("strings")
    assert asked and not found["ok"] and found["wrong"].startswith("other strings than on a CPU: ")
    assert "parity" not in found["wrong"]


def test_a_step_that_is_off_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    advance = PlainSteps.advance

    def off(steps: PlainSteps, *arguments: Any) -> int:
        done = advance(steps, *arguments)
        if steps.pack.backend == "auto":
            steps.pack.weight_RP.mul_(1 + 1e-5)
        return done

    monkeypatch.setattr(PlainSteps, "advance", off)
    monkeypatch.setattr(selftest, "all_models", lambda: ["lstm"])
    found = stage("golden")
    assert not found["ok"] and found["wrong"].startswith("lstm x1 fp64 is off by ")


def test_stages_end_as_lines_and_the_exit_code_says_whether_all_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stage that breaks, and one that takes too long, leave the others theirs."""
    programs = {
        "passes": "print(1); print('{\"ok\": true}')",
        "breaks": "raise RuntimeError('no kernel image')",
        "sleeps": "import time; time.sleep(60)",
    }
    found = selftest._found

    def run(command: list[str], limit: float) -> dict[str, Any]:
        return found([sys.executable, "-c", programs[command[command.index("--stage") + 1]]], limit)

    monkeypatch.setattr(selftest, "_found", run)
    monkeypatch.setattr(selftest, "STAGES", dict.fromkeys(programs))
    monkeypatch.setattr(selftest, "SHARES", {"passes": 50, "breaks": 50, "sleeps": 1})
    words = ["doctor", "--selftest", "--device", "cpu", "--minutes", "1", "--out", str(tmp_path)]
    assert main(words) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["stage"], row["ok"]) for row in rows] == [("passes", True), ("breaks", False), ("sleeps", False)]
    assert [row.get("wrong") for row in rows[1:]] == ["RuntimeError: no kernel image", "over its 1 s"]
    assert [json.loads(line) for line in (tmp_path / "selftest.jsonl").read_text().splitlines()] == rows
    del programs["breaks"], programs["sleeps"], selftest.STAGES["breaks"], selftest.STAGES["sleeps"]
    assert main(words) == 0


def test_processes_share_the_models_of_a_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error in one process fails the stage. A stage without models runs in one process."""
    begun: list[str] = []

    def found(command: list[str], limit: float) -> dict[str, Any]:
        which = command[command.index("--part") + 1]
        begun.append(f"{command[command.index('--stage') + 1]} {which}")
        is_wrong = which == "2/3"
        return {"ok": not is_wrong, "compared": {f"model of {which}": [0.0]}} | ({"wrong": "off"} if is_wrong else {})

    monkeypatch.setattr(selftest, "_found", found)
    monkeypatch.setattr(selftest, "STAGES", {name: selftest.STAGES[name] for name in ("strings", "golden")})
    assert main(["doctor", "--selftest", "--device", "cpu", "--jobs", "3"]) == 1
    strings, golden = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert sorted(begun) == ["golden 1/3", "golden 2/3", "golden 3/3", "strings 1/1"]
    assert strings["ok"] and not golden["ok"] and golden["wrong"] == "off"
    assert list(golden["compared"]) == ["model of 1/3", "model of 2/3", "model of 3/3"]


def test_parts_are_all_of_a_stages_models(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    monkeypatch.setattr(selftest, "_compared", lambda device, models, *_, **__: compared.extend(models) or {})
    for which in (1, 2, 3):
        assert selftest.one_stage("golden", "cpu", (which, 3))["ok"]
    assert sorted(compared) == sorted(all_models()) and len(set(compared)) == len(compared)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--stage", "golden", "--part", "3/2"], "--part must be I/N, such as 2/8, not '3/2'"),
        (["--stage", "golden", "--part", "all"], "--part must be I/N, such as 2/8, not 'all'"),
        (["--part", "2/3"], "--part and --models need one stage: add --stage NAME"),
        (["--models", "lstm"], "--part and --models need one stage: add --stage NAME"),
        (["--stage", "kernels", "--models", "lsmt"], "unknown model 'lsmt'; did you mean lstm"),
        (["--selftest", "--jobs", "-1"], "--jobs must not be negative, not -1"),
        (["--stage", "luck"], "no stage is called 'luck'; there are environment, "),
        (["--selftest", "--minutes", "0"], "--minutes must be positive, not 0"),
        (["--selftest", "--device", "cuda:77"], "device 'cuda:77'"),
    ],
)
def test_refusals(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *words]) == 2
    assert said in capsys.readouterr().err
