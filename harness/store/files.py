"""Files that exist whole or not at all. Nothing here needs torch.

    write_atomically(results / "records.csv", content)
    ->  records.csv.4711-9f3a6c.part is written and synced, then renamed to records.csv

Each part file has a unique name, so two writers of one file do not disturb each other. The last to finish wins.
"""

import errno
import os
import secrets
import stat
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Any, BinaryIO

from pydantic_core import from_json

CHECKOUT = Path(__file__).resolve().parents[2]  # the clone this code runs from, if it is one
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)  # somebody else owns the folder
_ABANDONED = 3600.0  # seconds after which the writer of a part file is assumed dead


class NoPlainFile(ValueError):
    """A pipe, a device or a folder where a file was expected."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it exists whole or not at all, even after a power cut or beside another writer."""
    part = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(3)}.part")
    try:
        with part.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    except OSError as error:  # on a full disk, what was written of it takes up room
        with suppress(OSError):  # a read-only disk has nothing to remove
            part.unlink(missing_ok=True)
        error.filename = str(path)  # users know the file, not the part
        raise
    sync_folder(path.parent)
    _remove_abandoned(path)


def write_where_allowed(path: Path, content: bytes) -> bool:
    """Write a file that a reading command keeps, if it changes. Return False if the folder is read-only."""
    try:
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise
        return False
    return True


def sync_folder(path: Path) -> None:
    """Make renames and removals in a folder survive a power cut."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _remove_abandoned(path: Path) -> None:
    """Remove part files of dead writers. Their age is told by the file system's clock, since ours may be wrong."""
    for part in path.parent.glob(f"{escape(path.name)}.*-*.part"):
        try:
            if path.stat().st_mtime - part.stat().st_mtime > _ABANDONED:  # path was written just now
                part.unlink()
        except FileNotFoundError:  # its writer has renamed or removed it
            continue


def refuse_link(path: Path) -> None:
    """Refuse to write a file that is a link, because the file it points to may not be ours."""
    if path.is_symlink():
        raise ValueError(f"{path} is a link, which no run writes through: remove it")


def appending(path: Path) -> BinaryIO:
    """Open a file to append to it. Refuse a link."""
    refuse_link(path)  # with a clear message
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), "ab")


def read_plain(path: Path | str) -> bytes:
    """Return the content of a file. Refuse a pipe, a device or a folder without waiting for it."""
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        seen = os.fstat(number)
        if not stat.S_ISREG(seen.st_mode):
            raise NoPlainFile(f"{path} is no plain file")
        with os.fdopen(number, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(number)


def read_json(path: Path | str) -> Any:
    """Return the content of a JSON file, or None if there is none. Fast, because thousands of them are read."""
    try:
        return from_json(read_plain(path))
    except FileNotFoundError:
        return None
    except NoPlainFile:
        raise
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from None


def read_object(path: Path | str) -> dict[str, Any] | None:
    """Return the object in a JSON file, or None if there is no file. Refuse any other content."""
    tree = read_json(path)
    if tree is not None and not isinstance(tree, dict):
        raise ValueError(f"{path} is damaged: it holds no object")
    if tree is None and Path(path).exists():  # the text `null`
        raise ValueError(f"{path} is damaged: it holds no object")
    return tree
