"""Write the sentences of findings, with numbers counted from the records.

README.md and the pages of docs/findings/ show them: those of harness/stats/findings.py, one on a published cell
(`slstm`), and one on the values that papers report (`papers`).
"""

import csv
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from chomsky_ladder.harness.stats.cells import SOLVED
from chomsky_ladder.harness.stats.climb import Climb
from chomsky_ladder.harness.stats.findings import findings
from chomsky_ladder.harness.tables.published import published

LITERATURE = Path(__file__).parents[1] / "results" / "tables" / "literature.csv"
SLSTM = "xlstm (ratio=0:1)"


def sentence(key: str, records: pd.DataFrame, climbs: Sequence[Climb]) -> str:
    """Return a finding by its key."""
    if key == "slstm":
        return published_cell(records)
    if key == "papers":
        return of_papers()
    (one,) = [each for each in findings(climbs) if each.key == key]
    return f"**{one.headline}** {one.more}"


def published_cell(records: pd.DataFrame) -> str:
    """Return what our sLSTM, a replication and its paper score on cycle navigation."""
    runs = records[(records["protocol_name"] == "xlstm_code") & (records["model"] == SLSTM)]
    (ours,), (chance,) = (runs.loc[runs["task"] == "cycle_nav", name] for name in ("test", "s_rand"))
    paper, others = (published(name).of("cycle_nav", SLSTM) for name in ("xlstm", "slice"))
    assert paper is not None and others is not None
    return (
        f"As configured in its authors' code, our sLSTM scores {ours:.2f} on cycle navigation (five places), where "
        f"chance is {chance:.2f}. An independent replication reports {others.value:.2f}, the paper {paper.value:.2f}. "
        "Ours is one seed at one learning rate."
    )


def of_papers() -> str:
    """Count the values of papers that ours agree with, and the solved tasks among the others."""
    with LITERATURE.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    differ = [row for row in rows if row["verdict"] == "differs"]
    solved = sum(float(row["paper_value"]) >= SOLVED and row["outcome"] != "held" for row in differ)
    return (
        f"Of {len(rows)} values that papers report for cells of climb-v1, ours agree with {len(rows) - len(differ)}. "
        f"Of the other {len(differ)}, {solved} are solved in the paper and not held here."
    )
