"""Hidden states: grammars drawn once more in plain Python, how often what is drawn, and laws path by path."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.train.export import export
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.tasks import hidden_states
from chomsky_ladder.tasks._hidden_grammar import best_guesses, in_the_long_run
from chomsky_ladder.tasks.base import Batch
from chomsky_ladder.tasks.draw import Draw, NumpyDraw
from chomsky_ladder.tasks.hidden_states import HiddenStates
from support.cases import full, some
from support.oracle_checks import check
from support.oracles_hidden_states import END, followers
from support.run_and_refusal import refusal

PUBLISHED = {"symbols": 40, "ambiguous": 40, "copies": 40, "ends": 1}
SMALL = {"symbols": 4, "ambiguous": 3, "copies": 3}
FULL_OF_IT = {"steps": (1, 10), "noise": 20, "distractors": 10, "quiet": 5}
SETTINGS: list[dict[str, Any]] = [
    {},
    FULL_OF_IT,
    {**SMALL, **FULL_OF_IT},
    {**SMALL, "density": 5, "noise": 100, "steps": (2, 3)},
    {**SMALL, "density": 100, "starts": 4, "noise": 50, "steps": (3, 3), "distractors": 100, "quiet": 1},
    {**PUBLISHED, **FULL_OF_IT, "quiet": 50},
]


def sampled(task: HiddenStates, *, rows: int, low: int, high: int) -> tuple[list[int], Batch]:
    lengths_B = low + torch.arange(rows) % (high - low + 1)
    draw = Draw(seed=0, split="test", rows_B=torch.arange(rows))
    return lengths_B.tolist(), task.sample(draw, lengths_B, high)


def improbable(counts: list[int], chances: list[float]) -> bool:
    """Return True if a chi-square statistic lies six of its standard deviations above its mean."""
    expected = np.array(chances) * sum(counts)
    statistic, freedom = float(((np.array(counts) - expected) ** 2 / expected).sum()), len(counts) - 1
    return statistic > freedom + 6 * (2 * freedom) ** 0.5 + 6


@pytest.mark.parametrize("rows", [40, full(10_000)])
@pytest.mark.parametrize("settings", some(SETTINGS, always=SETTINGS[:5]))
def test_strings_are_read_as_they_were_drawn(settings: dict, rows: int) -> None:
    task = HiddenStates(**settings)
    check(task, *sampled(task, rows=rows, low=1, high=160))


def reached(after: dict[str, set[str]], state: str) -> set[str]:
    """The states on any path from a state, one edge at a time."""
    found = {state}
    while more := {to for one in found for to in after[one]} - found:
        found |= more
    return found


@pytest.mark.parametrize(("density", "ends"), [(5, 0), (20, 0), (40, 0), (100, 0), (40, 3), (20, 90)])
@pytest.mark.parametrize("key", some(range(30), always=6))
def test_the_grammar_is_what_its_key_draws(key: int, density: int, ends: int) -> None:
    """Copy by copy from the same stream, with paths searched one edge at a time."""
    task = HiddenStates(grammar=key, symbols=5, ambiguous=3, copies=4, density=density, ends=ends, starts=2)
    stream = NumpyDraw(seed=key, split="hidden_states", rows_B=np.arange(1))
    copies = {"#": 1, "a": 4, "b": 4, "c": 4, "d": 1, "e": 1}
    names = [f"{symbol}{copy}" for symbol, number in copies.items() for copy in range(number)]
    percents = stream.integers(100, (len(names), 6))[0].tolist()
    picks = stream.integers(np.array(list(copies.values())), (len(names), 6))[0].tolist()
    first = ["abcde"[place] for place in stream.permutation(5)[0, :2]]
    after: dict[str, set[str]] = {}
    for name, percent, pick in zip(names, percents, picks, strict=True):
        pairs = zip(copies, percent, pick, strict=True)
        after[name] = {
            f"{symbol}{copy}"
            for symbol, chance, copy in pairs
            if (symbol in first if name == END else chance < (ends or density if symbol == "#" else density))
        }
    states = [name for name in names if name in reached(after, END)]
    for name in states:  # a state mended later never mends one that comes before it in the list
        if END not in reached(after, name):
            after[name].add(END)
    assert task.machine.names == tuple(states)
    assert followers(task.machine) == {name: {to[0]: to for to in after[name]} for name in states}
    assert all(END in reached(after, name) for name in states) and reached(after, END) == set(states)


@pytest.mark.parametrize("ends", [0, 5])
def test_links_copies_and_starts_are_as_likely_as_said(ends: int) -> None:
    """Over many grammars, of whose states nearly all are reached and nearly none is mended.

    grammar_generation.py of the published code has a symbol follow by its copies times the density, and # has one.
    """
    links, ending, copies, starts = Counter(), Counter(), Counter(), Counter()
    for key in range(150):
        machine = HiddenStates(grammar=key, density=60, ends=ends, starts=3).machine
        may_follow = followers(machine)
        starts.update(list(may_follow[END]))
        assert len(may_follow[END]) == 3
        for name in machine.names[1:]:
            links.update(symbol in may_follow[name] for symbol in "abcdefgh")
            ending["#" in may_follow[name]] += 1
            copies.update(to[1:] for symbol, to in may_follow[name].items() if symbol != "#")
    assert not improbable([links[True], links[False]], [0.6, 0.4])
    share = (ends or 60) / 100
    assert not improbable([ending[True], ending[False]], [share, 1 - share])
    assert len(copies) == 8 and not improbable(list(copies.values()), [1 / 8] * 8)
    assert len(starts) == 8 and not improbable(list(starts.values()), [1 / 8] * 8)


def steps_of(task: HiddenStates, batch: Batch) -> Iterator[tuple[list[str], list[str]]]:
    """Yield each string's symbols, and its states with "" where there is none."""
    names = ["", *task.vocab[1:]]
    for tokens, targets, length in zip(
        batch.tokens_BL.tolist(), batch.targets_BL.tolist(), batch.length_B.tolist(), strict=True
    ):
        yield [task.vocab[token] for token in tokens[:length]], [names[target] for target in targets[:length]]


