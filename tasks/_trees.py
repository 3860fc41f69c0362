"""Derivations of a grammar in normal form (tasks/_grammar.py): draw them in whole batches, and find them in strings.

    random_strings    a derivation uniform over those of a size: counts choose the rule, then where its halves meet
    derives           which prefixes a nonterminal derives: Cocke, Younger and Kasami's table, 62 strings in a word

A derivation of n symbols has n - 1 rules of two symbols. Each step applies one in every string, the leftmost one left.
Places whose turn comes later form a linked list. Counts are exact integers, and each choice compares a uniform integer
below SCALE with thresholds: probabilities are exact to within 2**-31.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks._automata import SCALE
from chomsky_ladder.tasks._grammar import Grammar, derivations
from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks.draw import Draw

BITS = 62  # strings in a word, one bit each
MOST_COUNTED = 1 << 24  # derivations of one string: sums of products of such fit in 64 bits


class _Tables(NamedTuple):
    rule_NSR: Tensor  # thresholds of a nonterminal's rules, by the size
    number_NR: Tensor  # which rules these are
    split_RSK: Tensor  # thresholds of where a rule's halves meet
    halves_R2: Tensor
    letter_NK: Tensor  # thresholds of the symbols, for size 1
    symbol_NK: Tensor


@kept
def _tables(grammar: Grammar, most: int, device: torch.device) -> _Tables:
    counts, num = derivations(grammar, most), grammar.size
    rules = [[index for index, rule in enumerate(grammar.pairs) if rule[0] == head] for head in range(num)]
    letters = [[symbol for head, symbol in grammar.letters if head == node] for node in range(num)]
    wide, many = max(1, *map(len, rules)), max(1, *map(len, letters))
    rule_NSR = np.full((num, most + 1, wide), SCALE)
    split_RSK = np.full((max(1, len(grammar.pairs)), most + 1, most), SCALE)
    for size in range(2, most + 1):
        ways = []
        for index, (_, left, right) in enumerate(grammar.pairs):
            parts = [counts[left][k] * counts[right][size - k] for k in range(1, size)]
            split_RSK[index, size, : size - 1] = _shares(parts)
            ways.append(sum(parts))
        for head, own in enumerate(rules):
            rule_NSR[head, size, : len(own)] = _shares([ways[index] for index in own])
    letter_NK = np.full((num, many), SCALE)
    for head, own in enumerate(letters):
        letter_NK[head, : len(own)] = _shares([1] * len(own))
    padded = [[*own, *[0] * (wide - len(own))] for own in rules], [[*own, *[0] * (many - len(own))] for own in letters]
    return _Tables(
        torch.from_numpy(rule_NSR.astype(np.int32)).to(device),
        torch.tensor(padded[0], device=device),
        torch.from_numpy(split_RSK.astype(np.int32)).to(device),
        torch.tensor([rule[1:] for rule in grammar.pairs] or [(0, 0)], device=device),
        torch.from_numpy(letter_NK.astype(np.int32)).to(device),
        torch.tensor(padded[1], device=device),
    )


def _shares(counts: list[int]) -> list[int]:
    """Return the share of SCALE that the first 1, 2 .. of these numbers make; all of it if they are 0."""
    total, so_far, shares = sum(counts), 0, []
    for count in counts:
        so_far += count
        shares.append(so_far * SCALE // total if total else SCALE)
    return shares


def random_strings(grammar: Grammar, draw: Draw, size_B: Tensor, columns: int, *, most: int) -> Tensor:
    """Return symbols [B, columns] of derivations uniform over those of each size, at most `most`; else any symbols."""
    tables = _tables(grammar, most, size_B.device)
    rule_BL, split_BL, letter_BL = (draw.integers(SCALE, (columns,)).to(torch.int32) for _ in range(3))
    none, waste = columns, columns + 1  # unused places: the end of the list, and where idle rows write
    node_BL = torch.zeros((len(size_B), columns + 2), dtype=torch.int64, device=size_B.device)
    size_BL, later_BL = torch.zeros_like(node_BL), torch.full_like(node_BL, none)
    size_BL[:, 0] = size_B
    place_B = torch.where(size_B >= 2, 0, none)
    for step in range(columns - 1):
        place_B1 = place_B[:, None]
        head_B, long_B = node_BL.gather(1, place_B1)[:, 0], size_BL.gather(1, place_B1)[:, 0]
        later_B = later_BL.gather(1, place_B1)[:, 0]
        chosen_B = (rule_BL[:, step, None] >= tables.rule_NSR[head_B, long_B]).sum(1)
        rule_B = tables.number_NR[head_B, chosen_B.clamp(max=tables.number_NR.shape[1] - 1)]
        left_B = 1 + (split_BL[:, step, None] >= tables.split_RSK[rule_B, long_B]).sum(1)
        left_B = torch.minimum(left_B, (long_B - 1).clamp(min=1))
        right_B, works_B = long_B - left_B, place_B < none
        second_B = place_B + left_B
        at_B2 = torch.stack([place_B, second_B], dim=1)
        at_B2 = torch.where(works_B[:, None], at_B2, waste)
        node_BL = node_BL.scatter(1, at_B2, tables.halves_R2[rule_B])
        size_BL = size_BL.scatter(1, at_B2, torch.stack([left_B, right_B], dim=1))
        next_B = torch.where(right_B >= 2, second_B, later_B)
        later_BL = later_BL.scatter(1, at_B2, torch.stack([next_B, later_B], dim=1))
        place_B = torch.where(works_B & (left_B < 2), next_B, place_B)
    node_BL = node_BL[:, :columns]
    chosen_BL = (letter_BL[..., None] >= tables.letter_NK[node_BL]).sum(2).clamp(max=tables.symbol_NK.shape[1] - 1)
    return tables.symbol_NK[node_BL, chosen_BL]


class _Rules(NamedTuple):
    letter_NK: Tensor  # bool: a nonterminal derives a symbol
    halves_2P: Tensor  # the distinct right sides of two symbols
    pair_NR: Tensor  # which of these a nonterminal has; one more for none


@kept
def _rules(grammar: Grammar, device: torch.device) -> _Rules:
    sides = sorted({rule[1:] for rule in grammar.pairs}) or [(0, 0)]
    letter_NK = torch.zeros((grammar.size, len(grammar.symbols)), dtype=torch.bool)
    for head, symbol in grammar.letters:
        letter_NK[head, symbol] = True
    own = [[sides.index(rule[1:]) for rule in grammar.pairs if rule[0] == head] for head in range(grammar.size)]
    wide = max(1, *map(len, own))
    pairs = [[*found, *[len(sides)] * (wide - len(found))] for found in own]
    return _Rules(letter_NK.to(device), torch.tensor(sides, device=device).T, torch.tensor(pairs, device=device))


def derives(grammar: Grammar, x_BL: Tensor) -> Tensor:
    """Return True where the start derives the prefix x[:, : t + 1], bool [B, L]."""
    rules, (rows, columns), device = _rules(grammar, x_BL.device), x_BL.shape, x_BL.device
    words = -(-rows // BITS)
    bit_1 = 1 << torch.arange(BITS, device=device)
    has_NBL = torch.nn.functional.pad(rules.letter_NK[:, x_BL], (0, 0, 0, words * BITS - rows))
    has_NWTL = has_NBL.unflatten(1, (words, BITS)).to(torch.int64)
    cell_NLW = (has_NWTL * bit_1[:, None]).sum(2).transpose(1, 2)  # of all strings of one symbol, by their start
    first, second = rules.halves_2P
    # Index what begins at a place by size, and what ends at a place by size from behind, so that halves align.
    begins_PLSW = torch.zeros((len(first), columns, columns, words), dtype=torch.int64, device=device)
    ends_PLSW = torch.zeros_like(begins_PLSW)
    starts = [cell_NLW[0, 0]]
    for size in range(2, columns + 1):
        begins_PLSW[:, : columns - size + 2, size - 2] = cell_NLW[first]
        ends_PLSW[:, size - 2 :, columns - size + 1] = cell_NLW[second]
        left_PLSW = begins_PLSW[:, : columns - size + 1, : size - 1]
        right_PLSW = ends_PLSW[:, size - 1 :, columns - size + 1 :]
        pair_PLW = _any(left_PLSW & right_PLSW, 2)
        pair_PLW = torch.cat([pair_PLW, torch.zeros_like(pair_PLW[:1])])
        cell_NLW = _any(pair_PLW[rules.pair_NR], 1)
        starts.append(cell_NLW[0, 0])
    start_WTL = torch.stack(starts, dim=-1)[:, None] & bit_1[:, None]
    return (start_WTL != 0).flatten(0, 1)[:rows]


def _any(x: Tensor, dim: int) -> Tensor:
    """Combine bits by "or" along a dimension."""
    while (long := x.shape[dim]) > 1:
        half = long // 2
        folded = x.narrow(dim, 0, half) | x.narrow(dim, half, half)
        x = torch.cat([folded, x.narrow(dim, long - 1, 1)], dim) if long % 2 else folded
    return x.squeeze(dim)


def num_derivations(grammar: Grammar, x_BL: Tensor) -> Tensor:
    """Count the derivations of each prefix, at most MOST_COUNTED, int64 [B, L]: the same table, of numbers."""
    rules, columns = _rules(grammar, x_BL.device), x_BL.shape[1]
    first, second = rules.halves_2P
    cell_NBL = rules.letter_NK[:, x_BL].to(torch.int64)
    begins_PBLS = torch.zeros((len(first), *x_BL.shape, columns), dtype=torch.int64, device=x_BL.device)
    ends_PBLS = torch.zeros_like(begins_PBLS)
    starts = [cell_NBL[0, :, 0]]
    for size in range(2, columns + 1):
        begins_PBLS[:, :, : columns - size + 2, size - 2] = cell_NBL[first]
        ends_PBLS[:, :, size - 2 :, columns - size + 1] = cell_NBL[second]
        left_PBLS = begins_PBLS[:, :, : columns - size + 1, : size - 1]
        pair_PBL = (left_PBLS * ends_PBLS[:, :, size - 1 :, columns - size + 1 :]).sum(3)
        pair_PBL = torch.cat([pair_PBL, torch.zeros_like(pair_PBL[:1])])
        cell_NBL = pair_PBL[rules.pair_NR].sum(1).clamp(max=MOST_COUNTED)
        starts.append(cell_NBL[0, :, 0])
    return torch.stack(starts, dim=1)
