"""Shared code of the three tasks of FLaRe: eighteen languages to recognise, with edited and random non-members.

The seven regular languages are automata (see tasks/_membership.py). The others are `Flare`.

Butoi et al. 2024 (2411.07107). Half the strings are members. The others are edited members or uniform strings, as in
the paper (tasks/_edits.py). There are four differences. All lengths that have members are equally likely, with both
labels at each, while the paper's non-members have any length, also that of the empty string. Four strings are tried for
each non-member, in the paper a hundred. If all four are members, a sure non-member takes their place, uniform for the
regular languages. That happens for up to three in ten strings of majority, first and even-pairs, one in twenty of
parity, and below one in a thousand elsewhere. The losses on the next symbol and on the set of possible next symbols
have the weights `train.next_symbol` and `train.next_set`. They are for members, averaged over a string and over
strings. The paper has a head for each, and also reads a position before the first symbol. Here both read the one head,
whose PAD row stands for the end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks import _edits, _flare_languages, _flare_numbers
from chomsky_ladder.tasks._automata import Automaton
from chomsky_ladder.tasks._following import asked_of_members, following_states
from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks._labelled import TRIES
from chomsky_ladder.tasks._subregular import explored
from chomsky_ladder.tasks.base import Batch, Floors
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

FIRST = 1
BITS, MARKED = ("0", "1"), ("0", "1", "#")
DIGITS, MOVES = tuple("01234"), ("<", "=", ">")
MODULUS, DEEPEST = 5, 3

OTHERS: dict[str, _flare_languages.Language] = {
    "majority": _flare_languages.Majority(BITS),
    "stack-manipulation": _flare_languages.StackManipulation((*BITS, "PUSH", "POP", "#")),
    "marked-reversal": _flare_languages.MarkedReversal(MARKED),
    "unmarked-reversal": _flare_languages.UnmarkedReversal(BITS),
    "marked-copy": _flare_languages.MarkedCopy(MARKED),
    "missing-duplicate-string": _flare_languages.MissingDuplicate((*BITS, "_")),
    "odds-first": _flare_languages.OddsFirst(MARKED),
    "binary-addition": _flare_numbers.Addition((*BITS, "+", "=")),
    "binary-multiplication": _flare_numbers.Multiplication((*BITS, "*", "=")),
    "compute-sqrt": _flare_numbers.SquareRoot((*BITS, "=")),
    "bucket-sort": _flare_languages.BucketSort((*"12345", "#")),
}
ALPHABETS: dict[str, tuple[str, ...]] = {
    "first": BITS,
    "repeat-01": BITS,
    "parity": BITS,
    "even-pairs": BITS,
    "cycle-navigation": (*DIGITS, *MOVES),
    "modular-arithmetic-simple": (*DIGITS, "+", "-", "*", "="),
    "dyck-2-3": ("(", ")", "[", "]"),
} | {name: language.alphabet for name, language in OTHERS.items()}


@kept
def automaton(name: str) -> Automaton:
    """Return the minimal automaton of a regular language."""
    symbols = ALPHABETS[name]
    dead = "dead"

    def step(state: tuple | str, number: int) -> tuple | str:
        if state == dead:
            return dead
        assert isinstance(state, tuple)
        symbol = symbols[number]
        match name:
            case "first":
                return state or (symbol,)
            case "repeat-01":
                return dead if symbol != "01"[len(state)] else (*state, symbol) if symbol == "0" else ()
            case "parity":
                return (state != ("odd",)) * ("odd",) if symbol == "1" else state
            case "even-pairs":
                return (*state[:1], symbol)
            case "cycle-navigation":
                at = sum(state)
                if len(state) > 1 or symbol in MOVES:
                    return dead if len(state) > 1 else ((at + MOVES.index(symbol) - 1) % MODULUS,)
                return (at, 0) if int(symbol) == at else dead
            case "modular-arithmetic-simple":
                return _arithmetic(state, symbol) or dead
            case "dyck-2-3":
                if symbol in "([":
                    return (*state, symbol) if len(state) < DEEPEST else dead
                return state[:-1] if state[-1:] == ("(" if symbol == ")" else "[",) else dead
        raise AssertionError(name)

    def accepts(state: tuple | str) -> bool:
        match name:
            case "first" | "parity":
                return state in (("1",), ("odd",))
            case "even-pairs":
                return state[:1] == state[-1:]
            case "cycle-navigation":
                return state != dead and len(state) == 2
            case "modular-arithmetic-simple":
                return state == ("done",)
        return state == ()

    start = (0,) if name == "cycle-navigation" else ()
    return replace(explored(start, step, accepts, num_symbols=len(symbols)), alphabet="".join(symbols))


@kept
def walking_odds(name: str) -> tuple[int, ...]:
    """Return the weights of a walk that chooses uniformly among the symbols that may follow and the end."""
    choices = following_states(automaton(name), torch.device("cpu")).sum(1).clamp(min=1).tolist()
    return tuple(math.lcm(*choices) // number for number in choices)


def _arithmetic(state: tuple, symbol: str) -> tuple | None:
    """Alternate digits and operators, evaluated from the left; then "=", the value, and nothing more."""
    match state:
        case ():
            return (int(symbol),) if symbol in DIGITS else None
        case (int(value),):
            return None if symbol in DIGITS else (value, symbol)
        case (int(value), "="):
            return ("done",) if symbol == str(value) else None
        case (int(value), operator) if symbol in DIGITS:
            digit = int(symbol)
            return ({"+": value + digit, "-": value - digit, "*": value * digit}[operator] % MODULUS,)
    return None


def checked_language(task: str, language: str, languages: tuple[str, ...]) -> None:
    if language not in languages:
        raise ValueError(f"{task}: language must be one of {', '.join(languages)}, not {language!r}")


@dataclass(frozen=True, kw_only=True)
class Flare(Classification):
    languages: ClassVar[tuple[str, ...]]
    language: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_language(self.name, self.language, self.languages)

    @property
    def recogniser(self) -> _flare_languages.Language:
        return OTHERS[self.language]

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", *ALPHABETS[self.language], "NO", "YES"

    @property
    def answers(self) -> tuple[int, ...]:
        no = FIRST + len(ALPHABETS[self.language])
        return no, no + 1

    def legal_size(self, size: int) -> bool:
        return size >= 1 and self.recogniser.has(size)

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return self.examples(draw, size_B, columns)[0]

    def examples(self, draw: Draw, size_B: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        no, yes = self.answers
        recogniser, is_member_B = self.recogniser, draw.integers(2) == 1
        member_BL = recogniser.members(draw.child("members"), size_B, columns)
        other_BL = _edits.non_members(recogniser, draw.child("edits"), size_B, columns, tries=TRIES)
        return torch.where(is_member_B[:, None], member_BL, other_BL) + FIRST, torch.where(is_member_B, yes, no)

    def may_follow(self, batch: Batch) -> Tensor:
        size_B = batch.length_B - len(self.closing)
        following_BLK = self.recogniser.following((batch.tokens_BL - FIRST).clamp(min=0), size_B)
        yes, closing = self.answers[1], len(self.closing)
        return asked_of_members(batch, following_BLK, yes=yes, closing=closing, vocab=len(self.vocab))

    def answer_law(self, length: int) -> np.ndarray:
        return self.uniform_law()

    def floors(self, lengths: Sequence[int], *, score: Literal["tokens", "lengths"] = "tokens") -> Floors:
        return Floors(s_rand=1 / 2, best_constant=1 / 2, content_free=1 / 2)
