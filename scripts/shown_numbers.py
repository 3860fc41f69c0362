"""Write the numbers of README.md and docs/results.md from the records: counts, findings and two tables.

python scripts/shown_numbers.py
"""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from chomsky_ladder.harness.config.registry import all_models, all_tasks
from chomsky_ladder.harness.stats.cells import cells
from chomsky_ladder.harness.stats.climb import Climb, climbs_of
from chomsky_ladder.harness.stats.families import family_scores
from chomsky_ladder.harness.store.labels import Identity
from chomsky_ladder.harness.store.record import stored
from chomsky_ladder.harness.store.titles import title_of
from chomsky_ladder.harness.tables import write as tables
from chomsky_ladder.harness.tables.published import published

ROOT = Path(__file__).parents[1]
CLIMB = "climb-v1"
GROUP, RECALL = "compose A5", "recall"
NONLINEAR = {"gated units", "lstm", "slstm", "stack", "tape", "memory"}
SLSTM = "xlstm (ratio=0:1)"
PROTOCOLS = ("quick", "xlstm_cpu")
WORDS = ("None", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")


def filled(name: str, text: str) -> str:
    """Return the text of README.md or docs/results.md with the numbers of the committed records."""
    records = stored(ROOT / "results" / "records.csv")
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
        f"have climbed twelve tasks in {runs:,} runs.\n"
    )


def findings(records: pd.DataFrame) -> str:
    """Return five findings, a sentence or two each, with the numbers that the records have."""
    climbs = climbs_of(records, CLIMB)
    lines = [_corner(climbs), _theory(climbs), _holding(climbs), _eigenvalues(climbs), _slstm(records)]
    return "".join(f"{place}. {line}\n" for place, line in enumerate(lines, 1))


def _corner(climbs: Sequence[Climb]) -> str:
    group, recall = _holders(climbs, GROUP), _holders(climbs, RECALL)
    both = set(group) & set(recall)
    assert {one.transition for one in climbs if one.model in group} <= NONLINEAR, "the sentence says so"
    nearest = max((one for one in climbs if one.model not in both), key=_both)
    seeds = {step.rung.name: f"{step.held} of {step.n}" for step in nearest.steps}
    return (
        f"**State or recall, not both.** {_word(len(group))} architectures compose A5 on most seeds, all of them "
        f"nonlinear recurrences ({', '.join(_titles(group))}). {len(recall)} recall. {_word(len(both))} of "
        f"{len(climbs)} does both. {_titles([nearest.model])[0]} comes nearest: recall on {seeds[RECALL]} seeds, A5 on "
        f"{seeds[GROUP]} ([table](results/tables/climb.md))."
    )


def _both(climb: Climb) -> float:
    """Return the sum of a model's scores in state tracking and retrieval."""
    scores = family_scores(climb)
    return sum(scores[name].value for name in ("state tracking", "retrieval") if name in scores)


def _theory(climbs: Sequence[Climb]) -> str:
    met = Counter(step.meeting for one in climbs for step in one.steps if step.n)
    kept, broken = met["cannot, not learnt"], met["cannot, yet held"]
    learnt, missed = met["can, learnt"], met["can, not learnt"]
    return (
        f"**Theory's “cannot” predicts well, its “can” does not.** Models miss {kept} of {kept + broken} cells that "
        f"theory excludes, and hold {learnt} of {learnt + missed} that it allows."
    )


def _holding(climbs: Sequence[Climb]) -> str:
    outcomes = Counter(step.outcome for one in climbs for step in one.steps if step.n)
    held, lost = outcomes["held"], outcomes["lost"]
    return (
        f"**To learn is not to hold.** Of {outcomes.total()} cells {held + lost} are learnt at training lengths; "
        f"{held} of these hold at lengths 225 to 256."
    )


def _eigenvalues(climbs: Sequence[Climb]) -> str:
    signed = [one for one in climbs if "eigenvalues=signed" in one.model]
    parity = _holders(signed, "count mod 2")
    groups = {name for rung in ("count mod 3", "compose S3", GROUP) for name in _holders(signed, rung)}
    return (
        f"**Negative eigenvalues buy parity, not groups.** {_word(len(parity))} of {_word(len(signed)).lower()} "
        f"models with eigenvalues in [-1, 1] hold parity on most seeds. {_word(len(groups))} holds a "
        "cycle of three, S3 or A5."
    )


def _slstm(records: pd.DataFrame) -> str:
    runs = records[(records["protocol_name"] == "xlstm_code") & (records["model"] == SLSTM)]
    (ours,) = runs.loc[runs["task"] == "cycle_nav", "test"]
    paper, others = (published(name).of("cycle_nav", SLSTM) for name in ("xlstm", "pdssm"))
    assert paper is not None and others is not None
    return (
        f"**One published cell does not reproduce.** As configured in its authors' code (20,000 steps, one seed) our "
        f"sLSTM scores {ours:.2f} on cycle navigation. An independent replication reports {others.value:.2f}, the "
        f"paper {paper.value:.2f} ([comparison](results/tables/accuracy_against_pdssm.md))."
    )


def _holders(climbs: Sequence[Climb], rung: str) -> list[str]:
    """Return the models of which most seeds hold a rung, those that hold most rungs first."""
    return [one.model for one in climbs for step in one.steps if step.rung.name == rung and step.outcome == "held"]


def _word(number: int) -> str:
    return WORDS[number] if number < len(WORDS) else str(number)


def _titles(models: Sequence[str]) -> list[str]:
    return [title_of(Identity.of({"protocol": "", "task": "", "model": model})) for model in models]


def _between(text: str, name: str, part: str) -> str:
    opening, closing = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    before, rest = text.split(opening)
    space = "\n" if part.startswith(("#", "|")) else ""
    return f"{before}{opening}{space}{part}{space}{closing}{rest.split(closing)[1]}"


SHOWN = ("README.md", "docs/results.md")


def main() -> int:
    for name in SHOWN:
        path = ROOT / name
        path.write_text(filled(name, path.read_text("utf-8")), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
