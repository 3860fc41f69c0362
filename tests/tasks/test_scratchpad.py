"""Scratchpads: the steps of each task by the oracle of that task, prefix by prefix, and what the control leaves out."""

from dataclasses import replace

import pytest
import torch

from chomsky_ladder.harness.config.registry import find_model
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.train.evaluate import Evaluator
from chomsky_ladder.harness.train.forward import Answers
from chomsky_ladder.harness.train.metric import metrics_of
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.long_addition import LongAddition
from chomsky_ladder.tasks.scratchpad import Scratchpad
from support.cases import full
from support.oracles import OPTIONS, ORACLES
from support.run_and_refusal import refusal

KINDS = [{"of": "parity"}, {"of": "cycle_nav"}, {"of": "mod_arithmetic"}]
KINDS += [{"of": "word_problem"}, {"of": "word_problem", "group": "Z3"}]


@pytest.mark.parametrize("rows", [40, full(10_000)])
@pytest.mark.parametrize("decode", ["teacher", "parallel"])
@pytest.mark.parametrize("scratchpad", ["steps", "padding", "none"])
@pytest.mark.parametrize("settings", KINDS)
def test_steps_are_the_answers_of_prefixes(settings: dict, scratchpad: str, decode: str, rows: int) -> None:
    task = Scratchpad(**settings, scratchpad=scratchpad, decode=decode)
    vocab, legal = task.vocab, task.legal_lengths(1, 24)
    options = {name: getattr(task.task, name) for name in OPTIONS.get(task.of, ())}
    lengths_B = torch.tensor(legal)[torch.arange(rows) % len(legal)]
    width = task.positions(legal[-1]) + 3
    batch = task.sample(Draw(seed=0, split="test", rows_B=torch.arange(rows)), lengths_B, width)
    for row, length in enumerate(lengths_B.tolist()):
        string = [vocab[token] for token in batch.tokens_BL[row, :length].tolist()]
        ends = range(1, length + 1, 2 if task.of == "mod_arithmetic" else 1)
        steps = [ORACLES[task.of](string[:end], **options)[0] for end in ends]
        inputs, answers = [*string, "ACT"], [""] * length
        if scratchpad == "steps":
            inputs += steps[:-1] if decode == "teacher" else ["PAD"] * (len(steps) - 1)
            answers += steps
        elif scratchpad == "padding":
            inputs += ["."] * (len(steps) - 1)
            answers += [""] * (len(steps) - 1) + steps[-1:]
        else:
            answers += steps[-1:]
        blank = width - len(inputs)
        assert [vocab[token] for token in batch.tokens_BL[row].tolist()] == inputs + ["PAD"] * blank
        found = [vocab[token] if token else "" for token in batch.targets_BL[row].tolist()]
        assert found == answers + [""] * blank
        assert batch.scored_BL[row].tolist() == [answer != "" for answer in found]
        first = 1 + next(place for place, answer in enumerate(answers) if answer)
        assert (int(batch.length_B[row]), int(batch.prompt_B[row])) == (task.positions(length), first)
        assert len(inputs) == task.positions(length)


def test_the_strings_are_the_same_with_steps_and_without() -> None:
    made = []
    for scratchpad in ("steps", "padding", "none"):
        draw = Draw(seed=0, split="test", rows_B=torch.arange(20))
        task = Scratchpad(scratchpad=scratchpad)
        batch = task.sample(draw, torch.full((20,), 9), task.positions(9))
        last = batch.targets_BL.gather(1, batch.length_B[:, None] - 1)
        made.append(torch.cat([batch.tokens_BL[:, :9], last], dim=1))
    assert torch.equal(made[0], made[1]) and torch.equal(made[0], made[2])


def test_a_model_reads_its_own_steps_and_the_last_is_counted() -> None:
    """An untrained model's steps, fed back by hand; the metric counts its last ones."""
    task = Scratchpad(of="cycle_nav")
    train = Train(steps=10, batch=4, lengths=(5, 5))
    settings = Eval(lengths=(5, 9), test=60, batch=16)
    run = Run(task=task, model=replace(find_model("lstm")(), d_model=8), train=train, eval=settings)
    torch.manual_seed(0)
    model = run.model.build(len(task.vocab)).eval()
    evaluator = Evaluator(run, model, device=torch.device("cpu"), backend="auto")
    last = strings = 0
    for answers in evaluator.test_answers():
        for row, size in enumerate(answers.lengths_B.tolist()):
            heard = answers.batch.tokens_BL[row].tolist()
            said = answers.said_BL[row].tolist()
            assert heard[size + 1 : 2 * size] == said[size : 2 * size - 1]
            last += said[2 * size - 1] == int(answers.batch.targets_BL[row, 2 * size - 1])
            strings += 1
    score = evaluator.test()
    assert sum(score.others["last_answer"]) == last and sum(score.strings) == strings == 60


