"""Checkpoints that are whole or are not there: a digest inside, written aside, synced, then renamed.

    ladder-checkpoint 1 <sha256 of the rest>\\n<torch archive>

The digest is checked before anything is parsed (torch.load takes a flipped byte silently), and the archive is read
with `weights_only`, so a checkpoint never runs code. The newest intact one wins; a damaged one is named and passed by.
"""

import hashlib
import io
import warnings
from pathlib import Path
from typing import Any

import torch

from chomsky_ladder.harness.store.files import NoPlainFile, read_plain, write_atomically

_MAGIC = b"ladder-checkpoint 1 "
KEEP = 2  # the newest may be damaged by the crash that makes it needed


class DamagedCheckpoint(Exception):
    """Not a checkpoint, or not the one that was written."""


def write(path: Path, content: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    payload = buffer.getvalue()
    write_atomically(path, _MAGIC + hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload)


def read(path: Path, *, device: torch.device | str = "cpu") -> dict[str, Any]:
    try:
        header, newline, payload = read_plain(path).partition(b"\n")
    except NoPlainFile as error:
        raise DamagedCheckpoint(str(error)) from None
    if not header.startswith(_MAGIC) or not newline:
        raise DamagedCheckpoint(f"{path.name} is not a checkpoint")
    if header.removeprefix(_MAGIC).decode(errors="replace") != hashlib.sha256(payload).hexdigest():
        raise DamagedCheckpoint(f"{path.name} does not match its digest")
    try:
        content = torch.load(io.BytesIO(payload), map_location=device, weights_only=True)
    except Exception:  # torch names an archive it cannot or may not read in many ways
        raise DamagedCheckpoint(f"{path.name} holds something other than weights") from None
    if not isinstance(content, dict):
        raise DamagedCheckpoint(f"{path.name} does not hold a run's state")
    return content


def path_of(folder: Path, step: int) -> Path:
    return folder / f"step_{step:08d}.ckpt"


def newest(folder: Path, *, device: torch.device | str = "cpu", up_to: int | None = None) -> dict[str, Any] | None:
    """The newest intact checkpoint of a folder, or the newest of a step `up_to` a bound, if any."""
    for path in reversed(_by_step(folder)):
        if up_to is not None and _step(path) > up_to:
            continue
        try:
            return read(path, device=device)
        except FileNotFoundError:  # its writer, still at work, has replaced it since
            continue
        except DamagedCheckpoint as damage:
            warnings.warn(f"{folder.name}: {damage}; an older checkpoint is used", stacklevel=2)
    return None


def step_of(content: dict[str, Any] | None) -> int:
    """The step that a checkpoint was written at; 0 where there is none."""
    counters = (content or {"counters": {"step": 0}}).get("counters")
    step = counters.get("step") if isinstance(counters, dict) else None
    if type(step) is not int or step < 0:
        raise ValueError(f"a checkpoint of {(content or {}).get('run_id')} is of no step: remove it")
    return step


def steps(folder: Path) -> set[int]:
    """The steps a folder has checkpoints of, intact or not."""
    return set(map(_step, _by_step(folder)))


def drop_after(folder: Path, *, step: int) -> None:
    """Remove the checkpoints past a step that is gone back to: those after it are written anew."""
    for path in _by_step(folder):
        if _step(path) > step:
            path.unlink()


def _step(path: Path) -> int:
    return int(path.stem.removeprefix("step_"))


def _by_step(folder: Path) -> list[Path]:
    """Those whose names say a step; others are not ours."""
    return sorted(
        (path for path in folder.glob("step_*.ckpt") if path.stem[5:].isascii() and path.stem[5:].isdigit()), key=_step
    )


def prune(folder: Path, *, keep: int = KEEP) -> None:
    """Remove all but the newest checkpoints, and what an interrupted write left behind."""
    for path in _by_step(folder)[:-keep]:
        path.unlink()
    for path in folder.glob("*.part"):
        path.unlink()
