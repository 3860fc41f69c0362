"""Where the packs of a sweep train: one after the other in this process, or as tasks of Ray on any number of machines.

Both run `execute_together` with the threads and the device that the settings say, so both give the same bytes. On a
SLURM cluster whose machines share the results folder there are two ways, the first without Ray:

    #SBATCH --array=1-8 --cpus-per-task=1 --gpus-per-task=1
    #SBATCH --signal=B:USR1@120
    exec ladder sweep sweep.py --shard $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT

A job that ends at its limit is submitted again as it is: what is done is skipped, the rest goes on. The second starts
Ray on every machine of one job, runs the command on the first of them and stops Ray (`ray get-auth-token --generate`,
once, makes the token that keeps other users of the machines out):

    #SBATCH --nodes=4 --ntasks-per-node=1 --cpus-per-task=16 --gpus-per-node=8
    head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
    export RAY_AUTH_MODE=token
    srun ray symmetric-run --address "$head:6379" --min-nodes 4 -- \\
        ladder sweep sweep.py --engine ray --address auto --gpus-per-pack 0.5
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.sweep.engines.base import Engine
from chomsky_ladder.harness.sweep.engines.serial import SerialEngine


@contextmanager
def opened(
    engine: Literal["serial", "ray"], settings: Exec, *, address: str | None = None, gpus_per_pack: float = 1.0
) -> Iterator[Engine]:
    """An engine that can take packs; what it cannot do for want of machines is one ValueError, before any work."""
    if engine == "serial":
        yield SerialEngine(settings)
        return
    from chomsky_ladder.harness.sweep.engines import ray as ray_engine
    from chomsky_ladder.harness.sweep.engines import ray_cluster

    with ray_cluster.connected(address) as ray:
        yield ray_engine.fitting(ray, settings, gpus_per_pack=gpus_per_pack)
