"""The settings of studies of a trained model. Reading them needs no torch."""

from dataclasses import dataclass

from chomsky_ladder.harness.config.parts import check_types, refuse_endless, require

MOST_WRITTEN = 4096  # strings


@dataclass(frozen=True, kw_only=True)
class ProbeSettings:
    """Settings of the probes."""

    games_train: int = 2000
    """Games, or strings, to fit probes to."""
    games_validation: int = 500
    """Games that choose the epoch and the layer (validation)."""
    games_test: int = 1000
    """Games to score."""
    lengths: tuple[int, int] = (0, 0)
    """Shortest and longest string, as the task counts lengths; 0 0 for the lengths of the run's training."""
    epochs: int = 6
    """Passes over the games."""
    batch: int = 512
    """Positions in a step."""
    hidden: int = 128
    """Width inside the two-layer probes."""
    lr: float = 0.03
    """Learning rate of the first step."""
    weight_decay: float = 0.01
    """Weight decay of AdamW."""
    seed: int = 0
    """Seed of the order of positions, of the initial weights and of the shuffled labels."""

    def __post_init__(self) -> None:
        check_types(self, "probe")
        for name in ("games_train", "games_validation", "games_test", "epochs", "batch", "hidden"):
            require(getattr(self, name) >= 1, f"probe.{name} must be at least 1, not {getattr(self, name)}")
        require(self.games_test >= 2, "probe.games_test must be at least 2: deviations are over games")
        require(self.lr > 0, f"probe.lr must be positive, not {self.lr}")
        require(self.weight_decay >= 0, f"probe.weight_decay must not be negative: {self.weight_decay}")
        require(0 <= self.seed < 2**63, f"probe.seed must be in 0..2**63-1, not {self.seed}")
        low, high = self.lengths
        require(self.lengths == (0, 0) or 1 <= low <= high, f"probe.lengths must rise from 1, not {self.lengths}")


@dataclass(frozen=True, kw_only=True)
class InterveneSettings:
    """Settings of the edits."""

    cases_validation: int = 300
    """Edited games that choose the strength and the layer (validation)."""
    cases_test: int = 1000
    """Edited games to report."""
    after_moves: int = 5
    """Fewest moves before an edit."""
    moves_on: int = 5
    """Most moves after an edit that is carried on."""
    strengths: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
    """Strengths of an edit: the log odds it aims at, in units of the log odds of a real board."""
    examples: int = 4
    """Cases to keep whole, for pictures."""
    seed: int = 0
    """Seed of the random directions."""

    def __post_init__(self) -> None:
        check_types(self, "intervene")
        for name in ("cases_validation", "cases_test", "after_moves", "moves_on"):
            require(getattr(self, name) >= 1, f"intervene.{name} must be at least 1, not {getattr(self, name)}")
        require(bool(self.strengths), "intervene.strengths is empty")
        require(all(value > 0 for value in self.strengths), f"intervene.strengths must be positive: {self.strengths}")
        require(self.examples >= 0, f"intervene.examples must not be negative: {self.examples}")
        require(0 <= self.seed < 2**63, f"intervene.seed must be in 0..2**63-1, not {self.seed}")


@dataclass(frozen=True, kw_only=True)
class WorldModelSettings:
    pairs: int = 200
    """Pairs of prefixes in one state, and as many in two states."""
    eps: float = 0.01
    """A token counts as accepted above this probability. It has no effect on automata: there the likeliest
    answer counts.
    """
    walks: int = 4
    """Walks after each pair, where tokens may be illegal."""
    depth: int = 4
    """The longest suffix of a walk."""
    seed: int = 0
    """Seed of prefixes and walks."""

    def __post_init__(self) -> None:
        check_types(self, "worldmodel")
        for name in ("pairs", "walks", "depth"):
            require(getattr(self, name) >= 1, f"worldmodel.{name} must be at least 1, not {getattr(self, name)}")
        require(0 <= self.eps < 1, f"worldmodel.eps must lie in [0, 1), not {self.eps}")
        require(0 <= self.seed < 2**63, f"worldmodel.seed must be in 0..2**63-1, not {self.seed}")


@dataclass(frozen=True, kw_only=True)
class HorizonSettings:
    length: int = 10_000
    """Symbols of a string: the greatest legal length up to this number."""
    strings: int = 16
    """Strings to read."""
    piece: int = 256
    """Symbols to read at a time."""
    seed: int = 0
    """Seed of the strings."""

    def __post_init__(self) -> None:
        check_types(self, "horizon")
        for name in ("length", "strings", "piece"):
            require(getattr(self, name) >= 1, f"horizon.{name} must be at least 1, not {getattr(self, name)}")
            refuse_endless(getattr(self, name), what=f"horizon.{name}")
        require(0 <= self.seed < 2**63, f"horizon.seed must be in 0..2**63-1, not {self.seed}")


@dataclass(frozen=True, kw_only=True)
class WrittenSettings:
    """The strings that a model is to write, and the way of decoding."""

    prompt: str = ""
    """The symbols to continue, separated by spaces (for a text task: the text); empty for test strings."""
    count: int = 5
    """The number of strings."""
    length: int = 0
    """The length of the test strings, as the task counts it; 0 for the longest of training."""
    new: int = 0
    """The number of tokens to write; 0 for as many as the string has answers, or 32 after a prompt of text."""
    temperature: float = 0.0
    """Draw each token from softmax(logits / temperature); 0 for the most probable token."""
    beam: int = 1
    """The number of strings that a beam search keeps; 1 for none."""
    seed: int = 0
    """Seed of the draws."""

    def __post_init__(self) -> None:
        check_types(self, "generate")
        require(1 <= self.count <= MOST_WRITTEN, f"--count must lie in 1..{MOST_WRITTEN}, not {self.count}")
        require(1 <= self.beam <= MOST_WRITTEN, f"--beam must lie in 1..{MOST_WRITTEN}, not {self.beam}")
        require(self.length >= 0 and self.new >= 0, "--length and --new must not be negative")
        require(not (self.beam > 1 and self.temperature), "--beam searches and --temperature draws: choose one")
        require(not (self.prompt and self.length), "--length is that of test strings; a prompt has its own")

    @property
    def way(self) -> str:
        if self.beam > 1:
            return f"beam of {self.beam}"
        return f"temperature {self.temperature:g}" if self.temperature else "greedy"
