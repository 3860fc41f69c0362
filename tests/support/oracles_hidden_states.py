"""Words of symbols that hide their states, read symbol by symbol with the successors of a grammar and nothing else."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from chomsky_ladder.harness.config.registry import find_task

END = "#0"


@cache
def followers(machine: Any) -> dict[str, dict[str, str]]:
    """Return for every state, by name, the state after each symbol that may follow."""
    return {
        name: {machine.names[to].rstrip("0123456789"): machine.names[to] for to in after}
        for name, after in zip(machine.names, machine.successors, strict=True)
    }


def states_read(string: Sequence[str], machine: Any) -> list[tuple[str, bool]]:
    """After each symbol the state, and whether it is new: what may not follow leaves it."""
    may_follow, state, read = followers(machine), END, []
    for symbol in string:
        is_new = symbol in may_follow[state]
        state = may_follow[state].get(symbol, state)
        read.append((state, is_new))
    return read


def hidden_states_language(
    string: Sequence[str],
    *,
    steps: tuple[int, int],
    noise: int,
    distractors: int,
    quiet: int,
    symbols: int,
    **grammar: Any,
) -> bool:
    """Return True if elements, blanks, noise and distractors can stand so. All readings of each step are followed at
    once.

    A reading is (the element is a distractor, the number of steps it has taken so far).
    """
    machine = find_task("hidden_states")(symbols=symbols, **grammar).machine
    may_follow, (low, high) = followers(machine), steps
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[:symbols]
    state, elements, ways = END, 0, {(True, high)}  # as if a distractor had stood before
    for symbol in string:
        foreign = [letter for letter in letters if letter not in may_follow[state]]
        if symbol not in (".", "#", *letters):
            return False
        if symbol in may_follow[state]:
            must_distract = distractors == 100 and elements >= quiet
            if not any(age >= low and (is_distractor or not must_distract) for is_distractor, age in ways):
                return False
            state, elements, ways = may_follow[state][symbol], elements + 1, {(False, 1)}
            continue
        if symbol == ".":
            rests, distracts = noise < 100 or not foreign, not foreign
        else:
            rests, distracts = noise > 0 and symbol in foreign, symbol in foreign
        further = {(is_distractor, age + 1) for is_distractor, age in ways if rests and age < high}
        if distracts and distractors and elements >= quiet and any(not is_d and age >= low for is_d, age in ways):
            further.add((True, 1))
        ways = further
        if not ways:
            return False
    return elements > 0


def hidden_states(prompt: Sequence[str], *, machine: Any) -> list[str]:
    """The state behind each element, nothing behind others."""
    return [state if is_new else "" for state, is_new in states_read(prompt, machine)]


def hidden_states_machine(prompt: Sequence[str], *, machine: Any) -> list[tuple[int]]:
    """The number of the state."""
    number = {name: place for place, name in enumerate(machine.names)}
    return [(number[state],) for state, _ in states_read(prompt, machine)]


LANGUAGES: dict[str, Callable[..., bool]] = {"hidden_states": hidden_states_language}
ORACLES: dict[str, Callable[..., list[str]]] = {"hidden_states": hidden_states}
MACHINES: dict[str, Callable[..., list[tuple[int, ...]]]] = {"hidden_states": hidden_states_machine}
OPTIONS: dict[str, tuple[str, ...]] = {"hidden_states": ("machine",)}
