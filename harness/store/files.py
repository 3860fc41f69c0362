"""Files that are whole or are not there. Nothing here needs torch.

    write_atomically(results / "records.csv", content)
    ->  records.csv.4711-9f3a6c.part is written and synced, then takes the place of records.csv

A part has a name of its own, so that two writers of one file never write into each other's; the last to end wins.
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
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)  # the folder is somebody else's
_ABANDONED = 3600.0  # seconds after which a part is taken for one whose writer was killed


class NoPlainFile(ValueError):
    """A pipe, a device or a folder where a file is looked for."""


def write_atomically(path: Path, content: bytes) -> None:
    """The file appears whole under its name or not at all, also after a power cut or beside another writer."""
    part = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(3)}.part")
    try:
        with part.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    except OSError as error:  # a full disk: what was written of it is in the way
        with suppress(OSError):  # a read-only disk has nothing to remove
            part.unlink(missing_ok=True)
        error.filename = str(path)  # the part is nobody's word
        raise
    sync_folder(path.parent)
    _remove_abandoned(path)


def write_where_allowed(path: Path, content: bytes) -> bool:
    """Write what a reading command keeps beside what it shows, if it changes; False in a folder that is read-only."""
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
    """Make sure that what was renamed or removed in a folder stays so after a power cut."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _remove_abandoned(path: Path) -> None:
    """Find the parts that killed writers left, by the file system's clock, since ours may be wrong."""
    for part in path.parent.glob(f"{escape(path.name)}.*-*.part"):
        try:
            if path.stat().st_mtime - part.stat().st_mtime > _ABANDONED:  # the file was written just now
                part.unlink()
        except FileNotFoundError:  # renamed or removed by its writer since
            continue


def refuse_link(path: Path) -> None:
    """Refuse a file to write that is a link: what it points to is not ours."""
    if path.is_symlink():
        raise ValueError(f"{path} is a link, which no run writes through: remove it")


def appending(path: Path) -> BinaryIO:
    """Open a file to append to it, but never one that a link points to."""
    refuse_link(path)  # in words
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), "ab")


def read_plain(path: Path | str) -> bytes:
    """What a file holds; a pipe, a device or a folder is refused, and never waited for."""
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
    """What a JSON file holds, None if there is none; thousands are read, so by the quicker of two readers."""
    try:
        return from_json(read_plain(path))
    except FileNotFoundError:
        return None
    except NoPlainFile:
        raise
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from None


def read_object(path: Path | str) -> dict[str, Any] | None:
    """What a JSON file holds that must hold an object; None if there is none."""
    tree = read_json(path)
    if tree is not None and not isinstance(tree, dict):
        raise ValueError(f"{path} is damaged: it holds no object")
    if tree is None and Path(path).exists():  # the text `null`
        raise ValueError(f"{path} is damaged: it holds no object")
    return tree
