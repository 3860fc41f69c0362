"""Sheets as LaTeX (booktabs), as a paper takes them: a caption in the paper's words, the small print in a note below.

    \\begin{table}  \\caption{xlstm_cpu. Scaled test accuracy ..}  \\label{tab:xlstm-cpu}  \\begin{tabular} ..

Nothing is scaled to fit: what is too wide for a line of text stands class by class, one tabular below the other, and
what is too high for a page goes on in a further table of the same number. Names outside ASCII show code points, since
no font of pdflatex has them all.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from chomsky_ladder.harness.tables.formats import COLOURS, models_and_floors, one_line, signed
from chomsky_ladder.harness.tables.plain_text import parts, texts
from chomsky_ladder.harness.tables.sheets import Column, Entry, Line, Sheet

_ACROSS = 72  # signs of the small size in a line of text
_DOWN = 44  # lines of that size on a page
_SET_APART = 3  # lines that a tabular's rules and the room around it take

_NEEDS = "% needs \\usepackage{booktabs} and \\usepackage{xcolor}\n"
_CHECK = "$\\checkmark$"
_NEEDS_CHECKS = "% needs \\usepackage{booktabs}, \\usepackage{xcolor} and \\usepackage{amssymb}\n"

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
    "°": "$^\\circ$",
    "≈": "$\\approx$",
    "●": "$\\bullet$",
    "◐": "$\\odot$",
    "○": "$\\circ$",
    "·": "$\\cdot$",
    "✓": _CHECK,
    "✗": "$\\times$",
    "≠": "$\\neq$",
    "≤": "$\\leq$",
    "\0": "{}",
}


def latex(sheets: Sequence[Sheet], kind: str = "") -> str:
    """One table environment a sheet, or several; its label begins with the kind of table.

    After every tenth the pages are cleared: LaTeX gives up over a hundred that wait for their place.
    """
    tables = [table for sheet in sheets for table in _latex(sheet, kind)]
    tenths = [tables[first : first + 10] for first in range(0, len(tables), 10)]
    made = "\n\\clearpage\n".join(map("\n".join, tenths))
    return "\n".join([_NEEDS_CHECKS if _CHECK in made else _NEEDS, made])


def _latex(sheet: Sheet, kind: str) -> list[str]:
    heads = [_head(column) for column in sheet.columns]
    entries = [
        [*head, *(text for line in sheet.lines for text in texts(line.entries[place]))]
        for place, head in enumerate(heads)
    ]
    first = max(len(sheet.corner), *(len(line.name) for line in sheet.lines), 0)
    beside = parts(sheet.columns, [max(map(len, column)) for column in entries], _ACROSS - first)
    caption = [f"\\textbf{{{tex(sheet.title)}}}.", *map(tex, sheet.lead[:1])]
    note = [*map(tex, sheet.lead[1:]), *([f"\\textbf{{{tex(sheet.warning)}}}"] if sheet.warning else [])]
    note += map(tex, (*sheet.stands_for, *sheet.notes))
    below = f"\\par\\smallskip\n\\parbox{{\\linewidth}}{{\\footnotesize {' '.join(note)}}}\n" if note else ""
    small = (len(" ".join(caption)) + len(" ".join(note))) // _ACROSS + max(map(len, heads), default=1) + 1
    pieces = [_Piece(tuple(part), lines) for part in beside for lines in _fitting(sheet, part, _DOWN - small)]
    pages = _paged(pieces, _DOWN - small)
    shown = ["\\par\\medskip\n".join(_tabular(sheet, heads, piece) for piece in page) for page in pages]
    made = [f"\\caption{{{' '.join(caption)}}}\n\\label{{{label(sheet, kind)}}}\n{shown[0]}"]
    goes_on = f"\\addtocounter{{table}}{{-1}}\n\\caption{{{caption[0]} Continued.}}\n"
    made += [f"{goes_on}{tabulars}" for tabulars in shown[1:]]
    made[-1] += below
    head = "\\begin{table}[!htbp]\n\\centering\\small\\setlength{\\tabcolsep}{4pt}\n"
    return [f"{head}{each}\\end{{table}}\n" for each in made]


def _head(column: Column) -> list[str]:
    """Return the lines of a column's name. A name that a note explains stands word below word."""
    return (column.about and column.name.split()) or [column.title]


