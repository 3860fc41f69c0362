"""The use of a memory, at a small budget: reverse_string from strings of up to 19 symbols, three seeds.

A recurrence that may push and pop learns it and holds it at 127 symbols (Deletang et al. 2022, 2207.02098). The same
recurrence without the stack must keep the whole string in its h and does not, at any learning rate. Takes minutes of
training: run it with `scripts/test -m slow`.
"""

from pathlib import Path

import pytest

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.train.loop import execute
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.rnn import RNNConfig
from chomsky_ladder.models.stack_rnn import StackRNNConfig
from chomsky_ladder.tasks.reverse_string import ReverseString

pytestmark = pytest.mark.slow

SEEDS = range(3)
STACK = StackRNNConfig(d_model=32)
ALONE = RNNConfig(d_model=32, num_blocks=1, activation="relu")  # the same recurrence


def longest_accuracy(model: ModelConfig, seed: int, rate: float, results: Path) -> float:
    """Accuracy at lengths 225..256, of which 112..127 are symbols."""
    run = Run(
        task=ReverseString(),
        model=model,
        train=Train(steps=1000, batch=32, lengths=(3, 40), lr=rate, weight_decay=0.0),
        eval=Eval(test=512, validation=64, every=0, extrapolate=()),
        seed=seed,
    )
    return execute(run, Exec(results=results, device="cpu"), quiet=True)["test"]["bins"]["225..256"]


def test_reversal_is_learnt_and_held(tmp_path: Path) -> None:
    held = [longest_accuracy(STACK, seed, 1e-2, tmp_path) >= 0.95 for seed in SEEDS]
    assert sum(held) >= 2


@pytest.mark.parametrize("rate", [1e-2, 1e-3])
def test_reversal_is_not_learnt_without_the_stack(rate: float, tmp_path: Path) -> None:
    assert not any(longest_accuracy(ALONE, seed, rate, tmp_path) >= 0.3 for seed in SEEDS)
