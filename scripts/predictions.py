"""Compare what was expected of each cell of the climb before it ran with the outcome.

    python scripts/predictions.py          reads results/climb/predictions.csv, writes results/climb/outcomes.csv

A cell holds if most of its seeds do. Cells that were not run yet are left out. Those with an unexpected outcome are
printed.
"""

import sys
from pathlib import Path

import pandas as pd

from chomsky_ladder.harness.stats.climb import climbs_of
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.harmless import csv_of
from chomsky_ladder.harness.store.record import stored

FOLDER = Path(__file__).parents[1] / "results"


def outcomes(predictions: pd.DataFrame, records: pd.DataFrame) -> pd.DataFrame:
    """Return the predictions whose cell was run, each with the outcome."""
    found = []
    for protocol, expected in predictions.groupby("protocol", sort=False):
        seen = {
            (climb.model, step.rung.name): step
            for climb in climbs_of(records, str(protocol))
            for step in climb.steps
            if step.n
        }
        for row in expected.to_dict("records"):
            step = seen.get((row["model"], row["rung"]))
            if step is not None:
                came = "yes" if step.holds else "no"
                counts = {"held": step.held, "n": step.n, "right": row["holds"] == came}
                found.append({**row, **counts, "theory": step.theory.word})
    return pd.DataFrame(found, columns=["protocol", "model", "rung", "holds", "held", "n", "right", "theory"])


def main() -> int:
    made = outcomes(pd.read_csv(FOLDER / "climb" / "predictions.csv"), stored(FOLDER / "records.csv"))
    write_atomically(FOLDER / "climb" / "outcomes.csv", csv_of(made).encode())
    print(f"{made['right'].sum()} of {len(made)} cells came out as expected")
    for row in made[~made["right"].astype(bool)].to_dict("records"):
        print(f"  {row['model']:40} {row['rung']:14} expected {row['holds']:4} held by {row['held']} of {row['n']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
