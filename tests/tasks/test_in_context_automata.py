"""In-context automata: every string by its own automaton, walked in plain Python, and how often which is drawn."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from chomsky_ladder.harness.config.registry import find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.train.evaluate import Evaluator
from chomsky_ladder.models.backbone import Backbone
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.tasks.base import Batch
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.in_context_automata import InContextAutomata
from support.cases import full
from support.run_and_refusal import refusal

SETTINGS = [
    {},
    {"walks": (1, 1)},
    {"states": (4, 4), "letters": (3, 18), "walks": (1, 40)},
    {"states": (2, 3), "letters": (1, 2), "alphabet": 2, "outgoing": 1},
    {"states": (6, 20), "letters": (26, 26), "alphabet": 26, "outgoing": 5, "walks": (3, 7)},
]


def drawn(task: InContextAutomata, *, rows: int, low: int, high: int, seed: int = 0) -> tuple[Draw, Batch]:
    draw = Draw(seed=seed, split="test", rows_B=torch.arange(rows))
    return draw, task.sample(draw, low + draw.rows_B % (high - low + 1), high)


def automata(task: InContextAutomata, draw: Draw) -> list[list[dict[str, int]]]:
    """Return for each row where every state's letters lead."""
    letter_BNJ, after_BNJ, degree_BN = (part.tolist() for part in task.machines(draw))
    return [
        [
            {task.vocab[letters[edge]]: afters[edge] for edge in range(degree)}
            for letters, afters, degree in zip(*row, strict=True)
        ]
        for row in zip(letter_BNJ, after_BNJ, degree_BN, strict=True)
    ]


@pytest.mark.parametrize("rows", [60, full(10_000)])
@pytest.mark.parametrize("settings", SETTINGS)
def test_strings_are_walks_and_right_is_what_the_automaton_has(settings: dict, rows: int) -> None:
    task = InContextAutomata(**settings)
    draw, batch = drawn(task, rows=rows, low=1, high=90)
    allowed_BLV = task.allowed_in(batch.tokens_BL, draw)
    for row, automaton in enumerate(automata(task, draw)):
        size = row % 90 + 1
        tokens, answers = batch.tokens_BL[row].tolist(), batch.targets_BL[row].tolist()
        last = answers[size - 1]
        string = [task.vocab[token] for token in tokens[:size]] + [task.vocab[last]]
        walks = " ".join(string).split("|")
        assert all(walk.split() for walk in walks)
        fits = (size + 2) // 2
        assert min(task.walks[0], fits) <= len(walks) <= min(task.walks[1], fits)
        state, read = 0, []
        for place, symbol in enumerate(string):
            state = 0 if symbol == "|" else automaton[state][symbol]
            if place < size:
                legal = {task.vocab[token] for token in allowed_BLV[row, place].nonzero()[:, 0].tolist()}
                assert legal == set(automaton[state])
                read.append("PAD" if string[place + 1] == "|" else string[place + 1])
        assert [task.vocab[token] for token in answers] == read + ["PAD"] * (90 - size)
        assert tokens[size:] == [0] * (90 - size)
        scored = batch.scored_BL[row].tolist()
        assert scored == [answer != 0 for answer in answers]
        assert (int(batch.length_B[row]), int(batch.prompt_B[row])) == (size, 1 + scored.index(True))


@pytest.mark.parametrize("settings", SETTINGS)
def test_automata_are_of_their_sizes(settings: dict) -> None:
    """No edge leads to its own state or twice to another; the letters of a state differ and are the automaton's."""
    task, rows = InContextAutomata(**settings), 600
    draw = Draw(seed=3, split="test", rows_B=torch.arange(rows))
    (few, many), (_, most) = task.states, task.letters
    reached = []
    for automaton, degree_N in zip(automata(task, draw), task.machines(draw).degree_BN.tolist(), strict=True):
        inner, queue = {0}, [0]
        for state in queue:
            fresh = set(automaton[state].values()) - inner
            inner |= fresh
            queue += fresh
        for state in inner:
            edges = automaton[state]
            assert len(edges) == degree_N[state] <= task.outgoing  # its letters differ, or one would be lost
            assert state not in edges.values() and len(set(edges.values())) == len(edges)
        assert max(inner) < many
        assert len({letter for edges in automaton[:few] for letter in edges}) <= most
        reached.append(len(inner))
    assert min(reached) >= 2 and max(reached) <= many


