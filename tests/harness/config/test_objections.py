"""Every objection of the review has an answer, and what the answers claim of groups and networks is true."""

import random

import numpy as np
import torch

from chomsky_ladder.harness.config.objections import OBJECTIONS
from chomsky_ladder.harness.config.theory import verdict
from chomsky_ladder.harness.stats.climb import CONDITIONAL, sign_of
from chomsky_ladder.models.operations.slstm.reference import slstm_scan, slstm_start
from chomsky_ladder.tasks._groups import Permutation, group

REGULAR = ("star-free", "parity", "cyclic", "solvable", "non-solvable")
OBJECTED = {
    "attention": ("star-free", "non-solvable", "nesting", "reversal", "copying", "sorting"),
    "looped attention": ("non-solvable",),
    "diagonal": ("majority", "counter"),
    "fixed linear": ("majority", "counter"),
    "generalised delta": ("parity",),
    "dense blocks": ("non-solvable",),
    "one-hot rows": ("non-solvable",),
    "slstm": REGULAR,
    "stack": ("majority", "counter", "nesting", "reversal"),
    "tape": ("majority", "counter", "nesting", "reversal", "copying"),
    "": ("non-solvable",),  # PaTH, which declares no transition
}
A5 = group("A5")
GENERATORS = [A5.elements[place] for place in A5.generators]


def test_every_objection_of_the_review_has_one_answer() -> None:
    answered = [(one.of, demand) for one in OBJECTIONS for demand in one.demands]
    assert sorted(answered) == sorted((of, demand) for of, demands in OBJECTED.items() for demand in demands)
    assert len(answered) == 28 + 1
    assert all(one.said and one.answer and one.read for one in OBJECTIONS)


def test_the_marks_are_what_the_answers_say() -> None:
    for one in OBJECTIONS:
        for demand in one.demands:
            for model in one.models or ("",):
                found = verdict(one.of, demand, model=model)
                assert found.word == one.now, (one.of, demand, model)
                assert (CONDITIONAL in sign_of(found)) == ("degree sign" in one.answer)
    assert "2505.16381" in verdict("", "non-solvable", model="path_attention").why


def reached(start: np.ndarray, matrices: list[np.ndarray]) -> int:
    """Count the products of these matrices, applied to what they start from."""
    found, left = {start.tobytes()}, [start]
    while left:
        state = left.pop()
        for matrix in matrices:
            new = matrix @ state
            if new.tobytes() not in found:
                found.add(new.tobytes())
                left.append(new)
    return len(found)


def moved(x: Permutation) -> np.ndarray:
    """The matrix that moves five things."""
    return np.eye(5, dtype=int)[list(x)]


def test_blocks_of_four_hold_a5_in_whole_numbers() -> None:
    differences = np.hstack([np.eye(4, dtype=int), -np.ones((4, 1), dtype=int)])  # things less the last one
    back = np.vstack([np.eye(4, dtype=int), np.zeros((1, 4), dtype=int)])
    matrices = [differences @ moved(x) @ back for x in GENERATORS]
    assert {matrix.shape for matrix in matrices} == {(4, 4)} and max(abs(m).max() for m in matrices) == 1
    assert reached(np.eye(4, dtype=int), matrices) == reached(np.array([1, 2, 4, 8]), matrices) == 60


def test_thirty_numbers_with_signs_hold_a5_from_the_first_one() -> None:
    """Elements in pairs {g, g s} with s a product of two swaps: one number a pair, whose sign says which of the two."""
    s = A5.elements.index((1, 0, 3, 2, 4))
    pair, sign, count = {}, {}, 0
    for g in range(60):
        if g not in pair:
            h = A5.table[s, g]  # s first
            pair[g] = pair[h] = count
            sign[g], sign[h] = 1, -1
            count += 1
    matrices = []
    for x in A5.generators:
        matrix = np.zeros((30, 30), dtype=int)
        for g in range(60):
            to = A5.table[g, x]
            matrix[pair[to], pair[g]] = sign[to] * sign[g]
        matrices.append(matrix)
    assert count == 30 and all((abs(m).sum(0) == 1).all() and (abs(m).sum(1) == 1).all() for m in matrices)
    assert reached(np.eye(30, dtype=int)[0], matrices) == 60


def test_an_slstm_with_its_forget_gate_shut_follows_a5_in_heads_of_21() -> None:
    """Each head follows where one of four things is, by a unit for every (place before, symbol): 10 of its 21 numbers.

    In a head, h of a unit is 1 where it holds and -1 elsewhere, and 0 at the start.
    """
    sharp, heads, inner = 40.0, 4, 21
    W = torch.zeros(heads, 4, inner, inner)
    R, b = torch.zeros_like(W), torch.zeros(heads, 4, inner)
    units = [(place, symbol) for place in range(5) for symbol in range(2)]
    b[:, 1], b[:, 3] = -200.0, 200.0  # f and o
    for thing in range(heads):
        for unit, (place, symbol) in enumerate(units):
            W[thing, 2, unit, symbol] = sharp
            b[thing, 2, unit] = -sharp / 2
            for before, (was, read) in enumerate(units):
                R[thing, 2, unit, before] += sharp / 2 * (GENERATORS[read][was] == place)
            if place != thing:  # the start, where all are 0, in place of -8
                R[thing, 2, unit, : len(units)] -= sharp / 8
                b[thing, 2, unit] -= sharp
    weights = W.flatten(1, 2), R.flatten(1, 2), b.flatten(1)
    noise = random.Random(0)
    symbols = [noise.randrange(2) for _ in range(400)]
    x_BLHJ = torch.nn.functional.one_hot(torch.tensor(symbols), inner).float()[None, :, None].expand(-1, -1, heads, -1)
    h_BLHK, _ = slstm_scan((x_BLHJ,), slstm_start(1, heads, inner, device=x_BLHJ.device, dtype=torch.float32), weights)
    places, seen = list(range(heads)), set()
    for step, symbol in enumerate(symbols):
        on_HK = h_BLHK[0, step, :, : len(units)] > 0.9
        assert on_HK.sum(1).tolist() == [1] * heads
        assert [units[unit] for unit in on_HK.int().argmax(1).tolist()] == [(place, symbol) for place in places]
        places = [GENERATORS[symbol][place] for place in places]
        seen.add(tuple(places))
    assert len(seen) == 60, "all of A5"
