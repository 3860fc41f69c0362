"""Write Markdown: tables, our docstrings as prose, escaped text, contents."""

import inspect
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

ARXIV = re.compile(r"(?<![\w.])(\d{2}(?:0[1-9]|1[0-2])\.\d{4,5})(?![\w.]\d)")
WIDEST = 88  # characters of an example that a page shows without scrolling


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Lay out a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace(chr(10), ' ') for cell in line)} |" for line in lines)


def prose(text: str) -> str:
    """Turn a docstring into Markdown: what is indented is shown as it stands, papers become links."""
    parts = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        for is_code, lines in groupby(block.splitlines(), key=lambda line: line.startswith("    ")):
            own = "\n".join(lines)
            parts.append(f"```text\n{_in_width(inspect.cleandoc(own))}\n```" if is_code else linked(own))
    return "\n\n".join(parts)


def _in_width(example: str) -> str:
    """Put what stands side by side in a wide line, equations mostly, below each other."""
    lines = example.splitlines()
    return "\n".join(re.sub(r"(?<=\S) {6,}", "\n", line) if len(line) > WIDEST else line for line in lines)


def linked(text: str) -> str:
    """Escape a text and link the arXiv numbers in it."""
    return ARXIV.sub(r"[\1](https://arxiv.org/abs/\1)", escaped(text))


def escaped(text: str) -> str:
    """Take Markdown's meaning from all but `code`."""
    pieces = re.split(r"(`[^`]+`)", text)
    return "".join(
        piece.replace("|", "\\|") if piece.startswith("`") else re.sub(r"([\\*_<>\[\]|#~{}$+%])", r"\\\1", piece)
        for piece in pieces
    )


def toctree(pages: Iterable[str]) -> str:
    """Put pages into the contents at the side."""
    return "\n\n```{toctree}\n:hidden:\n:maxdepth: 1\n\n" + "\n".join(pages) + "\n```\n"


def joined(parts: Iterable[str]) -> str:
    """Join the parts of a page that are there."""
    return "\n\n".join(part for part in parts if part) + "\n"
