"""Tables of values as the page holds them: a column at a time, each written in the shortest of four ways.

    ["a", "a", "b"]                                 {"all": "a", "count": 3}
    {"of": ["a", "b"], "at": [0, 0, 1]}             {"of": ["a", "b"], "at": [0, 1], "times": [2, 1]}

Numbers keep so many digits as the page shows. The same values give the same bytes.
"""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import pandas as pd

DIGITS = 4

Packed = list[Any] | dict[str, Any]


def packed(values: Sequence[Any]) -> Packed:
    """As a list, by the distinct values and their places or how often each place comes in a row where that is shorter,
    or as the one value of all.
    """
    plain = [value_of(value) for value in values]
    of: dict[str, int] = {}
    at = [of.setdefault(written(value), len(of)) for value in plain]
    if len(of) == 1 and len(plain) > 1:
        return {"all": plain[0], "count": len(plain)}
    indexed = {"of": [json.loads(text) for text in of], "at": at}
    in_a_row = [(place, len(list(same))) for place, same in groupby(at)]
    counted = {"of": indexed["of"], "at": [place for place, _ in in_a_row], "times": [times for _, times in in_a_row]}
    return min((plain, indexed, counted), key=lambda found: len(written(found)))


def table(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Packed]:
    return {name: packed([row.get(name) for row in rows]) for name in names}


def value_of(value: Any) -> Any:
    """Of a record: nothing where it is missing, numbers rounded."""
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
    """So many decimals of an accuracy, so many digits of what is larger; whole numbers stay whole."""
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
