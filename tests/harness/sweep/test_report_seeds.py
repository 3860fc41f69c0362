"""Fresh seeds: chosen on some, reported on others, and never the two kinds side by side."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.config.protocols import grid, preset_run
from chomsky_ladder.harness.stats.cell_stats import cell_stats
from chomsky_ladder.harness.stats.cells import best_rate, cells, headline
from chomsky_ladder.harness.stats.climb import climbs_of
from chomsky_ladder.harness.sweep.report_seeds import FRESH, fresh_runs
from chomsky_ladder.harness.tables.sheets import accuracy_sheet
from support.records_by_hand import failure_of, folder_of, frame, record, result_of

RATES = (3e-2, 1e-2, 1e-3)
SELECTED = [
    record(lr=1e-2, seed=0, validation=0.9, test_scaled=0.9),
    record(lr=1e-2, seed=1, validation=0.7, test_scaled=0.7),
    record(lr=1e-3, seed=0, validation=0.75, test_scaled=0.99),
    record(lr=1e-3, seed=1, validation=0.75, test_scaled=0.99),
]


def fresh(seed: int, **changes: object) -> dict[str, object]:
    return record(lr=1e-2, seed=FRESH + seed, **{"validation": 0.1, "test_scaled": 0.5, **changes})


def shown(*rows: dict[str, object]) -> pd.Series:
    (row,) = cells(frame(*rows)).to_dict("records")
    return row


def test_a_rate_is_chosen_on_some_seeds_and_reported_on_others() -> None:
    row = shown(*SELECTED, fresh(0), fresh(1, test_scaled=0.7), record(lr=1e-3, seed=FRESH, test_scaled=1.0))
    assert (row["lr"], row["n"], row["mean"], row["fresh"]) == (1e-2, 2, pytest.approx(0.6), True)
    (stats,) = cell_stats(frame(*SELECTED, fresh(0), fresh(1)))
    assert stats.seeds == (FRESH, FRESH + 1)


def test_without_fresh_seeds_nothing_changes() -> None:
    row = shown(*SELECTED)
    assert (row["lr"], row["n"], row["mean"], row["fresh"]) == (1e-2, 2, pytest.approx(0.8), False)


def test_fresh_seeds_never_choose_however_well_they_do() -> None:
    row = shown(*SELECTED, record(lr=1e-3, seed=FRESH, validation=1.0))  # of the rate that was not chosen
    assert (row["lr"], row["n"], row["fresh"]) == (1e-2, 2, False)


def test_one_cell_without_fresh_seeds_keeps_its_whole_protocol_without() -> None:
    rows = [*SELECTED, fresh(0), record(model="mamba"), record(protocol="quick", seed=FRESH)]
    found = cells(frame(*rows)).set_index(["protocol", "model"])
    assert found["fresh"].to_dict() == {
        ("quick", "lstm"): True,  # of a protocol that has no others
        ("xlstm", "lstm"): False,
        ("xlstm", "mamba"): False,
    }
    rows.append(record(model="mamba", seed=FRESH))
    assert cells(frame(*rows))["fresh"].all()


def test_a_cell_where_no_seed_finished_holds_nothing_up_and_is_still_told_of() -> None:
    rows = frame(*SELECTED, fresh(0), record(model="mamba", status="diverged"), fresh(0, model="gru"))
    found = cells(rows).set_index("model")
    assert found["n"].to_dict() == {"gru": 1, "lstm": 1, "mamba": 0}  # gru has fresh seeds and no others
    assert found.loc["mamba", "diverged"] == 1 and found.loc["lstm", "fresh"]
    assert accuracy_sheet(cells(rows)).lead[0].count("fresh ones") == 1


def test_a_fresh_seed_that_did_not_finish_is_counted() -> None:
    row = shown(*SELECTED, fresh(0), fresh(1, status="diverged"))
    assert (row["n"], row["diverged"]) == (1, 1)


def test_a_protocol_that_reports_fresh_seeds_shows_nothing_else() -> None:
    of_it = {"protocol": "climb-v2"}
    tuned = [record(**of_it, lr=lr, validation=0.9, steps_to_99=steps) for lr, steps in ((1e-2, 500), (1e-3, 2000))]
    rows = [*tuned, record(**of_it, lr=1e-2, seed=FRESH), record(**of_it, model="mamba")]
    found = cells(frame(*rows))
    assert list(found["model"]) == ["lstm"] and found["fresh"].all(), "mamba is tuned and not reported yet"
    assert headline(frame(*tuned)).empty and cells(frame(*tuned)).empty
    assert climbs_of(frame(*tuned), "climb-v2") == []


def test_rates_that_validate_alike_are_told_apart_by_what_the_protocol_says() -> None:
    def rate(protocol: str, *steps: float | None) -> float | None:
        rows = [
            record(protocol=protocol, lr=lr, validation=1.0, steps_to_99=at)
            for lr, at in zip(RATES, steps, strict=True)
        ]
        return best_rate([*rows, record(protocol=protocol, lr=1.0, validation=0.9, steps_to_99=1)], "validation")

    assert rate("climb-v1", 500, 2000, 4000) == 1e-3, "the lower"
    assert rate("climb-v2", 500, 2000, 4000) == 3e-2 and rate("climb-v2", None, 2000, 250) == 1e-3
    assert rate("climb-v2", 500, 500, None) == 1e-2, "of those that learnt as soon the lower"


def test_the_table_says_what_its_seeds_are() -> None:
    lead = accuracy_sheet(cells(frame(*SELECTED, fresh(0)))).lead[0]
    assert lead.endswith("; fresh ones, the learning rate of each cell having been chosen on the validation of others.")
    assert "fresh" not in accuracy_sheet(cells(frame(*SELECTED))).lead[0]


def test_the_runs_of_fresh_seeds(tmp_path: Path) -> None:
    runs = grid("parity", "lstm", protocol="xlstm") + grid("parity", "mamba", protocol="xlstm")
    scored = {1e-2: 0.5, 1e-3: 0.8, 1e-4: 0.6}
    for run in runs[:-1]:
        accuracy = {"accuracy": scored[run.train.lr]}
        result = result_of(run)
        folder_of(tmp_path, run).finish(result | {"validation": result["validation"] | accuracy})
    made, without = fresh_runs(runs, tmp_path, 2)
    assert [(run.model.name, run.train.lr, run.seed) for run in made] == [("lstm", 1e-3, 1000), ("lstm", 1e-3, 1001)]
    assert without == ["parity, mamba"]  # one of its runs is not done yet
    assert made[0] == replace(runs[3], seed=FRESH) and runs[3].train.lr == 1e-3
    folder_of(tmp_path, runs[-1]).fail(failure_of(runs[-1]))
    made, without = fresh_runs(runs, tmp_path, 1)
    assert [run.model.name for run in made] == ["lstm", "mamba"] and without == []


@pytest.mark.parametrize("count", [0, -1])
def test_so_many_seeds_are_no_number_of_seeds(count: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"report-seeds is how many fresh seeds a cell gets, not {count}"):
        fresh_runs(grid("parity", "lstm", protocol="xlstm"), tmp_path, count)


def test_seeds_kept_for_reporting_may_choose_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="seeds from 1000 on are kept for reporting"):
        fresh_runs([preset_run("parity", "lstm", seed=FRESH)], tmp_path, 1)


SCRIPT = """
from dataclasses import replace
from chomsky_ladder import grid

