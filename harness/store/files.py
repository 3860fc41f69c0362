"""Files that are whole or are not there. Nothing here needs torch."""

import os
from pathlib import Path
from typing import Any

from pydantic_core import from_json

CHECKOUT = Path(__file__).resolve().parents[2]  # the clone this code runs from, if it is one


def write_atomically(path: Path, content: bytes) -> None:
    """The file appears whole under its name or not at all, also after a power cut."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:  # a full disk: what was written of it is in the way
        part.unlink(missing_ok=True)
        raise
    part.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_json(path: Path) -> Any:
    """What a JSON file holds, None if there is none; thousands are read, so by the quicker of two readers."""
    try:
        return from_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from None
