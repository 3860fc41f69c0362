"""The number of times that the most frequent symbol occurs, answered as a symbol.

    3 7 1 7 3 5  ->  2        3 and 7 occur twice

A counter language: one counter for each symbol, of which the largest is read. A count beyond the largest symbol is
answered with that. Beck et al. 2024 (2405.04517), whose vocabulary has 64 tokens.
"""

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from chomsky_ladder.tasks._counting import Counting, generating, largest_counts, occurrences
from chomsky_ladder.tasks.base import register


@register
@dataclass(frozen=True, kw_only=True)
class MajorityCount(Counting):
    name, version, level = "majority_count", 1, "counter"
    demand = "majority"

    def prefix_answers(self, x_BL: Tensor) -> Tensor:
        return occurrences(x_BL).cummax(1).values.clamp(max=self.num_symbols)

    def answer(self, x_BL: Tensor, size_B: Tensor) -> Tensor:
        return self.counts(x_BL, size_B).amax(1).clamp(max=self.num_symbols)

    def answer_law(self, length: int) -> np.ndarray:
        f, weights = generating(self.size(length), self.num_symbols)
        at_most = (f**self.num_symbols @ weights).real  # pyright: ignore[reportAttributeAccessIssue]
        law = np.zeros((1, len(self.vocab)))
        count = np.minimum(largest_counts(self.size(length), self.num_symbols), self.num_symbols)
        np.add.at(law[0], count, np.diff(at_most).clip(0) / at_most[-1])
        return law
