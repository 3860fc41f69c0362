"""Every sampled string of the seven first tasks is in its language and layout, with the oracle's answers and states."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import MACHINES, OPTIONS, ORACLES

from tasks.base import PAD, Batch, Task
from tasks.bucket_sort import BucketSort
from tasks.cycle_nav import CycleNav
from tasks.draw import Draw
from tasks.even_pairs import EvenPairs
from tasks.layout import Classification, Transduction
from tasks.mod_arithmetic import ModArithmetic
from tasks.parity import Parity
from tasks.reverse_string import ReverseString
from tasks.stack_manipulation import StackManipulation

CLOSING = {"none": [], "token": ["PAD"], "equals": ["="], "act": ["ACT"]}
SPLITS = st.sampled_from(["train", "validation", "test", "probe/train"]) | st.text(max_size=8)
SEEDS = st.integers(0, 2**31 - 1)
STARTS = st.integers(0, 2**40)

COUNTS = st.sampled_from(["total", "input"])
QUERIES = st.sampled_from(["none", "token"])
SUPERVISIONS = st.sampled_from(["final", "dense"])
DECODES = st.sampled_from(["parallel", "teacher"])
VARIANTS: dict[type[Task], st.SearchStrategy[Task]] = {
    Parity: st.builds(Parity, count=COUNTS, query=QUERIES, supervision=SUPERVISIONS),
    EvenPairs: st.builds(EvenPairs, count=COUNTS, query=QUERIES, supervision=SUPERVISIONS),
    CycleNav: st.builds(
        CycleNav, count=COUNTS, query=QUERIES, supervision=SUPERVISIONS, cycle=st.integers(2, 7) | st.integers(2, 300)
    ),
    ModArithmetic: st.builds(
        ModArithmetic,
        count=COUNTS,
        query=QUERIES | st.just("equals"),
        supervision=SUPERVISIONS,
        modulus=st.integers(2, 12) | st.integers(2, 50),
        operators=st.sampled_from(["+-*", "+-"]),
    ),
    BucketSort: st.builds(
        BucketSort, count=COUNTS, query=QUERIES, decode=DECODES, num_symbols=st.integers(2, 12) | st.integers(2, 300)
    ),
    ReverseString: st.builds(
        ReverseString, count=COUNTS, query=QUERIES | st.just("act"), decode=DECODES, num_symbols=st.integers(2, 100)
    ),
    StackManipulation: st.builds(
        StackManipulation,
        count=COUNTS,
        query=QUERIES | st.just("act"),
        decode=DECODES,
        num_symbols=st.integers(2, 6) | st.integers(2, 100),
        push=st.integers(1, 5) | st.just(0),
        pop=st.integers(1, 5),
    ),
}
SPEC: dict[type[Task], tuple[int, int, str]] = {  # symbols in the vocabulary, possible answers, level
    Parity: (3, 2, "regular"),
    EvenPairs: (3, 2, "regular"),
    CycleNav: (9, 5, "regular"),
    ModArithmetic: (10, 5, "regular"),
    BucketSort: (11, 10, "context_sensitive"),
    ReverseString: (12, 10, "context_free"),
    StackManipulation: (11, 4, "context_free"),
}
every_task = pytest.mark.parametrize("cls", VARIANTS, ids=lambda cls: cls.name)


def options(task: Task) -> dict[str, int]:
    return {name: getattr(task, name) for name in OPTIONS.get(task.name, ())}


def language(task: Task) -> str:
    """A regular expression for the strings of a task, a blank after each symbol."""
    match task:
        case Parity() | EvenPairs():
            return "([ab] )+"
        case CycleNav():
            return r"((STAY|\+1|-1) )+"
        case ModArithmetic(modulus=modulus, operators=operators):
            digit = f"({'|'.join(map(str, range(modulus)))})"
            return f"({digit} [{re.escape(operators)}] )*{digit} "
        case BucketSort(num_symbols=num) | ReverseString(num_symbols=num):
            return f"(({'|'.join(map(str, range(num)))}) )+"
        case StackManipulation(num_symbols=num):
            symbol = f"({'|'.join(map(str, range(1, num + 1)))})"
            return f"(ST{symbol} )+((POP|PS{symbol}) )+"
    raise AssertionError(task)


def size_of(task: Task, length: int) -> int:
    """The symbols of a string whose length counts everything, or the symbols alone."""
    if task.count == "input":
        return length
    rest = length - len(CLOSING[task.query])
    return rest // 2 if isinstance(task, Transduction) else rest - 1


def legal_size(task: Task, size: int) -> bool:
    match task:
        case ModArithmetic():
            return size % 2 == 1
        case StackManipulation():
            return size >= 2
        case _:
            return size >= 1


def check_row(task: Task, length: int, row: Sequence[list[int]], length_b: int, prompt_b: int) -> list[str]:
    """Hold one row (tokens, targets, scored) to the language, the layout and the oracle; returns its prompt."""
    tokens, targets, scored = row
    width, size, oracle = len(tokens), size_of(task, length), partial(ORACLES[task.name], **options(task))
    vocab = task.vocab
    token_of = {symbol: token for token, symbol in enumerate(vocab)}
    word = [vocab[token] for token in tokens[:size]]
    assert re.fullmatch(language(task), " ".join(word) + " "), word
    prompt = word + CLOSING[task.query]
    answers = [token_of[answer] for answer in oracle(prompt)]
    assert prompt_b == len(prompt) and set(answers) <= set(task.answers)

    inputs = [token_of[symbol] for symbol in prompt]
    outputs = [PAD] * (len(prompt) - 1) + answers
    if isinstance(task, Transduction):
        assert 1 <= len(answers) <= size and length_b == len(prompt) + size - 1
        inputs += answers[:-1] if task.decode == "teacher" else []
    else:
        assert len(answers) == 1 and length_b == len(prompt)
        if task.supervision == "dense":
            step = 2 if isinstance(task, ModArithmetic) else 1
            for end in range(1, size + 1, step):
                (outputs[end - 1],) = (token_of[answer] for answer in oracle(word[:end]))
    if task.count == "total":
        assert length_b == length - 1
    assert tokens == inputs + [PAD] * (width - len(inputs))
    assert targets == outputs + [PAD] * (width - len(outputs))
    assert scored == [target != PAD for target in targets]
    return prompt


def check_states(task: Task, prompts: Sequence[Sequence[str]], batch: Batch) -> None:
    """Hold the state at every valid position to the machine, which holds its last state after the prompt."""
    machine = partial(MACHINES[task.name], **options(task))
    states_BLS = task.state(batch.tokens_BL)
    assert states_BLS.dtype == torch.int64 and states_BLS.shape == (*batch.tokens_BL.shape, len(task.state_sizes))
    assert bool(((states_BLS >= 0) & (states_BLS < torch.tensor(task.state_sizes))).all())
    parts = states_BLS.unbind(-1)
    for prompt, length_b, *rows in zip(prompts, batch.length_B.tolist(), *(p.tolist() for p in parts), strict=True):
        states = machine(prompt)
        states += states[-1:] * (length_b - len(states))
        assert list(zip(*(row[:length_b] for row in rows), strict=True)) == states, prompt


def check(task: Task, lengths: Sequence[int], batch: Batch) -> None:
    """Hold every row of a batch to the oracles."""
    rows = zip(batch.tokens_BL.tolist(), batch.targets_BL.tolist(), batch.scored_BL.tolist(), strict=True)
    sizes = zip(batch.length_B.tolist(), batch.prompt_B.tolist(), strict=True)
    prompts = []
    for length, row, (length_b, prompt_b) in zip(lengths, rows, sizes, strict=True):
        assert length_b == task.positions(length)
        prompts.append(check_row(task, length, row, length_b, prompt_b))
    if task.name in MACHINES:
        check_states(task, prompts, batch)
    else:
        assert task.state_sizes == ()


def sample(
    task: Task, *, seed: int, split: str, start: int, rows: int, low: int, high: int, slack: int = 0
) -> tuple[list[int], Batch]:
    """Rows start .. start + rows, their lengths any mixture of the legal ones in low..high."""
    lengths = random.Random(f"{seed} {split} {start}").choices(task.legal_lengths(low, high), k=rows)
    draw = Draw(seed=seed, split=split, rows_B=torch.arange(start, start + rows))
    width = max(map(task.positions, lengths)) + slack
    return lengths, task.sample(draw, torch.tensor(lengths), width)


@every_task
def test_vocabulary_and_level_are_those_of_the_paper(cls: type[Task]) -> None:
    task = cls()
    symbols, answers, level = SPEC[cls]
    assert (len(set(task.vocab)), len(set(task.answers)), task.level) == (symbols, answers, level)
    assert len(task.vocab) == symbols and task.vocab[PAD] == "PAD" and PAD not in task.answers


@every_task
@given(seed=SEEDS, split=SPLITS, start=STARTS)
def test_ten_thousand_strings_of_the_default_task(cls: type[Task], seed: int, split: str, start: int) -> None:
    lengths, batch = sample(cls(), seed=seed, split=split, start=start, rows=400, low=3, high=256)
    check(cls(), lengths, batch)


@every_task
@given(data=st.data(), seed=SEEDS, split=SPLITS, start=STARTS, low=st.integers(3, 250), slack=st.integers(0, 9))
def test_strings_of_every_variant(
    cls: type[Task], data: st.DataObject, seed: int, split: str, start: int, low: int, slack: int
) -> None:
    task = data.draw(VARIANTS[cls])
    high = data.draw(st.integers(low + 3, 256))
    rows = 20 if getattr(task, "supervision", "final") == "dense" else 60
    check(task, *sample(task, seed=seed, split=split, start=start, rows=rows, low=low, high=high, slack=slack))


@every_task
@given(data=st.data(), seed=SEEDS, start=STARTS, low=st.integers(3, 100), slack=st.integers(1, 60))
def test_a_string_does_not_depend_on_its_batch(
    cls: type[Task], data: st.DataObject, seed: int, start: int, low: int, slack: int
) -> None:
    task, rows = data.draw(VARIANTS[cls]), 24
    lengths, batch = sample(task, seed=seed, split="train", start=start, rows=rows, low=low, high=low + 60)
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
def test_legal_lengths(cls: type[Task], data: st.DataObject, low: int, span: int) -> None:
    task = data.draw(VARIANTS[cls])
    closing = len(CLOSING[task.query])
    made = {}  # length -> positions
    for size in filter(partial(legal_size, task), range(1, 300)):
        slots = size if isinstance(task, Transduction) else 1
        made[size + closing + slots if task.count == "total" else size] = size + closing + slots - 1
    expected = [length for length in sorted(made) if low <= length <= low + span]
    assert list(task.legal_lengths(low, low + span)) == expected
    assert [task.positions(length) for length in expected] == [made[length] for length in expected]


@every_task
def test_neighbouring_symbols_are_uniform_and_independent(cls: type[Task]) -> None:
    """Five standard deviations for every pair of symbols at two neighbouring places of a string of ten or eleven."""
    task, rows = replace(cls(), count="input", query="none"), 20_000
    (length,) = task.legal_lengths(10, 11)[-1:]
    draw = Draw(seed=1, split="train", rows_B=torch.arange(rows))
    tokens = task.sample(draw, torch.full((rows,), length), task.positions(length)).tokens_BL[:, :length].tolist()
    if isinstance(task, StackManipulation):  # symbols lie densely only in the initial stack, operations at the end
        tokens = [row[:1] + row[-1:] for row in tokens if row[-1] in range(7, 11)]
    step = 2 if isinstance(task, ModArithmetic) else 1
    for places in {(0, 1), (0, step), (len(tokens[0]) - 1 - step, len(tokens[0]) - 1)}:
        counts = Counter(tuple(row[place] for place in places) for row in tokens)
        share = [sorted({row[place] for row in tokens}) for place in places]
        p = 1 / (len(share[0]) * len(share[1]))
        tolerance = 5 * (len(tokens) * p * (1 - p)) ** 0.5
        for pair in ((a, b) for a in share[0] for b in share[1]):
            assert abs(counts[pair] - len(tokens) * p) < tolerance, (places, pair)


@pytest.mark.parametrize(("push", "pop"), [(1, 1), (3, 1), (1, 4), (0, 1)])
def test_initial_stacks_are_uniform_in_size_and_operations_follow_their_weights(push: int, pop: int) -> None:
    task, rows, size = StackManipulation(count="input", push=push, pop=pop), 20_000, 9
    draw = Draw(seed=2, split="train", rows_B=torch.arange(rows))
    tokens = task.sample(draw, torch.full((rows,), size), task.positions(size)).tokens_BL[:, :size].tolist()
    words = [[task.vocab[token] for token in row] for row in tokens]
    initial = Counter(sum(symbol.startswith("ST") for symbol in word) for word in words)
    assert set(initial) == set(range(1, size))
    expected = rows / (size - 1)
    assert all(abs(count - expected) < 5 * expected**0.5 for count in initial.values())
    free = [after for word in words for before, after in pairwise(word[:-1]) if before.startswith("P")]
    pushed = sum(symbol.startswith("PS") for symbol in free)
    p = push / (push + pop)
    assert abs(pushed - len(free) * p) <= 5 * (len(free) * p * (1 - p)) ** 0.5


@pytest.mark.parametrize(
    "part", ["token", "blank", "padding", "target", "unscored", "scored", "length", "prompt", "state"]
)
@every_task
def test_the_check_finds_one_wrong_value(cls: type[Task], part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = cls()
    if part == "blank" and isinstance(task, Classification):
        pytest.skip("one answer leaves no blank slot")
    if part == "state" and not task.state_sizes:
        pytest.skip("no state")
    lengths, batch = sample(task, seed=0, split="train", start=0, rows=3, low=20, high=21, slack=2)
    check(task, lengths, batch)
    last, wrong = batch.length_B[1] - 1, task.answers[0]
    final = batch.scored_BL[1].nonzero()[-1, 0]
    other = task.answers[int(batch.targets_BL[1, final] == wrong)]
    match part:
        case "token":
            batch.tokens_BL[1, 0] = len(task.vocab)
        case "blank":
            batch.tokens_BL[1, last] = wrong
        case "padding":
            batch.tokens_BL[1, last + 1] = wrong
        case "target":
            batch.targets_BL[1, final] = other
        case "unscored":
            batch.targets_BL[1, 0] = wrong
        case "scored":
            batch.scored_BL[1, final] = False
        case "length":
            batch.length_B[1] += 1
        case "prompt":
            batch.prompt_B[1] -= 1
        case "state":
            state = task.state(batch.tokens_BL)
            state[1, last] += 1
            monkeypatch.setattr(cls, "state", lambda self, tokens_BL: state)
    with pytest.raises((AssertionError, IndexError)):
        check(task, lengths, batch)
