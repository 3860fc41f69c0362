"""Markdown, LaTeX and HTML of sheets, read back by parsers of their own: names arrive as they are, as text alone."""

import csv
import re
import shutil
import subprocess
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from chomsky_ladder.harness.stats.cells import cells
from chomsky_ladder.harness.store.harmless import cell_of
from chomsky_ladder.harness.store.record import stored
from chomsky_ladder.harness.tables import write as tables
from chomsky_ladder.harness.tables.formats import html_fragment, markdown
from chomsky_ladder.harness.tables.latex import latex
from chomsky_ladder.harness.tables.plain_text import plain
from chomsky_ladder.harness.tables.sheets import DASH, Column, Entry, Line, Sheet, accuracy_sheet
from chomsky_ladder.harness.tables.write import table, text
from support.records_by_hand import frame, record

ROOT = Path(__file__).parents[3]
HOSTILE = (
    "a|b||c",
    "<script>alert(1)</script>",
    '<img src=x onerror="alert(1)">',
    "</td></table></section></style>",
    "*bold* _em_ __strong__ ~~gone~~ `code`",
    "[link](javascript:alert(1)) ![x](y)",
    "\\input{/etc/passwd} \\\\ \\end{tabular}",
    "100% #1 $x^2$ & {y} ~z",
    "&amp; &lt; &#124;",
    "*starred",
    "[0.5em] first",
    "_leading_ snake_case trailing_",
    "a -- b --- c,, <<d>> ``e'' !`f ?`g \"h\"",
    "-1.5",
    "a <br> b",
    "ünïcode Σ* 模型 🙂",
)
BROKEN = ("two\nlines", "tab\tand\rreturn", "bell\x07 null\x00 bidi\u202e zero\u200bwidth")

CURVE = {"test_bins": '{"40..64":0.9}', "content_free_bins": '{"40..64":0.5}'}
PACKAGES = "\\usepackage{booktabs}\n\\usepackage{xcolor}\n\\usepackage{amssymb}\n"


def sheet_of(*names: str) -> Sheet:
    """Every name in every place that one can reach."""
    columns = tuple(Column(name, group=name, remark=name, about=name) for name in names)
    lines = [Line(name, tuple(Entry((other, name)) for other in names)) for name in names]
    floors = [Line(name, tuple(Entry((other,)) for other in names), is_floor=True) for name in names]
    return Sheet(names[0], names, names[-1], columns, (*lines, *floors), names, warning=names[0])


