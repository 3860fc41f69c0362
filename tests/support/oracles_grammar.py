"""A few context-free languages by what they are, not by their grammars."""

import re
from collections.abc import Callable, Sequence


def matched(word: str) -> bool:
    while len(shorter := word.replace("()", "").replace("[]", "").replace("ab", "")) < len(word):
        word = shorter
    return word == ""


def expression(word: str) -> bool:
    while len(shorter := re.sub(r"x[+*]x|\(x\)", "x", word)) < len(word):
        word = shorter
    return word == "x"


Language = tuple[str, Callable[[str], bool], Callable[[int], bool]]

LANGUAGES_BY_GRAMMAR: dict[str, Language] = {
    "S -> a S b | ": ("a b", lambda w: w == "a" * (len(w) // 2) + "b" * (len(w) // 2), lambda n: n % 2 == 0),
    "S -> a S a | b S b | a | b |": ("a b", lambda w: w == w[::-1], lambda n: n >= 2),
    "S -> '(' S ')' S | '[' S ']' S |": ("( ) [ ]", matched, lambda n: n % 2 == 0),
    "S -> S S | a S b | ": ("a b", matched, lambda n: n % 2 == 0),
    "E -> E + T | T; T -> T * F | F; F -> x | '(' E ')'": ("( ) * + x", expression, lambda n: n % 2 == 1 and n > 0),
}
"""For each grammar: its symbols, a test of membership, and a test if a size has members and others."""


def has_members_and_others(grammar: str, size: int) -> bool:
    return size >= 1 and LANGUAGES_BY_GRAMMAR[grammar][2](size)


def over_the_symbols(string: Sequence[str], *, grammar: str, **_: object) -> bool:
    return set(string) <= set(LANGUAGES_BY_GRAMMAR[grammar][0].split())


def recognised(prompt: Sequence[str], *, grammar: str) -> list[str]:
    word = "".join(symbol for symbol in prompt if symbol != "PAD")
    return ["YES" if LANGUAGES_BY_GRAMMAR[grammar][1](word) else "NO"]


LANGUAGES = {"grammar": over_the_symbols}
ORACLES = {"grammar": recognised}
OPTIONS = {"grammar": ("grammar",)}
