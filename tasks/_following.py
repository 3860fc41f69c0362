"""The symbols that may come next in members of a language, or the end: a second training target for recognisers.

parity   a b | ->  a, b or the end        even-pairs   a b |  ->  a, b, not the end
"""

from typing import Protocol

import torch
from torch import Tensor

from chomsky_ladder.tasks._automata import Automaton
from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks.base import PAD, Batch


class Recogniser(Protocol):
    @property
    def num_symbols(self) -> int: ...
    def accepts(self, x_BL: Tensor, size_B: Tensor) -> Tensor: ...


@kept
def following_states(automaton: Automaton, device: torch.device) -> Tensor:
    """Return for each state which symbols keep a member possible, and (last) True if a member may end there."""
    live = set(automaton.states(accepting=True))
    while more := {n for n, row in enumerate(automaton.transitions) if live & {*row}} - live:
        live |= more
    rows = [[after in live for after in row] for row in automaton.transitions]
    return torch.tensor([[*row, ends] for row, ends in zip(rows, automaton.accepting, strict=True)], device=device)


def members_to_there(language: Recogniser, x_BL: Tensor) -> Tensor:
    """Return True if the string up to and including each position is a member."""
    rows, columns = x_BL.shape
    size_X = (torch.arange(columns, device=x_BL.device) + 1).repeat(rows)
    return language.accepts(x_BL.repeat_interleave(columns, 0), size_X).unflatten(0, (rows, columns))


def free_until_there(language: Recogniser, x_BL: Tensor) -> Tensor:
    """Allow every symbol everywhere, and the end after members."""
    ends_BL1 = members_to_there(language, x_BL)[..., None]
    return torch.cat([torch.ones_like(ends_BL1).expand(-1, -1, language.num_symbols), ends_BL1], 2)


def only_the_next(language: Recogniser, x_BL: Tensor, size_B: Tensor) -> Tensor:
    """Return the actual next symbol, or the end, for languages in which nothing else may follow."""
    is_last_BL = torch.arange(x_BL.shape[1], device=x_BL.device) == size_B[:, None] - 1
    next_BL = torch.where(is_last_BL, language.num_symbols, x_BL.roll(-1, 1))
    return next_BL[..., None] == torch.arange(language.num_symbols + 1, device=x_BL.device)


def asked_of_members(batch: Batch, following_BLK: Tensor, *, yes: int, closing: int, vocab: int) -> Tensor:
    """Turn symbols into tokens. The end is PAD. Nothing is allowed outside of members, or after them."""
    position_L = torch.arange(batch.tokens_BL.shape[1], device=batch.tokens_BL.device)
    answer_B = batch.targets_BL.gather(1, batch.length_B[:, None] - 1)
    asked_BL = (position_L < batch.length_B[:, None] - closing) & (answer_B == yes)
    ends_BL1, symbols_BLK = following_BLK[..., -1:], following_BLK[..., :-1]
    over_BLV = torch.cat([ends_BL1, symbols_BLK], 2) & asked_BL[..., None]
    assert PAD == 0
    return torch.nn.functional.pad(over_BLV, (0, vocab - over_BLV.shape[2]))
