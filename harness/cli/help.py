"""The `--help` of a command, from its dataclass of options: usage, what it does, a line for each option.

    --train.lengths INT INT   Shortest and longest training string. (default: 3 40)

It is plain text that fits the terminal. Only titles and options are in colour, by our own codes, which
harness/store/shown.py lets through; whatever else a terminal would obey is spelled out there.
"""

import ast
import dataclasses
import inspect
import os
import shlex
import sys
import textwrap
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TextIO, Union, get_args, get_origin, get_type_hints

from tyro.conf import Positional

from chomsky_ladder.harness.store.colours import in_colour, painted

FOOTER = "Every command takes --plugin FOLDER, FILE or MODULE, which registers tasks or models first."
_NARROWEST, _WIDEST, _ELSEWHERE = 40, 120, 100  # columns; the last where no terminal shows the text
_WORDS = {str: "TEXT", Path: "PATH"}
_NAMED = "arguments"  # the title of what is named by its place
_REQUIRED = dataclasses.MISSING  # the default of what has none
_NO_BREAK = "\xa0"
_POSITIONAL = get_args(Positional[str])[1]


class Option(NamedTuple):
    name: str
    """--train.steps; RUN_ID of what is named by its place."""
    values: str
    help: str
    group: str
    """The title it stands under; behind a line break what the group is."""

    @property
    def left(self) -> str:
        return f"{self.name} {self.values}".rstrip()


