"""The table of what was said of a climb before it was run, and whether the records bear it out."""

import pandas as pd

from chomsky_ladder.harness.config.presets import PROTOCOLS
from chomsky_ladder.harness.stats.climb import climbs_of
from chomsky_ladder.harness.stats.hypotheses import SUITE, Judged, digest, judge
from chomsky_ladder.harness.tables.kind import Kind, Made, Row, register
from chomsky_ladder.harness.tables.sheets import Column, Entry, Line, Sheet

COLUMNS = ("protocol", "key", "says", "why", "verdict", "difference", "low", "high", "seeds", "missing")


def hypotheses(records: pd.DataFrame) -> Made:
    report = PROTOCOLS[SUITE].report
    judged = judge(climbs_of(records, SUITE), seeds=report)
    lead = (
        f"Ten statements, written after the pilot (one seed of five models) and before the first run of {SUITE} ended "
        f"(sha256 {digest()[:12]}). A difference is one of mean scaled accuracy at the longest test lengths, with a "
        f"bootstrap interval over {report} seeds a cell (95 %): open where 0 lies in it. Seeds: how many hold a cell.",
    )
    columns = (Column("verdict"), Column("measured"), Column("statement"))
    sheet = Sheet(SUITE, lead, "hypothesis", columns, tuple(map(_line, judged)), ())
    return Made((sheet,), _data(judged))


def measured(one: Judged) -> str:
    """Return what the records say of a statement, in numbers."""
    if one.missing:
        cells = len(one.missing)
        return f"{cells} cell{'' if cells == 1 else 's'} missing"
    if one.difference is None:
        return "; ".join(one.seeds)
    value, low, high = one.difference
    assert low is not None and high is not None, "cells with several seeds have an interval"
    return f"{value:+.2f} [{low:+.2f}, {high:+.2f}]"


def _line(one: Judged) -> Line:
    texts = (one.verdict, measured(one), one.hypothesis.says)
    return Line(one.hypothesis.key, tuple(Entry((text,)) for text in texts))


def _data(judged: list[Judged]) -> pd.DataFrame:
    rows = [
        (
            *(SUITE, one.hypothesis.key, one.hypothesis.says, one.hypothesis.why, one.verdict),
            *(one.difference or (None, None, None)),
            *("; ".join(one.seeds), "; ".join(f"{model}, {rung}" for model, rung in one.missing)),
        )
        for one in judged
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _wants(row: Row) -> bool:
    return row["protocol"] == SUITE


register(
    Kind(
        name="hypotheses",
        about="what was said of climb-v2 before it was run, and whether the records bear it out",
        make=hypotheses,
        wants=_wants,
        subject=f"{SUITE}",
        when=lambda records: bool((records["protocol"] == SUITE).any()),
        rank=1,
    )
)