@dataclass(frozen=True)
class _Piece:
    """A tabular: some columns of some lines."""

    part: tuple[int, ...]
    lines: tuple[Line, ...]

    def high(self) -> int:
        return _SET_APART + 2 + sum(_high(line, self.part) for line in self.lines)


def _high(line: Line, part: Sequence[int]) -> int:
    return max(len(line.entries[place].lines) for place in part)


def _fitting(sheet: Sheet, part: Sequence[int], room: int) -> list[tuple[Line, ...]]:
    """Return the lines of a tabular that fits on a page."""
    found: list[list[Line]] = [[]]
    for line in sheet.lines:
        if found[-1] and _Piece(tuple(part), (*found[-1], line)).high() > room:
            found.append([])
        found[-1].append(line)
    return [tuple(lines) for lines in found]


def _paged(pieces: Sequence[_Piece], room: int) -> list[list[_Piece]]:
    """Group the pieces that share a page, in their order."""
    found: list[list[_Piece]] = [[]]
    for piece in pieces:
        if found[-1] and sum(each.high() for each in found[-1]) + piece.high() > room:
            found.append([])
        found[-1].append(piece)
    return found


def label(sheet: Sheet, kind: str) -> str:
    """accuracy of xlstm_cpu (train.qat=4)     tab:accuracy-xlstm-cpu-train-qat-4"""
    return "tab:" + re.sub(r"[^a-z0-9]+", "-", f"{kind} {sheet.title}".lower()).strip("-")


def _tabular(sheet: Sheet, heads: Sequence[Sequence[str]], piece: _Piece) -> str:
    part = piece.part
    groups = [(group, len(list(own))) for group, own in groupby(sheet.columns[place].group for place in part)]
    rows = []
    if any(group for group, _ in groups):
        spans = [f"\\multicolumn{{{width}}}{{c}}{{{tex(group)}}}" for group, width in groups]
        rows.append(" & ".join(["", *spans]) + " \\\\")
        rows.append(" ".join(f"\\cmidrule(lr){{{a}-{b}}}" for a, b in _ruled(groups)))
    rows.append(" & ".join([tex(sheet.corner), *(_stacked([*map(tex, heads[place])]) for place in part)]) + " \\\\")
    blocks = [rows, *([_tex_line(line, part) for line in lines] for lines in models_and_floors(piece.lines))]
    body = "\n\\midrule\n".join("\n".join(block) for block in blocks)
    return f"\\begin{{tabular}}{{l{'r' * len(part)}}}\n\\toprule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"


def _ruled(groups: Sequence[tuple[str, int]]) -> list[tuple[int, int]]:
    """First and last column of every group that has a name."""
    ruled, first = [], 2
    for group, width in groups:
        if group:
            ruled.append((first, first + width - 1))
        first += width
    return ruled


def _tex_line(line: Line, part: Sequence[int]) -> str:
    name = f"\\emph{{{tex(line.name)}}}" if line.is_floor else tex(line.name)
    return " & ".join([name, *(_tex_entry(line.entries[place]) for place in part)]) + " \\\\"


def _tex_entry(entry: Entry) -> str:
    shown = ["--" if line == "-" else _tex_number(line) for line in signed(entry)]
    if entry.bold:
        shown[0] = f"\\textbf{{{shown[0]}}}"
    if entry.mark in COLOURS:
        shown[-1] = f"\\textcolor[RGB]{{{','.join(map(str, COLOURS[entry.mark]))}}}{{{shown[-1]}}}"
    return _stacked(shown)


def _stacked(lines: Sequence[str]) -> str:
    both = " \\\\ ".join(lines)
    return lines[0] if len(lines) == 1 else f"\\shortstack[r]{{{both}}}"


def _tex_number(text: str) -> str:
    """Write a hyphen at the start of a number, also after a bracket, as a minus, and leave it within a word."""
    return re.sub(r"(?<![^\s}])-(?=\d)", "$-$", tex(text))


def tex(text: str) -> str:
    """Return a text of which nothing is markup to LaTeX."""
    single = re.sub(r"([-,])(?=\1)", "\\1\0", one_line(text))  # two of them would be one sign
    return "".join(_LATEX.get(sign) or _tex_sign(sign) for sign in single)


def _tex_sign(sign: str) -> str:
    return sign if sign.isascii() else f"{{[}}U+{ord(sign):04X}{{]}}"
