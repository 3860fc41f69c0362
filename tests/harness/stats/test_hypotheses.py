"""Statements written before the runs: they never change, and records decide each of them."""

from functools import cache
from typing import Any

import pandas as pd

from chomsky_ladder.harness.climb.runs import climb_runs, climber
from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.config.protocols import columns_of
from chomsky_ladder.harness.config.registry import find_model
from chomsky_ladder.harness.config.rows import rows_of
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.stats.cells import FRESH
from chomsky_ladder.harness.stats.hypotheses import HYPOTHESES, SUITE, digest
from chomsky_ladder.harness.tables.write import table
from support.records_by_hand import frame, record

NAMED = {cell for one in HYPOTHESES for cell in (*one.higher, *one.lower, *one.held, *one.not_held)}


@cache
def runs() -> dict[tuple[str, str], Run]:
    """Return a run of each model that a statement may name, by label and rung."""
    names = {model.partition(" ")[0] for model, _ in NAMED}
    return {
        (columns_of(run)["model"], rung.name): run
        for name, changes in rows_of(SUITE)
        if name in names
        for run, rung in zip(
            climb_runs(climber(find_model(name), changes, protocol=SUITE), protocol=SUITE)[::5],
            PROTOCOLS[SUITE].rungs,
            strict=True,
        )
    }


def test_the_statements_are_those_that_were_written_before_the_runs() -> None:
    assert digest() == "68d90b53ec2688e258963bfe751c35162e1d55d0015de899b663c1c0afe43aff"
    assert len({one.key for one in HYPOTHESES}) == len(HYPOTHESES) == 10
    assert runs().keys() >= NAMED
    for one in HYPOTHESES:
        assert bool(one.higher) == bool(one.lower) != bool(one.held or one.not_held)


def cell(model: str, rung: str, *scores: float) -> list[dict[str, Any]]:
    """Return the tuning run of a cell and fresh seeds with these scaled accuracies at the longest lengths."""
    named = columns_of(runs()[model, rung])
    named = {key: named[key] for key in ("protocol", "task", "level", "model", "transition", "demand")}
    made = {**named, "lr": 1e-2, "s_rand": 0.0, "steps_to_99": 500}
    bins = [f'{{"225..256": {score}}}' for score in (0.5, *scores)]
    seeds = [0, *(FRESH + place for place in range(len(scores)))]
    return [record(**made, seed=seed, test_bins=text) for seed, text in zip(seeds, bins, strict=True)]


def verdicts(*cells: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    made = table(frame(*(row for one in cells for row in one)), "hypotheses")
    (sheet,) = made.sheets
    return {line.name: (line.entries[0].lines[0], line.entries[1].lines[0]) for line in sheet.lines}


def test_a_statement_holds_up_fails_stays_open_or_is_to_come() -> None:
    high, low = (1.0, 0.99, 0.98, 0.97, 1.0), (0.1, 0.0, 0.2, 0.1, 0.0)
    a5, cycle = ("xlstm", "compose A5"), ("xlstm", "count mod 3")
    found = verdicts(cell(*a5, *high), cell(*cycle, *low))
    assert found["shortcut"][0] == "holds up" and found["shortcut"][1].startswith("+0.91 [+0.8")
    assert found["corner"] == ("to come", "1 cell missing"), "recall"
    assert verdicts(cell(*a5, *low), cell(*cycle, *high))["shortcut"][0] == "fails"
    assert verdicts(cell(*a5, *high), cell(*cycle, 1, 1, 1, 1, 0.9))["shortcut"][0] == "open"
    assert verdicts(cell(*a5, *high), cell(*cycle, *low[:4]))["shortcut"][0] == "to come", "a seed is missing"

    corner = cell(*a5, *high), cell("xlstm", "recall", 1, 1, 1, 0, 0)
    assert verdicts(*corner)["corner"] == ("holds up", "xlstm, compose A5: 5 of 5; xlstm, recall: 3 of 5")
    assert verdicts(corner[0], cell("xlstm", "recall", 1, 1, 0, 0, 0))["corner"][0] == "fails"


def test_the_climbs_table_says_which_rates_the_tuning_seeds_chose() -> None:
    tuned = cell("xlstm", "recall", 1.0, 0.9)
    other = [row | {"lr": 3e-3, "steps_to_99": 400, "test": 0.1} for row in tuned if row["seed"] == 0]
    fresh = [row | {"lr": 3e-3} for row in tuned if row["seed"]]
    made = table(frame(*tuned, *[record(**row) for row in (*other, *fresh)]), "climb")
    (rates,) = [sheet for sheet in made.sheets if sheet.title == "climb-v2: learning rates"]
    assert [column.name for column in rates.columns] == ["0.0003", "0.001", "0.003", "0.01", "0.03", "other"]
    recall = next(line for line in rates.lines if line.name == "recall")
    assert [entry.lines[0] for entry in recall.entries] == ["0", "0", "1", "0", "0", "1"], "sooner, not better"


def test_the_table_is_of_that_suite_alone() -> None:
    made = table(frame(*cell("xlstm", "recall", 1.0, 1.0)), "hypotheses")
    assert set(made.data["verdict"]) == {"to come"} and list(made.data["key"]) == [one.key for one in HYPOTHESES]
    assert isinstance(made.data, pd.DataFrame) and "recall" not in made.data["missing"][1]
