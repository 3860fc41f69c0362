"""Run one kind of benchmark, or list the kinds.

    python scripts/benchmark.py                    the kinds, a line each
    python scripts/benchmark.py KIND --help        the options of one kind
    python scripts/benchmark.py KIND [options]

Each kind is a file in scripts/benchmarks/, which also runs by itself.
"""

import ast
import difflib
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "benchmarks"
HELPERS = ("public_xlstm", "roofline_worker", "throughput_peers")  # modules shared by the kinds


def kinds() -> dict[str, str]:
    """Map each kind to the first line of its module's docstring. Nothing is imported for it."""
    files = [file for file in sorted(FOLDER.glob("*.py")) if file.stem not in HELPERS]
    docstrings = {file.stem: ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "" for file in files}
    return {kind: docstring.partition("\n")[0] for kind, docstring in docstrings.items()}


def listing() -> str:
    """Return the lines that show how to call this script, and all kinds."""
    lines = [f"  {kind:10}  {about}" for kind, about in kinds().items()]
    return "\n".join(["usage: benchmark.py KIND [options], KIND --help for its options. The kinds:", "", *lines])


def main(words: Sequence[str] | None = None) -> int:
    kind, *rest = [*(sys.argv[1:] if words is None else words)] or ["--help"]
    if kind in ("-h", "--help"):
        print(listing())
        return 0
    known = list(kinds())
    if kind not in known:
        close = difflib.get_close_matches(kind, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"the kinds are {', '.join(known)}"
        print(f"benchmark.py: unknown kind {kind!r}; {hint}", file=sys.stderr)
        return 2
    sys.path.insert(0, str(FOLDER))  # the kinds import each other by plain names
    return importlib.import_module(kind).main(rest)


if __name__ == "__main__":
    sys.exit(main())
