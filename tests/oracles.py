"""The languages once more in plain Python, a symbol at a time: what every task's answers and states are held to.

An oracle reads the prompt of a string as symbols of `task.vocab`, with or without what closes it, and returns the
answers as symbols. A machine returns the state after each symbol of the prompt as a tuple; a closing token other than
'=' changes nothing, and after the prompt the last state is held.

    >>> mod_arithmetic(["2", "+", "3", "*", "4", "="])
    ['4']
    >>> stack_manipulation(["ST1", "ST2", "POP", "PS4", "ACT"])
    ['ST1', 'ST4']
"""

from collections.abc import Callable, Sequence

CLOSING = ("PAD", "ACT", "=")
PENDING = {"+": 1, "-": 2, "*": 3}


def word(prompt: Sequence[str]) -> list[str]:
    """The string itself, without what closes it."""
    return [symbol for symbol in prompt if symbol not in CLOSING]


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
    return [str(value(word(prompt)) % modulus)]


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


def operate(stack: list[str], symbol: str) -> None:
    """STk stands on the stack from the start, PSk pushes it; POP on an empty stack does nothing."""
    if symbol != "POP":
        stack.append("ST" + symbol[2:])
    elif stack:
        stack.pop()


def stack_manipulation(prompt: Sequence[str]) -> list[str]:
    """The stack from bottom to top."""
    stack: list[str] = []
    for symbol in word(prompt):
        operate(stack, symbol)
    return stack


def stack_manipulation_states(prompt: Sequence[str]) -> list[tuple[int]]:
    """The symbol on top, from 1; 0 where the stack is empty."""
    stack: list[str] = []
    states = []
    for symbol in prompt:
        if symbol not in CLOSING:
            operate(stack, symbol)
        states.append((int(stack[-1][2:]) if stack else 0,))
    return states


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
OPTIONS: dict[str, tuple[str, ...]] = {"cycle_nav": ("cycle",), "mod_arithmetic": ("modulus",)}
"""The fields of a task its oracle and its machine need to know."""
