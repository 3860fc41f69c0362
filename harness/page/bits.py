"""The page's section on rounded weights: accuracy by bits, a table for every task that was tried with some."""

from html import escape

import pandas as pd

from chomsky_ladder.harness.stats.cells import SOLVED
from chomsky_ladder.harness.stats.rows import as_rows
from chomsky_ladder.harness.tables.kinds.bits import bits, unrounded
from chomsky_ladder.harness.tables.sheets import Sheet


def section(records: pd.DataFrame) -> str:
    """Empty where nothing was rounded."""
    protocols = pd.Series([unrounded(row) for row in as_rows(records)], records.index)
    tables = [_table(sheet) for _, group in records.groupby(protocols, sort=True) for sheet in bits(group).sheets]
    if not tables:
        return ""
    return (
        '<section class="block" id="bits" aria-labelledby="bits-title">'
        '<h2 id="bits-title">Accuracy by the bits of the weights</h2>'
        "<p>Trained and scored with weight matrices rounded to so few bits; activations and states are whole. Scaled"
        " test accuracy at the rate chosen on validation: median over seeds, [lowest, highest] where they differ, and"
        f" k/n, how many of the n runs reached {SOLVED:g}. Every cell is above, with its protocol.</p>\n"
        f"{''.join(tables)}</section>"
    )


def _table(sheet: Sheet) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("", *(column.name for column in sheet.columns)))
    body = ""
    for line in sheet.lines:
        cells = "".join(f"<td>{escape(' '.join(entry.lines))}</td>" for entry in line.entries)
        body += f'<tr><th scope="row"><bdi>{escape(line.name)}</bdi></th>{cells}</tr>\n'
    warning = f'<p class="warning">{escape(sheet.warning)}</p>' if sheet.warning else ""
    return (
        f"<h3><bdi>{escape(sheet.title)}</bdi></h3>{warning}"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(sheet.title)}">'
        f'<table class="plain boards"><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>\n'
    )
