"""What the page shows of Othello: the study's table and pictures as they were left, escaped, while there is room."""

import json
from pathlib import Path

import pytest

from chomsky_ladder.harness.figures.names import PICTURES
from chomsky_ladder.harness.page import boards as page_boards
from chomsky_ladder.harness.page.html import page
from support.records_by_hand import frame, record

HOSTILE = "<script>alert(1)</script>"


def study(folder: Path, name: str, pictures: dict[str, int]) -> None:
    """One whose pictures have so many bytes; their titles are hostile."""
    drawn = folder / "figures" / name
    for picture, size in pictures.items():
        (drawn / picture).parent.mkdir(parents=True, exist_ok=True)
        (drawn / f"{picture}.svg").write_bytes(bytes(size))
    listed = [{"title": f"{picture} {HOSTILE}", "picture": picture} for picture in pictures]
    (drawn / PICTURES).write_text(json.dumps(listed))
    (folder / "tables").mkdir(exist_ok=True)
    (folder / "tables" / f"{name}.html").write_text(f'<table class="plain boards"><tr><td>{name}</td></tr></table>')


def test_a_study_has_its_table_and_its_pictures_in_order(tmp_path: Path) -> None:
    study(tmp_path, "cpu", {"accuracy_by_layer": 10, "lstm/game": 20, "lstm/flip": 30})
    study(tmp_path, "smoke", {"accuracy_by_layer": 10})
    text = page(frame(record()), boards=tmp_path)
    assert text.index("<td>cpu</td>") < text.index("accuracy_by_layer") < text.index("lstm/game") < text.index("flip")
    assert text.count('loading="lazy"') == 3 and "<td>smoke</td>" not in text  # a smoke run is no result
    assert '<li><a href="#othello-cpu">Othello, cpu</a></li>' in text
    assert HOSTILE not in text and "&lt;script&gt;alert(1)" in text


def test_every_ply_has_the_room_that_the_others_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_boards, "_ROOM", 400)
    study(tmp_path, "cpu", {"lstm/game_every_ply": 120, "lstm/game": 90, "gru/game": 120})
    (text,) = page_boards.sections(tmp_path)
    assert text.count("<img") == 2
    assert text.count("<figure>") == 2
    assert '<p class="settings">Too large for this page, in othello/figures/cpu: lstm/game_every_ply.png.</p>' in text


def test_without_a_study_there_is_nothing(tmp_path: Path) -> None:
    assert page_boards.sections(tmp_path) == []
    assert page(frame(record()), boards=tmp_path) == page(frame(record()))
