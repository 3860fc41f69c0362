"""Keep a function's results by its arguments, for as long as the process lives.

    @kept
    def table(modulus: int, device: torch.device) -> Tensor: ...

Like functools.cache, but safe for tables that draws read. torch.compile traces through functools.cache and makes the
table anew in every step, from the host, which no CUDA graph allows. It does not trace a lookup in a dict, once a plain
step has filled it. A captured step reads a table at its address, so none is ever dropped.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def kept(make: Callable[P, R]) -> Callable[P, R]:
    found: dict[Any, R] = {}

    @wraps(make)
    def look_up(*given: P.args, **named: P.kwargs) -> R:
        key = (given, tuple(named.items())) if named else given
        if key not in found:
            found[key] = make(*given, **named)
        return found[key]

    return look_up
