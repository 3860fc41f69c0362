"""The boards on the page: for each Othello study its table with floors and verdicts, and what its models believe.

    othello/tables/<study>.html               the table, written by harness/othello_table.py
    othello/figures/<study>/pictures.json     the pictures in the order in which one looks at them, with their titles

Both are as the study left them: the page measures nothing and draws nothing.
"""

import html
from pathlib import Path

from harness.files import read_json
from harness.page_pictures import Album

PICTURES = "pictures.json"
_ROOM = 1_800_000  # bytes of pictures, all studies together, as they are embedded
_LARGE = "game_every_ply"  # has what room the others leave


def studies(folder: Path) -> list[str]:
    """The names of those under results/othello that have drawn something; a smoke run shows only that it runs."""
    found = (path.parent.name for path in folder.glob(f"figures/*/{PICTURES}"))
    return sorted(name for name in found if name != "smoke")


def sections(folder: Path) -> list[str]:
    """One of the page for each study."""
    album = Album(_ROOM)
    return [_section(folder, study, album) for study in studies(folder)]


def _section(folder: Path, study: str, album: Album) -> str:
    drawn = folder / "figures" / study
    pictures = [(drawn / each["picture"], each["title"]) for each in read_json(drawn / PICTURES)]
    shown = {}
    for stem, title in sorted(pictures, key=lambda picture: picture[0].name == _LARGE):
        where = f"othello/{stem.parent.relative_to(folder)}"
        shown[stem] = album.figure(stem, title, about=f"Othello, {study}", where=where)
    figures = "".join(shown[stem] for stem, _ in pictures)
    table = folder / "tables" / f"{study}.html"
    name = html.escape(study, quote=True)
    return (
        f'<section class="block" id="othello-{name}" aria-labelledby="othello-title-{name}">'
        f'<h2 id="othello-title-{name}">Othello, the board in the head: <bdi>{name}</bdi></h2>'
        "<p>Models that have seen nothing but moves. A probe reads the board out of their stream; an edit writes a"
        " different one into it, and the moves that follow are held to the rules.</p>\n"
        f"{table.read_text() if table.exists() else ''}\n"
        f'<div class="figures boards">{figures}</div></section>'
    )
