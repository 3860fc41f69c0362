"""Tasks with one answer a string: losses, gradients and scores are those of a model that makes every position's."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from chomsky_ladder.harness.config.registry import find_model
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.train.evaluate import Evaluator
from chomsky_ladder.harness.train.evaluate_pack import PackEvaluator
from chomsky_ladder.harness.train.forward import loss_of
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.harness.train.workable import refuse_mistaken
from chomsky_ladder.models.block import Context
from chomsky_ladder.tasks.base import Task
from chomsky_ladder.tasks.dyck import Dyck
from chomsky_ladder.tasks.flare_regular import FlareRegular
from chomsky_ladder.tasks.layout import Classification
from chomsky_ladder.tasks.parity import Parity
from chomsky_ladder.tasks.qa_places import QaPlaces
from chomsky_ladder.tasks.reverse_string import ReverseString
from chomsky_ladder.tasks.word_problem import WordProblem

torch.set_num_threads(1)

CPU = torch.device("cpu")
TRAIN = Train(steps=6, batch=6, lengths=(3, 12), lr=1e-2, precision="fp64")
SCORE = Eval(lengths=(10, 24), test=40, validation=16, every=10, bins=(10, 16, 24), extrapolate=(30,), extrapolation=8)
MODELS = ["transformer", "moe", "lstm", "lstm_block", "xlstm", "rwkv6", "gated_delta_net"]


def run_of(model: str, task: Task, *, train: Train = TRAIN) -> Run:
    return Run(task=task, model=find_model(model).tiny(), train=train, eval=SCORE)


def heard(pack: Pack, monkeypatch: pytest.MonkeyPatch) -> list[Context]:
    """The contexts that its first model is given from now on."""
    contexts: list[Context] = []
    forward = type(pack.models[0]).forward

    def listening(self: object, tokens_BL: torch.Tensor, ctx: Context) -> torch.Tensor:
        contexts.append(ctx)
        return forward(self, tokens_BL, ctx)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(type(pack.models[0]), "forward", listening)
    return contexts


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("model", MODELS)
def test_gradients_are_those_of_all_positions(model: str, replicas: int) -> None:
    base = run_of(model, Parity())
    runs = [replace(base, seed=seed) for seed in range(replicas)]
    found = []
    for once in (True, False):
        pack = Pack(runs, device=CPU, backend="auto")
        assert pack.asks_once
        pack.asks_once = once
        found.append(pack.gradients(pack.step_number, pack.draw(pack.step_number, 12)))
    (gradient_RP, loss_R, metrics), (of_all_RP, of_all_R, of_all) = found
    torch.testing.assert_close(loss_R, of_all_R, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient_RP, of_all_RP, rtol=1e-9, atol=1e-13)
    torch.testing.assert_close(metrics, of_all, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("task", "asks_once"),
    [
        (Parity(), True),
        (Dyck(), True),
        (QaPlaces(), True),
        (WordProblem(supervision="final"), True),
        (WordProblem(supervision="final", asks="every"), False),
        (Parity(supervision="dense"), False),
        (ReverseString(), False),
    ],
)
def test_a_task_with_other_targets_is_asked_for_all(task: Task, asks_once: bool) -> None:
    pack = Pack([run_of("lstm", task)], device=CPU, backend="auto")
    assert task.asks_once == pack.asks_once == asks_once


def test_losses_of_what_follows_are_of_all_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    train = replace(TRAIN, next_symbol=0.5)
    pack = Pack([run_of("lstm", FlareRegular(language="parity"), train=train)], device=CPU, backend="auto")
    contexts = heard(pack, monkeypatch)
    pack.advance(12)
    assert [ctx.asked_B for ctx in contexts] == [None]
    assert FlareRegular(language="parity").asks_once


def test_a_task_that_draws_its_own_strings_is_asked_for_all() -> None:
    class Own(Parity):
        def sample(self, *given: object) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
            return super().sample(*given)  # pyright: ignore[reportArgumentType]

    assert isinstance(Own(), Classification)
    assert not Own().asks_once


@pytest.mark.parametrize("model", MODELS)
def test_scores_are_those_of_all_positions(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = Pack([run_of(model, Parity(supervision="dense"))], device=CPU, backend="auto")
    found = []
    for once in (True, False):
        evaluator = Evaluator(pack.run, pack.models[0], device=CPU, backend="auto")
        assert evaluator.asks_once, "what is scored is the last answer alone, whatever was trained on"
        evaluator.asks_once = once
        found.append(evaluator.scores())
    alone, of_all = found
    assert alone.test.hits == of_all.test.hits
    assert alone.test.scored == of_all.test.scored == alone.test.strings
    assert alone.test.nats == pytest.approx(of_all.test.nats, rel=1e-9)
    assert alone.extrapolation[30].correct == of_all.extrapolation[30].correct
    contexts = heard(pack, monkeypatch)
    Evaluator(pack.run, pack.models[0], device=CPU, backend="auto").validation()
    assert contexts
    assert all(ctx.asked_B is not None for ctx in contexts)


def test_a_model_may_say_all_positions_all_the_same() -> None:
    pack = Pack([run_of("lstm", Parity())], device=CPU, backend="auto")
    model, batch = pack.models[0], pack.draw(pack.step_number, 12)

    def whole(tokens_BL: torch.Tensor, ctx: Context) -> torch.Tensor:
        return model(tokens_BL, replace(ctx, asked_B=None))

    ctx = pack.context(batch)
    losses = [loss_of(each(batch.tokens_BL, ctx), batch, ctx) for each in (model, whole)]
    torch.testing.assert_close(*losses, rtol=1e-12, atol=0)


@pytest.mark.parametrize("supervision", ["final", "dense"])
def test_somebodys_own_task_that_asks_more_than_once_is_refused(supervision: str) -> None:
    class Honest(Parity):
        asks_once = supervision == "final"  # pyright: ignore[reportAssignmentType]

    class Mistaken(ReverseString):
        asks_once = True  # pyright: ignore[reportAssignmentType]

    refuse_mistaken(Honest(supervision=supervision))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="reverse_string says that it asks_once, which is for one answer a string"):
        refuse_mistaken(Mistaken())


def test_scores_of_a_pack_are_those_of_its_models() -> None:
    runs = [replace(run_of("transformer", Parity()), seed=seed) for seed in range(3)]
    pack = Pack(runs, device=CPU, backend="auto")
    together = PackEvaluator(pack, backend="auto").validation()
    for row, score in enumerate(together):
        alone = Evaluator(runs[row], pack.models[row], device=CPU, backend="auto").validation()
        assert score.hits == alone.hits
        assert score.nats == pytest.approx(alone.nats, rel=1e-9)


def test_a_frozen_set_is_asked_for_all(tmp_path: Path) -> None:
    run = run_of("lstm", Parity())
    frozen = replace(run, eval=replace(run.eval, file=str(tmp_path / "set"), file_sha256="0" * 64))
    model = Pack([run], device=CPU, backend="auto").models[0]
    assert not Evaluator(frozen, model, device=CPU, backend="auto").asks_once
