"""The sizes of a measurement: a grid of lengths, batches and contexts."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple

from chomsky_ladder.harness.config.parts import require

Precision = Literal["fp32", "bf16"]
What = Literal["train", "prefill", "decode"]
Match = Literal["parameters", "state"]


class Way(NamedTuple):
    """A way to run a model."""

    precision: Precision = "fp32"
    backend: str = "auto"
    compiled: bool = False
    graph: bool = False  # replays of a CUDA graph

    @property
    def name(self) -> str:
        more = [word for word, on in (("compiled", self.compiled), ("graph", self.graph)) if on]
        return " ".join([self.backend, *more])


class Point(NamedTuple):
    way: Way
    what: What
    batch: int
    length: int  # of the strings, or the context before a decoded token


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Sizes to measure. The defaults suit a CPU: all models in a quarter of an hour on one core."""

    parameters: int = 100_000
    """Parameters of the models in the first table."""
    state_bytes: int = 4096
    """Bytes of state per sequence of the models in the second table."""
    state_context: int = 32
    """Tokens in a cache when its bytes are matched."""
    vocab: int = 16
    """Size of the vocabulary."""
    tokens: int = 1024
    """Tokens of a training step when that number is constant."""
    lengths: tuple[int, ...] = (64, 256, 1024)
    """Lengths of strings at constant tokens per step."""
    batch: int = 1
    """Strings in a training step or prefill when that number is constant."""
    growing: tuple[int, ...] = (128, 256, 512, 1024, 2048)
    """Lengths of strings at constant batch in training, to which the growth of its cost is fitted."""
    prefill: tuple[int, ...] = (256, 512, 1024, 2048)
    """Lengths of prompts."""
    contexts: tuple[int, ...] = (1, 256, 4096, 65536)
    """Numbers of tokens before the decoded one, in a batch of 1."""
    batches: tuple[int, ...] = (8, 64)
    """Further batches of decoding, at the length `at`."""
    at: int = 256
    """The length at which ways and matched models are compared."""
    repeats: int = 30
    """Timed repetitions of each point."""
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    """Precisions. The first is measured at all points, the others at the length `at`."""
    compiled: bool = False
    """Add rows for torch.compile."""
    threads: int = 1
    """Threads of torch on a CPU."""
    slowest: float = 1.5
    """A point is given up if one repetition takes more seconds than this."""
    memory: int = 0
    """Bytes a point may use on a CPU; 0 for nine tenths of what is available."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("compiled", "slowest", "memory", "precisions"):
                continue
            least = min(value, default=1) if isinstance(value, tuple) else value
            require(least >= 1, f"throughput: {field.name} must be at least 1, not {least}")
        require(bool(self.precisions), "throughput: precisions must name one at least")
        require(self.slowest > 0 and self.memory >= 0, "throughput: slowest and memory must not be negative")
        odd = [length for length in (*self.lengths, self.at) if self.tokens % length]
        require(not odd, f"throughput: strings of {', '.join(map(str, odd))} do not add up to {self.tokens} tokens")

    @classmethod
    def of(cls, device: str) -> "Grid":
        """Return the default sizes for a kind of device."""
        if device != "cuda":
            return cls()
        return cls(
            parameters=1_000_000,
            state_bytes=65_536,
            state_context=256,
            tokens=65_536,
            lengths=(64, 256, 1024, 4096, 16384),
            batch=8,
            growing=(256, 512, 1024, 2048, 4096, 8192),
            prefill=(256, 1024, 4096, 16384),
            contexts=(1, 256, 1024, 4096, 16384, 65536),
            batches=(16, 64, 256),
            at=1024,
            compiled=True,
        )

    def points(self, match: Match, ways: Sequence[Way]) -> list[Point]:
        """Return the points to measure of a model, each once. Models of matched state are compared at one length."""
        main = ways[0]
        if match == "state":
            return [Point(main, what, self.batch, self.at) for what in ("train", "prefill", "decode")]
        found = []
        found += [Point(main, "train", self.tokens // length, length) for length in self.lengths]
        found += [Point(main, "train", self.batch, length) for length in self.growing]
        found += [Point(main, "prefill", self.batch, length) for length in self.prefill]
        found += [Point(main, "decode", 1, context) for context in self.contexts]
        found += [Point(main, "decode", batch, self.at) for batch in self.batches]
        for way in ways:
            found.append(Point(way, "train", self.tokens // self.at, self.at))
            if not way.compiled:  # only the training step is compiled
                found += [Point(way, "prefill", self.batch, self.at), Point(way, "decode", 1, self.at)]
        return list(dict.fromkeys(found))
