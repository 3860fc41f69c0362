"""Training, validation and test strings: rows of three disjoint streams, drawn when needed and never stored.

Training string i of step s is row s * batch + i of the split "train" under the run's seed. With a finite training set
it is the string at this place in the order of its epoch (harness/train/epochs.py). Validation and test strings are rows
of their own splits under the evaluation's seed, so they are the same for every run of a task. A row is the same string
in any batch. So evaluation sorts its rows by length and pads each batch to its own longest string only.
"""

import statistics
from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.train.epochs import Epochs
from chomsky_ladder.tasks.base import Batch, Task
from chomsky_ladder.tasks.draw import Draw


class TrainingStream:
    """Draws training batches on the device in the shape that the step needs.

    For several runs with different seeds a batch is [R, B, ..], and each run has its own strings.
    """

    def __init__(self, runs: Sequence[Run], device: torch.device) -> None:
        first, count = runs[0], len(runs)
        self.run, self.count = first, count
        self._rows_B = torch.arange(first.train.batch, device=device)
        self.seed_R = torch.tensor([run.seed for run in runs], device=device)
        # Replicas are further rows of one batch, each drawn with its own seed.
        self._rows_X = self._rows_B.repeat(count)
        self._seed = self.seed_R.repeat_interleave(first.train.batch) if count > 1 else first.seed
        sizes = [run.train.examples for run in runs]
        assert all(sizes) or not any(sizes), "a pack has finite sets or none"
        self._epochs = Epochs(sizes, self.seed_R, batch=first.train.batch) if any(sizes) else None
        self._stages: dict[int, tuple[Tensor, int]] = {}  # longest length -> the legal lengths and the padded width
        for longest in {*first.train.curriculum} or {first.train.lengths[1]}:
            legal = first.task.legal_lengths(first.train.lengths[0], longest)
            width = max(map(first.task.positions, legal))
            self._stages[longest] = torch.tensor(legal, device=device), width

    def batch(self, step: int | Tensor, *, longest: int) -> Batch:
        """Draw the strings of a step. `longest` is the curriculum's current limit (`Train.longest`), a host integer."""
        legal, width = self._stages[longest]
        train = self.run.train
        rows_X = self._rows_X + step * train.batch
        if self._epochs:
            rows_X = self._epochs.rows(rows_X, before=step * train.batch)
        draw = Draw(seed=self._seed, split="train", rows_B=rows_X)
        keys = draw
        if train.lengths_per == "batch":  # one length for the whole batch, drawn with the step as key
            keys = Draw(seed=self._seed, split="train/step", rows_B=torch.zeros_like(self._rows_X) + step)
        lengths_X = legal[keys.child("lengths").integers(len(legal))]
        batch = self.run.task.sample(draw, lengths_X, width)
        if train.loss_over == "slots":
            batch = with_all_slots(batch, blank=self.run.task.blank_answer)
        if self.count == 1:
            return batch
        return Batch(*(x.unflatten(0, (self.count, train.batch)) for x in batch))

    def before(self, step: Tensor, number: int) -> Batch:
        """Draw strings that the model reads before those of a step.

        All have the longest length, so there is no padding.
        """
        legal, width = self._stages[max(self._stages)]
        draw = Draw(seed=self._seed, split=f"train/before {number}", rows_B=self._rows_X + step * self.run.train.batch)
        return self.run.task.sample(draw, legal[-1:].expand(len(self._rows_X)), width)

    def masks(self, step: int | Tensor, *, seed: int | Tensor | None = None) -> Draw:
        """Return the stream of random numbers for a step's dropout masks, for the single run or for the given seed."""
        seed = self.run.seed if seed is None else seed
        return Draw(seed=seed, split="dropout", rows_B=self._rows_B + step * self.run.train.batch)


def with_all_slots(batch: Batch, *, blank: int) -> Batch:
    """Return the batch with all answer slots scored. Slots behind the last answer have the blank token as target."""
    position_L = torch.arange(batch.tokens_BL.shape[1], device=batch.tokens_BL.device)
    slot_BL = (position_L >= batch.prompt_B[:, None] - 1) & (position_L < batch.length_B[:, None])
    targets_BL = torch.where(slot_BL & ~batch.scored_BL, blank, batch.targets_BL)
    return batch._replace(targets_BL=targets_BL, scored_BL=batch.scored_BL | slot_BL)


def tokens_per_step(run: Run) -> float:
    """Return the expected number of input positions in a training step, without padding."""
    train, stages = run.train, run.train.curriculum or (run.train.lengths[1],)
    filled = [
        statistics.fmean(map(run.task.positions, run.task.legal_lengths(train.lengths[0], longest)))
        for longest in stages
    ]
    return train.batch * statistics.fmean(filled)


def evaluation_lengths(
    task: Task, legal: Sequence[int], *, count: int, seed: int, split: str, by: Literal["draw", "turn"] = "draw"
) -> Tensor:
    """Return the length of each row of an evaluation split."""
    if by == "turn":
        return torch.tensor(legal)[torch.arange(count) % len(legal)]
    draw = Draw(seed=seed, split=split, rows_B=torch.arange(count))
    return torch.tensor(legal)[draw.child("lengths").integers(len(legal))]


def evaluation_batches(
    task: Task,
    legal: Sequence[int],
    *,
    count: int,
    seed: int,
    split: str,
    batch: int,
    device: torch.device,
    by: Literal["draw", "turn"] = "draw",
) -> Iterator[tuple[Batch, Tensor, Tensor]]:
    """Yield all batches of an evaluation split, the longest first, each with its rows and their lengths.

    Memory freed by a long batch is large enough for all shorter ones. In the other order no freed block is large enough
    for the next batch: on an xLSTM[0:1] of 100,000 parameters over lengths of 40 to 256, we measured 160 MB against 37.
    """
    lengths = evaluation_lengths(task, legal, count=count, seed=seed, split=split, by=by)
    order = torch.argsort(lengths, stable=True, descending=True)
    for rows_B in order.split(batch):
        lengths_B = lengths[rows_B]
        width = max(task.positions(length) for length in lengths_B.unique().tolist())
        rows_B, lengths_B = rows_B.to(device), lengths_B.to(device)
        draw = Draw(seed=seed, split=split, rows_B=rows_B)
        yield task.sample(draw, lengths_B, width), rows_B, lengths_B
