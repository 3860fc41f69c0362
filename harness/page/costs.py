"""The cost of models for the page's script: the newest report of every machine under results/throughput.

throughput/<machine>/report.json      as harness/throughput leaves it: rows of train, prefill and decode
"""

from pathlib import Path
from typing import Any

from chomsky_ladder.harness.page.columns import table
from chomsky_ladder.harness.store.files import read_json

COLUMNS = ("model", "match", "what", "length", "batch", "parameters", "state_bytes", "ms", "ms_p20", "ms_p80")
COLUMNS += ("tokens_per_s", "peak_bytes")


def machines(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of each report that took the path a user gets, in full precision."""
    return [_machine(path) for path in sorted(folder.glob("*/report.json"))]


def _machine(path: Path) -> dict[str, Any]:
    report = read_json(path)
    rows = [row for row in report["rows"] if (row.get("way"), row.get("precision")) == ("auto", "fp32")]
    about = {key: report[key] for key in ("device", "torch", "clock")}
    return {
        "name": path.parent.name,
        **about,
        "commit": report["provenance"]["commit"],
        "grid": {key: report["grid"].get(key) for key in ("parameters", "state_bytes", "tokens")},
        "models": sorted({row["model"] for row in rows}),
        "columns": table(rows, COLUMNS),
    }


def models(found: list[dict[str, Any]]) -> list[str]:
    """Return the names of models in reports."""
    return sorted({name for machine in found for name in machine["models"]})
