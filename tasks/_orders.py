"""Stories about hidden orders: facts compare two things each, and the question asks for a consequence.

Each axis orders the things uniformly at random. A fact is a random pair on a random axis, stated truthfully in one of
two ways. The question is a pair whose order follows from the facts by transitivity, if possible one that no fact
compares. Its answer is yes or no with equal probability. The longer a story, the more pairs are compared directly, and
the fewer with more `things`. A good guess needs no chain of facts: the lesser of the two is the one that facts more
often call the lesser than the greater. This holds for .94 to 1 of the stories of any length.
"""

from abc import abstractmethod
from dataclasses import dataclass
from itertools import permutations, product
from typing import ClassVar

import torch
from torch import Tensor

from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks._sentences import Story
from chomsky_ladder.tasks.base import bounded
from chomsky_ladder.tasks.draw import Draw


@dataclass(frozen=True, kw_only=True)
class Orders(Story):
    words: ClassVar[tuple[str, ...]]  # words for all possible things
    relations: ClassVar[tuple[tuple[str, str], ...]]  # for each axis: lesser to greater, and back
    asked: ClassVar[int]  # number of relations of an axis that questions use: the first, or both

    things: int = 8
    """The number of things. With fewer things, a story compares every pair directly sooner."""

    def __post_init__(self) -> None:
        bounded(self, "things", 3, len(self.words))

    @abstractmethod
    def statement(self, one: str, relation: str, other: str) -> str:
        """Return the sentence that states this relation of `one` to `other`."""

    @abstractmethod
    def question(self, one: str, relation: str, other: str) -> str:
        """Return the sentence that asks for this relation."""

    @property
    def answers(self) -> tuple[int, ...]:
        return self.vocab.index("yes"), self.vocab.index("no")

    def statements(self) -> list[str]:
        return [
            self.statement(one, relation, other)
            for axis in self.relations
            for one, other in permutations(self.words[: self.things], 2)
            for relation in axis
        ]

    def questions(self) -> list[str]:
        """Return the questions on each cell (axis, lesser, greater): each relation asked, in both orders."""
        return [
            self.question(one, relation, other)
            for axis in self.relations
            for pair in product(self.words[: self.things], repeat=2)
            for relation in axis[: self.asked]
            for one, other in (pair, pair[::-1])
        ]

    def tell(self, draw: Draw, told_BN: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        axes, size = len(self.relations), self.things
        stated_F = _stated(axes, size, told_BN.device)
        rank_BAE = torch.stack([draw.permutation(size) for _ in range(axes)], dim=1)
        less_BC = (rank_BAE[..., :, None] < rank_BAE[..., None, :]).flatten(1)
        first_BN = draw.integers(len(stated_F) // 2, (told_BN.shape[1],)) * 2
        fact_BN = first_BN + ~less_BC.gather(1, stated_F.take(first_BN))
        cell_BN = stated_F.take(fact_BN)
        cell_B = self._implied(draw, torch.where(told_BN, cell_BN, cell_BN[:, :1]))  # the first one is always told
        forms = 2 * self.asked
        form_B = draw.integers(forms)
        yes, no = self.answers
        # True statements: the first relation, lesser to greater, and the second, greater to lesser.
        answer_B = torch.where((form_B == 0) | (form_B == 3), yes, no)
        return fact_BN, cell_B * forms + form_B, answer_B

    def _implied(self, draw: Draw, cell_BN: Tensor) -> Tensor:
        """Draw a random cell that follows from the stated ones, and is not among them if possible."""
        axes, size = len(self.relations), self.things
        # GPUs multiply only floats; these are whole numbers of at most 1 + size, exact in any precision.
        stated_BC = torch.zeros(len(cell_BN), axes * size * size, device=cell_BN.device).scatter(1, cell_BN, 1.0)
        follows_MEE = stated_BC.reshape(-1, size, size)
        for _ in range((size - 2).bit_length()):  # chains of up to 2, 4, 8 .. facts
            follows_MEE = torch.baddbmm(follows_MEE, follows_MEE, follows_MEE).clamp(max=1)
        follows_BC = follows_MEE.reshape(stated_BC.shape)
        new_B1 = (follows_BC != stated_BC).any(1, keepdim=True)
        upto_BC = (follows_BC - stated_BC * new_B1).long().cumsum(1)
        return (upto_BC <= draw.integers(upto_BC[:, -1])[:, None]).sum(1)


@kept
def _stated(axes: int, size: int, device: torch.device) -> Tensor:
    """Return the cell (axis, lesser, greater) of each fact, in the order of `statements`, as one number."""
    return torch.tensor(
        [
            (axis * size + lesser) * size + greater
            for axis in range(axes)
            for one, other in permutations(range(size), 2)
            for lesser, greater in ((one, other), (other, one))
        ],
        device=device,
    )
