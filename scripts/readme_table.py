"""Put the table of results/records.csv into the README, between its markers.

python scripts/readme_table.py
"""

import sys
from pathlib import Path

from harness import tables

ROOT = Path(__file__).parents[1]
OPEN, CLOSE = "<!-- table -->\n", "<!-- /table -->\n"


def with_table(readme: str) -> str:
    """The README with the quick table of the committed records."""
    cells = tables.cells(tables.stored(ROOT / "results" / "records.csv"))
    quick = cells[cells["protocol"].str.split().str[0] == "quick"]
    before, rest = readme.split(OPEN)
    return f"{before}{OPEN}\n{tables.markdown(quick)}\n{CLOSE}{rest.split(CLOSE)[1]}"


def main() -> int:
    path = ROOT / "README.md"
    path.write_text(with_table(path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
