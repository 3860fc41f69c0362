"""Further losses of a recogniser: the next symbol of strings in the language, and the set of all symbols that may
follow.

    loss = answers + next_symbol * CE(next symbol) + next_set * BCE(symbols that may follow)

As in FLaRe (Butoi et al. 2024, 2411.07107), only strings in the language count. Each string's loss is the mean over its
positions (for sets also over the symbols and the end), and then the mean over strings is taken. Both losses read the
model's one head at the rows of the symbols and of PAD, which stands for the end. The published models have a head for
each.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.models.block import Context
from chomsky_ladder.tasks.base import PAD, Batch


class Following:
    """The next-symbol and next-set losses of a run."""

    def __init__(self, run: Run, device: torch.device) -> None:
        self.task, self.train = run.task, run.train
        said = [token for token in range(len(run.task.vocab)) if token not in run.task.answers]
        assert said[0] == PAD
        self._said = torch.tensor(said, device=device)

    def targets(self, batch: Batch) -> tuple[Tensor, ...]:
        """Return the targets that `add` needs besides a batch. The batch may hold several runs, [R, B, ..]."""
        if batch.tokens_BL.dim() == 2:
            return (self.task.may_follow(batch),)
        flat = Batch(*(field.flatten(0, 1) for field in batch))
        return (self.task.may_follow(flat).unflatten(0, batch.tokens_BL.shape[:2]),)

    def add(self, logits_BLV: Tensor, batch: Batch, targets: Sequence[Tensor], ctx: Context) -> None:
        """Add the weighted losses to the context."""
        (may_follow_BLV,) = targets
        asked_BL = may_follow_BLV.any(2)
        asked_B = asked_BL.sum(1)
        members = (asked_B > 0).sum().clamp(min=1)
        weight_BL = (asked_BL / (asked_B.clamp(min=1)[:, None] * members)).to(logits_BLV.dtype)
        logits_BLS = logits_BLV.index_select(2, self._said)
        if self.train.next_symbol:
            is_last_BL = asked_BL.cumsum(1) == asked_B[:, None]
            next_BL = torch.where(asked_BL & ~is_last_BL, batch.tokens_BL.roll(-1, 1), PAD)
            next_BL = torch.searchsorted(self._said, next_BL)  # its index among the symbols the head can say
            nats_BL = cross_entropy(logits_BLS.flatten(0, 1), next_BL.flatten(), reduction="none").view_as(weight_BL)
            ctx.add_loss("next_symbol", self.train.next_symbol * (nats_BL * weight_BL).sum())
        if self.train.next_set:
            set_BLS = may_follow_BLV.index_select(2, self._said).to(logits_BLV.dtype)
            nats_BL = binary_cross_entropy_with_logits(logits_BLS, set_BLS, reduction="none").mean(2)
            ctx.add_loss("next_set", self.train.next_set * (nats_BL * weight_BL).sum())
