"""The value that came with this key before. Keys and values alternate, and each key has one value in a string.

    k3 v1 k0 v7 k3 v1 k0  ->  v1 v7            read at every key that has been there before
    k3 v1 n2 n9 k0 v7 k3  ->  v1               noisy_in_context_recall: a share of the pairs is noise

A length of 2 n tokens is n pairs. The last value is only an answer, and the last key is any of those before it. Keys
are independent, and values belong to keys for one string. At least one of the pairs before the last is no noise. (In
MAD the last pair may be that one, and a few strings then have no key.) MAD, Poli et al. 2024 (2403.17844), with the
numbers of its code: 8 keys and 8 values of 16 tokens, 128 tokens in a string, and 16 noise tokens in a fifth of the
pairs. MAD's code also trains on every other next token, which nobody can guess. It trains on 12,800 strings in epochs,
which is `train.examples` here. Outside the hierarchy, like `mqar`, where all keys first get their values and are then
asked once.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks.base import PAD, Batch, Task, bounded, register
from chomsky_ladder.tasks.draw import Draw

FIRST_KEY = 1  # then the values, then the noise


@register
@dataclass(frozen=True, kw_only=True)
class InContextRecall(Task):
    name, version, level = "in_context_recall", 1, "none"
    demand = "recall"

    num_keys: int = 8
    """Number of keys."""
    num_values: int = 8
    """Number of values."""
    num_noise: int = 16
    """Number of noise tokens, if any pair is noise."""
    noise: int = 0
    """Per cent of the pairs that are noise."""

    def __post_init__(self) -> None:
        for name in ("num_keys", "num_values", "num_noise"):
            bounded(self, name, 1 if name == "num_noise" else 2, 4096)
        bounded(self, "noise", 0, 99)

    @property
    def vocab(self) -> tuple[str, ...]:
        kinds = (("k", self.num_keys), ("v", self.num_values), ("n", self.num_noise if self.noise else 0))
        return "PAD", *(f"{kind}{number}" for kind, count in kinds for number in range(count))

    @property
    def answers(self) -> tuple[int, ...]:
        first = FIRST_KEY + self.num_keys
        return tuple(range(first, first + self.num_values))

    def legal_lengths(self, low: int, high: int) -> tuple[int, ...]:
        return tuple(range(max(low + low % 2, 4), high + 1, 2))

    def positions(self, length: int) -> int:
        return length - 1

    def sample(self, draw: Draw, lengths_B: Tensor, width: int) -> Batch:
        pairs = (width + 2) // 2
        last_B1 = lengths_B[:, None] // 2 - 1
        pair_P = torch.arange(pairs, device=lengths_B.device)
        key_BP, value_BK = draw.integers(self.num_keys, (pairs,)), draw.integers(self.num_values, (self.num_keys,))
        noise_BP2 = draw.integers(self.num_noise, (pairs, 2)) + self.answers[-1] + 1
        is_noise_BP = (draw.integers(100, (pairs,)) < self.noise) & (pair_P != draw.integers(last_B1, (1,)))
        kept_BP = ~is_noise_BP & (pair_P < last_B1)
        none = self.num_keys  # stands for pairs without a key
        first_BK = key_BP.new_full((len(key_BP), none + 1), pairs)
        first_BK = first_BK.scatter_reduce(1, torch.where(kept_BP, key_BP, none), pair_P.expand_as(key_BP), "amin")
        seen_BK = (first_BK[:, :none] < pairs).cumsum(1)
        which_B1 = draw.integers(seen_BK[:, -1:], (1,))
        key_BP = torch.where(pair_P == last_B1, (seen_BK <= which_B1).sum(1, keepdim=True), key_BP)
        asked_BP = (kept_BP & (pair_P > first_BK.gather(1, key_BP))) | (pair_P == last_B1)
        pair_BP2 = torch.stack([key_BP + FIRST_KEY, value_BK.gather(1, key_BP) + self.answers[0]], dim=2)
        shown_BP2 = torch.where((kept_BP | (pair_P == last_B1))[..., None], pair_BP2, noise_BP2)
        position_L = torch.arange(width, device=lengths_B.device)
        inside_BL = position_L < lengths_B[:, None] - 1
        tokens_BL = torch.where(inside_BL, shown_BP2.flatten(1)[:, :width], PAD)
        asked_BP2 = torch.stack([torch.where(asked_BP, pair_BP2[..., 1], PAD), torch.zeros_like(key_BP)], dim=2)
        targets_BL = asked_BP2.flatten(1)[:, :width]
        prompt_B = 2 * torch.where(asked_BP, pair_P, pairs).amin(1) + 1
        return Batch(tokens_BL, targets_BL, targets_BL != PAD, lengths_B - 1, prompt_B)

    def answer_law(self, length: int) -> np.ndarray:
        """Return the distribution of answers.

        Values are alike; there is one answer for each pair whose key came before.
        """
        before, free = length // 2 - 1, 1 - self.noise / 100
        law_RD = np.zeros((before + 1, before + 1))  # by the number of keys shown again, and of different ones
        law_RD[0, 1] = 1  # the pair that is no noise
        new_D = np.clip(1 - np.arange(before + 1) / self.num_keys, 0, 1)
        for _ in range(before - 1):
            shown_RD = law_RD * free
            law_RD = law_RD * (1 - free)
            law_RD[1:] += (shown_RD * (1 - new_D))[:-1]
            law_RD[:, 1:] += (shown_RD * new_D)[:, :-1]
        answers_R = law_RD.sum(1)  # and the last key
        law = np.zeros((before + 1, len(self.vocab)))
        law[:, list(self.answers)] = answers_R[::-1].cumsum()[::-1, None] / self.num_values
        return law


@register
@dataclass(frozen=True, kw_only=True)
class NoisyInContextRecall(InContextRecall):
    name = "noisy_in_context_recall"

    noise: int = 20
    """Per cent of the pairs that are noise."""
