"""`--engine NAME` and, beside a command's options, those of that engine."""

from collections.abc import Sequence
from dataclasses import MISSING, field, fields, make_dataclass
from typing import Annotated, Any, TypeVar, get_type_hints

from tyro.conf import arg

from chomsky_ladder.harness.cli.help import docs_of
from chomsky_ladder.harness.cli.options import parse, take
from chomsky_ladder.harness.sweep.engines.base import ROOM, Engine

Options = TypeVar("Options")


def parse_with_engine(cls: type[Options], words: Sequence[str], *, prog: str) -> tuple[Options, Any]:
    """Return a command's options, which have a field `engine`, and the options of the engine that the line names."""
    named = take(list(words), "--engine")
    engine = ROOM.find(named[-1] if named else "serial")
    _refuse_those_of_others(engine, words)
    said, types = docs_of(engine.options), get_type_hints(engine.options)
    own = [
        (each.name, Annotated[types[each.name], arg(help=f"{said.get(each.name, '')} (--engine {engine.name})")], each)
        for each in fields(engine.options)
    ]
    both = make_dataclass(cls.__name__, [(name, kind, _default_of(each)) for name, kind, each in own], bases=(cls,))
    both.__doc__ = cls.__doc__
    options = parse(both, words, prog=prog)
    return options, engine.options(**{each.name: getattr(options, each.name) for each in fields(engine.options)})


def _refuse_those_of_others(engine: Engine, words: Sequence[str]) -> None:
    given = {word.split("=")[0] for word in words if word.startswith("--")}
    own = set(_options_of(engine))
    for other in ROOM.all():
        for option in _options_of(other):
            if option in given - own:
                raise ValueError(f"{option} is an option of the engine {other.name}: say --engine {other.name}")


def _options_of(engine: Engine) -> list[str]:
    return [f"--{each.name.replace('_', '-')}" for each in fields(engine.options)]


def _default_of(each: Any) -> Any:
    return field(default=each.default) if each.default is not MISSING else field(default_factory=each.default_factory)
