"""Vafa et al.'s metrics for finite automata in which every string has an answer. The answers distinguish states.

    parity    a | b a b    two prefixes in different states: the empty suffix has two answers, so it is the boundary

The automaton is built from the task's `state` and `prefix_answers`. The boundary of two prefixes is the set of shortest
suffixes after which they have different answers. For two states it is exact: a search over the pairs of states that
both reach, with one suffix for each step from a pair with equal answers to a pair with different ones. For the model it
is exact up to a bound: all suffixes up to some length are tried. In a language with answers at some lengths alone (the
task's legal ones), only strings of these lengths are asked.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from chomsky_ladder.tasks.base import PAD, Task
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

Says = Callable[[Tensor, Tensor], Tensor]
"""Maps strings [B, L] with their lengths [B] to the answer of each, a token [B]."""

Word = tuple[int, ...]  # tokens

_MOST_STATES = 1000
_CHECKED = 64  # strings that the automaton must explain
_CANDIDATES = 32  # prefixes tried as partners in a pair
_WORDS = 63  # suffixes tried at most


@dataclass(frozen=True)
class Machine:
    """An automaton whose states are numbered in the order of their discovery."""

    symbols: tuple[int, ...]
    after: tuple[dict[int, int], ...]  # for each state: symbol -> next state
    answer: tuple[int, ...]  # a token for each state
    number: dict[tuple[int, ...], int]  # the task's own state -> state

    def run(self, state: int, word: Word) -> int:
        for symbol in word:
            state = self.after[state][symbol]
        return state


def machine_of(task: Task) -> Machine:
    """Return the automaton of a task. Raise ValueError if it has none."""
    if not isinstance(task, Classification) or not task.state_sizes:
        raise ValueError(f"{task.name} is no automaton with an answer to every string: it has no world-model metrics")
    symbols = _symbols(task)
    number: dict[tuple[int, ...], int] = {}
    prefixes: list[Word] = []
    after: list[dict[int, int]] = []
    answer: list[int] = []
    waiting: list[tuple[int, Word]] = [(-1, ())]  # in layers of equal length
    while waiting:
        strings = torch.tensor([(*word, symbol) for _, word in waiting for symbol in symbols])
        parts = task.state(strings)[:, -1].tolist()
        answers = task.prefix_answers(strings)[:, -1].tolist()
        found: list[tuple[int, Word]] = []
        for row, (state, word) in enumerate((state, word) for state, word in waiting for _ in symbols):
            symbol, key = int(strings[row, -1]), tuple(parts[row])
            if key not in number:
                number[key] = len(number)
                prefixes.append((*word, symbol))
                after.append({})
                answer.append(answers[row])
                found.append((number[key], prefixes[-1]))
            if state >= 0:
                after[state][symbol] = number[key]
        if len(number) > _MOST_STATES:
            raise ValueError(f"{task.name} has more than {_MOST_STATES} states: it has no world-model metrics")
        waiting = found
    machine = Machine(symbols, tuple(after), tuple(answer), number)
    if PAD in answer or not _explains(machine, task):
        raise ValueError(f"{task.name} has strings without an answer or a state that does not follow from the last one")
    return machine


def _symbols(task: Classification) -> tuple[int, ...]:
    batch = _strings(task, rows=_CHECKED)
    prompt = batch[:, : batch.shape[1] - len(task.closing)]
    return tuple(sorted(set(prompt.flatten().tolist()) - {PAD}))


def _strings(task: Classification, *, rows: int) -> Tensor:
    length = max(task.legal_lengths(1, 64))
    draw = Draw(seed=0, split="worldmodel/symbols", rows_B=torch.arange(rows))
    return task.sample(draw, torch.full((rows,), length), task.positions(length)).tokens_BL


def _explains(machine: Machine, task: Classification) -> bool:
    """Return True if the automaton gives the task's own states and answers on random strings."""
    strings = _strings(task, rows=_CHECKED)
    strings = strings[:, : strings.shape[1] - len(task.closing)]
    parts, answers = task.state(strings).tolist(), task.prefix_answers(strings).tolist()
    for string, states, said in zip(strings.tolist(), parts, answers, strict=True):
        state = machine.number[tuple(states[0])]
        for place, symbol in enumerate(string):
            state = machine.after[state][symbol] if place else state
            if machine.number.get(tuple(states[place])) != state or machine.answer[state] != said[place]:
                return False
    return True


def asked_of(task: Classification, lengths: tuple[int, int]) -> tuple[bool, ...]:
    """Return for each number of symbols True if training asks such strings: all of them, or legal lengths only."""
    legal = task.legal_lengths(*lengths)
    dense = task.supervision == "dense"
    return tuple(size > 0 and (dense or task.length(size) in legal) for size in range(task.size(legal[-1]) + 1))


def boundary(machine: Machine, a: int, b: int, *, asked: tuple[bool, ...], size: int = 0) -> list[Word]:
    """Return the boundary of two states after `size` symbols. No string is longer than `asked` allows."""
    found: list[Word] = []
    seen: set[tuple[int, int, int]] = set()
    queue: deque[tuple[Word, int, int]] = deque([((), a, b)])
    always = all(asked[size:])
    while queue:
        word, p, q = queue.popleft()
        now = size + len(word)
        place = (p, q, 0 if always else now)
        if asked[now] and machine.answer[p] != machine.answer[q]:
            found.append(word)
        elif p != q and place not in seen and now + 1 < len(asked):
            seen.add(place)
            queue += [((*word, s), machine.after[p][s], machine.after[q][s]) for s in machine.symbols]
    return found


