"""Layers taken away: what costs nothing, what costs all, and the mean that stands in the place of a layer."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.cli.ablate import ablate as command
from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.registry import find_model, find_task
from chomsky_ladder.harness.inside.ablate import COLUMNS, _heard, _replaced, ablated, parts_of
from chomsky_ladder.harness.inside.streams import Trained
from chomsky_ladder.harness.train.build import build_model
from chomsky_ladder.harness.train.evaluate import Evaluator
from chomsky_ladder.harness.train.forward import context
from chomsky_ladder.harness.train.loop import execute
from chomsky_ladder.models.backbone import Backbone
from chomsky_ladder.models.block import Context
from chomsky_ladder.tasks.draw import Draw
from support.cases import some
from support.run_and_refusal import MODELS
from support.small_runs import small

BOTH = "block 1: LSTMLayer", "block 2: Attention"


def fresh(model: str = "hybrid", **settings: Any) -> Trained:
    (run,) = small(model)
    run = replace(run, model=replace(run.model, **settings))
    return Trained(run, build_model(run, torch.device("cpu")).eval(), 0)


def accuracies(result: dict[str, Any], part: str) -> list[float]:
    return [row["accuracy"] for row in result["rows"] if row["without"] == part]


@pytest.mark.parametrize("settings", [{}, {"short_conv": 4}, {"short_conv": 4, "feedback": "mixer"}])
def test_the_layers_of_a_hybrid_have_the_names_of_their_kinds(settings: dict[str, Any]) -> None:
    names = [part.name for part in parts_of(fresh(**settings).model)]
    assert names == [BOTH[0], "block 1: SwiGLU", BOTH[1], "block 2: SwiGLU"]


def test_a_layer_that_says_the_same_everywhere_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = fresh()
    attention = parts_of(trained.model)[2].module
    monkeypatch.setattr(
        attention, "forward", lambda x_BLD, ctx: torch.arange(x_BLD.shape[-1]).expand_as(x_BLD).double()
    )
    result = ablated(trained)
    assert accuracies(result, BOTH[1]) == accuracies(result, "nothing")
    assert len(accuracies(result, "nothing")) == 2  # at training lengths, and in one bin


def test_a_layer_that_alone_knows_the_answer_costs_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last layer writes the state, which is the answer, in the direction that the head reads as its token."""
    trained = fresh()
    model, task = trained.model, trained.run.task
    heard: list[Tensor] = []
    model.embedding.register_forward_pre_hook(lambda _, given: heard.append(given[0]))
    first = task.answers[0]

    def knows(x_BLD: Tensor, ctx: Context) -> Tensor:
        return 1e4 * model.head.weight[first + task.state(heard[-1])[..., 0]].detach()

    torch.nn.init.orthogonal_(model.head.weight)
    monkeypatch.setattr(parts_of(model)[3].module, "forward", knows)
    result = ablated(trained)
    assert accuracies(result, "nothing") == accuracies(result, BOTH[0]) == accuracies(result, BOTH[1]) == [1.0, 1.0]
    assert max(accuracies(result, "block 2: SwiGLU")) < 0.7


def test_nothing_taken_away_is_the_score_of_the_run() -> None:
    trained = fresh()
    evaluator = Evaluator(trained.run, trained.model, device=torch.device("cpu"), backend="auto")
    scores = [evaluator.in_distribution().accuracy(), evaluator.test().accuracy()]
    assert accuracies(ablated(trained), "nothing") == pytest.approx(scores)


def test_the_mean_is_over_positions_inside_strings() -> None:
    trained = fresh()
    part = parts_of(trained.model)[2]

    def places(x_BLD: Tensor, ctx: Context) -> Tensor:
        return torch.arange(x_BLD.shape[1])[:, None].expand_as(x_BLD).double()

    part.module.forward = places
    draw, lengths_B = Draw(seed=0, split="test", rows_B=torch.arange(3)), torch.tensor([3, 8, 5])
    batch = trained.run.task.sample(draw, lengths_B, 10)
    with torch.no_grad(), _heard([part]) as (mean,):
        trained.model(batch.tokens_BL, context(batch, backend="auto"))
    assert mean.count == batch.length_B.sum()
    expected = sum(sum(range(length)) for length in batch.length_B.tolist()) / mean.count
    assert torch.allclose(mean.total_D / mean.count, torch.full_like(mean.total_D, expected))
    with torch.no_grad(), _replaced(part, mean.total_D / mean.count):
        assert part.module(torch.zeros(1, 2, 16), Context()).unique().tolist() == pytest.approx([expected])
    assert not part.module._forward_hooks


def test_a_block_without_such_layers_is_taken_away_whole() -> None:
    trained = fresh("slice")
    (whole, *_) = parts_of(trained.model)
    assert (whole.name, whole.adds) == ("block 1", False)
    config: Any = trained.run.model
    mean_D = torch.arange(config.d_model).double()
    x_BLD = torch.randn(2, 3, config.d_model, dtype=torch.float64)
    with torch.no_grad(), _replaced(whole, mean_D):
        assert torch.allclose(whole.module.double()(x_BLD, Context()), x_BLD + mean_D)


@pytest.mark.parametrize("name", some(sorted(config.name for config in MODELS), always=("looped_transformer", "lstm")))
def test_every_model_with_a_stream_can_be_ablated(name: str) -> None:
    run = replace(small()[0], model=find_model(name).tiny())
    model = build_model(run, torch.device("cpu")).eval()
    if not isinstance(model, Backbone):
        with pytest.raises(ValueError, match="has no residual stream"):
            parts_of(model)
        return
    result = ablated(Trained(run, model, 0))
    assert len(result["parts"]) > 1 and len(result["rows"]) == 2 * len(result["parts"])
    assert not any(part.module._forward_hooks for part in parts_of(model))


def test_answers_that_are_read_back_are_refused() -> None:
    task = replace(find_task("repetition")(), decode="teacher")
    run = replace(small()[0], task=task, model=find_model("lstm_block").tiny())
    with pytest.raises(ValueError, match="reads its own answers, token by token"):
        ablated(Trained(run, build_model(run, torch.device("cpu")).eval(), 0))


def test_the_command_prints_and_keeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = small("hybrid", seeds=1, steps=2)
    execute(run, Exec(results=tmp_path, device="cpu"), quiet=True)
    words = [run.run_id, "--results", str(tmp_path), "--device", "cpu", "--csv", str(tmp_path / "without.csv")]
    assert command(words) == 0
    said = capsys.readouterr().out
    assert f"{run.run_id} at step 2: accuracy without" in said and BOTH[1] in said and "training" in said
    assert command([*words, "--json"]) == 0  # a second time, in the place of the first
    result = json.loads(capsys.readouterr().out)
    kept = pd.read_csv(tmp_path / "without.csv")
    assert list(kept.columns) == list(COLUMNS) and len(kept) == len(result["rows"]) == 10
    assert list(kept["accuracy"]) == pytest.approx([row["accuracy"] for row in result["rows"]], abs=1e-6)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "needs a RUN_ID"),
        (["some", "--csv", "far.txt"], r"--csv far\.txt: name a \.csv"),
        (["some"], "some"),
    ],
)
def test_mistakes_of_the_command(words: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        command([*words, "--results", str(tmp_path)])
