"""records.csv and curves.csv as files that lose no line: rewritten under a lock, and checked by a digest beside them.

    records.csv             a line for every run
    records.csv.sha256      for `sha256sum --check records.csv.sha256`:
                            # 516 records
                            8d1f0c..  records.csv

A file that was changed is refused with advice. An old file without a digest is read as it is. During a rewrite the
digest file holds both digests, old and new. So after a kill the file has one of the two. Readers take no lock and leave
nothing behind. Nothing here needs torch or pandas.
"""

import csv
import hashlib
import io
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from chomsky_ladder.harness.store import lock
from chomsky_ladder.harness.store.files import write_atomically

PATIENCE = 120.0  # seconds to wait for another writer of records.csv, who needs one or two
_RACED = 5  # times that file and digest are read again, since a writer may be between them

_OR_NONE = "# or none yet\n"
csv.field_size_limit(sys.maxsize)  # everything that was written can be read; the default limit is 131,072 characters

Row = dict[str, str]


def digest_file(path: Path) -> Path:
    """Return the path of the digest of a records.csv."""
    return path.with_name(f"{path.name}.sha256")


def content_of(path: Path) -> bytes | None:
    """Return the bytes of a records.csv, checked against its digest; None if there is none."""
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no plain file")
    for attempt in range(_RACED):
        if attempt:
            time.sleep(0.05)
        known = _known(path)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            content = None
        if content is None:
            if not known or "none" in known:
                return None
        elif not known or hashlib.sha256(content).hexdigest() in known:
            return content
    what = "has gone" if content is None else f"is not as it was written ({_lines(content)} there)"
    raise ValueError(
        f"{path} {what}: it was cut, damaged or edited. Put back the file that {digest_file(path).name} is of "
        f"({_count(path)}), or remove {digest_file(path).name} if it is right as it is"
    )


def holds(path: Path, content: bytes) -> bool:
    """Return True if a file has this content and one digest. A killed rewrite may leave two."""
    return content_of(path) == content and len(_known(path)) < 2


def rows(path: Path) -> list[Row]:
    """Return the lines of a records.csv with unparsed cells; none if there is no such file."""
    return rows_of(path, content_of(path))


def rows_of(path: Path, content: bytes | None) -> list[Row]:
    """Return the lines in the content of a records.csv."""
    if content is None:
        return []
    try:
        head, *lines = csv.reader(io.StringIO(content.decode("utf-8"), newline=""), strict=True)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no table of records: it is not UTF-8 at byte {error.start}") from None
    except csv.Error as error:
        raise ValueError(f"{path} is no table of records: {error}") from None
    except ValueError:
        raise ValueError(f"{path} is no table of records: it is empty") from None
    if len(set(head)) < len(head):
        raise ValueError(f"{path} is no table of records: a column is there twice, {max(head, key=head.count)}")
    for number, line in enumerate(lines, start=1):
        if len(line) != len(head):
            raise ValueError(
                f"{path} is no table of records: line {number} has {len(line)} cells of {len(head)}; was it cut?"
            )
    return [dict(zip(head, line, strict=True)) for line in lines]


def write(path: Path, content: bytes, *, count: int, what: str = "records") -> None:
    """Replace a records.csv (or another such file) and its digest. The caller holds its lock."""
    new = _line(content, path)
    try:
        old = [_line(path.read_bytes(), path)]
    except FileNotFoundError:
        old = [_OR_NONE]
    counted = f"# {count} {what}\n"
    write_atomically(digest_file(path), "".join([counted, *old, new]).encode())
    write_atomically(path, content)
    write_atomically(digest_file(path), (counted + new).encode())


@contextmanager
def rewriting(path: Path) -> Iterator[None]:
    """Hold the right to replace a records.csv, and wait for it. Reading and rewriting belong inside."""
    end = time.monotonic() + PATIENCE
    place = path.with_name(f"{path.name}.lock")
    while True:
        try:
            with lock.held_file(place, what=str(path)):
                try:
                    yield
                    return
                finally:
                    place.unlink(missing_ok=True)  # others who have it open notice that it is gone and try again
        except lock.Busy as busy:
            if time.monotonic() > end:
                raise ValueError(f"{busy}; try again once it has ended") from None
            time.sleep(0.05)


def _line(content: bytes, path: Path) -> str:
    return f"{hashlib.sha256(content).hexdigest()}  {path.name}\n"


def _known(path: Path) -> set[str]:
    """Return the digests that a records.csv may have; none if there is no digest file."""
    try:
        text = digest_file(path).read_text("utf-8", errors="replace")
    except FileNotFoundError:
        return set()
    absent = {"none"} if _OR_NONE in text else set()
    return absent | set(re.findall(r"^([0-9a-f]{64})  ", text, flags=re.MULTILINE)) or {"damaged"}


def _count(path: Path) -> str:
    try:
        first = digest_file(path).read_text("utf-8", errors="replace").partition("\n")[0]
    except FileNotFoundError:
        first = ""
    return first.removeprefix("# ") if re.fullmatch(r"# \d+ \w+", first) else "that is damaged too"


def _lines(content: bytes) -> str:
    return f"{max(0, len(content.splitlines()) - 1)} lines are"