def score(task: Classification, says: Says, *, lengths: tuple[int, int], pairs: int, seed: int) -> dict[str, Tensor]:
    """Return the three metrics of each pair, float64. NaN marks an empty boundary, for which a metric is undefined."""
    machine, asked = machine_of(task), asked_of(task, lengths)
    depth = _depth(len(machine.symbols), len(asked) - 2)
    same, different = _pairs(task, machine, asked=asked, depth=depth, pairs=pairs, seed=seed)
    if not same or not different:
        raise ValueError(f"{task.name}: no two of {_CANDIDATES} prefixes are in one state, or all of them are")
    words = [word for length in range(depth + 1) for word in product(machine.symbols, repeat=length)]
    found, _ = _of_model(says, machine, same, words, asked=asked)
    own, own_right = _of_model(says, machine, different, words, asked=asked)
    true, true_right = _of_states(says, machine, different, asked=asked)
    return {
        "compression_precision": (found == 0).double(),
        "distinction_precision": own_right / own,
        "distinction_recall": true_right / true,
    }


def _depth(num_symbols: int, most: int) -> int:
    """Return the longest suffix length for which there are at most `_WORDS` suffixes, or 1."""
    depth, words = 0, 1
    while depth < most and (depth == 0 or words + num_symbols ** (depth + 1) <= _WORDS):
        depth += 1
        words += num_symbols**depth
    return depth


class Pair(NamedTuple):
    prefixes: tuple[Word, Word]  # of equal length
    states: tuple[int, int]


def _pairs(
    task: Classification, machine: Machine, *, asked: tuple[bool, ...], depth: int, pairs: int, seed: int
) -> tuple[list[Pair], list[Pair]]:
    """Return pairs of prefixes in one state, and pairs in two states: strings of the task, cut at the same place.

    Fewer are returned than `pairs` if some have no partner.
    """
    size = len(asked) - 1
    length = task.length(size)
    cuts = [cut for cut in range(1, size - depth + 1) if any(asked[cut : cut + depth + 1])]
    draw = Draw(seed=seed, split="worldmodel/prefixes", rows_B=torch.arange(pairs * _CANDIDATES))
    strings = task.sample(draw, torch.full_like(draw.rows_B, length), task.positions(length)).tokens_BL
    parts = task.state(strings).unflatten(0, (pairs, -1)).tolist()
    cut_P = Draw(seed=seed, split="worldmodel/cuts", rows_B=torch.arange(pairs)).integers(len(cuts)).tolist()
    same, different = [], []
    for group, group_parts, number in zip(strings.unflatten(0, (pairs, -1)).tolist(), parts, cut_P, strict=True):
        cut = cuts[number]
        prefixes = [tuple(string[:cut]) for string in group]
        states = [machine.number[tuple(own[cut - 1])] for own in group_parts]
        for kind, wanted in ((same, True), (different, False)):
            for prefix, state in zip(prefixes[1:], states[1:], strict=True):
                if prefix != prefixes[0] and (state == states[0]) == wanted:
                    kind.append(Pair((prefixes[0], prefix), (states[0], state)))
                    break
    return same, different


def _of_model(
    says: Says, machine: Machine, pairs: list[Pair], words: Sequence[Word], *, asked: tuple[bool, ...]
) -> tuple[Tensor, Tensor]:
    """Return the size of the model's boundary for each pair, and how much of it the states confirm, float64 [P]."""
    said_2PW = _said(says, [[(*prefix, *word) for word in words] for side in (0, 1) for prefix in _side(pairs, side)])
    said_2PW = said_2PW.unflatten(0, (2, -1))
    found, right = torch.zeros(2, len(pairs), dtype=torch.float64)
    for number, pair in enumerate(pairs):
        apart: set[Word] = set()
        for place, word in enumerate(words):
            if word[:-1] in apart and word:
                apart.add(word)
            elif asked[len(pair.prefixes[0]) + len(word)]:
                one, other = said_2PW[:, number, place].tolist()
                if one != other:
                    apart.add(word)
                    found[number] += 2
                    right[number] += _agreed((one, other), [machine.answer[machine.run(s, word)] for s in pair.states])
    return found, right


def _of_states(says: Says, machine: Machine, pairs: list[Pair], *, asked: tuple[bool, ...]) -> tuple[Tensor, Tensor]:
    """Return the size of the states' boundary for each pair, and how much of it the model confirms, float64 [P]."""
    found, right = torch.zeros(2, len(pairs), dtype=torch.float64)
    for number, pair in enumerate(pairs):
        words = boundary(machine, *pair.states, asked=asked, size=len(pair.prefixes[0]))
        if not words:
            continue
        said_2W = _said(says, [[(*prefix, *word) for word in words] for prefix in pair.prefixes])
        for word, said in zip(words, said_2W.T.tolist(), strict=True):
            found[number] += 2
            right[number] += _agreed([machine.answer[machine.run(s, word)] for s in pair.states], said)
    return found, right


def _agreed(found: Sequence[int], judged: Sequence[int]) -> int:
    """Count for how many of the two prefixes the judge gives the found answer, and not for the other prefix."""
    return sum(found[side] == judged[side] != judged[1 - side] for side in (0, 1))


def _side(pairs: Sequence[Pair], side: int) -> list[Word]:
    return [pair.prefixes[side] for pair in pairs]


def _said(says: Says, rows: Sequence[Sequence[Word]]) -> Tensor:
    """Return the answers to rows of strings, each row with equally many."""
    strings = [string for row in rows for string in row]
    longest = max(map(len, strings))
    tokens_BL = torch.tensor([[*string, *[PAD] * (longest - len(string))] for string in strings])
    return says(tokens_BL, torch.tensor([len(string) for string in strings])).unflatten(0, (len(rows), -1))
