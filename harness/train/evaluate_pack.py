"""Score all models of a pack at once: strings are drawn once, and one pass over stacked weights gives all answers.

    PackEvaluator(pack, device=.., backend=..).validation()     a score of each model, in their order

Runs of a pack are scored on the same strings. One by one, each run would draw those strings again and launch all of its
kernels. One pass of `torch.vmap` over the weights, as in a training step (harness/train/pack.py), draws and launches
once. The answers of all models form one batch, one model after the other.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.train.evaluate import Scoring
from chomsky_ladder.harness.train.forward import Answers, autocast, context
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.harness.train.replays import Room
from chomsky_ladder.harness.train.score import G, Given, Score, Scores
from chomsky_ladder.harness.train.steps import captures
from chomsky_ladder.models.block import Backend
from chomsky_ladder.tasks.base import Batch


class PackEvaluator(Scoring[list[Score]]):
    def __init__(self, pack: Pack, *, backend: Backend, replayed: bool = False, room: Room | None = None) -> None:
        super().__init__(pack.run, device=pack.device, backend=backend, replayed=replayed, room=room)
        self.pack = pack

    def scores_apart(self) -> list[Scores[Score]]:
        """Compute all scores of finished runs, for each model."""
        found = self.scores()
        count = self.pack.count
        longer = [{length: each[row] for length, each in found.extrapolation.items()} for row in range(count)]
        return [Scores(*part) for part in zip(found.test, found.validation, found.in_distribution, longer, strict=True)]

    def _counted(self, stream: Iterator[Answers], legal: Sequence[int]) -> list[Score]:
        return self._counted_apart(stream, legal, models=self.pack.count)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        was_training = self.pack.models[0].training
        self.pack.models[0].eval()
        try:
            yield
        finally:
            self.pack.models[0].train(was_training)

    def _parallel(self, batch: Batch) -> Tensor:
        """Return logits [R * B, L, V]. The batch is split into R parts, so that memory is that of one model."""
        size = -(-len(batch.tokens_BL) // self.pack.count)
        parts = [self._of_part(Batch(*part)) for part in zip(*(field.split(size) for field in batch), strict=True)]
        return torch.cat(parts, 1).flatten(0, 1)

    def _of_part(self, batch: Batch) -> Tensor:
        ctx = context(batch, backend=self.backend, once=self.asks_once)
        ctx.stacked = True
        with autocast(self.run, self.device, cached=self._replays is None):
            logits_RBLV = self.pack.logits(batch, ctx)
        self.backends |= ctx.backends
        return logits_RBLV

    def _fed_back(self, batch: Batch) -> tuple[Tensor, Batch]:
        raise AssertionError("answers that are fed back are scored model by model")

    def _answers_of(
        self, batch: Batch, rows_B: Tensor, lengths_B: Tensor, logits_BLV: Tensor, allowed_BLV: Tensor | None
    ) -> Answers:
        def of_each(part: Tensor) -> Tensor:
            return part.repeat(self.pack.count, *[1] * (part.ndim - 1))

        of_all = Batch(*map(of_each, batch))
        allowed_XLV = None if allowed_BLV is None else of_each(allowed_BLV)
        return super()._answers_of(of_all, of_each(rows_B), of_each(lengths_B), logits_BLV, allowed_XLV)


def pays(pack: Pack) -> bool:
    """Return True if scoring together is faster: on a GPU, where kernel launches dominate.

    On a CPU each model is scored alone, so that its scores are the same bits as outside a pack.
    """
    return pack.count > 1 and pack.device.type == "cuda" and pack.run.task.decode == "parallel"


class Together:
    """Scores a pack's models at once, where that pays."""

    def __init__(self, pack: Pack, settings: Exec, room: Room | None = None) -> None:
        self._scoring: PackEvaluator | None = None
        if pays(pack):
            replayed = captures(settings, pack.device)
            self._scoring = PackEvaluator(pack, backend=settings.backend, replayed=replayed, room=room)

    def of(self, members: int, ask: Callable[[PackEvaluator], list[G]]) -> list[Given[G]] | None:
        """Score all models together, if `members` of them need it; None if each is to be scored alone."""
        if self._scoring is None or members < 2:
            return None
        start = time.monotonic()
        try:
            found = ask(self._scoring)
        except torch.OutOfMemoryError:
            self._scoring = None
            return None
        share = (time.monotonic() - start) / members
        return [Given(scores, share, self._scoring.backends, self._scoring.refused) for scores in found]
