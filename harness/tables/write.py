"""Tables from records and nothing else, one sheet a protocol: the same bytes every time, in every format.

What kinds there are: harness/tables/kinds/. accuracy.md and accuracy.csv are written by every `ladder table`, the
markdown without bold; the other files by `ladder table --all`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import pandas as pd

from chomsky_ladder.harness.config.presets import has_rungs
from chomsky_ladder.harness.stats.cells import cells
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.labels import COLUMNS, Identity
from chomsky_ladder.harness.store.record import collect, stored
from chomsky_ladder.harness.tables import formats
from chomsky_ladder.harness.tables.kind import ROOM, Made, all_kinds
from chomsky_ladder.harness.tables.published import Paper, published
from chomsky_ladder.harness.tables.sheets import Sheet, accuracy_sheet

Format = Literal["markdown", "csv", "latex", "html"]

ENDINGS: dict[Format, str] = {"markdown": "md", "csv": "csv", "latex": "tex", "html": "html"}

_SHEETS: dict[Format, Callable[[Sequence[Sheet]], str]] = {
    "markdown": formats.markdown,
    "latex": formats.latex,
    "html": formats.html_fragment,
}


def table(records: pd.DataFrame, kind: str, *, against: Paper | None = None) -> Made:
    """One kind of table, a sheet or more for every protocol that has something to show in it."""
    wanted = ROOM.find(kind)
    if against is not None and wanted.against is None:
        compared = ", ".join(each.name for each in all_kinds() if each.against)
        raise ValueError(f"no published values for a table of {kind}; there are some for {compared}")
    rows = records.to_dict("records")
    kept = [bool(wanted.wants(row)) and not (against and has_rungs(row["protocol_name"])) for row in rows]
    if not any(kept):
        raise ValueError(f"nothing to show in a table of {kind}: no record is of {wanted.subject}")
    records = records[kept]
    together = pd.Series(
        [wanted.together(Identity.of(row)) for row, is_kept in zip(rows, kept, strict=True) if is_kept], records.index
    )
    paper = None if against is None else published(against)
    groups = [group for _, group in records.groupby(together, sort=True)]
    made = [wanted.make(group) if paper is None else wanted.against(group, paper) for group in groups]
    sheets = tuple(sheet for one in made for sheet in one.sheets)
    if not sheets:
        raise ValueError(f"nothing to show in a table of {kind}: {wanted.why_not}")
    return Made(sheets, _together([one.data for one in made if len(one.data)]))


def text(made: Made, form: Format) -> str:
    return csv(made.data) if form == "csv" else _SHEETS[form](made.sheets)


def markdown(table: pd.DataFrame) -> str:
    """All cells as one table a protocol."""
    return formats.markdown([accuracy_sheet(group) for _, group in table.groupby("protocol", sort=True)])


def csv(table: pd.DataFrame) -> str:
    """Numbers to six digits; of a cell the labels, which say all that its names and settings do."""
    shown = table.drop(columns=[name for name in COLUMNS if name in table])
    return shown.to_csv(index=False, lineterminator="\n", float_format="%.6g")


def write(results: Path) -> str:
    """Bring records.csv up to date, write results/tables/accuracy.{csv,md}, and return the markdown."""
    table = cells(collect(results))
    folder = results / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "accuracy.csv", csv(table).encode())
    text = markdown(table)
    write_atomically(folder / "accuracy.md", text.encode())
    return text


def write_all(results: Path, *, against: Paper | None = None) -> tuple[list[Path], list[str]]:
    """Every kind in every format under results/tables/: the files, and why there is none of some kind."""
    folder = results / "tables"
    write(results)
    records = stored(results / "records.csv")
    paths, why_not = [folder / "accuracy.csv", folder / "accuracy.md"], []
    for paper in (None, against) if against else (None,):
        for kind in all_kinds():
            if not kind.when(records) if paper is None else kind.against is None:
                continue
            try:
                made = table(records, kind.name, against=paper)
            except ValueError as nothing:
                why_not.append(str(nothing))
                continue
            for form, ending in ENDINGS.items():
                path = folder / f"{kind.name}{f'_against_{paper}' if paper else ''}.{ending}"
                if path not in paths:
                    write_atomically(path, text(made, form).encode())
                    paths.append(path)
    return paths, list(dict.fromkeys(why_not))


def _together(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Below each other, integers whole and empty columns kept."""
    joined = pd.concat([frame.astype(object) for frame in frames], ignore_index=True)
    kinds = {name: {type(value) for value in joined[name].dropna()} for name in joined}
    return joined.astype({name: "Int64" for name, found in kinds.items() if found == {int}}).infer_objects()
