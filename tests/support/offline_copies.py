"""Offline copies of runs at W&B, read back by wandb's own tool, where nothing of the user's is seen."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chomsky_ladder.harness.tracking import mirror

if importlib.util.find_spec("wandb") is None:
    if os.environ.get("LADDER_ORACLES") == "required":
        raise pytest.UsageError("install wandb: it cannot be imported")
    pytest.skip("wandb cannot be imported", allow_module_level=True)

MADE = {"commit": "c0ffee", "dirty": False}
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, no settings and no folder of the user's; no trouble of an earlier test's."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"))  # kernels
    home = tmp_path / "home"
    home.mkdir()
    for name in ("HOME", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.setenv("NETRC", str(home / "netrc"))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setattr(mirror, "_trouble", {})


def read_back(results: Path, *which: str) -> dict[str, list[dict[str, Any]]]:
    """The records of offline copies, all or those in whose names one of the words is, by id, from wandb's tool."""
    found = {}
    for file in sorted(results.glob("wandb/offline-run-*/*.wandb")):
        if which and not any(word in file.name for word in which):
            continue
        command = [str(Path(sys.executable).with_name("wandb")), "leet", "inspect", "--json", str(file)]
        said = subprocess.run(command, cwd=results, capture_output=True, text=True, timeout=60, check=True).stdout
        records = [json.loads(line) for line in said.splitlines()]
        (head,) = [record["run"] for record in records if record["type"] == "run"]
        found[head["run_id"]] = records
    return found


def history(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = [record["history"]["item"] for record in records if record["type"] == "history"]
    return [{key: value for key, value in row.items() if not key.startswith("_")} for row in rows]


def merged(records: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for record in records:
        tree |= record[kind].get("update", {}) if record["type"] == kind else {}
    return tree
