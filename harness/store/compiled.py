"""Kernels that are kept compiled: one that is not as it was compiled is removed before anybody loads it.

    ~/.cache/chomsky-ladder/8d1f0c...so           what models/kernels/native_library.py has compiled
    ~/.cache/chomsky-ladder/8d1f0c...so.sha256    its digest, from the first time that it was found whole

A library that was cut kills the process that loads it, and one that a power cut has emptied is passed over for ever for
plain torch. Both are seen by the table of sections, which a compiler writes last; what changes later, by the digest.
What is removed is compiled again when it is next asked for. Nothing here needs torch.
"""

import hashlib
import struct
import sys
from contextlib import suppress
from pathlib import Path

from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.models.kernels.native_library import cache_folder

_ELF = b"\x7fELF\x02\x01"  # of 64 bits, the lowest byte first
_HEADER = 64  # bytes


def remove_damaged_kernels() -> list[Path]:
    """Remove what may not be loaded, and say so; keep the digest of what is whole. What was removed."""
    folder = cache_folder()
    removed = []
    with suppress(OSError):  # a cache that is not ours to look into is not loaded from either
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
    with suppress(OSError):  # no room: it is held to it once there is some
        write_atomically(file, f"{digest}  {library.name}\n".encode())
    return True


def _digest_file(library: Path) -> Path:
    return library.with_name(f"{library.name}.sha256")


def _is_whole(content: bytes) -> bool:
    """Whether a library reaches to the end of its table of sections, and that is written."""
    if not content.startswith(_ELF) or len(content) < _HEADER:
        return sys.platform != "linux" and len(content) > _HEADER  # of another system: of its form nothing is known
    (start,) = struct.unpack_from("<Q", content, 0x28)
    size, count = struct.unpack_from("<HH", content, 0x3A)
    end = start + size * count
    return count > 0 and size > 0 and end <= len(content) and any(content[end - size : end])
