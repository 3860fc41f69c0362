"""Strings read in pieces: the gradients are those of a loop over tokens that lets go of its state now and then."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from chomsky_ladder.harness.config.registry import all_models, find_model, find_task
from chomsky_ladder.harness.config.run import Run, Train
from chomsky_ladder.harness.sweep.plan import packs
from chomsky_ladder.harness.train.carried import CarryingPack, detached
from chomsky_ladder.harness.train.distributed import make_pack
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.models.block import Context
from support.cases import KINDS, some

CPU = torch.device("cpu")
TRAIN = Train(steps=20, batch=4, lengths=(3, 13), lr=1e-2, precision="fp64", warmup=0.0)
CARRYING = [
    name
    for name, classes in sorted(all_models().items())
    if classes[0].tiny().stepwise and classes[0].tiny().sees == "past" and classes[0].tiny().device == "any"
]


def run_of(model: str, *, task: str = "cycle_nav", dense: bool = True, **train: Any) -> Run:
    made = find_task(task)(**({"supervision": "dense"} if dense else {}))
    return Run(task=made, model=find_model(model).tiny(), train=replace(TRAIN, **train))


def by_tokens(pack: Pack, run: Run, step: int) -> torch.Tensor:
    """The gradient, from the step form alone."""
    batch = pack.draw(torch.tensor(step), run.train.longest(step))
    model = pack.models[0]
    before = [pack.stream.before(torch.tensor(step), number) for number in range(run.train.passed)]
    state = model.init_state(len(batch.tokens_BL), max_length=200, device=CPU, dtype=torch.float64)
    for strings in before:
        for tokens_B in strings.tokens_BL.unbind(1):
            _, state = model.step(tokens_B, state, Context(backend="reference"))
    state = detached(state) if before else state  # a fresh one may be learnt
    nats, scored = [], batch.scored_BL.sum()
    for place, tokens_B in enumerate(batch.tokens_BL.unbind(1)):
        if run.train.cut and place and place % run.train.cut == 0:
            state = detached(state)
        logits_BV, state = model.step(tokens_B, state, Context(backend="reference"))
        chosen_B = logits_BV.log_softmax(1).gather(1, batch.targets_BL[:, place : place + 1])[:, 0]
        nats.append(-(chosen_B * batch.scored_BL[:, place]).sum() / scored)
    loss = torch.stack(nats).sum()
    return pack.gradient_of(loss[None])


@pytest.mark.parametrize("model", some(CARRYING, always=[name for name in KINDS if name in CARRYING]))
def test_the_gradient_is_that_of_a_loop_over_tokens(model: str) -> None:
    for settings in ({"cut": 5}, {"passed": 2}, {"cut": 4, "passed": 1}):
        run = run_of(model, **settings)
        pack = make_pack([run], device=CPU, backend="auto")
        assert isinstance(pack, CarryingPack)
        step = torch.tensor(3)
        if model == "moe":  # its balance is of a piece's positions, which a loop over tokens does not see together
            continue
        gradient_RP, loss_R, _ = pack.gradients(step, pack.draw(step, 13))
        torch.testing.assert_close(gradient_RP, by_tokens(pack, run, 3), rtol=1e-6, atol=1e-9)
        assert loss_R.shape == (1,) and not loss_R.requires_grad


@pytest.mark.parametrize("model", ["lstm", "transformer", "moe", "mamba"])
def test_one_piece_is_a_whole_string(model: str) -> None:
    run = run_of(model, cut=50)
    pieces, whole = make_pack([run], device=CPU, backend="auto"), make_pack([run_of(model)], device=CPU, backend="auto")
    step = torch.tensor(0)
    for found, expected in zip(
        pieces.gradients(step, pieces.draw(step, 13)), whole.gradients(step, whole.draw(step, 13)), strict=True
    ):
        torch.testing.assert_close(found, expected)


def test_a_cut_is_felt_and_so_is_a_state_from_elsewhere() -> None:
    packed = [make_pack([run_of("lstm", **s)], device=CPU, backend="auto") for s in ({}, {"cut": 3}, {"passed": 1})]
    step = torch.tensor(0)
    whole, cut, passed = (pack.gradients(step, pack.draw(step, 13)) for pack in packed)
    assert whole[1] == pytest.approx(cut[1].item(), rel=1e-9)  # the numbers go on, the gradient does not
    assert not torch.allclose(whole[0], cut[0], rtol=1e-3)
    assert whole[1].item() != pytest.approx(passed[1].item(), rel=1e-6)


def test_the_strings_read_first_fill_their_width_and_are_others_at_every_step() -> None:
    pack = make_pack([run_of("lstm", task="reverse_string", dense=False, passed=2)], device=CPU, backend="auto")
    seen = [pack.stream.before(torch.tensor(step), number) for step in (0, 1) for number in (0, 1)]
    seen.append(pack.draw(torch.tensor(0), 13))
    for strings in seen[:4]:
        assert (strings.length_B == strings.tokens_BL.shape[1]).all()
    assert len({tuple(map(tuple, strings.tokens_BL.tolist())) for strings in seen}) == 5


class Saved:
    """The most bytes that autograd holds at a time between two backward passes."""

    def __init__(self) -> None:
        self.held, self.most = 0, 0

    def pack(self, x: torch.Tensor) -> torch.Tensor:
        self.held += x.numel() * x.element_size()
        self.most = max(self.most, self.held)
        return x


@pytest.mark.parametrize("model", ["lstm", "mamba"])
def test_memory_does_not_grow_with_the_length(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    most = []
    for longest in (32, 128):
        run = run_of(model, cut=16, lengths=(3, longest))
        pack, saved = make_pack([run], device=CPU, backend="reference"), Saved()
        once = pack.gradient_of

        def let_go(loss_R: torch.Tensor, saved: Saved = saved, once: Any = once) -> torch.Tensor:
            saved.held = 0
            return once(loss_R)

        monkeypatch.setattr(pack, "gradient_of", let_go)
        with torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda x: x):
            pack.gradients(torch.tensor(0), pack.draw(torch.tensor(0), longest))
        most.append(saved.most)
    assert most[1] < 1.05 * most[0]


@pytest.mark.parametrize("settings", [{"cut": 4}, {"passed": 1}, {"cut": 4, "passed": 2, "curriculum": (6, 13)}])
def test_a_run_goes_on_as_if_it_had_never_stopped(settings: dict[str, Any]) -> None:
    run = run_of("gru", **settings)
    never, stopped, again = (make_pack([run], device=CPU, backend="auto") for _ in range(3))

    def advance(pack: Pack, steps: Iterator[int] | range) -> None:
        for step in steps:
            pack.advance(run.train.longest(step))

    advance(never, range(20))
    advance(stopped, range(12))
    again.restore(0, stopped.saved(0), done=12, loss_sum=0.0)
    advance(again, range(12, 20))
    assert torch.equal(never.weight_RP, again.weight_RP)


def test_such_runs_train_alone() -> None:
    runs = [replace(run_of("lstm", cut=4), seed=seed) for seed in range(3)]
    assert [len(pack) for pack in packs(runs, size=lambda _: 3)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("model", "settings", "said"),
    [
        ("encoder", {"cut": 4}, "hand a state on, which encoder does not have"),
        ("lstm", {"cut": -1}, "train.cut must not be negative"),
        ("lstm", {"passed": 65}, r"train.passed must lie in 0\.\.64"),
        ("lstm", {"passed": 1, "next_symbol": 1.0}, "read whole strings"),
    ],
)
def test_what_cannot_be_is_refused(model: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        run_of(model, **settings)


def test_dropout_is_refused() -> None:
    run = run_of("lstm")
    with pytest.raises(ValueError, match="dropout is not defined where strings are read in pieces"):
        replace(run, model=replace(run.model, dropout=0.1), train=replace(run.train, cut=4))
