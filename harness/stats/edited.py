"""Find records whose plugins have been edited since, without importing any plugin.

    rm.py has changed since it made 3 of the runs shown (e6ea1c0d2f84, now e0f0a1b2c3d4), so that none is used again:
    raise its version and run them anew

A record names its plugins and their digests. The run's folder says where they were. If the folder or the plugin is
gone, there is no message. There is none either if the plugin's version was raised since, in today's code or in later
records.
"""

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pandas as pd

from chomsky_ladder.harness.config.code import version_in
from chomsky_ladder.harness.config.origin import found_now
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.store.made_with import RAISE, made_from


def edited(records: pd.DataFrame, results: Path) -> list[str]:
    """Return a warning for each plugin whose code differs from that in records. Nothing is refused."""
    changed: Counter[tuple[str, str, str]] = Counter()
    seen: dict[str, dict[tuple[str, str], Path]] = {}
    made = records[records["sources"].fillna("") != ""] if "sources" in records else records.iloc[:0]
    versions: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
    rows = [(row["run_id"], row["sources"], _versions(row)) for row in made.to_dict("records")]
    for _, sources, version in rows:
        for what, called, digest in made_from(sources):
            versions[what, called, digest].add(version[what.split()[0]])
    for run_id, sources, version in rows:
        for what, called, digest in made_from(sources):
            now: dict[str, Path] = {}
            for word in _plugins(RunFolder(results, run_id)):
                if word not in seen:
                    seen[word] = found_now(word)
                now |= {there: file for (name, there), file in seen[word].items() if name == called}
            later = set().union(*(versions[what, called, there] for there in now))
            later |= {str(version_in(file, what.split(" ", 1)[1]) or version[what.split()[0]]) for file in now.values()}
            if now and digest not in now and not later - {version[what.split()[0]]}:
                changed[called, digest, min(now)] += 1
    return [
        f"{called} has changed since it made {count} of the runs shown ({then}, now {now}), so that none is used "
        f"again: {RAISE} and run them anew"
        for (called, then, now), count in sorted(changed.items())
    ]


def _versions(row: dict[str, Any]) -> defaultdict[str, str]:
    """Return the versions of a record's task and model; "" for anything else."""
    settings = json.loads(row.get("settings") or "{}")
    return defaultdict(str, {part: str(settings.get(f"{part}.version", 1)) for part in ("task", "model")})


def _plugins(folder: RunFolder) -> list[str]:
    try:
        return list(folder.config().get("plugins", []))
    except (OSError, ValueError):
        return []
