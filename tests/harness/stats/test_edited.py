"""Records of a plugin that has been edited since are named."""

import json
from pathlib import Path

import pandas as pd

from chomsky_ladder.harness.config.origin import found_now
from chomsky_ladder.harness.stats.edited import edited


def row(results: Path, run_id: str, plugin: Path, digest: str, *, version: int) -> dict[str, str]:
    folder = results / "runs" / run_id
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"plugins": [str(plugin)]}))
    settings = {"model.version": version} if version > 1 else {}
    return {"run_id": run_id, "sources": f"model rm of {plugin.name} {digest}", "settings": json.dumps(settings)}


def test_a_raised_version_is_not_asked_for_again(tmp_path: Path) -> None:
    plugin = tmp_path / "rm.py"
    plugin.write_text("VERSION = 2\n")
    [now] = [digest for _, digest in found_now(str(plugin))]
    then = row(tmp_path, "a", plugin, "e6ea1c0d2f84", version=1)
    [line] = edited(pd.DataFrame([then]), tmp_path)
    assert line.startswith(f"rm.py has changed since it made 1 of the runs shown (e6ea1c0d2f84, now {now})")
    raised = row(tmp_path, "b", plugin, now, version=2)
    assert edited(pd.DataFrame([then, raised]), tmp_path) == []
    for code in ('plain_model("rm", Mean, version=2)', 'class RM:\n    name, year = "rm", 2026\n    version: int = 2'):
        plugin.write_text(f"{code}\n")  # raised, and not run yet
        assert edited(pd.DataFrame([then]), tmp_path) == []
        plugin.write_text(f"{code}\n".replace("rm", "another"))
        assert len(edited(pd.DataFrame([then]), tmp_path)) == 1
    plugin.write_text("VERSION = 2\n")
    other = raised | {"sources": raised["sources"].replace("model rm", "model other")}
    assert edited(pd.DataFrame([then, other]), tmp_path) == [line], "of another model of the same file"
