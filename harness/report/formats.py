"""A report as Markdown, as one HTML file that needs no network, and as a LaTeX document that pdflatex takes."""

import base64
import os
from html import escape
from pathlib import Path

from chomsky_ladder.harness.report.document import Picture, Report, Section
from chomsky_ladder.harness.tables import formats
from chomsky_ladder.harness.tables.latex import latex, tex

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 80rem; margin: 2rem auto;
  padding: 0 1rem }
p { max-width: 46rem } .ladder-table caption { max-width: 46rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.25rem; margin-top: 2.5rem } h3 { font-size: 1rem }
img { max-width: min(100%, 50rem) } pre { overflow-x: auto; background: #f4f4f4; padding: .6rem }
"""
HEAD = r"""\documentclass[10pt]{article}
\usepackage[T1]{fontenc}
\usepackage[margin=2cm]{geometry}
\usepackage{booktabs,xcolor,amssymb,graphicx}
"""


def markdown(report: Report, folder: Path) -> str:
    parts = [f"# {formats.plain_markdown(report.title)}", " ".join(map(formats.plain_markdown, report.about))]
    for section in report.sections:
        parts.append(f"## {formats.plain_markdown(section.title)}")
        parts.append(" ".join(map(formats.plain_markdown, section.sentences)))
        parts += [f"![{formats.plain_markdown(one.alt)}]({_beside(one, folder)})" for one in section.pictures]
        parts += [formats.markdown(section.sheets).strip()] if section.sheets else []
        parts += ["```sh\n" + "\n".join(section.commands) + "\n```"] if section.commands else []
    return "\n\n".join(filter(None, parts)) + "\n"


def html(report: Report) -> str:
    body = [f"<h1>{escape(report.title)}</h1>", f"<p>{escape(' '.join(report.about))}</p>"]
    for section in report.sections:
        body.append(f"<h2>{escape(section.title)}</h2>")
        body += [f"<p>{escape(' '.join(section.sentences))}</p>"] if section.sentences else []
        body += map(_image, section.pictures)
        body += [formats.html_fragment(section.sheets)] if section.sheets else []
        body += [f"<pre>{escape(chr(10).join(section.commands))}</pre>"] if section.commands else []
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(report.title)}'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</title><style>{STYLE}</style></head>\n<body>\n'
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def document(report: Report, folder: Path) -> str:
    """Return the LaTeX source, whose pictures lie beside it."""
    parts = [HEAD, f"\\title{{{tex(report.title)}}}\n\\date{{}}\n\\begin{{document}}\n\\maketitle"]
    parts.append(" ".join(map(tex, report.about)))
    for section in report.sections:
        parts.append(f"\\section{{{tex(section.title)}}}")
        parts.append(" ".join(map(tex, section.sentences)))
        parts += [_float(one, folder) for one in section.pictures]
        parts += [latex(section.sheets, section.kind)] if section.sheets else []
        parts += _verbatim(section)
        parts.append("\\clearpage")
    return "\n\n".join([*filter(None, parts), "\\end{document}"]) + "\n"


def _image(picture: Picture) -> str:
    image = base64.b64encode(picture.file.read_bytes()).decode()
    return f'<p><img alt="{escape(picture.alt)}" src="data:image/png;base64,{image}"></p>'


def _float(picture: Picture, folder: Path) -> str:
    file = _beside(picture, folder).removesuffix(".png")
    shown = f"\\includegraphics[width=\\linewidth,height=.85\\textheight,keepaspectratio]{{\\detokenize{{{file}}}.pdf}}"
    return f"\\begin{{figure}}[htbp]\\centering {shown}\\caption{{{tex(picture.alt)}}}\\end{{figure}}"


def _verbatim(section: Section) -> list[str]:
    if not section.commands:
        return []
    return ["{\\footnotesize\\begin{verbatim}\n" + "\n".join(section.commands) + "\n\\end{verbatim}}"]


def _beside(picture: Picture, folder: Path) -> str:
    return os.path.relpath(picture.file, folder).replace(os.sep, "/")
