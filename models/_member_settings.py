"""Parse the settings of members, whose blocks another model borrows, from a line of text, and write the line again.

    kda: eigenvalues=signed, expand_v=2; transformer: positions=none

A value is read by its setting's type: a whole number, a number, true or false, a word; anything else as JSON. The line
is written in one canonical form, so that equal settings are one text. Members are in the order of the pattern, settings
in the order of their config, and default values are left out.
"""

import difflib
import json
import re
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import require

Settings = dict[str, dict[str, Any]]  # by the member's name

_SAID = {int: "a whole number", float: "a number", bool: "true or false"}
_OF_THE_STACK = {field.name for field in fields(ModelConfig)}


def read(text: str, members: dict[str, type[ModelConfig]]) -> Settings:
    """Parse a line. Raise ValueError in one line if it is wrong."""
    found: Settings = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        name, colon, pairs = (word.strip() for word in part.partition(":"))
        require(bool(colon), f"{part!r} is no MEMBER: SETTING=VALUE, ..")
        require(name in members, f"{name!r} is no member{_meant(name, members)}")
        require(name not in found, f"{name} stands there twice")
        found[name] = _own(name, members[name], re.split(r",\s*(?=[\w-]+\s*=)", pairs))  # a value may hold a comma
    return found


def written(settings: Settings, members: dict[str, type[ModelConfig]], *, usual: Settings) -> str:
    """Return the canonical line without `usual` and default values. Heads are the stack's and are left out."""
    parts = []
    for name, cls in members.items():
        own = settings.get(name, {})
        known = {field.name: field.default for field in fields(cls) if field.name != "num_heads"} | usual.get(name, {})
        pairs = [
            f"{key}={own[key] if isinstance(own[key], str) else json.dumps(own[key])}"
            for key in (field.name for field in fields(cls))
            if key in own and (key not in known or own[key] != known[key])
        ]
        parts += [f"{name}: {', '.join(pairs)}"] if pairs else []
    return "; ".join(parts)


def settled(text: str, members: dict[str, type[ModelConfig]], *, of: str, usual: str = "") -> str:
    """Return a line in canonical form, or raise ValueError naming the model whose setting it is."""
    try:
        own, below = (read(line, members) for line in (text, usual))
    except ValueError as error:
        raise ValueError(f"{of}: settings: {error}") from None
    return written(own, members, usual=below)


def made(cls: type[ModelConfig], own: dict[str, Any], *, stack: Any, num_blocks: int) -> ModelConfig:
    """Return a member's config. Width, dropout and, where it has them, heads are the stack's."""
    there = {field.name for field in fields(cls)}
    shared = {key: getattr(stack, key) for key in ("d_model", "dropout", "num_heads") if key in there}
    return cls(num_blocks=num_blocks, **(shared | own))


def merged(below: Settings, above: Settings) -> Settings:
    """Merge settings. The second argument takes precedence."""
    return {name: below.get(name, {}) | above.get(name, {}) for name in below | above}


def _own(name: str, cls: type[ModelConfig], pairs: list[str]) -> dict[str, Any]:
    """Parse the settings of one member."""
    known, hints = [field.name for field in fields(cls) if field.name not in _OF_THE_STACK], get_type_hints(cls)
    own: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = (word.strip() for word in pair.partition("="))
        key = key.replace("-", "_")
        require(bool(equals), f"{pair!r} of {name} is no SETTING=VALUE")
        require(key not in _OF_THE_STACK, f"{key} is that of the whole stack, not of {name} alone")
        require(key in known, f"{name} has no setting {key!r}{_meant(key, known)}")
        require(key not in own, f"{name}.{key} stands there twice")
        own[key] = _value(f"{name}.{key}", value, hints[key])
    return own


def _value(where: str, text: str, kind: Any) -> Any:
    if get_origin(kind) is Literal:
        choices = {str(choice): choice for choice in get_args(kind)}
        require(text in choices, f"{where} cannot be {text!r}{_meant(text, choices)}")
        return choices[text]
    if kind is str:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    value = float(value) if kind is float and type(value) is int else value
    fits = type(value) is kind if kind in _SAID else value is not None
    require(fits, f"{where} takes {_SAID.get(kind, 'JSON')}, not {text!r}")
    return tuple(value) if isinstance(value, list) else value


def _meant(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"
