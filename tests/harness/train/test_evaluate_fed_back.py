"""Scores of answers fed back are what a slow loop counts that hears its own answers."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from chomsky_ladder.harness.train.evaluate import Answers
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Context
from chomsky_ladder.tasks.base import Batch, Task
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification
from chomsky_ladder.tasks.mod_arithmetic import ModArithmetic
from chomsky_ladder.tasks.parity import Parity
from chomsky_ladder.tasks.reverse_string import ReverseString
from chomsky_ladder.tasks.stack_manipulation import StackManipulation
from support.slow_scores import (
    MODELS,
    SMALL,
    assert_same,
    counted,
    evaluator_of,
    heard_in_parallel,
    nats_of,
    rows_of,
    run_of,
    said_of,
    targets_of,
)

torch.set_num_threads(1)
TEACHER = [
    ReverseString(decode="teacher", num_symbols=3),
    StackManipulation(decode="teacher", num_symbols=2, push=2),
    ReverseString(decode="teacher", num_symbols=2, query="none"),
]


@torch.no_grad()
def heard_fed_back(model: nn.Module, batch: Batch) -> list[list[float]]:
    """The logits of the answers, each from a whole forward pass over the prompt and the model's answers before."""
    tokens = batch.tokens_BL[0, : int(batch.prompt_B)].tolist()
    heard: list[list[float]] = []
    for _ in range(int(batch.scored_BL.sum())):
        logits_BLV = model(torch.tensor([tokens + said_of(heard)]), Context(backend="reference"))
        heard.append(logits_BLV[0, -1].tolist())
    return heard


@pytest.mark.parametrize("task", TEACHER, ids=["reverse", "stack", "reverse-without-query"])
@pytest.mark.parametrize("model", MODELS[:2], ids=lambda model: model.name)
def test_answers_fed_back_equal_a_slow_loop(task: Task, model: ModelConfig) -> None:
    evaluator = evaluator_of(run_of(task, model))
    strings = rows_of(task, split="test", lengths=SMALL.lengths, count=SMALL.test)
    heard = [heard_fed_back(evaluator.model, batch) for _, batch in strings]
    assert_same(evaluator.test(), counted(strings, heard))
    legal = task.legal_lengths(*SMALL.lengths)
    answers = list(evaluator.answers("test", legal, SMALL.test))
    found = {row: said for one in answers for row, said in heard_of(one)}
    assert found == dict(enumerate(map(said_of, heard)))
    for one in answers:
        assert one.nats_BL.dtype == torch.float64
        assert (one.nats_BL[~one.batch.scored_BL] == 0).all()
        for place, row in enumerate(one.rows_B.tolist()):
            expected = list(map(nats_of, heard[row], targets_of(strings[row][1])))
            assert one.nats_BL[place, one.batch.scored_BL[place]].tolist() == pytest.approx(expected, rel=1e-9)


def heard_of(answers: Answers) -> list[tuple[int, list[int]]]:
    """Row -> what was said in its answer slots; each but the last stands in the input behind its slot."""
    heard = []
    for place, row in enumerate(answers.rows_B.tolist()):
        slots = answers.batch.scored_BL[place].nonzero()[:, 0].tolist()
        said = answers.said_BL[place, slots].tolist()
        assert slots == list(range(slots[0], slots[0] + len(slots)))
        assert answers.batch.tokens_BL[place, slots[1:]].tolist() == said[:-1]
        right = [a == b for a, b in zip(said, answers.batch.targets_BL[place, slots].tolist(), strict=True)]
        assert answers.right_BL[place].nonzero()[:, 0].tolist() == [s for s, ok in zip(slots, right, strict=True) if ok]
        heard.append((row, said))
    return heard


@pytest.mark.parametrize("model", MODELS[:2], ids=lambda model: model.name)
def test_answers_fed_back_are_not_the_teachers(model: ModelConfig) -> None:
    """An untrained model that is shown the right answers says other things than one that hears its own."""
    task = TEACHER[0]
    evaluator = evaluator_of(run_of(task, model))
    strings = rows_of(task, split="test", lengths=SMALL.lengths, count=SMALL.test)
    shown = [heard_in_parallel(evaluator.model, batch) for _, batch in strings]
    heard = [heard_fed_back(evaluator.model, batch) for _, batch in strings]
    shown_said, heard_said = (list(map(said_of, answers)) for answers in (shown, heard))
    assert shown_said != heard_said
    assert [said[0] for said in shown_said] == [said[0] for said in heard_said]
    score, forced = evaluator.test(), counted(strings, shown)
    assert score.correct != forced.correct
    assert abs(score.loss() - forced.loss()) > 1e-6


@pytest.mark.parametrize("task", [Parity(supervision="dense"), ModArithmetic(supervision="dense", query="token")])
def test_dense_supervision_is_scored_on_final_answers(task: Classification) -> None:
    dense, final = evaluator_of(run_of(task)), evaluator_of(run_of(replace(task, supervision="final")))
    assert dense.test() == final.test()
    assert dense.test().scored == dense.test().strings
    assert dense.validation() == final.validation() and dense.in_distribution() == final.in_distribution()
    draw = Draw(seed=0, split="train", rows_B=torch.arange(4))
    assert task.sample(draw, torch.full((4,), 9), task.positions(9)).scored_BL.sum() > 4  # there was more to score
