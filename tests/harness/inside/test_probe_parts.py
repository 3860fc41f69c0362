"""The parts of a probe: labels from a slow board, splits that share no game, its fit, its counts by hand."""

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
import torch

from chomsky_ladder.harness.inside.probe_fit import History, Stream, fit
from chomsky_ladder.harness.inside.probe_table import Reading, labels_of_others, majority, paired
from chomsky_ladder.harness.inside.settings import ProbeSettings
from chomsky_ladder.harness.inside.streams import strings_of
from support.hand_made_boards import of_hand, some_strings
from support.oracles_othello import Game
from support.othello_runs import BOARD


def test_labels_are_those_of_a_slow_board_at_every_move() -> None:
    strings, places = some_strings(80), list(BOARD.squares)
    position_of = list(zip(strings.string_N.tolist(), strings.position_N.tolist(), strict=True))
    seen, passes = 0, 0
    for game, tokens_L in enumerate(strings.batch.tokens_BL.tolist()):
        slow = Game(6)
        for position, token in enumerate(filter(None, tokens_L)):
            slow.play(BOARD.vocab[token])
            row = position_of.index((game, position))
            assert strings.labels["mine_theirs"][row].tolist() == slow.labels(slow.viewer), (game, position)
            assert strings.labels["black_white"][row].tolist() == slow.labels("B")
            seen += 1
        passes += slow.passes
    assert seen == len(position_of) and passes > 3
    assert places == list(slow.places)


def test_the_splits_are_three() -> None:
    run = of_hand("board").run
    splits = [strings_of(run, f"probe/{name}", count=50, lengths=(60, 60)) for name in ("train", "validation", "test")]
    games = [set(map(tuple, split.batch.tokens_BL.tolist())) for split in splits]
    assert not games[0] & games[1] and not games[0] & games[2] and not games[1] & games[2]
    again = strings_of(replace(run, seed=7), "probe/test", count=50, lengths=(60, 60))
    assert torch.equal(again.batch.tokens_BL, splits[2].batch.tokens_BL)  # the same for every run


def test_accuracies_and_majority_by_hand() -> None:
    train, test = some_strings(30), strings_of(of_hand("board").run, "probe/train", count=20, lengths=(60, 60))
    said_NS = majority(train, "mine_theirs", test, num_classes=3)
    rows = list(zip(test.string_N.tolist(), test.position_N.tolist(), said_NS.tolist(), strict=True))
    labels = test.labels["mine_theirs"].tolist()
    for (_, position, said), cell in product(rows[::17], (0, 7, 14, 35)):
        counts = Counter(train.labels["mine_theirs"][train.position_N == position][:, cell].tolist())
        assert counts[said[cell]] == max(counts.values())
    right = [[a == b for a, b in zip(row[2], label, strict=True)] for row, label in zip(rows, labels, strict=True)]
    found = Reading(said_NS, test.labels["mine_theirs"], test, is_board=True).accuracies()
    flat = [value for row in right for value in row]
    stones = [value for row, label in zip(right, labels, strict=True) for value, c in zip(row, label, strict=True) if c]
    assert found["cell"] == pytest.approx(sum(flat) / len(flat))
    assert found["board"] == pytest.approx(sum(map(all, right)) / len(right))
    assert found["occupied"] == pytest.approx(sum(stones) / len(stones))
    games, positions = {}, {}
    for (game, position, _), row in zip(rows, right, strict=True):
        games.setdefault(game, []).extend(row)
        positions.setdefault(position, []).extend(row)
    means = torch.tensor([sum(values) / len(values) for values in games.values()], dtype=torch.float64)
    assert found["cell_sd_games"] == pytest.approx(float(means.std()))
    assert found["by_position"] == pytest.approx([sum(v) / len(v) for _, v in sorted(positions.items())])
    assert found["by_cell"][7] == pytest.approx(sum(row[7] for row in right) / len(right))


