"""Write the numbers of README.md, docs/results.md and docs/findings/ from the records: counts, findings and tables.

python scripts/shown_numbers.py
"""

import sys
from pathlib import Path

import finding_numbers
import finding_sentences
import pandas as pd

from chomsky_ladder.harness.config.registry import all_models, all_tasks
from chomsky_ladder.harness.stats.cells import cells
from chomsky_ladder.harness.stats.climb import climbs_of
from chomsky_ladder.harness.stats.findings import findings as of_climbs
from chomsky_ladder.harness.tables import write as tables
from chomsky_ladder.harness.tables.published import published

ROOT = Path(__file__).parents[1]
CLIMB = "climb-v1"
PROTOCOLS = ("quick", "xlstm_cpu")


def filled(name: str, text: str) -> str:
    """Return the text of a page with the numbers of the committed records."""
    if name.startswith("docs/findings/"):
        return finding_numbers.filled(text)
    records = finding_numbers.records_there()
    parts = _of_readme(records) if name == "README.md" else _of_results(records)
    for marker, part in parts.items():
        text = _between(text, marker, part)
    return text


def _of_readme(records: pd.DataFrame) -> dict[str, str]:
    return {"counts": counts(records), "findings": findings(records)}


def _of_results(records: pd.DataFrame) -> dict[str, str]:
    """Return the tables of quick, and of what two cores carry of the xLSTM paper's rows and columns."""
    found = cells(records)
    paper = published("xlstm")
    of_paper = found["task"].isin(paper.tasks) & found["model"].isin(paper.models)
    own = {name: found[(found["protocol"] == name) & (of_paper | (name != "xlstm_cpu"))] for name in PROTOCOLS}
    return {name: tables.markdown(part) for name, part in own.items()}


def counts(records: pd.DataFrame) -> str:
    climbs = climbs_of(records, CLIMB)
    runs = int((records["protocol"] == CLIMB).sum())
    return (
        f"{len(all_models())} architectures and {len(all_tasks())} tasks, one file each. {len(climbs)} architectures "
        f"have climbed twelve rungs in {runs:,} runs.\n"
    )


def findings(records: pd.DataFrame) -> str:
    """Return five findings, a sentence or two each, with the numbers that the records have."""
    found = [(each.name, f"{each.headline} {each.more}") for each in of_climbs(climbs_of(records, CLIMB))]
    found.append(("One published cell", finding_sentences.published_cell(records)))
    linked = [(f"[{name}](docs/findings/{name.lower().replace(' ', '_')}.md)", text) for name, text in found]
    return "".join(f"{place}. **{name}.** {text}\n" for place, (name, text) in enumerate(linked, 1))


def _between(text: str, name: str, part: str) -> str:
    opening, closing = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    before, rest = text.split(opening)
    space = "\n" if part.startswith(("#", "|")) else ""
    return f"{before}{opening}{space}{part}{space}{closing}{rest.split(closing)[1]}"


SHOWN = ("README.md", "docs/results.md")
FINDINGS = tuple(f"docs/findings/{path.name}" for path in sorted((ROOT / "docs" / "findings").glob("*.md")))


def main() -> int:
    for name in (*SHOWN, *FINDINGS):
        path = ROOT / name
        path.write_text(filled(name, path.read_text("utf-8")), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
