"""Several reports of one machine as one: other models follow, and sittings of the same points are pooled.

    ms        the median of the sittings' medians
    p20, p80  the lowest and the highest of theirs

A machine that others share, or that clocks itself up and down, changes its speed from one minute to the next by more
than the repetitions of one sitting can show; the percentiles of several do. Rates follow the pooled time.
"""

from collections.abc import Sequence
from statistics import median
from typing import Any

Row = dict[str, Any]
_PLACE = ("model", "match", "way", "precision", "what", "length", "batch")
_STEMS = ("", "forward_", "backward_", "update_")
_RATES = ("tokens_per_s", "gflop_per_s", "gb_per_s")


def joined(reports: Sequence[Row]) -> Row:
    """The first's ceilings and provenance stand for all; `sittings` counts how often the most measured point was."""
    first = reports[0]
    if len(reports) == 1:
        return first
    for report in reports:
        if report.get("sittings", 1) > 1:
            raise ValueError(f"a report is of {report['sittings']} sittings already: pool those, not what they made")
    for other in reports[1:]:
        for key in ("device", "torch", "clock", "grid"):
            if other[key] != first[key]:
                raise ValueError(f"reports of different {key} do not go together: {first[key]} and {other[key]}")
        if other["provenance"]["commit"] != first["provenance"]["commit"]:
            raise ValueError("reports of different commits do not go together")
    points: dict[tuple[Any, ...], list[Row]] = {}
    for report in reports:
        for row in report["rows"]:
            points.setdefault(tuple(row.get(key) for key in _PLACE), []).append(row)
    whole = {"rows": [_pooled(rows) for rows in points.values()], "peers": [row for r in reports for row in r["peers"]]}
    sittings = max(len(rows) for rows in points.values())
    return first | whole | {"sittings": sittings, "seconds": round(sum(report["seconds"] for report in reports), 1)}


def _pooled(rows: Sequence[Row]) -> Row:
    """One point; a sitting that could not measure it is left out if another could."""
    measured = [row for row in rows if row.get("ms") is not None] or list(rows)
    one = dict(measured[0])
    if len(measured) == 1 or one.get("ms") is None:
        return one
    for stem in _STEMS:
        if one.get(f"{stem}ms") is not None:
            one |= {f"{stem}{end}": of([row[f"{stem}{end}"] for row in measured]) for end, of in _POOLS.items()}
            if one.get(f"{stem}wall_ms") is not None:
                one[f"{stem}wall_ms"] = median(row[f"{stem}wall_ms"] for row in measured)
    for name in _RATES:
        if one.get(name) is not None:
            one[name] *= measured[0]["ms"] / one["ms"]
    return one | {"repeats": sum(row["repeats"] for row in measured)}


_POOLS = {"ms": median, "ms_p20": min, "ms_p80": max}
