"""Pictures inside the page: the smaller of a figure's two files as data while there is room, else where it is."""

import base64
import html
from collections.abc import Sequence
from pathlib import Path

ROOM = 2_200_000  # bytes of figures in a page, as they are embedded
_TITLES = {
    "heat_map": "Accuracy of every model on every task, by class",
    "ladder": "The highest class each model climbs",
    "lengths": "Accuracy against length",
    "cost": "Accuracy against what a model costs",
    "validation": "Validation accuracy by step",
    "loss": "Training loss by step",
}


class Album:
    """Those asked for first have the room."""

    def __init__(self, room: int = ROOM) -> None:
        self.left = room

    def figure(self, stem: Path, title: str, *, about: str, where: str) -> str:
        """HTML of a figure given without its ending, "" if there is none; `about` is what the title does not say."""
        kinds = {"svg+xml": stem.with_name(f"{stem.name}.svg"), "png": stem.with_name(f"{stem.name}.png")}
        there = {kind: path.read_bytes() for kind, path in kinds.items() if path.exists()}
        if not there:
            return ""
        kind = min(there, key=lambda kind: len(there[kind]))
        content = base64.b64encode(there[kind]).decode()
        if len(content) > self.left:
            shown = f"<figcaption>{_text(title)}: too large for this page; it is in {_text(where)}/.</figcaption>"
        else:
            self.left -= len(content)
            alt = _text(f"{title}; {about}")
            shown = f'<img src="data:image/{kind};base64,{content}" alt="{alt}" loading="lazy">'
        return f"<figure>{shown}</figure>\n"


def of_protocols(labels: Sequence[str], folder: Path) -> dict[str, list[str]]:
    """The figures of each protocol; the headline figures of all go first where there is no room for every one."""
    if not folder.is_dir():
        return {}
    from harness.figures import folder_name  # with matplotlib

    album, found = Album(), {label: [] for label in labels}
    for name, title in _TITLES.items():
        for label in labels:
            own = folder_name(label)
            found[label].append(album.figure(folder / own / name, title, about=label, where=f"figures/{own}"))
    return {label: [figure for figure in figures if figure] for label, figures in found.items()}


def _text(text: str) -> str:
    return html.escape(text, quote=True)
