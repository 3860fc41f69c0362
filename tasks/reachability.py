"""Reachability in a directed graph: YES if edges lead from the first node asked for to the second.

    n4 n1 n2 n0 n7 n4 n0 n5 ? n7 n1  ->  YES        an edge from 7 to 4, and one from 4 to 1

Outside the hierarchy. Reachability is complete for NL. Transformers whose depth grows with the logarithm of the length
decide it, and those of fixed depth do not, under standard conjectures (Merrill and Sabharwal 2025, 2503.03961).

A graph has two paths of the same number of steps, two or more, without a common node. The question asks for the start
of one and the end of either. All other edges leave one of some sources or enter one of some sinks, at random. Edges
have a random order and nodes random names. So if both edges of any one step are hidden, both answers are equally
likely, whatever else is known, and no count tells the answer. Measured at lengths 3..40 and at 40..256:

    a linear fit to the degrees and places of both nodes        .50   .49
    YES if edges join them, whatever their direction            .66   .50
    YES if at most 2 steps lead there                           .87   .54
    YES if at most 4 steps lead there                          1.00   .62
    YES if at most 8 steps lead there                          1.00   .75
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks.base import bounded, register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Classification

ASK, FIRST = 1, 2  # then the nodes, NO and YES
LEAST_STEPS = 2  # of a path, so that no single edge is the answer


@register
@dataclass(frozen=True, kw_only=True)
class Reachability(Classification):
    name, version, level = "reachability", 1, "none"

    num_nodes: int = 64
    """Number of names for nodes. A path has at most num_nodes / 2 - 2 steps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "num_nodes", 8, 4096)

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", "?", *(f"n{node}" for node in range(self.num_nodes)), "NO", "YES"

    @property
    def answers(self) -> tuple[int, ...]:
        return FIRST + self.num_nodes, FIRST + self.num_nodes + 1

    def legal_size(self, size: int) -> bool:
        return size % 2 == 1 and size >= 11

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        return self.examples(draw, size_B, columns)[0]

    def examples(self, draw: Draw, size_B: Tensor, columns: int) -> tuple[Tensor, Tensor]:
        """Draw graphs of numbered nodes: one path from 0 on, then the other, then sources, then sinks."""
        num_edges_B1, most = (size_B[:, None] - 3) // 2, (columns - 3) // 2
        most_steps_B1 = (num_edges_B1 // 4).clamp(LEAST_STEPS, self.num_nodes // 2 - 2)
        steps_B1 = LEAST_STEPS + draw.integers(most_steps_B1 - LEAST_STEPS + 1, (1,))
        answer_B, edge_E = draw.integers(2), torch.arange(most, device=size_B.device)
        start_B1 = 2 * steps_B1 + 2  # of the nodes on no path
        num_nodes_B1 = start_B1 + 2 + (num_edges_B1 - 2 * steps_B1) // 4
        num_nodes_B1 = num_nodes_B1.clamp(max=self.num_nodes)
        sources_B1 = (num_nodes_B1 - start_B1) // 2
        source_BE = start_B1 + draw.integers(sources_B1, (most,))
        sink_BE = start_B1 + sources_B1 + draw.integers(num_nodes_B1 - start_B1 - sources_B1, (most,))
        leaves_BE = draw.integers(2, (most,)) == 1
        one_BE = torch.where(leaves_BE, source_BE, sink_BE)
        other_BE = (one_BE + 1 + draw.integers(num_nodes_B1 - 1, (most,))) % num_nodes_B1
        from_BE, to_BE = torch.where(leaves_BE, one_BE, other_BE), torch.where(leaves_BE, other_BE, one_BE)
        step_BE = edge_E + (edge_E >= steps_B1)  # from this node to the next; the first path ends at node `steps`
        on_path_BE = edge_E < 2 * steps_B1
        from_BE, to_BE = torch.where(on_path_BE, step_BE, from_BE), torch.where(on_path_BE, step_BE + 1, to_BE)
        place_BE = torch.where(edge_E < num_edges_B1, draw.integers(2**31 - 1, (most,)), 2**31)
        order_BE = place_BE.argsort(dim=1, stable=True)
        edges_BL = torch.stack([from_BE.gather(1, order_BE), to_BE.gather(1, order_BE)], dim=2).flatten(1)
        end_B1 = torch.where(answer_B[:, None] == 1, steps_B1, 2 * steps_B1 + 1)
        name_BN = draw.permutation(self.num_nodes) + FIRST
        x_BL = torch.zeros(len(size_B), columns, dtype=torch.int64, device=size_B.device)
        x_BL[:, : 2 * most] = name_BN.gather(1, edges_BL)
        asked_B3 = torch.cat([torch.full_like(end_B1, ASK), name_BN[:, :1], name_BN.gather(1, end_B1)], dim=1)
        x_BL = x_BL.scatter(1, 2 * num_edges_B1 + torch.arange(3, device=size_B.device), asked_B3)
        return x_BL, answer_B + FIRST + self.num_nodes

    def answer_law(self, length: int) -> np.ndarray:
        return self.uniform_law()
