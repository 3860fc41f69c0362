"""The sum of two binary numbers with the carries written first, to test if written steps help.

    1 1 + 0 1 ACT  ->  0 1 | 1 0 1        scratchpad="steps": the carries from the least bit up, then the sum, 3 + 2 = 5
    1 1 + 0 1 ACT . .  ->  1 0 1          scratchpad="padding": as many positions, with nothing on them
    1 1 + 0 1 ACT  ->  1 0 1              scratchpad="none"

Numbers have their least bits first. Both have the same number of bits, leading zeros included, and are uniform. The sum
has one bit more: its top bit is the last carry. A step reads two bits and the carry before it. Steps and the sum's bits
are fed in: the right ones in training, the model's own in evaluation (`decode`). Accuracy is over all written tokens,
and exact strings have no mistake. The metric `last_answer` is the sum alone, with every bit right. A length counts the
symbols of the string. After Nye et al. 2021 (2112.00114), who write digits beside their carries. Pfau et al. 2024
(2404.15758) have the control. `binary_addition` has numbers of different lengths, and no steps.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks.base import PAD, Batch, Task, register
from chomsky_ladder.tasks.draw import Draw

ZERO, PLUS, ACT, FILLER = 1, 3, 4, 5


@register
@dataclass(frozen=True, kw_only=True)
class LongAddition(Task):
    name, version, level = "long_addition", 1, "context_sensitive"

    scratchpad: Literal["steps", "padding", "none"] = "steps"
    """The tokens before the sum: its carries, as many fillers, or nothing."""
    decode: Literal["parallel", "teacher"] = "teacher"
    """Input at written tokens. parallel: blank. teacher: the token before, in evaluation the model's own."""

    def __post_init__(self) -> None:
        if self.scratchpad != "steps":  # the sum is read at once, as without steps
            object.__setattr__(self, "decode", "parallel")

    @property
    def writes_steps(self) -> bool:
        return self.scratchpad == "steps"

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", "0", "1", "+", "ACT", "."

    @property
    def answers(self) -> tuple[int, ...]:
        return ZERO, ZERO + 1

    def legal_lengths(self, low: int, high: int) -> tuple[int, ...]:
        return tuple(length for length in range(max(low, 3), high + 1) if length % 2 == 1)

    def positions(self, length: int) -> int:
        """Count the string, ACT, the steps or fillers, and the sum, whose last bit never enters the input."""
        bits = length // 2
        return length + 1 + (0 if self.scratchpad == "none" else bits) + bits

    def sample(self, draw: Draw, lengths_B: Tensor, width: int) -> Batch:
        bits_B1 = lengths_B[:, None] // 2
        most = width // 2
        a_BM, b_BM = draw.integers(2, (most,)), draw.integers(2, (most,))
        carry_BM, sum_BM = added(a_BM, b_BM, bits_B1)
        position_L = torch.arange(width, device=lengths_B.device)
        place_BL = torch.where(position_L < bits_B1, position_L, position_L - bits_B1 - 1)
        first_BL, second_BL = (x_BM.gather(1, place_BL.clamp(0, most - 1)) for x_BM in (a_BM, b_BM))
        tokens_BL = torch.where(position_L < bits_B1, first_BL, second_BL) + ZERO
        tokens_BL = torch.where(position_L == bits_B1, PLUS, tokens_BL)
        size_B1 = lengths_B[:, None]
        slot_BL = position_L - size_B1  # the first written token is read at ACT
        between_B1 = torch.zeros_like(bits_B1) if self.scratchpad == "none" else bits_B1
        written_BL = carry_BM.gather(1, slot_BL.clamp(0, most - 1))
        bit_BL = sum_BM.gather(1, (slot_BL - between_B1).clamp(0, most))
        written_BL = torch.where(slot_BL < between_B1, written_BL, bit_BL)
        slots_B1 = between_B1 + bits_B1 + 1
        scored_BL = (slot_BL >= (0 if self.writes_steps else between_B1)) & (slot_BL < slots_B1)
        targets_BL = torch.where(scored_BL, written_BL + ZERO, PAD)
        heard_BL = torch.where((slot_BL >= 1) & (slot_BL < slots_B1), targets_BL.roll(1, dims=1), PAD)
        if self.decode == "parallel":
            heard_BL = torch.zeros_like(targets_BL)
        if self.scratchpad == "padding":
            heard_BL = torch.where((slot_BL >= 1) & (slot_BL <= between_B1), FILLER, heard_BL)
        tokens_BL = torch.where(slot_BL < 0, tokens_BL, torch.where(slot_BL == 0, ACT, heard_BL))
        prompt_B1 = size_B1 + 1 + (0 if self.writes_steps else between_B1)
        return Batch(tokens_BL, targets_BL, scored_BL, lengths_B + slots_B1[:, 0], prompt_B1[:, 0])

    def final_answers(self, batch: Batch) -> Tensor:
        """Mark the sum's bits."""
        behind_BL = batch.scored_BL.flip(1).cumsum(1).flip(1)  # answers from here on
        bits_B1 = batch.scored_BL.sum(1, keepdim=True) // (2 if self.writes_steps else 1)
        return batch.scored_BL & (behind_BL <= bits_B1 + int(self.writes_steps))

    def answer_law(self, length: int) -> np.ndarray:
        """Return the law: a carry is 1 if both bits are, or one of them and the carry before: (1 - 2**-place) / 2."""
        bits = length // 2
        carry = (1 - np.exp2(-np.arange(1, bits + 1.0))) / 2
        sums = np.append(np.full(bits, 0.5), carry[-1])
        ones = np.concatenate([carry, sums]) if self.writes_steps else sums
        law = np.zeros((len(ones), len(self.vocab)))
        law[:, ZERO], law[:, ZERO + 1] = 1 - ones, ones
        return law


def added(a_BM: Tensor, b_BM: Tensor, bits_B1: Tensor) -> tuple[Tensor, Tensor]:
    """Return the carries out of each place, [B, M], and the bits of the sum, [B, M + 1]; 0 beyond the numbers' bits."""
    place_M = torch.arange(a_BM.shape[1], device=a_BM.device)
    inside_BM = place_M < bits_B1
    a_BM, b_BM = a_BM * inside_BM, b_BM * inside_BM
    # A place where both bits agree decides its carry; any other passes on the carry into it.
    decided_BM = torch.where(a_BM == b_BM, 2 * (place_M + 1) + a_BM, 0).cummax(1).values
    carry_BM = decided_BM & 1
    into_BM = torch.nn.functional.pad(carry_BM, (1, 0))
    sum_BM = torch.nn.functional.pad(a_BM ^ b_BM, (0, 1)) ^ into_BM
    return carry_BM, sum_BM
