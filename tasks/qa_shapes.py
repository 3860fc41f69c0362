"""Is this shape left of that one, or above it? The answer follows from a story that compares two in each sentence.

    the cube is below the star . the moon is above the star . is the cube below the moon ?  ->  yes

A length is the number of facts, of either axis. The order asked for follows from them, by several steps if need be
(tasks/_orders.py). Counting how often each of the two is called the lesser scores .95 or more. With 160 facts, .09 of
the stories compare the two directly, with 256 .66, and none with `things=24`. Outside the hierarchy: a finite table for
each axis. After the positional reasoning of the bAbI questions of Weston et al. 2015 (1502.05698).
"""

from dataclasses import dataclass

from chomsky_ladder.tasks._orders import Orders
from chomsky_ladder.tasks.base import register


@register
@dataclass(frozen=True, kw_only=True)
class QaShapes(Orders):
    name, version, level = "qa_shapes", 1, "none"

    words = (
        *("circle", "square", "triangle", "star", "cross", "heart", "moon", "cube"),
        *("arrow", "ring", "cone", "sphere", "oval", "diamond", "pentagon", "hexagon"),
        *("octagon", "pyramid", "prism", "spiral", "arch", "leaf", "kite", "bar"),
    )
    relations = (("left-of", "right-of"), ("above", "below"))
    asked = 2

    @property
    def vocab(self) -> tuple[str, ...]:
        relations = (relation for axis in self.relations for relation in axis)
        return "PAD", ".", "?", "the", "is", *relations, "yes", "no", *self.words[: self.things]

    def statement(self, one: str, relation: str, other: str) -> str:
        return f"the {one} is {relation} the {other} ."

    def question(self, one: str, relation: str, other: str) -> str:
        return f"is the {one} {relation} the {other} ?"
