"""Build the documentation with Sphinx.

    python -m sphinx -W -b html docs site/docs

The pages are plain Markdown and read well without Sphinx. The notebooks are executed, and a cell that fails ends the
build. At build time each page gets what `docs/generate.py` makes, and
links to files outside docs/ lead to the repository: to $LADDER_SOURCE_URL, or to the files of this clone.
"""

import inspect
import os
import re
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS)]

import generate  # noqa: E402  # the path above has it
import pictured  # noqa: E402

from chomsky_ladder.harness.store.checkout import version_line  # noqa: E402

project = "Chomsky Ladder"
author = "The Chomsky Ladder maintainers"
release = version_line().split()[1]
extensions = ["myst_nb", "sphinx.ext.autodoc"]
exclude_patterns = ["pictures/*.md"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_execution_in_temp = True
nb_output_stderr = "remove"
nb_merge_streams = True
html_theme = "furo"
html_title = project
html_theme_options = {"navigation_with_keys": True}
html_show_sphinx = False
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["ladder.css"]
html_copy_source = False
_furo = ("scroll-start", "brand", "search", "navigation", "results", "scroll-end")
html_sidebars = {"**": [f"sidebar/{name}.html" for name in _furo]}
html_context = {"beside_the_page": "LADDER_SOURCE_URL" in os.environ}
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
autodoc_typehints = "signature"
python_maximum_signature_line_length = 88
pygments_style = "friendly"

SOURCE = os.environ.get("LADDER_SOURCE_URL") or DOCS.parent.as_uri()
PAGES = (
    ("Begin", ("start", "concepts", "findings", "results")),
    ("Use", ("climb", "sweeps", "python", *generate.NOTEBOOKS, "publishing", "submitting", "probing", "text", "cost")),
    ("What there is", ("tasks", "models", "protocols", "extend", "kernels")),
    ("Look up", ("reproducibility", "records", "changelog", "log", "_generated/cli", "_generated/api")),
)
OUTSIDE = re.compile(r"(?<!!)\[(?P<text>(?:\\.|[^]\\])*)\]\((?P<path>(?:\.\./)+[^)\s]*)\)")
appended: dict[str, str] = {}
images: dict[str, str] = {}


def generate_pages(app: Any) -> None:
    appended.update(generate.write())
    images.update(pictured.draw())
    columns = (DOCS.parent / "results" / "README.md").read_text("utf-8").split("\n## Columns of records.csv\n")[1]
    appended["records"] = f"\n## Columns of records.csv\n{columns}"
    contents = [
        "```{toctree}\n:hidden:\n:caption: " + caption + "\n\n" + "\n".join(pages) + "\n```" for caption, pages in PAGES
    ]
    appended["index"] = "\n\n" + "\n\n".join(contents) + "\n"


def outdated(app: Any, env: Any, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """Name the pages of which a part is generated, whether their files changed or not."""
    return sorted(appended | images)


def complete(app: Any, docname: str, source: list[str]) -> None:
    """Append what is generated, and lead links that leave docs/ to the repository."""
    folder = (DOCS / docname).parent

    def outward(match: re.Match[str]) -> str:
        place = os.path.relpath(folder / match["path"], DOCS.parent)
        if place.startswith("docs/"):
            return match[0]
        return f'<a class="reference external" href="{SOURCE}/{place}">{match["text"]}</a>'

    text = source[0] + appended.get(docname, "")
    if docname.startswith("findings/"):
        text = pictured.with_addresses(pictured.with_picture(text, images.get(docname, "")), docname)
    source[0] = text if docname in (*generate.NOTEBOOKS, "_generated/api") else OUTSIDE.sub(outward, text)


def as_rst(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Turn our docstrings, which are plain text with indented examples, into what autodoc reads."""
    text = inspect.cleandoc("\n".join(lines)).strip()
    made: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        for is_code, own in groupby(block.splitlines(), key=lambda line: line.startswith("    ")):
            written = list(own)
            made += ["::", "", *written, ""] if is_code else [*map(_escaped, written), ""]
    lines[:] = made


def _escaped(line: str) -> str:
    pieces = re.split(r"(`[^`]+`)", line)
    return "".join(
        f"`{piece}`" if piece.startswith("`") else re.sub(r"([\\*|_<>])", r"\\\1", piece) for piece in pieces
    )


def setup(app: Any) -> None:
    app.connect("builder-inited", generate_pages)
    app.connect("env-get-outdated", outdated)
    app.connect("source-read", complete)
    app.connect("autodoc-process-docstring", as_rst)
