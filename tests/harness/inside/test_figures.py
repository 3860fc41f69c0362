"""Pictures of boards and layers: their data against a plain board, what is drawn of it, the same bytes every time."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.parts import replaced
from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.figures.style import INK, save, style
from chomsky_ladder.harness.inside import draw_boards as figure_boards
from chomsky_ladder.harness.inside import draw_layers as figure_layers
from chomsky_ladder.harness.inside import figure_data as tables
from chomsky_ladder.harness.inside import figures as board_figures
from chomsky_ladder.harness.inside.figures import _first_seeds, glance, labels_of
from chomsky_ladder.harness.inside.intervene import intervene_run
from chomsky_ladder.harness.inside.probe import load_probe, probe_run
from chomsky_ladder.harness.inside.settings import InterveneSettings, ProbeSettings
from chomsky_ladder.harness.inside.streams import load_trained
from chomsky_ladder.harness.inside.study import runs_of
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.train.loop import execute
from chomsky_ladder.tasks.othello import Othello
from support.oracles_othello import Game

torch.set_num_threads(1)

TASK = Othello(size=6)
RUN = runs_of("smoke", ["lstm"])[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that was trained for a moment, probed and edited."""
    results = tmp_path_factory.mktemp("results")
    execute(RUN, Exec(results=results, device="cpu"), quiet=True)
    made = RunFolder(results, RUN.run_id)
    probe_run(made, ProbeSettings(games_train=20, games_validation=10, games_test=10, epochs=1, hidden=4), device="cpu")
    intervene_run(made, InterveneSettings(cases_validation=4, cases_test=6, strengths=(1.0,)), device="cpu")
    return made


@pytest.fixture(scope="module")
def game(folder: RunFolder) -> pd.DataFrame:
    return tables.game(load_trained(folder), load_probe(folder.path), number=3)


@pytest.mark.full
def test_the_true_board_is_that_of_a_plain_game(game: pd.DataFrame) -> None:
    plain = Game(6)
    colours = {"B": "black", "W": "white", "": "nobody"}
    for ply, own in game.groupby("ply", sort=True):
        first = own.iloc[0]
        assert first["player"] == colours[plain.player]
        plain.play(first["move"])
        assert first["mover"] == colours[plain.player] and ply == first["ply"]
        stones = {name: {"B": "black", "W": "white", ".": "empty"}[plain.board[p]] for name, p in plain.places.items()}
        assert dict(zip(own["square"], own["true"], strict=True)) == stones
        assert set(own.loc[own["legal"], "square"]) == set(plain.moves)
        assert own["probability"].sum() == pytest.approx(1, abs=0.2)  # but for what goes to the blank
        assert own["confidence"].between(1 / 3 - 1e-6, 1).all()


def test_the_probed_board_is_what_the_probe_says_in_the_movers_colours(folder: RunFolder, game: pd.DataFrame) -> None:
    trained, probes = load_trained(folder), load_probe(folder.path)
    layer = probes.chosen["mine_theirs", "linear"]
    assert set(game["layer"]) == {layer}
    moves = [TASK.vocab.index(own["move"].iloc[0]) for _, own in game.groupby("ply", sort=True)]
    with torch.no_grad():
        stream_BLD = tables.streams_of(trained.model, torch.tensor([moves]))[layer]
    said_LS = probes.read(stream_BLD, layer)[0].tolist()
    for said, (_, own) in zip(said_LS, game.groupby("ply", sort=True), strict=True):
        mover = own["mover"].iloc[0]
        if mover != "nobody":
            other = {"black": "white", "white": "black"}[mover]
            assert list(own["probed"]) == [("empty", mover, other)[label] for label in said]


def patches(ax: Axes, kind: type, colour: str, *, edge: bool = False) -> list[Any]:
    of = (lambda p: p.get_edgecolor()) if edge else (lambda p: p.get_facecolor())
    return [p for p in ax.patches if isinstance(p, kind) and to_hex(of(p)) == to_hex(colour)]