class Page(HTMLParser):
    """The tags of a fragment, and the text of every cell and paragraph, with a line break as a bar."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.cells: list[list[str]] = []
        self.marks: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "br":
            if "tr" in self.open:
                self.cells[-1][-1] += "|"
            return
        self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")
            self.marks.append((dict(attrs).get("class") or "", ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "tr" in self.open:
            self.cells[-1][-1] += data
            self.marks[-1] = (self.marks[-1][0], self.marks[-1][1] + data)


@pytest.mark.parametrize("name", HOSTILE)
def test_html_shows_a_hostile_name_as_text(name: str) -> None:
    page = Page(html_fragment([sheet_of(name)]))
    assert page.tags <= {
        "div",
        "style",
        "section",
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "br",
        "p",
    } | {"strong"}
    assert page.attributes <= {"class", "scope", "colspan"}
    assert page.cells == [["", name], [name, f"{name} ({name}) ({name})"], [name, f"{name}|{name}"], [name, name]]


def test_html_is_one_fragment_that_loads_nothing() -> None:
    text = html_fragment([sheet_of("a"), sheet_of("b")])
    assert text.startswith("<div>") and text.endswith("</div>\n")
    assert text.count("<style>") == 1 and text.count("<section") == 2
    assert not re.search(r"url\(|@import|src=|href=|<script|https?:", text)


@pytest.mark.parametrize("name", HOSTILE)
def test_markdown_shows_a_hostile_name_as_text(name: str) -> None:
    markdown_it = pytest.importorskip("markdown_it", reason="the markdown parser is not installed")
    parser = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"])
    tokens = [token for token in parser.parse(markdown([sheet_of(name, "plain")])) if token.type == "inline"]
    seen = ["".join({"softbreak": "\n"}.get(t.type, t.content) for t in token.children) for token in tokens]
    kinds = {child.type for token in tokens for child in token.children}
    assert kinds <= {"text", "text_special", "html_inline", "em_open", "em_close", "strong_open", "strong_close"}
    assert {t.content for token in tokens for t in token.children if t.type == "html_inline"} == {"<br>"}
    header = ["plain", f"{name}<br>{name}, {name}, {name}", "plain<br>plain, plain, plain"]
    rows = [[name, f"{name}<br>{name}", f"plain<br>{name}"], ["plain", f"{name}<br>plain", "plain<br>plain"]]
    floors = [[name, name, "plain"], ["plain", name, "plain"]]
    assert seen[:2] == [name, f"{name} plain {name}"]
    assert seen[2:] == [entry for row in (header, *rows, *floors) for entry in row] + [name, "plain"]


def test_markdown_keeps_plain_names_as_they_are() -> None:
    names = ("lstm_block (d_model=16, forget_bias=1.0)", "xlstm (ratio=0:1)", "xlstm (train.lengths=3..40)", "s4-d v2")
    text = markdown([sheet_of(*names)])
    assert "\\" not in text and "&" not in text
    assert all(name in text for name in names)


def test_csv_keeps_every_name_and_none_is_a_formula(tmp_path: Path) -> None:
    names = [*HOSTILE, "two\nlines", "comma, quote \" and 'more'", "=1+1"]
    rows = [record(task=name, model=f"of {name}", run_id=f"run-{i}", **CURVE) for i, name in enumerate(names)]
    for kind in ("accuracy", "lengths"):
        (tmp_path / "table.csv").write_text(text(table(frame(*rows), kind), "csv"), newline="")
        with (tmp_path / "table.csv").open(newline="") as file:
            found = {(cell_of(row["task"]), row["model"]) for row in csv.DictReader(file) if row["model"]}
        assert found == {(name, f"of {name}") for name in names}


def test_a_regular_expression_does_not_break_the_accuracy_table() -> None:
    text = tables.markdown(cells(frame(record(task="regular (pattern=(a|b)*|c)"))))
    assert "| model | regular (pattern=(a\\|b)\\*\\|c)<br>regular | s a run |" in text


@pytest.mark.parametrize("name", BROKEN)
def test_a_name_stays_on_its_line_and_hides_nothing(name: str) -> None:
    sheets = [sheet_of(name)]
    lines = [
        text.count("\n") for text in (markdown([sheet_of("a")]), latex([sheet_of("a")]), html_fragment([sheet_of("a")]))
    ]
    texts = (markdown(sheets), latex(sheets), html_fragment(sheets))
    assert [text.count("\n") for text in texts] == lines
    assert all(sign.isprintable() or sign == "\n" for text in texts for sign in text)


def test_every_minus_of_an_interval_is_one_in_latex() -> None:
    entry = Entry(("-0.03 [-0.04, -0.02]", "a-1 2e-3"))
    text = latex([Sheet("p", (), "model", (Column("parity"),), (Line("m", (entry,)),))])
    assert "{$-$0.03 {[}$-$0.04, $-$0.02{]} \\\\ a-1 2e-3}" in text


def test_latex_of_a_name_by_hand() -> None:
    text = latex([sheet_of("a_b & 50% [x] \\y{z} é --")])
    shown = "a\\_b \\& 50\\% {[}x{]} \\textbackslash{}y\\{z\\} {[}U+00E9{]} -{}-"
    assert f"\n{shown} & \\shortstack[r]{{{shown} \\\\ {shown}}} \\\\\n" in text
    assert f"\n\\emph{{{shown}}} & {shown} \\\\\n" in text
    assert f"\n & \\multicolumn{{1}}{{c}}{{{shown}}} \\\\\n\\cmidrule(lr){{2-2}}\n" in text


def test_latex_is_ascii_and_braced() -> None:
    text = latex([sheet_of(*HOSTILE)])
    assert text.isascii()
    bare = re.sub(r"\\[\\{}]", "", text)
    assert bare.count("{") == bare.count("}")


@pytest.mark.full
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(tmp_path: Path) -> None:
    rows = [record(task=task, model=model) for task in ("parity", "set_", "a&b") for model in ("lstm", "[x]", "*y")]
    marked = Entry(("0.9 ± 0.1 (3)", "paper 0.8", "-0.10"), bold=True, mark="differs")
    sheets = [accuracy_sheet(cells(frame(*rows))), *(sheet_of(name, "plain") for name in HOSTILE + BROKEN)]
    sheets += [Sheet("p", ("≤ ≈ ≠ ± ✓ ✗",), "model", (Column("t"),), (Line("m", (marked,)),), warning="Quick.")] * 60
    compiled(latex(sheets), tmp_path)
    assert (tmp_path / "table.pdf").stat().st_size > 1000


@pytest.mark.full
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_the_published_tables_compile_and_few_are_too_wide(tmp_path: Path) -> None:
    """Tables of climbs span many pages, and LaTeX can queue no more than a hundred of these."""
    published = stored(ROOT / "results" / "records.csv")
    for kind in ("climb", "cost", "learning", "lengths"):
        written = text(table(published, kind), "latex")
        assert "U+" not in written, "a sign of ours that has none in LaTeX"
        said = compiled(written, tmp_path)
        assert sum("Overfull \\hbox" in line for line in said.splitlines()) < 4


def compiled(tables: str, folder: Path) -> str:
    """Return the output of pdflatex on these tables."""
    head = "\\documentclass{article}\n" + PACKAGES
    (folder / "table.tex").write_text(f"{head}\\begin{{document}}\n{tables}\\end{{document}}\n")
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "table.tex"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, errors="replace", timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


def test_marks_are_signs_and_colours() -> None:
    marks = ("agrees", "differs", "undecided", "floor", "")
    entries = tuple(Entry(("0.50", "paper 0.51", "-0.01"), mark=mark) for mark in marks)
    sheet = Sheet("p", (), "model", tuple(Column(mark) for mark in marks), (Line("m", entries),))
    row = markdown([sheet]).splitlines()[6]
    assert [entry.strip().split("<br>")[-1] for entry in row.split("|")[2:-1]] == [
        "-0.01 ≈",
        "-0.01 ≠",
        "-0.01 ?",
        "-0.01 ·",
        "-0.01",
    ]
    page = Page(html_fragment([sheet]))
    assert [kind for kind, text in page.marks[-5:]] == [*marks]
    assert re.findall(r"rgb\(([\d ]+) /", html_fragment([sheet])) == ["0 114 178", "213 94 0", "120 120 120"]
    text = latex([sheet])
    assert "\\textcolor[RGB]{0,114,178}{$-$0.01 $\\approx$}" in text
    assert "\\textcolor[RGB]{213,94,0}{$-$0.01 $\\neq$}" in text
    assert text.count("\\textcolor") == 3


def test_what_a_column_stands_for_is_below_where_there_is_no_room_beside() -> None:
    entry = Entry(("3/3 ✓ ≈",), bold=True)
    sheet = Sheet(
        "p", ("✓ can, ✗ cannot.",), "model", (Column("a b", about="c & d"), Column("e f")), (Line("m", (entry,) * 2),)
    )
    text = latex([sheet])
    assert text.startswith("% needs \\usepackage{booktabs}, \\usepackage{xcolor} and \\usepackage{amssymb}\n")
    assert "\nmodel & \\shortstack[r]{a \\\\ b} & e f \\\\\n" in text
    assert "{\\footnotesize a b: c \\& d.}" in text
    assert "Continued" not in text and "$\\checkmark$ can, $\\times$ cannot." in text
    assert "\nm & \\textbf{3/3 $\\checkmark$ $\\approx$} & " in text
    assert "amssymb" not in latex([Sheet("p", (), "model", (Column("t"),), (Line("m", (DASH,)),))])
    assert plain([sheet], across=80).endswith("A star stands for bold.\na b: c & d.\n")


def test_bold_is_of_the_first_line_and_a_dash_is_a_dash() -> None:
    entries = (Entry(("0.90", "paper 0.80"), bold=True), Entry(("-",)))
    sheet = Sheet("p", ("Said.",), "model", (Column("t"), Column("u")), (Line("m", entries),), ("Noted.",), "Beware.")
    assert markdown([sheet]) == (
        "### p\n\nSaid. **Beware.**\n\n| model | t | u |\n| --- | ---: | ---: |\n"
        "| m | **0.90**<br>paper 0.80 | - |\n\nNoted.\n"
    )
    assert "\nm & \\shortstack[r]{\\textbf{0.90} \\\\ paper 0.80} & -- \\\\\n" in latex([sheet])
    assert "\\caption{\\textbf{p}. Said.}\n\\label{tab:accuracy-p}\n" in latex([sheet], "accuracy")
    assert "{\\footnotesize \\textbf{Beware.} Noted.}\n\\end{table}" in latex([sheet])
    assert '<th scope="row">m</th><td><strong>0.90</strong><br>paper 0.80</td><td>–</td>' in html_fragment([sheet])


def test_classes_are_headers_over_their_tasks() -> None:
    rows = [record(task=task, level=level) for task, level in (("a", "regular"), ("b", "regular"), ("c", "counter"))]
    sheet = accuracy_sheet(cells(frame(*rows)))
    assert Page(html_fragment([sheet])).cells[:2] == [
        ["", "regular", "counter", ""],
        ["model", "a", "b", "c", "s a run"],
    ]
    assert '<th class="group" colspan="2">regular</th>' in html_fragment([sheet])
    assert " & \\multicolumn{2}{c}{regular} & \\multicolumn{1}{c}{counter} & " in latex([sheet])
    assert "\\cmidrule(lr){2-3} \\cmidrule(lr){4-4}\n" in latex([sheet])


def test_what_is_too_wide_for_a_line_of_text_stands_class_by_class() -> None:
    rows = [record(task=f"a_task_{i}", level="regular" if i < 6 else "counter", test_scaled=0.5) for i in range(9)]
    rows += [row | {"seed": 1, "run_id": f"{row['run_id']}-1", "test_scaled": 0.4} for row in rows]
    sheet = accuracy_sheet(cells(frame(*rows)))
    assert "resizebox" not in latex([sheet]) and latex([sheet]).count("\\begin{tabular}{l") >= 2
    assert latex([sheet]).count("\\begin{table}") == latex([sheet]).count("\\label{") == 1
    wide, narrow = plain([sheet], across=400), plain([sheet], across=80)
    assert max(map(len, narrow.splitlines())) <= 80 < max(map(len, wide.splitlines())) <= 160 + 20
    blocks = [block for block in narrow.split("\n\n") if block.lstrip().startswith(("regular", "counter", "model"))]
    names = [name for block in blocks for name in block.splitlines()[1].split() if name.startswith("a_task")]
    assert names == [f"a_task_{i}" for i in range(9)] and len(blocks) > 2
    assert narrow.count("0.45 [0.40, 0.50] 0/2") == wide.count("0.45 [0.40, 0.50] 0/2") == 9


def test_what_is_too_high_for_a_page_goes_on_under_the_same_number(tmp_path: Path) -> None:
    names = [f"m{i}" for i in range(50)]
    columns = tuple(Column(f"a_task_{i}", f"class {i}") for i in range(8))
    entry = Entry(("0.95 [0.90, 1.00] 2/3", "paper 0.90 ± 0.01", "mean +0.05"), mark="undecided")
    lines = [*(Line(name, (entry,) * 8) for name in names), Line("floor", (Entry(("0.5",)),) * 8, is_floor=True)]
    sheet = Sheet("p", ("Said. " * 30,), "model", columns, tuple(lines), notes=("Noted. " * 60,))
    text = latex([sheet], "accuracy")
    tables = text.split("\\begin{table}")[1:]
    assert len(tables) > 3 and text.count("\\label{") == text.count("\\parbox") == 1
    assert "\\label{" in tables[0] and "\\parbox" in tables[-1]
    assert all("\\addtocounter{table}{-1}\n\\caption{\\textbf{p}. Continued.}" in table for table in tables[1:])
    shown = re.findall(r"^(m\d+|\\emph\{floor\}) & ", text, re.MULTILINE)
    assert set(Counter(shown).values()) == {text.count("\nm0 & ")} and len(set(shown)) == 51
    if shutil.which("pdflatex"):
        assert "Float too large" not in compiled(text, tmp_path)


@pytest.mark.parametrize("name", HOSTILE)
def test_on_a_terminal_every_name_is_as_it_is(name: str) -> None:
    text = plain([sheet_of(name, "plain")], across=160)
    assert f"{name} ({name})" in text and text.count("\n\n") >= 1


def test_a_star_stands_for_bold_on_a_terminal() -> None:
    entries = (Entry(("0.90", "paper 0.80"), bold=True, mark="agrees"), Entry(("-",)))
    sheet = Sheet("p", ("Said.",), "model", (Column("t"), Column("u")), (Line("m", entries),), ("Noted.",), "Beware.")
    assert plain([sheet], across=80) == (
        "p\nSaid. Beware.\n\nmodel             t  u\n----------------------\nm             0.90*  -\n"
        "       paper 0.80 ≈\n\nA star stands for bold.\nNoted.\n"
    )
