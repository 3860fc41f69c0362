"""The accuracy table of the tasks that ask for a state."""

from dataclasses import replace

from chomsky_ladder.harness.tables.kind import Row, register
from chomsky_ladder.harness.tables.kinds.accuracy import ACCURACY, beside_a_paper


def tracks_state(row: Row) -> bool:
    return "tracks_state" in row["traits"].split()


register(
    replace(
        ACCURACY,
        name="state_tracking",
        about="accuracy on the tasks that ask for a state",
        against=beside_a_paper(tracks_state),
        wants=tracks_state,
        subject="a task that asks for a state (`tracks_state` of tasks/base.py)",
        rank=3,
    )
)
