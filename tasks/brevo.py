"""All that a node depends on, and what that depends on in turn, in an order that begins with what depends on nothing.

    n7 n4  n4 n1  n1 n0  n7 n0  n5 n7  ?  n7  ->  n0 n1 n4        an edge from 7 to 4: 7 depends on 4

Outside the hierarchy: a finite table, but one that no small machine holds. After Brevo of Physics of Language Models:
Part 4.1 (Allen-Zhu 2025, 2512.17351): the first answer asks for a search of the whole graph. There, every such order is
right. Here one is, so that no answer has to be read back: of the nodes that may come next, the one named first.

A graph of m edges has 2 m / 3 + 1 nodes with random names, so its length tells how many. In a hidden order, every node
but the first has an edge from one of the four before it. The other edges lead from a node to one of the four after it,
and may repeat one. The question asks for the start of a random edge. Edges have a random order.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from chomsky_ladder.tasks.base import bounded, register
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Size, Transduction

ASK, FIRST = 1, 2  # then the nodes
REACH = 4  # places in the hidden order that an edge leads over, at most
FEWEST = 3  # edges


@register
@dataclass(frozen=True, kw_only=True)
class Brevo(Transduction):
    name, version, level = "brevo", 1, "none"

    num_nodes: int = 128
    """Number of names for nodes."""

    def __post_init__(self) -> None:
        bounded(self, "num_nodes", FEWEST, 4096)

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", "?", *(f"n{node}" for node in range(self.num_nodes))

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(FIRST, FIRST + self.num_nodes))

    def legal_size(self, size: int) -> bool:
        return size % 2 == 0 and size >= 2 * FEWEST + 2 and self.slots(size) < self.num_nodes

    def slots(self, size: Size) -> Size:
        return (size - 2) // 3

    def size_of_total(self, total: Size) -> Size:
        """Return the size s of s + (s - 2) // 3 tokens: four tokens more are three symbols and a slot."""
        more = total - len(self.closing) - 2
        return 2 + more // 4 * 3 + more % 4 - more % 4 // 3

    def symbols(self, draw: Draw, size_B: Tensor, columns: int) -> Tensor:
        num_edges_B1, most = size_B[:, None] // 2 - 1, columns // 2 - 1
        num_others_B1 = 2 * num_edges_B1 // 3  # nodes but the first
        edge_E = torch.arange(most, device=size_B.device)
        to_BE = torch.where(edge_E < num_others_B1, edge_E, draw.integers(num_others_B1, (most,))) + 1
        from_BE = to_BE - 1 - draw.integers(to_BE.clamp(max=REACH), (most,))
        place_BE = torch.where(edge_E < num_edges_B1, draw.integers(2**31 - 1, (most,)), 2**31)
        order_BE = place_BE.argsort(dim=1, stable=True)
        edges_BL = torch.stack([from_BE.gather(1, order_BE), to_BE.gather(1, order_BE)], dim=2).flatten(1)
        asked_B1 = from_BE.gather(1, draw.integers(num_edges_B1, (1,)))
        name_BN = draw.permutation(self.num_nodes) + FIRST
        x_BL = torch.zeros(len(size_B), columns, dtype=torch.int64, device=size_B.device)
        x_BL[:, : 2 * most] = name_BN.gather(1, edges_BL.clamp(max=self.num_nodes - 1))
        asked_B2 = torch.cat([torch.full_like(asked_B1, ASK), name_BN.gather(1, asked_B1)], dim=1)
        return x_BL.scatter(1, 2 * num_edges_B1 + torch.arange(2, device=size_B.device), asked_B2)

    def transduce(self, x_BL: Tensor, size_B: Tensor) -> tuple[Tensor, Tensor]:
        """Search the graph, then take node after node that leads to none of those left."""
        rows, columns = x_BL.shape
        slots, place_L = int(self.slots(columns)), torch.arange(columns, device=x_BL.device)
        name_BL = torch.where(place_L < size_B[:, None] - 2, x_BL - FIRST, self.num_nodes)
        place_BN = torch.full((rows, self.num_nodes + 1), columns, device=x_BL.device)
        place_BN = place_BN.scatter_reduce(1, name_BL, place_L.expand(rows, -1), "amin")[:, :-1]
        named_BN = place_BN.argsort(dim=1, stable=True)  # names, the one that the string has first before the others
        number_BN = torch.nn.functional.pad(named_BN.argsort(dim=1), (0, 1), value=slots + 1)
        edge_BE2 = number_BN.gather(1, name_BL)[:, : columns // 2 * 2].unflatten(1, (-1, 2))
        leads_BX = torch.zeros(rows, (slots + 2) ** 2, device=x_BL.device)
        leads_BX = leads_BX.scatter(1, edge_BE2[..., 0] * (slots + 2) + edge_BE2[..., 1], 1.0)
        leads_BNN = leads_BX.unflatten(1, (slots + 2, -1))[:, :-1, :-1]
        asked_B1 = number_BN.gather(1, x_BL.gather(1, size_B[:, None] - 1) - FIRST)
        left_BN = torch.zeros_like(leads_BNN[:, 0]).scatter(1, asked_B1, 1.0)
        for _ in range(slots):
            left_BN = torch.maximum(left_BN, (left_BN[:, None] @ leads_BNN)[:, 0].clamp(max=1.0))
        left_BN = left_BN.scatter(1, asked_B1, 0.0)
        num_B, answers = left_BN.sum(1).to(torch.int64), []
        for _ in range(slots):
            waits_BN = (leads_BNN @ left_BN[..., None])[..., 0] > 0
            next_B1 = ((left_BN > 0) & ~waits_BN).int().argmax(1, keepdim=True)
            answers.append(next_B1)
            left_BN = left_BN.scatter(1, next_B1, 0.0)
        return named_BN.gather(1, torch.cat(answers, 1)) + FIRST, num_B
