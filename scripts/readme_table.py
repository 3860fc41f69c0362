"""Put tables of results/records.csv into the README, between their markers: of the climb, of quick, and of what two
cores carry of the xLSTM paper's rows and columns.

python scripts/readme_table.py
"""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd

from chomsky_ladder.harness.config.registry import find_model
from chomsky_ladder.harness.stats.cells import cells
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.store.record import stored
from chomsky_ladder.harness.store.titles import title_of
from chomsky_ladder.harness.tables import formats
from chomsky_ladder.harness.tables import write as tables
from chomsky_ladder.harness.tables.published import published
from chomsky_ladder.harness.tables.sheets import Sheet

ROOT = Path(__file__).parents[1]
CLIMB = "climb-v1"
MOST = 10  # models of the climb
ALL = "results/tables/climb.md"
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
    climbed = records[records["protocol"] == CLIMB]
    rungs, *_ = tables.table(climbed, "climb").sheets
    highest = replace(rungs, lines=rungs.lines[:MOST], notes=())
    more = f"The highest {len(highest.lines)} of {len(rungs.lines)} rows; all of them: [{ALL}]({ALL})."
    return _between(readme, CLIMB, f"{_with_papers(formats.markdown([highest]), highest, climbed)}\n{more}\n")


def _with_papers(table: str, sheet: Sheet, records: pd.DataFrame) -> str:
    """Each model's name a link to its paper, where that is on arXiv."""
    identities = [Identity.of(row) for row in records.drop_duplicates("model").to_dict("records")]
    papers = {title_of(each): find_model(each.model_name).paper for each in identities}
    head, rows = re.split(r"(?<=---: \|\n)", table, maxsplit=1)
    linked = []
    for line, row in zip(sheet.lines, rows.splitlines(), strict=True):
        name, *entries = row.removeprefix("| ").split(" | ")
        if re.fullmatch(r"\d{4}\.\d{4,5}", papers[line.name]):
            name = f"[{name}](https://arxiv.org/abs/{papers[line.name]})"
        linked.append(" | ".join([f"| {name}", *entries]))
    return head + "".join(f"{row}\n" for row in linked)


def _between(readme: str, protocol: str, table: str) -> str:
    opening, closing = f"<!-- {protocol} -->\n", f"<!-- /{protocol} -->\n"
    before, rest = readme.split(opening)
    return f"{before}{opening}\n{table}\n{closing}{rest.split(closing)[1]}"


def main() -> int:
    path = ROOT / "README.md"
    path.write_text(with_table(path.read_text("utf-8")), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
