"""Verify each submission that a change adds or edits, with its own code.

python scripts/verify_submissions.py origin/main --retrain 2
"""

import argparse
import subprocess
import sys
from pathlib import Path

from chomsky_ladder.harness.submit.manifest import SOURCE, Manifest

PLACE = "results/submissions"
ROOT = Path(__file__).parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("since", help="the commit or branch that the change is compared with")
    parser.add_argument("--retrain", type=int, default=2, help="cells of each to train again (default: 2)")
    given = parser.parse_args()
    folders = changed(given.since)
    print(f"{len(folders)} submissions to verify")
    more = ["--retrain", str(given.retrain)]
    codes = [subprocess.run([*command(folder), *more], check=False).returncode for folder in folders]
    return max(codes, default=0)


def changed(since: str) -> list[Path]:
    """Return the folders of submissions with a file that differs from `since`; one that was removed is none."""
    words = ["git", "diff", "--name-only", f"{since}...HEAD", "--", PLACE]
    names = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    folders = {ROOT.joinpath(*Path(name).parts[:3]) for name in names if len(Path(name).parts) > 3}
    return sorted(folder for folder in folders if folder.is_dir())


def command(folder: Path) -> list[str]:
    """Return the command that verifies a folder with the code it brings."""
    words = [sys.executable, "-m", "chomsky_ladder", "verify", str(folder)]
    for plugin in Manifest.read(folder).plugins:
        file = folder / SOURCE / plugin.partition(":")[0]
        words += ["--plugin", str(folder / SOURCE / plugin) if file.exists() else plugin]
    return words


if __name__ == "__main__":
    sys.exit(main())
