"""Stories of short sentences with one question at the end. The answer is read at its last word, the question mark.

    mary went to garden . where is mary ?  ->  garden        one fact, 9 input positions

A length is the number of facts. All facts have the same number of words, and so have all questions. A task lists the
possible sentences (`statements`, `questions`) and tells stories as indices into these lists (`tell`).
"""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding, pad

from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks.base import PAD, Batch, Task
from chomsky_ladder.tasks.draw import Draw


@dataclass(frozen=True, kw_only=True)
class Story(Task):
    asks_once = True

    @abstractmethod
    def statements(self) -> list[str]:
        """Return every sentence that a story can contain."""

    @abstractmethod
    def questions(self) -> list[str]:
        """Return every possible question."""

    @abstractmethod
    def tell(self, draw: Draw, told_BN: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the facts [B, N] and the question [B] as indices into their lists, and the answer [B], uniform on
        `answers`.

        Only the facts in `told_BN`, the first ones of each row, are told. Values at the others are ignored.
        """

    def legal_lengths(self, low: int, high: int) -> tuple[int, ...]:
        return tuple(range(max(low, 1), high + 1))

    def positions(self, length: int) -> int:
        fact_words, question_words = (len(sentences()[0].split()) for sentences in (self.statements, self.questions))
        return length * fact_words + question_words

    def sample(self, draw: Draw, lengths_B: Tensor, width: int) -> Batch:
        fact_FW, question_QW = _tables(self, lengths_B.device)
        fact_words, question_words = fact_FW.shape[1], question_QW.shape[1]
        columns = (width - question_words) // fact_words
        told_BN = torch.arange(columns, device=lengths_B.device) < lengths_B[:, None]
        fact_BN, question_B, answer_B = self.tell(draw, told_BN)
        untold = len(fact_FW) - 1
        story_BL = embedding(torch.where(told_BN, fact_BN, untold), fact_FW).flatten(1)
        start_B1 = lengths_B[:, None] * fact_words
        place_BW = start_B1 + torch.arange(question_words, device=lengths_B.device)
        story_BL = pad(story_BL, (0, width - columns * fact_words), value=PAD)
        tokens_BL = story_BL.scatter(1, place_BW, question_QW.index_select(0, question_B))
        end_B1 = start_B1 + question_words
        targets_BL = torch.zeros_like(tokens_BL).scatter(1, end_B1 - 1, answer_B[:, None])
        return Batch(tokens_BL, targets_BL, targets_BL != PAD, end_B1[:, 0], end_B1[:, 0])

    def answer_law(self, length: int) -> np.ndarray:
        return self.uniform_law()


@kept
def _tables(task: Story, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the facts, then a blank one, and the questions, as rows of tokens."""
    token = {word: index for index, word in enumerate(task.vocab)}
    facts, questions = (
        torch.tensor([[token[word] for word in sentence.split()] for sentence in sentences], device=device)
        for sentences in (task.statements(), task.questions())
    )
    return pad(facts, (0, 0, 0, 1), value=PAD), questions
