"""The metrics of automata: boundaries held to every word spelt out, models made by hand."""

from collections.abc import Callable, Sequence
from itertools import product

import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.inside.automata import Machine, Says, Word, asked_of, boundary, machine_of, score
from chomsky_ladder.tasks.base import Task
from chomsky_ladder.tasks.cycle_nav import P0, CycleNav
from chomsky_ladder.tasks.dyck import Dyck
from chomsky_ladder.tasks.flip_flop import FlipFlop
from chomsky_ladder.tasks.mod_arithmetic import ModArithmetic
from chomsky_ladder.tasks.parity import Parity
from chomsky_ladder.tasks.regular import Regular
from chomsky_ladder.tasks.word_problem import WordProblem

torch.set_num_threads(1)


def says_of(answer: Callable[[list[int]], int]) -> Says:
    def says(tokens_BL: Tensor, length_B: Tensor) -> Tensor:
        strings = zip(tokens_BL.tolist(), length_B.tolist(), strict=True)
        return torch.tensor([answer(string[:length]) for string, length in strings])

    return says


def ended(string: Sequence[int], cycle: int) -> int:
    """The place of a walk on a cycle, without the task."""
    return sum({1: 0, 2: 1, 3: -1}[token] for token in string) % cycle


def means(task: Task, says: Says, *, lengths: tuple[int, int] = (3, 20)) -> list[float | None]:
    scores = score(task, says, lengths=lengths, pairs=30, seed=0)
    return [None if values.isnan().all() else values.nanmean().item() for values in scores.values()]


def test_the_machine_behind_a_task() -> None:
    parity = machine_of(Parity())
    assert parity.symbols == (1, 2) and len(parity.after) == 2 and sorted(parity.answer) == [1, 2]
    even, odd = (parity.number[(state,)] for state in (0, 1))
    assert parity.after[even] == {1: even, 2: odd} and parity.after[odd] == {1: odd, 2: even}
    assert len(machine_of(Regular(pattern="(aa|b)*")).after) == Regular(pattern="(aa|b)*").dfa.num_states == 3
    assert len(machine_of(WordProblem(group="S3", inputs="generators")).after) == 6


def test_a_perfect_model_scores_one() -> None:
    assert means(CycleNav(cycle=4), says_of(lambda string: P0 + ended(string, 4))) == [1, 1, 1]
    task = Regular(pattern="(ab|ba)*")  # no string of odd length is in the language: none is asked for

    def member(string: list[int]) -> int:
        is_member = len(string) % 2 == 0 and all(a != b for a, b in zip(string[::2], string[1::2], strict=True))
        return 4 if is_member else 3

    assert means(task, says_of(member)) == [1, 1, 1]
    assert means(task, says_of(lambda string: member(string) if len(string) % 2 == 0 else 4)) == [1, 1, 1]
    assert means(Parity(query="token"), says_of(lambda string: 1 + sum(t == 2 for t in string) % 2)) == [1, 1, 1]


def test_who_says_one_thing_compresses_and_distinguishes_nothing() -> None:
    assert means(Parity(), says_of(lambda string: 1)) == [1, None, 0]


def test_a_merging_model_scores_what_one_finds_by_hand() -> None:
    """It takes places 2 and 3 of a cycle of four for 0 and 1.

    Behind the empty suffix 0|2 and 1|3 are one to it; 0|1 are told apart as they should be; of 2|3 it says 0 and 1,
    neither right; of 0|3 it says 0 and 1, of which the first is right, and so for 1|2.
    """
    by_pair = {
        (0, 1): (1, 1),
        (0, 2): (None, 0),
        (0, 3): (0.5, 0.5),
        (1, 2): (0.5, 0.5),
        (1, 3): (None, 0),
        (2, 3): (0, 0),
    }
    task = CycleNav(cycle=4, supervision="dense")
    says = says_of(lambda string: P0 + ended(string, 4) % 2)
    scores = score(task, says, lengths=(3, 20), pairs=60, seed=0)
    assert (scores["compression_precision"] == 1).all()
    seen = {
        (None if precision != precision else precision, recall)
        for precision, recall in zip(
            *(scores[f"distinction_{of}"].tolist() for of in ("precision", "recall")), strict=True
        )
    }
    assert seen == set(by_pair.values())


def test_who_looks_at_the_first_symbol_does_not_compress() -> None:
    compression, precision, recall = means(Parity(), says_of(lambda string: string[0]))
    assert 0.3 < compression < 0.7 and 0.2 < precision <= 1 and recall < 0.7


def random_machine(seed: int, states: int) -> Machine:
    generator = torch.Generator().manual_seed(seed)
    after = torch.randint(0, states, (states, 2), generator=generator).tolist()
    answer = torch.randint(3, 5, (states,), generator=generator).tolist()
    return Machine((1, 2), tuple({1: row[0], 2: row[1]} for row in after), tuple(answer), {})


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("asked", [(True,) * 40, (True, False) * 20])
def test_the_boundary_has_one_word_for_each_step_that_tells_states_apart(seed: int, asked: tuple[bool, ...]) -> None:
    machine = random_machine(seed, 4)
    longest = 7
    for a, b in product(range(4), range(4)):
        apart: set[Word] = set()
        for length in range(longest + 1):
            for word in product((1, 2), repeat=length):
                after = [machine.run(state, word) for state in (a, b)]
                differs = machine.answer[after[0]] != machine.answer[after[1]] and asked[length]
                if differs and not any(word[:n] in apart for n in range(length)):
                    apart.add(word)

        def step(word: Word, a: int = a, b: int = b) -> tuple:
            before = [machine.run(state, word[:-1]) for state in (a, b)]
            return (*before, word[-1:], asked[len(word)])

        found = boundary(machine, a, b, asked=asked)
        short = [word for word in found if len(word) <= longest]
        assert set(short) <= apart and len(found) == len(set(found))
        assert {step(word) for word in short} == {step(word) for word in apart}


def test_words_end_where_answers_do() -> None:
    """Two states that differ five symbols on, of which two, four or six are left."""
    chain = Machine((1,), ({1: 1}, {1: 2}, {1: 3}, {1: 4}, {1: 5}, {1: 5}, {1: 6}), (3, 3, 3, 3, 3, 4, 3), {})
    assert boundary(chain, 0, 6, asked=(True,) * 6) == [(1, 1, 1, 1, 1)]
    assert boundary(chain, 0, 6, asked=(True,) * 6, size=1) == []
    assert boundary(chain, 5, 6, asked=(False, False, True)) == [(1, 1)]


def test_where_answers_are_asked_for() -> None:
    assert asked_of(Parity(), (3, 6)) == (False, False, True, True, True, True)  # a length counts the answer
    assert asked_of(Parity(supervision="dense"), (3, 6)) == (False, True, True, True, True, True)
    assert asked_of(Regular(pattern="(ab|ba)*"), (1, 6)) == (False, False, True, False, True)


@pytest.mark.parametrize("task", [FlipFlop(), ModArithmetic(), Dyck()])
def test_what_is_no_automaton_with_an_answer_to_every_string_is_refused(task: Task) -> None:
    with pytest.raises(ValueError, match=task.name):
        machine_of(task)
