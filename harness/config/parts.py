"""A run's parts as typed values: every field checked, to JSON values and back, unknown settings refused by name."""

import json
from dataclasses import fields
from functools import lru_cache
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from chomsky_ladder.harness.config.rooms import did_you_mean

Part = TypeVar("Part")

MOST_DRAWN = 2**22  # positions that strings may have where their lengths are chosen
MOST = 2**31 - 1  # of whatever else is counted: steps, strings


def require(condition: bool, message: str) -> None:
    """Refuse a user's setting in one line."""
    if not condition:
        raise ValueError(message)


def refuse_endless(longest: int, *, what: str) -> None:
    """Refuse a length of which one string alone would fill the memory, before anything counts up to it."""
    require(longest <= MOST_DRAWN, f"{what} must be at most {MOST_DRAWN}, not {longest}")


def refuse_outside(count: int, *, what: str) -> None:
    """Refuse a count of nothing, or one that no machine counts up to."""
    require(count >= 1, f"{what} must be at least 1, not {count}")
    require(count <= MOST, f"{what} must be at most {MOST}, not {count}")


@lru_cache
def _adapter(cls: type) -> TypeAdapter:
    return TypeAdapter(cls)


def plain(part: Any) -> dict[str, Any]:
    """A part's fields as JSON values."""
    return _adapter(type(part)).dump_python(part, mode="json")


@lru_cache
def default_settings(cls: type) -> dict[str, Any]:
    """The defaults of a part's fields, as JSON values."""
    return plain(cls())


def checked(part: Part, *, where: str) -> Part:
    """The part with its field types enforced: an int is taken for a float, nothing else is converted."""
    return from_plain(type(part), _adapter(type(part)).dump_python(part, mode="json", warnings=False), where=where)


def from_plain(cls: type[Part], tree: dict[str, Any], *, where: str) -> Part:
    """A part from JSON values; an unknown key or a wrong type is refused."""
    schema: Any = cls  # a dataclass, as all parts are
    known = [f.name for f in fields(schema)]
    for key in tree:
        if key not in known:
            raise ValueError(f"{where} has no setting {key!r}{did_you_mean(key, known)}")
    try:
        part = _adapter(cls).validate_json(json.dumps(tree, default=repr), strict=True)
    except ValidationError as error:
        raise ValueError(one_line(error, where)) from None
    for key, value in tree.items():
        require(not _holds_nan(value), f"{where}.{key} must be a number, not {value!r}: nan equals nothing")
    return part


def _holds_nan(value: Any) -> bool:
    """Return True if a setting, or a part of one, is nan: it equals nothing, so it could name no run."""
    if isinstance(value, dict | list | tuple):
        return any(map(_holds_nan, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and value != value


def one_line(error: ValidationError, where: str) -> str:
    """The first of a validation's complaints; our own sentences, which name their field, as they are."""
    first = error.errors()[0]
    if first["type"] == "value_error":
        return str(first.get("ctx", {})["error"])
    return f"{'.'.join([where, *map(str, first['loc'])])}: {first['msg']}, not {first['input']!r}"


def check_types(part: Any, where: str) -> None:
    """Refuse a field of the wrong type before anything compares it."""
    for name, adapter in _field_adapters(type(part)).items():
        try:
            adapter.validate_python(getattr(part, name), strict=True)
        except ValidationError as error:
            raise ValueError(one_line(error, f"{where}.{name}")) from None


@lru_cache
def _field_adapters(cls: type) -> dict[str, TypeAdapter]:
    hints = get_type_hints(cls)
    return {f.name: TypeAdapter(hints[f.name]) for f in fields(cls)}


def replaced(part: Part, changes: dict[str, Any], *, where: str) -> Part:
    """The part with some fields changed, by Python values or JSON ones."""
    return from_plain(type(part), plain(part) | changes, where=where) if changes else part
