"""One table of a data set, as its card, its Croissant file and its reader need it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    path: str
    about: str
    rows: int
    columns: dict[str, str]
    """The Croissant type of each column; a list of them has a * behind it."""
    sha256: str
