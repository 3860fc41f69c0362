"""A Slurm of one node on this machine, of Debian's packages slurm-wlm and munge, that a test starts and ends.

    with cluster() as slurm:
        os.environ |= slurm.environment     sbatch, squeue and srun talk to it

It has four CPUs, whatever the machine has, and two partitions: jobs of `high` preempt those of `low`, which go back
into the queue. Everything it writes is in one temporary folder.
"""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel", "sinfo")
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
_STARTS = 60.0  # seconds

_CONF = """
ClusterName=ladder
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=2,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
KillWait=5
OverTimeLimit=0
ReturnToService=2
NodeName=one NodeHostname={host} NodeAddr=127.0.0.1 CPUs=4
PartitionName=low Nodes=one Default=YES PriorityTier=1 MaxTime=INFINITE
PartitionName=high Nodes=one PriorityTier=10 MaxTime=INFINITE
"""


@dataclass(frozen=True)
class Cluster:
    folder: Path
    environment: dict[str, str]

    def says(self, *command: str) -> str:
        """Return what a command of Slurm prints."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def missing() -> str:
    """Return why there can be no cluster here, or nothing."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
    return f"no {', '.join(absent)} here: apt-get install slurm-wlm munge" if absent else ""


@contextmanager
def cluster() -> Iterator[Cluster]:
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp"))
        )  # short for sockets
        for name in ("state", "spool"):
            (folder / name).mkdir()
        (folder / "munge.key").touch(mode=0o600)
        (folder / "munge.key").write_bytes(os.urandom(128))
        user, host = pwd.getpwuid(os.getuid()).pw_name, socket.gethostname()
        places = {"folder": folder, "user": user, "host": host, "controller": _port(), "daemon": _port()}
        (folder / "slurm.conf").write_text(_CONF.format(**places))
        names = {"socket": "socket", "key-file": "key", "pid-file": "pid", "seed-file": "seed", "log-file": "log"}
        files = (f"--{option}={folder}/munge.{name}" for option, name in names.items())
        munge = ["munged", "--foreground", "--force", *files]
        environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        slurm = Cluster(folder, environment)
        _start(stack, munge, environment)
        _wait(lambda: (folder / "munge.socket").exists(), "munged", folder)
        _start(stack, ["slurmctld", "-D", "-c"], environment)
        _start(stack, ["slurmd", "-D", "-N", "one"], environment)
        _wait(lambda: _is_idle(slurm), "slurmd", folder)
        stack.callback(_cancel_all, slurm)
        yield slurm


def _start(stack: ExitStack, command: Sequence[str], environment: dict[str, str]) -> None:
    program = shutil.which(command[0], path=_PATH)
    assert program
    process = subprocess.Popen(
        [program, *command[1:]],
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    stack.callback(_end, process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _cancel_all(slurm: Cluster) -> None:
    """Leave no job behind, whose processes would outlive the node."""
    slurm.says("scancel", f"--user={os.getuid()}")
    _wait(lambda: not slurm.says("squeue", "--noheader"), "scancel", slurm.folder)


def _is_idle(slurm: Cluster) -> bool:
    try:
        return slurm.says("sinfo", "--noheader", "--partition=low", "--format=%T") == "idle"
    except subprocess.CalledProcessError:
        return False


def _wait(is_there: Callable[[], bool], what: str, folder: Path) -> None:
    give_up = time.monotonic() + _STARTS
    while not is_there():
        if time.monotonic() > give_up:
            logs = "\n".join(log.read_text(errors="replace")[-2000:] for log in folder.glob("*.log"))
            raise TimeoutError(f"{what} did not come up within {_STARTS:.0f} s:\n{logs}")
        time.sleep(0.1)


def _port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
