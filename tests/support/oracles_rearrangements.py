"""Rearrangements and counters in plain Python: their languages, answers and states."""

from collections import Counter
from collections.abc import Callable, Sequence

from support.oracles_ladder import number_language, numerals, spelled, word

LARGEST_COUNT = 255


def odds_first(prompt: Sequence[str], *, first: str = "odd") -> list[str]:
    """The first, third, fifth symbol and so on, then the second, fourth and so on; or the other way round."""
    odd, even = [], []
    for i, symbol in enumerate(word(prompt), start=1):
        (odd if i % 2 else even).append(symbol)
    return odd + even if first == "odd" else even + odd


def repetition(prompt: Sequence[str], *, copies: int = 1) -> list[str]:
    return [symbol for _ in range(copies) for symbol in word(prompt)]


def duplicate_string(prompt: Sequence[str], *, copies: int = 2) -> list[str]:
    return repetition(prompt, copies=copies)


def compression(prompt: Sequence[str], *, copies: int = 1) -> list[str]:
    return repetition(prompt, copies=copies)


def missing_duplicate_language(
    string: Sequence[str], *, num_symbols: int, hole: str, every_length: bool = False, **_: object
) -> bool:
    """A string twice, but for the one symbol that is missing; of odd length with EMPTY behind it, or the symbol 1."""
    if every_length and len(string) % 2:
        if len(string) == 1:
            return list(string) == ["1"]
        *string, last = string
        if last != "EMPTY":
            return False
    half, missing = len(string) // 2, [i for i, symbol in enumerate(string) if symbol == "MIS"]
    return (
        len(string) == 2 * half
        and len(missing) == 1
        and (hole == "either" or missing[0] >= half)
        and spelled(string, ["MIS", *numerals(num_symbols)])
        and all(a == b or "MIS" in (a, b) for a, b in zip(string[:half], string[half:], strict=True))
    )


def missing_duplicate(prompt: Sequence[str]) -> list[str]:
    """Return the symbol of the other copy at the place of the missing one."""
    string = [symbol for symbol in word(prompt) if symbol != "EMPTY"]
    if string == ["1"]:
        return string
    half = len(string) // 2
    return [string[(string.index("MIS") + half) % (2 * half)]]


def distinct(prompt: Sequence[str]) -> list[str]:
    """The different symbols, each where it first occurs."""
    seen: list[str] = []
    for symbol in word(prompt):
        if symbol not in seen:
            seen.append(symbol)
    return seen


def majority_language(string: Sequence[str], *, num_symbols: int, tie: str, **_: object) -> bool:
    """Any string, or those in which one symbol is more frequent than every other."""
    counts = list(Counter(string).values())
    return spelled(string, numerals(num_symbols, start=1)) and (tie == "smallest" or counts.count(max(counts)) == 1)


def majority(prompt: Sequence[str], *, num_symbols: int = 63) -> list[str]:
    """The most frequent symbol, of tied ones the smallest."""
    counts = Counter(word(prompt))
    most = max(counts.values())
    return [str(min(int(symbol) for symbol, count in counts.items() if count == most))]


def majority_count_language(string: Sequence[str], *, num_symbols: int, **_: object) -> bool:
    return spelled(string, numerals(num_symbols, start=1))


def majority_count(prompt: Sequence[str], *, num_symbols: int = 63) -> list[str]:
    """Return the count of the most frequent symbol, limited by the number of symbols."""
    return [str(min(max(Counter(word(prompt)).values()), num_symbols))]


def majority_states(prompt: Sequence[str], *, num_symbols: int = 63) -> list[tuple[int, ...]]:
    """Return each symbol's count so far."""
    states, counts = [], [0] * num_symbols
    for symbol in prompt:
        if symbol != "PAD":
            counts[int(symbol) - 1] = min(counts[int(symbol) - 1] + 1, LARGEST_COUNT)
        states.append(tuple(counts))
    return states


def selective_copying_language(string: Sequence[str], *, num_symbols: int, data: int, noise: str, **_: object) -> bool:
    """Return True if `data` symbols stand among blanks; with `noise="before"` the last is no blank."""
    if noise == "before" and string[-1] == "_":
        return False
    return spelled(string, ["_", *numerals(num_symbols)]) and len(string) - string.count("_") == data


def selective_copying(prompt: Sequence[str]) -> list[str]:
    return [symbol for symbol in word(prompt) if symbol != "_"]


LANGUAGES: dict[str, Callable[..., bool]] = {
    "odds_first": number_language,
    "repetition": number_language,
    "duplicate_string": number_language,
    "compression": number_language,
    "missing_duplicate": missing_duplicate_language,
    "set": number_language,
    "majority": majority_language,
    "majority_count": majority_count_language,
    "selective_copying": selective_copying_language,
}
ORACLES: dict[str, Callable[..., list[str]]] = {
    "odds_first": odds_first,
    "repetition": repetition,
    "duplicate_string": duplicate_string,
    "compression": compression,
    "missing_duplicate": missing_duplicate,
    "set": distinct,
    "majority": majority,
    "majority_count": majority_count,
    "selective_copying": selective_copying,
}
MACHINES: dict[str, Callable[..., list[tuple[int, ...]]]] = {
    "majority": majority_states,
    "majority_count": majority_states,
}
OPTIONS: dict[str, tuple[str, ...]] = {
    "odds_first": ("first",),
    "repetition": ("copies",),
    "duplicate_string": ("copies",),
    "compression": ("copies",),
    "majority": ("num_symbols",),
    "majority_count": ("num_symbols",),
}
