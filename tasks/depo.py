"""The node so many steps further along a cycle whose edges come in random order.

    n4 n1 n7 n4 n1 n0 n0 n7 h2 n7  ->  n1        from 7 to 4, and from 4 to 1

Outside the hierarchy: a finite table, but one that no small machine holds. After Depo of Physics of Language Models:
Part 4.1 (Allen-Zhu 2025, 2512.17351) and its published generator. There, a string asks for up to ten nodes, a node has
one to seven tokens, and the number of nodes is random. Here a string has one question and its length gives the number
of nodes, each of one token. The number of steps is uniform, as there.

Every name is equally likely to be the answer. Measured at lengths 3..40 and at 40..256:

    any node of the string                  .13   .02
    one step                                .18   .13
    four steps, or fewer if asked for       .51   .49
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks.base import bounded, register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

FIRST, FEWEST = 1, 3  # the first node, then the numbers of steps; nodes in a cycle


@register
@dataclass(frozen=True, kw_only=True)
class Depo(Classification):
    name, version, level = "depo", 1, "none"

    num_nodes: int = 128
    """Number of names for nodes. A string has at most as many edges."""
    steps: int = 8
    """The greatest number of steps asked for. In the paper it is 8 or 16."""

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "num_nodes", FEWEST, 4096)
        bounded(self, "steps", 1, 4096)

    @property
    def vocab(self) -> tuple[str, ...]:
        nodes = (f"n{node}" for node in range(self.num_nodes))
        return "PAD", *nodes, *(f"h{steps}" for steps in range(1, self.steps + 1))

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(FIRST, FIRST + self.num_nodes))

    def legal_size(self, size: int) -> bool:
        return size % 2 == 0 and FEWEST <= size // 2 - 1 <= self.num_nodes

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return self.examples(draw, size_B, columns)[0]

    def examples(self, draw: Draw, size_B: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        nodes_B1, most = size_B[:, None] // 2 - 1, columns // 2 - 1
        edge_E = torch.arange(most, device=size_B.device)
        place_BE = torch.where(edge_E < nodes_B1, draw.integers(2**31 - 1, (most,)), 2**31)
        from_BE = place_BE.argsort(dim=1, stable=True) % nodes_B1
        edges_BL = torch.stack([from_BE, (from_BE + 1) % nodes_B1], dim=2).flatten(1)
        start_B1, steps_B1 = draw.integers(nodes_B1, (1,)), draw.integers(self.steps, (1,)) + 1
        end_B1 = (start_B1 + steps_B1) % nodes_B1
        name_BN = draw.permutation(self.num_nodes) + FIRST
        asked_B2 = torch.cat([steps_B1 + FIRST + self.num_nodes - 1, name_BN.gather(1, start_B1)], dim=1)
        x_BL = torch.zeros(len(size_B), columns, dtype=torch.int64, device=size_B.device)
        x_BL[:, : 2 * most] = name_BN.gather(1, edges_BL)
        x_BL = x_BL.scatter(1, 2 * nodes_B1 + torch.arange(2, device=size_B.device), asked_B2)
        return x_BL, name_BN.gather(1, end_B1)[:, 0]

    def answer_law(self, length: int) -> np.ndarray:
        return self.uniform_law()
