"""Recall and questions about stories in plain Python: their languages, answers and states."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from support.oracles_ladder import numerals, spelled, word

PEOPLE = ["mary", "john", "sandra", "daniel", "anna", "peter", "emma", "tom"]
PLACES = ["kitchen", "garden", "office", "bathroom", "hallway", "bedroom", "cellar", "attic"]
EVENTS = [
    *["breakfast", "walk", "lesson", "lunch", "swim", "concert", "dinner", "dance", "meeting", "game", "party", "film"],
    *["race", "class", "picnic", "nap", "bath", "flight", "exam", "speech", "tour", "parade", "trial", "wedding"],
]
SHAPES = [
    *["circle", "square", "triangle", "star", "cross", "heart", "moon", "cube", "arrow", "ring", "cone", "sphere"],
    *["oval", "diamond", "pentagon", "hexagon", "octagon", "pyramid", "prism", "spiral", "arch", "leaf", "kite", "bar"],
]
TIME_AXES = (("before", "after"),)
PLACE_AXES = (("left-of", "right-of"), ("above", "below"))

Fact = tuple[str, str, str]
Pairs = set[tuple[str, str]]


def induction_heads_language(string: Sequence[str], *, num_symbols: int, **_: object) -> bool:
    """A MARK at the end, and another that something follows."""
    return (
        spelled(string, ["MARK", *numerals(num_symbols)])
        and string.count("MARK") == 2
        and string[-1] == "MARK"
        and string[-2] != "MARK"
    )


def induction_heads(prompt: Sequence[str]) -> list[str]:
    """Return the symbol after the first MARK."""
    string = word(prompt)
    return [string[string.index("MARK") + 1]]


def induction_heads_states(prompt: Sequence[str]) -> list[tuple[int]]:
    """0, then 1 at the first MARK, then 2 and the number of what follows it."""
    first = prompt.index("MARK")
    after = 2 + int(prompt[first + 1])
    return [(0 if i < first else 1 if i == first else after,) for i in range(len(prompt))]


def k_hop_language(string: Sequence[str], *, num_symbols: int, hops: tuple[int, int], **_: object) -> bool:
    """A number of hops, then symbols of which no two neighbours are equal."""
    first, *symbols = string
    return (
        first in [f"h{count}" for count in range(hops[0], hops[1] + 1)]
        and spelled(symbols, numerals(num_symbols))
        and all(a != b for a, b in pairwise(symbols))
    )


def hopped(symbols: Sequence[str], place: int, hops: int) -> str:
    for _ in range(hops):
        before = next((j for j in range(place - 1, -1, -1) if symbols[j] == symbols[place]), None)
        if before is None:
            return "_"
        place = before + 1
    return symbols[place]


def k_hop(prompt: Sequence[str]) -> list[str]:
    """Return the symbol found by so many hops back from the last one."""
    first, *symbols = word(prompt)
    return [hopped(symbols, len(symbols) - 1, int(first[1:]))] if symbols else []


def k_hop_prefixes(string: Sequence[str]) -> list[str]:
    first, *symbols = string
    return ["", *(hopped(symbols, place, int(first[1:])) for place in range(len(symbols)))]


def needle_language(
    string: Sequence[str], *, num_values: int, num_noise: int, span: tuple[int, int], **_: object
) -> bool:
    """One value among noise, where it may lie, and the question."""
    *haystack, question = string
    noise = [f"n{number}" for number in range(num_noise)]
    values = [f"v{number}" for number in range(num_values)]
    found = [i for i, symbol in enumerate(haystack) if symbol in values]
    low, high = (percent * (len(haystack) - 1) for percent in span)
    places = [i for i in range(len(haystack)) if low <= 100 * i <= high]
    below = [i for i in range(len(haystack)) if 100 * i <= low]
    return (
        question == "?"
        and len(found) == 1
        and all(symbol in noise for i, symbol in enumerate(haystack) if i not in found)
        and found[0] in (places or below[-1:])
    )


def needle(prompt: Sequence[str]) -> list[str]:
    return [symbol for symbol in prompt if symbol.startswith("v")]


def needle_states(prompt: Sequence[str]) -> list[tuple[int]]:
    """The value seen, from 1."""
    (place,) = [i for i, symbol in enumerate(prompt) if symbol.startswith("v")]
    return [(1 + int(prompt[place][1:]) if i >= place else 0,) for i in range(len(prompt))]


def mqar_language(
    string: Sequence[str], *, num_keys: int, num_values: int, pairs: int, filler: str, **_: object
) -> bool:
    """Keys with their values, then every key once more among what fills the places between."""
    keys, values, rest = string[0 : 2 * pairs : 2], string[1 : 2 * pairs : 2], string[2 * pairs :]
    all_keys, all_values = ({f"{kind}{i}" for i in range(num)} for kind, num in (("k", num_keys), ("v", num_values)))
    between = {"_"} if filler == "blank" else all_values
    return (
        len(set(keys)) == len(keys) == len(values) == pairs
        and set(keys) <= all_keys
        and set(values) <= all_values
        and sorted(symbol for symbol in rest if symbol not in between) == sorted(keys)
    )


def mqar(prompt: Sequence[str], *, pairs: int = 8) -> list[str]:
    """The value of every key asked for, "" where none is."""
    value_of = {prompt[2 * i]: prompt[2 * i + 1] for i in range(pairs)}
    return ["" if i < 2 * pairs else value_of.get(symbol, "") for i, symbol in enumerate(prompt)]


def places_language(string: Sequence[str], **_: object) -> bool:
    """Facts, and a question for somebody they mention."""
    person, place = "|".join(PEOPLE), "|".join(PLACES)
    fits = re.fullmatch(rf"(({person}) went to ({place}) \. )+where is ({person}) \?", " ".join(string))
    return bool(fits) and string.count(string[-2]) >= 2


def places(prompt: Sequence[str]) -> list[str]:
    """Return where the person in question went last."""
    person, visits = prompt[-2], []
    for i in range(0, len(prompt) - 4, 5):
        if prompt[i] == person:
            visits.append(prompt[i + 3])
    return visits[-1:]


def places_states(prompt: Sequence[str]) -> list[tuple[int, ...]]:
    """The place of everybody, from 1."""
    states, where = [], [0] * len(PEOPLE)
    for i, symbol in enumerate(prompt):
        if symbol in PLACES:
            where[PEOPLE.index(prompt[i - 3])] = 1 + PLACES.index(symbol)
        states.append(tuple(where))
    return states


def events_story(prompt: Sequence[str]) -> tuple[list[Fact], Fact]:
    """The facts and what is asked, each as (one thing, relation, other thing)."""
    facts = [(prompt[i], prompt[i + 2], prompt[i + 3]) for i in range(0, len(prompt) - 5, 5)]
    return facts, (prompt[-4], prompt[-3], prompt[-2])


def shapes_story(prompt: Sequence[str]) -> tuple[list[Fact], Fact]:
    facts = [(prompt[i + 1], prompt[i + 3], prompt[i + 5]) for i in range(0, len(prompt) - 7, 7)]
    return facts, (prompt[-5], prompt[-4], prompt[-2])


def stated(facts: Sequence[Fact], axis: tuple[str, str]) -> Pairs:
    """Return what facts state directly on one axis, as pairs of the earlier and the later."""
    return {(a, b) if relation == axis[0] else (b, a) for a, relation, b in facts if relation in axis}


def follows(pairs: Pairs) -> Pairs:
    """All that follows from them."""
    known: Pairs = set()
    more = set(pairs)
    while more != known:
        known = more
        more = known | {(a, c) for a, b in known for other, c in pairs if b == other}
    return known


def axis_of(relation: str) -> tuple[str, str]:
    (axis,) = [axis for axis in (*TIME_AXES, *PLACE_AXES) if relation in axis]
    return axis


def ordered(facts: Sequence[Fact], question: Fact, axes: Sequence[tuple[str, str]]) -> bool:
    """Return True if facts are consistent and settle the question, which is none of them if there are others."""
    if any(a == b for axis in axes for a, b in follows(stated(facts, axis))):
        return False
    a, relation, b = question
    said = stated(facts, axis_of(relation))
    unsaid = follows(said) - said
    return not {(a, b), (b, a)}.isdisjoint(unsaid or said)


def times_language(string: Sequence[str], *, things: int, **_: object) -> bool:
    event, relation = f"({'|'.join(EVENTS[:things])})", "(before|after)"
    fits = re.fullmatch(rf"({event} was {relation} {event} \. )+was {event} {relation} {event} \?", " ".join(string))
    return bool(fits) and ordered(*events_story(string), TIME_AXES)


def shapes_language(string: Sequence[str], *, things: int, **_: object) -> bool:
    shape, relation = f"({'|'.join(SHAPES[:things])})", "(left-of|right-of|above|below)"
    fact, question = rf"the {shape} is {relation} the {shape} \. ", rf"is the {shape} {relation} the {shape} \?"
    return bool(re.fullmatch(f"({fact})+{question}", " ".join(string))) and ordered(*shapes_story(string), PLACE_AXES)


def judged(facts: Sequence[Fact], question: Fact) -> list[str]:
    """Return yes or no by whether the question follows from the facts."""
    a, relation, b = question
    axis = axis_of(relation)
    return ["yes" if ((a, b) if relation == axis[0] else (b, a)) in follows(stated(facts, axis)) else "no"]


def times(prompt: Sequence[str]) -> list[str]:
    return judged(*events_story(prompt))


def shapes(prompt: Sequence[str]) -> list[str]:
    return judged(*shapes_story(prompt))


def recall_parts(string: Sequence[str], *, bits: int, variables: int) -> tuple[list[str], list[str], list[str]]:
    """Return the part that gives bits to addresses, the part that gives addresses to variables, and the swaps."""
    return string[: 2 * bits], string[2 * bits : 2 * (bits + variables)], string[2 * (bits + variables) :]


def state_recall_language(string: Sequence[str], *, bits: int, variables: int, **_: object) -> bool:
    given, held, rest = recall_parts(string, bits=bits, variables=variables)
    addresses, names = [f"i{address}" for address in range(bits)], list("abcdef"[:variables])
    if len(string) <= 2 * (bits + variables) or rest[-1] != "?" or len(rest) % 2 == 0:
        return False
    ones, others = rest[:-1:2], rest[1:-1:2]
    return (
        (given[0::2], held[0::2]) == (addresses, names)
        and set(given[1::2]) <= {"0", "1"}
        and set(held[1::2]) <= set(addresses)
        and len(set(held[1::2])) == variables
        and set(ones + others) <= set(names)
        and all(one != other for one, other in zip(ones, others, strict=True))
    )


def state_recall_states(prompt: Sequence[str], *, bits: int = 6, variables: int = 5) -> list[tuple[int, ...]]:
    """(the address of each variable, from 1; the bit of each address, from 1); 0 for what is not given yet."""
    memory, registers, states = [0] * bits, [0] * variables, []
    for place, symbol in enumerate(prompt):
        before = prompt[place - 1] if place % 2 else ""
        if before.startswith("i"):
            memory[int(before[1:])] = 1 + int(symbol)
        elif before and symbol.startswith("i"):
            registers["abcdef".index(before)] = 1 + int(symbol[1:])
        elif before and symbol not in ("?", "PAD"):
            one, other = "abcdef".index(before), "abcdef".index(symbol)
            registers[one], registers[other] = registers[other], registers[one]
        states.append((*registers, *memory))
    return states


def state_recall(prompt: Sequence[str], *, bits: int = 6, variables: int = 5) -> list[str]:
    last = state_recall_states(word(prompt), bits=bits, variables=variables)[-1]
    return [str(last[variables + last[0] - 1] - 1)]


LANGUAGES: dict[str, Callable[..., bool]] = {
    "state_recall": state_recall_language,
    "induction_heads": induction_heads_language,
    "k_hop": k_hop_language,
    "needle": needle_language,
    "mqar": mqar_language,
    "qa_places": places_language,
    "qa_times": times_language,
    "qa_shapes": shapes_language,
}
ORACLES: dict[str, Callable[..., list[str]]] = {
    "state_recall": state_recall,
    "induction_heads": induction_heads,
    "k_hop": k_hop,
    "needle": needle,
    "mqar": mqar,
    "qa_places": places,
    "qa_times": times,
    "qa_shapes": shapes,
}
MACHINES: dict[str, Callable[..., list[tuple[int, ...]]]] = {
    "state_recall": state_recall_states,
    "induction_heads": induction_heads_states,
    "needle": needle_states,
    "qa_places": places_states,
}
OPTIONS: dict[str, tuple[str, ...]] = {"mqar": ("pairs",), "state_recall": ("bits", "variables")}
PREFIXES: dict[str, Callable[..., list[str]]] = {"k_hop": k_hop_prefixes}
