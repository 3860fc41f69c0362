r"""The next token of a text, from a file or from a Markov chain of known entropy.

    a a b a c a b b  ->  a b a c a b b d        read at each token: the next one

Without a file, strings come from a stationary chain on four letters. The probabilities of the next letter are

           a    b    c    d
    a     1/2  1/4  1/8  1/8        of a string's letters 1/2 are a, 1/4 b, 1/8 c and 1/8 d: 7/4 bits a letter
    b     1/2  1/2   .    .         H = 1/2 * 7/4 + 1/4 * 1 + 1/8 * 0 + 1/8 * 1 = 5/4 bits = .8664 nats a letter:
    c      1    .    .    .         perplexity 2.3784, and none is lower in expectation (Shannon 1948);
    d      .    .   1/2  1/2        a guess without reading has 3.3636; the likeliest letter is right for 9/16

With `file`, strings are windows of its text. The training part comes first, then the validation part, then the test
part. Each window is uniform in the part of its split. Tokens are bytes, and with `words` also the most frequent words
(tasks/_text_files.py). A length counts the tokens read, each of which has an answer. Perplexity is exp(loss), with the
loss in nats per token. `bits_per_byte` can be compared across vocabularies. Outside the hierarchy: nobody knows a
text's level.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from chomsky_ladder.tasks._automata import composed, states_along
from chomsky_ladder.tasks._kept import kept
from chomsky_ladder.tasks._text_files import FIRST_WORD, PARTS, Corpus, digest, open_text, tokens_of
from chomsky_ladder.tasks.base import PAD, Batch, Task, bounded, register
from chomsky_ladder.tasks.draw import Draw

LETTERS = "abcd"
CHAIN = ((4, 2, 1, 1), (4, 4, 0, 0), (8, 0, 0, 0), (0, 0, 4, 4))  # in eighths
STATIONARY = (4, 2, 1, 1)
EIGHTHS = 8
ENTROPY_RATE, UNIGRAM_ENTROPY = 5 / 4 * math.log(2), 7 / 4 * math.log(2)  # of the chain, nats a letter
MOST_WORDS = 32_000  # tokens fit in 16 bits
LONGEST = 1 << 16

_ON_DEVICE: dict[tuple[str, int, int, str, torch.device], Tensor] = {}  # no lru_cache: torch.compile looks through one


@register
@dataclass(frozen=True, kw_only=True)
class Text(Task):
    name, version, level = "text", 1, "none"
    own_lengths = (128, 128)
    outside_identity: ClassVar[tuple[str, ...]] = ("file",)  # the hash identifies it, wherever it lies

    file: str = ""
    """A text file to model; empty for strings of a Markov chain whose entropy is known."""
    file_sha256: str = ""
    """Hash of that text, 16 digits, which is part of the run's identity; computed if not given."""
    words: int = 0
    """Number of most frequent words that are tokens, besides the 256 bytes; 0 for bytes alone."""
    held_out: int = 10
    """Per cent of the file in the test part, and as much in the validation part."""

    def __post_init__(self) -> None:
        bounded(self, "words", 0, MOST_WORDS)
        bounded(self, "held_out", 1, 49)
        if not self.file:
            if self.file_sha256 or self.words or self.held_out != 10:
                raise ValueError("text: file_sha256, words and held_out are settings of a file, which is not given")
            return
        try:
            found = digest(self.file)
        except ValueError:
            if self.file_sha256:
                return  # a record whose file is gone can be read, not trained or scored again
            raise
        if self.file_sha256 not in ("", found):
            raise ValueError(f"text: {self.file} has another text now than file_sha256={self.file_sha256} says")
        object.__setattr__(self, "file_sha256", found)
        self._corpus()

    def _corpus(self) -> Corpus:
        return open_text(self.file, self.file_sha256, words=self.words, held_out=self.held_out)

    def _known(self) -> Corpus | None:
        """Return the text, if there is one and it still exists."""
        try:
            return self._corpus() if self.file else None
        except ValueError:
            return None

    @property
    def vocab(self) -> tuple[str, ...]:
        if not self.file:
            return "PAD", *LETTERS
        corpus = self._known()
        words = map(repr, corpus.words) if corpus else (f"word {place}" for place in range(self.words))
        return "PAD", *map(_name_of_byte, range(256)), *words

    @property
    def answers(self) -> tuple[int, ...]:
        return tuple(range(1, FIRST_WORD + self.words if self.file else len(LETTERS) + 1))

    def legal_lengths(self, low: int, high: int) -> tuple[int, ...]:
        corpus = self._known()
        longest = min(map(len, corpus.tokens.values())) - 1 if corpus else LONGEST
        return tuple(range(max(low, 1), min(high, longest, LONGEST) + 1))

    def positions(self, length: int) -> int:
        return length

    def sample(self, draw: Draw, lengths_B: Tensor, width: int) -> Batch:
        if self.file:
            text_N = self.part(part_of(draw.split), draw.rows_B.device)
            start_B1 = draw.integers((text_N.shape[0] - lengths_B)[:, None], (1,))
            place_BW = start_B1 + torch.arange(width + 1, device=text_N.device)
            window_BW = text_N[place_BW.clamp(max=text_N.shape[0] - 1)].long()
        else:
            window_BW = _chain(draw, width)
        inside_BL = torch.arange(width, device=lengths_B.device) < lengths_B[:, None]
        tokens_BL, targets_BL = (torch.where(inside_BL, x, PAD) for x in (window_BW[:, :-1], window_BW[:, 1:]))
        return Batch(tokens_BL, targets_BL, inside_BL, lengths_B, torch.ones_like(lengths_B))

    def part(self, name: str, device: torch.device) -> Tensor:
        """Return the tokens of a part of the text, int16, copied to each device once."""
        key = (self.file_sha256, self.words, self.held_out, name, device)
        if key not in _ON_DEVICE:
            _ON_DEVICE[key] = torch.from_numpy(self._corpus().tokens[name]).to(device)
        return _ON_DEVICE[key]

    def read(self, text: str) -> list[int]:
        """Return the tokens of a text; for the chain, those of its letters."""
        if not self.file:
            return super().read(" ".join(text))
        return tokens_of(text, self._corpus().words).tolist()

    def spelled(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens. Bytes that are not UTF-8 are replaced."""
        if not self.file:
            return "".join(self.vocab[token] for token in tokens)
        words = self._corpus().words
        parts = (words[t - FIRST_WORD].encode() if t >= FIRST_WORD else bytes([t - 1]) if t else b"" for t in tokens)
        return b"".join(parts).decode("utf-8", errors="replace")

    def answer_law(self, length: int) -> np.ndarray:
        """Return the token distribution of the chain, or of the windows of the test part."""
        law = np.zeros((length, len(self.vocab)))
        if not self.file:
            law[:, 1:] = np.array(STATIONARY) / EIGHTHS
            return law
        text_N = self._corpus().tokens["test"].astype(np.int64)
        windows = len(text_N) - length
        law[0] = np.bincount(text_N[1 : windows + 1], minlength=law.shape[1])
        slot_M = np.arange(1, length)  # from one slot to the next, a token leaves the windows and another enters
        np.add.at(law, (slot_M, text_N[slot_M + windows]), 1)
        np.add.at(law, (slot_M, text_N[slot_M]), -1)
        return law.cumsum(axis=0) / windows

    def bits_per_byte(self, loss: float) -> float:
        """Convert a loss on the test part from nats per token to bits per byte; for the chain, to bits per letter."""
        if not self.file:
            return loss / math.log(2)
        corpus = self._corpus()
        return loss / math.log(2) * len(corpus.tokens["test"]) / corpus.bytes["test"]

    def unigram_loss(self) -> float:
        """Return the nats per token of a guess by token frequencies: those of the training part, each count plus 1."""
        if not self.file:
            return UNIGRAM_ENTROPY
        train, test = (
            np.bincount(self._corpus().tokens[name], minlength=len(self.vocab))[1:] for name in ("train", "test")
        )
        return float(-(test * np.log((train + 1) / (train + 1).sum())).sum() / test.sum())

    @property
    def facts(self) -> dict[str, str]:
        found = {"unigram_loss": f"{self.unigram_loss():.4f}", "unigram_perplexity": f"{self._of_unigrams():.4f}"}
        if not self.file:
            return {"lowest_loss": f"{ENTROPY_RATE:.4f}", "lowest_perplexity": f"{math.exp(ENTROPY_RATE):.4f}", **found}
        corpus = self._corpus()
        sizes = {f"{name}_tokens": f"{len(corpus.tokens[name]):,}" for name in PARTS}
        a_token = corpus.bytes["test"] / len(corpus.tokens["test"])
        return {**sizes, "bytes_a_token": f"{a_token:.4f}", **found}

    def _of_unigrams(self) -> float:
        return math.exp(self.unigram_loss())


def part_of(split: str) -> str:
    """Return the part of a text for a split's windows: the first part that the split names, or the test part.

    "validation/train", strings of the training lengths, is in the validation part.
    """
    return next((name for name in split.split("/") if name in PARTS), "test")


def _name_of_byte(byte: int) -> str:
    return chr(byte) if 32 < byte < 127 and chr(byte) != "\\" else f"\\x{byte:02x}"


def _chain(draw: Draw, steps: int) -> Tensor:
    """Draw strings of steps + 1 letters, as tokens."""
    start_B = draw.categorical(STATIONARY)
    eighth_BL = draw.integers(EIGHTHS, (steps,))
    maps_BLN = _maps(eighth_BL.device).index_select(0, eighth_BL.flatten()).unflatten(0, eighth_BL.shape)
    return states_along(composed(maps_BLN), start_B) + 1


@kept
def _maps(device: torch.device) -> Tensor:
    """Return the letter that follows each letter when a given eighth is drawn, [8, N]."""
    rows = [np.repeat(np.arange(len(LETTERS)), row) for row in CHAIN]
    return torch.from_numpy(np.stack(rows, axis=1)).to(device)
