"""An error of a broken part becomes one line."""

from dataclasses import dataclass

import torch
from torch import Tensor

from chomsky_ladder.harness.conform.say import said_of
from chomsky_ladder.harness.conform.suite import check, run_check
from chomsky_ladder.harness.conform.task import its_answers_cannot_be_guessed
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification


@dataclass(frozen=True, kw_only=True)
class Silent(Classification):
    name, version, level = "silent", 1, "regular"
    vocab, answers = ("PAD", "a", "b"), (1, 2)

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return draw.integers(2, (columns,)) + 1


def test_a_task_without_answers_is_told_what_to_write() -> None:
    reasons = {outcome.reason for outcome in check(Silent()) if outcome.verdict == "FAIL"}
    assert reasons == {"Silent has no answers: write `answer` or `prefix_answers`"}


@dataclass(frozen=True, kw_only=True)
class Mostly(Silent):
    """Almost always no: b only if the string has nothing but b's."""

    def answer(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        behind_BL = torch.arange(x_BL.shape[1]) >= size_B[:, None]
        return ((x_BL == 2) | behind_BL).all(1).long() + 1


def test_a_task_that_is_guessed_does_not_conform() -> None:
    outcome = run_check(its_answers_cannot_be_guessed, Mostly())
    assert outcome.verdict == "FAIL" and outcome.reason.startswith("the commonest answer alone scores 0.9"), outcome


def test_an_error_without_a_text_has_its_kind() -> None:
    assert said_of(NotImplementedError()).startswith("NotImplementedError:")
