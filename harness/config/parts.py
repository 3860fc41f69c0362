"""Convert a run's parts to and from JSON values, with every field checked and unknown settings refused by name."""

import json
from dataclasses import fields
from functools import lru_cache
from typing import Any, TypeVar, get_type_hints
from weakref import WeakValueDictionary

from pydantic import TypeAdapter, ValidationError

from chomsky_ladder.harness.config.rooms import did_you_mean

Part = TypeVar("Part")

_checked: WeakValueDictionary[int, Any] = WeakValueDictionary()

MOST_DRAWN = 2**22  # positions of strings, where a user chooses their length
MOST = 2**31 - 1  # of other counts: steps, strings


def require(condition: bool, message: str) -> None:
    """Refuse a user's setting in one line."""
    if not condition:
        raise ValueError(message)


def refuse_endless(longest: int, *, what: str) -> None:
    """Refuse a length at which a single string would fill the memory, before anything loops up to it."""
    require(longest <= MOST_DRAWN, f"{what} must be at most {MOST_DRAWN}, not {longest}")


def refuse_outside(count: int, *, what: str) -> None:
    """Refuse a count below 1, or one too large to loop up to."""
    require(count >= 1, f"{what} must be at least 1, not {count}")
    require(count <= MOST, f"{what} must be at most {MOST}, not {count}")


@lru_cache
def _adapter(cls: type) -> TypeAdapter:
    return TypeAdapter(cls)


def plain(part: Any) -> dict[str, Any]:
    """Return a part's fields as JSON values."""
    return _adapter(type(part)).dump_python(part, mode="json")


@lru_cache
def default_settings(cls: type) -> dict[str, Any]:
    """Return the defaults of a part's fields, as JSON values."""
    return plain(cls())


def checked(part: Part, *, where: str) -> Part:
    """Return the part with checked field types. An int is accepted for a float; nothing else is converted.

    A part that was returned before is returned at once: the runs of a sweep share most of theirs.
    """
    if _checked.get(id(part)) is part:
        return part
    plain_part = _adapter(type(part)).dump_python(part, mode="json", warnings=False)
    result = from_plain(type(part), plain_part, where=where)
    _checked[id(result)] = result
    return result


def from_plain(cls: type[Part], tree: dict[str, Any], *, where: str) -> Part:
    """Return a part from JSON values. Refuse an unknown key or a wrong type."""
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
    """Return True if a setting contains nan. It equals nothing, so it cannot identify a run."""
    if isinstance(value, dict | list | tuple):
        return any(map(_holds_nan, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and value != value


def one_line(error: ValidationError, where: str) -> str:
    """Return the first validation error in one line. Our own messages, which name their field, stay as they are."""
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
    """Return the part with some fields changed, given Python or JSON values."""
    return from_plain(type(part), plain(part) | changes, where=where) if changes else part
