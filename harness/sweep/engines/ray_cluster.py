"""A connection to Ray: to a cluster that is there, or to one of this machine alone that ends with the sweep.

Of its own, nothing is left behind: its files are in a temporary folder, it asks for no dashboard, reports no use, and
leaves the process its handler of SIGTERM.
"""

import os
import secrets
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import torch


@contextmanager
def connected(address: str | None) -> Iterator[ModuleType]:
    """Connected to the cluster at an address, or to one of this machine alone that ends and leaves nothing behind."""
    ray = _ray()
    if ray.is_initialized():
        yield ray
        return
    with ExitStack() as stack:
        folder = None if address is not None else stack.enter_context(_folder())
        stack.callback(ray.shutdown)
        _connect(ray, address, folder)
        yield ray


def _ray() -> ModuleType:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise ValueError("--engine ray needs the package ray: pip install 'chomsky-ladder[ray]'") from None
    return ray


@contextmanager
def _folder() -> Iterator[str]:
    """Where Ray keeps its files while it runs here, with the token by which only this process gets in.

    Left alone, Ray writes a token to the home folder, and every later `ray start` there asks for it.
    """
    given = {name: os.environ.get(name) for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")}
    # The names of the sockets in it must be short.
    folder = tempfile.mkdtemp(prefix="ladder-ray-", dir=None if len(tempfile.gettempdir()) < 20 else "/tmp")
    try:
        if not any(given.values()):
            token = Path(folder) / "token"
            token.touch(mode=0o600)
            token.write_text(_token())
            os.environ["RAY_AUTH_TOKEN_PATH"] = str(token)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for name, value in given.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@lru_cache(maxsize=1)
def _token() -> str:
    return secrets.token_hex(32)  # one for the process: Ray remembers the first


def _connect(ray: ModuleType, address: str | None, folder: str | None) -> None:
    before = signal.getsignal(signal.SIGTERM)  # which Ray takes for itself
    try:
        if folder is None:
            ray.init(address=address, log_to_driver=False, logging_level="error")
        else:
            ray.init(
                address="local",
                num_cpus=len(os.sched_getaffinity(0)),
                num_gpus=torch.cuda.device_count() if torch.cuda.is_available() else 0,
                include_dashboard=False,
                object_store_memory=80 << 20,  # results are files
                log_to_driver=False,
                logging_level="error",
                _temp_dir=folder,
            )
    except ConnectionError as error:
        said = str(error).splitlines()[0]
        hint = "a cluster that asks for a token needs RAY_AUTH_MODE=token here too"
        raise ValueError(f"no Ray cluster at {address}: {said} ({hint})") from None
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)
