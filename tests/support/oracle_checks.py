"""Holds every row of a batch to the languages, the layouts and the oracles."""

import random
from collections.abc import Sequence
from dataclasses import fields
from functools import cache, partial

import torch

from chomsky_ladder.tasks.base import PAD, Batch, Task
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.layout import Transduction
from support.oracles import LANGUAGES, MACHINES, OPTIONS, ORACLES, PREFIXES
from support.oracles_flare import has_members
from support.oracles_grammar import has_members_and_others as in_and_out
from support.oracles_regular import BESIDE, has_members_and_others, machine_of

CLOSING = {"none": [], "token": ["PAD"], "equals": ["="], "act": ["ACT"]}
STORIES = {"qa_places": (5, 4), "qa_times": (5, 5), "qa_shapes": (7, 7)}
"""The symbols of a fact, and of the question, of the tasks whose length counts facts."""
IN_PLACE = ("mqar", "hidden_states")
"""Tasks with an answer, or none, at every symbol, whose length counts symbols."""
STATE_PARTS = 1500
"""Parts of states that are compared at each position of a batch. States with many parts use fewer rows."""


def settings(task: Task) -> dict[str, object]:
    return {field.name: getattr(task, field.name) for field in fields(task)}


def options(task: Task) -> dict[str, object]:
    return {name: getattr(task, name) for name in OPTIONS.get(task.name, ())}


@cache
def symbols_of(task: Task) -> tuple[tuple[str, ...], dict[str, int]]:
    """The vocabulary, and the token of every symbol; PAD for none."""
    return task.vocab, {"": PAD} | {symbol: token for token, symbol in enumerate(task.vocab)}


def closing(task: Task) -> list[str]:
    return CLOSING[getattr(task, "query", "none")]


def slots(task: Task, size: int) -> int:
    """The most answers behind a string of so many symbols."""
    match task.name:
        case "repetition" | "duplicate_string" | "compression":
            return size * task.copies
        case "binary_addition":
            return size + 1
        case "compute_sqrt":
            return (size + 1) // 2
        case "selective_copying":
            return task.data
        case "brevo":
            return (size - 2) // 3
        case "stack_manipulation":
            return size + (task.end == "token")
    return size if isinstance(task, Transduction) else 1


@cache
def size_of(task: Task, length: int) -> int:
    """The symbols of a string whose length counts everything, or the symbols alone, or facts."""
    if task.name in STORIES:
        fact, question = STORIES[task.name]
        return fact * length + question
    if task.name in IN_PLACE or task.count == "input":
        return length
    (size,) = [size for size in range(1, length) if size + len(closing(task)) + slots(task, size) == length]
    return size


