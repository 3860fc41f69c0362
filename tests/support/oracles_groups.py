"""Word problems in plain Python: groups as tables of images, composed place by place, and sessions that print a state.

An element is a tuple of permutations, one a factor of the group, each the images of 0, 1, ..
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations, pairwise, permutations, product

from support.oracles_ladder import word

Images = tuple[int, ...]
Element = tuple[Images, ...]


def is_even(images: Images) -> bool:
    return sum(a > b for a, b in combinations(images, 2)) % 2 == 0


@cache
def factor(name: str) -> dict[str, Images]:
    """Return the action of each element of S, A, Z or D on its points."""
    kind, number = name[0], int(name[1:])
    if kind in "SA":
        found = [images for images in permutations(range(number)) if kind == "S" or is_even(images)]
        return {"".join(map(str, images)): images for images in found}
    turns = {k: tuple((place + k) % number for place in range(number)) for k in range(number)}
    if kind == "Z":
        return {str(k): images for k, images in turns.items()}
    mirrors = {f"s{k}": tuple((k - place) % number for place in range(number)) for k in range(number)}
    return {f"r{k}": images for k, images in turns.items()} | mirrors


@cache
def members(group: str) -> dict[str, Element]:
    """Names, in the order of their tokens, and what they do."""
    factors = [factor(part).items() for part in group.split("x")]
    return {"|".join(name for name, _ in parts): tuple(images for _, images in parts) for parts in product(*factors)}


@cache
def names(group: str) -> dict[Element, str]:
    return {element: name for name, element in members(group).items()}


def elements(group: str) -> list[str]:
    return list(members(group))


def then(first: Element, second: Element) -> Element:
    """The first one, then the second."""
    return tuple(tuple(b[place] for place in a) for a, b in zip(first, second, strict=True))


def neutral(group: str) -> Element:
    (found,) = [x for x in members(group).values() if all(image == i for part in x for i, image in enumerate(part))]
    return found


def moved(element: Element) -> int:
    return sum(image != place for part in element for place, image in enumerate(part))


def generators(group: str) -> list[str]:
    """Return the generators of every factor, each leaving the other factors as they are."""
    found, parts = [], group.split("x")
    for place, part in enumerate(parts):
        kind, number = part[0], int(part[1:])
        everything = tuple(range(number))
        cycle = everything[1:] + everything[:1]
        own = {
            "S": [(1, 0, *everything[2:]), cycle],
            "A": [(1, 2, 0, *everything[3:]), cycle if number % 2 else (0, *everything[2:], 1)],
            "Z": [everything, cycle],
            "D": [cycle, tuple(-corner % number for corner in everything)],
        }[kind]
        for one in own:
            whole = list(neutral(group))
            whole[place] = one
            found.append(names(group)[tuple(whole)])
    return list(dict.fromkeys(found))


def drawn(group: str, inputs: str) -> set[str]:
    """The elements a string may have; of further random ones the set is the seed's affair."""
    if inputs == "generators":
        return set(generators(group))
    most = {"swaps": 2, "3-perm": 3}.get(inputs, 10**6)
    return {name for name, element in members(group).items() if moved(element) <= most}


def read(string: Sequence[str], *, group: str, tokens_per: int, reveal: int) -> list[tuple[str, str]]:
    """The product after each symbol, and whether the symbol is an element, a filler, a ? or a state that is shown."""
    state, found, last = neutral(group), [], ""
    for place, symbol in enumerate(string):
        if reveal and last == "?":
            kind = "shown"
        elif reveal and symbol == "?":
            kind = "asked"
        elif place % tokens_per:
            kind = "filler"
        else:
            kind, state = "element", then(state, members(group)[symbol])
        found.append((names(group)[state], kind))
        last = symbol if kind != "shown" else ""
    return found


def observed(element: str, *, group: str, observe: str) -> str:
    """The answer that an element is: itself, the point that 0 goes to, or the point that goes to 0."""
    if observe == "element":
        return element
    (images,) = members(group)[element]
    return f"@{images[0]}" if observe == "image" else f"@{next(i for i, image in enumerate(images) if image == 0)}"


def word_problem_language(
    string: Sequence[str], *, group: str, inputs: str, tokens_per: int, reveal: int, observe: str, **_: object
) -> bool:
    shown = {observed(element, group=group, observe=observe) for element in members(group)} if reveal else set()
    if not string or not set(string) <= {*members(group), *shown, ".", "?"}:
        return False
    for place, symbol in enumerate(string):
        is_filler = place % tokens_per > 0
        if (symbol == ".") != is_filler or (symbol == "?" and not reveal):
            return False
    if not reveal:
        seen = set(string) - {"."}
        return seen <= drawn(group, inputs) and len(string) % tokens_per == 0
    if len(string) < 2 or string[-1] != "?" or string[0] == "?":
        return False
    if any(symbol[0] == "@" and last != "?" for last, symbol in pairwise(["", *string])):
        return False
    session = read(string, group=group, tokens_per=1, reveal=reveal)
    kinds = [kind for _, kind in session]
    is_shown_right = all(
        symbol == observed(state, group=group, observe=observe)
        for symbol, (state, kind) in zip(string, session, strict=True)
        if kind == "shown"
    )
    is_in_turn = all(kinds[place - 1] == "element" for place, kind in enumerate(kinds) if kind == "asked")
    used = {symbol for symbol, kind in zip(string, kinds, strict=True) if kind == "element"}
    return is_shown_right and is_in_turn and used <= drawn(group, inputs)


def word_problem_prefixes(
    string: Sequence[str], *, group: str = "S5", tokens_per: int = 1, reveal: int = 0, observe: str = "element"
) -> list[str]:
    """The product of every prefix, or the part asked for: at the last token of an element, or at every ?."""
    answers = []
    for place, (state, kind) in enumerate(read(string, group=group, tokens_per=tokens_per, reveal=reveal)):
        is_asked = kind == "asked" if reveal else place % tokens_per == tokens_per - 1
        answers.append(observed(state, group=group, observe=observe) if is_asked else "")
    return answers


def word_problem(
    prompt: Sequence[str], *, group: str = "S5", tokens_per: int = 1, reveal: int = 0, observe: str = "element"
) -> list[str]:
    last = word_problem_prefixes(word(prompt), group=group, tokens_per=tokens_per, reveal=reveal, observe=observe)[-1:]
    return [answer for answer in last if answer]


def word_problem_states(
    prompt: Sequence[str], *, group: str = "S5", tokens_per: int = 1, reveal: int = 0, observe: str = "element"
) -> list[tuple[int]]:
    """The number of the product among the elements, or the point that 0 goes to."""
    number = {element: (i,) for i, element in enumerate(elements(group))}
    if observe == "image":
        number = {element: (members(group)[element][0][0],) for element in number}
    session = read(word(prompt), group=group, tokens_per=tokens_per, reveal=reveal)
    states = [number[state] for state, _ in session]
    return states + states[-1:] * (len(prompt) - len(states))


LANGUAGES: dict[str, Callable[..., bool]] = {"word_problem": word_problem_language}
ORACLES: dict[str, Callable[..., list[str]]] = {"word_problem": word_problem}
PREFIXES: dict[str, Callable[..., list[str]]] = {"word_problem": word_problem_prefixes}
MACHINES: dict[str, Callable[..., list[tuple[int, ...]]]] = {"word_problem": word_problem_states}
OPTIONS: dict[str, tuple[str, ...]] = {"word_problem": ("group", "tokens_per", "reveal", "observe")}