def help_text(options: type, prog: str, *, columns: int, colour: bool) -> str:
    """Return the whole help, in lines of no more than so many columns."""
    found = list(options_of(options))
    named = [option.name for option in found if option.group == _NAMED]
    lines = _wrapped(" ".join(["usage:", prog, *named, "[options]"]), columns, after="    ")
    lines[0] = lines[0].replace("usage:", painted("usage:", "strong", on=colour), 1)
    lines += [line for paragraph in _paragraphs(options) for line in ("", *_wrapped(paragraph, columns))]
    widths = [len(option.left) for option in found if len(option.left) < columns // 3]
    for group in dict.fromkeys(option.group for option in found):
        title, _, about = group.partition("\n")
        lines += ["", painted(title, "strong", on=colour), *_wrapped(about, columns, before="  ")]
        for option in (each for each in found if each.group == group):
            lines += _rows(option, 4 + max(widths, default=0), columns, colour=colour)
    return "\n".join([*lines, "", *_wrapped(FOOTER, columns)])


def print_help(options: type, prog: str) -> None:
    print(help_text(options, prog, columns=columns_of(sys.stdout), colour=in_colour(sys.stdout)))


def columns_of(stream: TextIO) -> int:
    """Return the columns our text may fill: those of the terminal, if they can be read."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns or _ELSEWHERE
    except (OSError, ValueError):
        columns = _ELSEWHERE
    return max(_NARROWEST, min(columns, _WIDEST))


def options_of(options: type, prefix: str = "", values: Any = None) -> Iterator[Option]:
    """Return every option of a dataclass: its own first, then group by group those of the dataclasses in it."""
    kinds, docs, groups = get_type_hints(options, include_extras=True), docs_of(options), []
    group = "\n".join([prefix.rstrip("."), *_paragraphs(options)[:1]]) if prefix else "options"
    for field in dataclasses.fields(options):
        kind, extras = _bare(kinds[field.name])
        value = _default(field) if values is None else getattr(values, field.name)
        about = next((extra.help for extra in extras if getattr(extra, "help", None)), docs.get(field.name, ""))
        if dataclasses.is_dataclass(kind):
            groups.append((f"{prefix}{field.name}.", kind, value))
        elif _POSITIONAL in extras:
            several = get_origin(kind) is tuple
            name = f"{field.name.upper().removesuffix('S')} .." if several else field.name.upper()
            yield Option(name if value is _REQUIRED else f"[{name}]", "", about, _NAMED)
        else:
            yield _option(f"{prefix}{field.name}".replace("_", "-"), kind, value, about, group)
    for name, kind, value in groups:
        yield from options_of(type(value), name, value) if dataclasses.is_dataclass(value) else options_of(kind, name)


def _option(name: str, kind: Any, value: Any, about: str, group: str) -> Option:
    if kind is bool:
        return Option(f"--{'no-' if value is True else ''}{name}", "", about, group)
    default = "required" if value is _REQUIRED else f"default: {_shown(value)}" if _shown(value) else ""
    kept_together = f"({default})".replace(" ", _NO_BREAK)
    return Option(f"--{name}", _values(kind), f"{about} {kept_together}".lstrip() if default else about, group)


def docs_of(cls: type) -> dict[str, str]:
    """Return the sentence under each field of a class in its source, inherited ones too."""
    return {name: text for base in reversed(cls.__mro__) for name, text in _field_docs(base).items()}


@lru_cache(maxsize=1024)
def _field_docs(cls: type) -> dict[str, str]:
    """Return the string literals that stand under a class's annotated fields."""
    if cls.__module__ == "types":  # made at run time, of others
        return {}
    try:
        defined: Any = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
        body = defined.body
    except (OSError, TypeError, SyntaxError):  # a builtin, or a class made at run time
        return {}
    return {
        name.target.id: " ".join(text.value.value.split())
        for name, text in pairwise(body)
        if isinstance(name, ast.AnnAssign)
        and isinstance(name.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def _paragraphs(cls: type) -> list[str]:
    """Return the lines of a class's docstring; none where Python made it for a dataclass."""
    text = inspect.cleandoc(cls.__doc__ or "")
    return [] if text.startswith(f"{cls.__name__}(") else [" ".join(part.split()) for part in text.split("\n\n")]


def _rows(option: Option, column: int, columns: int, *, colour: bool) -> list[str]:
    """Lay out an option with its meaning beside it, or below where there is no room."""
    lines = _wrapped(option.help, columns, before=" " * column)
    if len(option.left) + 4 <= column and lines:
        beside = lines.pop(0)[2 + len(option.left) :]
        return [f"  {painted(option.left, 'strong', on=colour)}{beside}", *lines]
    return [painted(line, "strong", on=colour) for line in _wrapped(option.left, columns, before="  ")] + lines


def _wrapped(text: str, columns: int, *, before: str = "", after: str = "") -> list[str]:
    indents: tuple[str, str] = before, after or before
    wrapper = textwrap.TextWrapper(columns - 1, *indents, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in wrapper.wrap(text)]


def _default(field: Any) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _bare(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a type without its annotations and None, and the annotations."""
    kind, extras = (get_args(kind)[0], get_args(kind)[1:]) if get_origin(kind) is Annotated else (kind, ())
    if get_origin(kind) in (Union, UnionType):
        some = [each for each in get_args(kind) if each is not NoneType]
        kind = some[0] if len(some) == 1 else kind
    return kind, extras


def _values(kind: Any) -> str:
    """Return what an option takes, as a usage line has it: INT, PATH, {a,b}, TEXT .."""
    kind, _ = _bare(kind)
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Literal:
        return f"{{{','.join(map(str, inside))}}}"
    if origin is tuple:
        return f"{_values(inside[0])} .." if inside[-1] is ... else " ".join(map(_values, inside))
    if origin in (Union, UnionType):
        return "|".join(map(_values, inside))
    return _WORDS.get(kind, getattr(kind, "__name__", str(kind)).upper())


def _shown(value: Any) -> str:
    """Return a default as one would type it; nothing for None, an empty one, and a switch that is off."""
    if value is None or value in ("", ()):
        return ""
    if isinstance(value, tuple):
        return " ".join(map(_shown, value))
    if isinstance(value, Path):
        return str(value.relative_to(Path.cwd()) if value.is_relative_to(Path.cwd()) else value)
    return shlex.quote(value) if isinstance(value, str) else str(value)
