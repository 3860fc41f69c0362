"""Sentences of a layered grammar, against all sentences of a small one, written out from its rules as text."""

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.train.loop import execute
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.tasks.base import Batch
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.lano import Lano
from support.run_and_refusal import refusal

torch.set_num_threads(1)

SMALL = [
    {"layers": 1, "kinds": 2},
    {"layers": 2, "grammar": 3},
    {"layers": 2, "kinds": 4, "rules": 3, "grammar": 1},
    {"layers": 3, "kinds": 2, "grammar": 5},
]


def sentences(task: Lano) -> dict[str, float]:
    """Every sentence with its probability, from the rules that `ladder describe` prints."""
    rules = dict(rule.split(" -> ") for rule in task.facts["rules"].split("; "))
    chances: dict[str, dict[str, float]] = {}

    def of(word: str) -> dict[str, float]:
        if word not in rules:
            return {word: 1.0}
        if word not in chances:
            sides = rules[word].split(" | ")
            found: dict[str, float] = defaultdict(float)
            for side in sides:
                strings = {"": 1 / len(sides)}
                for part in side.split():
                    strings = {x + y: p * q for x, p in strings.items() for y, q in of(part).items()}
                for string, chance in strings.items():
                    found[string] += chance
            chances[word] = dict(found)
        return chances[word]

    return of("S")


def sampled(task: Lano, length: int, *, rows: int) -> Batch:
    draw = Draw(seed=3, split="test", rows_B=torch.arange(rows))
    return task.sample(draw, torch.full((rows,), length), length)


def spelled(task: Lano, tokens: list[int]) -> str:
    return "".join(task.vocab[token] for token in tokens)


@pytest.mark.parametrize("settings", SMALL)
def test_sentences_are_as_likely_as_their_derivations(settings: dict) -> None:
    task, rows = Lano(**settings), 3000
    law = sentences(task)
    assert sum(law.values()) == pytest.approx(1)
    batch = sampled(task, 2 * 3**task.layers + 2, rows=rows)
    first, second = Counter[str](), Counter[str]()
    for tokens in batch.tokens_BL.tolist():
        nothing, one, two, *_ = (spelled(task, tokens) + "#").split("#")
        assert nothing == ""
        first[one] += 1
        second[two] += 1
    for found in (first, second):
        assert set(found) <= set(law)
        share, seen = Counter[str](), Counter[str]()  # rare sentences count together with those of their beginning
        for string, chance in law.items():
            known = string if chance * rows >= 5 else string[:4]
            share[known] += chance * rows
            seen[known] += found[string]
        surprise = sum((seen[string] - share[string]) ** 2 / share[string] for string in share)
        assert len(share) > 1 and surprise < len(share) + 5 * (2 * len(share)) ** 0.5


@pytest.mark.parametrize("settings", SMALL)
def test_no_guess_is_likelier_than_the_best(settings: dict) -> None:
    task, rows, length = Lano(**settings), 6, 30
    ends = {f"{string}#": chance for string, chance in sentences(task).items()}
    batch = sampled(task, length, rows=rows)
    best_BL = task.best_possible(batch.tokens_BL)
    assert best_BL.dtype == torch.float64
    for tokens, best in zip(batch.tokens_BL.tolist(), best_BL.tolist(), strict=True):
        string = spelled(task, tokens)
        for place in range(length):
            begun = string[: place + 1].rpartition("#")[2]
            fits = {end: chance for end, chance in ends.items() if end.startswith(begun)}
            after: dict[str, float] = defaultdict(float)
            for end, chance in fits.items():
                after[end[len(begun)]] += chance / sum(fits.values())
            assert best[place] == pytest.approx(max(after.values()))


def test_the_laws_are_those_of_the_strings() -> None:
    task, rows, length = Lano(layers=2, grammar=3), 4000, 12
    batch = sampled(task, length, rows=rows)
    counted = torch.nn.functional.one_hot(batch.targets_BL, len(task.vocab)).double().mean(0).numpy()
    assert np.abs(task.answer_law(length) - counted).max() < 5 * (0.25 / rows) ** 0.5
    assert np.allclose(task.answer_law(length).sum(1), 1)


def test_the_facts_say_what_strings_show() -> None:
    task = Lano(layers=2, grammar=3)
    law, facts = sentences(task), task.facts
    mean = sum(chance * len(string) for string, chance in law.items())
    assert facts["sentence"] == f"{mean:.1f} symbols on average"
    string = "".join(spelled(task, tokens) for tokens in sampled(task, 4000, rows=4).tokens_BL.tolist())
    for known, said in zip(
        (1, 2), facts["guess from the last symbol"].replace("from the last two", "").split(" right,"), strict=True
    ):
        seen: dict[str, Counter[str]] = defaultdict(Counter)
        for place in range(known, len(string)):
            seen[string[place - known : place]][string[place]] += 1
        right = sum(max(counter.values()) for counter in seen.values()) / (len(string) - known)
        assert float(said.split()[0]) == pytest.approx(right, abs=0.02)


def test_padding_is_not_read() -> None:
    task = Lano(layers=2)
    draw = Draw(seed=0, split="train", rows_B=torch.arange(2))
    short = task.sample(draw, torch.tensor([5, 9]), 9)
    best_BL = task.best_possible(short.tokens_BL)
    alone = task.best_possible(short.tokens_BL[:1, :5])
    assert torch.equal(best_BL[:1, :5], alone) and bool((best_BL[0, 5:] == 1).all())
    assert short.scored_BL.sum(1).tolist() == [5, 9] and short.prompt_B.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"layers": 8}, "places in a sentence, more than"),
        ({"kinds": 7}, "grammar 0 has too few rules for 7 kinds"),
        ({"kinds": 2, "rules": 7}, "2 kinds of 7 rules need 14 right sides of 12"),
        ({"layers": 0}, "layers must lie in 1..8"),
    ],
)
def test_mistakes_get_one_line(settings: dict, says: str) -> None:
    assert says in refusal(lambda: Lano(**settings))


def test_a_run_measures_the_best_possible_answers(tmp_path: Path) -> None:
    run = Run(
        task=Lano(layers=2),
        model=LSTMConfig(d_model=16),
        train=Train(steps=30, batch=16, lengths=(32, 32)),
        eval=Eval(lengths=(32, 32), test=64, validation=32, bins=(32,), extrapolate=()),
    )
    test = execute(run, Exec(results=tmp_path, device="cpu"), quiet=True)["test"]
    assert 0.5 < test["metrics"]["best_possible"] < 0.95
