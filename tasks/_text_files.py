"""Split a file into three disjoint parts of tokens, in the order of the file: training, validation, test.

    words = 0     "the cat" -> t h e ␣ c a t           a token is a byte
    words = 2     "the cat" -> the ␣ c a t             "the" is among the two commonest words, " cat" is not

A word is a run of letters and digits, or of other signs, with the space before it. The most frequent words of the
training part are tokens. Everything else is spelled in bytes. So there are no unknown tokens, tokens spell the text
exactly, and bits per byte can be compared across vocabularies.
"""

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise
from pathlib import Path

import numpy as np

PARTS = ("train", "validation", "test")
FIRST_WORD = 257  # after PAD and the 256 bytes
_PIECE = re.compile(r" ?\w+| ?[^\w\s]+|\s+")


@dataclass(frozen=True)
class Corpus:
    """The parts of a text, by name."""

    tokens: dict[str, np.ndarray]  # int16
    bytes: dict[str, int]
    words: tuple[str, ...]


def digest(path: str) -> str:
    """Return the first 16 digits of a file's sha256."""
    if not Path(path).is_file():
        raise ValueError(f"text: there is no file {path}")
    found = Path(path).stat()
    return _digest(path, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=64)
def _digest(path: str, changed: int, size: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


@lru_cache(maxsize=8)
def open_text(path: str, sha256: str, *, words: int, held_out: int) -> Corpus:
    """Read a text with this hash. `held_out` per cent of it are the test, and as many before that validation."""
    if not Path(path).is_file():
        raise ValueError(f"text: the file {path} has gone")
    content = Path(path).read_bytes()
    if hashlib.sha256(content).hexdigest()[:16] != sha256:
        raise ValueError(f"text: {path} has another text now than file_sha256={sha256} says")
    text: bytes | str = content
    if words:
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"text: {path} is not UTF-8 at byte {error.start}: words need that; words=0 reads bytes"
            ) from None
    size = len(text)
    ends = (0, size * (100 - 2 * held_out) // 100, size * (100 - held_out) // 100, size)
    parts = {name: text[start:end] for name, (start, end) in zip(PARTS, pairwise(ends), strict=True)}
    known = _commonest(str(parts["train"]), words, path) if isinstance(text, str) else ()
    tokens = {name: _tokens(part, known) for name, part in parts.items()}
    for name, found in tokens.items():
        if len(found) < 2:
            raise ValueError(
                f"text: {path} is too short: {len(content)} bytes leave its {name} part {len(found)} tokens"
            )
    lengths = {name: len(part.encode() if isinstance(part, str) else part) for name, part in parts.items()}
    return Corpus(tokens, lengths, known)


def _commonest(text: str, count: int, path: str) -> tuple[str, ...]:
    """Return words of two bytes and more, the most frequent first; equally frequent ones by code point."""
    counts = Counter(_PIECE.findall(text))
    found = sorted((word for word in counts if len(word.encode()) > 1), key=lambda word: (-counts[word], word))
    if len(found) < count:
        raise ValueError(
            f"text: the training part of {path} has {len(found)} words of two bytes and more: words is {count}"
        )
    return tuple(found[:count])


def tokens_of(text: str, words: tuple[str, ...]) -> np.ndarray:
    """Return the tokens of a text: the words that are tokens, and bytes for the rest."""
    return _tokens(text if words else text.encode(), words)


def _tokens(text: bytes | str, words: tuple[str, ...]) -> np.ndarray:
    if isinstance(text, bytes):
        return np.frombuffer(text, dtype=np.uint8).astype(np.int16) + np.int16(1)
    token_of = {word: (token,) for token, word in enumerate(words, start=FIRST_WORD)}
    spelled = (token_of.get(piece) or [byte + 1 for byte in piece.encode()] for piece in _PIECE.findall(text))
    return np.fromiter(chain.from_iterable(spelled), dtype=np.int16)
