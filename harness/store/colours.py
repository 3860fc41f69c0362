"""Colours for terminals: what is good, what is weak, what can be ignored.

    painted("conforms", "good", on=in_colour(sys.stdout))      green on a terminal, the plain word in a file

A terminal has colours unless NO_COLOR is set or TERM is dumb (no-color.org). Colour never carries information that the
words do not.
"""

import os
from typing import Literal, TextIO

Look = Literal["strong", "faint", "good", "weak", "odd", "bad"]
CODES: dict[Look, str] = {"strong": "1", "faint": "2"}  # ANSI
# Colours of the 256 with a contrast near 4 or above on black and on white. A theme's yellow and green are too pale.
CODES |= {"good": "38;5;28", "weak": "38;5;130", "odd": "38;5;133", "bad": "38;5;196"}


def in_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def painted(text: str, look: Look | None, *, on: bool) -> str:
    return f"\x1b[{CODES[look]}m{text}\x1b[0m" if on and look and text.strip() else text
