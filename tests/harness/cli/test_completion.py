"""`ladder completion`: what a shell says when somebody presses Tab."""

import shutil
import subprocess
from pathlib import Path

import pytest

from chomsky_ladder.harness.cli.main import main

CASES = {
    "ladder desc": {"describe"},
    "ladder run pari": {"parity"},
    "ladder run parity lstm": {"lstm", "lstm_block"},
    "ladder run parity lstm --train.lengths": {"--train.lengths", "--train.lengths-per"},
    "ladder wandb s": {"sync"},
    "ladder table --ki": {"--kind", "--kinds"},
}
ASK = {
    "bash": 'COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _ladder; echo "${COMPREPLY[@]}"',
    "fish": "complete -C $argv[1]",
}


@pytest.mark.parametrize("shell", ASK)
def test_a_shell_completes_commands_names_and_options(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    assert main(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    for line, words in CASES.items():
        command = [shell, "-c", f"source {script}; {ASK[shell]}", *(["bash"] if shell == "bash" else []), line]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert set(done.stdout.split()) == words and not done.stderr, line


def test_the_parsers_own_completion_is_refused_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "--tyro-print-completion", "bash"]) == 2
    assert capsys.readouterr().err == "ladder: a shell completes by the script of `ladder completion SHELL`\n"
