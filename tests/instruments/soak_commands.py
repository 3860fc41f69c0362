"""Commands of `ladder` that a soak (soak.py) starts: which there are, their words, and how one is started."""

import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CELLS = "parity-lstm parity-mamba parity-transformer cycle_nav-lstm cycle_nav-mamba reverse_string-stack_rnn"
SCRIPT = """
from chomsky_ladder import Eval, Run, Train
from chomsky_ladder.harness.config.registry import find_model, find_task

SCORE = Eval(lengths=(8, 12), test=16, validation=8, every=10, bins=(8, 12), extrapolate=(16,), extrapolation=8)
TRAIN = Train(steps=40, batch=4, lengths=(3, 8))


def runs():
    cells = [name.split("-") for name in {cells!r}.split()]
    made = [
        Run(task=find_task(task)(), model=find_model(model).tiny(), train=TRAIN, eval=SCORE, seed=seed)
        for task, model in cells for seed in range({seeds})
    ]
    return [made[number] for number in {which!r} or range(len(made))]
"""
KINDS = {  # how often, and the seconds it takes until they are known
    "sweep": (5, 12.0),
    "sweep on processes": (3, 18.0),
    "table": (3, 3.0),
    "table --all": (2, 5.0),
    "page": (2, 5.0),
    "merge from other": (3, 3.0),
    "merge into other": (3, 3.0),
    "status": (2, 1.0),
    "diff": (1, 1.0),
    "clean --checkpoints": (1, 1.0),
    "clean --unfinished": (1, 1.0),
    "clean RUN_ID": (2, 1.0),
    "clean --records": (1, 1.0),
    "reproduce": (2, 10.0),
    "figures": (1, 10.0),
}


@dataclass
class Command:
    """A command at work, and what becomes of it."""

    kind: str
    words: list[str]
    process: subprocess.Popen[bytes]
    log: Path
    since: float
    is_short: bool
    """A command whose files may not be large, or whose disk is small."""
    megabytes: int = 0
    number: int = 0
    """The signal it will get, if any: after so many seconds, or when a file appears."""
    after: float = 0.0
    when: str = ""
    sent: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        signals = f"  # got {' '.join(signal.Signals(each).name for each in self.sent)}" if self.sent else ""
        return f"ladder {' '.join(self.words)}{signals}{'  # short of disk' if self.is_short else ''}"


class Commands:
    """Choose the commands that start together, on the folders `shared` and `other`."""

    def __init__(self, out: Path, draw: random.Random, *, cells: str, seeds: int) -> None:
        self.shared, self.other, self.tmp, self.logs = (out / name for name in ("shared", "other", "tmp", "logs"))
        for folder in (self.other, self.tmp, self.logs):
            folder.mkdir(parents=True)
        self.out, self.draw, self.count = out, draw, 0
        self.mark = f"LADDER_SOAK_OF={out}"
        self.env = {name: value for name, value in os.environ.items() if name != "LADDER_RESULTS"}
        self.env |= {
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(self.tmp),
            "LADDER_SOAK_OF": str(out),
        }
        self.scripts = [out / f"script_{number}.py" for number in range(6)]
        total = len(cells.split()) * seeds
        for number, script in enumerate(self.scripts):  # the first one lists everything
            which = sorted(draw.sample(range(total), -(-total // 2))) if number else []
            script.write_text(SCRIPT.format(cells=cells, seeds=seeds, which=which))

    def words(self, kind: str, run_ids: Sequence[str]) -> list[str]:
        folder = self.draw.choice((self.shared, self.shared, self.other))
        place, run_id, another = ["--results", str(folder)], *self.draw.choices(run_ids, k=2)
        sweep = self.sweep(self.draw.randrange(len(self.scripts)), folder)
        words = {
            "sweep": sweep,
            "sweep on processes": [*sweep, "--engine", "processes", "--processes", "2"],
            "merge from other": ["merge", str(self.other), "--results", str(self.shared)],
            "merge into other": ["merge", str(self.shared), "--results", str(self.other)],
            "diff": ["diff", run_id, another, *place],
            "clean RUN_ID": ["clean", run_id, another, "--yes", *place],
            "clean --records": ["clean", "--records", run_id, "--yes", *place],
            "reproduce": ["reproduce", run_id, "--quiet", "--device", "cpu", *place],
            "figures": ["figures", "--out", str(self.tmp / "figures"), *place],
        }
        return words.get(kind) or [*kind.split(), *(["--yes"] if "clean" in kind else []), *place]

    def sweep(self, script: int, folder: Path) -> list[str]:
        every = ["--exec.checkpoint-every", "5", "--exec.log-every", "5", "--exec.device", "cpu"]
        return ["sweep", str(self.scripts[script]), *every, "--exec.results", str(folder)]

    def start(self, kind: str, words: list[str], *, limit: int = 0, is_short: bool = False) -> Command:
        """Start a command; with a limit, none of its files may have more bytes."""
        self.count += 1
        log = self.logs / f"{self.count:05}-{words[0]}"

        def bounded() -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs behind it without
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit or resource.RLIM_INFINITY, resource.RLIM_INFINITY))

        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "chomsky_ladder", *words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=self.out,
                env=self.env,
                preexec_fn=bounded,
            )
        return Command(kind, words, process, log, time.monotonic(), is_short)
