"""A CSV file of how far runs hold, a line for each bin of positions of each run. New results replace old ones.

run_id,step,state_bytes,holds_to,finite_to,without_mistake,commit,torch,device,from,to,answers,accuracy,scaled,commonest,drift
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.harmless import csv_of

OF_THE_RUN = ("run_id", "step", "state_bytes", "holds_to", "finite_to", "without_mistake")
OF_A_RANGE = ("from", "to", "answers", "accuracy", "scaled", "commonest", "drift")
COLUMNS = (*OF_THE_RUN, "commit", "torch", "device", *OF_A_RANGE)


def keep(path: Path, results: Iterable[dict[str, Any]]) -> None:
    """Write results into the file, replacing those of the same runs. Other runs stay."""
    old = there(path)
    new = pd.DataFrame([row for result in results for row in rows_of(result)], columns=list(COLUMNS))
    parts = [part for part in (old[~old["run_id"].isin(set(new["run_id"]))], new) if len(part)]
    both = pd.concat(parts).sort_values("run_id", kind="stable") if parts else new
    write_atomically(path, csv_of(both, float_format="%.6g").encode())


def there(path: Path) -> pd.DataFrame:
    """Return the file's table, empty if there is no file. Raise ValueError if it is another kind of table."""
    found = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=list(COLUMNS))
    if tuple(found.columns) == COLUMNS[:-1]:  # written before drift was measured
        found["drift"] = float("nan")
    if tuple(found.columns) != COLUMNS:
        raise ValueError(f"{path} is no table of horizons: its columns are {', '.join(map(str, found.columns))}")
    return found


def rows_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    numerics = result["numerics"]
    made = {"commit": result["provenance"]["commit"], "torch": numerics["torch"], "device": numerics["device"]}
    run = {name: result[name] for name in OF_THE_RUN} | made
    return [run | {name: each.get(name) for name in OF_A_RANGE} for each in result["bins"]]
