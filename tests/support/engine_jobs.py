"""Small runs for an engine to carry out, a model that dies or breaks when told to, and equal bits of two folders."""

from dataclasses import replace
from pathlib import Path

import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.registry import find_model, find_task, load_plugin
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.store import checkpoint
from chomsky_ladder.harness.store.folder import RunFolder

TRAIN = Train(steps=40, batch=4, lengths=(3, 8))
SCORE = Eval(lengths=(8, 12), test=16, validation=8, every=20, bins=(8, 12), extrapolate=())


def cell(model: str = "lstm", *, seed: int = 0, steps: int = 40) -> Run:
    train = replace(TRAIN, steps=steps)
    return Run(task=find_task("parity")(), model=find_model(model).tiny(), train=train, eval=SCORE, seed=seed)


def settings_at(folder: Path, *, pack: int = 0) -> Exec:
    return Exec(results=folder, device="cpu", log_every=10, checkpoint_every=10, pack=pack)


PLUGIN = """
import os, signal
from dataclasses import dataclass
from chomsky_ladder.models.base import register
from chomsky_ladder.models.lstm import LSTMBlock, LSTMConfig

class Block(LSTMBlock):
    def forward(self, x_BLD, ctx):
        if self.config.act == "die" and self.training:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.config.act == "break" and self.training:
            raise RuntimeError("broken on purpose")
        return super().forward(x_BLD, ctx)

@register
@dataclass(frozen=True, kw_only=True)
class MineConfig(LSTMConfig):
    name = "mine"
    act: str = "train"

    def block(self, layer):
        block = Block(self)
        block.config = self
        return block
"""


def acting_plugin(folder: Path) -> Path:
    """Write and load a plugin with the model `mine`."""
    path = folder / "mine.py"
    path.write_text(PLUGIN)
    load_plugin(str(path))
    return path


def acting(act: str, *, seed: int = 0) -> Run:
    run = cell("mine", seed=seed)
    return replace(run, model=replace(run.model, act=act))


def assert_equal_bits(run: Run, one: Path, other: Path) -> None:
    ours, theirs = (RunFolder(folder, run.run_id) for folder in (one, other))
    assert ours.metrics.read_bytes() == theirs.metrics.read_bytes() != b""
    mine, yours = (checkpoint.newest(folder.path) for folder in (ours, theirs))
    assert mine["counters"] == yours["counters"]
    assert all(torch.equal(value, yours["model"][name]) for name, value in mine["model"].items())
    assert ours.result()["test"] == theirs.result()["test"]
    assert ours.result()["numerics"] == theirs.result()["numerics"]
