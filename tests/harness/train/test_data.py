"""A string is its address: training rows by step and place, evaluation rows by number, in whatever batch they come."""

import math
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.train.data import TrainingStream, evaluation_batches, evaluation_lengths, tokens_per_step
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.tasks.base import Batch, Task
from chomsky_ladder.tasks.bucket_sort import BucketSort
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.mod_arithmetic import ModArithmetic
from chomsky_ladder.tasks.parity import Parity
from chomsky_ladder.tasks.reverse_string import ReverseString
from chomsky_ladder.tasks.stack_manipulation import StackManipulation

torch.set_num_threads(1)

CPU = torch.device("cpu")
TASKS = [Parity(), ModArithmetic(), ReverseString(), StackManipulation(count="input"), BucketSort()]


def run_of(task: Task, *, seed: int = 3, measured: Eval | None = None, **train: Any) -> Run:
    settings = Train(**{"batch": 6, "steps": 10, "lengths": (3, 15), **train})
    return Run(task=task, model=LSTMConfig(d_model=8), train=settings, eval=measured or Eval(), seed=seed)


def stream_of(task: Task, *, seed: int = 3, **train: Any) -> TrainingStream:
    return TrainingStream([run_of(task, seed=seed, **train)], CPU)


def strings(batch: Batch) -> list[tuple[Any, ...]]:
    """Each row without what pads it: input, answers, where they are read, and the prompt's length."""
    return [
        (*(tensor[row, :length].tolist() for tensor in batch[:3]), int(batch.prompt_B[row]))
        for row, length in enumerate(batch.length_B.tolist())
    ]


def alone(task: Task, *, seed: int, split: str, row: int, length: int) -> tuple[Any, ...]:
    """One row drawn by itself."""
    draw = Draw(seed=seed, split=split, rows_B=torch.tensor([row]))
    return strings(task.sample(draw, torch.tensor([length]), task.positions(length)))[0]


def assert_uniform(counts: list[int]) -> None:
    """Chi-square within five standard deviations of its mean (Wilson and Hilferty); too even is as bad."""
    expected, freedom = sum(counts) / len(counts), len(counts) - 1
    ratio = sum((count - expected) ** 2 for count in counts) / expected / freedom
    spread = 2 / (9 * freedom)
    assert abs(ratio ** (1 / 3) - (1 - spread)) < 5 * math.sqrt(spread), counts


@pytest.fixture
def seen_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows every later sample of parity is drawn from."""
    seen: list[int] = []
    sample = Parity.sample

    def spying(self: Parity, draw: Draw, lengths_B: Tensor, width: int) -> Batch:
        seen.extend(draw.rows_B.tolist())
        return sample(self, draw, lengths_B, width)

    monkeypatch.setattr(Parity, "sample", spying)
    return seen


@pytest.mark.parametrize("per", ["sequence", "batch"])
def test_steps_take_rows_one_after_the_other(per: str, seen_rows: list[int]) -> None:
    stream = stream_of(Parity(), lengths_per=per)
    for step in range(4):
        stream.batch(step, longest=15)
    assert seen_rows == list(range(4 * 6))


def test_a_training_string_is_row_step_times_batch_plus_place() -> None:
    for task in TASKS:
        for step in (0, 5):
            batch = stream_of(task).batch(step, longest=15)
            assert batch.tokens_BL.shape == (6, task.positions(max(task.legal_lengths(3, 15))))
            rows = torch.arange(step * 6, step * 6 + 6)
            legal = task.legal_lengths(3, 15)
            places = Draw(seed=3, split="train", rows_B=rows).child("lengths").integers(len(legal)).tolist()
            lengths = [legal[place] for place in places]
            assert [task.positions(length) for length in lengths] == batch.length_B.tolist()
            expected = [
                alone(task, seed=3, split="train", row=row, length=length)
                for row, length in zip(rows.tolist(), lengths, strict=True)
            ]
            assert strings(batch) == expected


def test_a_step_is_the_same_whenever_and_wherever_it_is_asked_for() -> None:
    one, other = stream_of(ReverseString()), stream_of(ReverseString())
    first = strings(one.batch(7, longest=15))
    for step in (2, 7, 0):
        other.batch(step, longest=15)
    assert strings(other.batch(7, longest=15)) == first
    assert strings(other.batch(torch.tensor(7), longest=15)) == first  # as a captured step would ask


def test_two_small_steps_are_one_large_step() -> None:
    small, large = stream_of(ReverseString(), batch=3), stream_of(ReverseString(), batch=6)
    halves = [strings(small.batch(step, longest=15)) for step in (4, 5)]
    assert halves[0] + halves[1] == strings(large.batch(2, longest=15))


def test_no_step_repeats_a_string_of_another() -> None:
    stream = stream_of(Parity(), lengths=(60, 60), batch=32)
    drawn = Counter(tuple(string[0]) for step in range(8) for string in strings(stream.batch(step, longest=60)))
    assert len(drawn) == 8 * 32


def test_runs_of_other_seeds_train_on_other_strings() -> None:
    one, other = (stream_of(Parity(), seed=seed, lengths=(40, 40)).batch(0, longest=40) for seed in (3, 4))
    assert not (one.tokens_BL == other.tokens_BL).all(1).any()


def test_the_training_seed_is_the_runs_and_not_the_evaluations() -> None:
    one, other = (TrainingStream([run_of(Parity(), measured=Eval(seed=seed))], CPU) for seed in (0, 1))
    assert strings(one.batch(1, longest=15)) == strings(other.batch(1, longest=15))


def test_every_string_has_its_own_length() -> None:
    stream = stream_of(Parity(), batch=64)
    assert all(len(set(stream.batch(step, longest=15).length_B.tolist())) > 5 for step in range(5))


def test_all_strings_of_a_step_may_share_a_length() -> None:
    """The length's key is the step, so it does not depend on the batch size."""
    shared = []
    for batch_size in (1, 6):
        stream = stream_of(ModArithmetic(), lengths_per="batch", batch=batch_size)
        steps = [stream.batch(step, longest=15) for step in range(24)]
        assert all(len(set(batch.length_B.tolist())) == 1 for batch in steps)
        shared.append([int(batch.length_B[0]) for batch in steps])
    assert shared[0] == shared[1]
    assert len(set(shared[0])) == len(ModArithmetic().legal_lengths(3, 15))
    strings_of_a_step = {tuple(tokens) for tokens in steps[0].tokens_BL.tolist()}
    assert len(strings_of_a_step) == 6


