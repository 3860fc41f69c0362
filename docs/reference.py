"""Write the reference of commands, from their help, and of the Python API, for autodoc."""

import contextlib
import inspect
import io
from importlib import import_module
from pathlib import Path
from types import ModuleType

from marked import escaped, joined, table

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.cli.help import options_of
from chomsky_ladder.harness.sweep.engines.base import ROOM

ROOT = Path(__file__).resolve().parents[1]
API = ("chomsky_ladder", "chomsky_ladder.models", "chomsky_ladder.tasks")


def commands() -> str:
    """Show the help of every command."""
    parts = ["# Commands", f"```text\n{_said('--help')}```"]
    parts += [f"## ladder {name}\n\n```text\n{_said(name, '--help')}```" for name in cli.COMMANDS]
    parts.append("## Engines\n\nAn engine that `--engine` names adds its options to a command.")
    for engine in ROOM.all():
        rows = [[f"`{option.left}`", escaped(option.help)] for option in options_of(engine.options)]
        parts += [f"### {engine.name}\n\n{escaped(engine.about)}.", table(["option", "meaning"], rows) if rows else ""]
    return joined(parts)


def _said(*words: str) -> str:
    """Return what a command prints."""
    text = io.StringIO()
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        cli.main(list(words))  # help ends with SystemExit(0)
    assert text.getvalue(), words
    return text.getvalue()


def api() -> str:
    """Document every public name, as reStructuredText."""
    lines = ["Python API", "=" * 10, "", "Public names of the package. Other modules may change without notice."]
    for module in map(import_module, API):
        lines += ["", module.__name__, "-" * len(module.__name__), "", f".. module:: {module.__name__}", ""]
        lines += [line for name in sorted(vars(module)["__all__"], key=str.lower) for line in _documented(module, name)]
    return "\n".join(lines) + "\n"


def _documented(module: ModuleType, name: str) -> list[str]:
    value = getattr(module, name)
    if inspect.isclass(value):
        return [f".. autoclass:: {module.__name__}.{name}", "   :members:", ""]
    kind = "function" if inspect.isfunction(value) else "data"
    return [f".. auto{kind}:: {module.__name__}.{name}", *(["   :no-value:"] if kind == "data" else []), ""]
