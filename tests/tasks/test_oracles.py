"""Every sampled string of every task is in its language and layout, with the oracle's answers and states."""

from dataclasses import fields
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chomsky_ladder.harness.config.registry import find_task
from chomsky_ladder.tasks.base import PAD, Task
from chomsky_ladder.tasks.draw import Draw
from support.cases import full
from support.oracle_checks import IN_PLACE, STORIES, check, closing, legal_size, sample, slots
from support.oracle_variants import SPEC, VARIANTS, VOCABULARIES, variants
from support.oracles import LANGUAGES, ORACLES

SPLITS = st.sampled_from(["train", "validation", "test", "probe/train"]) | st.text(max_size=8)
SEEDS = st.integers(0, 2**31 - 1)
STARTS = st.integers(0, 2**40)
LONGEST = dict.fromkeys(STORIES, 36)
"""The most facts of ten thousand stories: some 250 symbols, as everywhere."""

every_task = pytest.mark.parametrize("name", VARIANTS)


@st.composite
def windows(draw: st.DrawFn, task: Task) -> tuple[int, int]:
    """The shortest and the longest of some neighbouring legal lengths."""
    legal = task.legal_lengths(1, 256)
    first = draw(st.integers(0, len(legal) - 1))
    return legal[first], legal[draw(st.integers(first, len(legal) - 1))]


def test_every_task_is_spoken_of() -> None:
    assert set(VARIANTS) == set(SPEC) == set(ORACLES) == set(LANGUAGES)


@every_task
def test_vocabulary_and_level_are_those_of_the_definition(name: str) -> None:
    task = find_task(name)()
    assert (len(set(task.vocab)), len(set(task.answers)), task.level) == SPEC[name]
    assert len(task.vocab) == SPEC[name][0] and task.vocab[PAD] == "PAD" and PAD not in task.answers


@pytest.mark.parametrize(("name", "settings", "symbols"), VOCABULARIES)
def test_symbols_have_the_order_of_the_definition(name: str, settings: dict[str, Any], symbols: str) -> None:
    task = find_task(name)(**settings)
    assert " ".join(task.vocab) == symbols
    if "END" in symbols:
        assert task.vocab.index("END") in task.answers


@every_task
@given(data=st.data())
def test_the_variants_are_those_of_every_field(name: str, data: st.DataObject) -> None:
    assert set(data.draw(VARIANTS[name])) == {field.name for field in fields(find_task(name))}


@every_task
@pytest.mark.parametrize("rows", [30, full(400)])
@given(seed=SEEDS, split=SPLITS, start=STARTS)
def test_strings_of_the_default_task(name: str, rows: int, seed: int, split: str, start: int) -> None:
    """`--all` draws 400 rows under each of 25 draws: ten thousand strings."""
    task = find_task(name)()
    high = LONGEST.get(name, 256)
    check(task, *sample(task, seed=seed, split=split, start=start, rows=rows, low=1, high=high))


@every_task
@pytest.mark.parametrize("rows", [9, full(60)])
@given(data=st.data(), seed=SEEDS, split=SPLITS, start=STARTS, slack=st.integers(0, 9))
def test_strings_of_every_variant(
    name: str, rows: int, data: st.DataObject, seed: int, split: str, start: int, slack: int
) -> None:
    task = data.draw(variants(name))
    low, high = data.draw(windows(task))
    rows = rows // 3 if getattr(task, "supervision", "final") == "dense" else rows
    check(task, *sample(task, seed=seed, split=split, start=start, rows=rows, low=low, high=high, slack=slack))


@every_task
@given(data=st.data(), seed=SEEDS, start=STARTS, slack=st.integers(1, 60))
def test_a_string_does_not_depend_on_its_batch(
    name: str, data: st.DataObject, seed: int, start: int, slack: int
) -> None:
    task, rows = data.draw(variants(name)), 24
    low, high = data.draw(windows(task))
    lengths, batch = sample(task, seed=seed, split="train", start=start, rows=rows, low=low, high=high)
    order = data.draw(st.permutations(range(rows)).map(lambda order: order[: 1 + seed % rows]))
    before = torch.random.get_rng_state()
    draw = Draw(seed=seed, split="train", rows_B=start + torch.tensor(order))
    width = batch.tokens_BL.shape[1]
    wider = task.sample(draw, torch.tensor(lengths)[order], width + slack)
    assert torch.equal(torch.random.get_rng_state(), before)
    for part, wide in zip(batch, wider, strict=True):
        if part.dim() == 2:
            assert not wide[:, width:].any()
            wide = wide[:, :width]
        assert torch.equal(part[order], wide)


@every_task
@given(data=st.data(), low=st.integers(1, 200), span=st.integers(0, 60))
def test_legal_lengths(name: str, data: st.DataObject, low: int, span: int) -> None:
    task = data.draw(variants(name))
    made = {}  # length -> positions
    for size in (size for size in range(1, 300) if legal_size(task, size)):
        if name in STORIES:
            fact, question = STORIES[name]
            made[size] = size * fact + question
        elif name in IN_PLACE:
            made[size] = size
        else:
            filled = size + len(closing(task)) + slots(task, size) - 1
            made[filled + 1 if task.count == "total" else size] = filled
    expected = [length for length in sorted(made) if low <= length <= low + span]
    assert list(task.legal_lengths(low, low + span)) == expected
    assert [task.positions(length) for length in expected] == [made[length] for length in expected]


@pytest.mark.parametrize(
    "name", ["missing_duplicate", "induction_heads", "needle", "mod_arithmetic_brackets", "solve_equation", "dyck"]
)
def test_dense_supervision_is_refused_where_prefixes_have_no_answers(name: str) -> None:
    settings = {"ask": "valid"} if name == "dyck" else {}
    with pytest.raises(ValueError, match="dense"):
        find_task(name)(**settings, supervision="dense")


def test_one_kind_of_bracket_leaves_nothing_to_ask() -> None:
    with pytest.raises(ValueError, match="kinds"):
        find_task("dyck")(kinds=1)