def test_a_shared_length_leaves_the_rows_as_they_are() -> None:
    stream = stream_of(ReverseString(), lengths_per="batch")
    batch = stream.batch(3, longest=15)
    length = next(n for n in range(3, 16) if ReverseString().positions(n) == batch.length_B[0])
    expected = [alone(ReverseString(), seed=3, split="train", row=row, length=length) for row in range(18, 24)]
    assert strings(batch) == expected


@pytest.mark.parametrize("task", [Parity(), ModArithmetic(), StackManipulation()], ids=lambda task: task.name)
@pytest.mark.parametrize("per", ["sequence", "batch"])
def test_lengths_are_uniform_over_the_legal_ones(task: Task, per: str) -> None:
    steps, batch_size = (8, 256) if per == "sequence" else (600, 1)
    legal = task.legal_lengths(3, 24)
    stream = stream_of(task, batch=batch_size, lengths_per=per, lengths=(3, 24))
    drawn = Counter(n for step in range(steps) for n in stream.batch(step, longest=24).length_B.tolist())
    counts = [drawn.pop(task.positions(length)) for length in legal]
    assert not drawn
    assert_uniform(counts)


def test_a_curriculum_has_equally_long_stages() -> None:
    train = Train(steps=10, curriculum=(5, 9, 13))
    assert [train.longest(step) for step in range(10)] == [5, 5, 5, 5, 9, 9, 9, 13, 13, 13]
    assert [Train(steps=9, curriculum=(5, 9, 13)).longest(step) for step in range(9)] == [5] * 3 + [9] * 3 + [13] * 3
    assert [Train(steps=2, curriculum=(9, 5)).longest(step) for step in range(2)] == [9, 5]
    assert {Train(steps=10, lengths=(3, 7)).longest(step) for step in range(10)} == {7}


def test_a_stage_draws_its_own_lengths_in_its_own_width() -> None:
    task = ModArithmetic()
    stream = stream_of(task, lengths=(3, 40), curriculum=(4, 10, 15), batch=64)
    for step, longest in ((0, 4), (4, 10), (9, 15)):
        batch = stream.batch(step, longest=longest)
        assert set(batch.length_B.tolist()) == {task.positions(length) for length in task.legal_lengths(3, longest)}
        assert batch.tokens_BL.shape[1] == max(batch.length_B)


def evaluated(task: Task, *, count: int = 37, seed: int = 5, split: str = "test", batch: int = 8) -> dict[int, Any]:
    """Row -> its length and string, over all batches of a split."""
    found: dict[int, Any] = {}
    legal = task.legal_lengths(3, 20)
    for sample, rows_B, lengths_B in evaluation_batches(
        task, legal, count=count, seed=seed, split=split, batch=batch, device=CPU
    ):
        assert len(rows_B) == len(lengths_B) == len(sample.tokens_BL) <= batch
        for row, length, string in zip(rows_B.tolist(), lengths_B.tolist(), strings(sample), strict=True):
            assert row not in found
            found[row] = length, string
    return found


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_every_evaluation_row_is_the_one_drawn_alone(task: Task) -> None:
    found = evaluated(task)
    assert sorted(found) == list(range(37))
    lengths = evaluation_lengths(task, task.legal_lengths(3, 20), count=37, seed=5, split="test").tolist()
    for row, (length, string) in found.items():
        assert length == lengths[row]
        assert string == alone(task, seed=5, split="test", row=row, length=length)