@pytest.mark.parametrize("settings", [SMALL, {**SMALL, "steps": (1, 3), "noise": 40, "distractors": 30, "quiet": 1}])
def test_all_that_may_follow_is_as_likely(settings: dict) -> None:
    task = HiddenStates(**settings)
    may_follow, moves = followers(task.machine), {name: Counter() for name in task.machine.names}
    for _, states in steps_of(task, sampled(task, rows=1500, low=60, high=60)[1]):
        for before, state in pairwise([END, *filter(None, states)]):
            moves[before][state] += 1
    for name, counts in moves.items():
        assert set(counts) == set(may_follow[name].values())
        assert not improbable(list(counts.values()), [1 / len(counts)] * len(counts))


def test_gaps_noise_and_distractors_are_as_likely_as_said() -> None:
    quiet = 4
    task = HiddenStates(steps=(1, 10), noise=20)
    noisy = list(steps_of(task, sampled(task, rows=400, low=300, high=300)[1]))
    gaps = Counter()
    held = Counter()
    foreign: dict[str, Counter] = {name: Counter() for name in task.machine.names}
    for symbols, states in noisy:
        places = [place for place, state in enumerate(states) if state]
        gaps.update(b - a for a, b in pairwise(places[:28]))  # a cut string has the short gaps of its end too often
        now = ""
        for symbol, state in zip(symbols, states, strict=True):
            now = state or now
            if not state:
                held[symbol == "."] += 1
                foreign[now][symbol] += symbol != "."
    assert sorted(gaps) == list(range(1, 11)) and not improbable(list(gaps.values()), [0.1] * 10)
    assert not improbable([held[True], held[False]], [0.8, 0.2])
    may_follow = followers(task.machine)
    for name, counts in foreign.items():
        letters = [letter for letter in "abcdefgh" if letter not in may_follow[name]]
        assert set(+counts) <= set(letters)
        if counts.total() > 200:
            assert not improbable([counts[letter] for letter in letters], [1 / len(letters)] * len(letters))
    task = HiddenStates(distractors=10, quiet=quiet)
    followed = Counter()
    for _, states in steps_of(task, sampled(task, rows=800, low=100, high=100)[1]):
        assert all(states[:quiet])
        places = [place for place, state in enumerate(states) if state]
        followed.update(b - a for a, b in pairwise(places[quiet - 1 :]))
    assert set(followed) == {1, 2} and not improbable([followed[1], followed[2]], [0.9, 0.1])


