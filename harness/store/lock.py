"""The right to write a run's folder, for one process at a time, on one machine or several that share their files.

The operating system's lock keeps out other processes of one host, and most network file systems share it between hosts.
It ends with its holder, so nothing needs clearing after a kill. For file systems that do not share it, the lock file
names the holder. A holder on another host counts as alive while its heartbeat is fresh by the file system's clock. Two
hosts may have the same name, such as copies of a virtual machine. The time of their start tells them apart. Where the
system's lock has no effect, a holder on this host counts as alive while its process exists.
"""

import errno
import fcntl
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

BEAT = 30.0  # seconds between heartbeats
_LONGEST = 1024  # bytes that name a holder
STALE = 300.0  # seconds without a heartbeat after which a holder on another host counts as dead


class Busy(Exception):
    """Another process is writing this run."""


class Holder(NamedTuple):
    process: int
    host: str
    boot: str = ""
    """An id of the host's start, if its system has one. Old locks have none."""

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


class Lost(OSError):
    """The file of a held lock is gone, or belongs to another process."""


IsHeld = Callable[[], bool]


def held(folder: Path, *, frees_room: bool = False) -> AbstractContextManager[IsHeld]:
    """Hold a folder's lock. Yields a function that tells whether it is still held.

    Raises Busy if another process holds it, and OSError if nothing can be written. With `frees_room` the lock may be
    taken on a full disk without room for the holder's name. Only the system's lock protects it then.
    """
    return held_file(folder / "lock", what=folder.name, frees_room=frees_room)


@contextmanager
def held_file(path: Path, *, what: str, frees_room: bool = False) -> Iterator[IsHeld]:
    """Hold the lock at any path. `what` names the thing that it protects."""
    with _opened(path, os.O_RDWR | os.O_CREAT) as file:
        if not _taken(file, path):
            raise Busy(f"{what} is being written by {_named(file) or 'another process'}")
        other = _alive_elsewhere(path, file)
        if other is not None:
            raise Busy(f"{what} is being written by {other}, which gave a sign of life within {STALE:.0f} s")
        _name_holder(file, frees_room=frees_room)
        _HEART.keep(path)
        try:
            yield lambda: _is_at(path, file)
        finally:
            _HEART.leave(path)
            os.ftruncate(file.fileno(), 0)


def holder(folder: Path) -> Holder | None:
    """Return the process that is writing a folder now, or None."""
    try:
        with _opened(folder / "lock", os.O_RDWR) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _named(file) or Holder(0, "an unknown host")
            return _alive_elsewhere(folder / "lock", file)
    except OSError:  # there is no lock file, or we may not read it
        return None


def last_holder(folder: Path) -> Holder | None:
    """Return the process named in the lock file, alive or dead."""
    try:
        with _opened(folder / "lock", os.O_RDWR) as file:
            return _named(file)
    except OSError:
        return None


def _opened(path: Path, flags: int) -> BinaryIO:
    """Open the lock file itself. Refuse a link, and a pipe in its place."""
    number = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "is no plain file", str(path))
    return os.fdopen(number, "r+b", buffering=0)


def _name_holder(file: BinaryIO, *, frees_room: bool) -> None:
    try:
        os.ftruncate(file.fileno(), 0)
        file.seek(0)
        mine = Holder(os.getpid(), socket.gethostname(), _boot())
        file.write(f"{mine} {mine.boot}".strip().encode() + b"\n")
    except OSError as error:
        if not frees_room or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise


def _taken(file: BinaryIO, path: Path) -> bool:
    """Take the system's lock. It is tried for a moment, since a query for the holder takes it that long."""
    for _ in range(5):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        except OSError as error:
            cure = "its file system has no locks; take a results folder on another one"
            raise OSError(error.errno, f"{error.strerror}: {cure}", str(path)) from None
        else:
            return _is_at(path, file)  # False if it was just removed
    return False


def _is_at(path: Path, file: BinaryIO) -> bool:
    """Return True if an open file still lies at a path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _named(file: BinaryIO) -> Holder | None:
    """Return the holder that the file names, or None."""
    file.seek(0)
    words = file.read(_LONGEST).decode("utf-8", errors="replace").split()
    if len(words) in (4, 5) and words[0] == "process" and words[1].isascii() and words[1].isdigit():
        return Holder(int(words[1]), words[3], *words[4:])
    return None


@lru_cache(maxsize=1)
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()[:8]
    except (OSError, ValueError):
        return ""


def _is_of_this_host(other: Holder) -> bool:
    """Return True if a holder is on this host, where a free system lock means that it died."""
    return other.host == socket.gethostname() and (not other.boot or other.boot == _boot())


def _alive_elsewhere(path: Path, file: BinaryIO) -> Holder | None:
    """Return the holder with a fresh heartbeat, if it is on another host or system locks have no effect."""
    other = _named(file)
    if other is None:
        return None
    if _is_of_this_host(other) and (_keeps_out(path) or not _runs(other.process)):
        return None  # its process died, and the system released its lock
    clock = path.with_name(f"clock.{os.getpid()}")
    try:
        clock.touch()
        age = clock.stat().st_mtime - os.fstat(file.fileno()).st_mtime
    finally:
        clock.unlink(missing_ok=True)
    return other if abs(age) < STALE else None  # a heartbeat from the future comes from a wrong clock


def _keeps_out(path: Path) -> bool:
    """Return True if the lock that this process holds works; some network file systems ignore it."""
    with _opened(path, os.O_RDWR) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _runs(process: int) -> bool:
    """Return True if another process has that number."""
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return process != os.getpid()


class _Heart:
    """A thread that renews the files of all locks this process holds."""

    def __init__(self) -> None:
        self._paths: set[Path] = set()
        self._beating: threading.Thread | None = None

    def keep(self, path: Path) -> None:
        self._paths.add(path)
        if self._beating is None:
            beating = threading.Thread(target=self._beat, daemon=True)
            with suppress(RuntimeError):  # no thread available: on this host the system's lock is enough
                beating.start()
                self._beating = beating

    def leave(self, path: Path) -> None:
        self._paths.discard(path)

    def _beat(self) -> None:
        while True:
            time.sleep(BEAT)
            for path in list(self._paths):
                with suppress(OSError):  # the folder is gone: its writer will say so
                    os.utime(path)


_HEART = _Heart()
