"""Score a model's answers on a split, with counts for each length (harness/train/score.py).

A scored position counts as right if its most probable token is the answer, or an allowed answer where the task has
several. With parallel decoding one forward pass gives all answers. Under `decode="teacher"` the model is fed its own
answers token by token, through its step form.
"""

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Generic

import torch
from torch import Tensor

from chomsky_ladder.harness.config.frozen import FrozenSet, open_frozen
from chomsky_ladder.harness.config.run import Run, without_training_targets
from chomsky_ladder.harness.train.data import evaluation_batches
from chomsky_ladder.harness.train.forward import Answers, autocast, context
from chomsky_ladder.harness.train.generate import fed_back
from chomsky_ladder.harness.train.metric import metrics_of
from chomsky_ladder.harness.train.replays import Replays, Room
from chomsky_ladder.harness.train.score import S, Score, Scores
from chomsky_ladder.models.base import Model
from chomsky_ladder.models.block import Backend
from chomsky_ladder.tasks.base import Batch, Task
from chomsky_ladder.tasks.draw import Draw

CACHED = 32  # strings in a batch on a CPU; 256 take up to three times as long
POSITIONS = 4096  # in a batch: memory grows with them, and most models are no faster with more


class Scoring(ABC, Generic[S]):
    """Scores one run's strings on any split. With `replayed`, parallel answers come from CUDA graphs."""

    def __init__(
        self, run: Run, *, device: torch.device, backend: Backend, replayed: bool = False, room: Room | None = None
    ) -> None:
        self.run, self.device, self.backend = run, device, backend
        self._replays = Replays(_weakly(self), device, room) if replayed else None
        self.task: Task = without_training_targets(run.task)
        self.asks_once = self.task.asks_once and not run.eval.file  # a frozen set may ask for more than one answer
        self.counts = {name: count for metric in metrics_of(self.task) for name, count in metric.counts.items()}
        self.backends: set[str] = set()

    @abstractmethod
    def _parallel(self, batch: Batch) -> Tensor:
        """Return a batch's logits from one forward pass: [B, L, V], or [B, 1, V] if there is only one answer."""

    @abstractmethod
    def _fed_back(self, batch: Batch) -> tuple[Tensor, Batch]:
        """Return logits where the model is fed its own answers, and the batch as the model read it."""

    @abstractmethod
    def _evaluating(self) -> AbstractContextManager[None]:
        """Put the scored models into evaluation mode."""

    @abstractmethod
    def _counted(self, stream: Iterator[Answers], legal: Sequence[int]) -> S: ...

    @property
    def refused(self) -> str:
        """Return why scores are not replayed although they were meant to be; "" if they are."""
        return self._replays.refused if self._replays else ""

    @property
    def test_task(self) -> Task:
        """Return the task of the test strings. A frozen set may have other settings than the run."""
        return self._frozen().task if self.run.eval.file else self.task

    def _frozen(self) -> FrozenSet:
        """Return the run's frozen strings. A different set in the same file is refused."""
        return open_frozen(self.run.eval.file, self.run.eval.file_sha256)

    def _at_a_time(self, longest: int) -> int:
        """Return the batch size. On a CPU it is small, so that caches hold the batch and padding is short."""
        if self.device.type != "cpu":
            return self.run.eval.batch
        return min(self.run.eval.batch, CACHED, max(1, POSITIONS // longest))

    def scores(self, validation: S | None = None) -> Scores[S]:
        """Compute all scores of a finished run.

        `validation` is the validation score, if these weights already have one.
        """
        known = self.validation() if validation is None else validation
        trained = known if self.run.eval.validate == "training" else self.in_distribution()
        return Scores(self.test(), known, trained, self.extrapolation())

    def test(self) -> S:
        return self._counted(self.test_answers(), self.test_task.legal_lengths(*self.run.eval.lengths))

    def test_answers(self) -> Iterator[Answers]:
        settings = self.run.eval
        if settings.file:
            frozen = self._frozen()
            longest = self.test_task.legal_lengths(*settings.lengths)[-1]
            batches = frozen.batches(batch=self._at_a_time(longest), device=self.device)
            return self._answers(batches, frozen.task, seed=frozen.seed, split=frozen.split)
        return self.answers("test", self.task.legal_lengths(*settings.lengths), settings.test)

    def validation(self) -> S:
        if self.run.eval.validate == "training":
            return self.in_distribution()
        return self.score("validation", self.run.eval.lengths, self.run.eval.validation)

    def in_distribution(self) -> S:
        """Score validation strings of the training lengths."""
        train = self.run.train
        return self.score(
            "validation/train", (train.lengths[0], train.longest(train.steps - 1)), self.run.eval.validation
        )

    def extrapolation(self) -> dict[int, S]:
        """Return the scores at the legal lengths next below those in `eval.extrapolate`."""
        scores = {}
        for length in self.run.eval.extrapolate:
            legal = self.task.legal_lengths(1, length)[-1:]
            if legal:
                scores[legal[0]] = self.score("test/longer", (legal[0], legal[0]), self.run.eval.extrapolation)
        return scores

    def score(self, split: str, lengths: tuple[int, int], count: int) -> S:
        legal = self.task.legal_lengths(*lengths)
        return self._counted(self.answers(split, legal, count), legal)

    def _counted_apart(self, stream: Iterator[Answers], legal: Sequence[int], *, models: int) -> list[Score]:
        """Return one score for each model. In the answers, each model's strings follow those of the model before."""
        totals = torch.zeros(5 * models, legal[-1] + 1, dtype=torch.int64, device=self.device)
        kinds = 1 + len(self.counts)
        sums = torch.zeros(kinds * models, legal[-1] + 1, dtype=torch.float64, device=self.device)
        for answers in stream:
            lengths_B = answers.lengths_B[: len(answers.lengths_B) // models]
            scored_X, right_X = answers.batch.scored_BL.sum(1), answers.right_BL.sum(1)
            hits_X = ((answers.said_BL == answers.batch.targets_BL) & answers.batch.scored_BL).sum(1)
            exact_X = (scored_X == right_X).long()
            rows = torch.stack([torch.ones_like(scored_X), exact_X, scored_X, right_X, hits_X])
            totals.index_add_(1, lengths_B, rows.view(5 * models, -1))
            counted = [answers.nats_BL.sum(1), *(count(answers).double() for count in self.counts.values())]
            _add_by_length(sums, lengths_B, torch.stack(counted).view(kinds * models, -1))
        by_model = zip(*totals.view(5, models, -1).tolist(), *sums.view(kinds, models, -1).tolist(), strict=True)
        return [self._score_of(columns, legal) for columns in by_model]

    def _score_of(self, columns: Sequence[Sequence[float]], legal: Sequence[int]) -> Score:
        seen = [length for length in legal if columns[0][length]]
        kept: list[Any] = [tuple(column[length] for length in seen) for column in columns]
        others = {name: kept[6 + place] for place, name in enumerate(self.counts)}
        return Score(tuple(seen), *kept[:6], others=others)

    def answers(self, split: str, legal: Sequence[int], count: int) -> Iterator[Answers]:
        """Yield the answers to a split, batch by batch, the longest first."""
        settings = self.run.eval
        batches = evaluation_batches(
            self.task,
            legal,
            count=count,
            seed=settings.seed,
            split=split,
            batch=self._at_a_time(legal[-1]),
            device=self.device,
            by=settings.lengths_by,
        )
        return self._answers(batches, self.task, seed=settings.seed, split=split)

    @torch.no_grad()
    def _answers(
        self, batches: Iterator[tuple[Batch, Tensor, Tensor]], task: Task, *, seed: int, split: str
    ) -> Iterator[Answers]:
        """Yield the answers to batches that the task drew with this seed and split."""
        with self._evaluating():
            for batch, rows_B, lengths_B in batches:
                if self.task.decode == "teacher":
                    logits_BLV, batch = self._fed_back(batch)
                else:
                    logits_BLV = (self._replays or self._parallel)(batch)
                allowed_BLV = task.allowed_in(batch.tokens_BL, Draw(seed=seed, split=split, rows_B=rows_B))
                yield self._answers_of(batch, rows_B, lengths_B, logits_BLV, allowed_BLV)
        if self._replays is not None and self._replays.used:
            self.backends.add("replayed.scores")

    def _answers_of(
        self, batch: Batch, rows_B: Tensor, lengths_B: Tensor, logits_BLV: Tensor, allowed_BLV: Tensor | None
    ) -> Answers:
        everywhere = batch.targets_BL.shape  # [B, L], even if the logits are those of the one asked position
        said_BL = logits_BLV.argmax(-1).expand(everywhere)
        log_p_BLV = logits_BLV.double().log_softmax(-1).expand(*everywhere, -1)
        log_p_BL = log_p_BLV.gather(2, batch.targets_BL[..., None])[..., 0]
        if allowed_BLV is None:
            right_BL = said_BL == batch.targets_BL
        else:
            right_BL = allowed_BLV.gather(2, said_BL[..., None])[..., 0]
        nats_BL = torch.where(batch.scored_BL, -log_p_BL, 0.0)
        return Answers(batch, rows_B, lengths_B, said_BL, right_BL & batch.scored_BL, nats_BL, self.task)


class Evaluator(Scoring[Score]):
    """Scores one model."""

    def __init__(
        self,
        run: Run,
        model: Model,
        *,
        device: torch.device,
        backend: Backend,
        replayed: bool = False,
        room: Room | None = None,
    ) -> None:
        super().__init__(run, device=device, backend=backend, replayed=replayed, room=room)
        self.model = model

    def _counted(self, stream: Iterator[Answers], legal: Sequence[int]) -> Score:
        (score,) = self._counted_apart(stream, legal, models=1)
        return score

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        was_training = self.model.training
        self.model.eval()
        try:
            yield
        finally:
            self.model.train(was_training)

    def _parallel(self, batch: Batch) -> Tensor:
        ctx = context(batch, backend=self.backend, once=self.asks_once)
        with autocast(self.run, self.device, cached=self._replays is None):
            logits_BLV = self.model(batch.tokens_BL, ctx)
        self.backends |= ctx.backends
        return logits_BLV

    def _fed_back(self, batch: Batch) -> tuple[Tensor, Batch]:
        """Read token by token: the prompt as given, then the model's own answers."""
        tokens_BL, scored_BL = batch.tokens_BL, batch.scored_BL
        free_BL = torch.cat([torch.zeros_like(scored_BL[:, :1]), scored_BL[:, :-1]], 1)  # where an answer is read
        with autocast(self.run, self.device):
            logits_BLV, heard_BL = fed_back(self.model, tokens_BL, free_BL, backend=self.backend)
        return logits_BLV, batch._replace(tokens_BL=heard_BL)


def _add_by_length(sums_XL: Tensor, lengths_B: Tensor, counted_XB: Tensor) -> None:
    """Add each string's numbers to the sums of its length, in a fixed order."""
    if sums_XL.device.type == "cpu":
        sums_XL.index_add_(1, lengths_B, counted_XB)
    else:
        sums_XL += summed_by_length(lengths_B, counted_XB, longest=sums_XL.shape[1] - 1)


def summed_by_length(lengths_B: Tensor, counted_XB: Tensor, *, longest: int) -> Tensor:
    """Return the same sums, [X, longest + 1], without index_add_, whose order on a GPU varies between runs."""
    is_of_BL = lengths_B[:, None] == torch.arange(longest + 1, device=lengths_B.device)
    return torch.where(is_of_BL, counted_XB[:, :, None], 0.0).sum(1)


def _weakly(evaluator: Scoring[Any]) -> Callable[[Batch], Tensor]:
    """Return the evaluator's parallel pass through a weak reference, so that graphs are freed together with it."""
    method = weakref.WeakMethod(evaluator._parallel)

    def parallel(batch: Batch) -> Tensor:
        bound = method()
        assert bound is not None, "replays do not outlive their evaluator"
        return bound(batch)

    return parallel