def chances_of(task: HiddenStates, length: int) -> dict[tuple[int, str], Fraction]:
    """P(the answer of an element is a state), by every path of states, steps and distractors in turn."""
    may_follow, (low, high) = followers(task.machine), task.steps
    law: Counter[tuple[int, str]] = Counter()
    share = Fraction(task.distractors, 100)
    pending = [(END, 0, 0, Fraction(1))]  # the state before, how many elements, where the next stands
    while pending:
        before, number, place, chance = pending.pop()
        if place >= length:
            continue
        for state in may_follow[before].values():
            each = chance / len(may_follow[before])
            law[number, state] += each
            for own in range(low, high + 1):
                one = each / (high - low + 1)
                is_followed = share if number + 1 >= task.quiet else Fraction(0)
                pending.append((state, number + 1, place + own, one * (1 - is_followed)))
                if is_followed:
                    for other in range(low, high + 1):
                        moved = place + own + other
                        pending.append((state, number + 1, moved, one * is_followed / (high - low + 1)))
    return dict(law)


@pytest.mark.parametrize(
    ("settings", "length"),
    [
        ({}, 4),
        ({"steps": (1, 3)}, 5),
        ({"steps": (2, 2), "distractors": 50, "quiet": 2}, 9),
        ({"steps": (1, 2), "distractors": 30, "quiet": 1}, 5),
        ({"distractors": 100, "quiet": 1}, 6),
    ],
)
def test_the_law_is_that_of_every_path(settings: dict, length: int) -> None:
    task = HiddenStates(symbols=3, ambiguous=2, copies=2, starts=2, grammar=1, **settings)
    law, token_of = task.answer_law(length), {name: task.vocab.index(name) for name in task.machine.names}
    expected = np.zeros_like(law)
    for (number, state), chance in chances_of(task, length).items():
        expected[number, token_of[state]] = chance
    np.testing.assert_allclose(law, expected, rtol=0, atol=1e-12)


@pytest.mark.full
@pytest.mark.parametrize("settings", [{}, SMALL])
def test_guesses_from_the_last_symbols_are_worth_what_the_facts_say(settings: dict) -> None:
    """Guesses learnt from some long strings and tried on others."""
    task = HiddenStates(**settings)
    strings = list(steps_of(task, sampled(task, rows=120, low=1000, high=1000)[1]))
    share = Counter(state for _, states in strings for state in states)
    for name, chance in zip(task.machine.names, in_the_long_run(task.machine), strict=True):
        assert share[name] / share.total() == pytest.approx(chance, abs=0.01)
    for window, said in enumerate(best_guesses(task.machine), start=1):
        seen: dict[tuple[str, ...], Counter] = {}
        right = tried = 0
        for row, (symbols, states) in enumerate(strings):
            for place in range(10, len(symbols)):
                counts = seen.setdefault(tuple(symbols[place + 1 - window : place + 1]), Counter())
                if row < 80:
                    counts[states[place]] += 1
                elif counts:
                    right += counts.most_common(1)[0][0] == states[place]
                    tried += 1
        assert right / tried == pytest.approx(said, abs=0.02)
    assert f"{best_guesses(task.machine)[1]:.3f}" in str(task.facts)


