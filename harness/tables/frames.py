"""Records and tables as pandas DataFrames, for a notebook.

records()                                          a line a run of your results folder
records("published", models=["lstm", "xlstm*"])    of what is committed in this clone
table("accuracy", tasks=["parity"])                the numbers behind `ladder table`
"""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from chomsky_ladder.harness.stats.chosen import chosen
from chomsky_ladder.harness.store.places import PUBLISHED, default_results, published_results
from chomsky_ladder.harness.store.record import collect
from chomsky_ladder.harness.tables import write


def records(
    results: Path | str | None = None,
    *,
    protocols: Sequence[str] = (),
    models: Sequence[str] = (),
    tasks: Sequence[str] = (),
) -> pd.DataFrame:
    """Return a row for every run that is done or failed, of all or of those named, by name or pattern.

    records.csv of the folder is brought up to date with its runs.
    """
    for name, words in {"protocols": protocols, "models": models, "tasks": tasks}.items():
        if isinstance(words, str):
            raise ValueError(f"{name} is a list of names: [{words!r}]")
    every = collect(_folder(results))
    asked = protocols or models or tasks
    return chosen(every, protocols=protocols, models=models, tasks=tasks) if asked else every


def table(
    kind: str = "accuracy",
    *,
    results: Path | str | None = None,
    protocols: Sequence[str] = (),
    models: Sequence[str] = (),
    tasks: Sequence[str] = (),
    against: str | None = None,
) -> pd.DataFrame:
    """Return the numbers of a kind of table (`ladder table --kinds`), of all records or of those named, by name or
    pattern."""
    asked = records(results, protocols=protocols, models=models, tasks=tasks)
    return write.table(asked, kind, against=against).data


def _folder(results: Path | str | None) -> Path:
    if results == PUBLISHED:
        found = published_results()
        if found is None:
            raise ValueError("the published records are no part of an installed package: name a clone's results folder")
        return found
    return Path(results or default_results())
