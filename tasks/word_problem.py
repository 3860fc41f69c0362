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

`held_pairs`: training and validation have no string with a held-out pair of neighbouring elements (_held_pairs.py), and
tests have all pairs. After arXiv 2606.07254. `observe`: the answer is a part of the product, its coset under the
permutations that leave 0 in place. The point that 0 goes to follows from a machine of as many states as points. To know
the point that comes to 0, a machine has to hold the whole product:

    S3: 102 021  ->  201: under `image` @2, since 0 goes to 2; under `source` @1, since 1 comes to 0

`effect`: each element takes effect with this probability, and nothing shows if it did. So no model is always right, and
the metric `best_possible` says how often the best answer is (_beliefs.py). States that `reveal` prints are sure. After
arXiv 2602.14814.
"""

import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from chomsky_ladder.tasks import _beliefs, _groups, _held_pairs, _monoid, _sessions
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
    """The seed of the further elements of generators=n, and of held-out pairs. They are the same in every run."""
    tokens_per: int = 1
    """Tokens of an element: the element itself, then fillers.

    The answer is read at the last token, and all of them count.
    """
    asks: Literal["last", "every"] = "last"
    """What is scored: the product of the whole string, or that of every prefix (then `exact` is sequence accuracy)."""
    reveal: int = 0
    """Per cent of the elements that are followed by a ? and the state. The string then ends with a ?."""
    held_pairs: int = 0
    """Per cent of the ordered pairs of neighbours that training and validation never have, while tests have all pairs.

    Each element has equally many held-out successors: the nearest whole number, but at least one.
    """
    observe: Literal["element", "image", "source"] = "element"
    """The answer: the whole product, the point that 0 goes to, or the point that comes to 0."""
    effect: int = 100
    """Per cent of the elements that take effect. The others leave the state as it is, and look the same."""

    def __post_init__(self) -> None:
        super().__post_init__()
        found = _groups.group(self.group)
        bounded(self, "tokens_per", 1, 64)
        bounded(self, "reveal", 0, 100)
        bounded(self, "pick", 0, 2**63 - 1)
        if self.reveal and (self.tokens_per > 1 or self.asks == "every"):
            raise ValueError("word_problem: reveal goes with tokens_per=1 and asks=last")
        bounded(self, "held_pairs", 0, 99)
        bounded(self, "effect", 1, 100)
        if self.observe != "element" and "x" in self.group:
            raise ValueError(f"word_problem: observe={self.observe} goes with a single group, not with {self.group}")
        if self.held_pairs and (self.reveal or self.query == "token"):
            raise ValueError("word_problem: held_pairs goes with reveal=0 and query=none")
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
        symbols = len(_drawn(self.group, self.inputs, self.pick))
        if self.held_pairs and symbols - _held_pairs.number_of(symbols, self.held_pairs) < 2:
            raise ValueError(f"word_problem: held_pairs={self.held_pairs} leaves fewer than two allowed successors")

    @property
    def vocab(self) -> tuple[str, ...]:
        further = (".",) if self.tokens_per > 1 else ("?",) if self.reveal else ()
        points = () if self.observe == "element" else _groups.points(self.group)
        return "PAD", *_groups.group(self.group).names, *further, *(f"@{point}" for point in points)

    @property
    def answers(self) -> tuple[int, ...]:
        if self.observe == "element":
            return tuple(range(FIRST, self.further))
        return tuple(range(len(self.vocab)))[-len(_groups.points(self.group)) :]

    @property
    def further(self) -> int:
        """Return the token after the elements: the filler, or the ?."""
        return FIRST + _groups.order(self.group)

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """Return the number of products, or of the points that 0 may go to. A state that is not sure is none."""
        if self.is_unsure:
            return ()
        return (_groups.order(self.group) if self.observe == "source" else len(self.answers),)

    @property
    def demand(self) -> str:
        return "" if self.is_unsure else _monoid.demand(_groups.transitions(self.group))

    @property
    def facts(self) -> dict[str, str]:
        """Return the class of the group, and how many pairs are held out."""
        found = _monoid.facts(_groups.transitions(self.group))
        if self.held_pairs:
            symbols = len(self._pairs.circle)
            found["held-out pairs"] = f"{symbols * len(self._pairs.held)} of {symbols**2}"
        return found

    @property
    def holds_out(self) -> bool:
        return self.held_pairs > 0

    @property
    def is_unsure(self) -> bool:
        return self.effect < 100

    @property
    def _pairs(self) -> _held_pairs.HeldPairs:
        return _pairs(self.group, self.inputs, self.pick, self.held_pairs)

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
        if self.is_unsure:
            batch = batch._replace(tokens_BL=batch.tokens_BL % len(self.vocab))
        if self.asks == "last":
            return batch
        return batch._replace(prompt_B=torch.full_like(batch.prompt_B, self.tokens_per))

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        """Draw strings as tokens. An element without effect is its token plus the size of the vocabulary."""
        token_BN = self._elements(draw, -(-columns // self.tokens_per)) + FIRST
        if self.is_unsure:
            works_BN = draw.integers(100, (token_BN.shape[1],)) < self.effect
            token_BN = torch.where(works_BN, token_BN, token_BN + len(self.vocab))
        if self.tokens_per > 1:
            spread_BNK = pad(token_BN[..., None], (0, self.tokens_per - 1), value=self.further)
            return spread_BNK.flatten(1)[:, :columns]
        if not self.reveal:
            return token_BN
        is_asked_BL = _sessions.questions(draw, size_B, columns, reveal=self.reveal)
        x_BL = torch.where(is_asked_BL, self.further, token_BN)
        return torch.where(_sessions.behind(is_asked_BL), self._said(x_BL), x_BL)

    def _elements(self, draw: Draw, number: int) -> Tensor:
        """Draw elements, [B, number]."""
        if self.held_pairs and draw.split.partition("/")[0] in ("train", "validation"):
            tables = _circle_on(self.group, self.inputs, self.pick, self.held_pairs, draw.rows_B.device)
            return _held_pairs.walk(*tables, draw, number)
        drawn_S = _drawn_on(self.group, self.inputs, self.pick, draw.rows_B.device)
        element_BN = draw.integers(len(drawn_S), (number,))
        return drawn_S.index_select(0, element_BN.flatten()).view(element_BN.shape)

    def prefix_answers(self, x_BL: Tensor) -> Tensor:
        said_BL = self._said(x_BL)
        if self.reveal:
            return torch.where(x_BL == self.further, said_BL, PAD)
        return torch.where(self._ends(x_BL), said_BL, PAD) if self.tokens_per > 1 else said_BL

    def _said(self, x_BL: Tensor) -> Tensor:
        """Return the product of each prefix, or the part of it that is asked for, as a token."""
        products_BL = self._products(x_BL)
        if self.observe == "element":
            return products_BL + FIRST
        return _groups.parts(self.group, self.observe, x_BL.device).take(products_BL) + self.answers[0]

    def _ends(self, tokens_BL: Tensor) -> Tensor:
        """Mark the last token of each element, [L]."""
        position_L = torch.arange(tokens_BL.shape[1], device=tokens_BL.device)
        return position_L % self.tokens_per == self.tokens_per - 1

    def state(self, tokens_BL: Tensor) -> Tensor:
        if self.observe == "image":
            return (self._said(tokens_BL) - self.answers[0])[..., None]
        return self._products(tokens_BL)[..., None]

    def after_pairs(self, tokens_BL: Tensor) -> tuple[Tensor, Tensor]:
        element_BN = (tokens_BL[:, :: self.tokens_per] - FIRST).clamp(min=0)
        is_held_BN = _held_pairs.are_held(self._pairs, element_BN, num=_groups.order(self.group))
        is_end_L = self._ends(tokens_BL)
        is_held_BL = is_held_BN.repeat_interleave(self.tokens_per, 1)[:, : len(is_end_L)] & is_end_L
        return (is_end_L & (is_end_L.cumsum(0) > 1)).expand_as(tokens_BL), is_held_BL

    def best_possible(self, tokens_BL: Tensor) -> Tensor:
        is_shown_BL = _sessions.behind(tokens_BL == self.further) & (self.reveal > 0)
        is_element_BL = (tokens_BL < self.further) & (tokens_BL != PAD) & ~is_shown_BL
        seen_BL = torch.where(is_element_BL, tokens_BL - FIRST, 0)
        shown_BL = torch.where(is_shown_BL, tokens_BL - self.answers[0], -1)
        parts_N = _groups.parts(self.group, self.observe, tokens_BL.device)
        return _beliefs.best_chances(self.group, seen_BL, shown_BL, parts_N, effect=self.effect / 100)

    def _products(self, tokens_BL: Tensor) -> Tensor:
        element_BL = (tokens_BL - FIRST).clamp(min=0)  # PAD changes nothing: the identity is the first element
        if self.is_unsure:
            element_BL = torch.where(tokens_BL >= len(self.vocab), 0, element_BL)
        if self.tokens_per > 1 or self.reveal:
            is_other_BL = tokens_BL == self.further
            if self.reveal:
                is_other_BL = is_other_BL | _sessions.behind(is_other_BL)
            element_BL = torch.where(is_other_BL, 0, element_BL)
        return _groups.running(
            element_BL, _groups.table_of(self.group, tokens_BL.device), num=_groups.order(self.group)
        )

    def answer_law(self, length: int) -> np.ndarray:
        size = self.size(length)
        count = size // self.tokens_per
        drawn, steps = _drawn(self.group, self.inputs, self.pick), 1 << size.bit_length()
        law = _groups.folded(_groups.walk(self.group, drawn, steps, effect=self.effect), self.group, self.observe)
        if self.reveal:
            law = (_sessions.elements_law(size, self.reveal)[:, None] * law[: size + 1]).sum(0)[None]
        else:
            law = law[[*range(1, count + 1), *[count] * len(self.closing)] if self.asks == "every" else [count]]
        return pad(torch.from_numpy(law), (self.answers[0], len(self.vocab) - 1 - self.answers[-1])).numpy()


@kept
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


@kept
def _pairs(group: str, inputs: str, pick: int, percent: int) -> _held_pairs.HeldPairs:
    return _held_pairs.chosen(_drawn(group, inputs, pick), percent, name=group, seed=pick)


@kept
def _circle_on(group: str, inputs: str, pick: int, percent: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the elements on the circle, and the allowed distances."""
    pairs = _pairs(group, inputs, pick, percent)
    return torch.tensor(pairs.circle, device=device), torch.tensor(pairs.allowed, device=device)
