"""A CSV file of what was read from trained models, some lines a run. New lines of a run replace its old ones."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.harmless import csv_of


def keep(path: Path, rows: Sequence[dict[str, Any]], columns: Sequence[str], *, later: Collection[str] = ()) -> None:
    """Write lines into the file, replacing those of the same runs. Other runs stay."""
    old, new = there(path, columns, later=later), pd.DataFrame(rows, columns=list(columns))
    parts = [part for part in (old[~old["run_id"].isin(set(new["run_id"]))], new) if len(part)]
    both = pd.concat(parts).sort_values("run_id", kind="stable") if parts else new
    write_atomically(path, csv_of(both[list(columns)], float_format="%.6g").encode())


def there(path: Path, columns: Sequence[str], *, later: Collection[str] = ()) -> pd.DataFrame:
    """Return the file's table, empty if there is no file. Raise ValueError if it is another kind of table.

    A file may lack the columns that came `later`.
    """
    found = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=list(columns))
    for name in later:
        found[name] = found.get(name, float("nan"))
    if set(found.columns) != set(columns):
        raise ValueError(f"{path} is another kind of table: its columns are {', '.join(map(str, found.columns))}")
    return found


def made(result: dict[str, Any]) -> dict[str, Any]:
    """Return by what the numbers of a result were made."""
    numerics = result["numerics"]
    return {"commit": result["provenance"]["commit"], "torch": numerics["torch"], "device": numerics["device"]}
