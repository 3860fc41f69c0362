"""Is the string in a context-free language of your own, given by a grammar?

    a a a b b b  ->  YES        S -> a S b | , the default: a^n b^n
    a a b b b b  ->  NO         a member after one edit

A grammar is rules "Name -> words | words", separated by ";" or on lines of their own. The first rule is the start, and
no words are the empty string, which no length counts. Words are separated by spaces. A word that begins with a capital
is a nonterminal, any other word is a symbol, and so is every quoted word.

    S -> '(' S ')' S | '[' S ']' S |            two kinds of brackets
    S -> a S a | b S b | a | b |                palindromes
    E -> E + T | T; T -> T * F | F; F -> x | '(' E ')'

Half the strings are members, uniform over those of their length. Probabilities come from exact counts of derivations.
Where a string has several derivations, derivations are drawn and thinned (tasks/_derived.py). Up to 48 symbols, strings
are then nearly uniform (within a few per cent at the 4 to 8 symbols where all strings were counted). Beyond that, a
string's probability is proportional to its derivations. `ladder describe` says if such a string was found; no program
can decide this for every grammar. Non-members are edited members or uniform strings (tasks/_edits.py), as in Butoi et
al. 2024 (2411.07107). If both of two tries are members, a sure non-member is taken. A length without one is not drawn.
So `content_free` is 1/2.

With supervision="dense" every prefix is an answer. Cocke, Younger and Kasami's table decides it, in cubic time. On one
CPU core a string of 40 symbols takes 0.1 ms and one of 256 takes 1 to 2 ms; with an ambiguous grammar 0.8 and 4.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks import _edits
from chomsky_ladder.tasks._automata import rounded
from chomsky_ladder.tasks._derived import Derived
from chomsky_ladder.tasks._grammar import ambiguous_size, normal
from chomsky_ladder.tasks._trees import derives
from chomsky_ladder.tasks.base import Floors, register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

FIRST = 1
TRIES = 2  # strings tried for one outside the language
LOOKED = 256


@register
@dataclass(frozen=True, kw_only=True)
class OwnGrammar(Classification):
    name, version, level = "grammar", 1, "context_free"

    grammar: str = "S -> a S b | "
    """The rules: "Name -> words | words", separated by ";". The first is the start; a capital makes a nonterminal."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self._language.mixed(LOOKED)[1:].any():
            raise ValueError(f"grammar: no length up to {LOOKED} has both members and strings surely outside")

    @property
    def _language(self) -> Derived:
        return Derived(normal(self.grammar))

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", *self._language.grammar.symbols, "NO", "YES"

    @property
    def answers(self) -> tuple[int, ...]:
        no = FIRST + self._language.num_symbols
        return no, no + 1

    @property
    def facts(self) -> dict[str, str]:
        """Return the size of the normal form, and whether some string has two derivations."""
        made = self._language.grammar
        size, looked = ambiguous_size(made)
        return {
            "normal form": f"{made.size} nonterminals, {len(made.pairs)} rules of two, {len(made.symbols)} symbols",
            "ambiguous": f"yes: a string of {size} symbols" if size else f"no string of up to {looked} symbols is",
        }

    def legal_size(self, size: int) -> bool:
        return size >= 1 and bool(self._language.mixed(rounded(size + 1))[size])

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return self.examples(draw, size_B, columns)[0]

    def examples(self, draw: Draw, size_B: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        no, yes = self.answers
        language, is_member_B = self._language, draw.integers(2) == 1
        member_BL = language.even_members(draw.child("members"), size_B, columns)
        other_BL = _edits.non_members(language, draw.child("edits"), size_B, columns, tries=TRIES)
        return torch.where(is_member_B[:, None], member_BL, other_BL) + FIRST, torch.where(is_member_B, yes, no)

    def prefix_answers(self, x_BL: Tensor) -> Tensor:
        language = self._language
        return self.answers[0] + derives(language.grammar, (x_BL - FIRST).clamp(0, language.num_symbols - 1)).long()

    def answer_law(self, length: int) -> np.ndarray:
        return self.uniform_law()

    def floors(self, lengths: Sequence[int], *, score: Literal["tokens", "lengths"] = "tokens") -> Floors:
        return Floors(s_rand=1 / 2, best_constant=1 / 2, content_free=1 / 2)
