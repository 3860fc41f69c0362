"""Sheets as markdown, LaTeX (booktabs) and HTML. Names come from plugins and settings: all of them are escaped.

    a|b <i>_       markdown  a\\|b &lt;i&gt;\\_      LaTeX  a\\textbar{}b \\textless{}i\\textgreater{}\\_

LaTeX of names outside ASCII shows code points, since no font of pdflatex has them all. HTML is one fragment with its
own style: no script, and nothing to load.
"""

import html
import re
from collections.abc import Sequence
from itertools import groupby

from chomsky_ladder.harness.tables.sheets import SIGNS, Column, Entry, Line, Mark, Sheet

_COLOURS: dict[Mark, tuple[int, int, int]] = {"agrees": (0, 114, 178), "differs": (213, 94, 0)}  # of Okabe and Ito

_PACKAGES = "% needs \\usepackage{booktabs}, \\usepackage{graphicx} and \\usepackage{xcolor}\n"

_LATEX = {
    **{sign: f"\\{sign}" for sign in "#$%&_{}"},
    **{sign: f"{{{sign}}}" for sign in "[]*'"},  # not an option of the \\ before it; not a ligature
    **{sign: f"{{\\ttfamily\\char{ord(sign)}}}" for sign in '"`'},
    "\\": "\\textbackslash{}",
    "^": "\\textasciicircum{}",
    "~": "\\textasciitilde{}",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
    "|": "\\textbar{}",
    "±": "$\\pm$",
    "≈": "$\\approx$",
    "≠": "$\\neq$",
    "≤": "$\\leq$",
    "\0": "{}",
}

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
    below = ", ".join(_md(part) for part in (column.group, column.remark) if part)
    return f"{_md(column.name)}<br>{below}" if below else _md(column.name)


def _md_entry(entry: Entry) -> str:
    first, *more = map(_md, _signed(entry))
    return "<br>".join([f"**{first}**" if entry.bold else first, *more])


def _md(text: str) -> str:
    """Nothing in it is markup; an underscore within a word never is."""
    escaped = re.sub(r"([\\`*\[\]|~$#])", r"\\\1", html.escape(_one_line(text), quote=False))
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", escaped)


def latex(sheets: Sequence[Sheet]) -> str:
    """One table environment a sheet; a wide one is scaled to the text's width.

    After every tenth the pages are cleared: LaTeX gives up over a hundred that wait for their place.
    """
    tenths = [sheets[first : first + 10] for first in range(0, len(sheets), 10)]
    return "\n".join([_PACKAGES, "\n\\clearpage\n".join("\n".join(map(_latex, tenth)) for tenth in tenths)])


def _latex(sheet: Sheet) -> str:
    groups = [(group, len(list(members))) for group, members in groupby(column.group for column in sheet.columns)]
    rows = []
    if any(group for group, _ in groups):
        spans = [f"\\multicolumn{{{width}}}{{c}}{{{_tex(group)}}}" for group, width in groups]
        rows.append(" & ".join(["", *spans]) + " \\\\")
        rows.append(" ".join(f"\\cmidrule(lr){{{a}-{b}}}" for a, b in _ruled(groups)))
    names = [f"{column.name} ({column.remark})" if column.remark else column.name for column in sheet.columns]
    rows.append(" & ".join(map(_tex, [sheet.corner, *names])) + " \\\\")
    parts = [rows, *([_tex_line(line) for line in lines] for lines in _parts(sheet))]
    body = "\n\\midrule\n".join("\n".join(part) for part in parts)
    said = [f"\\textbf{{{_tex(sheet.title)}}}.", *map(_tex, sheet.lead)]
    said += [f"\\textbf{{{_tex(sheet.warning)}}}"] if sheet.warning else []
    said += map(_tex, sheet.notes)
    return (
        f"\\begin{{table}}[!htbp]\n\\centering\n\\caption{{{' '.join(said)}}}\n"
        "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%\n"
        f"\\begin{{tabular}}{{l{'r' * len(sheet.columns)}}}\n\\toprule\n{body}\n\\bottomrule\n\\end{{tabular}}}}\n"
        "\\end{table}\n"
    )


def _ruled(groups: Sequence[tuple[str, int]]) -> list[tuple[int, int]]:
    """First and last column of every group that has a name."""
    ruled, first = [], 2
    for group, width in groups:
        if group:
            ruled.append((first, first + width - 1))
        first += width
    return ruled


