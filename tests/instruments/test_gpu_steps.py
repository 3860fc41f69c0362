"""Steps timed on a GPU, as far as it goes without one."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

FOLDER = Path(__file__).parent
pytestmark = pytest.mark.full
READIES = "print('ready', flush=True); input(); print('{}', flush=True)"


@pytest.fixture
def gpu_steps() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        import gpu_steps

        yield gpu_steps


@pytest.mark.parametrize(
    ("words", "there", "said"),
    [
        ([], False, "this takes a CUDA device"),
        (["--models", "lstm", "no_such"], True, "unknown model 'no_such'"),
        (["--models", "lstm[0:1]"], True, "ratio"),
        (["--jobs", "0"], True, "--replicas and --jobs must be positive"),
        (["--replicas", "9", "0"], True, "--replicas and --jobs must be positive"),
        (["--minutes", "-1"], True, "--minutes not negative"),
        (["--models", "lstm", "--out", "/dev/null/tables"], True, "Not a directory"),
    ],
)
def test_what_it_cannot_take_is_one_line_before_any_work(
    gpu_steps: ModuleType,
    words: list[str],
    there: bool,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    with pytest.raises(SystemExit) as ended:
        gpu_steps.main(["--out", str(tmp_path / "tables"), *words])
    assert ended.value.code == 2 and said in capsys.readouterr().err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def programs(gpu_steps: ModuleType, monkeypatch: pytest.MonkeyPatch, of: dict[str, str]) -> None:
    """Replace the process that takes steps by a program for each model."""
    real = subprocess.Popen

    def program(words: list[str], **how: Any) -> Any:
        return real([sys.executable, "-c", of[words[words.index("--one") + 1]]], **how)

    monkeypatch.setattr(subprocess, "Popen", program)
    properties = type("Properties", (), {"total_memory": 80 << 30})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)


def settle() -> None:
    time.sleep(0.1)


def rows(gpu_steps: ModuleType, models: list[str], **asked: Any) -> list[dict[str, Any]]:
    jobs = [(model, 9) for model in models]
    return list(gpu_steps.rows_of(jobs, [], **{"at_once": 2, "mib": {}, "still": [], "settle": settle} | asked))


def test_what_breaks_costs_its_own_row(gpu_steps: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    good = READIES.replace("{}", json.dumps({"model": "good", "ms": 2.0}).replace('"', '\\"'))
    late = "print('ready', flush=True); input(); raise ValueError('after all')"
    early = "raise RuntimeError('at once')"
    programs(gpu_steps, monkeypatch, {"good": good, "late": late, "early": early})
    found = {row["model"]: row for row in rows(gpu_steps, ["early", "good", "late"])}
    assert found["good"] == {"model": "good", "ms": 2.0, "error": None}
    assert found["early"]["error"] == "exit 1: RuntimeError: at once"
    assert found["late"]["error"] == "exit 1: ValueError: after all"


def test_all_others_stand_still_while_one_is_timed(
    gpu_steps: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The one that is timed looks whether others, which count all the time, have counted on meanwhile."""
    counting = (
        "import time, pathlib\nn = 0\nwhile True:\n n += 1; pathlib.Path({!r}).write_text(str(n)); time.sleep(.01)"
    )
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    timed = (
        "import json, pathlib, time\n"
        f"paths = [pathlib.Path(p) for p in ({str(inside)!r}, {str(outside)!r})]\n"
        "while not all(p.exists() and p.read_text() for p in paths): time.sleep(.01)\n"
        "print('ready', flush=True); input(); before = [p.read_text() for p in paths]; time.sleep(.3)\n"
        "print(json.dumps({'model': 'timed', 'same': before == [p.read_text() for p in paths]}), flush=True)"
    )
    beside = subprocess.Popen([sys.executable, "-c", counting.format(str(outside))], start_new_session=True)
    programs(gpu_steps, monkeypatch, {"timed": timed, "counts": counting.format(str(inside))})
    try:
        found = gpu_steps.rows_of(
            [("counts", 9), ("timed", 9)], [], at_once=2, mib={}, still=[beside.pid], settle=settle
        )
        assert next(found) == {"model": "timed", "same": True, "error": None}
        there = outside.read_text()
        for _ in range(200):
            if outside.read_text() not in ("", there):
                break
            time.sleep(0.05)
        assert outside.read_text() != there
        found.close()
    finally:
        beside.send_signal(signal.SIGKILL)
        beside.wait()


