"""The symbols that may follow in a language's members, compared with all its short strings."""

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch

from chomsky_ladder.harness.config.registry import find_task
from chomsky_ladder.tasks.base import PAD
from chomsky_ladder.tasks.draw import Draw
from support.cases import some
from support.oracles_flare import ALPHABETS, NAMES, is_in

LANGUAGES = [(name, language) for name in NAMES for language in find_task(name).languages]
REACH = {"0 1": 11, "0 1 #": 9, "0 1 _": 9, "0 1 =": 9, "( ) [ ]": 8}
"""The longest strings that are looked at, by the alphabet."""
OPERATIONS = {"binary-addition": ("[+]", int.__add__), "binary-multiplication": ("[*]", int.__mul__)}


@cache
def beginnings(language: str) -> tuple[int, set[tuple[str, ...]]]:
    """The greatest length that is looked at, and what members up to it begin with."""
    symbols = ALPHABETS[language].split()
    reach = REACH.get(ALPHABETS[language], 5)
    strings = (string for size in range(1, reach + 1) for string in product(symbols, repeat=size))
    found = {string[:end] for string in strings if is_in(language, string) for end in range(len(string) + 1)}
    return reach, found


def begins(language: str, string: tuple[str, ...]) -> bool | None:
    """Return True if a member begins so; None if that is not found out."""
    if language == "stack-manipulation":
        head, mark, behind = " ".join(string).partition("#")
        moves = head.split()
        if not re.fullmatch("(?:[01] )*(?:PUSH [01] |POP )*(?:PUSH )?", " ".join([*moves, ""]) if moves else ""):
            return False
        held: list[str] = []
        for symbol in moves:
            if symbol == "POP":
                if not held:
                    return False
                held.pop()
            elif symbol != "PUSH":
                held.append(symbol)
        if not mark:
            return True
        return moves[-1:] != ["PUSH"] and held[::-1][: len(behind.split())] == behind.split()
    if language in OPERATIONS:
        sign, made = OPERATIONS[language]
        left, equals, right = "".join(string).partition("=")
        if not equals:
            return bool(re.fullmatch(f"[01]*|[01]+{sign}[01]*", left))
        if not re.fullmatch(f"[01]+{sign}[01]+", left) or not re.fullmatch("[01]*", right):
            return False
        x, y = (int(part[::-1], 2) for part in re.split(sign, left))
        return f"{made(x, y):b}"[::-1].ljust(len(right), "0").startswith(right)
    reach, found = beginnings(language)
    if language in find_task("flare_regular").languages:  # type: ignore[attr-defined]
        goes_on = len(string) + 3
    else:
        goes_on = 2 * string.index("#") + 1 if "#" in string else 2 * len(string) + 2
    # Some member that begins so, if there are any, is no longer than that.
    return string in found if string in found or goes_on <= reach else None


@pytest.mark.full
@pytest.mark.parametrize(("name", "language"), some(LANGUAGES, always=8))
def test_what_may_follow_is_what_some_member_goes_on_with(name: str, language: str) -> None:
    task: Any = find_task(name)(language=language, count="input")
    symbols, yes = ALPHABETS[language].split(), task.answers[1]
    known, unknown = Counter[bool](), 0
    for size in range(1, 13):
        if not task.legal_lengths(size, size):
            continue
        draw = Draw(seed=1, split="train", rows_B=torch.arange(100))
        batch = task.sample(draw, torch.full((100,), size), size + 2)
        follow_BLV = task.may_follow(batch)
        assert follow_BLV.dtype == torch.bool and not follow_BLV[:, size:].any()
        rows = zip(batch.tokens_BL.tolist(), batch.targets_BL.tolist(), follow_BLV.tolist(), strict=True)
        for tokens, targets, follow_LV in rows:
            string = tuple(symbols[token - 1] for token in tokens[:size])
            assert (targets[size - 1] == yes) == is_in(language, string)
            if targets[size - 1] != yes:
                assert not any(map(any, follow_LV))
                continue
            for end in range(1, size + 1):
                assert follow_LV[end - 1][PAD] == is_in(language, string[:end])
                assert not any(follow_LV[end - 1][len(symbols) + 1 :])
                for token, symbol in enumerate(symbols, start=1):
                    expected = begins(language, (*string[:end], symbol))
                    if expected is None:
                        unknown += 1
                    else:
                        assert follow_LV[end - 1][token] == expected, (string[:end], symbol)
                        known[expected] += 1
    assert known[True] > 100
    assert known[False] > 50 or language in ("first", "parity", "even-pairs", "majority", "unmarked-reversal")


def test_the_end_is_asked_behind_the_last_symbol_whatever_stands_there() -> None:
    """Also if a closing blank stands there, where the answer is read."""
    plain = find_task("regular")(pattern="(ab)*", count="input")  # type: ignore[call-arg]
    closed = replace(plain, query="token")  # type: ignore[call-arg]
    for task, width in ((plain, 6), (closed, 7)):
        batch = task.sample(Draw(seed=0, split="train", rows_B=torch.arange(50)), torch.full((50,), 6), width)
        follow_BLV = task.may_follow(batch)
        row = int(follow_BLV.any((1, 2)).nonzero()[0])
        assert follow_BLV[row, :, PAD].tolist() == [False, True] * 3 + [False] * (width - 6)
        assert follow_BLV[row, :, 1:3].tolist() == [[False, True], [True, False]] * 3 + [[False] * 2] * (width - 6)


def test_the_alphabets_are_the_oracles() -> None:
    assert {language for _, language in LANGUAGES} == {*ALPHABETS}
