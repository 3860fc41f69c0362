"""The look of figures and their files: colours, names that cannot break a picture, equal bytes every time.

The colours of models are in harness/stats/looks.py. Text is never read as mathematics. The bytes of a picture are the
same for one version of matplotlib.
"""

import io
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import matplotlib.style
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.typing import ColorType

from chomsky_ladder.harness.figures.plot import Scene
from chomsky_ladder.harness.stats.view import CLASSES, LEVELS
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.harmless import csv_of

WIDTH = Scene.width
NARROWEST = 3.2  # inches in which boxes have room for what stands in them
SMALL, NORMAL, LARGE = 7.0, 7.5, 10.0  # points
INK, MUTED, FAINT = "#1a1a1a", "#5c5c5c", "#c9c9c9"
CLASS_COLOURS = dict(zip(LEVELS, ("#0072B2", "#009E73", "#E69F00", "#D55E00", "#6b6b6b"), strict=True))
CLASS_TINTS = dict(zip(LEVELS, ("#dcebf5", "#d9f0e8", "#fbeed2", "#fae1d3", "#ececec"), strict=True))
CLASS_NAMES = {**CLASSES, "none": "outside"}
STYLE = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": NORMAL,
    "text.parse_math": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.labelsize": NORMAL,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.4,
    "figure.dpi": 200,
    "savefig.dpi": "figure",
    "text.hinting": "no_hinting",  # so that what is measured is what is drawn
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "ladder",
    "pdf.fonttype": 42,  # text stays text, in TrueType
}

T = TypeVar("T")

KINDS = ("png", "svg")
_NO_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_AROUND = "around"
_FONT = b"font-family: 'DejaVu Sans'"  # of an SVG, and those as wide for who has not got it
_FONTS = b"font-family: 'DejaVu Sans', 'Bitstream Vera Sans', Verdana, sans-serif"


def class_look(level: str) -> tuple[str, str, str]:
    """Return colour, tint and name of a class; a plugin's own class, too."""
    known = level if level in CLASS_COLOURS else "none"
    return CLASS_COLOURS[known], CLASS_TINTS[known], CLASS_NAMES.get(level, level)


def on(colour: ColorType) -> str:
    """Return black or white, whichever is easier to read on a colour."""
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in to_rgb(colour))
    return INK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.23 else "white"  # WCAG's luminance


def style() -> AbstractContextManager[None]:
    """Return a context with matplotlib's defaults and our settings on top. The user's settings are back afterwards."""
    return matplotlib.style.context(STYLE, after_reset=True)


