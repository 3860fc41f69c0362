"""The kinds of table, from records alone, one sheet a protocol, and their files in every format.

    accuracy         models x tasks, by class             lengths    accuracy by length, a sheet a task
    hard             the tasks that nobody solves         cost       what models take, by the device they ran on
    state_tracking   the tasks that ask for a state, with the share of runs that solve them
    learning         steps, tokens and seconds to 95 and 99 per cent
    bits             accuracy by the bits of the weights, where some were rounded (harness/tables/bits.py)
    text             perplexities, where there is a text (harness/tables/text.py)

Accuracies are at the rate chosen on validation, at the last step. What stands in bold, harness/stats/claims.py allows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import pandas as pd

from chomsky_ladder.harness.stats.cell_stats import SOLVED, CellStats, cell_stats
from chomsky_ladder.harness.stats.cells import cells
from chomsky_ladder.harness.stats.claims import verdict
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.tables import files as tables
from chomsky_ladder.harness.tables import formats as table_formats
from chomsky_ladder.harness.tables.against import against_data, against_sheet
from chomsky_ladder.harness.tables.bits import bits, bits_of, unrounded
from chomsky_ladder.harness.tables.cost import cost
from chomsky_ladder.harness.tables.learning import learning
from chomsky_ladder.harness.tables.lengths import lengths
from chomsky_ladder.harness.tables.published import Paper, published
from chomsky_ladder.harness.tables.sheets import Cell, Entry, Sheet, accuracy_sheet, plain_entry
from chomsky_ladder.harness.tables.text import text

Kind = Literal["accuracy", "hard", "lengths", "state_tracking", "learning", "cost", "bits", "text"]
Format = Literal["markdown", "csv", "latex", "html"]

KINDS: tuple[Kind, ...] = tuple(kind for kind in get_args(Kind) if kind not in ("bits", "text"))  # of any suite
ENDINGS: dict[Format, str] = {"markdown": "md", "csv": "csv", "latex": "tex", "html": "html"}
HARD = ("odds_first", "repetition", "reverse_string", "set", "stack_manipulation")  # of the xLSTM paper
STATE_TRACKING = ("cycle_nav", "even_pairs", "flip_flop", "mod_arithmetic", "parity", "random_dfa", "regular")
STATE_TRACKING += ("word_problem",)
TASKS: dict[Kind, tuple[str, ...]] = {"hard": HARD, "state_tracking": STATE_TRACKING, "text": ("text",)}
_WHY_NOT: dict[Kind, str] = {
    "learning": "no finished run tells when it got where",
    "bits": "no run is of rounded weights (--train.qat)",
}
COMPARED: tuple[Kind, ...] = ("accuracy", "hard", "state_tracking")

_FORMATS: dict[Format, Callable[[Sequence[Sheet]], str]] = {
    "markdown": table_formats.markdown,
    "latex": table_formats.latex,
    "html": table_formats.html_fragment,
}


@dataclass(frozen=True)
class Made:
    """A kind of table: as sheets, and its numbers unrounded."""

    sheets: tuple[Sheet, ...]
    data: pd.DataFrame

    def text(self, form: Format) -> str:
        return tables.csv(self.data) if form == "csv" else _FORMATS[form](self.sheets)


def table(records: pd.DataFrame, kind: Kind, *, against: Paper | None = None) -> Made:
    """One kind of table, a sheet or more for every protocol that has something to show in it."""
    if against is not None and kind not in COMPARED:
        raise ValueError(f"no published values for a table of {kind}; there are some for {', '.join(COMPARED)}")
    wanted = TASKS.get(kind)
    if wanted is not None:
        records = records[[str(task).split()[0] in wanted for task in records["task"]]]
    if records.empty:
        raise ValueError(f"nothing to show in a table of {kind}: no record is of {', '.join(wanted or ('any task',))}")
    together = records["protocol"].map(unrounded) if kind == "bits" else records["protocol"]
    made = [_one_protocol(group, kind, against=against) for _, group in records.groupby(together, sort=True)]
    sheets = tuple(sheet for one in made for sheet in one.sheets)
    if not sheets:
        raise ValueError(f"nothing to show in a table of {kind}: {_WHY_NOT.get(kind, 'no run has finished')}")
    return Made(sheets, _together([one.data for one in made if len(one.data)]))


def _together(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Below each other, integers whole and empty columns kept."""
    joined = pd.concat([frame.astype(object) for frame in frames], ignore_index=True)
    kinds = {name: {type(value) for value in joined[name].dropna()} for name in joined}
    return joined.astype({name: "Int64" for name, found in kinds.items() if found == {int}}).infer_objects()


