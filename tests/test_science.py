"""Known facts of state tracking, at a small budget: parity under dense supervision, 1000 steps, three seeds.

Non-linear recurrences and linear ones with negative eigenvalues learn it from lengths 3..40 and hold it at 256 (Grazzi
et al. 2024, 2411.12537). Linear ones with only positive eigenvalues do not, at any learning rate. Takes minutes of
training: run it with `scripts/test -m slow`.
"""

from pathlib import Path

import pytest

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.train.loop import execute
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.delta_net import DeltaNetConfig
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.models.mamba import MambaConfig
from chomsky_ladder.models.xlstm import XLSTMConfig
from chomsky_ladder.tasks.parity import Parity

pytestmark = pytest.mark.slow

SEEDS = range(3)
LEARN = {
    "lstm": LSTMConfig(d_model=32, num_blocks=1),
    "slstm": XLSTMConfig(d_model=32, num_blocks=1, num_heads=2, ratio="0:1"),
    "delta_net[-1,1]": DeltaNetConfig(d_model=32, num_blocks=1, num_heads=2, eigenvalues="signed"),
}
FAIL = {
    "mamba": MambaConfig(d_model=32, num_blocks=1),
    "delta_net[0,1]": DeltaNetConfig(d_model=32, num_blocks=1, num_heads=2),
}


def longest_accuracy(model: ModelConfig, seed: int, rate: float, results: Path) -> float:
    """Accuracy at lengths 225..256."""
    run = Run(
        task=Parity(supervision="dense"),
        model=model,
        train=Train(steps=1000, batch=32, lengths=(3, 40), lr=rate, weight_decay=0.0),
        eval=Eval(test=512, validation=64, every=0, extrapolate=()),
        seed=seed,
    )
    return execute(run, Exec(results=results, device="cpu"), quiet=True)["test"]["bins"]["225..256"]


@pytest.mark.parametrize("name", LEARN)
def test_parity_is_learnt_and_held(name: str, tmp_path: Path) -> None:
    held = [longest_accuracy(LEARN[name], seed, 1e-2, tmp_path) >= 0.95 for seed in SEEDS]
    assert sum(held) >= 2


@pytest.mark.parametrize("rate", [1e-2, 1e-3])
@pytest.mark.parametrize("name", FAIL)
def test_parity_is_not_learnt(name: str, rate: float, tmp_path: Path) -> None:
    assert not any(longest_accuracy(FAIL[name], seed, rate, tmp_path) >= 0.75 for seed in SEEDS)