def test_no_more_begin_than_the_memory_has_room_for(gpu_steps: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[str, int]] = []
    real = gpu_steps.Process

    def process(script: str, model: str, *others: Any) -> Any:
        begun.append((model, len(begun)))
        return real(script, model, *others)

    programs(gpu_steps, monkeypatch, dict.fromkeys("abc", READIES.replace("{}", '{\\"model\\": 1}')))
    monkeypatch.setattr(gpu_steps, "Process", process)
    mib = {("a", 9): 70_000, ("b", 9): 70_000, ("c", 9): 5_000}
    assert len(rows(gpu_steps, ["a", "b", "c"], at_once=3, mib=mib)) == 3
    assert [model for model, _ in begun] == ["a", "c", "b"]


def test_a_pack_gains_over_single_runs(gpu_steps: ModuleType) -> None:
    single, pack = ({"model": "lstm", "replicas": count, "ms": ms} for count, ms in ((1, 1.0), (9, 2.0)))
    other = {"model": "gru", "replicas": 9, "error": "late"}
    gains = [row["gain"] for row in gpu_steps.with_gains([pack, single, other, pack | {"commit": "another"}])]
    assert gains == [4.5, None, None, None]


def test_others_go_on_also_where_timing_breaks(gpu_steps: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, signal.Signals]] = []
    monkeypatch.setattr(os, "killpg", lambda group, what: sent.append((group, what)))
    with pytest.raises(SystemExit), gpu_steps.alone([], [7], lambda: sent.append((0, signal.SIGUSR1))):
        raise SystemExit(1)
    assert sent == [(7, signal.SIGSTOP), (0, signal.SIGUSR1), (7, signal.SIGCONT)]


def test_what_others_have_launched_is_waited_for(gpu_steps: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = object.__new__(gpu_steps.Idle)
    took = iter([9.0, 1.0, 1.0, 1.0, 1.05, 5.0, 1.0, 1.05, 1.0])
    idle.least = 1.0
    monkeypatch.setattr(gpu_steps.Idle, "took", lambda _: next(took))
    idle.wait()
    assert next(took, None) is None  # three quiet copies in a row


def test_kernels_stand_in_a_table_of_their_own(gpu_steps: ModuleType, tmp_path: Path) -> None:
    kernels, by = gpu_steps.step_kernels, {"device": "H", "commit": "abc", "torch": "2"}
    many = [(f"k{place}", 1.0, 10.0 - place / 2) for place in range(14)]
    for step, found in (("lstm", [("old", 1.0, 1.0)]), ("gru", [("one", 2.0, 30.0)]), ("lstm", many)):
        kernels.write(kernels.rows_of({"model": step, "replicas": 9}, found, by), tmp_path)
    lines = (tmp_path / "gpu_kernels.csv").read_text().splitlines()
    assert lines[1] == "gru,9,1,one,2,30.0,100.0,H,abc" and lines[2].startswith("lstm,9,1,k0,1,10.0,")
    assert len(lines) == 1 + 1 + 13 and lines[-1].startswith("lstm,9,13,rest,2,7.5,")
    assert "| lstm | 9 | 13 | rest |" in (tmp_path / "gpu_kernels.md").read_text()


def test_rows_stand_in_both_tables_beside_those_of_before(gpu_steps: ModuleType, tmp_path: Path) -> None:
    gpu_steps.write([{"model": "lstm", "replicas": 9, "ms": 2.25, "device": "H"}], tmp_path)
    gpu_steps.write([{"model": "gru", "replicas": 9, "ms": 9.0}], tmp_path)
    gpu_steps.write([{"model": "lstm", "replicas": 1, "ms": 0.5, "device": "H"}], tmp_path)
    text = gpu_steps.write([{"model": "gru", "replicas": 9, "error": "a | b"}], tmp_path)
    assert "| lstm | 1 | 0.5 |" in text and " | 2.0 | " in text and "| gru | 9 | 9" not in text
    assert "| lstm | 9 | 2.25 |" in text and "a \\| b" in text
    assert (tmp_path / "gpu_steps.csv").read_text().splitlines()[3].startswith("lstm,9,2.25,")


def test_a_kernels_time_is_that_of_all_its_launches_a_step(
    gpu_steps: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches = [("add", 30.0), ("mul", 5.0), ("add", 50.0), ("graph", 0.0)]
    events = [SimpleNamespace(name=name, device_time_total=us) for name, us in launches]
    seen = nullcontext(SimpleNamespace(events=lambda: events))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(gpu_steps.step_kernels, "profile", lambda **_: seen)
    assert gpu_steps.step_kernels.kernels_of(2, lambda: None) == [("add", 1.0, 40.0), ("mul", 0.5, 2.5)]
