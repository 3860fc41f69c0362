"""The accuracy table of the tasks that ask for a state, with the share of runs that solve them."""

from dataclasses import replace

import pandas as pd

from chomsky_ladder.harness.stats.cell_stats import SOLVED, cell_stats
from chomsky_ladder.harness.stats.cells import cells
from chomsky_ladder.harness.tables.bold import allowed_bold
from chomsky_ladder.harness.tables.kind import Kind, Made, Row, register
from chomsky_ladder.harness.tables.kinds.accuracy import beside_a_paper
from chomsky_ladder.harness.tables.sheets import Cell, Entry, accuracy_sheet, plain_entry


def tracks_state(row: Row) -> bool:
    return "tracks_state" in row["traits"].split()


def state_tracking(records: pd.DataFrame) -> Made:
    frame, stats = cells(records), cell_stats(records, threshold=SOLVED)
    bold, why = allowed_bold(stats)
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


register(
    Kind(
        name="state_tracking",
        about="accuracy on the tasks that ask for a state, and the share of runs that solve them",
        make=state_tracking,
        against=beside_a_paper(tracks_state),
        wants=tracks_state,
        subject="a task that asks for a state (`tracks_state` of tasks/base.py)",
        rank=3,
    )
)
