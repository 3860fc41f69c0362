"""Board games and costs on the page: the studies' numbers unchanged and escaped, and nothing else."""

from pathlib import Path
from typing import Any

from chomsky_ladder.harness.page.html import page
from support.page_studies import HOSTILE, throughput, world
from support.pages import Page, unpacked
from support.records_by_hand import frame, record


def test_a_study_has_its_table_its_boards_and_its_layers(tmp_path: Path) -> None:
    text = page(frame(record()), worlds=world(tmp_path, "cpu"))
    assert HOSTILE not in text
    (found,) = Page(text).data["worlds"]
    assert found["table"] == [["", "floor", "lstm"], ["top-1", "0.1", "0.2"]]
    assert found["verdicts"] == [f"lstm: {HOSTILE}; yes"]
    (game,), (edit,) = found["games"], found["edits"]
    first = game["plies"][0]
    assert (first["true"], first["probed"], first["legal"]) == ("bw..", "bb.w", "1111")
    assert first["sure"] == [99] * 4 and first["next"] == [25] * 4 and game["model"] == f"lstm {HOSTILE}"
    assert edit["cases"][0]["before"] == "bw.." and edit["cases"][0]["after"] == "bb.w"
    layers: dict[str, Any] = found["layers"]["error_by_layer"]
    assert layers["kind"] == ["null"] and layers["layer"] == [None] and layers["mean"] == [3.5]


def test_chess_is_a_study_beside_othello(tmp_path: Path) -> None:
    for game in ("chess", "othello"):
        world(tmp_path, "cpu", game=game)
    othello, chess = Page(page(frame(record()), worlds=tmp_path)).data["worlds"]
    assert (othello["name"], chess["name"]) == ("othello, cpu", "chess, cpu") and chess["game"] == "chess"
    assert chess["games"][0]["plies"][0]["true"] == "kK.." and chess["edits"][0]["cases"][0]["after"] == "kk.K"


def test_a_smoke_run_is_no_result_and_without_a_study_there_is_nothing(tmp_path: Path) -> None:
    assert Page(page(frame(record()), worlds=world(tmp_path, "smoke"))).data["worlds"] == []
    assert page(frame(record()), worlds=tmp_path / "none") == page(frame(record()))


def test_costs_are_those_of_the_path_that_a_user_gets(tmp_path: Path) -> None:
    text = page(frame(record()), throughput=throughput(tmp_path))
    assert HOSTILE not in text
    (machine,) = Page(text).data["throughput"]
    columns = {name: unpacked(column) for name, column in machine["columns"].items()}
    assert set(columns["model"]) == {"lstm", "mamba"} and set(columns["what"]) == {"train", "prefill", "decode"}
    assert columns["tokens_per_s"][0] == 80256 and len(columns["tokens_per_s"]) == 24
    assert machine["grid"]["parameters"] == 100_000 and machine["commit"] == "c"
