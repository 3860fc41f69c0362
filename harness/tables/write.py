"""Tables from records and nothing else, one sheet a protocol: the same bytes every time, in every format.

What kinds there are: harness/tables/kinds/. accuracy.md and accuracy.csv are written by every `ladder table`, the
markdown without bold; the other files by `ladder table --all`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Literal

import pandas as pd

from chomsky_ladder.harness.stats.cells import cells
from chomsky_ladder.harness.stats.rows import as_rows
from chomsky_ladder.harness.store.files import write_atomically, write_where_allowed
from chomsky_ladder.harness.store.harmless import csv_of
from chomsky_ladder.harness.store.labels import COLUMNS, Identity
from chomsky_ladder.harness.store.record import collect
from chomsky_ladder.harness.tables import formats
from chomsky_ladder.harness.tables.kind import ROOM, Made, Row, all_kinds
from chomsky_ladder.harness.tables.latex import latex
from chomsky_ladder.harness.tables.plain_text import plain
from chomsky_ladder.harness.tables.published import Published, published
from chomsky_ladder.harness.tables.sheets import accuracy_sheet

Format = Literal["text", "markdown", "csv", "latex", "html"]

ENDINGS: dict[Format, str] = {"markdown": "md", "csv": "csv", "latex": "tex", "html": "html"}


def table(
    records: pd.DataFrame, kind: str, *, against: Published | str | None = None, rows: Sequence[Row] | None = None
) -> Made:
    """Make one kind of table, a sheet or more for every protocol that has something to show in it.

    `rows` are those of the records, if they are known already.
    """
    wanted = ROOM.find(kind)
    if against is not None and wanted.against is None:
        compared = ", ".join(each.name for each in all_kinds() if each.against)
        raise ValueError(f"no published values for a table of {kind}; there are some for {compared}")
    rows = as_rows(records) if rows is None else rows
    is_wanted = [bool(wanted.wants(row)) for row in rows]
    kept = records[is_wanted]
    if kept.empty:
        raise ValueError(f"nothing to show in a table of {kind}: no record is of {wanted.subject}")
    together = pd.Series([wanted.together(row) for row in compress(rows, is_wanted)], kept.index)
    paper = published(against) if isinstance(against, str) else against
    kept, left_out = (kept, ()) if paper is None else _of_family(kept, paper)
    groups = [group for _, group in kept.groupby(together, sort=True)]
    made = [wanted.make(group) if paper is None else wanted.against(group, paper) for group in groups]
    if paper is not None:
        made, without = _with_its_cells(made)
        left_out = (*left_out, *without)
    sheets = tuple(sheet for one in made for sheet in one.sheets)
    if not sheets:
        raise ValueError(f"nothing to show in a table of {kind}: {wanted.why_not}")
    sheets = (*sheets[:-1], replace(sheets[-1], notes=(*sheets[-1].notes, *left_out)))
    return Made(sheets, _together([one.data for one in made if len(one.data)]), kind)


def _of_family(records: pd.DataFrame, paper: Published) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Return the records that may stand beside the paper's values, and a sentence on the others."""
    why_not = [paper.why_not(Identity.of(row)) for row in as_rows(records)]
    reasons = "; ".join(dict.fromkeys(filter(None, why_not)))
    kept = records[[not reason for reason in why_not]]
    if kept.empty:
        family = ", ".join(name if version == 1 else f"{name} v{version}" for name, version in paper.family.items())
        raise ValueError(f"{paper.name} stands beside {family} alone: {reasons}")
    return kept, (f"Not compared: {reasons}.",) if reasons else ()


def _with_its_cells(made: list[Made]) -> tuple[list[Made], tuple[str, ...]]:
    """Return the protocols that have a cell of the paper's, and a sentence on the others; all, if none has one."""
    has_some = [bool(one.data["paper_value"].notna().any()) for one in made]
    if all(has_some) or not any(has_some):
        return made, ()
    without = [sheet.title for one, has in zip(made, has_some, strict=True) if not has for sheet in one.sheets]
    return list(compress(made, has_some)), (f"No cell of the paper's: {', '.join(without)}.",)


def text(made: Made, form: Format, *, colour: bool = False) -> str:
    made_as: dict[Format, Callable[[], str]] = {
        "text": lambda: plain(made.sheets, colour=colour),
        "markdown": lambda: formats.markdown(made.sheets),
        "csv": lambda: csv(made.data),
        "latex": lambda: latex(made.sheets, made.kind),
        "html": lambda: formats.html_fragment(made.sheets),
    }
    return made_as[form]()


def markdown(table: pd.DataFrame) -> str:
    """Write all cells as Markdown, a table for each protocol."""
    return formats.markdown([accuracy_sheet(group) for _, group in table.groupby("protocol", sort=True)])


def csv(table: pd.DataFrame) -> str:
    """Numbers to six digits; of a cell the labels, which say all that its names and settings do."""
    shown = table.drop(columns=[name for name in COLUMNS if name in table])
    return csv_of(shown, float_format="%.6g")


def write(results: Path, records: pd.DataFrame | None = None) -> str:
    """Bring records.csv up to date, write results/tables/accuracy.{csv,md} where allowed, and return the markdown.

    `records` where it was brought up to date just now.
    """
    return _written(results, collect(results) if records is None else records)


def _written(results: Path, records: pd.DataFrame) -> str:
    table = cells(records)
    text = markdown(table)
    for name, content in (("accuracy.csv", csv(table)), ("accuracy.md", text)):
        write_where_allowed(results / "tables" / name, content.encode())
    return text


def write_all(
    results: Path,
    records: pd.DataFrame | None = None,
    *,
    against: Sequence[str] = (),
    forms: Sequence[Format] = tuple(ENDINGS),
) -> tuple[list[Path], list[str]]:
    """Write every kind of table under results/tables/ in these formats. Return the files, and why kinds are missing."""
    folder = results / "tables"
    records = collect(results) if records is None else records
    _written(results, records)
    paths, why_not = [folder / "accuracy.csv", folder / "accuracy.md"], []
    rows = as_rows(records)
    for paper in (None, *against):
        for kind in all_kinds():
            if not kind.when(records) if paper is None else kind.against is None:
                continue
            try:
                made = table(records, kind.name, against=paper, rows=rows)
            except ValueError as nothing:
                why_not.append(str(nothing))
                continue
            if paper is not None and made.data["paper_value"].isna().all():
                why_not.append(f"no {kind.name} of these runs is in {Path(paper).stem}")
                continue
            name = f"{kind.name}_against_{Path(paper).stem}" if paper else kind.name
            paths += write_made(folder, name, made, [form for form in forms if folder / _file(name, form) not in paths])
    return paths, list(dict.fromkeys(why_not))


def write_made(folder: Path, name: str, made: Made, forms: Sequence[Format]) -> list[Path]:
    """Write one table in these formats, and return the files."""
    paths = [folder / _file(name, form) for form in forms]
    for path, form in zip(paths, forms, strict=True):
        write_atomically(path, text(made, form).encode())
    return paths


def _file(name: str, form: Format) -> str:
    return f"{name}.{ENDINGS[form]}"


def _together(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Below each other, integers whole and empty columns kept."""
    joined = pd.concat([frame.astype(object) for frame in frames], ignore_index=True)
    kinds = {name: {type(value) for value in joined[name].dropna()} for name in joined}
    return joined.astype({name: "Int64" for name, found in kinds.items() if found == {int}}).infer_objects()
