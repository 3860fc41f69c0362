"""Trees of bracketed expressions: drawn by the grammar, split as deep as it says, valued as the law says."""

from itertools import product

import numpy as np
import pytest
import torch

from chomsky_ladder.tasks._expressions import draw_trees, evaluate, num_levels, parts, value_law
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.mod_arithmetic_brackets import ModArithmeticBrackets
from chomsky_ladder.tasks.solve_equation import SolveEquation
from support.cases import full


def law_by_hand(size: int, modulus: int, operators: str) -> np.ndarray:
    """P(value) straight from the grammar, one case after the other."""
    if size <= 4:
        return np.full(modulus, 1 / modulus)
    law = np.zeros(modulus)
    for left in range(1, size - 3):
        one, other = law_by_hand(left, modulus, operators), law_by_hand(size - 3 - left, modulus, operators)
        for (a, p), (b, q), op in product(enumerate(one), enumerate(other), operators):
            value = {"+": a + b, "-": a - b, "*": a * b}[op] % modulus
            law[value] += p * q / len(operators) / (size - 4)
    return law


@pytest.mark.parametrize(("modulus", "operators"), [(5, "+-*"), (5, "+-"), (6, "+-*"), (2, "+-*")])
def test_the_law_is_that_of_the_grammar(modulus: int, operators: str) -> None:
    for size in range(1, 16):
        law = value_law(size, modulus=modulus, num_operators=len(operators))
        np.testing.assert_allclose(law, law_by_hand(size, modulus, operators), atol=1e-12)


@pytest.mark.full
def test_zero_is_the_commonest_value_with_multiplication() -> None:
    """The share of zeros the paper's lengths have, by the law and in strings."""
    for (low, high), share in {((3, 40)): 0.2690, ((40, 256)): 0.3053}.items():
        task = ModArithmeticBrackets()
        legal = task.legal_lengths(low, high)
        assert np.mean([task.answer_law(n)[0, 7] for n in legal]) == pytest.approx(share, abs=1e-4)
        draw = Draw(seed=0, split="zeros", rows_B=torch.arange(5000))
        lengths_B = torch.tensor(legal)[draw.child("lengths").integers(len(legal))]
        found = (task.sample(draw, lengths_B, high - 1).targets_BL == 7).double().sum() / 5000
        assert float(found) == pytest.approx(share, abs=4 * 0.0065)


def test_left_parts_are_uniform() -> None:
    """The left part of an expression of 20 symbols has 1..16, all equally often."""
    size_B = torch.full((32_000,), 20)
    trees = draw_trees(Draw(seed=1, split="s", rows_B=torch.arange(32_000)), size_B, 30, modulus=5, num_operators=3)
    counts = torch.bincount(trees.right_BL[:, 0] - 2, minlength=17)
    assert counts[0] == 0 and len(counts) == 17
    assert float(((counts[1:] - 2000) ** 2 / 2000).sum()) < 45  # chi-square with 15 degrees of freedom, p = 1e-4


@pytest.mark.parametrize("size", [5, 9, 37, 57, 100, 253, 600])
def test_every_part_is_divided_down_to_leaves(size: int) -> None:
    """Also where splits are as uneven as they can be, which needs every level there is."""
    for bits in (0, 2**31 - 2):  # always the shortest left part, always the longest

        class Constant(Draw):
            def integers(self, high: int, shape: tuple[int, ...] = (), value: int = bits) -> torch.Tensor:
                return torch.full((1, *shape), value)

        draw = Constant(seed=0, split="s", rows_B=torch.zeros(1, dtype=torch.int64))
        trees = draw_trees(draw, torch.tensor([size]), size + 2, modulus=5, num_operators=3)
        wider = draw_trees(draw, torch.tensor([size]), 2 * size + 300, modulus=5, num_operators=3)
        assert torch.equal(wider.codes_BL[:, :size], trees.codes_BL[:, :size])
        assert len(trees.levels) == max(map(num_levels, range(size + 3)))
        text = trees.codes_BL[0, :size].tolist()
        depth = np.cumsum([(code == 5) - (code == 6) for code in text])
        assert depth[-1] == 0 and (depth[:-1] > 0).all()
        inner = int(trees.pair_BL.sum())
        assert int(((trees.span_BL > 0) & ~trees.pair_BL).sum()) == inner + 1
        assert int(torch.stack(trees.levels).sum()) == inner
        assert 0 <= int(evaluate(trees, modulus=5)[0, 0]) < 5


@pytest.mark.parametrize("rows", [2000, full(8000)])
def test_equations_without_a_free_digit_are_few(rows: int) -> None:
    """The shares the docstring gives: 2 of 100 at the training lengths, 5 at the evaluation's."""
    for (low, high), share in {(3, 40): 0.023, (40, 256): 0.052}.items():
        legal = SolveEquation().legal_lengths(low, high)
        draw = Draw(seed=0, split="free", rows_B=torch.arange(rows))
        size_B = torch.tensor(legal)[draw.child("lengths").integers(len(legal))] - 4
        trees = draw_trees(draw, size_B, high - 4, modulus=5, num_operators=3)
        left_BL, right_BL = parts(trees, evaluate(trees, modulus=5))
        product_BL = trees.pair_BL & (trees.codes_BL.gather(1, (trees.right_BL - 1).clamp(min=0)) == 3)
        tensors = (trees.codes_BL, product_BL, trees.right_BL, trees.span_BL, left_BL, right_BL)
        stuck = 0
        for size, *row in zip(size_B.tolist(), *(x.tolist() for x in tensors), strict=True):
            codes, products, rights, spans, left_values, right_values = row
            free = {c for c in range(size) if codes[c] >= 7}
            for c in (c for c, is_product in enumerate(products) if is_product):
                r, end = rights[c], c + spans[c]
                free -= set(range(c, r)) if right_values[c] == 0 else set()
                free -= set(range(r, end)) if left_values[c] == 0 else set()
            stuck += not free
        assert stuck / rows == pytest.approx(share, abs=0.008)


@pytest.mark.parametrize("rows", [8000, full(20_000)])
def test_equations_keep_their_products(rows: int) -> None:
    """x stands where the equation has one root anyway: next to no '*' is given up for it."""
    task = SolveEquation()
    brackets = ModArithmeticBrackets()
    shares = []
    for some in (task, brackets):
        legal = [n for n in some.legal_lengths(3, 40) if n > 10]
        draw = Draw(seed=0, split="products", rows_B=torch.arange(rows))
        lengths_B = torch.tensor(legal)[draw.child("lengths").integers(len(legal))]
        vocab, tokens_BL = some.vocab, some.sample(draw, lengths_B, 40).tokens_BL
        tokens = [vocab[token] for token in tokens_BL.flatten().tolist()]
        shares.append(tokens.count("*") / (tokens.count("*") + tokens.count("+")))
    assert shares[1] == pytest.approx(0.5, abs=0.005)
    assert 0.48 < shares[0] < shares[1]
