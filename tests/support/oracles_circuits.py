"""Boolean formulas in plain Python: their language and their values."""

from collections.abc import Callable, Sequence

from support.oracles_ladder import word

GATES: dict[str, Callable[[bool, bool], bool]] = {"AND": lambda a, b: a and b, "OR": lambda a, b: a or b}


def formula(string: Sequence[str], start: int = 0) -> tuple[bool, int]:
    """Return the value of the formula that starts here, and where it ends."""
    first = string[start]
    if first == "NOT":
        value, end = formula(string, start + 1)
        return not value, end
    if first in GATES:
        left, middle = formula(string, start + 1)
        right, end = formula(string, middle)
        return GATES[first](left, right), end
    return bool(["0", "1"].index(first)), start + 1


def formula_language(string: Sequence[str], **_: object) -> bool:
    """One formula, without a NOT of a NOT."""
    try:
        end = formula(string)[1]
    except (IndexError, ValueError):
        return False
    return end == len(string) and "NOT NOT" not in " ".join(string)


def formula_value(prompt: Sequence[str]) -> list[str]:
    return [str(int(formula(word(prompt))[0]))]


LANGUAGES: dict[str, Callable[..., bool]] = {"formula_value": formula_language}
ORACLES: dict[str, Callable[..., list[str]]] = {"formula_value": formula_value}