def test_nothing_is_fed_back_without_steps() -> None:
    assert [Scratchpad(scratchpad=kind).decode for kind in ("steps", "padding", "none")] == [
        "teacher",
        "parallel",
        "parallel",
    ]
    assert [Scratchpad(scratchpad=kind).writes_steps for kind in ("steps", "padding", "none")] == [True, False, False]


def test_what_has_no_steps_is_refused() -> None:
    assert "group is a setting of of='word_problem'" in refusal(lambda: Scratchpad(group="A5"))
    assert "Q9" in refusal(lambda: Scratchpad(of="word_problem", group="Q9"))


def sum_written(string: list[str]) -> tuple[list[str], list[str]]:
    """The carries and the bits of a + b, the least first."""
    bits = len(string) // 2
    a, b = (int("".join(part)[::-1], 2) for part in (string[:bits], string[bits + 1 :]))
    carries = [str(((a % 2**place) + (b % 2**place)) >> place) for place in range(1, bits + 1)]
    return carries, list(f"{a + b:0{bits + 1}b}"[::-1])


@pytest.mark.parametrize("rows", [60, full(10_000)])
@pytest.mark.parametrize("decode", ["teacher", "parallel"])
@pytest.mark.parametrize("scratchpad", ["steps", "padding", "none"])
def test_carries_are_written_before_the_sum(scratchpad: str, decode: str, rows: int) -> None:
    task = LongAddition(scratchpad=scratchpad, decode=decode)
    vocab, legal = task.vocab, task.legal_lengths(1, 60)
    assert legal == tuple(range(3, 60, 2))
    lengths_B = torch.tensor(legal)[torch.arange(rows) % len(legal)]
    width = task.positions(legal[-1]) + 3
    batch = task.sample(Draw(seed=0, split="test", rows_B=torch.arange(rows)), lengths_B, width)
    final_BL = task.final_answers(batch)
    for row, length in enumerate(lengths_B.tolist()):
        string = [vocab[token] for token in batch.tokens_BL[row, :length].tolist()]
        assert string.index("+") == length // 2 and set(string[: length // 2] + string[length // 2 + 1 :]) <= {"0", "1"}
        carries, digits = sum_written(string)
        before = {"steps": carries, "padding": ["."] * len(carries), "none": []}[scratchpad]
        written = [*(before if scratchpad == "steps" else [""] * len(before)), *digits]
        heard = [*before, *digits][:-1] if scratchpad == "steps" else [*before, *["PAD"] * (len(digits) - 1)]
        if decode == "parallel" and scratchpad == "steps":
            heard = ["PAD"] * len(heard)
        inputs = [*string, "ACT", *heard]
        assert len(inputs) == task.positions(length) == int(batch.length_B[row])
        padding = width - len(inputs)
        assert [vocab[token] for token in batch.tokens_BL[row].tolist()] == inputs + ["PAD"] * padding
        answers = [""] * length + written + [""] * padding
        assert [vocab[token] if token else "" for token in batch.targets_BL[row].tolist()] == answers
        assert batch.scored_BL[row].tolist() == [answer != "" for answer in answers]
        assert final_BL[row].nonzero()[:, 0].tolist() == [*range(len(inputs) - len(digits), len(inputs))]
        assert int(batch.prompt_B[row]) == 1 + next(place for place, answer in enumerate(answers) if answer)


def test_a_sum_is_right_whatever_its_carries() -> None:
    task = LongAddition()
    batch = task.sample(Draw(seed=0, split="test", rows_B=torch.arange(4)), torch.full((4,), 7), 16)
    right_BL = batch.scored_BL.clone()
    right_BL[0, 8] = False  # a carry
    right_BL[1, 12] = False  # a bit of the sum
    nothing = torch.zeros(4)
    answers = Answers(batch, nothing, nothing, batch.targets_BL, right_BL, nothing, task)
    (metric,) = [metric for metric in metrics_of(task) if metric.name == "last_answer"]
    assert metric.count(answers).tolist() == [True, False, True, True]
    assert not [metric for metric in metrics_of(LongAddition(scratchpad="none")) if metric.name == "last_answer"]


def test_a_strings_numbers_are_the_same_in_any_width() -> None:
    draw = [Draw(seed=0, split="test", rows_B=torch.arange(20)) for _ in range(2)]
    task = LongAddition()
    narrow, wide = (task.sample(one, torch.full((20,), 9), width) for one, width in zip(draw, (18, 40), strict=True))
    assert torch.equal(narrow.tokens_BL, wide.tokens_BL[:, :18])