def runs():
    small = {"d_model": 8, "num_blocks": 1}
    found = [replace(run, model=replace(run.model, **small)) for run in grid("parity", "rnn", protocol="xlstm_cpu")]
    found = [run for run in found if run.seed < 2]
    few = {"test": 8, "validation": 8, "extrapolate": ()}
    return [replace(r, train=replace(r.train, steps=2, batch=4), eval=replace(r.eval, **few)) for r in found]
"""


def test_a_sweep_ends_with_its_fresh_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, results = tmp_path / "small.py", str(tmp_path / "results")
    script.write_text(SCRIPT)
    words = ["sweep", str(script), "--quiet", "--json", "--exec.results", results]
    assert main([*words, "--report-seeds", "3"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["runs"], told["done"], told["complete"]) == (4 + 3, 7, True)
    assert main(["table", "--results", results]) == 0
    table = capsys.readouterr().out
    assert "/3 |" in table and "fresh ones" in table
    assert main([*words, "--report-seeds", "3", "--shard", "1/2"]) == 2
    assert "once every shard is done" in capsys.readouterr().err
    assert main([*words, "--report-seeds", "-1"]) == 2


def test_a_sweep_goes_on_from_merged_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, first, second = tmp_path / "small.py", tmp_path / "first", tmp_path / "second"
    script.write_text(SCRIPT)
    words = ["sweep", str(script), "--json", "--exec.results"]
    assert main([*words, str(first)]) == 0
    assert main(["table", "--results", str(first)]) == 0
    shutil.rmtree(first / "runs")
    assert main(["merge", str(first), "--results", str(second)]) == 0
    capsys.readouterr()
    assert main([*words, str(second), "--recorded", "--report-seeds", "1"]) == 0
    said = capsys.readouterr()
    assert "4 of 4 runs are on record in records.csv" in said.err
    assert [json.loads(said.out)[name] for name in ("runs", "done")] == [4 + 1, 5]
    (trained,) = (second / "runs").iterdir()
    assert f"-s{FRESH}-" in trained.name
    assert main([*words, str(second)]) == 0
    assert len(list((second / "runs").iterdir())) == 1 + 4, "without --recorded they are trained here"