def boards(fig: Figure) -> Iterator[tuple[Axes, Axes]]:
    axes = fig.get_axes()
    yield from zip(axes[::2], axes[1::2], strict=True)


def test_a_game_shows_stones_wrong_squares_and_moves(game: pd.DataFrame) -> None:
    shown = game[game["ply"].isin([3, 8, 20])]
    with style():
        fig = figure_boards.game(shown)
    groups = [own for _, own in shown.groupby("ply", sort=True)]
    for (true, probed), own in zip(boards(fig), groups, strict=True):
        assert len(patches(true, Circle, INK)) == (own["true"] == "black").sum()
        assert len(patches(probed, Circle, INK)) == (own["probed"] == "black").sum()
        assert len(patches(probed, Rectangle, figure_boards.WRONG, edge=True)) == (own["true"] != own["probed"]).sum()
        assert len(patches(true, Circle, figure_boards.LIKELY, edge=True)) == own["legal"].sum()
        dots = [p for p in probed.patches if isinstance(p, Circle) and to_hex(p.get_edgecolor()) == "#ffffff"]
        assert len(dots) == (own["probability"] >= figure_boards.LEAST).sum()
    text = " ".join(t.get_text() for t in fig.texts)
    for own in groups:
        first, wrong = own.iloc[0], (own["true"] != own["probed"]).sum()
        assert f"{first['ply']}. {first['player']} {first['move']}" in text
        assert f"{first['mover']} to move · {f'{wrong} wrong' if wrong else 'all right'}" in text


def test_a_stone_lies_where_its_square_is() -> None:
    cell = {"square": "f2", "legal": True}
    with style():
        ax = Figure().add_axes((0, 0, 1, 1))
        figure_boards._board(ax, 6, "stones", names=True)
        figure_boards._stone(ax, cell, "black")
    (stone,) = patches(ax, Circle, INK)
    assert stone.center == (5.5, 1.5)
    assert ax.get_ylim() == (6, 0)  # row 1 at the top


def test_a_chess_board_has_white_at_the_bottom() -> None:
    men = figure_boards._men(pd.Series(["empty", "white king"]))
    with style():
        ax = Figure().add_axes((0, 0, 1, 1))
        figure_boards._board(ax, 8, men, names=True)
        figure_boards._stone(ax, {"square": "e1", "legal": True}, "white king")
    (king,) = (text for text in ax.texts if text.get_text() == figure_boards.PIECES["white"]["king"])
    assert (men, king.get_position(), ax.get_ylim()) == ("pieces", (4.5, 0.5), (0, 8))


def example(moves: list[int], legal: list[int], edited_legal: list[int]) -> dict[str, Any]:
    board = TASK.state(torch.tensor([moves]))[0, -1].tolist()
    cell = board.index(2)
    edited = [*board[:cell], 1, *board[cell + 1 :]]
    likely, edited_likely = [0.0] * 33, [0.0] * 33
    for token in legal:
        likely[token] = 1 / len(legal)
    edited_likely[legal[0]] = 1.0
    return {
        "moves": moves,
        "square": TASK.squares[cell],
        "cell": cell,
        "from": "theirs",
        "to": "mine",
        "board": board,
        "edited_board": edited,
        "legal": legal,
        "edited_legal": edited_legal,
        "probabilities": likely,
        "edited_probabilities": edited_likely,
        "layer": 1,
        "strength": 2.0,
    }


