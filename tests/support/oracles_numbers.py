"""Binary numbers and bracketed expressions in plain Python: their languages and answers."""

import math
import re
from collections.abc import Callable, Sequence

from support.oracles_ladder import numerals, word

NUMBER = "[01]*1[01]*"


SHORT = ("0", "00", "10", "01")  # of every length: the numbers of one and two bits but the largest, lowest bit first


def sum_language(string: Sequence[str], *, every_length: bool = False, **_: object) -> bool:
    if every_length and len(string) < 3:
        return "".join(string) in SHORT
    return bool(re.fullmatch(rf"{NUMBER}\+{NUMBER}", "".join(string)))


def product_language(string: Sequence[str], *, every_length: bool = False, **_: object) -> bool:
    if every_length and len(string) < 3:
        return "".join(string) in SHORT
    return bool(re.fullmatch(rf"{NUMBER}\*{NUMBER}", "".join(string)))


def root_language(string: Sequence[str], **_: object) -> bool:
    return bool(re.fullmatch(NUMBER, "".join(string)))


def operands(prompt: Sequence[str], operator: str) -> tuple[int, int]:
    """The two numbers on both sides of the operator, whose lowest bits come first."""
    left, right = "".join(word(prompt)).split(operator)
    return int(left[::-1], 2), int(right[::-1], 2)


def written(number: int, *, slots: int, padding: str) -> list[str]:
    """A number from its lowest bit to its highest, END, and zeros up to so many symbols if it is padded."""
    symbols = [*reversed(f"{number:b}"), "END"]
    return symbols + ["0"] * (slots - len(symbols) if padding == "zeros" else 0)


def binary_addition(prompt: Sequence[str], *, padding: str = "zeros") -> list[str]:
    if len(word(prompt)) < 3:
        number = {"0": 0, "00": 0, "10": 1, "01": 2}["".join(word(prompt))]
        return written(number, slots=len(word(prompt)) + 1, padding=padding)
    a, b = operands(prompt, "+")
    return written(a + b, slots=len(word(prompt)) + 1, padding=padding)


def binary_multiplication(prompt: Sequence[str], *, padding: str = "zeros") -> list[str]:
    if len(word(prompt)) < 3:  # END stands in the last slot
        return ["END"] if len(word(prompt)) == 1 else ["0", "END"]
    a, b = operands(prompt, "*")
    return written(a * b, slots=len(word(prompt)), padding=padding)


def compute_sqrt(prompt: Sequence[str]) -> list[str]:
    """The root rounded down, highest bit first, in half as many bits as the number has."""
    bits = "".join(word(prompt))
    return list(f"{math.isqrt(int(bits, 2)):b}".zfill((len(bits) + 1) // 2))


def parse(expression: Sequence[str], i: int = 0) -> tuple[int, int]:
    """The value of the term or bracket that begins at i, and where it ends.

    A term is d or -d; a bracket holds a term, or two terms or brackets and an operator between them.
    """
    if expression[i] == "-":
        return -int(expression[i + 1]), i + 2
    if expression[i] != "(":
        return int(expression[i]), i + 1
    a, end = parse(expression, i + 1)
    if expression[end] == ")":
        if expression[i + 1] == "(":
            raise ValueError("a bracket that holds nothing but a bracket")
        return a, end + 1
    operator = expression[end]
    b, end = parse(expression, end + 1)
    if expression[end] != ")" or operator not in ("+", "-", "*"):
        raise ValueError("not the end of a bracket, or no operator in it")
    return a + b if operator == "+" else a - b if operator == "-" else a * b, end + 1


def evaluate(expression: Sequence[str]) -> int:
    result, end = parse(expression)
    if end != len(expression):
        raise ValueError("symbols behind the expression")
    return result


def is_expression(string: Sequence[str], *, modulus: int, operators: str) -> bool:
    """Return True if the grammar derives a string. '-' is also the sign of a digit."""
    if not set(string) <= {*numerals(modulus), *operators, "-", "(", ")"}:
        return False
    try:
        evaluate(string)
    except (ValueError, IndexError):
        return False
    return True


def brackets_language(string: Sequence[str], *, modulus: int, operators: str, **_: object) -> bool:
    return is_expression(string, modulus=modulus, operators=operators)


def mod_arithmetic_brackets(prompt: Sequence[str], *, modulus: int = 5) -> list[str]:
    return [str(evaluate(word(prompt)) % modulus)]


def equation_language(
    string: Sequence[str], *, modulus: int, operators: str, every_length: bool = False, **_: object
) -> bool:
    """An expression with one digit unknown, '=' and a digit; of every length, one and two zeros too."""
    if every_length and len(string) < 3:
        return set(string) == {"0"}
    *expression, equals, result = string
    known = [symbol.replace("x", "0") for symbol in expression]
    return (
        expression.count("x") == 1
        and equals == "="
        and result in numerals(modulus)
        and is_expression(known, modulus=modulus, operators=operators)
    )


def solve_equation(prompt: Sequence[str], *, modulus: int = 5) -> list[str]:
    """Every digit that solves the equation; 0 where there is none."""
    string = [symbol for symbol in prompt if symbol not in ("PAD", "ACT")]
    if set(string) == {"0"}:
        return ["0"]
    *expression, _, result = string
    i = expression.index("x")
    tried = {digit: evaluate([*expression[:i], digit, *expression[i + 1 :]]) for digit in numerals(modulus)}
    return [digit for digit, found in tried.items() if found % modulus == int(result)]


LANGUAGES: dict[str, Callable[..., bool]] = {
    "binary_addition": sum_language,
    "binary_multiplication": product_language,
    "compute_sqrt": root_language,
    "mod_arithmetic_brackets": brackets_language,
    "solve_equation": equation_language,
}
ORACLES: dict[str, Callable[..., list[str]]] = {
    "binary_addition": binary_addition,
    "binary_multiplication": binary_multiplication,
    "compute_sqrt": compute_sqrt,
    "mod_arithmetic_brackets": mod_arithmetic_brackets,
    "solve_equation": solve_equation,
}
OPTIONS: dict[str, tuple[str, ...]] = {
    "binary_addition": ("padding",),
    "binary_multiplication": ("padding",),
    "mod_arithmetic_brackets": ("modulus",),
    "solve_equation": ("modulus",),
}
