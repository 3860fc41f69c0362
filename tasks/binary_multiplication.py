"""The product of two binary numbers, least bits first, closed by END.

    1 1 * 1 0 1 . . . . . .  ->  1 1 1 1 END 0        3 * 5 = 15

Context-sensitive as a function. The operator's place is uniform. Each number is uniform among those with its number of
bits, leading zeros included, except 0. Deletang et al. 2022 (2207.02098) also have strings of one or two bits without
an operator (`every_length`). Two bits give 0, and one bit gives nothing:

    0 1  ->  0 END        0  ->  END
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from chomsky_ladder.tasks._binary import Operation, products
from chomsky_ladder.tasks.base import register


@register
@dataclass(frozen=True, kw_only=True)
class BinaryMultiplication(Operation):
    name, version, level = "binary_multiplication", 1, "context_sensitive"
    operator = "*"

    def columns(self, a_BK: Tensor, b_BK: Tensor) -> Tensor:
        return products(a_BK, b_BK, num=a_BK.shape[1])

    def alone(self, number_BK: Tensor, size_B: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(number_BK), size_B - 1