def test_an_edit_shows_both_boards_and_counts_errors() -> None:
    """White, to move after the first move, sees black's stones as theirs."""
    first = TASK.vocab.index("c2")
    legal = [TASK.vocab.index(name) for name in ("b2", "d2", "b4")]
    data = tables.edits({"run_id": "r", "edits": {"flip": {"examples": [example([first], legal, legal[1:])]}}}, TASK)
    row = data.iloc[0]
    assert (row["mover"], row["from"], row["to"], row["ply"]) == ("white", "black", "white", 1)
    changed = data[data["board_before"] != data["board_after"]]
    assert list(changed["square"]) == [row["edited"]] and list(changed["board_after"]) == ["white"]
    with style():
        fig = figure_boards.edits(data)
    text = " ".join(t.get_text() for t in fig.texts)
    # After: two moves are legal; of the two likeliest one is b2, which is not, so one legal one is missed at least.
    assert "the board · 0 errors" in text and f"{row['edited']}: black to white · " in text
    before, after = fig.get_axes()
    assert len(patches(before, Circle, figure_boards.LIKELY, edge=True)) == 3
    assert len(patches(after, Circle, figure_boards.LIKELY, edge=True)) == 2
    assert len(patches(after, Rectangle, figure_boards.EDITED, edge=True)) == 1
    assert len(patches(after, Circle, figure_boards.WRONG)) == 1  # all the chance is on b2, as dark as can be
    assert figure_boards._errors(data, "after") in ("2 errors", "4 errors")


def test_lines_by_layer_are_those_of_the_files(folder: RunFolder) -> None:
    probed, edited = tables.read(folder), tables.read(folder, tables.INTERVENE)
    data = tables.accuracy([tables.Measured(label, 0, probed) for label in ("one", "two")])
    errors = tables.interventions([tables.Measured(label, 0, edited) for label in ("one", "two")])
    with style():
        accuracy, error = figure_layers.accuracy(data), figure_layers.interventions(errors)
    ax = accuracy.get_axes()[1]
    wanted = [row["cell"] for row in probed["rows"] if (row["view"], row["source"], row["probe"]) == LINEAR]
    assert any(list(line.get_ydata()) == wanted for line in ax.get_lines())
    majority = next(row["cell"] for row in probed["rows"] if row["source"] == "majority")
    assert any(list(line.get_ydata()) == [majority] * 2 for line in ax.get_lines())
    assert len(accuracy.get_axes()) == 2 and len(error.get_axes()) == 4
    flip = edited["edits"]["flip"]
    drawn = [list(line.get_ydata()) for line in error.get_axes()[0].get_lines()]
    for wanted in ([r["error"]["mean"] for r in flip["layers"]], [r["random"]["mean"] for r in flip["layers"]]):
        assert wanted in drawn
    assert [flip["null"]["mean"]] * 2 in drawn
    best = flip["best"]
    said = f"flip: {flip['null']['mean']:.2f} unedited, {best['error']['mean']:.2f} edited"
    assert said in [text.get_text() for text in error.texts]


def test_a_line_is_the_mean_of_its_seeds(folder: RunFolder) -> None:
    probed = tables.read(folder)
    assert probed is not None
    better = {**probed, "rows": [{**row, "cell": row["cell"] + 0.1} for row in probed["rows"]]}
    data = tables.accuracy([tables.Measured("one", seed, result) for seed, result in enumerate((probed, better))])
    with style():
        fig = figure_layers.accuracy(data)
    (ax,) = fig.get_axes()
    wanted = [row["cell"] + 0.05 for row in probed["rows"] if (row["view"], row["source"], row["probe"]) == LINEAR]
    assert any(np.allclose(line.get_ydata(), wanted) for line in ax.get_lines() if len(line.get_ydata()) == len(wanted))
    chosen = next(
        row for row in probed["rows"] if (row["view"], row["source"], row["probe"]) == LINEAR and row["chosen"]
    )
    text = [text.get_text() for text in fig.texts]
    assert f"linear {chosen['cell'] + 0.05:.3f} ± 0.071 at layer {chosen['layer']}" in text
    assert any("± deviation of 2 seeds" in line for line in text)


