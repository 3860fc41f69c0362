"""The two layouts of the suite: one answer (Classification) and a string of answers (Transduction).

A string is n symbols, then the tokens that `query` appends, then blank answer slots. Each answer is read one position
before its slot, so the last answer never enters the input:

    parity        a b b        the answer is read at the last symbol        n = 3, total 4, 3 input positions
    reverse       1 2 3 ACT . .    3 is read at ACT, 2 and 1 at the blanks  n = 3, total 7, 6 input positions
    bucket_sort   3 1 2 . .        1 is read at the last symbol             n = 3, total 6, 5 input positions

Lengths count everything, answers included (`count="total"`, as in the xLSTM paper), or n alone (`count="input"`, as in
Deletang et al.). A task of either layout defines the language: `symbols` draws strings, `prefix_answers` or `transduce`
answers them.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from chomsky_ladder.tasks.base import PAD, Batch, Task
from chomsky_ladder.tasks.draw import Draw

Size = Any  # an int, or an int64 tensor with one for each row: the result has the same type


@dataclass(frozen=True, kw_only=True)
class _Layout(Task):
    count: Literal["total", "input"] = "total"
    """The unit of a length: every token with all answers, or the symbols of the string alone."""
    query: Literal["none", "token"] = "none"
    """The input between the string and the first answer: nothing, or one blank token."""

    @property
    def closing(self) -> tuple[int, ...]:
        """Return the tokens that `query` appends."""
        return (PAD,) if self.query == "token" else ()

    @abstractmethod
    def slots(self, size: Size) -> Size:
        """Return the most answers a string of `size` symbols can have."""

    @abstractmethod
    def size_of_total(self, total: Size) -> Size:
        """Return n from the total length: the inverse of n + len(closing) + slots(n)."""

    @abstractmethod
    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        """Draw strings of `size_B` symbols as tokens [B, columns]. Tokens beyond a string's size are ignored."""

    def legal_size(self, size: int) -> bool:
        """Return True if the language has strings of this many symbols."""
        return size >= 1

    def size(self, length: Size) -> Size:
        return self.size_of_total(length) if self.count == "total" else length

    def length(self, size: int) -> int:
        return size + len(self.closing) + self.slots(size) if self.count == "total" else size

    def legal_lengths(self, low: int, high: int) -> tuple[int, ...]:
        if self.count == "input":
            return tuple(size for size in range(max(low, 1), high + 1) if self.legal_size(size))
        sizes, closing = filter(self.legal_size, range(1, high + 1)), len(self.closing)
        lengths = (size + closing + self.slots(size) for size in sizes)
        return tuple(length for length in lengths if low <= length <= high)

    def positions(self, length: int) -> int:
        size = self.size(length)
        return size + len(self.closing) + self.slots(size) - 1

    def _prompt(self, x_BL: Tensor, size_B: Tensor, position_L: Tensor) -> Tensor:
        """Return the symbols and the closing tokens, then blanks."""
        tokens_BL = torch.where(position_L < size_B[:, None], x_BL, PAD)
        for offset, token in enumerate(self.closing):
            tokens_BL = torch.where(position_L == size_B[:, None] + offset, token, tokens_BL)
        return tokens_BL


