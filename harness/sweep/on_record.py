"""Runs that are done elsewhere: records.csv has their line, and this results folder does not have their folder."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.stats.cells import Row
from chomsky_ladder.harness.sweep.sweep import left_of
from chomsky_ladder.harness.train.same_code import sources_of


def by_id(rows: Iterable[Row]) -> dict[str, Row]:
    """Return records by their run ids."""
    return {row["run_id"]: row for row in rows}


def without_recorded(runs: Sequence[Run], known: Mapping[str, Row], results: Path) -> list[Run]:
    """Drop the runs that are on record with the code of today and have no result in this folder."""
    elsewhere = {run.run_id for run in left_of(runs, results) if _same_code(run, known.get(run.run_id))}
    return [run for run in runs if run.run_id not in elsewhere]


def _same_code(run: Run, row: Row | None) -> bool:
    if row is None or row["status"] != "done":
        return False
    made_by = row.get("sources")
    return (made_by if isinstance(made_by, str) else "") == sources_of(run)
