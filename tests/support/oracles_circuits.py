"""Formulas in prefix notation and directed graphs in plain Python: their languages, values and ways."""

from collections.abc import Callable, Sequence

from support.oracles_ladder import word

GATES: dict[str, Callable[[bool, bool], bool]] = {"AND": lambda a, b: a and b, "OR": lambda a, b: a or b}
OPERATORS: dict[str, Callable[[int, int], int]] = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


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


def expression(string: Sequence[str], start: int = 0) -> tuple[int, int]:
    """Return the value, a whole number, of the expression that starts here, and where it ends."""
    first = string[start]
    if first not in OPERATORS:
        return int(first), start + 1
    left, middle = expression(string, start + 1)
    right, end = expression(string, middle)
    return OPERATORS[first](left, right), end


def expression_language(string: Sequence[str], *, modulus: int, operators: str, **_: object) -> bool:
    """One expression of digits below the modulus."""
    if not set(string) <= {*operators, *map(str, range(modulus))}:
        return False
    try:
        return expression(string)[1] == len(string)
    except IndexError:
        return False


def mano(prompt: Sequence[str], *, modulus: int = 23, **_: object) -> list[str]:
    return [str(expression(word(prompt))[0] % modulus)]


def graph(string: Sequence[str]) -> tuple[list[tuple[str, str]], str, str]:
    """Return the edges, and the two nodes asked for."""
    *edges, ask, start, end = string
    assert ask == "?" and len(edges) % 2 == 0
    return list(zip(edges[::2], edges[1::2], strict=True)), start, end


def graph_language(string: Sequence[str], *, num_nodes: int, **_: object) -> bool:
    """Four edges or more between different nodes, none of which joins the two asked for."""
    if len(string) < 11 or len(string) % 2 == 0 or string[-3] != "?":
        return False
    edges, start, end = graph(string)
    nodes = {f"n{node}" for node in range(num_nodes)}
    return (
        {start, end}.union(*edges) <= nodes
        and all(a != b for a, b in [*edges, (start, end)])
        and not {(start, end), (end, start)} & set(edges)
    )


def reachability(prompt: Sequence[str]) -> list[str]:
    edges, start, end = graph(word(prompt))
    reached, fresh = {start}, [start]
    while fresh:
        node = fresh.pop()
        new = {after for before, after in edges if before == node} - reached
        reached |= new
        fresh += new
    return ["YES" if end in reached else "NO"]


def cycle(string: Sequence[str]) -> dict[str, str]:
    """Return where each edge leads. The last two symbols are the question."""
    return dict(zip(string[:-2:2], string[1:-2:2], strict=True))


def cycle_language(string: Sequence[str], *, num_nodes: int, steps: int, **_: object) -> bool:
    """Edges of one cycle of three nodes or more, a number of steps and one of these nodes."""
    if len(string) % 2 or len(string) < 8:
        return False
    after = cycle(string)
    walk = [string[-1]]
    while walk[-1] in after and len(walk) <= len(after):
        walk.append(after[walk[-1]])
    return (
        2 * len(after) == len(string) - 2
        and set(after) <= {f"n{node}" for node in range(num_nodes)}
        and string[-2] in [f"h{count}" for count in range(1, steps + 1)]
        and walk[-1] == walk[0]
        and set(walk) == set(after)
    )


def depo(prompt: Sequence[str]) -> list[str]:
    *_, steps, node = string = word(prompt)
    for _ in range(int(steps[1:])):
        node = cycle(string)[node]
    return [node]


def dependences(string: Sequence[str]) -> dict[str, set[str]]:
    """Return what each node depends on, in the order in which the string names them. The last two are the question."""
    after: dict[str, set[str]] = {node: set() for node in string[:-2]}
    for node, needed in zip(string[:-2:2], string[1:-2:2], strict=True):
        after[node].add(needed)
    return after


def dependence_language(string: Sequence[str], *, num_nodes: int, **_: object) -> bool:
    """Three edges or more of a graph without cycles, of 2 m / 3 + 1 nodes for m edges, and a node that one leaves."""
    if len(string) % 2 or len(string) < 8 or string[-2] != "?":
        return False
    after = dependences(string)
    left = dict(after)
    while ends := [node for node, needed in left.items() if not needed & left.keys()]:
        for node in ends:
            del left[node]
    return (
        not left
        and len(after) == 2 * (len(string) // 2 - 1) // 3 + 1
        and set(after) <= {f"n{node}" for node in range(num_nodes)}
        and bool(after.get(string[-1]))
    )


def brevo(prompt: Sequence[str]) -> list[str]:
    string = word(prompt)
    after, needed, said = dependences(string), set[str](), list[str]()
    fresh = [string[-1]]
    while fresh:
        new = after[fresh.pop()] - needed
        needed |= new
        fresh += new
    while len(said) < len(needed):
        said.append(next(node for node in after if node in needed - {*said} and after[node] <= {*said}))
    return said


LANGUAGES: dict[str, Callable[..., bool]] = {
    "formula_value": formula_language,
    "mano": expression_language,
    "reachability": graph_language,
    "depo": cycle_language,
    "brevo": dependence_language,
}
ORACLES: dict[str, Callable[..., list[str]]] = {
    "formula_value": formula_value,
    "mano": mano,
    "reachability": reachability,
    "depo": depo,
    "brevo": brevo,
}
OPTIONS: dict[str, tuple[str, ...]] = {"mano": ("modulus",)}
