"""A connection to Ray: to a cluster that is there, or to one of this machine alone that ends with the sweep.

Of its own, nothing is left behind: its files are in a temporary folder that nobody else may look into, and the next
sweep removes that of one that was killed; it asks for no dashboard, reports no use, and leaves the process its handler
of SIGTERM.
"""

import fcntl
import os
import secrets
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import torch

_PREFIX = "ladder-ray-"


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
    place = Path(tempfile.gettempdir() if len(tempfile.gettempdir()) < 20 else "/tmp")
    _remove_abandoned(place)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    try:
        with (folder / "new").open("w", encoding="utf-8") as held:
            fcntl.flock(held, fcntl.LOCK_EX)  # which dies with this process
            (folder / "new").rename(folder / "held")
            if not any(given.values()):
                token = folder / "token"
                token.touch(mode=0o600)
                token.write_text(_token(), "utf-8")
                os.environ["RAY_AUTH_TOKEN_PATH"] = str(token)
            yield str(folder / "r")  # Ray opens its own folder to everybody
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for name, value in given.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _remove_abandoned(place: Path) -> None:
    """The folders of sweeps that were killed."""
    for folder in place.glob(f"{_PREFIX}*"):
        with suppress(OSError), (folder / "held").open("rb") as held:  # OSError: another user's, or one that is at work
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if folder.lstat().st_uid == os.getuid() and not folder.is_symlink():
                shutil.rmtree(folder, ignore_errors=True)


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
