"""The findings as stories: a sentence of each with its numbers, and the view of the page that shows it."""

from collections.abc import Collection, Sequence
from typing import Any

from chomsky_ladder.harness.page.cells import Sheet
from chomsky_ladder.harness.stats.climb import climbs
from chomsky_ladder.harness.stats.findings import Finding, findings

VIEWS: dict[str, tuple[str, dict[str, str]]] = {
    "corner": ("corner", {}),
    "holding": ("ladder", {"show": "lost"}),
    "theory": ("ladder", {"show": "gap"}),
    "eigenvalues": ("ladder", {"q": "eigenvalues=signed"}),
    "papers": ("ladder", {"show": "papers"}),
}
"""The view of each finding and what is chosen in it."""


def stories(
    sheets: Sequence[Sheet], ladders: Sequence[dict[str, Any]], *, without: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Return the findings of the page's first climb, the headline first. No model in `without` counts."""
    cells = sheets[ladders[0]["protocol"]].cells if ladders else []
    found = findings(climbs([cell for cell in cells if cell.stats.model not in without]))
    if found:
        found += _papers([row for row in ladders[0]["rows"] if row["model"] not in without])
    return [
        {"name": one.name, "headline": one.headline, "more": one.more, "view": view, "params": params}
        for one in found
        for view, params in (VIEWS[one.key],)
    ]


def _papers(rows: Sequence[dict[str, Any]]) -> list[Finding]:
    """Count the cells in which a paper solves a task that ours do not hold; no finding where no paper reports one."""
    reported = [step["papers"] for row in rows for step in row["steps"] if "papers" in step]
    missed = sum(any(word == "differs" and solved for word, solved, _ in reports) for reports in reported)
    headline = f"In {missed} of {len(reported)} cells a paper reports a solved task that our models do not hold."
    more = "Each has its paper, its value and what differs between the protocols."
    return [Finding("papers", "What papers report", headline, more)] if reported else []
