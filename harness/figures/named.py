"""Names beside points: those of the front first, then as many of the others as have room.

A point is beaten where another is as good in both ways and better in one. A name is left out where it would lie upon
another name or another point.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes

from chomsky_ladder.harness.figures.style import SMALL

_LETTER, _LINE, _GAP, _MARK = 0.06, 0.15, 0.07, 0.04  # inches: a letter, a line, from a point to its name, half a point
_BESIDE = (
    *((_GAP, 0.06, "left"), (-_GAP, 0.06, "right"), (0, 0.13, "center")),
    *((0, -0.13, "center"), (-_GAP, -0.06, "right"), (_GAP, -0.06, "left")),
)

Box = tuple[float, float, float, float]  # inches: left, right, below, above


class Point(NamedTuple):
    name: str
    x: float
    y: float


def name_points(ax: Axes, points: Sequence[Point], names: Mapping[str, str], order: Sequence[Point]) -> list[str]:
    """Write names beside points in this order, once the limits of the axes stand. Return those that had room."""
    to_pixels, dpi = ax.transData, ax.figure.dpi
    box = ax.get_window_extent()

    def inches(point: Point) -> tuple[float, float]:
        x, y = to_pixels.transform((point.x, point.y))
        return (x - box.x0) / dpi, (y - box.y0) / dpi

    places = {point.name: inches(point) for point in points}
    taken: list[Box] = [(x - _MARK, x + _MARK, y - _MARK, y + _MARK) for x, y in places.values()]
    written = []
    for point in order:
        (x, y), text = places[point.name], names[point.name]
        long = _LETTER * len(text)
        for dx, dy, ha in _BESIDE:
            start = x + dx - {"left": 0, "right": long, "center": long / 2}[ha]
            room = (start, start + long, y + dy - _LINE / 2, y + dy + _LINE / 2)
            if room[0] > 0 and room[1] < box.width / dpi and not any(_overlap(room, other) for other in taken):
                taken.append(room)
                where = (dx * 72, dy * 72)
                ax.annotate(
                    text, point[1:], where, textcoords="offset points", ha=ha, va="center", size=SMALL, zorder=6
                ).set_bbox({"facecolor": "white", "alpha": 0.65, "lw": 0, "pad": 0.2})
                written.append(point.name)
                break
    return written


def front(points: Sequence[Point]) -> list[Point]:
    """Return the points that no other beats, where more is better in both ways."""
    return [point for point in points if not any(_beats(other, point) for other in points)]


def _beats(other: Point, point: Point) -> bool:
    is_as_good = other.x >= point.x and other.y >= point.y
    return is_as_good and (other.x > point.x or other.y > point.y)


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]
