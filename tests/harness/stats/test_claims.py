"""The permutation test against counting in fractions, and what a cell's verdict lets one claim."""

import math
import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chomsky_ladder.harness.stats.cell_stats import cell_stats
from chomsky_ladder.harness.stats.claims import Verdict, holm, permutation_test, verdict
from support.records_by_hand import frame, record

HUNDREDTHS = st.integers(0, 100)


def by_counting(first: Sequence[int], second: Sequence[int]) -> Fraction:
    """The exact two-sided p of whole numbers, in fractions, over places and not over values."""
    pooled = [*first, *second]

    def apart(places: Sequence[int]) -> Fraction:
        chosen = [pooled[place] for place in places]
        rest = [value for place, value in enumerate(pooled) if place not in places]
        return abs(Fraction(sum(chosen), len(chosen)) - Fraction(sum(rest), len(rest)))

    observed = apart(range(len(first)))
    splits = list(combinations(range(len(pooled)), len(first)))
    return Fraction(sum(apart(split) >= observed for split in splits), len(splits))


def judged(samples: dict[str, Sequence[float | str]], **options: Any) -> Verdict:
    """The verdict over models of one task, a score or a fate for each seed."""
    rows = [
        record(model=model, seed=seed, **({"status": run} if isinstance(run, str) else {"test_scaled": run}))
        for model, runs in samples.items()
        for seed, run in enumerate(runs)
    ]
    return verdict(cell_stats(frame(*rows)), **options)


HIGH, LOW = (0.9, 0.91, 0.92, 0.93, 0.94), (0.1, 0.2, 0.3, 0.4, 0.5)


def test_separate_samples_by_hand() -> None:
    three = permutation_test([1, 2, 3], [4, 5, 6])
    assert (three.p, three.splits, three.exact, three.difference) == (pytest.approx(0.1), 20, True, -3.0)
    five = permutation_test(HIGH, LOW)
    assert (five.p, five.splits) == (pytest.approx(2 / 252), 252)
    assert permutation_test([0.5], [0.5, 0.5]).p == 1.0
    assert permutation_test([1.0], [0.0, 0.0, 0.0]).p == 0.25  # of sizes one and three a mirror split does not exist


def test_ties_of_rounded_scores_are_ties() -> None:
    """0.1 + 0.2 and 0.3 are not one float; every split here is as far apart as the observed, or closer."""
    assert permutation_test([0.1 + 0.2, 0.3], [0.3, 0.1 + 0.2]).p == 1.0
    assert permutation_test([0.1, 0.4], [0.2, 0.3]).p == 1.0
    assert permutation_test([1e-9 * 0.1, 1e-9 * 0.5], [0.0, 0.0]).p == pytest.approx(2 / 6)


@given(st.lists(HUNDREDTHS, min_size=1, max_size=5), st.lists(HUNDREDTHS, min_size=1, max_size=5), st.randoms())
@settings(max_examples=60, deadline=None)
def test_the_exact_test_counts_as_fractions_do(first: list[int], second: list[int], shuffler: random.Random) -> None:
    scores, others = [value / 100 for value in first], [value / 100 for value in second]
    found = permutation_test(scores, others)
    assert found.p == pytest.approx(float(by_counting(first, second)), abs=1e-15)
    assert found.difference == pytest.approx(sum(scores) / len(scores) - sum(others) / len(others), abs=1e-14)
    assert found.splits == math.comb(len(first) + len(second), len(first))
    assert permutation_test(others, scores).p == found.p
    shuffler.shuffle(scores)
    assert permutation_test(scores, others) == found


def test_the_random_test_nears_the_exact_one_and_is_never_zero() -> None:
    first, second = (0.3, 0.5, 0.6, 0.8, 0.9, 0.4), (0.2, 0.4, 0.1, 0.5, 0.3)
    exact = permutation_test(first, second)
    rough = permutation_test(first, second, exact_up_to=461)
    assert exact.exact and not rough.exact and permutation_test(first, second, exact_up_to=462).exact
    assert rough.splits == 20_000
    assert rough.p == pytest.approx(exact.p, abs=4 * math.sqrt(exact.p * (1 - exact.p) / 20_000)) and exact.p > 0.01
    assert (
        permutation_test(second, first, exact_up_to=0).p
        == rough.p
        == permutation_test(first[::-1], second, exact_up_to=0).p
    )
    assert permutation_test(first, second, exact_up_to=0, seed=1).p != rough.p
    assert (
        permutation_test(range(15), range(100, 115)).p == 1 / 20_000
    )  # of 155 million splits only two are as far apart
    assert permutation_test(range(15), range(100, 115), draws=99).p == 0.01


