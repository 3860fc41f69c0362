"""Sheets as markdown and HTML. Names come from plugins and settings: all of them are escaped.

    a|b <i>_       markdown  a\\|b &lt;i&gt;\\_

HTML is one fragment with its own style: no script, and nothing to load.
"""

import html
import re
from collections.abc import Sequence
from itertools import groupby

from chomsky_ladder.harness.tables.sheets import SIGNS, Column, Entry, Line, Mark, Sheet

COLOURS: dict[Mark, tuple[int, int, int]] = {"agrees": (0, 114, 178), "differs": (213, 94, 0)}  # of Okabe and Ito
COLOURS |= {"floor": (120, 120, 120)}

_STYLE = """<style>
.ladder-table { overflow-x: auto; margin-block: 1em; }
.ladder-table table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.ladder-table caption { text-align: left; }
.ladder-table th, .ladder-table td { padding: .2em .6em; text-align: right; white-space: nowrap; }
.ladder-table tr > :first-child { text-align: left; }
.ladder-table thead { border-block: 1px solid; }
.ladder-table .group { text-align: center; font-weight: normal; }
.ladder-table tbody th { font-weight: normal; }
.ladder-table .floor { font-style: italic; }
.ladder-table tbody + tbody, .ladder-table tbody:last-child { border-block: 1px solid; }
"""


def markdown(sheets: Sequence[Sheet]) -> str:
    return "\n".join(map(_markdown, sheets))


def _markdown(sheet: Sheet) -> str:
    header = [_md(sheet.corner), *map(_md_column, sheet.columns)]
    lines = [header, ["---", *("---:" for _ in sheet.columns)]]
    for line in sheet.lines:
        name = f"*{_md(line.name)}*" if line.is_floor else _md(line.name)
        lines.append([name, *map(_md_entry, line.entries)])
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    lead = [*map(_md, sheet.lead), *([f"**{_md(sheet.warning)}**"] if sheet.warning else [])]
    notes = "".join(f"\n{_md(note)}\n" for note in sheet.notes)
    return f"### {_md(sheet.title)}\n\n{' '.join(lead)}\n\n{body}\n{notes}"


def _md_column(column: Column) -> str:
    below = ", ".join(_md(part) for part in (column.group, column.remark, column.about) if part)
    return f"{_md(column.name)}<br>{below}" if below else _md(column.name)


def _md_entry(entry: Entry) -> str:
    first, *more = map(_md, signed(entry))
    return "<br>".join([f"**{first}**" if entry.bold else first, *more])


def _md(text: str) -> str:
    """Nothing in it is markup; an underscore within a word never is."""
    escaped = re.sub(r"([\\`*\[\]|~$#])", r"\\\1", html.escape(one_line(text), quote=False))
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", escaped)


plain_markdown = _md  # for whatever else is written as markdown


def html_fragment(sheets: Sequence[Sheet]) -> str:
    """Return a div with its own style, for any page."""
    colours = [
        f".ladder-table .{mark} {{ background: rgb({' '.join(map(str, colour))} / .2); }}\n"
        for mark, colour in COLOURS.items()
    ]
    return f"<div>\n{_STYLE}{''.join(colours)}</style>\n{''.join(map(_html, sheets))}</div>\n"


def _html(sheet: Sheet) -> str:
    groups = [(group, len(list(members))) for group, members in groupby(column.group for column in sheet.columns)]
    head = ""
    if any(group for group, _ in groups):
        spans = [f'<th class="group" colspan="{width}">{_text(group)}</th>' for group, width in groups]
        head = f"<tr><td></td>{''.join(spans)}</tr>\n"
    names = [f"{column.title} ({column.about})" if column.about else column.title for column in sheet.columns]
    titles = [f'<th scope="col">{_text(name)}</th>' for name in [sheet.corner, *names]]
    head += f"<tr>{''.join(titles)}</tr>\n"
    bodies = [f"<tbody>\n{''.join(map(_html_line, lines))}</tbody>\n" for lines in models_and_floors(sheet.lines)]
    warning = f" <strong>{_text(sheet.warning)}</strong>" if sheet.warning else ""
    caption = f"<strong>{_text(sheet.title)}</strong><br>{' '.join(map(_text, sheet.lead))}{warning}"
    notes = "".join(f"<p>{_text(note)}</p>\n" for note in sheet.notes)
    table = f"<table>\n<caption>{caption}</caption>\n<thead>\n{head}</thead>\n{''.join(bodies)}</table>\n"
    return f'<section class="ladder-table">\n{table}{notes}</section>\n'


def _html_line(line: Line) -> str:
    row = '<tr class="floor">' if line.is_floor else "<tr>"
    return f'{row}<th scope="row">{_text(line.name)}</th>{"".join(map(_html_entry, line.entries))}</tr>\n'


def _html_entry(entry: Entry) -> str:
    shown = ["–" if line == "-" else _text(line) for line in signed(entry)]
    if entry.bold:
        shown[0] = f"<strong>{shown[0]}</strong>"
    opened = f'<td class="{entry.mark}">' if entry.mark else "<td>"
    return f"{opened}{'<br>'.join(shown)}</td>"


def _text(text: str) -> str:
    return html.escape(one_line(text))


def models_and_floors(lines: Sequence[Line]) -> list[list[Line]]:
    """Return the models and, apart from them, the floors."""
    return [list(alike) for _, alike in groupby(lines, key=lambda line: line.is_floor)]


def signed(entry: Entry) -> list[str]:
    """Return an entry's lines, the last with the sign of its mark, since not everyone sees colour."""
    sign = SIGNS.get(entry.mark)
    return [*entry.lines[:-1], f"{entry.lines[-1]} {sign}" if sign else entry.lines[-1]]


def one_line(text: str) -> str:
    """Return the text without line breaks and invisible characters."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in " ".join(text.split()))
