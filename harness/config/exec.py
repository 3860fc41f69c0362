"""How a run is executed: the tree of settings that are no part of its identity."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from chomsky_ladder.harness.config.parts import check_types, require
from chomsky_ladder.harness.config.registry import check_backend
from chomsky_ladder.harness.store.places import default_results
from chomsky_ladder.models.block import Backend

THREADS = 1024  # at most: torch ends the process where it cannot start as many as it is told


@dataclass(frozen=True, kw_only=True)
class Exec:
    """How a run is executed: nothing here is part of its identity, everything that touches numerics is recorded."""

    device: str = "auto"
    """cpu, cuda, cuda:1 ..; auto takes CUDA where there is one."""
    threads: int = 1
    """CPU threads of one run."""
    backend: Backend = "auto"
    """auto takes the fastest path a block has here; reference is plain torch; a kernel's name (ladder
    doctor lists them) refuses to go without."""
    pack: int = 0
    """Runs of a sweep trained as one; 0: one on a CPU, on CUDA as many as its memory holds, up to 27."""
    capture: Literal["auto", "on", "off"] = "auto"
    """Whether steps and validations are replayed from CUDA graphs; auto: on CUDA."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Whether torch.compile fuses what it can of a step; auto: on CUDA, for runs long enough to be worth it."""
    wandb: Literal["off", "online", "offline"] = "off"
    """Whether runs are copied to Weights & Biases while they train (harness/tracking/mirror.py)."""
    wandb_group: str = ""
    """Name of the sweep there; `ladder sweep` puts its script's."""
    checkpoint_every: int = 1000
    """Steps between checkpoints."""
    log_every: int = 100
    """Steps between lines of metrics.jsonl."""
    unchecked: bool = False
    """Train a model of yours without looking first whether it sees the future, padding or other rows."""
    results: Path = field(default_factory=default_results)
    """The folder that holds runs/, tables/ and records.csv: in a clone results/mine, elsewhere results."""

    def __post_init__(self) -> None:
        if isinstance(self.results, str):  # as a script names it
            object.__setattr__(self, "results", Path(self.results))
        check_types(self, "exec")
        check_backend(self.backend, where="exec.backend")
        require(self.threads >= 1, f"exec.threads must be at least 1, not {self.threads}")
        require(self.threads <= THREADS, f"exec.threads must be at most {THREADS}, not {self.threads}")
        require(self.pack >= 0, f"exec.pack must not be negative: {self.pack}")
        require(self.checkpoint_every >= 1, f"exec.checkpoint_every must be at least 1, not {self.checkpoint_every}")
        require(self.log_every >= 1, f"exec.log_every must be at least 1, not {self.log_every}")
