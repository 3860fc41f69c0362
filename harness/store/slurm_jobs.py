"""Jobs of Slurm that train runs of a results folder, and the states that Slurm gives for them.

    results/slurm/jobs.jsonl      {"job": "12_3", "runs": ["parity-lstm-s4-2c1b", ..]}; of a run's jobs the last counts
    results/slurm/12_3_0_log.err  what job 12_3 wrote to stderr; .out has its stdout

Nothing here needs torch or submitit.
"""

import json
import os
import subprocess
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chomsky_ladder.harness.store.files import appending, read_plain

OVER = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
    *("TIMEOUT", "GONE"),
}
"""States of a job that does not go on. GONE: Slurm does not remember it."""
_ANSWERS = 60.0  # seconds that Slurm has for an answer


def jobs_folder(results: Path) -> Path:
    return results / "slurm"


def log_of(results: Path, job: str) -> Path:
    return jobs_folder(results) / f"{job}_0_log.err"


def note_job(results: Path, job: str, runs: Sequence[str]) -> None:
    """Append a job to the list of the folder."""
    with appending(jobs_folder(results) / "jobs.jsonl") as file:
        file.write((json.dumps({"job": job, "runs": list(runs)}) + "\n").encode())


def job_of_run(results: Path) -> dict[str, str]:
    """Return the last job of each run that has had one; a damaged line names none."""
    found: dict[str, str] = {}
    try:
        lines = read_plain(jobs_folder(results) / "jobs.jsonl").splitlines()
    except (OSError, ValueError):
        return found
    for line in lines:
        try:
            tree: Any = json.loads(line)
            job, runs = str(tree["job"]), [str(run) for run in tree["runs"]]
        except (ValueError, KeyError, TypeError):
            continue
        for run in runs:
            found.pop(run, None)  # behind those of earlier jobs
            found[run] = job
    return found


def states() -> dict[str, str] | None:
    """Return the state of each of the user's jobs that Slurm knows, or None if Slurm does not answer.

    The state of a job that waits has the reason behind it: `PENDING (Priority)`.
    """
    command = ["squeue", f"--user={os.getuid()}", "--states=all", "--array", "--noheader", "--format=%i|%T|%r"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWERS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if answer.returncode:
        return None
    lines = (line.strip().split("|", 2) for line in answer.stdout.splitlines() if line.count("|") >= 2)
    return {job: f"{state} ({reason})" if state == "PENDING" else state for job, state, reason in lines}


@dataclass(frozen=True)
class JobStatus:
    """A job that has runs without a result."""

    job: str
    state: str
    runs: int
    done: int
    log: str


def unfinished_jobs(results: Path, done: Set[str], listed: Set[str] = frozenset()) -> list[JobStatus]:
    """Return the jobs that have runs without a result. `done` are the runs that have one, `listed` all that count."""
    jobs: dict[str, list[str]] = {}
    for run_id, job in job_of_run(results).items():
        if not listed or run_id in listed:
            jobs.setdefault(job, []).append(run_id)
    left = {job: runs for job, runs in jobs.items() if not all(run_id in done for run_id in runs)}
    known = states() if left else None
    return [
        JobStatus(
            job=job,
            state="unknown: squeue does not answer" if known is None else known.get(job, "GONE"),
            runs=len(runs),
            done=sum(run_id in done for run_id in runs),
            log=str(log_of(results, job)),
        )
        for job, runs in left.items()
    ]


def plain(job: JobStatus) -> dict[str, Any]:
    return asdict(job)
