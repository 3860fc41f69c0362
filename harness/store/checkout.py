"""Which code this is: the version that is installed and, in a clone, its commit. Nothing here needs torch."""

import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from chomsky_ladder.harness.store.files import CHECKOUT

CODE = ("chomsky_ladder", "harness", "models", "tasks", "scripts", "pyproject.toml")


def git_state() -> dict[str, Any]:
    """The commit of the checkout this code runs from, and whether its code differs from it, new files included."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(CHECKOUT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    try:
        top, commit = git("rev-parse", "--show-toplevel", "HEAD").rsplit("\n", 1)
        if Path(top).resolve() != CHECKOUT:
            return {"commit": "unknown", "dirty": None}
        return {"commit": commit, "dirty": bool(git("status", "--porcelain", "--", *CODE))}
    except (OSError, subprocess.SubprocessError):
        return {"commit": "unknown", "dirty": None}


def version_line() -> str:
    """What `ladder --version` prints."""
    try:
        known = version("chomsky-ladder")
    except PackageNotFoundError:  # a clone on the path that was never installed
        known = "not installed"
    state = git_state()
    if state["dirty"] is None:
        return f"chomsky-ladder {known}"
    return f"chomsky-ladder {known} (commit {state['commit'][:12]}{', changed since' if state['dirty'] else ''})"