def test_numbers_of_edges_walks_and_choices_are_uniform() -> None:
    task, rows = InContextAutomata(), 4000
    draw, batch = drawn(task, rows=rows, low=128, high=128)
    degrees = Counter(task.machines(draw).degree_BN[:, 0].tolist())
    walks = Counter((1 + (batch.tokens_BL == 1).sum(1)).tolist())
    pairs = zip(automata(task, draw), batch.tokens_BL[:, 0].tolist(), strict=True)
    firsts = Counter(
        sorted(automaton[0]).index(task.vocab[token]) for automaton, token in pairs if len(automaton[0]) == 3
    )
    letters = Counter(batch.targets_BL[batch.scored_BL].tolist())
    for counts, num in ((degrees, 3), (walks, 10), (firsts, 3)):
        expected = sum(counts.values()) / num
        assert len(counts) == num and max(abs(n - expected) for n in counts.values()) < 5 * expected**0.5
    mean = sum(letters.values()) / 18
    assert len(letters) == 18 and max(abs(n / mean - 1) for n in letters.values()) < 0.1


def test_floors_are_what_any_letter_scores() -> None:
    task = InContextAutomata()
    for length in (4, 128):
        draw, batch = drawn(task, rows=4000, low=length, high=length)
        legal_NV = task.allowed_in(batch.tokens_BL, draw)[batch.scored_BL].double()
        assert float(legal_NV[:, 2:].mean()) == pytest.approx(task.floors([length]).content_free, rel=0.03)
        assert float(legal_NV[:, 7].mean()) == pytest.approx(task.floors([length]).best_constant, rel=0.1)
        counted = batch.scored_BL.sum(1)
        shares = [(counted > slot).double().mean().item() for slot in range(length)]
        assert task.answer_law(length).sum(1).tolist() == pytest.approx(shares, abs=0.04)


def test_a_model_is_scored_by_the_automata() -> None:
    """An untrained model's score is the share of its answers that its own strings' automata allow."""
    task = InContextAutomata()
    train, settings = Train(steps=10, batch=4, lengths=(20, 20)), Eval(lengths=(20, 24), test=70, batch=32)
    run = Run(task=task, model=LSTMConfig(d_model=8), train=train, eval=settings)
    model = run.model.build(len(task.vocab))
    assert isinstance(model, Backbone)
    evaluator = Evaluator(run, model, device=torch.device("cpu"), backend="auto")
    right = scored = 0
    for answers in evaluator.test_answers():
        draw = Draw(seed=settings.seed, split="test", rows_B=answers.rows_B)
        states = [0] * len(answers.rows_B)
        for row, automaton in enumerate(automata(task, draw)):
            for place, token in enumerate(answers.batch.tokens_BL[row, : int(answers.batch.length_B[row])].tolist()):
                states[row] = 0 if token == 1 else automaton[states[row]][task.vocab[token]]
                if answers.batch.scored_BL[row, place]:
                    right += task.vocab[int(answers.said_BL[row, place])] in automaton[states[row]]
                    scored += 1
    score = evaluator.test()
    assert (sum(score.correct), sum(score.scored)) == (right, scored) and scored > 0


def test_it_allows_several_and_othello_does_and_parity_does_not() -> None:
    assert [find_task(name)().allows_several for name in ("in_context_automata", "othello", "parity")] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"states": (3, 12)}, "states must rise within 4..64, not 3, 12"),
        ({"states": (9, 8)}, "not 9, 8"),
        ({"letters": (4, 19)}, "letters must rise within 3..18, not 4, 19"),
        ({"walks": (0, 3)}, "walks must rise within 1..1024, not 0, 3"),
        ({"alphabet": 27}, "alphabet must lie in 2..26, not 27"),
        ({"outgoing": 0}, "outgoing must lie in 1..8, not 0"),
    ],
)
def test_what_is_no_automaton_is_refused(settings: dict, said: str) -> None:
    assert said in refusal(lambda: replace(InContextAutomata(), **settings))
