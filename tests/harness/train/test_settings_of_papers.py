"""Settings that a published protocol asks for, each held to the same thing said in another way."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.train.data import TrainingStream, evaluation_lengths
from chomsky_ladder.harness.train.evaluate import Evaluator
from chomsky_ladder.harness.train.loop import execute
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.models.transformer import TransformerConfig
from chomsky_ladder.tasks.base import Task
from chomsky_ladder.tasks.binary_addition import BinaryAddition
from chomsky_ladder.tasks.binary_multiplication import BinaryMultiplication
from chomsky_ladder.tasks.mod_arithmetic import ModArithmetic
from chomsky_ladder.tasks.parity import Parity
from chomsky_ladder.tasks.reverse_string import ReverseString
from chomsky_ladder.tasks.stack_manipulation import StackManipulation

torch.set_num_threads(1)
CPU = torch.device("cpu")
ENDED: list[tuple[Task, str]] = [  # tasks whose answers may end before their slots do, and what their authors put there
    (StackManipulation(num_symbols=2, reads="top_down", end="token", query="token", count="input"), "ST1"),
    (BinaryAddition(padding="none", count="input"), "0"),
    (BinaryMultiplication(padding="none"), "0"),
]
SMALL = Eval(lengths=(3, 12), test=40, validation=12, every=2, bins=(3, 12), extrapolate=())


def run_of(task: Task, model: ModelConfig | None = None, **settings: Any) -> Run:
    settings = {"steps": 20, "batch": 5, "lengths": (3, 8), "precision": "fp64", "warmup": 0.0, "clip": 0.0, **settings}
    return Run(task=task, model=model or LSTMConfig(d_model=8), train=Train(**settings), eval=SMALL)


def pack_of(*runs: Run) -> Pack:
    return Pack(list(runs), device=CPU, backend="reference")


def loss_by_hand(run: Run, model: torch.nn.Module, *, blank: str | None) -> Tensor:
    """Minus the mean log probability of what should stand in each slot, one slot after the other."""
    batch = TrainingStream([replace(run, train=replace(run.train, loss_over="answers"))], CPU).batch(0, longest=8)
    logits_BLV = model(batch.tokens_BL, Context(prompt_B=batch.prompt_B, backend="reference"))
    terms = []
    for row, (first, end) in enumerate(zip(batch.prompt_B.tolist(), batch.length_B.tolist(), strict=True)):
        for place in range(first - 1, end):
            if batch.scored_BL[row, place]:
                wanted = int(batch.targets_BL[row, place])
            elif blank is None:
                continue
            else:
                wanted = run.task.vocab.index(blank)
            logits = logits_BLV[row, place]
            terms.append((logits - logits.max()).exp().sum().log() + logits.max() - logits[wanted])
    return torch.stack(terms).mean()


@pytest.mark.parametrize(("task", "blank"), ENDED, ids=lambda case: getattr(case, "name", ""))
@pytest.mark.parametrize("over", ["answers", "slots"])
def test_the_loss_is_over_answers_or_over_every_slot(task: Task, blank: str, over: str) -> None:
    run = run_of(task, loss_over=over)
    pack = pack_of(run)
    expected = loss_by_hand(run, pack.models[0], blank=blank if over == "slots" else None)
    gradients = torch.autograd.grad(expected, list(pack.models[0].parameters()))
    gradient_RP, loss_R, _ = pack.gradients(pack.step_number, pack.draw(pack.step_number, 8))
    torch.testing.assert_close(loss_R[0], expected.detach(), rtol=1e-12, atol=0)
    for span, gradient in zip(pack._spans, gradients, strict=True):
        torch.testing.assert_close(gradient_RP[0, span], gradient.flatten(), rtol=1e-10, atol=1e-14)


def test_slots_behind_the_last_answer_are_trained_and_never_scored() -> None:
    task = ENDED[0][0]
    one, other = run_of(task), run_of(task, loss_over="slots")
    plain, full = (pack_of(run).draw(torch.tensor(0), 8) for run in (one, other))
    slots_B = full.length_B - full.prompt_B + 1
    assert full.scored_BL.sum(1).tolist() == slots_B.tolist() != plain.scored_BL.sum(1).tolist()
    assert torch.equal(full.targets_BL[plain.scored_BL], plain.targets_BL[plain.scored_BL])
    assert torch.equal(full.tokens_BL, plain.tokens_BL)
    scores = [
        Evaluator(run, pack_of(one).models[0], device=CPU, backend="reference").test().plain() for run in (one, other)
    ]
    assert scores[0] == scores[1]


@pytest.mark.parametrize("task", [Parity(), Parity(supervision="dense"), ReverseString()], ids=str)
def test_where_every_slot_is_an_answer_nothing_changes(task: Task) -> None:
    plain, full = (pack_of(run_of(task, loss_over=over)).draw(torch.tensor(3), 8) for over in ("answers", "slots"))
    assert all(map(torch.equal, plain, full))


def test_every_replica_of_a_pack_is_trained_on_its_own_slots() -> None:
    runs = [replace(run_of(ENDED[0][0], loss_over="slots"), seed=seed) for seed in (0, 1)]
    together = pack_of(*runs)
    loss_R = together.gradients(together.step_number, together.draw(together.step_number, 8))[1]
    for run, loss in zip(runs, loss_R, strict=True):
        alone = pack_of(run)
        _, expected_R, _ = alone.gradients(alone.step_number, alone.draw(alone.step_number, 8))
        torch.testing.assert_close(loss, expected_R[0], rtol=1e-12, atol=0)


MODELS = [LSTMConfig(d_model=8), TransformerConfig(d_model=8, num_heads=2, norm="layer", feed_forward="relu")]


@pytest.mark.parametrize("decayed", ["matrices", "all_but_embedding"])
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_what_is_decayed_is_as_with_torchs_groups(model: ModelConfig, decayed: str) -> None:
    """Public code uses torch's AdamW with a group without decay."""
    run = run_of(Parity(), model, decayed=decayed, weight_decay=0.3, lr=0.05, lr_final=0.05)
    pack, theirs = pack_of(run), pack_of(run).models[0]
    named = dict(theirs.named_parameters())
    free = [name for name, p in named.items() if "embedding" in name or (decayed == "matrices" and p.ndim < 2)]
    groups = [
        {"params": [named[name] for name in free], "weight_decay": 0.0},
        {"params": [named[name] for name in named if name not in free], "weight_decay": 0.3},
    ]
    assert len(free) == 1 or decayed == "matrices"
    optimizer = torch.optim.AdamW(groups, lr=0.05, betas=run.train.betas, eps=run.train.eps)
    stream = TrainingStream([run], CPU)
    for step in range(4):
        pack.advance(8)
        batch = stream.batch(step, longest=8)
        logits_BLV = theirs(batch.tokens_BL, Context(prompt_B=batch.prompt_B, backend="reference"))
        loss = torch.nn.functional.cross_entropy(logits_BLV[batch.scored_BL], batch.targets_BL[batch.scored_BL])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for name, parameter in pack.models[0].named_parameters():
        torch.testing.assert_close(parameter, named[name], rtol=1e-7, atol=1e-9)


