"""Check that docstrings and documents are in plain English.

    python scripts/plain_english.py                 every tracked file; prints what it finds, 1 if it finds anything
    python scripts/plain_english.py --changed       the lines that differ from HEAD alone, as pre-commit runs it
    python scripts/plain_english.py --summary       a line with the counts, and always 0, as scripts/test runs it

A docstring has to say what its function is for: one that begins with Of, What, Whether, As, Those or Its does not. A
sentence of a document has at most 30 words; code, tables and links are left out.
"""

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UNCLEAR = ("Of", "What", "Whatever", "Whether", "As", "Those", "Its")
MOST_WORDS = 30
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NO_PROSE = re.compile(r"^(\||#|<|!\[|```|    ).*$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
END = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`*\[(])|\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )")


@dataclass(frozen=True)
class Finding:
    file: Path
    first: int
    last: int
    problem: str

    def __str__(self) -> str:
        return f"{self.file}:{self.first}: {self.problem}"


def findings(file: Path) -> Iterator[Finding]:
    """Yield what is wrong with a file, if it is Python or Markdown."""
    text = (ROOT / file).read_text("utf-8")
    if file.suffix == ".py":
        yield from _of_docstrings(file, text)
    elif file.suffix == ".md":
        yield from sentences(file, text)


def _of_docstrings(file: Path, text: str) -> Iterator[Finding]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, documented) or not (docstring := ast.get_docstring(node)):
            continue
        first = docstring.split(maxsplit=1)[0].rstrip(",:")
        if first in UNCLEAR:
            place = node.body[0]
            problem = f"a docstring begins with {first!r}: begin with a verb, or name the result"
            yield Finding(file, place.lineno, place.end_lineno or place.lineno, problem)


def sentences(file: Path, text: str) -> Iterator[Finding]:
    """Yield the sentences of a document that are too long."""

    def blank(match: re.Match[str]) -> str:
        return "\n" * match[0].count("\n")

    prose = LINK.sub(r"\1", NO_PROSE.sub(blank, CODE.sub(blank, text)))
    place = 0
    for sentence in END.split(prose):
        place = prose.index(sentence, place)
        line = prose.count("\n", 0, place) + 1
        place += len(sentence)
        words = len(sentence.split())
        if words > MOST_WORDS:
            start = " ".join(sentence.split()[:6])
            problem = f"a sentence of {words} words, of at most {MOST_WORDS}: {start} .."
            yield Finding(file, line, line + sentence.count("\n"), problem)


def changed_lines() -> dict[Path, set[int]]:
    """Return the lines of each file that differ from HEAD."""
    found: dict[Path, set[int]] = {}
    lines: set[int] = set()
    for line in _git("diff", "--unified=0", "--no-color", "HEAD").splitlines():
        if line.startswith("+++ b/"):
            lines = found.setdefault(Path(line.removeprefix("+++ b/")), set())
        elif match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(match[1]), int(match[2] or 1)
            lines.update(range(first, first + count))
    return found


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changed", action="store_true", help="only lines that differ from HEAD")
    parser.add_argument("--summary", action="store_true", help="only the counts, and always 0")
    options = parser.parse_args(words)
    changed = changed_lines() if options.changed else None
    files = changed or {} if options.changed else map(Path, _git("ls-files", "*.py", "*.md").splitlines())
    found = [finding for file in files if (ROOT / file).is_file() for finding in findings(file)]
    if changed is not None:
        found = [each for each in found if changed[each.file] & set(range(each.first, each.last + 1))]
    if options.summary:
        docstrings = sum(each.file.suffix == ".py" for each in found)
        print(f"plain English: {docstrings} unclear docstrings and {len(found) - docstrings} long sentences are left")
        return 0
    print("\n".join(map(str, found)), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
