"""Lengths, labels and symbols of every task occur as often as its definition says: chi-square over fixed strings."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pytest
import torch

from chomsky_ladder.harness.config.registry import all_tasks
from chomsky_ladder.harness.config.run import Run, Train
from chomsky_ladder.harness.train.data import TrainingStream
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.tasks.base import Task
from support.cases import some

ROWS = 12_000
DIGITS = [str(digit) for digit in range(10)]
TASKS = {name: classes[0]() for name, classes in sorted(all_tasks().items())}

EQUAL: dict[str, list[list[str]]] = {  # groups of symbols: within a group, each occurs as often as the others
    "parity": [["a", "b"]],
    "othello": [],
    "chess": [],
    "in_context_recall": [[f"v{value}" for value in range(8)]],
    "noisy_in_context_recall": [[f"k{key}" for key in range(8)], [f"n{token}" for token in range(16)]],
    "fuzzy_in_context_recall": [[f"k{key}" for key in range(7)], [f"v{value}" for value in range(8)]],
    "memorization": [[f"k{key}" for key in range(127)]],
    "scratchpad": [["a", "b"]],
    "long_addition": [["+", "ACT"]],  # its bits are also carries, of which more are 0
    "hidden_states": [],
    "in_context_automata": [list("abcdefghijklmnopqr")],
    "even_pairs": [["a", "b"]],
    "cycle_nav": [["STAY", "+1", "-1"]],
    "mod_arithmetic": [DIGITS[:5], ["+", "-", "*"]],
    "mod_arithmetic_brackets": [DIGITS[:5], ["+", "*"], ["(", ")"]],
    "solve_equation": [["(", ")"], ["="], ["x"]],
    "bucket_sort": [DIGITS],
    "missing_duplicate": [DIGITS[:9]],
    "odds_first": [DIGITS],
    "repetition": [DIGITS],
    "duplicate_string": [DIGITS[:2]],
    "compression": [[str(symbol) for symbol in range(15)]],
    "reverse_string": [DIGITS],
    "stack_manipulation": [["ST1", "ST2", "ST3", "ST4"], ["PS1", "PS2", "PS3", "PS4"]],
    "set": [[str(symbol) for symbol in range(126)]],
    "majority": [[str(symbol) for symbol in range(1, 64)]],
    "majority_count": [[str(symbol) for symbol in range(1, 64)]],
    "compute_sqrt": [["0", "1"]],
    "dyck": [["(", "["], [")", "]"]],
    "flip_flop": [["0", "1"]],
    "induction_heads": [[str(symbol) for symbol in range(16)]],
    "k_hop": [DIGITS[:4], [f"h{hops}" for hops in range(1, 9)]],
    "needle": [[f"v{value}" for value in range(10)], [f"n{value}" for value in range(16)]],
    "selective_copying": [[str(symbol) for symbol in range(16)]],
    "random_dfa": [],
    "mlregtest": [],
    "flare_regular": [],
    "flare_context_free": [["0", "1"]],
    "flare_context_sensitive": [["0", "1"]],
    "regular": [["a", "b"]],
    "grammar": [],
    "counter_language": [["a", "b"]],
    "mqar": [[f"k{key}" for key in range(64)], [f"v{value}" for value in range(64)]],
    "qa_places": [["kitchen", "garden", "office", "bathroom", "hallway", "bedroom", "cellar", "attic"]],
    "qa_times": [["before", "after"]],
    "qa_shapes": [["left-of", "right-of", "above", "below"]],
    "binary_addition": [],
    "binary_multiplication": [],
    "word_problem": [],
    "state_recall": [["0", "1"]],
    "text": [["c", "d"]],
    "depo": [[f"n{node}" for node in range(128)], [f"h{steps}" for steps in range(1, 9)]],
    "brevo": [[f"n{node}" for node in range(128)]],
    "reachability": [[f"n{node}" for node in range(64)]],
    "formula_value": [["0", "1"], ["AND", "OR"]],
    "mano": [["+", "-", "*"]],
}


@lru_cache
def strings(name: str) -> tuple[tuple[int, ...], torch.Tensor, list[list[str]], list[list[str]]]:
    """Training strings under the paper's lengths: the legal lengths, each string's, its symbols, its answers."""
    task, vocab = TASKS[name], TASKS[name].vocab
    run = Run(task=task, model=LSTMConfig(d_model=8), train=Train(batch=ROWS))
    batch = TrainingStream([run], torch.device("cpu")).batch(0, longest=run.train.longest(0))
    legal = task.legal_lengths(*run.train.lengths)
    rows = zip(batch.tokens_BL.tolist(), batch.length_B.tolist(), strict=True)
    words = [[vocab[token] for token in row[:length]] for row, length in rows]
    rows = zip(batch.targets_BL, batch.scored_BL, strict=True)
    answers = [[vocab[token] for token in targets[scored].tolist()] for targets, scored in rows]
    return legal, batch.length_B, words, answers


def improbable(counts: Sequence[float], expected: Sequence[float]) -> bool:
    """Return True if a chi-square statistic lies six of its standard deviations above its mean."""
    counts, expected = np.asarray(counts, float), np.asarray(expected, float)
    freedom = len(counts) - 1
    return bool(((counts - expected) ** 2 / expected).sum() > freedom + 6 * np.sqrt(2 * freedom) + 6)


every_third_task = pytest.mark.parametrize("name", some(TASKS))


@every_third_task
def test_lengths_are_uniform_over_the_legal_ones(name: str) -> None:
    legal, length_B, _, _ = strings(name)
    filled: dict[int, int] = {}  # several lengths may fill as many positions: all but the last blank answer slot
    for length in legal:
        filled[TASKS[name].positions(length)] = filled.get(TASKS[name].positions(length), 0) + 1
    counts = torch.bincount(length_B, minlength=max(filled) + 1)
    assert int(counts.sum()) == int(sum(counts[size] for size in filled)) == ROWS
    assert not improbable(
        [int(counts[size]) for size in filled], [ROWS * share / len(legal) for share in filled.values()]
    )


@every_third_task
def test_answers_are_as_frequent_as_the_law_says(name: str) -> None:
    """The marginal distribution over all answers; conformance compares slot by slot."""
    task = TASKS[name]
    legal, _, _, answers = strings(name)
    if type(task).answer_law is Task.answer_law:
        pytest.skip("its law is counted, not derived")
    if getattr(task, "supervision", "final") == "dense":
        answers = [said[-1:] for said in answers]
    law = sum(task.answer_law(length).sum(0) for length in legal) / len(legal) * ROWS
    said = [symbol for row in answers for symbol in row]
    counts = {token: said.count(task.vocab[token]) for token in task.answers}
    likely = [token for token in task.answers if law[token] >= 5]
    assert sum(counts[token] for token in task.answers if token not in likely) <= 5 * len(task.answers) ** 0.5 + 20
    if len(set(map(len, answers))) == 1 and len(answers[0]) == 1:
        assert not improbable([counts[token] for token in likely], [law[token] for token in likely])
    for token in likely:  # answers of one string depend on one another: bounds, not a chi-square
        per_string = max(map(len, answers))
        assert abs(counts[token] - law[token]) < 6 * np.sqrt(law[token] * per_string) + 6, task.vocab[token]


@every_third_task
def test_symbols_are_as_frequent_as_defined(name: str) -> None:
    _, _, words, _ = strings(name)
    symbols, counts = np.unique([symbol for word in words for symbol in word], return_counts=True)
    count = dict(zip(symbols.tolist(), counts.tolist(), strict=True))
    for group in EQUAL[name]:
        mean = sum(count[symbol] for symbol in group) / len(group)
        for symbol in group:  # copies within a string widen the spread, so a relative bound
            assert count[symbol] == pytest.approx(mean, rel=6 * (max(1, len(group)) / mean) ** 0.5 + 0.03), symbol


def shares(name: str, *symbols: str) -> list[float]:
    words = strings(name)[2]
    total = [sum(word.count(symbol) for word in words) for symbol in symbols]
    return [one / sum(total) for one in total]


def test_pushes_and_pops_are_even() -> None:
    """They are equally frequent, except for the last pop of the few stacks that would end empty."""
    pushes = [f"PS{symbol}" for symbol in range(1, 5)]
    assert sum(shares("stack_manipulation", "POP", *pushes)[1:]) == pytest.approx(0.5, abs=0.02)


def test_brackets_are_split_by_binary_and_unary_operators() -> None:
    """'*' and '+' are a third each of the binary operators; every pair of brackets has one, or a leaf inside."""
    words = strings("mod_arithmetic_brackets")[2]
    for word in words:
        assert word.count("(") == word.count(")") and word[-1] == "="
        binary = sum(a in {")", *DIGITS} and b in "+-*" for a, b in pairwise(word))
        digits = sum(symbol.isdigit() for symbol in word)
        assert digits == binary + 1
    plus, times = shares("mod_arithmetic_brackets", "+", "*")
    assert plus == pytest.approx(times, abs=0.02)


def test_flip_flop_mostly_ignores() -> None:
    """80, 10 and 10 percent within the string, less the fixed first write and last read."""
    words = strings("flip_flop")[2]
    inner = [symbol for word in words for symbol in word[2:-1:2]]
    for symbol, share in {"i": 0.8, "w": 0.1, "r": 0.1}.items():
        assert inner.count(symbol) / len(inner) == pytest.approx(share, abs=0.01)


@pytest.mark.full
def test_majority_is_tied_as_often_as_published_of_it() -> None:
    """62 of 100 training strings have several commonest symbols, so the tie rule is part of the label."""
    words = strings("majority")[2]
    tied = sum(sum(word.count(s) == max(map(word.count, word)) for s in set(word)) > 1 for word in words)
    assert tied / len(words) == pytest.approx(0.62, abs=0.03)


def test_the_needle_lies_anywhere() -> None:
    words = [word for word in strings("needle")[2] if len(word) > 20]
    places = [next(i for i, s in enumerate(word) if s.startswith("v")) / max(len(word) - 2, 1) for word in words]
    assert np.mean(places) == pytest.approx(0.5, abs=0.02)
    assert np.var(places) == pytest.approx(1 / 12, abs=0.02)


def test_the_hole_of_missing_duplicate_lies_anywhere_in_the_second_copy() -> None:
    words = strings("missing_duplicate")[2]
    places = [(word.index("MIS") - len(word) / 2) / (len(word) / 2) for word in words]
    assert min(places) >= 0
    assert np.mean(
        [p * len(w) / (len(w) - 2) for p, w in zip(places, words, strict=True) if len(w) > 8]
    ) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(
    "name", ["regular", "random_dfa", "mlregtest", "flare_context_free", "grammar", "counter_language"]
)
def test_members_and_others_are_even(name: str) -> None:
    answers = [said[-1] for said in strings(name)[3]]
    assert answers.count("YES") / len(answers) == pytest.approx(0.5, abs=0.025)
