"""Join several reports of one machine: models are combined, and repeated measurements of the same point are pooled.

    ms        the median of the measurements' medians
    p20, p80  their lowest and highest percentile

A shared machine, or one that changes its clock, varies more from minute to minute than the repetitions of one
measurement show. The percentiles of several measurements show it. Speeds are computed from the pooled time.
"""

from collections.abc import Sequence
from statistics import median
from typing import Any

Row = dict[str, Any]
_PLACE = ("model", "match", "way", "precision", "what", "length", "batch")
_STEMS = ("", "forward_", "backward_", "update_")
_RATES = ("tokens_per_s", "gflop_per_s", "gb_per_s")


def joined(reports: Sequence[Row]) -> Row:
    """Join reports. The first one's ceilings and provenance are kept.

    `sittings` is the most measurements of any point.
    """
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
    points = _by_place([row for report in reports for row in report["rows"]], _PLACE)
    peers = _by_place([row for report in reports for row in report["peers"]], ("peer", "shape"))
    whole = {"rows": [_pooled(rows) for rows in points.values()], "peers": [_beside(rows) for rows in peers.values()]}
    sittings = max(len(rows) for rows in points.values())
    return first | whole | {"sittings": sittings, "seconds": round(sum(report["seconds"] for report in reports), 1)}


def _by_place(rows: Sequence[Row], names: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row.get(name) for name in names), []).append(row)
    return found


def _pooled(rows: Sequence[Row]) -> Row:
    """Pool the rows of one point. A failed measurement is left out if another succeeded."""
    measured = [row for row in rows if row.get("ms") is not None] or list(rows)
    one = dict(measured[0])
    if len(measured) == 1 or one.get("ms") is None:
        return one
    one |= _times(measured, _STEMS)
    for name in _RATES:
        if one.get(name) is not None:
            one[name] *= measured[0]["ms"] / one["ms"]
    return one | {"repeats": sum(row["repeats"] for row in measured)}


def _beside(rows: Sequence[Row]) -> Row:
    """Pool the comparisons with another package: the median of the ratios, as both took turns in each measurement."""
    measured = [row for row in rows if row.get("ratio") is not None] or list(rows)
    ratios = {
        name: median(row[name] for row in measured) for name in ("ratio", "reference_ratio") if name in measured[0]
    }
    return measured[0] | _times(measured, ("ours_", "reference_", "theirs_")) | ratios


def _times(rows: Sequence[Row], stems: Sequence[str]) -> Row:
    found: Row = {}
    for stem in stems:
        if rows[0].get(f"{stem}ms") is not None:
            found |= {f"{stem}{end}": of([row[f"{stem}{end}"] for row in rows]) for end, of in _POOLS.items()}
            if rows[0].get(f"{stem}wall_ms") is not None:
                found[f"{stem}wall_ms"] = median(row[f"{stem}wall_ms"] for row in rows)
    return found


_POOLS = {"ms": median, "ms_p20": min, "ms_p80": max}
