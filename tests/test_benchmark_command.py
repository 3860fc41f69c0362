"""The benchmark command lists its kinds, hands a kind its options, and refuses an unknown kind in one line."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
KINDS = ["decode", "engine", "harness", "othello", "roofline", "scoring", "slstm", "steps", "throughput", "training"]


@pytest.fixture
def command() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_command", SCRIPTS / "benchmark.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_kinds_are_listed_a_line_each(
    words: list[str], command: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(words) == 0
    rows = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert [kind for kind, _ in rows] == KINDS and all(about.endswith(".") for _, about in rows)


@pytest.mark.parametrize(
    ("kind", "hint"), [("trainning", "did you mean training?"), ("nope", f"the kinds are {', '.join(KINDS)}")]
)
def test_an_unknown_kind_is_one_line(
    kind: str, hint: str, command: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([kind, "--json"]) == 2
    assert capsys.readouterr() == ("", f"benchmark.py: unknown kind {kind!r}; {hint}\n")


def test_a_kind_gets_its_options_and_gives_the_exit_code(
    command: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "made_up_kind.py").write_text("from made_up_helper import code\nmain = code\n")
    (tmp_path / "made_up_helper.py").write_text("def code(words):\n    return len(words)\n")
    monkeypatch.setattr(command, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert command.main(["made_up_kind", "--help", "a", "b"]) == 3


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_shows_the_same_help_when_its_file_is_run(kind: str, tmp_path: Path) -> None:
    """Both are run in another folder than the checkout."""
    commands = [[SCRIPTS / "benchmark.py", kind], [SCRIPTS / "benchmarks" / f"{kind}.py"]]
    called, direct = (
        subprocess.run([sys.executable, *command, "--help"], cwd=tmp_path, capture_output=True, text=True, check=True)
        for command in commands
    )
    assert called.stdout == direct.stdout != ""