@dataclass(frozen=True, kw_only=True)
class Classification(_Layout):
    """One answer for each string. If the language answers every prefix, training may use all of them."""

    supervision: Literal["final", "dense"] = "final"
    """Training targets: the answer of the whole string, or that of every prefix. Evaluation scores the whole string."""

    def __post_init__(self) -> None:
        if self.supervision == "dense" and type(self).prefix_answers is Classification.prefix_answers:
            raise ValueError(f"{self.name} has no answer for a prefix: supervision='dense' is not defined")

    @property
    def asks_prefixes(self) -> bool:
        """Return True if every prefix that has an answer is a target."""
        return self.supervision == "dense"

    @property
    def asks_once(self) -> bool:
        return not self.asks_prefixes and type(self).sample is Classification.sample  # another sampler may ask for more

    def prefix_answers(self, x_BL: Tensor) -> Tensor:
        """Return the answer of each prefix x[:, : t + 1] as a token [B, L]; PAD where a prefix has none."""
        raise NotImplementedError(f"{type(self).__name__} has no answers: write `answer` or `prefix_answers`")

    def told_by_end(self, x_BL: Tensor) -> Tensor:
        """Return the best guess, [B], from the last symbols of longer strings alone; PAD where they tell nothing.

        A task that defines it has a floor for models that see a window of the string (tasks/windows.py).
        """
        raise NotImplementedError(f"{self.name} does not say what its last symbols tell")

    def answer(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        """Return the answer of each whole string, [B]."""
        return self.prefix_answers(x_BL).gather(1, size_B[:, None] - 1)[:, 0]

    def examples(self, draw: Draw, size_B: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        """Draw strings with their answers. A language that knows the answer as it draws overrides this."""
        x_BL = self.symbols(draw, size_B, columns)
        return x_BL, self.answer(x_BL, size_B)

    def slots(self, size: Size) -> Size:
        return 1

    def size_of_total(self, total: Size) -> Size:
        return total - len(self.closing) - 1

    def sample(self, draw: Draw, lengths_B: Tensor, width: int) -> Batch:
        size_B = self.size(lengths_B)
        x_BL, answer_B = self.examples(draw, size_B, width)
        position_L = torch.arange(width, device=x_BL.device)
        length_B = size_B + len(self.closing)
        scored_BL = position_L == length_B[:, None] - 1
        targets_BL = torch.where(scored_BL, answer_B[:, None], PAD)
        if self.asks_prefixes:
            inside_BL = (position_L < size_B[:, None]) & ~scored_BL
            targets_BL = torch.where(inside_BL, self.prefix_answers(x_BL), targets_BL)
            scored_BL = targets_BL != PAD
        return Batch(self._prompt(x_BL, size_B, position_L), targets_BL, scored_BL, length_B, length_B)


@dataclass(frozen=True, kw_only=True)
class Transduction(_Layout):
    """A string of answers, by default one for each symbol. Unused slots stay blank and unscored."""

    decode: Literal["parallel", "teacher"] = "parallel"
    """Input at answer slots. parallel: blank. teacher: the answer before it, in evaluation the model's own."""

    @abstractmethod
    def transduce(self, x_BL: Tensor, size_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the answers [B, slots] and how many each string has [B]."""

    def slots(self, size: Size) -> Size:
        return size

    def size_of_total(self, total: Size) -> Size:
        return (total - len(self.closing)) // 2

    def sample(self, draw: Draw, lengths_B: Tensor, width: int) -> Batch:
        size_B = self.size(lengths_B)
        columns = self.size_of_total(width + 1)
        x_BN = self.symbols(draw, size_B, columns)
        answers_BM, num_B = self.transduce(x_BN, size_B)
        position_L = torch.arange(width, device=x_BN.device)
        prompt_B = size_B + len(self.closing)
        slot_BL = position_L - (prompt_B[:, None] - 1)
        scored_BL = (slot_BL >= 0) & (slot_BL < num_B[:, None])
        answer_BL = answers_BM.gather(1, slot_BL.clamp(0, answers_BM.shape[1] - 1))
        targets_BL = torch.where(scored_BL, answer_BL, PAD)
        x_BL = torch.nn.functional.pad(x_BN, (0, width - columns), value=PAD)
        tokens_BL = self._prompt(x_BL, size_B, position_L)
        if self.decode == "teacher":
            tokens_BL = torch.where(scored_BL & (slot_BL >= 1), targets_BL.roll(1, dims=1), tokens_BL)
        return Batch(tokens_BL, targets_BL, scored_BL, prompt_B + self.slots(size_B) - 1, prompt_B)


ACT = 1


@dataclass(frozen=True, kw_only=True)
class MarkedTransduction(Transduction):
    """A transduction whose answers begin at the marker ACT, token 1, unless `query` says otherwise."""

    query: Literal["none", "token", "act"] = "act"
    """The input between the string and the first answer: nothing, one blank token, or ACT."""

    @property
    def closing(self) -> tuple[int, ...]:
        return (ACT,) if self.query == "act" else super().closing
