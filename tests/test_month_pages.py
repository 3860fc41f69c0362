"""The log becomes a page for each month: no entry is lost, and its links lead where they did."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))  # as when the site is built

import month_pages  # noqa: E402  # the path above has it

LOG = """# Log

What it is.

**2026-11-30, the first.** A [table](tables/a.md), [paper](https://arxiv.org/abs/1).

A second paragraph of it.

**2026-12-01, the
second** (one core). More.
"""


def test_each_month_is_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "LOG.md").write_text(LOG)
    monkeypatch.setattr(month_pages, "LOG", tmp_path / "LOG.md")
    index = month_pages.write(tmp_path / "log")
    assert sorted(path.name for path in (tmp_path / "log").iterdir()) == ["2026-11.md", "2026-12.md"]
    november, december = ((tmp_path / "log" / f"2026-{month}.md").read_text() for month in (11, 12))
    assert "## 2026-11-30\n\n(log-2026-11-30-1)=\n### The first\n\nA [table](../../../results/tables/a.md)" in november
    assert "(https://arxiv.org/abs/1)" in november and "A second paragraph" in november
    assert december.endswith("### The second\n\n(one core). More.\n")
    assert "| 01 | [the second](#log-2026-12-01-2) |" in index and "_generated/log/2026-12" in index


def test_no_entry_of_our_log_is_lost() -> None:
    log = month_pages.LOG.read_text("utf-8")
    found = month_pages.entries(log)
    assert len(found) == log.count("\n**20") and sum(len(each.text) for each in found) > 0.9 * len(log)
