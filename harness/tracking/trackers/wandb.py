"""Weights & Biases: runs as they train or later, and tables. Only this file imports wandb.

    ladder run parity lstm --exec.wandb online
    ladder wandb sync --tables

A run has the same id there as here. The project is $WANDB_PROJECT, else "chomsky-ladder". wandb finds key, server and
entity by itself.
"""

import csv
import glob
import hashlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from chomsky_ladder.harness.store.files import read_json
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.places import refuse_published
from chomsky_ladder.harness.tracking.card import Card, end_of, plain
from chomsky_ladder.harness.tracking.tracker import SYNCS_WITHIN, Mode, Tracker, register

PROJECT = "chomsky-ladder"  # without $WANDB_PROJECT
_STARTS_WITHIN = 60.0  # seconds that wandb may take to begin a run; nobody waits for them
_MARK = "ladder.json"  # names the run in an offline copy
_LABELS = ("run_id", "protocol", "task", "level", "model", "lr", "seed")


class _Target:
    """One run at W&B."""

    def __init__(self, card: Card, folder: RunFolder, mode: Mode, finish_within: float) -> None:
        self._folder, self._mode = folder, mode
        head = {"name": card.name, "group": card.group or None, "tags": list(card.tags), "config": card.config}
        self._run = begun(card.run_id, folder.path.parents[1], mode=mode, finish_within=finish_within, **head)
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")
        self.there: int = self._run.starting_step  # each line is one row

    def log(self, row: dict[str, Any]) -> None:
        self._run.log(plain(row))

    def finish(self, end: dict[str, Any]) -> None:
        about = {key: end[key] for key in ("provenance", "numerics", "fingerprint", "backends") if key in end}
        self._run.config.update(about, allow_val_change=True)
        left_out = {*about, *_LABELS, "traceback"}
        self._run.summary.update({"final": plain({k: v for k, v in end.items() if k not in left_out})})
        if end["status"] == "done" and end.get("tokens_per_step"):
            read = end["tokens_per_step"] * end["steps"]
            self._run.summary.update({"tokens_per_s": read / max(end["seconds"]["train"], 1e-9)})
        if end["status"] == "preempted":
            self._run.mark_preempting()
        self._run.finish(exit_code=0 if end["status"] in ("done", "diverged") else 1)
        if self._mode == "offline":
            _mark(self._folder)


def place_of(results: Path) -> Path:
    """Return the folder for wandb's own files."""
    return Path(os.environ.get("WANDB_DIR") or results)


def how_to_look(results: Path, mode: Mode) -> str:
    """Return the command that sends the copies written offline."""
    if mode == "online":
        return ""
    return f"to send the copies to W&B: wandb sync {shlex.quote(str(place_of(results)))}/wandb/offline-run-*"


def copies(results: Path, run_id: str) -> list[Path]:
    """Return the offline copies of a run, the oldest first."""
    return sorted((place_of(results) / "wandb").glob(f"offline-run-*-{glob.escape(run_id)}"))


def _state(folder: RunFolder) -> dict[str, Any]:
    """Return the state of the run that a copy would have now."""
    return {"lines": len(folder.history()), "status": (end_of(folder) or {"status": "unfinished"})["status"]}


def _mark(folder: RunFolder) -> None:
    """Note in the newest copy which run it is of. Remove earlier copies that are incomplete and were not sent."""
    *earlier, newest = copies(folder.path.parents[1], folder.path.name)
    (newest / _MARK).write_text(json.dumps(_state(folder)))
    for each in earlier:
        if (each / _MARK).exists() and not any(each.glob("*.synced")):
            shutil.rmtree(each)


def _is_copied(folder: RunFolder, mode: Mode) -> bool:
    """Return True if an offline copy of the run is up to date."""
    if mode == "online":
        return False  # wandb says when the run begins
    found = copies(folder.path.parents[1], folder.path.name)
    return any(read_json(each / _MARK) == _state(folder) for each in found)


def begun(
    run_id: str,
    results: Path,
    *,
    mode: Mode,
    finish_within: float,
    name: str,
    group: str | None = None,
    tags: Sequence[str] = (),
    config: dict[str, Any] | None = None,
    job_type: str | None = None,
) -> Any:
    """Begin a W&B run that only sends what it is given: no code, console, git state or host statistics."""
    if not os.environ.get("WANDB_DIR"):
        refuse_published(results, otherwise="$WANDB_DIR says where W&B may keep its files")
    import wandb

    settings = wandb.Settings(
        console="off",
        disable_git=True,
        finish_timeout=finish_within,
        finish_timeout_raises=True,
        init_timeout=_STARTS_WITHIN,
        save_code=False,
        silent=True,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
    return wandb.init(
        project=os.environ.get("WANDB_PROJECT") or PROJECT,
        id=run_id,
        name=name,
        group=group,
        tags=list(tags),
        config=config,
        job_type=job_type,
        mode=mode,
        dir=place_of(results),
        reinit="create_new",
        resume="allow",
        settings=settings,
    )


def sync_tables(results: Path, *, mode: Mode) -> list[str]:
    """Copy records.csv and tables/*.csv as tables of one run and as an artifact, and figures/ as pictures.

    Return their names.
    """
    import wandb

    files = [file for file in (results / "records.csv", *sorted((results / "tables").glob("*.csv"))) if file.exists()]
    if not files:
        raise ValueError(f"no tables under {results}: `ladder table` makes them")
    pictures = sorted((results / "figures").glob("*/*.png"))
    content = b"".join(file.name.encode() + b"\0" + file.read_bytes() for file in (*files, *pictures))
    digest = hashlib.sha256(content).hexdigest()[:10]
    names = [*(file.name for file in files), *(f"{file.parent.name}/{file.name}" for file in pictures)]
    if mode == "offline" and copies(results, f"tables-{digest}"):
        return names
    run = begun(f"tables-{digest}", results, mode=mode, finish_within=SYNCS_WITHIN, name="tables", job_type="tables")
    if run.starting_step == 0:  # else these very tables are there
        shown = {f"figures/{file.parent.name}/{file.stem}": wandb.Image(str(file)) for file in pictures}
        run.log({file.stem: _table(file) for file in files} | shown)
        artifact = wandb.Artifact("tables", type="tables")
        for file in files:
            artifact.add_file(str(file))
        run.log_artifact(artifact)
    run.finish()
    return names


def _table(path: Path) -> Any:
    import wandb

    with path.open(encoding="utf-8", newline="") as file:
        columns: list[Any]
        columns, *rows = csv.reader(file)
    return wandb.Table(columns=columns, data=[[_cell(word) for word in row] for row in rows], allow_mixed_types=True)


def _cell(word: str) -> str | float | None:
    try:
        return float(word)
    except ValueError:
        return word or None


def own_entity() -> str:
    """Return the entity to which the current key belongs."""
    import wandb

    return wandb.Api(timeout=30).default_entity or ""


def finished() -> None:
    """End wandb's own process, if it is running and has not crashed."""
    if "wandb" in sys.modules:
        with suppress(Exception):
            sys.modules["wandb"].teardown()


register(
    Tracker(
        name="wandb",
        title="W&B",
        package="wandb",
        begin=_Target,
        how_to_look=how_to_look,
        is_copied=_is_copied,
        close=finished,
    )
)
