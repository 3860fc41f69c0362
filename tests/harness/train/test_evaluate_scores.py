"""Scores: hits, tokens, lengths and strings, and how a summary puts them into bins."""

from dataclasses import replace

import pytest
import torch

from chomsky_ladder.harness.train.outcome import summary
from chomsky_ladder.harness.train.score import Score, scaled
from chomsky_ladder.tasks.mod_arithmetic import ModArithmetic
from chomsky_ladder.tasks.reverse_string import ReverseString
from support.slow_scores import SMALL, evaluator_of, run_of

torch.set_num_threads(1)


SCORE = Score(
    lengths=(3, 5, 8),
    strings=(2, 4, 1),
    exact=(1, 2, 0),
    scored=(4, 12, 4),
    correct=(3, 9, 0),
    hits=(2, 8, 0),
    nats=(1.5, 2.25, 6.25),
)


def test_loss_and_hits_weigh_every_answer_alike() -> None:
    assert SCORE.loss() == 10 / 20
    assert SCORE.hit_share() == 10 / 20
    assert replace(SCORE, nats=(0.0, 0.0, 0.0)).loss() == 0.0
    assert replace(SCORE, nats=(1e16, 20.0, -1e16)).loss() == 1.0  # summed without rounding
    assert replace(SCORE, hits=SCORE.scored).hit_share() == 1.0
    assert replace(SCORE, correct=SCORE.scored).hit_share() == SCORE.hit_share()


def test_accuracy_by_tokens_weighs_every_answer_alike() -> None:
    assert SCORE.accuracy() == 12 / 20
    assert SCORE.accuracy(score="tokens", low=4) == 9 / 16
    assert SCORE.accuracy(score="tokens", high=5) == 12 / 16


def test_accuracy_by_lengths_weighs_every_length_alike() -> None:
    assert SCORE.accuracy(score="lengths") == pytest.approx((0.75 + 0.75 + 0) / 3)
    assert SCORE.accuracy(score="lengths", low=5, high=8) == pytest.approx(0.75 / 2)


def test_a_range_holds_both_its_ends_and_may_be_empty() -> None:
    assert SCORE.accuracy(low=3, high=3) == 0.75
    assert SCORE.accuracy(low=8) == 0.0
    assert SCORE.accuracy(low=6, high=7) is None
    assert SCORE.accuracy(low=9, score="lengths") is None


def test_exact_strings_and_perfection() -> None:
    assert SCORE.exact_share() == 3 / 7
    assert not SCORE.is_perfect()
    assert replace(SCORE, correct=SCORE.scored).is_perfect()
    assert not replace(SCORE, correct=(4, 12, 3)).is_perfect()


def test_a_score_survives_its_plain_form() -> None:
    assert SCORE.plain() == {
        "lengths": [3, 5, 8],
        "strings": [2, 4, 1],
        "exact": [1, 2, 0],
        "scored": [4, 12, 4],
        "correct": [3, 9, 0],
        "hits": [2, 8, 0],
        "nats": [1.5, 2.25, 6.25],
    }
    assert Score.from_plain(SCORE.plain()) == SCORE


def test_scaled_accuracy_is_nought_at_chance_and_one_when_perfect() -> None:
    for chance in (0.5, 0.2, 1 / 126):
        assert scaled(chance, chance) == 0.0
        assert scaled(1.0, chance) == 1.0
    assert scaled(0.6, 0.2) == pytest.approx(0.5)
    assert scaled(0.0, 0.5) == -1.0


@pytest.mark.parametrize("how", ["tokens", "lengths"])
def test_the_bins_of_a_summary_part_the_whole(how: str) -> None:
    measured = replace(SMALL, bins=(5, 7, 10, 14), score=how)
    run = run_of(ReverseString(num_symbols=2), measured=measured)
    score = evaluator_of(run).test()
    tree = summary(run, score)
    assert list(tree["bins"]) == ["5..7", "8..10", "11..14"] == list(tree["content_free_bins"])
    parts = [(5, 7), (8, 10), (11, 14)]
    for (low, high), floor in zip(parts, tree["content_free_bins"].values(), strict=True):
        assert floor == run.task.floors(range(low, high + 1), score=how).content_free == pytest.approx(0.5)
    assert list(tree["bins"].values()) == [score.accuracy(score=how, low=low, high=high) for low, high in parts]
    weights = [
        sum(
            1 if how == "lengths" else n
            for length, n in zip(score.lengths, score.scored, strict=True)
            if a <= length <= b
        )
        for a, b in parts
    ]
    whole = sum(weight * value for weight, value in zip(weights, tree["bins"].values(), strict=True)) / sum(weights)
    assert tree["accuracy"] == score.accuracy(score=how) == pytest.approx(whole)
    assert len(set(tree["bins"].values())) == 3
    assert tree["scaled"] == pytest.approx(2 * whole - 1)
    assert tree["exact"] == score.exact_share()
    assert (tree["hits"], tree["loss"]) == (score.hit_share(), score.loss())
    assert tree["hits"] == score.accuracy()  # one answer is right here
    assert Score.from_plain(tree["counts"]) == score


def test_a_bin_without_strings_is_left_out() -> None:
    run = run_of(ModArithmetic(), measured=replace(SMALL, bins=(5, 7, 8, 13)))
    tree = summary(run, evaluator_of(run).test())
    assert list(tree["bins"]) == list(tree["content_free_bins"]) == ["5..7", "9..13"]
    assert None not in tree["bins"].values()


def test_floors_of_dense_supervision_are_those_of_what_is_scored() -> None:
    measured = replace(SMALL, bins=(5, 14))
    trees = []
    for supervision in ("final", "dense"):
        run = run_of(ModArithmetic(supervision=supervision), measured=measured)
        trees.append(summary(run, evaluator_of(run).test()))
    assert trees[0] == trees[1]
