"""The settings of how a run is executed. They are no part of its identity."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from chomsky_ladder.harness.config.parts import check_types, require
from chomsky_ladder.harness.config.registry import check_backend
from chomsky_ladder.harness.store.places import default_results
from chomsky_ladder.models.block import Backend

THREADS = 1024  # upper limit: torch ends the process if it cannot start this many


@dataclass(frozen=True, kw_only=True)
class Exec:
    """Settings of execution. They are no part of a run's identity. Those that affect numerics are recorded."""

    device: str = "auto"
    """cpu, cuda, cuda:1 ..; auto takes CUDA where there is one."""
    threads: int = 1
    """CPU threads of one run."""
    backend: Backend = "auto"
    """auto takes the fastest kernel here. reference is plain torch. The name of a kernel (`ladder doctor` lists them)
    demands it."""
    pack: int = 0
    """Runs of a sweep to train as one. 0: one on a CPU; on CUDA as many as memory holds, up to 27."""
    capture: Literal["auto", "on", "off"] = "auto"
    """Replay steps and validations from CUDA graphs; auto: on CUDA."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Fuse steps with torch.compile; auto: on CUDA, for runs that are long enough to gain."""
    wandb: Literal["off", "online", "offline"] = "off"
    """Copy runs to Weights & Biases while they train."""
    wandb_group: str = ""
    """Group of the runs there, and at another tracker; `ladder sweep` uses the name of its script."""
    tracker: str = ""
    """Copy runs to this tracker too: trackio, or one of a plugin."""
    checkpoint_every: int = 1000
    """Steps between checkpoints."""
    log_every: int = 100
    """Steps between lines of metrics.jsonl."""
    unchecked: bool = False
    """Do not check first whether your own model sees the future, padding or other rows."""
    results: Path = field(default_factory=default_results)
    """The folder of runs/, tables/ and records.csv: results/mine in a clone, results elsewhere."""

    @property
    def mirrors(self) -> dict[str, Literal["online", "offline"]]:
        """Return the trackers to which runs are copied while they train, each with its mode."""
        found: dict[str, Literal["online", "offline"]] = {self.tracker: "online"} if self.tracker else {}
        return found if self.wandb == "off" else {**found, "wandb": self.wandb}

    def __post_init__(self) -> None:
        if isinstance(self.results, str):  # in a script
            object.__setattr__(self, "results", Path(self.results))
        check_types(self, "exec")
        check_backend(self.backend, where="exec.backend")
        require(self.threads >= 1, f"exec.threads must be at least 1, not {self.threads}")
        require(self.threads <= THREADS, f"exec.threads must be at most {THREADS}, not {self.threads}")
        require(self.pack >= 0, f"exec.pack must not be negative: {self.pack}")
        require(self.checkpoint_every >= 1, f"exec.checkpoint_every must be at least 1, not {self.checkpoint_every}")
        require(self.log_every >= 1, f"exec.log_every must be at least 1, not {self.log_every}")
