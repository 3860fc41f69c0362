"""Windows of a file: slices of their split's part, the same on any path; and what names a run of a text."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.config.protocols import identity_of, preset_run
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.conform.suite import checks, run_check
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.tasks._text_files import PARTS
from chomsky_ladder.tasks.base import PAD
from chomsky_ladder.tasks.draw import Draw, NumpyDraw
from chomsky_ladder.tasks.text import Text, part_of

torch.set_num_threads(1)

LETTERS = ("abcdefgh", "ijkl", "mnop")  # of each part, so that a window tells where it is from


@pytest.fixture
def path(tmp_path: Path) -> str:
    """3,000 bytes with parts of 2,400, 300 and 300."""
    noise = NumpyDraw(seed=7, split="text", rows_B=np.arange(1))
    parts = [
        "".join(np.array(list(letters))[noise.integers(len(letters), (size,))[0]])
        for letters, size in zip(LETTERS, (2400, 300, 300), strict=True)
    ]
    (tmp_path / "corpus.txt").write_text("".join(parts))
    return str(tmp_path / "corpus.txt")


@pytest.mark.parametrize("split", ["train", "validation", "validation/train", "test", "test/longer", "probe/train"])
@pytest.mark.parametrize("words", [0, 4])
def test_windows_are_slices_of_their_part(words: int, split: str, tmp_path: Path, path: str) -> None:
    if words:
        Path(path).write_text("one two, three " * 60 + "two one. " * 60)
    task = Text(file=path, words=words)
    tokens = task.part(part_of(split), torch.device("cpu")).tolist()
    rows_B, lengths = np.array([5, 0, 77, 10**9, 8]), [9, 30, 1, 17, 29]
    draw = Draw(seed=torch.tensor(3), split=split, rows_B=torch.from_numpy(rows_B))
    batch = task.sample(draw, torch.tensor(lengths), 30)
    windows_B1 = len(tokens) - np.array(lengths)[:, None]
    start_B1 = NumpyDraw(seed=3, split=split, rows_B=rows_B).integers(windows_B1, (1,))
    for row, length in enumerate(lengths):
        said, answers = batch.tokens_BL[row].tolist(), batch.targets_BL[row].tolist()
        window = tokens[start_B1[row, 0] : start_B1[row, 0] + length + 1]
        blank = [PAD] * (30 - length)
        assert (said, answers) == (window[:-1] + blank, window[1:] + blank)
        assert batch.scored_BL[row].tolist() == [True] * length + [False] * (30 - length)
    if not words:
        letters = LETTERS[PARTS.index(part_of(split))]
        assert {task.vocab[token] for token in batch.targets_BL[batch.scored_BL].tolist()} <= set(letters)


def test_every_window_of_a_part_is_drawn_and_none_beyond_it(path: str) -> None:
    task, rows = Text(file=path), 20_000
    tokens = task.part("test", torch.device("cpu")).tolist()
    batch = task.sample(Draw(seed=0, split="test", rows_B=torch.arange(rows)), torch.full((rows,), 293), 293)
    found = torch.cat([batch.tokens_BL, batch.targets_BL[:, -1:]], 1)
    counts = {tuple(window): int(count) for window, count in zip(*_unique(found), strict=True)}
    assert set(counts) == {tuple(tokens[start : start + 294]) for start in range(7)}
    assert all(abs(count - rows / 7) < 5 * (rows / 7) ** 0.5 for count in counts.values())


def _unique(x_BW: torch.Tensor) -> tuple[list[list[int]], list[int]]:
    windows, counts = x_BW.unique(dim=0, return_counts=True)
    return windows.tolist(), counts.tolist()


@pytest.mark.parametrize("number", range(len(checks("task"))))
def test_it_conforms_with_a_file(number: int, path: str) -> None:
    outcome = run_check(checks("task")[number], Text(file=path))
    assert outcome.verdict in ("ok", "skip"), outcome.reason


def test_a_run_is_named_by_the_text_and_not_by_its_place(tmp_path: Path, path: str) -> None:
    elsewhere = tmp_path / "deeper" / "other name.txt"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(Path(path).read_bytes())
    base = preset_run("text", "lstm")
    here, there = (replace(base, task=Text(file=str(place))) for place in (path, elsewhere))
    assert here.run_id == there.run_id != base.run_id and here.plain()["task"]["file"] == path
    assert identity_of(here).task == identity_of(there).task == f"text (file_sha256={here.task.file_sha256})"
    assert here.identity()["task"].keys() == {"name", "version", "file_sha256"}
    RunFolder(tmp_path, here.run_id).open(here)
    RunFolder(tmp_path, there.run_id).open(there)
    elsewhere.write_bytes(b"z" + Path(path).read_bytes()[1:])
    assert replace(base, task=Text(file=str(elsewhere))).run_id != here.run_id
    tree = here.plain()
    Path(path).unlink()
    assert Run.from_plain(tree).run_id == here.run_id


def test_the_command_runs_and_refuses(tmp_path: Path, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--train.steps", "2", "--train.batch", "2", "--eval.test", "4", "--eval.validation", "4"]
    words = ["run", "text", "lstm", "--task.file", path, "--exec.results", str(tmp_path), "--exec.device", "cpu"]
    assert main([*words, *small]) == 0
    assert main(["table", "--kind", "text", "--results", str(tmp_path)]) == 0
    assert "bits per byte" in capsys.readouterr().out
    words[4] = str(tmp_path / "none.txt")
    assert main([*words, *small]) == 2
    said = capsys.readouterr().err
    assert "there is no file" in said and said.count("\n") == 1
    assert Run(task=Text(), model=LSTMConfig()).identity()["task"] == {"name": "text", "version": 1}
