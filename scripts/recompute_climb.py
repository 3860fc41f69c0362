"""Compute every cell of a climb's table from records.csv again, without any code of this project.

    python scripts/recompute_climb.py results/records.csv results/tables/climb.csv
    python scripts/recompute_climb.py results/underway/records.csv climb_v2.csv --protocol climb-v2

The rules are those of docs/climb.md and docs/concepts.md, written down a second time with the standard library alone.
Prints how many cells agree and each one that does not; exit code 1 if there is one.
"""

import argparse
import csv
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median

HELD, LEARNT = 0.9, 0.99
FRESH = 1000  # seeds from here on report and never choose
LONGEST = "225..256"
CLOSE_TO = 1e-5  # the table has six digits

Row = dict[str, str]
Cell = dict[str, object]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("records", type=Path, help="records.csv")
    parser.add_argument("table", type=Path, help="the climb's table as CSV")
    parser.add_argument("--protocol", default="climb-v1", help="(default: climb-v1)")
    given = parser.parse_args(arguments)
    cells = recomputed(rows_of(given.records), given.protocol)
    table = [row for row in rows_of(given.table) if row["protocol"] == given.protocol and int(row["n"])]
    faults = differences(cells, table)
    print(f"{given.protocol}: {len(table)} cells in the table, {len(cells)} recomputed, {len(faults)} differences")
    for fault in faults:
        print(f"  {fault}")
    return 1 if faults else 0


def rows_of(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def recomputed(records: Sequence[Row], protocol: str) -> dict[tuple[str, str], Cell]:
    """Return each cell that has a run to report, by model and rung."""
    by_cell: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in records:
        if row["protocol"] == protocol:
            by_cell[row["model"], _rung(row["task"])].append(row)
    second = protocol != "climb-v1"
    cells = {key: (_second if second else _first)(rows) for key, rows in by_cell.items()}
    return {key: cell for key, cell in cells.items() if cell is not None}


def _rung(task: str) -> str:
    """Return a name for the task of a rung; S3 is the one group whose label says more than the task's name."""
    return "S3" if "group=S3" in task else task.partition(" (")[0]


def _first(rows: Sequence[Row]) -> Cell:
    """Return a cell of climb-v1: the seeds that choose the learning rate also report."""
    lr = _best(rows, "validation")
    by_training = _best(rows, "in_distribution")
    return _cell([row for row in rows if float(row["lr"]) == lr], lr) | {
        "lr_by_training": by_training,
        "held_by_training": sum(_holds(row) for row in rows if float(row["lr"]) == by_training),
    }


def _second(rows: Sequence[Row]) -> Cell | None:
    """Return a cell of climb-v2: one seed chooses, fresh seeds report; None: no fresh seed has run."""
    tuning = [row for row in rows if int(row["seed"]) < FRESH and row["status"] == "done"]
    if not tuning:
        return None
    best = min(
        tuning, key=lambda row: (-float(row["validation"]), float(row["steps_to_99"] or "inf"), float(row["lr"]))
    )
    lr = float(best["lr"])
    fresh = [row for row in rows if int(row["seed"]) >= FRESH and float(row["lr"]) == lr]
    return _cell(fresh, lr) if fresh else None


def _best(rows: Sequence[Row], column: str) -> float:
    """Return the learning rate with the highest mean over seeds; a run that did not finish counts as 0."""
    by_rate: dict[float, list[float]] = defaultdict(list)
    for row in rows:
        by_rate[float(row["lr"])].append(float(row[column] or 0) if row["status"] == "done" else 0.0)
    return max(sorted(by_rate), key=lambda rate: mean(by_rate[rate]))


def _cell(rows: Sequence[Row], lr: float) -> Cell:
    outcomes = [_outcome(row) for row in rows]
    held, lost, not_learnt = (outcomes.count(each) for each in ("held", "lost", "not learnt"))
    return {
        "outcome": "held" if 2 * held > len(rows) else "lost" if 2 * not_learnt < len(rows) else "not learnt",
        "held": held,
        "lost": lost,
        "not_learnt": not_learnt,
        "n": len(rows),
        "median": median(_at_longest(row) for row in rows),
        "median_further": median(_further(row) for row in rows),
        "in_training": median(_in_training(row) for row in rows),
        "lr": lr,
    }


def _outcome(row: Row) -> str:
    return "held" if _holds(row) else "lost" if _in_training(row) >= LEARNT else "not learnt"


def _holds(row: Row) -> bool:
    return _at_longest(row) >= HELD


def _at_longest(row: Row) -> float:
    return _scaled(row, json.loads(row["test_bins"])[LONGEST]) if row["status"] == "done" else 0.0


def _further(row: Row) -> float:
    """Return the scaled accuracy at 512 symbols, or at the longest string of the language below that."""
    by_length = json.loads(row["extrapolation"])
    return _scaled(row, by_length[max(by_length, key=int)])


def _in_training(row: Row) -> float:
    return _scaled(row, row["in_distribution"]) if row["status"] == "done" else 0.0


def _scaled(row: Row, accuracy: str | float) -> float:
    chance = float(row["s_rand"])
    return (float(accuracy) - chance) / (1 - chance)


def differences(cells: dict[tuple[str, str], Cell], table: Sequence[Row]) -> list[str]:
    """Return one line for each cell, or value of a cell, in which the two disagree."""
    faults = []
    left = dict(cells)
    for row in table:
        key = (row["model"], "S3" if row["rung"] == "compose S3" else row["task"])
        cell = left.pop(key, None)
        if cell is None:
            faults.append(f"{row['model']} on {row['rung']}: in the table, not recomputed")
            continue
        faults += [
            f"{row['model']} on {row['rung']}: {column} is {row[column]} in the table, {value} recomputed"
            for column, value in cell.items()
            if not _equal(row[column], value)
        ]
    return [*faults, *(f"{model} on {rung}: recomputed, not in the table" for model, rung in left)]


def _equal(shown: str, value: object) -> bool:
    if isinstance(value, str):
        return shown == value
    assert isinstance(value, int | float)
    return abs(float(shown or "nan") - value) <= CLOSE_TO


if __name__ == "__main__":
    sys.exit(main())
