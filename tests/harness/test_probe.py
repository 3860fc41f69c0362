"""Probes: what they find where the board is, what they do not where it is not, and who they are compared with."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pytest
import torch
from oracles_othello import Game
from torch import Tensor, nn

from harness import cli
from harness.config import Eval, Exec, Run, Train
from harness.probe import load_probe, probe, probe_run
from harness.probe_fit import KINDS, History, Kind, ProbeSettings, Stream, fit
from harness.probe_streams import Strings, Trained, labels_of, load_trained, stream_positions, streams_of, strings_of
from harness.probe_table import Reading, labels_of_others, majority, paired
from harness.records import RunFolder
from harness.train import execute
from models.base import Block, Context, ModelConfig
from models.lstm_block import LSTMBlockConfig
from tasks.dyck import Dyck
from tasks.othello import Othello
from tasks.parity import Parity
from tasks.set import DistinctSymbols

SMALL = ProbeSettings(games_train=40, games_validation=15, games_test=20, epochs=2, batch=128, hidden=8)
BOARD = Othello(size=6)
WHOLE = {"lengths": (60, 60)}


@dataclass(frozen=True, kw_only=True)
class HandMadeConfig(ModelConfig):
    """A stream with the board in black and white in it, or with nothing but which position it is."""

    name, family, year, paper = "hand_made", "test", 2026, "none"
    d_model: int = 36 * 3
    holds: str = "board"

    def block(self, layer: int) -> Block:
        raise NotImplementedError

    def build(self, vocab_size: int) -> "HandMade":
        return HandMade(self)


class HandMade(nn.Module):
    num_layers = 1

    def __init__(self, config: HandMadeConfig) -> None:
        super().__init__()
        self.config, self.weight = config, nn.Parameter(torch.ones(()))

    def forward(self, tokens_BL: Tensor, ctx: Context) -> Tensor:
        batch, length = tokens_BL.shape
        if self.config.holds == "nothing":
            x_BLD = torch.eye(length, self.config.d_model).expand(batch, -1, -1)
        else:
            x_BLD = nn.functional.one_hot(BOARD.state(tokens_BL), 3).flatten(2).float() + 5
        if self.config.holds != "no stream":
            ctx.visit(0, torch.zeros_like(x_BLD))
        return self.weight * ctx.visit(1, x_BLD)


def of_hand(holds: str) -> Trained:
    run = Run(task=BOARD, model=HandMadeConfig(holds=holds), train=Train(**WHOLE), eval=Eval(**WHOLE, bins=(60,)))
    return Trained(run, run.model.build(33).eval(), 1)


def tiny(results: Path, **parts: object) -> RunFolder:
    """A run of one step, done."""
    run = Run(
        task=BOARD,
        model=LSTMBlockConfig(d_model=16, num_blocks=2),
        train=Train(steps=1, batch=2, **WHOLE),
        eval=Eval(test=2, validation=2, bins=(60,), extrapolate=(), **WHOLE),
    )
    run = replace(run, **parts)
    execute(run, Exec(results=results, device="cpu"), quiet=True)
    return RunFolder(results, run.run_id)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tiny(tmp_path_factory.mktemp("probed"))
    probe_run(folder, SMALL, device="cpu")
    return folder


def row_of(result: dict, **wanted: object) -> dict:
    (row,) = (row for row in result["rows"] if all(row[key] == value for key, value in wanted.items()))
    return row


def some_strings(count: int = 30) -> Strings:
    return strings_of(of_hand("board").run, "probe/test", count=count, lengths=(60, 60))


def test_labels_are_those_of_a_slow_board_at_every_move() -> None:
    strings, places = some_strings(80), list(BOARD.squares)
    position_of = list(zip(strings.string_N.tolist(), strings.position_N.tolist(), strict=True))
    seen, passes = 0, 0
    for game, tokens_L in enumerate(strings.batch.tokens_BL.tolist()):
        slow = Game(6)
        for position, token in enumerate(filter(None, tokens_L)):
            slow.play(BOARD.vocab[token])
            row = position_of.index((game, position))
            assert strings.labels["mine_theirs"][row].tolist() == slow.labels(slow.viewer), (game, position)
            assert strings.labels["black_white"][row].tolist() == slow.labels("B")
            seen += 1
        passes += slow.passes
    assert seen == len(position_of) and passes > 3
    assert places == list(slow.places)


def test_the_splits_are_three() -> None:
    run = of_hand("board").run
    splits = [strings_of(run, f"probe/{name}", count=50, lengths=(60, 60)) for name in ("train", "validation", "test")]
    games = [set(map(tuple, split.batch.tokens_BL.tolist())) for split in splits]
    assert not games[0] & games[1] and not games[0] & games[2] and not games[1] & games[2]
    again = strings_of(replace(run, seed=7), "probe/test", count=50, lengths=(60, 60))
    assert torch.equal(again.batch.tokens_BL, splits[2].batch.tokens_BL)  # the same for every run


def accuracy(trained: Trained, layer: int, kind: Kind, *, games: int, settings: ProbeSettings) -> tuple[float, float]:
    """Of a probe of one layer, and of the commonest labels, on the same test games."""
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


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_without_a_board_is_read_as_the_commonest_labels(kind: Kind) -> None:
    settings = ProbeSettings(epochs=5, batch=64, hidden=16)
    found, commonest = accuracy(of_hand("nothing"), 1, kind, games=200, settings=settings)
    assert abs(found - commonest) < 0.01


def test_a_random_network_reads_no_less_than_the_commonest_labels(done: RunFolder) -> None:
    for layer in range(3):
        settings = ProbeSettings(epochs=3, batch=128)
        found, commonest = accuracy(load_trained(done), layer, "linear", games=300, settings=settings)
        assert found > commonest, layer


def test_accuracies_and_majority_by_hand() -> None:
    train, test = some_strings(30), strings_of(of_hand("board").run, "probe/train", count=20, lengths=(60, 60))
    said_NS = majority(train, "mine_theirs", test, num_classes=3)
    rows = list(zip(test.string_N.tolist(), test.position_N.tolist(), said_NS.tolist(), strict=True))
    labels = test.labels["mine_theirs"].tolist()
    for (_, position, said), cell in product(rows[::17], (0, 7, 14, 35)):
        counts = Counter(train.labels["mine_theirs"][train.position_N == position][:, cell].tolist())
        assert counts[said[cell]] == max(counts.values())
    right = [[a == b for a, b in zip(row[2], label, strict=True)] for row, label in zip(rows, labels, strict=True)]
    found = Reading(said_NS, test.labels["mine_theirs"], test, is_board=True).accuracies()
    flat = [value for row in right for value in row]
    stones = [value for row, label in zip(right, labels, strict=True) for value, c in zip(row, label, strict=True) if c]
    assert found["cell"] == pytest.approx(sum(flat) / len(flat))
    assert found["board"] == pytest.approx(sum(map(all, right)) / len(right))
    assert found["occupied"] == pytest.approx(sum(stones) / len(stones))
    games, positions = {}, {}
    for (game, position, _), row in zip(rows, right, strict=True):
        games.setdefault(game, []).extend(row)
        positions.setdefault(position, []).extend(row)
    means = torch.tensor([sum(values) / len(values) for values in games.values()], dtype=torch.float64)
    assert found["cell_sd_games"] == pytest.approx(float(means.std()))
    assert found["by_position"] == pytest.approx([sum(v) / len(v) for _, v in sorted(positions.items())])
    assert found["by_cell"][7] == pytest.approx(sum(row[7] for row in right) / len(right))


def test_paired_differences_by_hand() -> None:
    found = paired(torch.tensor([3.0, 5.0, 4.0]), torch.tensor([1.0, 1.0, 1.0]))  # differences 2, 4, 3
    assert (found["mean"], found["sd"]) == (3.0, 1.0) and found["se"] == pytest.approx(3**-0.5)
    assert found["mean_over_sd"] == 3.0 and found["mean_over_se"] == pytest.approx(3 * 3**0.5)
    assert paired(torch.ones(4), torch.zeros(4))["mean_over_sd"] is None


def test_shuffled_labels_are_those_of_other_games_at_the_same_move() -> None:
    strings = some_strings(40)
    others_NS, labels_NS = labels_of_others(strings, "mine_theirs", seed=0), strings.labels["mine_theirs"]
    for position in (0, 9, 30):
        rows_N = strings.position_N == position
        found, there = (sorted(map(tuple, x[rows_N].tolist())) for x in (others_NS, labels_NS))
        assert found == there
    assert float((others_NS != labels_NS).any(1).double().mean()) > 0.9
    assert not torch.equal(labels_of_others(strings, "mine_theirs", seed=1), others_NS)


def test_history_by_hand() -> None:
    tokens_BL = torch.tensor([[2, 1, 3, 0], [1, 1, 0, 0]])
    history = History(tokens_BL, torch.tensor([0, 0, 1]), torch.tensor([0, 2, 1]), vocab=4)
    x_ND, position_N = history.rows(torch.arange(3))
    assert position_N.tolist() == [0, 2, 1]
    told = [[(place // 3, place % 3 + 1) for place in row.nonzero()[:, 0].tolist()] for row in x_ND]
    assert told == [[(0, 2)], [(0, 3), (1, 1), (2, 2)], [(0, 1), (1, 1)]]  # (how long ago, which symbol)


@pytest.mark.parametrize("kind", ["linear", "two_layer"])
def test_a_probe_is_fitted_to_what_can_be_separated(kind: str) -> None:
    x_ND = torch.randn(600, 5, generator=torch.Generator().manual_seed(0)) * torch.tensor([1, 4, 1, 1, 1]) + 100
    labels_NS = torch.stack([(x_ND[:, 0] > 100).long(), (x_ND[:, 1] > 100).long() + (x_ND[:, 1] > 104).long()], 1)
    inputs, position_N = Stream(x_ND, torch.arange(600) % 4, width=4), torch.arange(600) % 4
    settings = ProbeSettings(epochs=40, batch=50)
    found = fit((inputs, labels_NS), (inputs, labels_NS), kind=kind, sizes=(2, 3), settings=settings)
    assert found.validation > 0.97
    logits_NSC = found.probe.logits(x_ND, position_N)
    assert logits_NSC.shape == (600, 2, 3) and bool((logits_NSC[:, 0, 2] == -torch.inf).all())  # it has two classes
    if kind == "linear":
        bias_LCS = found.probe.tensors[1].unflatten(1, (3, 2))
        by_hand_N = x_ND @ found.probe.directions[1, 2] + bias_LCS[position_N, 2, 1]
        assert torch.allclose(by_hand_N, logits_NSC[:, 1, 2], atol=1e-3)


def test_what_a_bias_for_each_position_alone_can_know() -> None:
    position_N = torch.arange(1200) % 6
    labels_NS = (position_N[:, None] % 3).long()
    inputs = Stream(torch.zeros(1200, 2), position_N, width=6)
    settings = ProbeSettings(epochs=8, batch=50, hidden=16)
    for kind in ("linear", "two_layer"):
        assert fit((inputs, labels_NS), (inputs, labels_NS), kind=kind, sizes=(3,), settings=settings).validation == 1


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


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def say(*words: str) -> str:
        assert cli.main(words) == 2
        said = capsys.readouterr()
        assert said.out == "" and said.err.count("\n") == 1
        return said.err

    return say


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
