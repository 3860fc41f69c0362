"""The cache of compiled kernels: a damaged file is removed before it is loaded.

    ~/.cache/chomsky-ladder/8d1f0c...so           compiled by models/kernels/native_library.py
    ~/.cache/chomsky-ladder/8d1f0c...so.sha256    its digest, made when it was first found whole

A truncated library kills the process that loads it. One that a power cut has emptied would be skipped for ever, and
plain torch used instead. Both show in the table of sections, which a compiler writes last. Later damage shows in the
digest. A removed kernel is compiled again when it is next needed. Nothing here needs torch.
"""

import hashlib
import struct
import sys
from contextlib import suppress
from pathlib import Path

from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.models.kernels.native_library import cache_folder

_ELF = b"\x7fELF\x02\x01"  # 64 bits, lowest byte first
_HEADER = 64  # bytes


def remove_damaged_kernels() -> list[Path]:
    """Remove damaged kernels, say so, and return them. Write the digest of whole ones."""
    folder = cache_folder()
    removed = []
    with suppress(OSError):  # a cache that we may not read is not loaded from either
        for library in sorted(folder.glob("*.so")) if folder else []:
            if _is_as_compiled(library):
                continue
            library.unlink(missing_ok=True)
            _digest_file(library).unlink(missing_ok=True)
            print(f"ladder: {library} was damaged: it is removed, and compiled again when asked for", file=sys.stderr)
            removed.append(library)
    return removed


def _is_as_compiled(library: Path) -> bool:
    content, file = library.read_bytes(), _digest_file(library)
    digest = hashlib.sha256(content).hexdigest()
    known = file.read_bytes() if file.is_file() else b""
    if known:
        return known.split()[:1] == [digest.encode()]
    if not _is_whole(content):
        return False
    with suppress(OSError):  # no room now: the digest is written another time
        write_atomically(file, f"{digest}  {library.name}\n".encode())
    return True


def _digest_file(library: Path) -> Path:
    return library.with_name(f"{library.name}.sha256")


def _is_whole(content: bytes) -> bool:
    """Return True if a library contains its whole table of sections, which is written last."""
    if not content.startswith(_ELF) or len(content) < _HEADER:
        return sys.platform != "linux" and len(content) > _HEADER  # on other systems the format is not checked
    (start,) = struct.unpack_from("<Q", content, 0x28)
    size, count = struct.unpack_from("<HH", content, 0x3A)
    end = start + size * count
    return count > 0 and size > 0 and end <= len(content) and any(content[end - size : end])
