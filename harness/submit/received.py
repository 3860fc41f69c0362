"""Submissions that a results folder has received, and whether somebody has trained cells of them again.

submissions/NAME/                  as `ladder submit` wrote it
submissions/NAME.verified.json     as `ladder verify FOLDER --out FILE` wrote it
"""

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from chomsky_ladder.harness.store import curves
from chomsky_ladder.harness.store.files import read_json
from chomsky_ladder.harness.store.record import stored
from chomsky_ladder.harness.submit.manifest import FILE, Manifest

PLACE = "submissions"
SELF_REPORTED, REPRODUCED = "self-reported", "reproduced"
RETRAINED = "retrained"  # the name of the check that trains a cell again


@dataclass(frozen=True)
class Received:
    """The records of a submission under the name that its author chose."""

    label: str
    word: str
    cite: str
    records: pd.DataFrame
    curves: pd.DataFrame


def received(results: Path, records: pd.DataFrame) -> Iterator[Received]:
    """Yield the submissions beside these records, without runs that have been taken into them."""
    taken, labels = set(records["run_id"]), set(records["model"])
    for path in sorted((results / PLACE).glob(f"*/{FILE}")):
        folder = path.parent
        try:
            manifest = Manifest.read(folder)
            theirs = stored(folder / "records.csv")
        except ValueError as error:
            print(f"ladder: {folder} is left out: {error}", file=sys.stderr)
            continue
        theirs = theirs[~theirs["run_id"].isin(taken)]
        if theirs.empty:
            continue
        label = manifest.name if manifest.name not in labels else f"{manifest.name} ({folder.name})"
        labels.add(label)
        taken |= set(theirs["run_id"])
        points = curves.collect(folder)
        own = points[points["run_id"].isin(set(theirs["run_id"]))]
        yield Received(label, _word(folder), manifest.cite, theirs.assign(model=label), own)


def verification_of(folder: Path) -> Path:
    """Return the place of the outcome of a submission's verification."""
    return folder.with_name(f"{folder.name}.verified.json")


def digest_of(folder: Path) -> str:
    """Return the hash of the manifest, which has those of all other files."""
    return hashlib.sha256((folder / FILE).read_bytes()).hexdigest()


def _word(folder: Path) -> str:
    """Return `reproduced` if this very submission passed every check, and cells of it were trained again."""
    outcome = read_json(verification_of(folder)) or {}
    retrained = any(check.get("name") == RETRAINED for check in outcome.get("checks", ()))
    is_whole = outcome.get("passed") is True and outcome.get("manifest") == digest_of(folder)
    return REPRODUCED if is_whole and retrained else SELF_REPORTED
