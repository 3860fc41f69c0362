"""The walk of harness/README.md: how many files a reader opens to follow one training step of Mamba."""

import sys
from pathlib import Path
from types import FrameType

import torch

import chomsky_ladder
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.harness.train.steps import stepper
from support.small_runs import small

ROOT = Path(chomsky_ladder.__file__).parent


def files_of_a_step() -> set[Path]:
    """Return the files whose functions one step enters, behind two steps that fill all caches."""
    files: set[Path] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(ROOT):
            files.add(file.relative_to(ROOT))

    steps = stepper(Pack(small("mamba"), device=torch.device("cpu"), backend="auto"), Exec(device="cpu"))
    steps.advance(0, 2, lambda done: None)
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        steps.advance(2, 3, lambda done: None)
    finally:
        sys.setprofile(before)
    return files


def test_a_step_is_followed_in_few_files() -> None:
    files = files_of_a_step()
    assert len(files) <= 26, sorted(map(str, files))
