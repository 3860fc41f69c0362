"""NVIDIA's Multi-Process Service, so that kernels of several processes run on one GPU at the same time.

Without it a GPU gives each process a slice of time, and a process whose small kernels fill a tenth of the GPU still has
all of it for its slice. With the service the kernels of all processes share the GPU.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

CONTROL = "nvidia-cuda-mps-control"
PLACES = ("/usr/bin", "/usr/local/bin", "/usr/local/nvidia/bin")  # where drivers put it, beside $PATH
VARIABLES = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
_CLIENT = "import torch; torch.ones(8, device='cuda').sum().item()"
_STARTS, _ANSWERS = 20.0, 60.0  # seconds that the daemon and its first client have


@contextmanager
def shared_gpu() -> Iterator[str]:
    """Start the service for this process and its children. Yield how they share: "mps", or "time slices" and why.

    A service that somebody else runs is used as it is. This process must not have touched the GPU before.
    """
    if VARIABLES[0] in os.environ:
        yield "mps"
        return
    control = shutil.which(CONTROL, path=os.pathsep.join([os.environ.get("PATH", ""), *PLACES]))
    if control is None:
        yield f"time slices: there is no {CONTROL}"
        return
    with tempfile.TemporaryDirectory(prefix="ladder-mps-") as folder:
        os.environ |= dict.fromkeys(VARIABLES, folder)
        problem = _start(control)
        try:
            if problem:
                for name in VARIABLES:
                    os.environ.pop(name, None)
            yield f"time slices: {problem}" if problem else "mps"
        finally:
            _quit(control, os.environ | dict.fromkeys(VARIABLES, folder))
            for name in VARIABLES:
                os.environ.pop(name, None)


def _start(control: str) -> str:
    """Start the daemon and try it with one client. Return what went wrong."""
    try:
        started = subprocess.run([control, "-d"], capture_output=True, text=True, timeout=_STARTS, check=False)
        if started.returncode:
            return _last_line(started) or f"{CONTROL} ended with {started.returncode}"
        client = subprocess.run(
            [sys.executable, "-c", _CLIENT], capture_output=True, text=True, timeout=_ANSWERS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__} while {CONTROL} started"
    return _last_line(client) or f"its client ended with {client.returncode}" if client.returncode else ""


def _quit(control: str, environment: dict[str, str]) -> None:
    try:
        subprocess.run(
            [control], input="quit\n", env=environment, capture_output=True, text=True, timeout=_STARTS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"{CONTROL} did not end: {error}", file=sys.stderr)


def _last_line(done: "subprocess.CompletedProcess[str]") -> str:
    return next((line for line in reversed((done.stderr + done.stdout).splitlines()) if line.strip()), "")