def test_the_title_is_what_was_found() -> None:
    def errors(**edited: float) -> pd.DataFrame:
        rows = [
            {"model": model, "seed": seed, "edit": "flip", "kind": kind, "chosen": True, "mean": mean}
            for model, lowest in edited.items()
            for seed in (0, 1)
            for kind, mean in (("edited", lowest), ("null", 3.0), ("random", 2.5 + seed))
        ]
        return pd.DataFrame(rows)

    assert figure_layers._following(errors(lstm=2.4, gru=2.7)) == ("Errors an edit removes: lstm 20%")
    assert figure_layers._following(errors(gru=2.7)) == "No moves follow an edit of the board"
    both = "Errors an edit removes: gru 50%, lstm 20%"
    assert figure_layers._following(errors(lstm=2.4, gru=1.5)) == both
    rows = [
        {"model": model, "seed": seed, "line": line, "chosen": True, "cell": cell}
        for model, of_model in (("lstm", 1.0), ("gru", 0.8))
        for seed in (0, 1)
        for line, cell in (("linear probe", of_model), ("raw history, linear", 0.9))
    ]
    assert figure_layers._reading(pd.DataFrame(rows)).startswith("Of lstm the stream tells")
    assert figure_layers._reading(pd.DataFrame(rows[4:])).startswith("The moves alone tell")
    assert figure_layers._reading(pd.DataFrame(rows[:4])).startswith("Every model's stream")
    rows[0]["cell"] = 0.5  # on one seed it does not
    assert figure_layers._reading(pd.DataFrame(rows)).startswith("The moves alone tell")


LINEAR = ("mine_theirs", "model", "linear")


def test_all_pictures_of_a_run_are_written_with_their_numbers(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look of boards is tested above, the files of a figure below."""
    for name in ("game", "edits"):
        monkeypatch.setattr(figure_boards, name, lambda data: Figure())
    saved: dict[Path, pd.DataFrame] = {}
    monkeypatch.setattr(board_figures, "save", lambda fig, data, stem: saved.update({stem: data}))
    before = dict(matplotlib.rcParams)
    found = board_figures.write([folder], tmp_path)
    assert dict(matplotlib.rcParams) == before
    own = ["game", "game_every_ply", "flip", "erase"]
    names = ["accuracy_by_layer", "error_by_layer", *(f"{RUN.run_id}/{name}" for name in own)]
    assert [str(picture.stem.relative_to(tmp_path)) for picture in found] == names
    assert list(saved) == [picture.stem for picture in found] and all(picture.title for picture in found)
    assert saved[tmp_path / RUN.run_id / "game"]["ply"].nunique() == board_figures.PLIES
    assert len(saved[tmp_path / "error_by_layer"]) == 2 * (3 + 3 * (RUN.model.num_blocks + 1))


def test_the_same_data_give_the_same_bytes(game: pd.DataFrame, tmp_path: Path) -> None:
    for name in ("one", "other"):
        with style():
            save(figure_boards.game(game[game["ply"] < 2]), game, tmp_path / name)
    for kind in ("png", "svg", "csv"):
        one, other = ((tmp_path / f"{name}.{kind}").read_bytes() for name in ("one", "other"))
        assert one == other


def test_a_run_that_was_asked_nothing_has_no_pictures(tmp_path: Path) -> None:
    other = RunFolder(tmp_path, "other")
    other.path.mkdir(parents=True)
    other.open(RUN)
    assert board_figures.write([other], tmp_path / "figures") == []


def test_names_tell_runs_apart(tmp_path: Path) -> None:
    runs: list[Run] = runs_of("smoke", ["lstm", "gru"], seeds=2)
    longer = replaced(runs[0].train, {"steps": 21}, where="train")
    runs.append(replace(runs[0], train=longer))
    folders = [RunFolder(tmp_path, run.run_id) for run in runs]
    for own, run in zip(folders, runs, strict=True):
        own.open(run)
    assert list(labels_of(folders[:4]).values()) == ["LSTM", "GRU", "LSTM", "GRU"]
    assert _first_seeds(folders[:4]) == folders[:2]
    assert list(labels_of(folders).values()) == [run.run_id for run in runs]


def test_a_glance_goes_from_the_first_ply_to_the_last() -> None:
    assert glance(31)[0] == 1 and glance(31)[-1] == 31 and len(glance(31)) == 12
    assert glance(5) == [1, 2, 3, 4, 5] and glance(1) == [1]
