"""Put tables of results/records.csv into the README, between their markers: of the climb, of quick, and of what two
cores carry of the xLSTM paper's rows and columns.

python scripts/readme_table.py
"""

import sys
from pathlib import Path

from chomsky_ladder.harness.stats.cells import cells
from chomsky_ladder.harness.store.record import stored
from chomsky_ladder.harness.tables import formats
from chomsky_ladder.harness.tables import write as tables
from chomsky_ladder.harness.tables.published import published

ROOT = Path(__file__).parents[1]
CLIMB = "climb-v1"
PROTOCOLS = ("quick", "xlstm_cpu")


def with_table(readme: str) -> str:
    """The README with the tables of the committed records."""
    records = stored(ROOT / "results" / "records.csv")
    found = cells(records)
    paper = published("xlstm")
    of_paper = found["task"].isin(paper.tasks) & found["model"].isin(paper.models)
    for protocol in PROTOCOLS:
        own = found[(found["protocol"] == protocol) & (of_paper | (protocol != "xlstm_cpu"))]
        readme = _between(readme, protocol, tables.markdown(own))
    rungs, _ = tables.table(records[records["protocol"] == CLIMB], "climb").sheets
    return _between(readme, CLIMB, formats.markdown([rungs]))


def _between(readme: str, protocol: str, table: str) -> str:
    opening, closing = f"<!-- {protocol} -->\n", f"<!-- /{protocol} -->\n"
    before, rest = readme.split(opening)
    return f"{before}{opening}\n{table}\n{closing}{rest.split(closing)[1]}"


def main() -> int:
    path = ROOT / "README.md"
    path.write_text(with_table(path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
