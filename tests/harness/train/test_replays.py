"""Scores from replays are the plain ones; a recording that fails leaves them plain. CUDA is stood in for but once."""

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.config.registry import find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.train import replays
from chomsky_ladder.harness.train.build import build_model
from chomsky_ladder.harness.train.evaluate import Evaluator, summed_by_length
from chomsky_ladder.harness.train.replays import Replays, Room
from chomsky_ladder.tasks.base import Batch

CPU = torch.device("cpu")
RUN = Run(
    task=find_task("cycle_nav")(),
    model=find_model("lstm").tiny(),
    train=Train(steps=4, batch=4, lengths=(3, 8)),
    eval=Eval(lengths=(8, 12), test=16, validation=12, batch=4, every=0, bins=(8, 12), extrapolate=(16,)),
)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], Any]]:
    """Replace CUDA: a replay calls the act again, which leaves everything where it was."""
    acts = []

    def captured(act: Callable[[], Any], device: torch.device, *, warm_up: int, pool: object) -> Callable[[], Any]:
        assert warm_up == 1 and pool == (0, 7)
        acts.append(act)
        return act

    monkeypatch.setattr(replays, "captured", captured)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 7))
    return acts


def batch(seed: int, *, length: int = 5) -> Batch:
    tokens_BL = torch.randint(100, (3, length), generator=torch.Generator().manual_seed(seed))
    length_B = torch.full((3,), length)
    return Batch(tokens_BL, tokens_BL + 1, tokens_BL > 50, length_B, length_B)


def test_a_shape_is_computed_then_recorded_then_replayed(recorded: list) -> None:
    weight, calls = torch.ones(1), []

    def function(given: Batch) -> Tensor:
        calls.append(given.tokens_BL.shape)
        return given.tokens_BL * weight + given.targets_BL + given.scored_BL

    replayed = Replays(function, CPU)
    results = []
    for turn in range(5):
        for length in (5, 6):
            given = batch(turn, length=length)
            expected = given.tokens_BL * weight + given.targets_BL + given.scored_BL
            results.append((replayed(given), expected))
            assert len(recorded) == (0 if turn == 0 else 1 if turn == 1 and length == 5 else 2)
        weight += 1  # in place, as a step of training changes it
    for found, expected in results:  # of all turns: no result lies where the next one is written
        assert torch.equal(found, expected)
    assert replayed.used and not replayed.refused
    assert len(calls) == 2 * (1 + 1 + 4), "plainly, for its shape, and in four replays"


@pytest.mark.parametrize("error", [RuntimeError("operation not permitted\nwhile capturing"), torch.OutOfMemoryError()])
def test_what_cannot_be_recorded_stays_plain(error: RuntimeError, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def captured(*_: object, **__: object) -> None:
        tries.append(1)
        raise error

    monkeypatch.setattr(replays, "captured", captured)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 7))
    replayed = Replays(lambda given: given.tokens_BL * 2, CPU)
    for turn in range(4):
        assert torch.equal(replayed(batch(turn)), batch(turn).tokens_BL * 2)
    assert len(tries) == 1 and not replayed.used
    assert replayed.refused.startswith(type(error).__name__) and "\n" not in replayed.refused


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_scores_are_the_plain_ones(precision: str, recorded: list) -> None:
    run = replace(RUN, train=replace(RUN.train, precision=precision))
    model = build_model(run, CPU)
    plain, replayed = (Evaluator(run, model, device=CPU, backend="auto", replayed=on) for on in (False, True))
    for turn in range(3):
        assert replayed.validation() == plain.validation()
        assert ("replayed.scores" in replayed.backends) == (turn > 0)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(-1.5)
    assert replayed.test() == plain.test() and replayed.extrapolation() == plain.extrapolation()
    assert "replayed.scores" not in plain.backends


def test_answers_fed_back_are_not_replayed(recorded: list) -> None:
    run = replace(RUN, task=find_task("reverse_string")(decode="teacher"))
    scorer = Evaluator(run, build_model(run, CPU), device=CPU, backend="auto", replayed=True)
    assert scorer.validation() == scorer.validation() == scorer.validation()
    assert not recorded


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("model", ["lstm", "transformer", "xlstm", "mamba"])
def test_scores_from_cuda_graphs_are_the_plain_ones(model: str, precision: str) -> None:
    device = torch.device("cuda")
    run = replace(RUN, model=find_model(model).tiny(), train=replace(RUN.train, precision=precision))
    built = build_model(run, device)
    plain, replayed = (Evaluator(run, built, device=device, backend="auto", replayed=on) for on in (False, True))
    for _ in range(4):
        assert replayed.validation() == plain.validation()
        with torch.no_grad():
            for parameter in built.parameters():
                parameter.mul_(-1.1)
    assert "replayed.scores" in replayed.backends


def test_an_evaluator_goes_with_its_graphs_as_soon_as_nobody_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting references must be enough: Python collects when it likes, and graphs hold gigabytes of a GPU."""
    graphs = []

    class Graph:
        def __init__(self, act: Callable[[], Any]) -> None:
            act()
            graphs.append(weakref.ref(self))

        def replay(self) -> None:
            pass

    monkeypatch.setattr(replays, "captured", lambda act, device, warm_up, pool: Graph(act).replay)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 7))
    scorer = Evaluator(RUN, build_model(RUN, CPU), device=CPU, backend="auto", replayed=True)
    watched = weakref.ref(scorer)
    for _ in range(2):
        scorer.validation()
    assert graphs and all(graph() is not None for graph in graphs)
    gc.disable()
    try:
        del scorer
        assert watched() is None and all(graph() is None for graph in graphs)
    finally:
        gc.enable()


def test_graphs_of_one_pack_share_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    handles, made = [], []

    def captured(act: Callable[[], Any], device: torch.device, *, warm_up: int, pool: object) -> Callable[[], Any]:
        handles.append(pool)
        return act

    monkeypatch.setattr(replays, "captured", captured)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: made.append(object()) or made[-1])
    room = Room()
    assert not made
    for _ in range(2):
        replayed = Replays(lambda given: given.tokens_BL * 2, CPU, room)
        for turn in range(3):
            replayed(batch(turn))
    assert len(handles) == 2 and handles[0] is handles[1] is made[0] and len(made) == 1


def test_sums_by_length_need_no_order_of_threads() -> None:
    generator = torch.Generator().manual_seed(0)
    lengths_B = torch.randint(7, (50,), generator=generator)
    counted_XB = torch.rand(2, 50, dtype=torch.float64, generator=generator)
    expected_XL = torch.zeros(2, 9, dtype=torch.float64).index_add_(1, lengths_B, counted_XB)
    torch.testing.assert_close(summed_by_length(lengths_B, counted_XB, longest=8), expected_XL, rtol=1e-15, atol=1e-15)
