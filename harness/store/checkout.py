"""The version of the installed package and, in a clone, its commit. Nothing here needs torch."""

import json
import subprocess
from collections.abc import Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any

from chomsky_ladder.harness.store.files import CHECKOUT

CODE = ("chomsky_ladder", "harness", "models", "tasks", "scripts", "pyproject.toml")
UNKNOWN = {"commit": "unknown", "dirty": None}


def git_state() -> dict[str, Any]:
    """Return the commit of the checkout this code runs from, and True if its code differs from it, new files included.

    For an installed package, return the commit that it was installed from, if its address or its build names one.
    """
    try:
        top, commit = _git(CHECKOUT, "rev-parse", "--show-toplevel", "HEAD").rsplit("\n", 1)
        if Path(top).resolve() == CHECKOUT:
            return {"commit": commit, "dirty": bool(_git(CHECKOUT, "status", "--porcelain", "--", *CODE))}
    except (OSError, subprocess.SubprocessError):
        pass
    return {"commit": _commit_of_installed(), "dirty": None}


def commit_of(files: Sequence[Path]) -> dict[str, Any]:
    """Return the commit of the repository that tracks a plugin's files, and True if they differ from it."""
    try:
        folder, names = files[0].parent, list(map(str, files))
        _git(folder, "ls-files", "--error-unmatch", "--", names[0])
        return {
            "commit": _git(folder, "rev-parse", "HEAD"),
            "dirty": bool(_git(folder, "status", "--porcelain", "--", *names)),
        }
    except (OSError, subprocess.SubprocessError):
        return dict(UNKNOWN)


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()


def installed_commit(of: Distribution) -> str:
    """Return the commit that `pip install git+ADDRESS` recorded for a distribution; "" for a wheel from elsewhere."""
    try:
        return json.loads(of.read_text("direct_url.json") or "{}").get("vcs_info", {}).get("commit_id", "")
    except ValueError:
        return ""


def _commit_of_installed() -> str:
    try:
        return installed_commit(distribution("chomsky-ladder")) or "unknown"
    except PackageNotFoundError:
        return "unknown"


def installed_version() -> str:
    """Return the version of this package; "" in a clone on the path that was never installed."""
    try:
        return version("chomsky-ladder")
    except PackageNotFoundError:
        return ""


def version_line() -> str:
    """Return the line that `ladder --version` prints."""
    known = installed_version() or "not installed"
    state = git_state()
    if state["commit"] == "unknown":
        return f"chomsky-ladder {known}"
    return f"chomsky-ladder {known} (commit {state['commit'][:12]}{', changed since' if state['dirty'] else ''})"