def labels(
    names: Iterable[str], *, width: int, lines: int = 1, titles: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return the text for each name in a picture: its title in glyphs that exist, in few lines, and all different."""
    font = get_font(findfont(FontProperties(family=STYLE["font.family"])))
    found: dict[str, str] = {}
    for name in sorted(set(names)):
        plain = "".join(
            c if c.isprintable() and font.get_char_index(ord(c)) else "?"
            for c in " ".join(titles.get(name, name).split())
        )
        label, again = _fitted(plain or "?", width, lines), 1
        while label in found.values():
            again += 1
            label = _fitted(plain, width, lines, ending=f" ~{again}")
        found[name] = label
    return found


def _fitted(name: str, width: int, lines: int, *, ending: str = "") -> str:
    """Wrap a name, and leave out so much of its middle that it fits."""
    rows = textwrap.wrap(name + ending, width, break_on_hyphens=False)
    room = width * lines - len(ending)
    while len(rows) > lines:
        room -= 1
        kept = name[: room - room // 3] + "…" + name[len(name) - room // 3 :] + ending
        rows = textwrap.wrap(kept, width, break_on_hyphens=False)
    return "\n".join(rows)


def at(fig: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Add axes by inches from the figure's upper left corner."""
    whole, tall = fig.get_size_inches()
    return fig.add_axes((left / whole, 1 - (top + height) / tall, width / whole, height / tall))


def words(fig: Figure, left: float, top: float, text: str, *, size: float = SMALL, color: str = INK) -> Text:
    """Write text by inches from the figure's upper left corner, downwards."""
    whole, tall = fig.get_size_inches()
    return fig.text(left / whole, 1 - top / tall, text, ha="left", va="top", size=size, color=color, linespacing=1.35)


def around(text: Text) -> Text:
    """Mark text that a paper has in its own caption, so that a bare figure leaves it out."""
    text.set_label(_AROUND)
    return text


def head(fig: Figure, title: str, scene: Scene) -> None:
    """Write a title over a figure and, under it, the protocol."""
    name = labels([scene.protocol], width=_scaled(104, fig), lines=2)[scene.protocol]
    remark = f" ({scene.remark})" if scene.remark else ""
    over = 0.14 * name.count("\n")
    around(words(fig, 0, -0.5 - over, title + remark, size=LARGE)).set_fontweight("bold")
    around(words(fig, 0, -0.28 - over, f"Protocol: {name}", color=MUTED))


def in_rows(things: Sequence[T], most: int) -> list[Sequence[T]]:
    """Split things into rows of at most so many, as even as can be."""
    number = math.ceil(len(things) / most)
    length = math.ceil(len(things) / number)
    return [things[i : i + length] for i in range(0, len(things), length)]


def caption(fig: Figure, top: float, text: str) -> None:
    around(words(fig, 0, top, textwrap.fill(text, _scaled(140, fig)), color=MUTED))


def _scaled(characters: int, fig: Figure) -> int:
    """Scale a number of characters from the usual width to the figure's."""
    return int(characters * fig.get_size_inches()[0] / WIDTH)


def legend(fig: Figure, top: float, handles: Sequence[Line2D], names: Sequence[str]) -> float:
    """Draw a key over the figure's width and return its height. Names go in last, so that none is taken for an
    option."""
    longest = max(map(len, names))
    columns = max(1, min(len(names), int(fig.get_size_inches()[0] / (0.42 + 0.062 * longest))))
    key(fig, 0, top, handles, names, ncols=columns, handlelength=2.6, columnspacing=1.4)
    return 0.03 + 0.155 * math.ceil(len(names) / columns)


def key(
    fig: Figure, left: float, top: float, handles: Sequence[Line2D], names: Sequence[str], **look: float | str
) -> None:
    """Draw a key by inches from the figure's upper left corner."""
    whole, tall = fig.get_size_inches()
    place = (left / whole, 1 - top / tall)
    box = fig.legend(handles, ["x"] * len(names), loc="upper left", bbox_to_anchor=place, borderaxespad=0, **look)
    for text, name in zip(box.get_texts(), names, strict=True):
        text.set_text(name)


def short(number: float, _: object = None) -> str:
    """Write 12000 as 12k."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.4g}{unit}"
    return f"{number:.4g}"


def log_axis(ax: Axes, values: Iterable[float], *, which: str) -> None:
    """Make an axis logarithmic. Its ends and few labelled ticks are 1, 2 or 5 times a power of ten."""
    low, high = min(values := list(values)), max(values)
    ends = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    ticks = [float(f"{digit}e{power}") for power in ends for digit in (1, 2, 5)]
    first = max(i for i, tick in enumerate(ticks) if tick <= low / 1.1)
    last = min(i for i, tick in enumerate(ticks) if tick >= high * 1.1)
    axis = ax.xaxis if which == "x" else ax.yaxis
    (ax.set_xscale if which == "x" else ax.set_yscale)("log")
    (ax.set_xlim if which == "x" else ax.set_ylim)(ticks[first], ticks[last])
    kept = ticks[first : last + 1]
    if len(kept) > 5:  # whole powers, every so many of them
        kept = [tick for tick in kept if f"{tick:e}".startswith("1.")]
        kept = kept[:: math.ceil(len(kept) / 5)]
    axis.set_major_locator(FixedLocator(kept))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(short))


def save(
    fig: Figure, data: pd.DataFrame, stem: Path, *, bare: bool = False, kinds: Sequence[str] = KINDS
) -> list[Path]:
    """Write the picture in each of these kinds, and its data as CSV. A bare one has neither title nor caption."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    files = {"csv": csv_of(data, float_format="%.6g").encode()}
    for text in fig.texts:
        text.set_visible(not (bare and text.get_label() == _AROUND))
    box = fig.get_tightbbox().padded(0.08)  # inches
    for kind in kinds:
        content = io.BytesIO()
        fig.savefig(content, format=kind, metadata=_NO_METADATA[kind], bbox_inches=box, facecolor="white")
        files[kind] = content.getvalue().replace(_FONT, _FONTS) if kind == "svg" else content.getvalue()
    for kind, content in files.items():
        write_atomically(stem.with_name(f"{stem.name}.{kind}"), content)
    return [stem.with_name(f"{stem.name}.{kind}") for kind in files]
