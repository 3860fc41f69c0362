"""The value that came with this key before, where keys and values are words of several tokens.

    _ k3 k0 v1 k5 v7 v2 k3 k0 v1 k5 v7 v2  ->  v1 v7 v2        read before each token of a value given before

A key has 1..`key_size` different key tokens, a value 1..`value_size` different value tokens. Sizes are equally likely,
then all words of that size. Pairs fill a string from its end. The last pair repeats one before it, and blanks fill the
front where no further pair would surely fit. Each key keeps its value in a string. MAD, Poli et al. 2024 (2403.17844),
with the numbers of its code: 7 and 8 tokens of 16, and sizes up to 3. MAD differs in four points. It trains on every
next token. Its test keys are all of the largest size (`keys="longest"`). Its last key is drawn first. If it has not
come before by chance, it is put among the others. So it was shown less often: 1.33 times in 128 tokens, here 1.55. In
one of 42 strings, which end before that place, it was never shown. And its number of blanks counts the last pair's
size, too: 2 to 7, here 0 to 9. Outside the hierarchy, like `in_context_recall`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from chomsky_ladder.tasks.base import PAD, Batch, Floors, Task, bounded, register
from chomsky_ladder.tasks.draw import Draw

BLANK, FIRST_KEY = 1, 2  # then the tokens of values
ANY = 2**31 - 1


@register
@dataclass(frozen=True, kw_only=True)
class FuzzyInContextRecall(Task):
    name, version, level = "fuzzy_in_context_recall", 1, "none"
    demand = "recall"

    num_keys: int = 7
    """Number of tokens that keys are made of."""
    num_values: int = 8
    """Number of tokens that values are made of."""
    key_size: int = 3
    """The most tokens of a key."""
    value_size: int = 3
    """The most tokens of a value."""
    keys: Literal["any", "longest"] = "any"
    """Sizes of keys: any, or all of the largest."""

    def __post_init__(self) -> None:
        for name, size in (("num_keys", "key_size"), ("num_values", "value_size")):
            bounded(self, name, 2, 1024)
            bounded(self, size, 1, min(getattr(self, name), 5))

    @property
    def vocab(self) -> tuple[str, ...]:
        keys, values = (f"k{key}" for key in range(self.num_keys)), (f"v{value}" for value in range(self.num_values))
        return "PAD", "_", *keys, *values

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(FIRST_KEY + self.num_keys, FIRST_KEY + self.num_keys + self.num_values))

    @property
    def longest_pair(self) -> int:
        return self.key_size + self.value_size

    def legal_lengths(self, low: int, high: int) -> tuple[int, ...]:
        return tuple(range(max(low, 2 * self.longest_pair), high + 1))

    def positions(self, length: int) -> int:
        return length - 1

    def floors(self, lengths: Sequence[int], *, score: Literal["tokens", "lengths"] = "tokens") -> Floors:
        """Return the floors. Values could be renamed, so no guess is better than another."""
        share = 1 / len(self.answers)
        return Floors(s_rand=share, best_constant=share, content_free=share)

    def sample(self, draw: Draw, lengths_B: Tensor, width: int) -> Batch:
        pairs = (width + 3) // 2
        key_BPK, key_size_BP = _words(draw, pairs, self.num_keys, self.key_size, longest=self.keys == "longest")
        value_BPV, value_size_BP = _words(draw, pairs, self.num_values, self.value_size)
        pair_P = torch.arange(pairs, device=lengths_B.device)
        same_BPP = (key_BPK[:, :, None] == key_BPK[:, None]).all(3)
        first_BP = torch.where(same_BPP, pair_P, pairs).amin(2)  # the pair whose value it has
        end_BP = (key_size_BP + value_size_BP.gather(1, first_BP)).cumsum(1)
        count_B1 = (end_BP <= lengths_B[:, None] - self.longest_pair).sum(1, keepdim=True)
        of_BP = torch.where(
            pair_P == count_B1, draw.integers(count_B1, (1,)), pair_P
        )  # the last is one of those before
        first_BP = first_BP.gather(1, of_BP)
        key_BPK, value_BPV = _rows(key_BPK, first_BP), _rows(value_BPV, first_BP)
        key_size_BP, value_size_BP = key_size_BP.gather(1, first_BP), value_size_BP.gather(1, first_BP)
        end_BP = (key_size_BP + value_size_BP).cumsum(1)
        token_W = torch.arange(width + 1, device=lengths_B.device)
        place_BW = token_W - (lengths_B[:, None] - end_BP.gather(1, count_B1))  # after the blanks
        at_BW = torch.searchsorted(end_BP, place_BW, right=True).clamp(max=pairs - 1)
        word_BPW = torch.cat([key_BPK + FIRST_KEY, value_BPV + self.answers[0]], dim=2)
        within_BW = place_BW - (end_BP - key_size_BP - value_size_BP).gather(1, at_BW)
        into_BW = within_BW - key_size_BP.gather(1, at_BW)  # index among a value's tokens
        column_BW = torch.where(into_BW >= 0, self.key_size + into_BW, within_BW).clamp(0, self.longest_pair - 1)
        shown_BW = word_BPW.flatten(1).gather(1, at_BW * self.longest_pair + column_BW)
        shown_BW = torch.where(place_BW < 0, BLANK, shown_BW)
        asked_BW = (place_BW >= 0) & (into_BW >= 0) & (first_BP.gather(1, at_BW) < at_BW)
        inside_BW = token_W < lengths_B[:, None]
        tokens_BL = torch.where(inside_BW[:, 1:], shown_BW[:, :-1], PAD)
        targets_BL = torch.where(inside_BW & asked_BW, shown_BW, PAD)[:, 1:]
        scored_BL = targets_BL != PAD
        prompt_B = torch.where(scored_BL, token_W[1:], width).amin(1)
        return Batch(tokens_BL, targets_BL, scored_BL, lengths_B - 1, prompt_B)


def _words(draw: Draw, count: int, num: int, most: int, *, longest: bool = False) -> tuple[Tensor, Tensor]:
    """Draw words of up to `most` different tokens, [B, P, most], -1 after their ends; and their sizes."""
    size_BP = 1 + draw.integers(most, (count,))
    size_BP = torch.full_like(size_BP, most) if longest else size_BP
    key_BPN = draw.integers(ANY, (count, num)) * num + torch.arange(num, device=size_BP.device)
    word_BPK = key_BPN.topk(most, dim=2, largest=False).indices
    return torch.where(torch.arange(most, device=size_BP.device) < size_BP[..., None], word_BPK, -1), size_BP


def _rows(word_BPK: Tensor, at_BP: Tensor) -> Tensor:
    return word_BPK.gather(1, at_BP[..., None].expand(-1, -1, word_BPK.shape[2]))