def write_all(results: Path, *, against: Paper | None = None) -> tuple[list[Path], list[str]]:
    """Every kind in every format under results/tables/: the files, and why there is none of some kind.

    accuracy.md and accuracy.csv are those of harness/tables/files.py, the markdown without bold.
    """
    folder = results / "tables"
    tables.write(results)
    records = tables.stored(results / "records.csv")
    paths, why_not = [folder / "accuracy.csv", folder / "accuracy.md"], []
    some: list[Kind] = ["bits"] if records["protocol"].map(bits_of).any() else []
    some += ["text"] if any(task.split()[0] == "text" for task in records["task"]) else []
    for paper in (None, against) if against else (None,):
        for kind in COMPARED if paper else (*KINDS, *some):
            try:
                made = table(records, kind, against=paper)
            except ValueError as nothing:
                why_not.append(str(nothing))
                continue
            for form, ending in ENDINGS.items():
                path = folder / f"{kind}{f'_against_{paper}' if paper else ''}.{ending}"
                if path not in paths:
                    write_atomically(path, made.text(form).encode())
                    paths.append(path)
    return paths, list(dict.fromkeys(why_not))


def _one_protocol(records: pd.DataFrame, kind: Kind, *, against: Paper | None) -> Made:
    if kind == "lengths":
        return Made(*lengths(records))
    if kind == "learning":
        return Made(*learning(records))
    if kind == "cost":
        return Made(*cost(records))
    if kind == "bits":
        return Made(*bits(records))
    if kind == "text":
        return Made(*text(records))
    frame, stats = cells(records), cell_stats(records, threshold=SOLVED)
    bold, why = allowed_bold(stats)
    if against is not None:
        paper = published(against)
        kept = TASKS.get(kind, tuple(paper.tasks))
        sheet = against_sheet(frame, records, paper, tasks=kept, bold=bold, notes=why)
        return Made((sheet,), against_data(frame, paper))
    if kind != "state_tracking":
        return Made((accuracy_sheet(frame, bold=bold, notes=why),), frame)
    by_place = {(cell.task, cell.model): cell for cell in stats}

    def with_share(task: str, model: str, row: Cell) -> Entry:
        entry = plain_entry(task, model, row)
        if row is None:
            return entry
        reached = by_place[task, model].reached
        return replace(entry, lines=(f"{entry.lines[0]}; {reached.hits}/{reached.n}",))

    lead = (f"Behind the semicolon: how many of the runs at that rate reached {SOLVED:g}.",)
    shares = [by_place[task, model].reached for task, model in zip(frame["task"], frame["model"], strict=True)]
    counted = frame.assign(reached=[share.hits for share in shares], runs=[share.n for share in shares])
    return Made((accuracy_sheet(frame, show=with_share, bold=bold, lead=lead, notes=why),), counted)


def allowed_bold(stats: Sequence[CellStats]) -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """The models in bold by task, and the sentence that says what it means or why there are none."""
    of_task: dict[str, list[CellStats]] = {}
    for cell in stats:
        of_task.setdefault(cell.task, []).append(cell)
    verdicts = {task: verdict(rivals) for task, rivals in sorted(of_task.items())}
    bold = {task: found.bold for task, found in verdicts.items() if found.bold}
    if bold:
        return bold, (
            "Bold: a task's leader and those it was not shown to beat, where it was shown to beat any (permutation "
            "tests over seeds, p ≤ .05 each).",
        )
    reasons: dict[str, list[str]] = {}
    for task, found in verdicts.items():
        reasons.setdefault(found.reason, []).append(task)
    listed = "; ".join(f"{reason} ({', '.join(tasks)})" for reason, tasks in reasons.items())
    return {}, (f"Nothing may be bold: {listed}.",)
