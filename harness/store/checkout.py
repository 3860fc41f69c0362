"""Which code this is: the version that is installed and, in a clone, its commit. Nothing here needs torch."""

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
    """The commit of the checkout this code runs from, and whether its code differs from it, new files included.

    Of an installed package, the commit that it was installed from, where its address or its build said so.
    """
    try:
        top, commit = _git(CHECKOUT, "rev-parse", "--show-toplevel", "HEAD").rsplit("\n", 1)
        if Path(top).resolve() == CHECKOUT:
            return {"commit": commit, "dirty": bool(_git(CHECKOUT, "status", "--porcelain", "--", *CODE))}
    except (OSError, subprocess.SubprocessError):
        pass
    return {"commit": _commit_of_installed(), "dirty": None}


def commit_of(files: Sequence[Path]) -> dict[str, Any]:
    """The commit of the repository that tracks a plugin's files, and whether they differ from it."""
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
    """What `pip install git+ADDRESS` left of a distribution; "" of a wheel from elsewhere."""
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
    """Of this package; "" in a clone on the path that was never installed."""
    try:
        return version("chomsky-ladder")
    except PackageNotFoundError:
        return ""


def version_line() -> str:
    """What `ladder --version` prints."""
    known = installed_version() or "not installed"
    state = git_state()
    if state["commit"] == "unknown":
        return f"chomsky-ladder {known}"
    return f"chomsky-ladder {known} (commit {state['commit'][:12]}{', changed since' if state['dirty'] else ''})"