def test_few_copies_are_told_by_the_last_two_symbols() -> None:
    """Check what the docstring says on the difficulty of sizes."""
    assert best_guesses(HiddenStates().machine)[1] == pytest.approx(0.64, abs=0.005)
    assert best_guesses(HiddenStates(ambiguous=4, copies=4).machine)[1] == pytest.approx(0.96, abs=0.005)
    published = HiddenStates(**PUBLISHED)
    assert len(published.answers) == 1601 and best_guesses(published.machine)[1] == pytest.approx(0.16, abs=0.005)


@pytest.mark.parametrize("few", [0, 1000])
def test_states_are_followed_one_by_one_as_their_maps_compose(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for settings in ({**FULL_OF_IT}, {**SMALL, **FULL_OF_IT}):
        task = HiddenStates(**settings)
        _, batch = sampled(task, rows=30, low=1, high=130)
        states_BLS = task.state(batch.tokens_BL)
        with monkeypatch.context() as patched:
            patched.setattr(hidden_states, "FEW", few)
            assert all(map(torch.equal, sampled(task, rows=30, low=1, high=130)[1], batch))
            assert torch.equal(task.state(batch.tokens_BL), states_BLS)


def test_what_a_grammar_asks_of_a_state() -> None:
    """Some word of the second grammar swaps two states (a group of two elements); no word of the first does."""
    plain, grouped = (HiddenStates(ambiguous=4, copies=4, grammar=key) for key in (0, 1))
    assert (plain.demand, grouped.demand) == ("star-free", "parity")
    assert replace(grouped, steps=(1, 5)).demand == "parity"
    assert {replace(task, distractors=10).demand for task in (plain, grouped)} == {""}
    assert replace(plain, noise=10, steps=(2, 2)).demand == ""
    assert HiddenStates(**PUBLISHED).demand == ""
    may_follow = followers(grouped.machine)

    def led(state: str, symbols: str) -> str:
        for symbol in symbols:
            state = may_follow.get(state, {}).get(symbol, "")
        return state

    symbols = "#abcdefgh"
    words = [*symbols, *(a + b for a in symbols for b in symbols)]
    words += [word + c for word in words if len(word) == 2 for c in symbols]
    swaps = [w for w in words for s in may_follow if led(s, w) not in (s, "") and led(led(s, w), w) == s]
    assert swaps  # a short word that swaps two states, by search


def test_a_run_is_scored_on_strings_of_another_gap(tmp_path: Path) -> None:
    """Gaps, noise and distractors leave the tokens alone, so a set of theirs fits a run without."""
    path = tmp_path / "set.jsonl"
    trained = HiddenStates(steps=(1, 10), noise=20)
    tested = replace(trained, steps=(5, 5), noise=0)
    export(tested, path, lengths=(40, 40), count=20, seed=0, split="test")
    run = Run(
        task=trained,
        model=LSTMConfig(d_model=8),
        train=Train(steps=10, lengths=(20, 20)),
        eval=Eval(file=str(path), bins=(39, 40), extrapolate=()),
    )
    assert run.eval.lengths == (40, 40) and run.eval.test == 20
    with pytest.raises(ValueError, match="another vocab"):
        replace(run, task=HiddenStates(grammar=1))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"symbols": 1}, "symbols must lie in 2..52, not 1"),
        ({"symbols": 4}, "ambiguous must lie in 0..4, not 8"),
        ({"starts": 9}, "starts must lie in 1..8, not 9"),
        ({"density": 0}, "density must lie in 1..100, not 0"),
        ({"copies": 65}, "copies must lie in 1..64, not 65"),
        ({"steps": (0, 3)}, "steps must rise within 1..1024, not 0, 3"),
        ({"steps": (3, 2)}, "not 3, 2"),
        ({"noise": 5}, "noise stands in blanks, of which steps=(1, 1) has none"),
        ({"distractors": 101}, "distractors must lie in 0..100, not 101"),
        ({"quiet": 0}, "quiet must lie in 1..1048576, not 0"),
        ({"grammar": -1}, "grammar must lie in 0..9223372036854775807, not -1"),
    ],
)
def test_what_is_no_grammar_is_refused(settings: dict, said: str) -> None:
    assert said in refusal(lambda: HiddenStates(**settings))
