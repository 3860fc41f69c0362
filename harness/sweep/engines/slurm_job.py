"""The work of a job of Slurm: train packs one after the other, and go back into the queue at the time limit.

Slurm sends SIGUSR1 some time before the limit, and SIGTERM when it preempts or cancels a job. Both let a step end and
a checkpoint be written. Slurm itself requeues what it preempts; at the limit, the job asks for it.
"""

import os
import subprocess
import time
from typing import Any

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.store import lock
from chomsky_ladder.harness.sweep.engines.base import Fate, Job, train
from chomsky_ladder.harness.sweep.engines.worker import Command, loaded
from chomsky_ladder.harness.train.signals import Preempted, listening

Packs = list[tuple[int, list[dict[str, Any]]]]


def in_job(packs: Packs, settings: Exec, command: Command) -> None:
    """Train packs one after the other in a job. Requeue the job if Slurm warns it of its time limit."""
    try:
        with listening() as asked:
            for number, trees in packs:
                if came := asked():
                    raise Preempted(came)
                for fate in _trained(loaded(number, trees, command), settings):
                    print(f"{fate.run_id} {fate.said}", flush=True)
    except Preempted as stop:
        if stop.signal == "SIGUSR1" and os.environ.get("SUBMITIT_EXECUTOR") == "slurm":
            subprocess.run(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]], check=True)
        raise


def _trained(job: Job, settings: Exec) -> list[Fate]:
    """Train a pack. A lock that a job left when it was killed on another machine is waited for until it is stale."""
    give_up = time.monotonic() + lock.STALE + 2 * lock.BEAT
    while True:
        fates = train(job, settings)
        if time.monotonic() > give_up or all(fate.status != "held" for fate in fates):
            return fates
        time.sleep(lock.BEAT)
