"""All runs of a weighted pushdown automaton at once, in cubic time, as probabilities that cannot overflow.

    C_t[h -> y u]   probability that a run has, after t tokens, top y and state u, on node h: a time, a symbol, a state
    r_t[y u] = sum_h C_t[h -> y u]                        the reading
    B_t[h | y u] = C_t[h -> y u] / r_t[y u]               the node below the one that was on top at time t
    C_t[h -> ..] ~ push r_{t-1}[h]                        for the nodes h of time t - 1
                   replace C_{t-1}[h -> ..] + sum_k,y,u B_k[h | y u] pop C_{t-1}[k y u -> ..]        for earlier ones

DuSell and Chiang 2021 (2109.01982) sum the weights of all runs, after Lang 1974. Their table gamma leads from a node on
top at time i to a state and a top at time t. A run has one weight a token, so a common factor of a token's weights
changes no share. C is gamma times the probability of its first node, divided so that it sums to 1. A pop needs earlier
gammas as shares of a node's runs, B. Both lie in [0, 1], so there is no need for logarithms.

To each weight 1e-12 of the token's largest is added, so that no action is impossible and 1 / r stays bounded. Nodes are
kept for `places` tokens. Runs end with a node that they have below the top, as in the paper's memory-limited form.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

SPAN = 16  # most times in a block of B
LEAST = 1e-12  # of a weight, beside the largest


def num_weights(states: int, symbols: int) -> int:
    """Return the number of weights of a token: to push, to replace and to pop, from every top and state."""
    nodes = states * symbols
    return (2 * nodes + states) * nodes


def first_runs(
    batch: int, *, states: int, symbols: int, places: int, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return C and B before the first token: state 0, and symbol 0, below which there is nothing to uncover."""
    nodes = states * symbols
    index = torch.arange(nodes * places * nodes, device=device)
    column_SQN = (index == (places - 1) * nodes).to(dtype).view(symbols, states, -1)
    below_BSKN = torch.zeros(batch, symbols, (places - 1) * states, (places - 1) * nodes, device=device, dtype=dtype)
    return column_SQN.expand(batch, -1, -1, -1).clone(), below_BSKN


class Runs:
    """All runs so far: C of the last token, [B, S, Q, N], and B of earlier times, [B, S, K, N].

    S is the symbol and Q the state on top, N = times S Q the nodes below, and K = times Q. B has a row for each time of
    C but the first. It is kept in blocks, the oldest first, with the nodes before their last row.
    """

    def __init__(self, column_BSQN: Tensor, below_BSKN: Tensor, *, places: int) -> None:
        self.column, self.places = column_BSQN, places
        self.symbols, self.states = column_BSQN.shape[1:3]
        self.nodes = self.symbols * self.states  # of one time
        self.blocks = [below_BSKN] if below_BSKN.shape[2] else []
        self.reading = column_BSQN.sum(-1).flatten(1)
        """The probability of every top and state, [B, S Q]."""

    @property
    def times(self) -> int:
        return self.column.shape[-1] // self.nodes

    def advance(self, logits_BX: Tensor) -> None:
        """Take the next token's action in all runs: logits to push, replace and pop, each from every top and state."""
        symbols, states, nodes = self.symbols, self.states, self.nodes
        logits_BEC = logits_BX.unflatten(-1, (-1, nodes))
        weight_BEC = torch.exp(logits_BEC - logits_BEC.detach().amax((-2, -1), keepdim=True)) + LEAST
        push_BCC, others_BEC = weight_BEC.split([nodes, nodes + states], -2)
        pushed_BSQN = (push_BCC * self.reading[:, None]).unflatten(-2, (symbols, states))
        if self.times == self.places:
            self._forget()
        row_BSQN = self.column / self.reading.clamp(min=LEAST**2).unflatten(-1, (symbols, states))[..., None]
        replaced_BCN, popped_BQN = (others_BEC @ self.column.flatten(1, 2)).split([nodes, states], -2)
        column_BSQN = replaced_BCN.unflatten(-2, (symbols, states)) + self._uncovered(popped_BQN)
        column_BSQN = torch.cat([column_BSQN, pushed_BSQN], -1)
        self.column = column_BSQN / column_BSQN.sum((1, 2, 3), keepdim=True)
        self.reading = self.column.sum(-1).flatten(1)
        self._remember(row_BSQN)

    def state(self) -> tuple[Tensor, Tensor]:
        """Return C and B with all their places, empty ones first."""
        missing = self.places - self.times
        below_BSKN = pad(_together(self.blocks), (missing * self.nodes, 0, missing * self.states, 0))
        return pad(self.column, (missing * self.nodes, 0)), below_BSKN

    def _uncovered(self, popped_BQN: Tensor) -> Tensor:
        """Return what comes on top where nodes are popped, as a part of C."""
        popped_BSQK = popped_BQN.unflatten(-1, (-1, self.symbols, self.states)).permute(0, 3, 1, 2, 4).flatten(3)
        _, *parts = popped_BSQK.split([self.states, *(block.shape[2] for block in self.blocks)], -1)
        total_BSQN = popped_BSQK[..., :0]
        for part_BSQK, block_BSKN in zip(parts, self.blocks, strict=True):
            total_BSQN = _wide(total_BSQN, block_BSKN.shape[-1]) + part_BSQK @ block_BSKN
        return _wide(total_BSQN, popped_BQN.shape[-1])

    def _forget(self) -> None:
        """Drop the first time."""
        self.column = self.column[..., self.nodes :]
        blocks = [block_BSKN[..., self.nodes :] for block_BSKN in self.blocks]
        blocks[0] = blocks[0][:, :, self.states :]
        self.blocks = [block_BSKN for block_BSKN in blocks if block_BSKN.shape[2]]

    def _remember(self, row_BSQN: Tensor) -> None:
        """Add a row to B. Blocks merge as the digits of a counter carry, so that few are short."""
        self.blocks.append(row_BSQN)
        while len(self.blocks) > 1 and self.blocks[-2].shape[2] <= self.blocks[-1].shape[2] < SPAN * self.states:
            self.blocks[-2:] = [_together(self.blocks[-2:])]


def _together(blocks: Sequence[Tensor]) -> Tensor:
    return torch.cat([_wide(block_BSKN, blocks[-1].shape[-1]) for block_BSKN in blocks], 2)


def _wide(x_BSKN: Tensor, width: int) -> Tensor:
    missing = width - x_BSKN.shape[-1]
    return pad(x_BSKN, (0, missing)) if missing else x_BSKN
