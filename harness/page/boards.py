"""The boards on the page: for each Othello study its table with floors and verdicts, and what its models believe.

    othello/tables/<study>.html               the table, written by harness/inside/table.py
    othello/figures/<study>/pictures.json     the pictures in the order in which one looks at them, with their titles

Both are as the study left them: the page measures nothing and draws nothing.
"""

from html import escape
from pathlib import Path

from chomsky_ladder.harness.figures.names import PICTURES
from chomsky_ladder.harness.page.pictures import Album
from chomsky_ladder.harness.store.files import read_json

_ROOM = 2_600_000  # bytes of pictures, all studies together, as they are embedded
_LAST = ("flip", "erase", "game_every_ply")  # have what room the others leave, in this order


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
    shown = {stem: album.image(stem, f"{title}; Othello, {study}") for stem, title in sorted(pictures, key=_turn)}
    figures = "".join(f"<figure>{shown[stem]}</figure>\n" for stem, _ in pictures if shown[stem])
    left = [f"{stem.relative_to(drawn)}.png" for stem, _ in pictures if shown[stem] is None]
    more = escape(f"Too large for this page, in othello/figures/{study}: {', '.join(left)}.")
    note = f'<p class="settings">{more}</p>' if left else ""
    table = folder / "tables" / f"{study}.html"
    name = escape(study)
    return (
        f'<section class="block" id="othello-{name}" aria-labelledby="othello-title-{name}">'
        f'<h2 id="othello-title-{name}">Othello, the board in the head: <bdi>{name}</bdi></h2>'
        "<p>Models that have seen nothing but moves. A probe reads the board out of their stream; an edit writes a"
        " different one into it, and the moves that follow are held to the rules.</p>\n"
        f"{table.read_text('utf-8') if table.exists() else ''}\n"
        f'<div class="figures boards">{figures}</div>{note}</section>'
    )


def _turn(picture: tuple[Path, str]) -> int:
    name = picture[0].name
    return 1 + _LAST.index(name) if name in _LAST else 0
