"""Registers, brackets and block counters in plain Python: their languages, answers and states."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from support.oracles_ladder import spelled, word

LARGEST_COUNT = 255
PAIRS = ("()", "[]", "{}", "<>")
CLOSED_BY = dict(PAIRS)
INSTRUCTIONS = {"w": 1, "r": 2, "i": 3, "u": 4}


def standing(string: Sequence[str]) -> list[str]:
    """The bits written and not undone after so many pairs, the last one last; the first cannot be undone."""
    writes: list[str] = []
    for instruction, bit in zip(string[0::2], string[1::2], strict=False):
        if instruction == "w":
            writes.append(bit)
        elif instruction == "u" and len(writes) > 1:
            writes.pop()
    if len(string) % 2 and string[-1] == "u" and len(writes) > 1:
        writes.pop()
    return writes


def flip_flop_language(string: Sequence[str], *, undo: int, **_: object) -> bool:
    """Pairs of an instruction and a bit, then a last r; what is read is what was last written and stands."""
    if len(string) % 2 == 0 or len(string) < 3 or string[0] != "w" or string[-1] != "r":
        return False
    for place in range(0, len(string) - 1, 2):
        instruction, bit = string[place : place + 2]
        if instruction not in INSTRUCTIONS or bit not in ("0", "1") or (instruction == "u" and not undo):
            return False
        if instruction == "r" and standing(string[:place])[-1] != bit:
            return False
    return True


def flip_flop(prompt: Sequence[str]) -> list[str]:
    """The bit of the last write that stands, where the last symbol asks for it."""
    string = word(prompt)
    return standing(string)[-1:] if string[-1] == "r" else []


def flip_flop_states(prompt: Sequence[str]) -> list[tuple[int, int]]:
    """(bit held, from 1, or 0; the instruction whose bit is still to come, or 0)."""
    states = []
    for end in range(1, len(prompt) + 1):
        string = word(prompt[:end])
        held = [1 + int(bit) for bit in standing(string)[-1:]] or [0]
        states.append((held[0], INSTRUCTIONS.get(string[-1], 0)))
    return states


def nest(string: Sequence[str], *, depth: int) -> list[str] | None:
    """The closing brackets that are due, the outermost first; None if a bracket does not fit or nests too deep."""
    due: list[str] = []
    for symbol in string:
        if symbol in CLOSED_BY and len(due) < depth:
            due.append(CLOSED_BY[symbol])
        elif not due or due.pop() != symbol:
            return None
    return due


def dyck_language(string: Sequence[str], *, kinds: int, depth: int, ask: str, **_: object) -> bool:
    """Prefixes with something to close, or balanced strings and those that differ a little."""
    if not spelled(string, "".join(PAIRS[:kinds])):
        return False
    if ask == "close":
        return bool(nest(string, depth=depth))
    shape = ["(" if symbol in CLOSED_BY else ")" for symbol in string]
    if nest(shape, depth=depth) == []:
        return kinds == 1 or nest(string, depth=depth) == [] or faulty(string)
    heights = [2 * shape[:end].count("(") - end for end in range(1, len(shape) + 1)]
    within = heights[-1] == 0 and max(map(abs, heights)) <= depth
    return kinds == 1 and within and (len(shape) < 6 or (shape[0], shape[-1]) == ("(", ")"))


def faulty(string: Sequence[str]) -> bool:
    """Return True if one closing bracket of a balanced string has a wrong kind, or two were exchanged.

    The last one is right if there are others. Of the two exchanged, one is the neighbour of the other if any two of
    different kinds are neighbours, and they follow a third one if any such two do. Otherwise one is the first closing
    bracket of the string.
    """
    due, open_ones = {}, []
    for i, symbol in enumerate(string):
        if symbol in CLOSED_BY:
            open_ones.append(CLOSED_BY[symbol])
        else:
            due[i] = open_ones.pop()
    wrong = [i for i, symbol in due.items() if symbol != string[i]]
    closing = list(due)[:-1] or list(due)
    if len(wrong) == 1:
        return wrong[0] in closing
    if len(wrong) != 2 or not set(wrong) <= set(closing) or due[wrong[0]] != string[wrong[1]]:
        return False
    neighbours = [(i - 1, i) for i in closing if i - 1 in due and due[i - 1] != due[i]]
    behind = [(i, j) for i, j in neighbours if i - 1 in due]
    others = [(closing[0], i) for i in closing if due[closing[0]] != due[i]]
    return due[wrong[1]] == string[wrong[0]] and tuple(wrong) in (behind or neighbours or others)


def dyck(prompt: Sequence[str], *, kinds: int = 2, depth: int = 8, ask: str = "close") -> list[str]:
    """The bracket to come next if one is due, or whether none is."""
    due = nest(word(prompt), depth=depth)
    if ask == "valid":
        return ["YES" if due == [] else "NO"]
    return due[-1:]


def dyck_states(prompt: Sequence[str], *, kinds: int = 2, depth: int = 8, ask: str = "close") -> list[tuple[int, int]]:
    """(kind on top, from 1, or 0; number open); what cannot be read changes nothing."""
    states, due = [], []
    for symbol in prompt:
        if symbol in CLOSED_BY and len(due) < depth:
            due.append(CLOSED_BY[symbol])
        elif due and due[-1] == symbol:
            due.pop()
        states.append((1 + [pair[1] for pair in PAIRS].index(due[-1]) if due else 0, len(due)))
    return states


def is_member(string: Sequence[str], letters: str) -> bool:
    """Return True if a string is all its a, then as many b and perhaps as many c."""
    times, rest = divmod(len(string), len(letters))
    return rest == 0 and "".join(string) == "".join(letter * times for letter in letters)


def letters_of(language: str) -> str:
    return {"anbn": "ab", "anbncn": "abc"}[language]


def counter_language_language(string: Sequence[str], *, language: str, near: int, misordered: int, **_: object) -> bool:
    """Members, those of which some of one letter became another, and those of which two symbols changed places.

    If the letters occur more than once, some of each remain, and the ends are those of a member.
    """
    letters, text = letters_of(language), "".join(string)
    times = len(text) // len(letters)
    if not spelled(string, letters) or len(text) % len(letters):
        return False
    member = "".join(letter * times for letter in letters)
    if times > 1 and (set(text) != set(letters) or (text[0], text[-1]) != (member[0], member[-1])):
        return False
    if list(text) != sorted(text):
        changed = sum(a != b for a, b in zip(text, member, strict=True))
        return misordered > 0 and sorted(text) == sorted(member) and changed == 2
    surplus = sorted(text.count(letter) - times for letter in letters)
    moved = surplus[-1]
    expected = [-moved, *[0] * (len(letters) - 2), moved]
    return moved == 0 or (misordered < 100 and moved <= near and surplus == expected)


def counter_language(prompt: Sequence[str], *, language: str = "anbn") -> list[str]:
    return ["YES" if is_member(word(prompt), letters_of(language)) else "NO"]


def counter_language_states(prompt: Sequence[str], *, language: str = "anbn") -> list[tuple[int, ...]]:
    """(letter reached from 1, 0 before, one more than there are letters once rejected; a minus b; b minus c)."""
    letters, states = letters_of(language), []
    counts, latest, rejected = dict.fromkeys(letters, 0), "", False
    follows = {"": letters[0]} | {letter: letters[i : i + 2] for i, letter in enumerate(letters)}
    for symbol in word(prompt):
        counts[symbol] += 1
        differences = [counts[a] - counts[b] for a, b in pairwise(letters)]
        rejected = rejected or symbol not in follows[latest] or min(differences) < 0
        latest = symbol
        if rejected:
            states.append((len(letters) + 1, *[0 for _ in differences]))
        else:
            states.append((1 + letters.index(symbol), *[min(number, LARGEST_COUNT) for number in differences]))
    return states + states[-1:] * (len(prompt) - len(states))


LANGUAGES: dict[str, Callable[..., bool]] = {
    "flip_flop": flip_flop_language,
    "dyck": dyck_language,
    "counter_language": counter_language_language,
}
ORACLES: dict[str, Callable[..., list[str]]] = {
    "flip_flop": flip_flop,
    "dyck": dyck,
    "counter_language": counter_language,
}
MACHINES: dict[str, Callable[..., list[tuple[int, ...]]]] = {
    "flip_flop": flip_flop_states,
    "dyck": dyck_states,
    "counter_language": counter_language_states,
}
OPTIONS: dict[str, tuple[str, ...]] = {
    "dyck": ("kinds", "depth", "ask"),
    "counter_language": ("language",),
}