def legal_size(task: Task, size: int) -> bool:
    match task.name:
        case "mod_arithmetic" | "mano":
            return size % 2 == 1
        case _ if getattr(task, "every_length", False):
            return size >= 1
        case "stack_manipulation" | "needle" | "k_hop":
            return size >= 2
        case "missing_duplicate":
            return size % 2 == 0 and size >= 2
        case "binary_addition" | "binary_multiplication" | "induction_heads" | "solve_equation":
            return size >= 3
        case "word_problem":
            return size >= 2 if task.reveal else size % task.tokens_per == 0
        case "state_recall":
            return size % 2 == 1 and size > 2 * (task.bits + task.variables)
        case "depo":
            return size % 2 == 0 and 8 <= size <= 2 * task.num_nodes + 2
        case "brevo":
            return size % 2 == 0 and size >= 8 and 2 * (size // 2 - 1) // 3 + 1 <= task.num_nodes
        case "reachability":
            return size % 2 == 1 and size >= 11
        case "flip_flop":
            return size % 2 == 1 and size >= 3
        case "counter_language":
            return size % (2 if task.language == "anbn" else 3) == 0
        case "dyck":
            return size % 2 == (task.ask == "close") if task.ask == "valid" or task.depth == 1 else size >= 1
        case "selective_copying":
            return size >= task.data
        case "regular":
            made = machine_of(task.pattern, task.table, task.alphabet)[0]
            return has_members_and_others(size, made, beside=BESIDE[task.negatives])
        case "random_dfa":
            made = task.dfa.transitions, task.dfa.accepting
            return has_members_and_others(size, made, beside=BESIDE[task.negatives])
        case "mlregtest":
            made = task.dfa.transitions, task.dfa.accepting
            beside = BESIDE["border" if task.test == "adversarial" else task.negatives]
            return has_members_and_others(size, made, beside=beside)
        case "flare_regular":
            made = task.dfa.transitions, task.dfa.accepting
            return has_members_and_others(size, made, beside=BESIDE[task.negatives])
        case "flare_context_free" | "flare_context_sensitive":
            return has_members(task.language, size)
        case "grammar":
            return in_and_out(task.grammar, size)
        case "mqar":
            return size >= 3 * task.pairs
    return size >= 1


def prefix_answers(task: Task, string: Sequence[str]) -> list[str]:
    """The answer of every prefix, "" where it has none."""
    if task.name in PREFIXES:
        return PREFIXES[task.name](string, **options(task))
    found = [ORACLES[task.name](string[:end], **options(task)) for end in range(1, len(string) + 1)]
    assert all(len(answers) <= 1 for answers in found)
    return ["".join(answers) for answers in found]


def check_row(task: Task, length: int, row: Sequence[list[int]], length_b: int, prompt_b: int) -> list[str]:
    """Hold one row (tokens, targets, scored) to the language, the layout and the oracle; returns its prompt."""
    tokens, targets, scored = row
    width, size = len(tokens), size_of(task, length)
    vocab, token_of = symbols_of(task)
    string = [vocab[token] for token in tokens[:size]]
    assert LANGUAGES[task.name](string, **settings(task)), string
    inputs = prompt = string + closing(task)
    answers = ORACLES[task.name](prompt, **options(task))
    if task.name in IN_PLACE:
        outputs, read_at, end = answers, 1 + next(i for i, answer in enumerate(answers) if answer), length
    else:
        assert 1 <= len(answers) <= slots(task, size), string
        outputs, read_at, end = [""] * (len(prompt) - 1) + answers, len(prompt), len(prompt) + slots(task, size) - 1
    if getattr(task, "decode", "parallel") == "teacher":
        inputs = inputs + answers[:-1]
    asks_every = getattr(task, "asks", "last") == "every"
    if asks_every:
        read_at = 1 + next(place for place, answer in enumerate(prefix_answers(task, string)) if answer)
    if asks_every or getattr(task, "supervision", "final") == "dense":
        outputs[:size] = prefix_answers(task, string)
    if getattr(task, "count", "input") == "total":
        assert length_b == length - 1
    assert (length_b, prompt_b) == (end, read_at)
    expected = [token_of[symbol] for symbol in outputs]
    assert {token for token in expected if token != PAD} <= set(task.answers)
    assert tokens == [token_of[symbol] for symbol in inputs] + [PAD] * (width - len(inputs))
    assert targets == expected + [PAD] * (width - len(expected)), string
    assert scored == [target != PAD for target in targets]
    return prompt


def check_states(task: Task, prompts: Sequence[Sequence[str]], batch: Batch) -> None:
    """Hold the state at every valid position to the machine, which holds its last state after the prompt."""
    machine, num_parts = partial(MACHINES[task.name], **options(task)), len(task.state_sizes)
    states_BLS = task.state(batch.tokens_BL)
    assert states_BLS.dtype == torch.int64 and states_BLS.shape == (*batch.tokens_BL.shape, num_parts)
    assert bool(((states_BLS >= 0) & (states_BLS < torch.tensor(task.state_sizes))).all())
    rows = max(3, STATE_PARTS // num_parts)
    parts = [part[:rows].tolist() for part in states_BLS.unbind(-1)]
    for prompt, length_b, *row in zip(prompts[:rows], batch.length_B[:rows].tolist(), *parts, strict=True):
        states = machine(prompt)
        states += states[-1:] * (length_b - len(states))
        assert list(zip(*(part[:length_b] for part in row), strict=True)) == states, prompt


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
