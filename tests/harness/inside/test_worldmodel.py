"""`ladder worldmodel` on runs: what is written, what a model says behind a prefix, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from chomsky_ladder.harness.cli import main as cli
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.inside.settings import WorldModelSettings
from chomsky_ladder.harness.inside.worldmodel import metrics, reader, world_model_run
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.train.loop import execute
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.encoder import EncoderConfig
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.models.transformer import TransformerConfig
from chomsky_ladder.tasks.bucket_sort import BucketSort
from chomsky_ladder.tasks.othello import Othello
from chomsky_ladder.tasks.parity import Parity

torch.set_num_threads(1)

SMALL = WorldModelSettings(pairs=8, walks=2, depth=2)
TRAIN = Train(steps=3, batch=4, lengths=(3, 20), precision="fp32")
EVAL = Eval(lengths=(3, 20), bins=(3, 20), extrapolate=(), test=8, validation=4, every=0)
PARITY = Run(task=Parity(), model=LSTMConfig(d_model=8, num_blocks=1), train=TRAIN, eval=EVAL)
OTHELLO = Run(
    task=Othello(size=6),
    model=TransformerConfig(d_model=16, num_blocks=1, num_heads=2),
    train=replace(TRAIN, lengths=(60, 60)),
    eval=replace(EVAL, lengths=(60, 60), bins=(60,)),
)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    for run in (PARITY, OTHELLO):
        execute(run, Exec(results=folder, device="cpu"), quiet=True)
    return folder


@pytest.mark.full
@pytest.mark.parametrize("run", [PARITY, OTHELLO], ids=["parity", "othello"])
def test_two_times_give_the_same_file(results: Path, run: Run) -> None:
    folder = RunFolder(results, run.run_id)
    tree = world_model_run(folder, SMALL, device="cpu")
    path = folder.path / "worldmodel.json"
    first = path.read_bytes()
    assert json.loads(first) == tree
    world_model_run(folder, SMALL, device="cpu")
    assert path.read_bytes() == first
    assert (tree["run_id"], tree["step"], tree["kind"]) == (run.run_id, 3, "worldmodel")
    for network in ("model_metrics", "random_network_metrics"):
        for metric in tree[network].values():
            assert metric["mean"] is None or 0 <= metric["mean"] <= 1
            assert metric["pairs"] <= 8


def test_what_is_said_behind_a_string_does_not_depend_on_its_neighbours() -> None:
    model = OTHELLO.model.build(len(OTHELLO.task.vocab)).eval()
    tokens_BL = torch.tensor([[5, 6, 7, 0, 0], [9, 3, 2, 8, 1]])
    with torch.no_grad():
        together_BV = reader(OTHELLO, model)(tokens_BL, torch.tensor([3, 5]))
        alone = [model(tokens_BL[None, row, :end], Context())[0, -1] for row, end in ((0, 3), (1, 5))]
    torch.testing.assert_close(together_BV, torch.stack(alone).double(), atol=1e-5, rtol=1e-5)


def test_a_trained_parity_model_tells_its_states_apart() -> None:
    """A network whose logits are those of a machine, put where the model would be."""

    class Perfect(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))

        def forward(self, tokens_BL: torch.Tensor, ctx: Context) -> torch.Tensor:
            odd_BL = (tokens_BL == 2).cumsum(1) % 2
            return torch.nn.functional.one_hot(odd_BL + 1, 3) * self.scale

    found = metrics(PARITY, Perfect(), WorldModelSettings(pairs=20))
    assert {name: (metric["mean"], metric["se"]) for name, metric in found.items()} == dict.fromkeys(found, (1.0, 0.0))


def test_the_command(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--results", str(results), "--worldmodel.pairs", "6", "--device", "cpu"]
    assert cli.main(["worldmodel", "parity-lstm", *options]) == 0
    said = capsys.readouterr().out
    assert PARITY.run_id in said and "distinction recall" in said and "random network" in said
    assert cli.main(["worldmodel", "parity-lstm", *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["pairs"] == 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "no run 'nothing'"),
        (["parity-lstm", "--worldmodel.pairs", "0"], "pairs must be at least 1"),
        (["parity-lstm", "--worldmodel.eps", "1"], "eps must lie in"),
    ],
)
def test_mistakes(results: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert cli.main(["worldmodel", *words, "--results", str(results)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_what_has_no_world_or_reads_ahead_is_refused() -> None:
    encoder = replace(PARITY, model=EncoderConfig(d_model=8, num_blocks=1, num_heads=2))
    with pytest.raises(ValueError, match="reads ahead"):
        metrics(encoder, encoder.model.build(3), SMALL)
    sorting = replace(PARITY, task=BucketSort())
    with pytest.raises(ValueError, match="neither a game nor an automaton"):
        metrics(sorting, sorting.model.build(len(sorting.task.vocab)), SMALL)