def test_replicas_that_decay_other_things_are_no_pack() -> None:
    runs = [run_of(Parity(), decayed=decayed) for decayed in ("matrices", "all_but_embedding")]
    with pytest.raises(AssertionError, match="scalars of training alone"):
        pack_of(*runs)


@pytest.mark.parametrize(("above", "ended"), [(1.0, False), (0.01, True)])
def test_a_run_may_stop_short_of_perfect(above: float, ended: bool, tmp_path: Any) -> None:
    run = run_of(Parity(), steps=6, precision="fp32", lr=0.1, stop_after=1, stop_above=above)
    result = execute(run, Exec(results=tmp_path), quiet=True)
    assert (result["stopped_early"], result["steps"]) == ((True, 2) if ended else (False, 6))


@pytest.mark.parametrize("count", [1, 40, 41])
def test_lengths_that_take_turns_have_as_many_strings(count: int) -> None:
    legal = ModArithmetic(count="input").legal_lengths(3, 12)
    assert legal == (3, 5, 7, 9, 11)
    found = evaluation_lengths(ModArithmetic(), legal, count=count, seed=0, split="test", by="turn").tolist()
    assert found == [legal[row % 5] for row in range(count)]


def test_a_run_is_scored_on_them() -> None:
    run = run_of(ModArithmetic(count="input"))
    turns = replace(run, eval=replace(SMALL, lengths_by="turn"))
    evaluator = Evaluator(turns, pack_of(run).models[0], device=CPU, backend="reference")
    assert evaluator.test().strings == (8,) * 5
    drawn = Evaluator(run, pack_of(run).models[0], device=CPU, backend="reference").test()
    assert sum(drawn.strings) == 40 and len(set(drawn.strings)) > 1
    accuracy = evaluator.test().accuracy(score="lengths")
    assert accuracy is not None and math.isclose(accuracy, evaluator.test().accuracy(score="tokens") or 0)