def test_paired_differences_by_hand() -> None:
    found = paired(torch.tensor([3.0, 5.0, 4.0]), torch.tensor([1.0, 1.0, 1.0]))  # differences 2, 4, 3
    assert (found["mean"], found["sd"]) == (3.0, 1.0) and found["se"] == pytest.approx(3**-0.5)
    assert found["mean_over_sd"] == 3.0 and found["mean_over_se"] == pytest.approx(3 * 3**0.5)
    assert paired(torch.ones(4), torch.zeros(4))["mean_over_sd"] is None


def test_shuffled_labels_are_those_of_other_games_at_the_same_move() -> None:
    strings = some_strings(40)
    others_NS, labels_NS = labels_of_others(strings, "mine_theirs", seed=0), strings.labels["mine_theirs"]
    for position in (0, 9, 30):
        rows_N = strings.position_N == position
        found, there = (sorted(map(tuple, x[rows_N].tolist())) for x in (others_NS, labels_NS))
        assert found == there
    assert float((others_NS != labels_NS).any(1).double().mean()) > 0.9
    assert not torch.equal(labels_of_others(strings, "mine_theirs", seed=1), others_NS)


def test_history_by_hand() -> None:
    tokens_BL = torch.tensor([[2, 1, 3, 0], [1, 1, 0, 0]])
    history = History(tokens_BL, torch.tensor([0, 0, 1]), torch.tensor([0, 2, 1]), vocab=4)
    x_ND, position_N = history.rows(torch.arange(3))
    assert position_N.tolist() == [0, 2, 1]
    told = [[(place // 3, place % 3 + 1) for place in row.nonzero()[:, 0].tolist()] for row in x_ND]
    assert told == [[(0, 2)], [(0, 3), (1, 1), (2, 2)], [(0, 1), (1, 1)]]  # (how long ago, which symbol)
    marks_VF = torch.tensor([[0, 0], [1, 0], [0, 1], [1, 1]], dtype=torch.bool)
    marked = History(tokens_BL, torch.tensor([0, 0]), torch.tensor([0, 2]), vocab=4, marks_VF=marks_VF)
    assert marked.rows(torch.arange(2))[0].int().tolist() == [[0, 1, 0, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 1, 0, 0]]


@pytest.mark.parametrize("kind", ["linear", "two_layer"])
def test_a_probe_is_fitted_to_what_can_be_separated(kind: str) -> None:
    x_ND = torch.randn(600, 5, generator=torch.Generator().manual_seed(0)) * torch.tensor([1, 4, 1, 1, 1]) + 100
    labels_NS = torch.stack([(x_ND[:, 0] > 100).long(), (x_ND[:, 1] > 100).long() + (x_ND[:, 1] > 104).long()], 1)
    inputs, position_N = Stream(x_ND, torch.arange(600) % 4, width=4), torch.arange(600) % 4
    settings = ProbeSettings(epochs=40, batch=50)
    found = fit((inputs, labels_NS), (inputs, labels_NS), kind=kind, sizes=(2, 3), settings=settings)
    assert found.validation > 0.97
    logits_NSC = found.probe.logits(x_ND, position_N)
    assert logits_NSC.shape == (600, 2, 3) and bool((logits_NSC[:, 0, 2] == -torch.inf).all())  # it has two classes
    if kind == "linear":
        bias_LCS = found.probe.tensors[1].unflatten(1, (3, 2))
        by_hand_N = x_ND @ found.probe.directions[1, 2] + bias_LCS[position_N, 2, 1]
        assert torch.allclose(by_hand_N, logits_NSC[:, 1, 2], atol=1e-3)


def test_what_a_bias_for_each_position_alone_can_know() -> None:
    position_N = torch.arange(1200) % 6
    labels_NS = (position_N[:, None] % 3).long()
    inputs = Stream(torch.zeros(1200, 2), position_N, width=6)
    settings = ProbeSettings(epochs=8, batch=50, hidden=16)
    for kind in ("linear", "two_layer"):
        assert fit((inputs, labels_NS), (inputs, labels_NS), kind=kind, sizes=(3,), settings=settings).validation == 1
