"""The seven first tasks in plain Python: their languages, answers and states."""

import re
from collections.abc import Callable, Sequence

CLOSING = ("PAD", "ACT", "=")
PENDING = {"+": 1, "-": 2, "*": 3}


def word(prompt: Sequence[str]) -> list[str]:
    """The string itself, without what closes it."""
    return [symbol for symbol in prompt if symbol not in CLOSING]


def numerals(num: int, *, start: int = 0) -> list[str]:
    """`num` numbers from `start` on, as symbols."""
    return [str(number) for number in range(start, start + num)]


def spelled(string: Sequence[str], symbols: Sequence[str]) -> bool:
    """Return True if a string is not empty and made of these symbols."""
    return len(string) >= 1 and set(string) <= set(symbols)


def ab_language(string: Sequence[str], **_: object) -> bool:
    return spelled(string, "ab")


def number_language(string: Sequence[str], *, num_symbols: int, **_: object) -> bool:
    return spelled(string, numerals(num_symbols))


def parity(prompt: Sequence[str]) -> list[str]:
    """b if the string holds an odd number of b."""
    return ["b" if prompt.count("b") % 2 else "a"]


def parity_states(prompt: Sequence[str]) -> list[tuple[int]]:
    states, odd = [], 0
    for symbol in prompt:
        if symbol == "b":
            odd = 1 - odd
        states.append((odd,))
    return states


def even_pairs(prompt: Sequence[str]) -> list[str]:
    """a if ab and ba together occur an even number of times."""
    string = "".join(word(prompt))
    pairs = [string[i : i + 2] for i in range(len(string))]
    return ["a" if (pairs.count("ab") + pairs.count("ba")) % 2 == 0 else "b"]


def even_pairs_states(prompt: Sequence[str]) -> list[tuple[int, int]]:
    """(first, latest): 0 for a, 1 for b."""
    string = word(prompt)
    states = [("ab".index(string[0]), "ab".index(latest)) for latest in string]
    return states + states[-1:] * (len(prompt) - len(string))


def cycle_nav_language(string: Sequence[str], **_: object) -> bool:
    return spelled(string, ["STAY", "+1", "-1"])


def cycle_nav(prompt: Sequence[str], *, cycle: int = 5) -> list[str]:
    """The place reached from P0, as often forward as +1 occurs and backward as -1 does."""
    return [f"P{(prompt.count('+1') - prompt.count('-1')) % cycle}"]


def cycle_nav_states(prompt: Sequence[str], *, cycle: int = 5) -> list[tuple[int]]:
    states, place = [], 0
    for symbol in prompt:
        if symbol == "+1":
            place = 0 if place == cycle - 1 else place + 1
        elif symbol == "-1":
            place = cycle - 1 if place == 0 else place - 1
        states.append((place,))
    return states


def mod_arithmetic_language(string: Sequence[str], *, modulus: int, operators: str, **_: object) -> bool:
    digit = f"({'|'.join(numerals(modulus))})"
    return bool(re.fullmatch(f"({digit} [{re.escape(operators)}] )*{digit}", " ".join(string)))


def value(expression: Sequence[str]) -> int:
    """The integer an expression stands for: the last of the weakest operators in it is applied last."""
    for operators in ("+-", "*"):
        for i in range(len(expression) - 2, 0, -2):
            if expression[i] in operators:
                left, right = value(expression[:i]), value(expression[i + 1 :])
                return left + right if expression[i] == "+" else left - right if expression[i] == "-" else left * right
    (number,) = expression
    return int(number)


def mod_arithmetic(prompt: Sequence[str], *, modulus: int = 5) -> list[str]:
    """The value of an expression; a string that ends with an operator has none."""
    expression = word(prompt)
    return [str(value(expression) % modulus)] if expression[-1].isdigit() else []


def mod_arithmetic_states(prompt: Sequence[str], *, modulus: int = 5) -> list[tuple[int, int, int]]:
    """(closed terms summed, the open term with its sign, pending operator), the first two modulo the modulus."""
    states = []
    closed, term, start, sign = 0, 0, 0, 1
    for i, symbol in enumerate(prompt):
        if symbol.isdigit():
            term = sign * value(prompt[start : i + 1])
        elif symbol in ("+", "-", "="):
            closed, term, start, sign = closed + term, 0, i + 1, -1 if symbol == "-" else 1
        states.append((closed % modulus, term % modulus, PENDING.get(symbol, 0)))
    return states


def bucket_sort(prompt: Sequence[str]) -> list[str]:
    return sorted(word(prompt), key=int)


def reverse_string(prompt: Sequence[str]) -> list[str]:
    return word(prompt)[::-1]


def stack_language(string: Sequence[str], *, num_symbols: int, every_length: bool = False, **_: object) -> bool:
    """An initial stack, then operations; or, of every length, one symbol."""
    symbol = f"({'|'.join(numerals(num_symbols, start=1))})"
    if every_length and len(string) == 1:
        return bool(re.fullmatch(f"ST{symbol}", string[0]))
    return bool(re.fullmatch(f"(ST{symbol} )+((POP|PS{symbol}) )+", " ".join(string) + " "))


def operate(stack: list[str], symbol: str) -> None:
    """STk stands on the stack from the start, PSk pushes it; POP on an empty stack does nothing."""
    if symbol != "POP":
        stack.append("ST" + symbol[2:])
    elif stack:
        stack.pop()


def stack_manipulation(prompt: Sequence[str], *, reads: str = "bottom_up", end: str = "none") -> list[str]:
    """The stack from bottom to top or from top to bottom, and the END of it where one is asked for."""
    stack: list[str] = []
    for symbol in word(prompt):
        operate(stack, symbol)
    return (stack if reads == "bottom_up" else stack[::-1]) + (["END"] if end == "token" else [])


def stack_manipulation_states(
    prompt: Sequence[str], *, reads: str = "bottom_up", end: str = "none"
) -> list[tuple[int]]:
    """The symbol on top, from 1; 0 where the stack is empty."""
    stack: list[str] = []
    states = []
    for symbol in prompt:
        if symbol not in CLOSING:
            operate(stack, symbol)
        states.append((int(stack[-1][2:]) if stack else 0,))
    return states


LANGUAGES: dict[str, Callable[..., bool]] = {
    "parity": ab_language,
    "even_pairs": ab_language,
    "cycle_nav": cycle_nav_language,
    "mod_arithmetic": mod_arithmetic_language,
    "bucket_sort": number_language,
    "reverse_string": number_language,
    "stack_manipulation": stack_language,
}
ORACLES: dict[str, Callable[..., list[str]]] = {
    "parity": parity,
    "even_pairs": even_pairs,
    "cycle_nav": cycle_nav,
    "mod_arithmetic": mod_arithmetic,
    "bucket_sort": bucket_sort,
    "reverse_string": reverse_string,
    "stack_manipulation": stack_manipulation,
}
MACHINES: dict[str, Callable[..., list[tuple[int, ...]]]] = {
    "parity": parity_states,
    "even_pairs": even_pairs_states,
    "cycle_nav": cycle_nav_states,
    "mod_arithmetic": mod_arithmetic_states,
    "stack_manipulation": stack_manipulation_states,
}
OPTIONS: dict[str, tuple[str, ...]] = {
    "cycle_nav": ("cycle",),
    "mod_arithmetic": ("modulus",),
    "stack_manipulation": ("reads", "end"),
}
