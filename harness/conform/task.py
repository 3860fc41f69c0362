"""The conformance of a task: each function takes a task, usually one with its default settings."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from chomsky_ladder.harness.config.parts import checked, from_plain, plain
from chomsky_ladder.harness.conform.compare import Skip, same
from chomsky_ladder.harness.conform.meta import META, OneDevice
from chomsky_ladder.tasks.base import COUNTED, LEVELS, PAD, Batch, Task
from chomsky_ladder.tasks.draw import Draw

ROWS = 64
GUESSED = 0.9  # a higher accuracy by guessing says nothing about the language


def declares_itself(task: Task) -> None:
    cls = type(task)
    for name, kind in {"name": str, "version": int}.items():
        assert isinstance(getattr(cls, name, None), kind), f"{name} must be a class attribute of type {kind.__name__}"
    assert cls.name.isidentifier(), f"{cls.name!r} is no identifier"
    assert cls.name == cls.name.lower(), f"{cls.name!r} is not lower-case"
    assert cls.level in LEVELS, f"level {cls.level!r} is not one of {', '.join(LEVELS)}"
    made: Any = cls  # a dataclass by its own decorator or a base's
    assert made.__dataclass_params__.frozen, "the task must be a frozen dataclass"
    assert from_plain(cls, plain(checked(task, where="task")), where="task") == task, "config.json loses settings"
    assert task.vocab[PAD] == "PAD", f"token 0 is PAD, not {task.vocab[PAD]!r}"
    assert len(set(task.vocab)) == len(task.vocab), "two tokens have one symbol"
    assert all(isinstance(token, int) and 0 < token < len(task.vocab) for token in task.answers), "answers are tokens"
    assert len(set(task.answers)) == len(task.answers) >= 2, "fewer than two possible answers"


def lengths_are_legal(task: Task) -> None:
    low, high = _range(task)
    legal = _legal(task)
    assert legal, f"no legal length in {low}..{high}"
    assert list(legal) == sorted(set(legal)), "legal lengths must rise"
    assert low <= legal[0] <= legal[-1] <= high, f"legal lengths {legal[0]}..{legal[-1]} leave {low}..{high}"
    middle = (low + high) // 2
    assert task.legal_lengths(low, middle) == tuple(n for n in legal if n <= middle), "a narrower range has others"
    lengths_B = torch.tensor(legal)
    width = max(map(task.positions, legal))
    batch = task.sample(_draw(torch.arange(len(legal))), lengths_B, width)
    for row, length in enumerate(legal):
        found = int(batch.length_B[row])
        assert found == task.positions(length), f"length {length} fills {found} positions, not {task.positions(length)}"


def batches_have_their_shape(task: Task) -> None:
    batch, width = _batch(task), _width(task)
    for name in ("tokens_BL", "targets_BL"):
        tensor = getattr(batch, name)
        assert tensor.shape == (ROWS, width) and tensor.dtype == torch.int64, f"{name}: {tensor.shape} {tensor.dtype}"
        assert int(tensor.min()) >= 0 and int(tensor.max()) < len(task.vocab), f"{name} leaves the vocabulary"
    assert batch.scored_BL.shape == (ROWS, width) and batch.scored_BL.dtype == torch.bool, "scored_BL must be bool"
    valid_BL = torch.arange(width) < batch.length_B[:, None]
    assert bool((batch.tokens_BL[~valid_BL] == PAD).all()), "tokens behind the end are not PAD"
    assert not bool((batch.scored_BL & ~valid_BL).any()), "a position behind the end is scored"
    assert bool(batch.scored_BL.any(1).all()), "a string has no answer"
    assert bool((batch.targets_BL[~batch.scored_BL] == PAD).all()), "an unscored position has a target"
    said = set(batch.targets_BL[batch.scored_BL].tolist())
    assert said <= set(task.answers), f"targets {sorted(said - set(task.answers))} are not among the answers"
    first_B = batch.scored_BL.int().argmax(1) + 1
    assert bool(((batch.prompt_B >= 1) & (batch.prompt_B <= batch.length_B)).all()), "prompt_B leaves the string"
    assert bool((first_B == batch.prompt_B).all()), "the first answer is not read at the prompt's last position"
    if task.asks_once:
        is_last_BL = torch.arange(width) == batch.length_B[:, None] - 1
        assert torch.equal(batch.scored_BL, is_last_BL), "it asks once, but not at every string's last position alone"


def _numpy_state() -> np.ndarray:
    return np.array(np.random.get_state(legacy=False)["state"]["key"])


def only_the_draw_matters(task: Task) -> None:
    before = torch.get_rng_state()
    first = _batch(task)
    assert torch.equal(torch.get_rng_state(), before), "sampling touches torch's global generator"
    before_numpy = _numpy_state()
    torch.manual_seed(123)
    _same_batch(_batch(task), first, "a second sample")
    torch.set_rng_state(before)
    assert (_numpy_state() == before_numpy).all(), "sampling touches numpy's global generator"
    rows = torch.tensor([5, 50, 0, 33])
    _same_batch(_batch(task, rows=rows), _rows(first, rows), "rows in another batch and order")
    wide = _batch(task, extra=9)
    _same_batch(_rows(wide, torch.arange(ROWS), width=_width(task)), first, "a batch padded wider")
    seeds = torch.arange(ROWS)
    by_tensor = _batch(task, draw=Draw(seed=torch.tensor(0), split="check", rows_B=seeds))
    _same_batch(by_tensor, first, "a seed given as a tensor")


def seeds_and_splits_give_other_strings(task: Task) -> None:
    rows = torch.arange(ROWS)
    first = _batch(task)
    for seed, split in ((1, "check"), (0, "other")):
        other = _batch(task, draw=Draw(seed=seed, split=split, rows_B=rows))
        assert not torch.equal(other.tokens_BL, first.tokens_BL), f"seed {seed}, split {split!r}: the same strings"


def floors_are_what_samples_show(task: Task) -> None:
    if task.allows_several:
        assert type(task).floors is not Task.floors, "where several answers are allowed, floors must be overridden"
        raise Skip("it has floors of its own")
    rows = 20_000
    legal = _legal(task)
    for length in (legal[0], legal[len(legal) // 2], legal[-1]):
        lengths_B = torch.full((rows,), length)
        batch = task.sample(_draw(torch.arange(rows), split="check/floors"), lengths_B, task.positions(length))
        law = torch.from_numpy(task.answer_law(length))
        assert law.shape[1] == len(task.vocab), f"answer_law has {law.shape[1]} columns, not {len(task.vocab)}"
        slot_BL = batch.scored_BL.cumsum(1) - 1
        index = (slot_BL * len(task.vocab) + batch.targets_BL)[batch.scored_BL]
        found = torch.bincount(index, minlength=law.numel()).double()[: law.numel()].reshape(law.shape) / rows
        noise = 1 / rows + (1 / COUNTED if type(task).answer_law is Task.answer_law else 0)
        worst = float(((found - law).abs() / (law * (1 - law) * noise + 1e-6).sqrt()).max())
        assert worst < 6, f"answer_law at length {length} is {worst:.1f} standard errors off"
    floors = task.floors(legal)
    assert floors.s_rand == 1 / len(task.answers), f"s_rand is {floors.s_rand}, not 1 / {len(task.answers)}"
    assert floors.best_constant <= floors.content_free + 0.01 <= 1.02, f"floors out of order: {floors}"


def its_answers_cannot_be_guessed(task: Task) -> None:
    floors = task.floors(_legal(task))
    for guess, share in (("the commonest answer", floors.best_constant), ("length and position", floors.content_free)):
        assert share <= GUESSED, (
            f"{guess} alone scores {share:.2f}, and scaled accuracy counts from {floors.s_rand:.2f}: "
            "draw each answer as often"
        )


def dense_targets_agree_with_shorter_strings(task: Task) -> None:
    if "supervision" not in plain(task):
        raise Skip("it has no supervision setting")
    try:
        dense = replace(task, supervision="dense")
    except ValueError as reason:
        raise Skip(str(reason)) from None
    final_batch, dense_batch = _batch(task), _batch(dense)
    same(dense_batch.tokens_BL, final_batch.tokens_BL, "the strings under dense supervision")
    scored_BL = final_batch.scored_BL
    same(dense_batch.targets_BL[scored_BL], final_batch.targets_BL[scored_BL], "the final answers")
    assert int(dense_batch.scored_BL.sum()) > int(scored_BL.sum()), "dense supervision adds no target"
    assert not dense.asks_once, "under dense supervision it says that it asks once"


def its_state_is_in_range_and_causal(task: Task) -> None:
    if not task.state_sizes:
        raise Skip("it defines no state")
    tokens_BL = _batch(task).tokens_BL
    state_BLS = task.state(tokens_BL)
    assert state_BLS.shape == (*tokens_BL.shape, len(task.state_sizes)), f"state is {tuple(state_BLS.shape)}"
    for part, size in enumerate(task.state_sizes):
        values = state_BLS[..., part]
        assert int(values.min()) >= 0 and int(values.max()) < size, f"part {part} of the state leaves 0..{size - 1}"
    same(task.state(tokens_BL[:, :11]), state_BLS[:, :11], "the state of a prefix")


def allowed_answers_contain_the_target(task: Task) -> None:
    draw = _draw(torch.arange(ROWS))
    batch = _batch(task, draw=draw)
    allowed_BLV = task.allowed_in(batch.tokens_BL, draw)
    if allowed_BLV is None:
        raise Skip("it has one right answer")
    assert allowed_BLV.shape == (*batch.tokens_BL.shape, len(task.vocab)), f"allowed is {tuple(allowed_BLV.shape)}"
    held = allowed_BLV.gather(2, batch.targets_BL[..., None])[..., 0]
    assert bool(held[batch.scored_BL].all()), "a target is not among the allowed answers"


def its_own_oracle_agrees(task: Task) -> None:
    batch = _batch(task)
    for row in range(ROWS):
        answers = task.oracle(batch.tokens_BL[row, : int(batch.prompt_B[row])].tolist())
        if answers is None:
            raise Skip("it brings no oracle")
        found = batch.targets_BL[row][batch.scored_BL[row]].tolist()
        assert found == list(answers), f"row {row}: {found}, and by the oracle {list(answers)}"


def sampling_never_waits_for_the_host(task: Task) -> None:
    """Check that sampling reads no value, so that CUDA graphs can capture it.

    Fake tensors have none, so reading raises.
    """
    legal = _legal(task)
    _batch(task)  # makes the tables that a task keeps, as real tensors
    with FakeTensorMode(allow_non_fake_inputs=True):
        step = torch.zeros((), dtype=torch.int64)
        draw = Draw(seed=step, split="check", rows_B=torch.arange(ROWS) + step * ROWS)
        lengths_B = torch.tensor(legal)[draw.child("lengths").integers(len(legal))]
        task.sample(draw, lengths_B, _width(task))


def sampling_stays_on_its_device(task: Task) -> None:
    """Check that sampling stays on its device.

    On the meta device, a table on the CPU or a value that is read raises.
    """
    legal = _legal(task)
    with OneDevice():
        rows_B = torch.arange(ROWS, device=META)
        draw = Draw(seed=0, split="check", rows_B=rows_B)
        lengths_B = torch.tensor(legal, device=META)[draw.child("lengths").integers(len(legal))]
        batch = task.sample(draw, lengths_B, _width(task))
    for name, tensor in zip(Batch._fields, batch, strict=True):
        assert tensor.device == META, f"{name} is made on the CPU: make it with device=draw.rows_B.device"


def constants_are_made_once(task: Task) -> None:
    """Check that constants are made once. Copying a table to the device for every batch waits for the host."""
    draw, legal = _draw(torch.arange(ROWS)), _legal(task)
    lengths_B, width = torch.tensor(legal)[draw.rows_B % len(legal)], _width(task)
    task.sample(draw, lengths_B, width)
    with ExitStack() as stack:
        for name in ("tensor", "as_tensor", "from_numpy"):
            stack.enter_context(patch.object(torch, name, side_effect=_copied(name)))
        task.sample(draw, lengths_B, width)


def a_gpu_makes_the_same_strings(task: Task) -> None:
    if not torch.cuda.is_available():
        raise Skip("no CUDA device")
    rows = torch.arange(ROWS, device="cuda")
    batch = _batch(task, draw=Draw(seed=0, split="check", rows_B=rows))
    _same_batch(Batch(*(tensor.cpu() for tensor in batch)), _batch(task), "strings made on a GPU")


def _copied(name: str) -> AssertionError:
    return AssertionError(f"sampling a second batch of one shape calls torch.{name}: keep the table (lru_cache)")


def _draw(rows: torch.Tensor, *, split: str = "check") -> Draw:
    return Draw(seed=0, split=split, rows_B=rows)


def _range(task: Task) -> tuple[int, int]:
    """Return the paper's training lengths; for a task without strings that short, lengths from its shortest."""
    if task.own_lengths or task.legal_lengths(3, 40):
        return task.own_lengths or (3, 40)
    shortest = next(iter(task.legal_lengths(1, 1024)), 40)
    return shortest, shortest + 40


def _legal(task: Task) -> tuple[int, ...]:
    return task.legal_lengths(*_range(task))


def _width(task: Task) -> int:
    return max(map(task.positions, _legal(task)))


def _batch(task: Task, *, rows: torch.Tensor | None = None, draw: Draw | None = None, extra: int = 0) -> Batch:
    """Draw rows of a fixed split, with mixed lengths."""
    draw = draw or _draw(torch.arange(ROWS) if rows is None else rows)
    legal = torch.tensor(_legal(task), device=draw.rows_B.device)
    return task.sample(draw, legal[draw.rows_B * 7 % len(legal)], _width(task) + extra)


def _rows(batch: Batch, rows: Sequence[int] | torch.Tensor, *, width: int | None = None) -> Batch:
    return Batch(*(tensor[rows, :width] if tensor.ndim == 2 else tensor[rows] for tensor in batch))


def _same_batch(found: Batch, wanted: Batch, what: str) -> None:
    for name in Batch._fields:
        same(getattr(found, name), getattr(wanted, name), f"{what}: {name}")
