"""The product of permutations, after each of them: the word problem of a group.

    S3: 102 021 102 201  ->  102 201 210 102        x first, then y: (x y)(i) = y[x[i]]

Regular: the state is an element of the group (tasks/_groups.py). For groups such as A5 and S5, which are not solvable,
the problem is complete for NC1 (Barrington 1989): threshold circuits of constant depth solve it only if TC0 = NC1.
Merrill, Petty and Sabharwal 2024 (2404.08819). Grazzi et al. 2024 (2411.12537) have strings of easy elements (`inputs`)
and of several tokens for each element (`tokens_per`). (G, n) of PD-SSM (2509.22284) is `generators=n`.

Under `reveal` a string is a session in which the state is printed now and then. With that percentage, an element is
followed by a ? and the product so far. The last symbol is a ? that is answered. The last element stands right before
it, so the state printed last is never the answer by itself. Dense targets stand at every ?:

    S3: 102 021 ? 201 102 ?  ->  201 at the first ?, 102 at the last        201 after it is shown, and no element
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.tasks import _groups, _monoid
from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks.base import PAD, Batch, bounded, register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

FIRST = 1


@register
@dataclass(frozen=True, kw_only=True)
class WordProblem(Classification):
    name, version, level = "word_problem", 1, "regular"
    tracks_state = True

    supervision: Literal["final", "dense"] = "dense"
    """Training targets: the answer of the whole string, or that of every prefix.

    `asks` decides what evaluation scores.
    """
    group: str = "S5"
    """S3 to S6, A4 to A6, Z2 .., D3 .. (of 2 n elements), and direct products of these, such as A4xZ5."""
    inputs: str = "all"
    """The symbols drawn, uniformly: all | generators | generators=n | swaps | 3-perm.

    generators: of S3 and S5 the exchange of 0 and 1 and the cycle i -> i+1; of A5 the cycles 0 -> 1 -> 2 -> 0 and i ->
    i+1 (of A4 and A6 the cycle of all but 0); of Z 0 and 1; of D r1 and s0; of a product those of each factor.
    generators=n adds random elements, chosen by `pick`, up to n symbols. swaps: the identity and all exchanges of two,
    for S only. 3-perm: the elements that move at most three points, for S and A.
    """
    pick: int = 0
    """The seed of the further elements of generators=n, which are the same in every string of every run."""
    tokens_per: int = 1
    """Tokens of an element: the element itself, then fillers.

    The answer is read at the last token, and all of them count.
    """
    asks: Literal["last", "every"] = "last"
    """What is scored: the product of the whole string, or that of every prefix (then `exact` is sequence accuracy)."""
    reveal: int = 0
    """Per cent of the elements that are followed by a ? and the state. The string then ends with a ?."""

    def __post_init__(self) -> None:
        super().__post_init__()
        found = _groups.group(self.group)
        bounded(self, "tokens_per", 1, 64)
        bounded(self, "reveal", 0, 100)
        bounded(self, "pick", 0, 2**63 - 1)
        if self.reveal and (self.tokens_per > 1 or self.asks == "every"):
            raise ValueError("word_problem: reveal goes with tokens_per=1 and asks=last")
        if not (number := re.fullmatch(r"all|swaps|3-perm|generators(?:=(\d{1,4}))?", self.inputs)):
            raise ValueError(
                f"word_problem: inputs are all, generators, generators=n, swaps or 3-perm, not {self.inputs!r}"
            )
        has_them = {"swaps": "S.", "3-perm": "S.|A."}.get(self.inputs, ".*")
        if not re.fullmatch(has_them, self.group):
            raise ValueError(f"word_problem: {self.group} has no inputs={self.inputs}")
        least, most = len(found.generators), len(found.elements)
        if number[1] and not least <= int(number[1]) <= most:
            raise ValueError(f"word_problem: {self.group} has generators={least} to generators={most}, not {number[1]}")

    @property
    def vocab(self) -> tuple[str, ...]:
        further = (".",) if self.tokens_per > 1 else ("?",) if self.reveal else ()
        return "PAD", *_groups.group(self.group).names, *further

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(FIRST, self.further))

    @property
    def further(self) -> int:
        """Return the token after the elements: the filler, or the ?."""
        return FIRST + _groups.order(self.group)

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """Return the sizes: the product so far, as its index among the elements."""
        return (len(self.answers),)

    @property
    def demand(self) -> str:
        return _monoid.demand(_groups.transitions(self.group))

    @property
    def facts(self) -> dict[str, str]:
        """Return the class of the group."""
        return _monoid.facts(_groups.transitions(self.group))

    @property
    def asks_prefixes(self) -> bool:
        return self.asks == "every" or super().asks_prefixes

    @property
    def asks_once(self) -> bool:
        return not self.asks_prefixes

    def legal_size(self, size: int) -> bool:
        return size >= 2 if self.reveal else size >= 1 and size % self.tokens_per == 0

    def sample(self, draw: Draw, lengths_B: Tensor, width: int) -> Batch:
        batch = super().sample(draw, lengths_B, width)
        if self.asks == "last":
            return batch
        return batch._replace(prompt_B=torch.full_like(batch.prompt_B, self.tokens_per))

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        drawn_S = _drawn_on(self.group, self.inputs, self.pick, size_B.device)
        element_BN = draw.integers(len(drawn_S), (-(-columns // self.tokens_per),))
        element_BN = drawn_S.index_select(0, element_BN.flatten()).view(element_BN.shape)
        if self.tokens_per > 1:
            spread_BNK = pad((element_BN + FIRST)[..., None], (0, self.tokens_per - 1), value=self.further)
            return spread_BNK.flatten(1)[:, :columns]
        return self._session(draw, element_BN + FIRST, size_B) if self.reveal else element_BN + FIRST

    def _session(self, draw: Draw, x_BL: Tensor, size_B: Tensor) -> Tensor:
        """Return the elements, some of them replaced by a ? and the state after it."""
        columns, end_B1 = x_BL.shape[1], size_B[:, None] - 1
        is_followed_BN = draw.integers(100, (columns,)) < self.reveal
        taken_BN = 1 + 2 * is_followed_BN
        asked_BN = taken_BN.cumsum(1) - taken_BN + 1  # where its ? would stand
        place_BN = torch.where(is_followed_BN, asked_BN, columns).clamp(max=columns)
        is_asked_BL = x_BL.new_zeros(len(x_BL), columns + 1).scatter(1, place_BN, 1)[:, :columns] > 0
        position_L = torch.arange(columns, device=x_BL.device)
        is_asked_BL = (is_asked_BL & (position_L <= end_B1 - 3)) | (position_L == end_B1)
        x_BL = torch.where(is_asked_BL, self.further, x_BL)
        return torch.where(_behind(is_asked_BL), self._products(x_BL) + FIRST, x_BL)

    def prefix_answers(self, x_BL: Tensor) -> Tensor:
        products_BL = self._products(x_BL) + FIRST
        if self.reveal:
            return torch.where(x_BL == self.further, products_BL, PAD)
        if self.tokens_per == 1:
            return products_BL
        position_L = torch.arange(x_BL.shape[1], device=x_BL.device)
        return torch.where(position_L % self.tokens_per == self.tokens_per - 1, products_BL, PAD)

    def state(self, tokens_BL: Tensor) -> Tensor:
        return self._products(tokens_BL)[..., None]

    def _products(self, tokens_BL: Tensor) -> Tensor:
        element_BL = (tokens_BL - FIRST).clamp(min=0)  # PAD changes nothing: the identity is the first element
        if self.tokens_per > 1 or self.reveal:
            is_other_BL = tokens_BL == self.further
            if self.reveal:
                is_other_BL = is_other_BL | _behind(is_other_BL)
            element_BL = torch.where(is_other_BL, 0, element_BL)
        return _groups.running(
            element_BL, _groups.table_of(self.group, tokens_BL.device), num=_groups.order(self.group)
        )

    def answer_law(self, length: int) -> np.ndarray:
        size = self.size(length)
        count = size // self.tokens_per
        law = _groups.walk(self.group, _drawn(self.group, self.inputs, self.pick), 1 << size.bit_length())
        if self.reveal:
            law = (_elements_law(size, self.reveal)[:, None] * law[: size + 1]).sum(0)[None]
        else:
            law = law[[*range(1, count + 1), *[count] * len(self.closing)] if self.asks == "every" else [count]]
        return pad(torch.from_numpy(law), (FIRST, len(self.vocab) - self.further)).numpy()


def _behind(is_asked_BL: Tensor) -> Tensor:
    """Return the positions right after those."""
    return pad(is_asked_BL[:, :-1], (1, 0))


@lru_cache(maxsize=64)
def _drawn(group: str, inputs: str, pick: int) -> tuple[int, ...]:
    """Return the elements that strings are made of."""
    found = _groups.group(group)
    if inputs == "all":
        return tuple(range(len(found.elements)))
    if inputs.startswith("generators"):
        order = Draw(seed=pick, split="word_problem/generators", rows_B=torch.zeros(1, dtype=torch.int64))
        others = [x for x in order.permutation(len(found.elements))[0].tolist() if x not in found.generators]
        number = int(inputs.partition("=")[2] or len(found.generators))
        return (*found.generators, *others)[:number]
    most = 2 if inputs == "swaps" else 3
    return tuple(place for place, x in enumerate(found.elements) if _groups.moved(x) <= most)


@kept
def _drawn_on(group: str, inputs: str, pick: int, device: torch.device) -> Tensor:
    return torch.tensor(_drawn(group, inputs, pick), device=device)


@lru_cache(maxsize=256)
def _elements_law(size: int, reveal: int) -> np.ndarray:
    """Return P(a session of this many symbols has k elements), [size + 1].

    If an element at s has three more symbols and another element after it, a ? follows with probability p. The next
    element then stands at s + 3, otherwise at s + 1. A ? and its state take two symbols.
    """
    p = reveal / 100
    least = max(size - 4, 0)  # from here on none is
    at_SR = np.zeros((size + 3, size // 2 + 2))  # [s, shown before]: an element stands at s, those before it decided
    at_SR[0, 0] = 1
    for place in range(least):
        at_SR[place + 1] += (1 - p) * at_SR[place]
        at_SR[place + 3, 1:] += p * at_SR[place, :-1]
    shown_R = at_SR[least : least + 3].sum(0)
    law = np.zeros(size + 1)
    for shown, chance in enumerate(shown_R):
        if chance:
            law[size - 1 - 2 * shown] += chance
    return law