@pytest.mark.parametrize("sample", [[], [math.nan], [math.inf, 1.0], [None]])
def test_a_sample_without_scores_is_refused(sample: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"at least one seed|finite"):
        permutation_test([1.0], sample)


def test_the_leader_is_bold_if_it_beats_any_model() -> None:
    found = judged({"lstm": HIGH, "mamba": (0.89, 0.9, 0.91, 0.95, 0.97), "transformer": LOW})
    assert (found.leader, found.bold, found.beaten, found.reason) == ("mamba", ("mamba", "lstm"), ("transformer",), "")
    lstm, transformer = found.against
    assert (transformer.model, transformer.n, transformer.reason) == ("transformer", 5, "")
    assert transformer.p == pytest.approx(2 / 252) and transformer.difference == pytest.approx(0.924 - 0.3)
    assert lstm.model == "lstm" and lstm.p > 0.05


def test_three_seeds_let_nothing_be_bold() -> None:
    found = judged({"lstm": HIGH[:3], "transformer": LOW[:3]})
    assert (found.leader, found.bold, found.beaten) == ("lstm", (), ())
    assert found.reason == "lstm leads: n = 3, and a claim needs 5"
    assert (found.against[0].p, found.against[0].difference) == (None, None)
    assert "n = 3" in found.against[0].reason


def test_a_rival_with_too_few_seeds_is_not_judged() -> None:
    found = judged({"lstm": HIGH, "mamba": LOW[:4], "transformer": LOW})
    assert (found.bold, found.beaten) == (("lstm",), ("transformer",))
    assert (found.against[0].model, found.against[0].p) == ("mamba", None)
    assert found.against[0].reason == "n = 4, and a claim needs 5"
    found = judged({"lstm": HIGH, "mamba": LOW[:4]})
    assert (found.bold, found.reason) == ((), "no rival of lstm can be tested: mamba: n = 4, and a claim needs 5")
    assert judged({"lstm": HIGH, "mamba": LOW[:4]}, least=4).bold == ("lstm",)


def test_no_difference_says_so() -> None:
    found = judged({"lstm": HIGH, "mamba": HIGH})
    assert (found.leader, found.bold, found.reason) == ("lstm", (), "lstm beats none at p <= 0.05: the least p is 1")
    found = judged({"lstm": HIGH, "mamba": LOW}, alpha=0.001)
    assert (found.bold, found.reason) == ((), "lstm beats none at p <= 0.001: the least p is 0.0079")
    assert judged({"lstm": HIGH}).reason == "lstm stands alone"
    assert judged({"lstm": ["failed"] * 5, "mamba": ["failed"] * 5}).reason == "no run has a result"


def test_a_diverged_run_is_a_result_of_nought() -> None:
    found = judged({"lstm": HIGH, "mamba": [*LOW[:3], "diverged", "diverged"]})
    assert (found.bold, found.beaten, found.against[0].n) == (("lstm",), ("mamba",), 5)
    assert found.against[0].difference == pytest.approx(0.92 - 0.12)
    found = judged({"lstm": HIGH, "mamba": ["diverged"] * 5})
    assert (found.bold, found.beaten) == (("lstm",), ("mamba",))
    assert judged({"lstm": [*HIGH, "diverged"], "mamba": [0.85] * 5}).leader == "mamba"


def test_a_failed_run_is_no_result() -> None:
    found = judged({"lstm": HIGH, "mamba": [*LOW, "failed"], "transformer": LOW})
    assert (found.beaten, found.against[0].reason) == (("transformer",), "1 failed")
    found = judged({"lstm": [*HIGH, "failed"], "mamba": [0.85] * 5})
    assert (found.leader, found.bold, found.reason) == ("lstm", (), "lstm leads: 1 failed")


def test_holms_correction_by_hand() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
    assert holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}
    rivals = {f"m{place}": LOW for place in range(7)}
    assert len(judged({"lstm": HIGH, **rivals}).beaten) == 7
    found = judged({"lstm": HIGH, **rivals}, correction="holm")
    assert found.bold == () and found.against[0].p == pytest.approx(7 * 2 / 252)


def test_a_verdict_over_two_tasks_or_protocols_is_refused() -> None:
    for change in ({"task": "mqar"}, {"protocol": "grazzi"}, {"test_scaled": None, "test": 0.5}):
        rows = [record(model="lstm"), record(**{"model": "mamba", **change})]
        with pytest.raises(ValueError, match="one protocol and task, with one kind of accuracy"):
            verdict(cell_stats(frame(*rows)))
    (cell,) = cell_stats(frame(record()))
    for rivals in ([], [cell, cell]):
        with pytest.raises(ValueError, match="different models"):
            verdict(rivals)
    with pytest.raises(ValueError, match="alpha"):
        verdict([cell], alpha=5)
