"""The legal values of a record's fields. Other kinds or sizes of numbers are refused wherever a record is read.

    accuracy 9.0, NaN, true      refused: a share lies in 0..1
    lr nan, inf, 0               refused: a learning rate is positive and finite
    test_loss inf                kept as none: a loss may overflow on strings that are longer than the trained ones
    parameters 10^30             refused: a count fits into 64 bits

Nothing here needs torch.
"""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import from_json

_TRUTHS = ("stopped_early", "mixed_numerics", "dirty")


def refuse_truths(values: Mapping[str, Any]) -> None:
    """Refuse booleans as numbers, although Python counts with them."""
    for name, value in values.items():
        if isinstance(value, bool) and name not in _TRUTHS:
            raise ValueError(f"{name} should be a number or a text, not {value}")


def _finite_or_none(value: Any) -> Any:
    try:
        return value if value is None or math.isfinite(float(value)) else None
    except (TypeError, ValueError, OverflowError):
        return value  # refused later, by its type


def _bins(text: str) -> str:
    """Check the JSON of length bins, `40..64`, with shares."""
    return _numbers(text, low=0.0, high=1.0, named=r"\d{1,18}\.\.\d{1,18}")


def _lengths(text: str) -> str:
    """Check the JSON of lengths with shares."""
    return _numbers(text, low=0.0, high=1.0, named=r"\d{1,18}")


def _numbers(text: str, *, low: float = -math.inf, high: float = math.inf, named: str = ".*") -> str:
    tree = from_json(text) if text != "{}" else {}
    if not isinstance(tree, dict):
        raise ValueError("Input should be names with numbers")
    for name, value in tree.items():
        if not re.fullmatch(named, name, flags=re.ASCII | re.DOTALL):
            raise ValueError(f"{name[:40]!r} should be lengths")
        if value is None:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or not low <= value <= high:
            raise ValueError(f"{name} should be a number{'' if low == -math.inf else ' in 0..1'}, not {value!r}")
    return text


Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Chance = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]  # with a chance of 1 nothing could be scaled
Scaled = Annotated[float, Field(le=1, allow_inf_nan=False)]  # the lower bound depends on the task
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Amount = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]  # seconds, tokens: their sums stay finite
Loss = Annotated[Annotated[float, Field(ge=0, allow_inf_nan=False)] | None, BeforeValidator(_finite_or_none)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
LONGEST = 10_000  # characters of a name, a label or the settings
Name = Annotated[str, Field(max_length=LONGEST)]
Id = Annotated[str, Field(max_length=1000, pattern=r"^[^\x00-\x1f\x7f]*$")]
Bins = Annotated[str, AfterValidator(_bins)]
Lengths = Annotated[str, AfterValidator(_lengths)]
Numbers = Annotated[str, AfterValidator(_numbers)]
