"""Runs on Othello's small board, of one step and done, to probe and to edit; and commands that refuse them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.train.loop import execute
from chomsky_ladder.models.lstm_block import LSTMBlockConfig
from chomsky_ladder.tasks.othello import Othello

BOARD = Othello(size=6)
WHOLE = {"lengths": (60, 60)}
EVAL = Eval(test=2, validation=2, bins=(60,), extrapolate=(), **WHOLE)


def tiny(results: Path, **parts: Any) -> RunFolder:
    run = Run(task=BOARD, model=LSTMBlockConfig(d_model=16), train=Train(steps=1, batch=2, **WHOLE), eval=EVAL)
    run = replace(run, **parts)
    execute(run, Exec(results=results, device="cpu"), quiet=True)
    return RunFolder(results, run.run_id)


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def say(*words: str) -> str:
        assert cli.main(words) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err.count("\n") == 1
        return said.err

    return say
