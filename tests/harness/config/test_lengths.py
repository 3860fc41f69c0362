"""Predictions for attention beyond its training lengths, against the tasks' own automata and strings."""

import pytest
import torch

from chomsky_ladder.harness.config.lengths import BY_DEMAND, predicted
from chomsky_ladder.harness.config.theory import DEMANDS
from chomsky_ladder.harness.inside.automata import Machine, machine_of
from chomsky_ladder.tasks._c_rasp import in_c_rasp
from chomsky_ladder.tasks.base import Task
from chomsky_ladder.tasks.bucket_sort import BucketSort
from chomsky_ladder.tasks.cycle_nav import CycleNav
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.dyck import Dyck
from chomsky_ladder.tasks.even_pairs import EvenPairs
from chomsky_ladder.tasks.flip_flop import FlipFlop
from chomsky_ladder.tasks.majority import Majority
from chomsky_ladder.tasks.mqar import Mqar
from chomsky_ladder.tasks.parity import Parity
from chomsky_ladder.tasks.regular import Regular
from chomsky_ladder.tasks.repetition import Repetition
from chomsky_ladder.tasks.reverse_string import ReverseString
from chomsky_ladder.tasks.word_problem import WordProblem


@pytest.mark.parametrize(
    ("task", "word"),
    [
        (FlipFlop(), "loses"),
        (FlipFlop(ignore=0), "open"),
        (EvenPairs(), "open"),
        (Parity(), "loses"),
        (CycleNav(), "loses"),
        (WordProblem(group="S3"), "loses"),
        (WordProblem(group="A5"), "loses"),
        (Majority(), "keeps"),
        (Dyck(), "open"),
        (ReverseString(), "loses"),
        (Repetition(), "loses"),
        (BucketSort(), "keeps"),
        (Mqar(), "keeps"),
        (Regular(pattern="(ab|bbaa)*"), "keeps"),
        (Regular(pattern="(ab|bba)*"), "loses"),
    ],
    ids=lambda one: one if isinstance(one, str) else one.name,
)
def test_each_rung_and_regular_languages(task: Task, word: str) -> None:
    assert predicted(task).word == word and len(predicted(task).why) > 20


def test_predictions_are_of_demands_that_there_are() -> None:
    assert set(BY_DEMAND) <= set(DEMANDS)


def table_of(machine: Machine) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(leads[symbol] for symbol in machine.symbols) for leads in machine.after)


@pytest.mark.parametrize("task", [Parity(), CycleNav(), EvenPairs(), WordProblem(group="S3")], ids=lambda one: one.name)
def test_what_is_lost_has_an_automaton_outside(task: Task) -> None:
    """Comparing the ends is open: outside with the automaton alone, and inside if the last symbol is at hand."""
    assert not in_c_rasp(table_of(machine_of(task)))


def test_the_sort_is_a_comparison_of_counts() -> None:
    task = BucketSort(num_symbols=4)
    batch = task.sample(Draw(seed=3, split="t", rows_B=torch.arange(20)), torch.full((20,), 9), task.positions(9))
    for string, answers, scored in zip(*(x.tolist() for x in batch[:3]), strict=True):
        given = [answer for answer, is_scored in zip(answers, scored, strict=True) if is_scored]
        read = string[: len(given)]
        counts = [sum(symbol <= s for symbol in read) for s in range(5)]
        assert given == [next(s for s in range(5) if counts[s] > written) for written in range(len(given))]