def _tex_line(line: Line) -> str:
    name = f"\\emph{{{_tex(line.name)}}}" if line.is_floor else _tex(line.name)
    return " & ".join([name, *map(_tex_entry, line.entries)]) + " \\\\"


def _tex_entry(entry: Entry) -> str:
    shown = ["--" if line == "-" else _tex_number(line) for line in _signed(entry)]
    if entry.bold:
        shown[0] = f"\\textbf{{{shown[0]}}}"
    if entry.mark in _COLOURS:
        shown[-1] = f"\\textcolor[RGB]{{{','.join(map(str, _COLOURS[entry.mark]))}}}{{{shown[-1]}}}"
    stacked = " \\\\ ".join(shown)
    return shown[0] if len(shown) == 1 else f"\\shortstack[r]{{{stacked}}}"


def _tex_number(text: str) -> str:
    return re.sub(r"(?<!\S)-(?=\d)", "$-$", _tex(text))


def _tex(text: str) -> str:
    single = re.sub(r"([-,])(?=\1)", "\\1\0", _one_line(text))  # two of them would be one sign
    return "".join(_LATEX.get(sign) or _tex_sign(sign) for sign in single)


def _tex_sign(sign: str) -> str:
    return sign if sign.isascii() else f"{{[}}U+{ord(sign):04X}{{]}}"


def html_fragment(sheets: Sequence[Sheet]) -> str:
    """A div with its own style, for any page."""
    colours = [
        f".ladder-table .{mark} {{ background: rgb({' '.join(map(str, colour))} / .2); }}\n"
        for mark, colour in _COLOURS.items()
    ]
    return f"<div>\n{_STYLE}{''.join(colours)}</style>\n{''.join(map(_html, sheets))}</div>\n"


def _html(sheet: Sheet) -> str:
    groups = [(group, len(list(members))) for group, members in groupby(column.group for column in sheet.columns)]
    head = ""
    if any(group for group, _ in groups):
        spans = [f'<th class="group" colspan="{width}">{_text(group)}</th>' for group, width in groups]
        head = f"<tr><td></td>{''.join(spans)}</tr>\n"
    names = [f"{column.name} ({column.remark})" if column.remark else column.name for column in sheet.columns]
    titles = [f'<th scope="col">{_text(name)}</th>' for name in [sheet.corner, *names]]
    head += f"<tr>{''.join(titles)}</tr>\n"
    bodies = [f"<tbody>\n{''.join(map(_html_line, lines))}</tbody>\n" for lines in _parts(sheet)]
    warning = f" <strong>{_text(sheet.warning)}</strong>" if sheet.warning else ""
    caption = f"<strong>{_text(sheet.title)}</strong><br>{' '.join(map(_text, sheet.lead))}{warning}"
    notes = "".join(f"<p>{_text(note)}</p>\n" for note in sheet.notes)
    table = f"<table>\n<caption>{caption}</caption>\n<thead>\n{head}</thead>\n{''.join(bodies)}</table>\n"
    return f'<section class="ladder-table">\n{table}{notes}</section>\n'


def _html_line(line: Line) -> str:
    row = '<tr class="floor">' if line.is_floor else "<tr>"
    return f'{row}<th scope="row">{_text(line.name)}</th>{"".join(map(_html_entry, line.entries))}</tr>\n'


def _html_entry(entry: Entry) -> str:
    shown = ["–" if line == "-" else _text(line) for line in _signed(entry)]
    if entry.bold:
        shown[0] = f"<strong>{shown[0]}</strong>"
    opened = f'<td class="{entry.mark}">' if entry.mark else "<td>"
    return f"{opened}{'<br>'.join(shown)}</td>"


def _text(text: str) -> str:
    return html.escape(_one_line(text))


def _parts(sheet: Sheet) -> list[list[Line]]:
    """The models and, apart from them, the floors."""
    return [list(lines) for _, lines in groupby(sheet.lines, key=lambda line: line.is_floor)]


def _signed(entry: Entry) -> list[str]:
    """Its lines, the last with the sign of its mark: colour alone is not seen by everyone."""
    sign = SIGNS.get(entry.mark)
    return [*entry.lines[:-1], f"{entry.lines[-1]} {sign}" if sign else entry.lines[-1]]


def _one_line(text: str) -> str:
    """Without line breaks and with nothing that cannot be seen."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in " ".join(text.split()))
