"""Pictures inside the page: the smaller of a figure's two files as data while there is room, else where it is."""

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

from chomsky_ladder.harness.figures.names import folder_name

ROOM = 2_200_000  # bytes of figures in a page, as they are embedded


class Album:
    """Those asked for first have the room."""

    def __init__(self, room: int = ROOM) -> None:
        self.left = room

    def image(self, stem: Path, alt: str) -> str | None:
        """HTML of a picture given without its ending: "" if there is none, None if there is no room."""
        kinds = {"svg+xml": stem.with_name(f"{stem.name}.svg"), "png": stem.with_name(f"{stem.name}.png")}
        there = {kind: path.read_bytes() for kind, path in kinds.items() if path.exists()}
        if not there:
            return ""
        kind = min(there, key=lambda kind: len(there[kind]))
        content = base64.b64encode(there[kind]).decode()
        if len(content) > self.left:
            return None
        self.left -= len(content)
        return f'<img src="data:image/{kind};base64,{content}" alt="{escape(alt)}" loading="lazy">'


def of_protocols(labels: Sequence[str], folder: Path, *, room: int = ROOM) -> dict[str, list[str]]:
    """The figures of each protocol; the headline figures of all go first where there is no room for every one."""
    if not folder.is_dir():
        return {}
    from chomsky_ladder.harness.figures.plot import all_plots  # with matplotlib

    album, found = Album(room), {label: [] for label in labels}
    for plot in all_plots():
        for label in labels:
            own = folder_name(label)
            image = album.image(folder / own / plot.name, f"{plot.title}; {label}")
            if image is None:
                image = f"<figcaption>{plot.title}: too large for this page; it is in figures/{own}/.</figcaption>"
            if image:
                found[label].append(f"<figure>{image}</figure>\n")
    return found
