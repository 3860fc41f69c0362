"""Write results as a data set in the layout of the Hugging Face hub, and read one back.

README.md               the data card
croissant.json          the same for machines (MLCommons Croissant 1.0)
data/records.parquet    a row a run            data/curves.parquet    a row a validation
strings/SUITE/TASK.parquet                     test strings of a frozen suite, a row a string
index.html              the page, for a static Space
records.csv, curves.csv the files of a results folder: `ladder table --results FOLDER` reads them
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from chomsky_ladder.harness.hub.card import card
from chomsky_ladder.harness.hub.croissant import croissant
from chomsky_ladder.harness.hub.part import Part
from chomsky_ladder.harness.hub.strings import strings, tasks_of
from chomsky_ladder.harness.page.site import write_site
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.record import stored

RECORDS, CURVES = "data/records.parquet", "data/curves.parquet"
KEPT = ("records.csv", "records.csv.sha256", "curves.csv", "curves.csv.sha256")


def export_results(
    results: Path,
    folder: Path,
    *,
    suites: Sequence[str],
    count: int = 0,
    tell: Callable[[str], None] = lambda said: None,
) -> list[Part]:
    """Write the data set to a new folder. `count` limits the strings of a task; 0: as many as a test has."""
    refuse_without_parquet()
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is there already and not empty")
    if not (results / "records.csv").is_file():
        raise ValueError(f"{results} has no records.csv")
    folder.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        if (results / name).is_file():
            shutil.copyfile(results / name, folder / name)
    parts = [_written(folder, RECORDS, "a row a run", stored(folder / "records.csv"))]
    if (folder / "curves.csv").is_file():
        parts.append(_written(folder, CURVES, "a row a validation of a run", pd.read_csv(folder / "curves.csv")))
    for suite in suites:
        tasks = tasks_of(suite)
        tell(f"making the test strings of {suite}: {len(tasks)} tasks")
        for name, run in tasks.items():
            rows = pd.DataFrame(list(strings(run, count=count)))
            parts.append(_written(folder, f"strings/{suite}/{name}.parquet", f"test strings of {suite}: {name}", rows))
    write_site(folder, folder)
    write_atomically(folder / "README.md", card(parts).encode())
    write_atomically(folder / "croissant.json", (json.dumps(croissant(parts), indent=1) + "\n").encode())
    return parts


def loaded(folder: Path) -> pd.DataFrame:
    """Return the records of a data set from its Parquet: the frame that `stored` makes of its records.csv."""
    refuse_without_parquet()
    return pd.read_parquet(folder / RECORDS)


def refuse_without_parquet() -> None:
    try:
        import pyarrow  # noqa: F401  # what pandas writes Parquet with
    except ImportError:
        raise ValueError("Parquet needs pyarrow: pip install 'chomsky-ladder[hub]'") from None


def _written(folder: Path, path: str, about: str, frame: pd.DataFrame) -> Part:
    place = folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    frame.to_parquet(place, index=False, compression="zstd")
    columns = {str(name): _type_of(frame[name]) for name in frame}
    return Part(path, about, len(frame), columns, hashlib.sha256(place.read_bytes()).hexdigest())


def _type_of(column: pd.Series) -> str:
    if pd.api.types.is_bool_dtype(column):
        return "sc:Boolean"
    if pd.api.types.is_integer_dtype(column):
        return "sc:Integer"
    if pd.api.types.is_float_dtype(column):
        return "sc:Float"
    return "sc:Integer*" if len(column) and isinstance(column.iloc[0], list) else "sc:Text"
