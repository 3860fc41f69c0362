"""Checkpoints that exist whole or not at all: each has a digest, is written under another name, synced, then renamed.

    ladder-checkpoint 1 <sha256 of the rest>\\n<torch archive>

The digest is checked before anything is parsed, because torch.load accepts a flipped byte silently. The archive is read
with `weights_only`, so a checkpoint never runs code. The newest intact checkpoint is used. A damaged one is named and
skipped.
"""

import hashlib
import io
import warnings
from pathlib import Path
from typing import Any

import torch

from chomsky_ladder.harness.store.files import NoPlainFile, read_plain, write_atomically

_MAGIC = b"ladder-checkpoint 1 "
KEEP = 2  # the crash that makes the newest necessary may have damaged it


class DamagedCheckpoint(Exception):
    """The file is not a checkpoint, or it has changed since it was written."""


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
    except Exception:  # torch raises many kinds of errors for an archive it cannot or may not read
        raise DamagedCheckpoint(f"{path.name} holds something other than weights") from None
    if not isinstance(content, dict):
        raise DamagedCheckpoint(f"{path.name} does not hold a run's state")
    return content


def path_of(folder: Path, step: int) -> Path:
    return folder / f"step_{step:08d}.ckpt"


def newest(folder: Path, *, device: torch.device | str = "cpu", up_to: int | None = None) -> dict[str, Any] | None:
    """Return the newest intact checkpoint of a folder (with `up_to`: not beyond that step), or None."""
    for path in reversed(_by_step(folder)):
        if up_to is not None and _step(path) > up_to:
            continue
        try:
            return read(path, device=device)
        except FileNotFoundError:  # its writer is still at work and has replaced it
            continue
        except DamagedCheckpoint as damage:
            warnings.warn(f"{folder.name}: {damage}; an older checkpoint is used", stacklevel=2)
    return None


def step_of(content: dict[str, Any] | None) -> int:
    """Return the step of a checkpoint; 0 for None."""
    counters = (content or {"counters": {"step": 0}}).get("counters")
    step = counters.get("step") if isinstance(counters, dict) else None
    if type(step) is not int or step < 0:
        raise ValueError(f"a checkpoint of {(content or {}).get('run_id')} is of no step: remove it")
    return step


def steps(folder: Path) -> set[int]:
    """Return the steps of a folder's checkpoints, intact or not."""
    return set(map(_step, _by_step(folder)))


def drop_after(folder: Path, *, step: int) -> None:
    """Remove the checkpoints after a step to which a run goes back. They will be written again."""
    for path in _by_step(folder):
        if _step(path) > step:
            path.unlink()


def _step(path: Path) -> int:
    return int(path.stem.removeprefix("step_"))


def _by_step(folder: Path) -> list[Path]:
    """Return the files whose names contain a step, sorted by step. Other files are not ours."""
    return sorted(
        (path for path in folder.glob("step_*.ckpt") if path.stem[5:].isascii() and path.stem[5:].isdigit()), key=_step
    )


def prune(folder: Path, *, keep: int = KEEP) -> None:
    """Remove all but the newest checkpoints, and the remains of interrupted writes."""
    for path in _by_step(folder)[:-keep]:
        path.unlink()
    for path in folder.glob("*.part"):
        path.unlink()
