"""Probes: what they find where the board is, what they do not where it is not, and who they are compared with."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.config.run import Eval, Train
from chomsky_ladder.harness.inside.probe import load_probe, probe, probe_run
from chomsky_ladder.harness.inside.probe_fit import KINDS, Kind, Stream, fit
from chomsky_ladder.harness.inside.probe_table import majority
from chomsky_ladder.harness.inside.settings import ProbeSettings
from chomsky_ladder.harness.inside.streams import (
    Trained,
    labels_of,
    load_trained,
    stream_positions,
    streams_of,
    strings_of,
)
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.tasks.dyck import Dyck
from chomsky_ladder.tasks.parity import Parity
from chomsky_ladder.tasks.set import DistinctSymbols
from support.cases import full
from support.hand_made_boards import of_hand
from support.othello_runs import BOARD, tiny
from support.othello_runs import refused as refused

SMALL = ProbeSettings(games_train=40, games_validation=15, games_test=20, epochs=2, batch=128, hidden=8)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tiny(tmp_path_factory.mktemp("probed"))
    probe_run(folder, SMALL, device="cpu")
    return folder


def row_of(result: dict, **wanted: object) -> dict:
    (row,) = (row for row in result["rows"] if all(row[key] == value for key, value in wanted.items()))
    return row


def accuracy(trained: Trained, layer: int, kind: Kind, *, games: int, settings: ProbeSettings) -> tuple[float, float]:
    """Return the accuracies of a probe of one layer, and of the most common labels, on the same test games."""
    train, test = (
        strings_of(trained.run, f"probe/{split}", count=count, lengths=(60, 60))
        for split, count in (("train", games), ("test", 100))
    )
    both = [
        (
            Stream(stream_positions(trained.run, trained.model, x)[layer], x.position_N, width=31),
            x.labels["mine_theirs"],
        )
        for x in (train, test)
    ]
    said_NS = fit(*both, kind=kind, sizes=BOARD.state_sizes, settings=settings).probe.read(both[1][0])
    commonest_NS = majority(train, "mine_theirs", test, num_classes=3)
    found, commonest = (float((x == both[1][1]).double().mean()) for x in (said_NS, commonest_NS))
    return found, commonest


def test_a_board_in_the_stream_is_read_without_error() -> None:
    settings = ProbeSettings(epochs=6, batch=64)
    assert accuracy(of_hand("board"), 1, "linear", games=150, settings=settings)[0] == 1
    result, probes = probe(of_hand("board"), SMALL)
    assert probes.chosen["mine_theirs", "linear"] == 1
    best = row_of(result, view="mine_theirs", source="model", probe="linear", layer=1)
    assert best["chosen"] and best["cell"] > 0.8
    assert len(best["by_position"]) == 31 and len(best["by_cell"]) == 36
    # Whose the stones are does not tell their colours where a pass may have been.
    assert row_of(result, view="black_white", source="model", probe="linear", layer=1)["cell"] < best["cell"] - 0.05
    assert row_of(result, source="shuffled", probe="linear")["cell"] < 0.65
    tokens_BL = strings_of(of_hand("board").run, "probe/validation", count=5, lengths=(60, 60)).batch.tokens_BL
    x_BLD, inside_BL = streams_of(of_hand("board").model, tokens_BL)[1], tokens_BL != 0
    said_BLS = probes.read(x_BLD, 1)
    assert float((said_BLS == BOARD.state(tokens_BL))[inside_BL].double().mean()) > 0.8
    assert torch.equal(probes.read(x_BLD[inside_BL], 1, inside_BL.nonzero()[:, 1]), said_BLS[inside_BL])


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_without_a_board_is_read_as_the_commonest_labels(kind: Kind) -> None:
    settings = ProbeSettings(epochs=5, batch=64, hidden=16)
    found, commonest = accuracy(of_hand("nothing"), 1, kind, games=200, settings=settings)
    assert abs(found - commonest) < 0.01


@pytest.mark.full
@pytest.mark.parametrize("layer", [full(0), full(1), 2])
def test_a_random_network_reads_no_less_than_the_commonest_labels(layer: int, done: RunFolder) -> None:
    settings = ProbeSettings(epochs=3, batch=128)
    found, commonest = accuracy(load_trained(done), layer, "linear", games=300, settings=settings)
    assert found > commonest


@pytest.mark.parametrize(("task", "cells"), [(Parity(), 1), (Dyck(), 2)])
def test_automata_and_stacks(task: object, cells: int, tmp_path: Path) -> None:
    folder = tiny(
        tmp_path,
        task=task,
        train=Train(steps=1, batch=2, lengths=(3, 12)),
        eval=Eval(test=2, validation=2, lengths=(3, 20), bins=(3, 20), extrapolate=()),
    )
    trained = load_trained(folder)
    result, probes = probe(trained, SMALL)
    assert result["views"] == ["state"] and result["board"] is None and len(result["cells"]) == cells
    assert all(row["occupied"] is None for row in result["rows"])
    strings = strings_of(trained.run, "probe/test", count=30, lengths=(3, 12))
    lengths = {len(list(filter(None, row))) for row in strings.batch.tokens_BL.tolist()}
    assert len(strings.string_N) == int((strings.batch.tokens_BL != 0).sum()) and len(lengths) > 3
    labels_NS = strings.labels["state"]
    assert torch.equal(labels_NS, task.state(strings.batch.tokens_BL)[strings.string_N, strings.position_N])
    x_ND = stream_positions(trained.run, trained.model, strings)[2]
    said_NS = probes.read(x_ND, 2, strings.position_N)
    assert bool((said_NS < torch.tensor(task.state_sizes)).all())
    with pytest.raises(ValueError, match="probed up to position 11, not to 12"):
        probes.read(torch.zeros(12, 16), 2)


def test_streams_do_not_depend_on_the_batch(done: RunFolder) -> None:
    trained = load_trained(done)
    strings = strings_of(trained.run, "probe/test", count=7, lengths=(60, 60))
    whole = stream_positions(trained.run, trained.model, strings)
    in_threes = replace(trained.run, eval=replace(trained.run.eval, batch=3))
    for one, other in zip(whole, stream_positions(in_threes, trained.model, strings), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_twice_the_same_and_read_again(done: RunFolder) -> None:
    files = [done.path / name for name in ("probe.json", "probe.ckpt")]
    before = [file.read_bytes() for file in files]
    result = probe_run(done, SMALL, device="cpu")
    assert [file.read_bytes() for file in files] == before
    assert json.loads(before[0]) == result
    trained, probes = load_trained(done), load_probe(done.path)
    assert (probes.run_id, probes.step, probes.num_layers) == (done.path.name, 1, 2)
    assert probes.cells == BOARD.squares and probes.views == ("mine_theirs", "black_white")
    strings = strings_of(trained.run, "probe/test", count=SMALL.games_test, lengths=(60, 60))
    streams = stream_positions(trained.run, trained.model, strings)
    for view, kind in (("mine_theirs", "linear"), ("mine_theirs", "two_layer"), ("black_white", "linear")):
        layer = probes.chosen[view, kind]
        row = row_of(result, view=view, source="model", probe=kind, chosen=True)
        said_NS = probes.read(streams[layer], layer, strings.position_N, view=view, kind=kind)
        assert row["layer"] == layer and row["cell"] == pytest.approx(
            float((said_NS == strings.labels[view]).double().mean()), abs=1e-12
        )
    (against,) = (c for c in result["comparisons"] if (c["probe"], c["against"]) == ("two_layer", "majority"))
    ours, theirs = (
        row_of(result, view="mine_theirs", probe=kind, chosen=True, source=source)["cell"]
        for kind, source in (("two_layer", "model"), ("none", "majority"))
    )
    assert against["mean"] == pytest.approx(ours - theirs, abs=1e-3)  # all games but those that end early are as long
    assert against["games"] == 20


def test_what_cannot_be_probed(refused: Callable[..., str], tmp_path: Path, done: RunFolder) -> None:
    where = ("--results", str(tmp_path))
    short = {"lengths": (3, 12)}
    settings = {
        "train": Train(steps=1, batch=2, **short),
        "eval": Eval(test=2, validation=2, bins=(3, 12), extrapolate=(), **short),
    }
    folder = tiny(tmp_path, task=DistinctSymbols(), **settings)
    assert "set defines no state" in refused("probe", folder.path.name, *where)
    folder = tiny(tmp_path, task=Parity(), **settings)
    (folder.path / "result.json").rename(folder.path / "elsewhere")
    assert "is not done yet: only a finished run is probed" in refused("probe", folder.path.name, *where)
    diverged = json.loads((folder.path / "elsewhere").read_text()) | {"status": "diverged"}
    diverged.pop("sha256")
    (folder.path / "result.json").write_text(json.dumps(diverged))
    assert "has diverged" in refused("probe", folder.path.name, *where)
    assert "no run 'nothing'" in refused("probe", "nothing", *where)
    assert "probe.epochs must be at least 1" in refused("probe", folder.path.name, *where, "--probe.epochs", "0")
    (folder.path / "elsewhere").rename(folder.path / "result.json")
    far = ("--probe.lengths", "1", "1")
    assert "no string of length 1..1" in refused("probe", folder.path.name, *where, *far)
    with pytest.raises(ValueError, match="hand_made has no residual stream"):
        probe(of_hand("no stream"), SMALL)
    with pytest.raises(ValueError, match="has no two_layer probe of black_white at layer 1"):
        load_probe(done.path).read(torch.zeros(1, 16), 1, view="black_white", kind="two_layer")


def test_the_command_says_it_in_a_table_and_in_json(done: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["probe", done.path.name, "--results", str(done.path.parents[1]), "--quiet", "--device", "cpu"]
    words += ["--probe.games-train", "20", "--probe.games-test", "10", "--probe.games-validation", "5"]
    words += ["--probe.epochs", "1", "--probe.hidden", "8"]
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    assert "10 test games, fitted to 20" in said
    for name in ("mine/theirs", "black/white", "random network", "history", "majority", "shuffled", "two layers"):
        assert name in said
    assert cli.main([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result == json.loads((done.path / "probe.json").read_text())
    assert labels_of(BOARD, torch.tensor([[1]])).keys() == set(result["views"])
