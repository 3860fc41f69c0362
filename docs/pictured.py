"""Draw the figure of each page of findings, and lead its address to the interactive page.

The marker of a page names the figure (scripts/finding_numbers.py): `figure="climb"` shows its models on all rungs,
`lengths` its models and tasks by length, `corner` every model. Figures are made at build and never committed.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import finding_numbers  # noqa: E402  # the path above has it

from chomsky_ladder.harness.figures import write as figures  # noqa: E402
from chomsky_ladder.harness.stats.climb import climbs_of  # noqa: E402
from chomsky_ladder.harness.store.record import stored  # noqa: E402

PAGES = ROOT / "docs" / "findings"
FOLDER = ROOT / "docs" / "_generated" / "findings"
_ADDRESS = re.compile(r"On the interactive page: `(index\.html#[^`]+)`")
_ABOUT = {
    "climb": "A table of models by rungs: {models}. A box is filled as far as seeds hold the rung.",
    "lengths": "Scaled accuracy by length, a panel a task, for {models}.",
    "corner": "A scatter of state tracking against retrieval, a point for each model of the climb.",
}


def names() -> list[str]:
    """Return the pages of findings: those of the README first, then as docs/findings.md has them."""
    texts = [(ROOT / name).read_text("utf-8") for name in ("README.md", "docs/findings.md")]
    linked = [name for text in texts for name in re.findall(r"findings/(\w+)\.md", text)]
    return list(dict.fromkeys(linked))


def draw() -> dict[str, str]:
    """Draw the figure of every page that asks for one. Return the image of each page, as Markdown."""
    records = stored(ROOT / "results" / "records.csv")
    titles = {one.model: one.title for one in climbs_of(records, finding_numbers.CLIMB)}
    found = {}
    for name in names():
        text = (PAGES / f"{name}.md").read_text("utf-8")
        asked = [finding_numbers.Shown.of(match["words"]) for match in finding_numbers.MARKED.finditer(text)]
        shown = next((one for one in asked if "figure" in one.words), None)
        if shown is None:
            continue
        figure, models = shown.words["figure"], finding_numbers.models_of(shown)
        chosen = () if figure == "corner" else models
        tasks = finding_numbers.tasks_of(shown) if figure == "lengths" else ()
        with tempfile.TemporaryDirectory() as scratch:
            paths = figures.write(
                records,
                Path(scratch),
                protocol=shown.protocol,
                models=chosen,
                tasks=tasks,
                names=[figure],
                kinds=("svg",),
                tell=lambda line: None,
            )
            (path,) = [path for path in paths if path.suffix == ".svg"]
            FOLDER.mkdir(parents=True, exist_ok=True)
            path.replace(FOLDER / f"{name}.svg")
        listed = ", ".join(titles.get(model, model) for model in models[:8]) + (" and more" if len(models) > 8 else "")
        about = _ABOUT[figure].format(models=listed).translate({ord("["): "(", ord("]"): ")"})
        found[f"findings/{name}"] = f"![{about}](../_generated/findings/{name}.svg)"
    return found


def with_picture(text: str, image: str) -> str:
    """Put the image before the first table."""
    return re.sub(r"(?=<!-- (?:cells|rows|horizon) )", lambda match: f"{image}\n\n", text, count=1)


def with_addresses(text: str, docname: str) -> str:
    """Turn addresses on the interactive page into links, where that page stands beside the documentation."""
    if "LADDER_SOURCE_URL" not in os.environ:
        return text
    above = "../" * (docname.count("/") + 1)
    return _ADDRESS.sub(
        lambda match: f'<a class="reference external" href="{above}{match[1]}">See it on the interactive page</a>', text
    )
