"""Every registered task and model passes every conformance check, and the checks catch parts that are broken."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.config.registry import all_models, all_tasks
from chomsky_ladder.harness.conform.suite import check, checks, run_check, specimen
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Block, Context, State
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.parity import Parity
from support.cases import KINDS, full

PARTS = {
    **{("task", name): classes[0] for name, classes in all_tasks().items()},
    **{("model", name): classes[0] for name, classes in all_models().items()},
}


GAMES = ("chess", "othello")
"""Tasks whose strings are whole games: tracing one takes eight seconds and more."""
CASES = [(kind, name, number) for kind, name in sorted(PARTS) for number in range(len(checks(kind)))]
LONG = {
    "its_cost_grows_as_declared": KINDS,
    "stays_on_its_device": KINDS,
    "floors_are_what_samples_show": ("parity", "dyck"),
    "sampling_stays_on_its_device": [name for name in sorted(all_tasks()) if name not in GAMES][::3],
}
"""Checks of half a second and more, and whose they are each time."""


def is_long(kind: str, name: str, number: int) -> bool:
    """Return True if a check only runs with --all."""
    of_check = checks(kind)[number].__name__
    return name not in LONG.get(of_check, (name,)) or (name in GAMES and of_check.startswith("sampling_never"))


@pytest.mark.parametrize(("kind", "name", "number"), [full(*case) if is_long(*case) else case for case in CASES])
def test_conforms(kind: str, name: str, number: int) -> None:
    function = checks(kind)[number]
    outcome = run_check(function, specimen(PARTS[kind, name]))
    if outcome.verdict == "skip":
        pytest.skip(outcome.reason)
    assert outcome.verdict == "ok", f"{outcome.check}: {outcome.reason}"


class _Leaky(Block):
    """y_t = x_t + mean of all x: sees the future, padding and all; its step remembers nothing."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width))
        self.unused = nn.Parameter(torch.randn(width))

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return x_BLD + x_BLD.mean(1, keepdim=True) @ self.weight

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        return torch.zeros(batch, max_length, device=device, dtype=dtype)

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        state += 1
        return x_BD + state[:, :1] * self.weight[0], state


@dataclass(frozen=True, kw_only=True)
class LeakyConfig(ModelConfig):
    name, family, year, paper = "leaky", "broken", 2026, "none"

    def block(self, layer: int) -> Block:
        return _Leaky(self.d_model)


def test_a_broken_model_is_caught() -> None:
    failed = {outcome.check for outcome in check(LeakyConfig.tiny()) if outcome.verdict == "FAIL"}
    assert failed >= {
        "the future never changes the past",
        "wider padding changes nothing",
        "stepping equals forward",
        "a step leaves its state as it was",
        "its state grows as declared",
        "every parameter learns",
    }


class _Batchnorm(Block):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width))

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        buffer = torch.zeros(x_BLD.shape, dtype=x_BLD.dtype)
        buffer[:] = (x_BLD - x_BLD.mean(0)) @ self.weight  # breaks stacking
        return x_BLD + buffer


@dataclass(frozen=True, kw_only=True)
class BatchnormConfig(ModelConfig):
    name, family, year, paper, stepwise = "batchnorm", "broken", 2026, "none", False

    def block(self, layer: int) -> Block:
        return _Batchnorm(self.d_model)


def test_a_model_that_couples_rows_is_caught() -> None:
    failed = {outcome.check for outcome in check(BatchnormConfig.tiny()) if outcome.verdict == "FAIL"}
    assert failed >= {"rows do not see each other", "stacked replicas equal single ones"}


@dataclass(frozen=True, kw_only=True)
class LoudLSTMConfig(LSTMConfig):
    name = "loud"

    def block(self, layer: int) -> Block:
        block = super().block(layer)
        torch.manual_seed(torch.seed())
        nn.init.normal_(block.cell.bias)
        return block


@pytest.mark.full
def test_a_model_that_does_not_obey_its_seed_is_caught() -> None:
    failed = {outcome.check for outcome in check(LoudLSTMConfig.tiny()) if outcome.verdict == "FAIL"}
    assert failed == {"is built from the seed alone"}


@dataclass(frozen=True, kw_only=True)
class GlobalParity(Parity):
    name = "global_parity"

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return torch.randint(1, 3, (len(size_B), columns))


@dataclass(frozen=True, kw_only=True)
class BiasedParity(Parity):
    name = "biased_parity"

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return (draw.integers(4, (columns,)) == 0) + 1


class _Waiting(LSTMConfig):
    """Copies a constant to the device in every pass, or reads a value."""

    reads = False

    def block(self, layer: int) -> Block:
        block, reads = super().block(layer), self.reads
        forward = block.forward

        def waiting(x_BLD: Tensor, ctx: Context) -> Tensor:
            return forward(x_BLD, ctx) * (1 + 0 * x_BLD[0, 0, 0].item() if reads else torch.tensor(1.0))

        block.forward = waiting
        return block


@pytest.mark.full
@pytest.mark.parametrize(("reads", "named"), [(False, "torch.tensor"), (True, ".item()")])
def test_a_model_that_waits_for_the_host_is_caught(reads: bool, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Waiting, "reads", reads)
    failed = {outcome.check: outcome.reason for outcome in check(_Waiting.tiny()) if outcome.verdict == "FAIL"}
    assert f"calls {named}" in failed.pop("a step never waits for the host")
    without_values = {"stacked replicas equal single ones", "stays on its device"}  # vmap has no one value to read
    assert set(failed) == (without_values if reads else set())


def test_a_task_that_draws_elsewhere_is_caught() -> None:
    failed = {outcome.check for outcome in check(GlobalParity()) if outcome.verdict == "FAIL"}
    assert "only the draw matters" in failed


@dataclass(frozen=True, kw_only=True)
class WaitingParity(Parity):
    name = "waiting_parity"

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        x_BL = draw.integers(2, (columns,)) + 1
        return x_BL if int(x_BL.sum()) else x_BL + 1


def test_a_task_that_reads_a_value_is_caught() -> None:
    failed = {outcome.check for outcome in check(WaitingParity()) if outcome.verdict == "FAIL"}
    assert failed == {"sampling never waits for the host", "sampling stays on its device"}


def test_a_task_with_wrong_floors_is_caught() -> None:
    failed = {outcome.check for outcome in check(BiasedParity()) if outcome.verdict == "FAIL"}
    assert "floors are what samples show" in failed
