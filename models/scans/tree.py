"""Folds of every prefix by an operator that need not be associative, in a tree of logarithmic depth.

    s_t = ((T_1 . T_2) . T_3) ..        T_1, T_2, ..: complete binary trees over the first t tokens, the longest first

Their lengths are the powers of two that add up to t, as in a binary counter: with 7 tokens, trees of 4, 2 and 1. A tree
is the operator of its two halves. All prefixes of L tokens take at most 2 L operations, one behind the other at most
2 log L. Token by token a state holds the trees of the counter, one for each bit (Yau et al. 2025, 2506.10918).
"""

from collections.abc import Callable

import torch
from torch import Tensor

Operator = Callable[[Tensor, Tensor], Tensor]  # of an earlier and a later part, [.., D] each
Counter = tuple[Tensor, Tensor]  # trees of 1, 2, 4 .. tokens [B, K, D] and the number of tokens so far


def fold_prefixes(x_BLD: Tensor, operator: Operator) -> Tensor:
    """Return the fold of the first t tokens for every t, [B, L, D]."""
    if x_BLD.shape[1] == 1:
        return x_BLD
    even_BMD = fold_prefixes(operator(x_BLD[:, :-1:2], x_BLD[:, 1::2]), operator)  # of 2, 4, 6 .. tokens
    odd_BMD, later_BMD = x_BLD[:, :1], x_BLD[:, 2::2]
    if later_BMD.shape[1]:
        odd_BMD = torch.cat([odd_BMD, operator(even_BMD[:, : later_BMD.shape[1]], later_BMD)], 1)
    pairs = even_BMD.shape[1]
    in_turn_BLD = torch.stack([odd_BMD[:, :pairs], even_BMD], 2).flatten(1, 2)
    return torch.cat([in_turn_BLD, odd_BMD[:, pairs:]], 1)


def empty_counter(batch: int, max_length: int, width: int, *, device: torch.device, dtype: torch.dtype) -> Counter:
    """Return the counter before the first token, with room for `max_length` tokens."""
    trees_BKD = torch.zeros(batch, max_length.bit_length(), width, device=device, dtype=dtype)
    return trees_BKD, torch.zeros((), dtype=torch.int64, device=device)


def fold_next(x_BD: Tensor, counter: Counter, operator: Operator) -> tuple[Tensor, Counter]:
    """Return the fold of all tokens so far and this one, and the counter after it.

    The same operations run at every token, and unneeded results are dropped, so that nothing waits for the count.
    """
    trees_BKD, count = counter
    carry_BD, carries, trees = x_BD, torch.ones_like(count, dtype=torch.bool), []
    for bit, tree_BD in enumerate(trees_BKD.unbind(1)):
        taken = (count >> bit) % 2 == 1
        trees.append(torch.where(carries & ~taken, carry_BD, tree_BD))
        carry_BD = torch.where(carries & taken, operator(tree_BD, carry_BD), carry_BD)
        carries = carries & taken
    count = count + 1
    fold_BD, begun = trees[-1], (count >> len(trees) - 1) % 2 == 1
    for bit in reversed(range(len(trees) - 1)):
        taken = (count >> bit) % 2 == 1
        longer_BD = torch.where(begun, operator(fold_BD, trees[bit]), trees[bit])
        fold_BD, begun = torch.where(taken, longer_BD, fold_BD), begun | taken
    return fold_BD, (torch.stack(trees, 1), count)
