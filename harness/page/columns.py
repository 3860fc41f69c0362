"""Tables of values as the page holds them: a column at a time, each written in the shortest of five ways.

    ["a", "a", "b"]                                 {"all": "a", "count": 3}
    {"of": ["a", "b"], "at": [0, 0, 1]}             {"of": ["a", "b"], "at": [0, 1], "times": [2, 1]}
    {"per": 10000, "in": [1234, [5000, 321]]}       for [0.1234, [0.5, 0.0321]], around any of the others

Numbers keep so many digits as the page shows. The same values give the same bytes.
"""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import pandas as pd

DIGITS = 4
PER = 10**DIGITS

Packed = list[Any] | dict[str, Any]


def packed(values: Sequence[Any]) -> Packed:
    """Pack values in the shortest of the five ways above. `per` is only used if division gives the same numbers."""
    plain = [value_of(value) for value in values]
    ways = [_in_order(plain)]
    if _divides(plain):
        ways.append({"per": PER, "in": _in_order(_parts(plain))})
    return min(ways, key=lambda found: len(written(found)))


def _in_order(plain: list[Any]) -> Packed:
    of: dict[str, int] = {}
    at = [of.setdefault(written(value), len(of)) for value in plain]
    if len(of) == 1 and len(plain) > 1:
        return {"all": plain[0], "count": len(plain)}
    indexed = {"of": [json.loads(text) for text in of], "at": at}
    in_a_row = [(place, len(list(same))) for place, same in groupby(at)]
    counted = {"of": indexed["of"], "at": [place for place, _ in in_a_row], "times": [times for _, times in in_a_row]}
    return min((plain, indexed, counted), key=lambda found: len(written(found)))


def _divides(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_divides, value))
    return value is None or (not isinstance(value, str | bool) and _parts(value) / PER == value)


def _parts(value: Any) -> Any:
    """Return numbers, in lists of any depth, as parts of one, whole but for the least."""
    if isinstance(value, list):
        return list(map(_parts, value))
    return None if value is None else shortened(float(f"{value * PER:.10g}"), 10)


def table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Packed]:
    return {name: packed([row.get(name) for row in rows]) for name in names}


def value_of(value: Any) -> Any:
    """Return a record's value: nothing where it is missing, numbers rounded."""
    if isinstance(value, list | tuple):
        return [value_of(each) for each in value]
    if value is None or (not isinstance(value, str) and pd.isna(value)):
        return None
    if isinstance(value, str | bool):
        return value
    if hasattr(value, "item"):  # numpy's
        return value_of(value.item())
    return shortened(value)


def shortened(value: float, digits: int = DIGITS) -> float | int | None:
    """Round to `digits` decimals below 1, else to one significant digit more; None if not finite."""
    if isinstance(value, int):
        return value
    if not math.isfinite(value):
        return None
    short = round(value, digits) if abs(value) < 1 else float(f"{value:.{digits + 1}g}")
    if value and not short:
        short = float(f"{value:.3g}")
    return int(short) if short == int(short) else short


def written(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