@pytest.mark.parametrize("batch", [1, 5, 36, 37, 1000])
def test_evaluation_does_not_depend_on_the_batch_size(batch: int) -> None:
    assert evaluated(ReverseString(), batch=batch) == evaluated(ReverseString())


def test_more_evaluation_strings_are_the_same_and_more() -> None:
    few, many = evaluated(StackManipulation(), count=12), evaluated(StackManipulation(), count=37)
    assert {row: many[row] for row in few} == few


def test_evaluation_goes_from_long_to_short_and_pads_to_the_batchs_longest() -> None:
    task, order, widths = ModArithmetic(), [], []
    for sample, rows_B, lengths_B in evaluation_batches(
        task, task.legal_lengths(3, 20), count=50, seed=0, split="test", batch=8, device=CPU
    ):
        order += zip(lengths_B.tolist(), rows_B.tolist(), strict=True)
        widths.append(sample.tokens_BL.shape[1])
        assert widths[-1] == sample.length_B.max() == task.positions(int(lengths_B.max()))
    assert len(order) == 50 and order == sorted(order, key=lambda pair: (-pair[0], pair[1]))
    assert widths[0] > widths[-1]


def test_evaluation_lengths_are_uniform_over_the_legal_ones() -> None:
    legal = ModArithmetic().legal_lengths(40, 256)
    drawn = Counter(evaluation_lengths(ModArithmetic(), legal, count=8192, seed=0, split="test").tolist())
    counts = [drawn.pop(length) for length in legal]
    assert not drawn
    assert_uniform(counts)


def test_the_splits_are_disjoint_streams() -> None:
    task, length = Parity(), 60
    splits = ("validation", "test", "validation/train", "test/longer")
    drawn = [
        tuple(tokens)
        for split in splits
        for sample, *_ in evaluation_batches(task, (length,), count=64, seed=3, split=split, batch=64, device=CPU)
        for tokens in sample.tokens_BL.tolist()
    ]
    train = stream_of(task, seed=3, lengths=(length, length), batch=64)
    drawn += [tuple(tokens) for step in (0, 1) for tokens in train.batch(step, longest=length).tokens_BL.tolist()]
    assert len(set(drawn)) == len(drawn) == 6 * 64
    lengths = {
        split: tuple(evaluation_lengths(task, range(3, 40), count=64, seed=3, split=split).tolist()) for split in splits
    }
    assert len(set(lengths.values())) == len(splits)


def test_evaluation_strings_depend_on_the_evaluations_seed() -> None:
    assert evaluated(Parity(), seed=5) != evaluated(Parity(), seed=6)
    one, other = ([length for length, _ in evaluated(Parity(), seed=seed).values()] for seed in (5, 6))
    assert one != other


def test_masks_are_addressed_like_strings() -> None:
    stream = stream_of(Parity())
    masks = {step: stream.masks(step).uniform((3, 2)) for step in range(3)}
    assert all(mask.shape == (6, 3, 2) for mask in masks.values())
    assert torch.equal(stream_of(Parity()).masks(1).uniform((3, 2)), masks[1])
    values = torch.cat([mask.flatten() for mask in masks.values()])
    assert len(values.unique()) == len(values)  # 108 of 2**24: no step, row or column repeats another
    half = stream_of(Parity(), batch=3)
    assert torch.equal(torch.cat([half.masks(step).uniform((3, 2)) for step in (2, 3)]), masks[1])
    assert not torch.equal(stream_of(Parity(), seed=4).masks(1).uniform((3, 2)), masks[1])


def test_masks_are_no_part_of_the_strings() -> None:
    stream = stream_of(Parity(), lengths=(4, 4))
    rows = torch.arange(6)
    strings_of = [Draw(seed=3, split=split, rows_B=rows).uniform((4,)) for split in ("train", "train/step")]
    assert not any(torch.equal(stream.masks(0).uniform((4,)), drawn) for drawn in strings_of)
    before = strings(stream.batch(1, longest=4))
    stream.masks(1).uniform((4,))
    assert strings(stream.batch(1, longest=4)) == before


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
@pytest.mark.parametrize("curriculum", [(), (5, 20)])
def test_tokens_of_a_step_are_the_positions_that_training_reads(task: Task, curriculum: tuple[int, ...]) -> None:
    run = run_of(task, batch=64, curriculum=curriculum)
    stream = TrainingStream([run], CPU)
    read = [int(stream.batch(step, longest=high).length_B.sum()) for high in curriculum or (15,) for step in range(40)]
    assert tokens_per_step(run) == pytest.approx(sum(read) / len(read), rel=0.03)
