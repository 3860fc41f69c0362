"""Was this before that? The answer follows from a story that compares the times of two events in each sentence.

    lunch was after walk . dance was after lunch . was dance before walk ?  ->  no

A length is the number of facts. The order asked for follows from them, by several steps if need be (tasks/_orders.py).
Counting how often each of the two is called the earlier scores .95 or more. With 160 facts, .94 of the stories compare
the two directly, with 256 .999, and none with `things=24`. Outside the hierarchy: a finite table of what came before
what. After the time reasoning of the bAbI questions of Weston et al. 2015 (1502.05698), which ask for times of day.
"""

from dataclasses import dataclass

from chomsky_ladder.tasks._orders import Orders
from chomsky_ladder.tasks.base import register


@register
@dataclass(frozen=True, kw_only=True)
class QaTimes(Orders):
    name, version, level = "qa_times", 1, "none"

    words = (
        *("breakfast", "walk", "lesson", "lunch", "swim", "concert", "dinner", "dance"),
        *("meeting", "game", "party", "film", "race", "class", "picnic", "nap"),
        *("bath", "flight", "exam", "speech", "tour", "parade", "trial", "wedding"),
    )
    relations = (("before", "after"),)
    asked = 1

    @property
    def vocab(self) -> tuple[str, ...]:
        return "PAD", ".", "?", "was", "before", "after", "yes", "no", *self.words[: self.things]

    def statement(self, one: str, relation: str, other: str) -> str:
        return f"{one} was {relation} {other} ."

    def question(self, one: str, relation: str, other: str) -> str:
        return f"was {one} {relation} {other} ?"
