"""Options of `--engine slurm`, and the executor of submitit that they make.

SlurmOptions(partition="gpu", gpus=1, time="4:00:00", sbatch="mem=16G")
->  #SBATCH --partition=gpu --gpus-per-node=1 --time=240 --mem=16G --requeue --signal=USR1@120
"""

import re
import shlex
import shutil
from dataclasses import dataclass
from typing import Any, Literal

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.store.slurm_jobs import jobs_folder
from chomsky_ladder.harness.sweep.engines.worker import PATIENCE

MOST = 100  # jobs unless another number is asked for
_MANY = 10_000  # jobs at once: no limit of ours
_FOREVER = 60 * 24 * 365  # minutes


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    partition: str = ""
    """Partition of the jobs; Slurm's default without it."""
    time: str = "1:00:00"
    """Time limit of a job as Slurm writes it: 90 (minutes), 4:00:00 or 1-12:00:00. A job that reaches it goes back into
    the queue, behind a checkpoint."""
    gpus: int = 0
    """GPUs of a job: 0 trains on its CPU, 1 on its GPU."""
    jobs: int = 0
    """Jobs that share the packs; 0: one a pack, at most 100."""
    at_once: int = 0
    """Most jobs that run at the same time; 0: as many as Slurm lets."""
    sbatch: str = ""
    """More options of sbatch, such as "account=me mem=8G"."""
    executor: Literal["auto", "slurm", "local"] = "auto"
    """slurm, or local: on this machine, without Slurm. auto is local where there is no sbatch."""

    def __post_init__(self) -> None:
        for name, count in {"--jobs": self.jobs, "--at-once": self.at_once}.items():
            if count < 0:
                raise ValueError(f"{name} must not be negative, not {count}")
        if self.gpus not in (0, 1):
            raise ValueError(f"--gpus is 0 or 1, since a pack trains on one GPU, not {self.gpus}")
        minutes_of(self.time)
        more_options(self.sbatch)

    @property
    def is_local(self) -> bool:
        return self.executor == "local" or (self.executor == "auto" and shutil.which("sbatch") is None)


def minutes_of(limit: str) -> int:
    """Return a time limit in minutes, rounded up. Slurm reads M, M:S, H:M:S, D-H, D-H:M and D-H:M:S."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", limit, re.ASCII)
    seconds = 0
    if match:
        days, *parts = match.groups()
        numbers = [int(part) for part in parts if part is not None]
        from_hours = days is not None or len(numbers) == 3
        hours, minutes, rest = ([*numbers, 0, 0] if from_hours else [0, *numbers, 0])[:3]
        seconds = ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + rest
    if not seconds:
        raise ValueError(f"--time is a time limit such as 90 (minutes), 4:00:00 or 1-12:00:00, not {limit!r}")
    return -(-seconds // 60)


def more_options(words: str) -> dict[str, str | bool]:
    """Return the options in --sbatch; one without a value is a flag."""
    try:
        pairs = [word.lstrip("-").partition("=") for word in shlex.split(words)]
    except ValueError:  # a quotation mark without another
        pairs = [("", "", "")]
    if not all(re.fullmatch(r"[a-z][a-z-]*", name) for name, _, _ in pairs):
        raise ValueError(f'--sbatch is a list of options such as "account=me mem=8G exclusive", not {words!r}')
    return {name: value if equals else True for name, equals, value in pairs}


def executor_of(settings: Exec, options: SlurmOptions) -> Any:
    """Return submitit's executor, which asks for what the options say."""
    try:
        import submitit
    except ImportError:
        raise ValueError("--engine slurm needs the package submitit: pip install 'chomsky-ladder[slurm]'") from None
    minutes = _FOREVER if options.is_local else minutes_of(options.time)
    warning = int(min(PATIENCE, 60 * minutes / 4))  # seconds before the limit
    always: dict[str, str | bool] = {"requeue": True, "signal": f"USR1@{warning}"}
    executor = submitit.AutoExecutor(jobs_folder(settings.results), cluster="local" if options.is_local else "slurm")
    executor.update_parameters(
        name="ladder",
        timeout_min=minutes,
        cpus_per_task=settings.threads,
        gpus_per_node=options.gpus or None,
        slurm_partition=options.partition or None,
        slurm_array_parallelism=options.at_once or _MANY,
        slurm_srun_args=[f"--cpus-per-task={settings.threads}"],  # which srun does not take from its job any more
        slurm_additional_parameters=always | more_options(options.sbatch),
    )
    return executor
