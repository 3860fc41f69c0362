"""Scores of a pack at once are those of its models alone; strings are drawn once, and who cannot be stays alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.registry import all_models, find_model, find_task
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.train import evaluate_pack
from chomsky_ladder.harness.train.evaluate import Evaluator
from chomsky_ladder.harness.train.evaluate_pack import PackEvaluator, Together
from chomsky_ladder.harness.train.loop import execute_together
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.harness.train.score import Score
from support.cases import some

CPU = torch.device("cpu")
EVAL = Eval(lengths=(10, 24), test=20, validation=12, every=10, bins=(10, 16, 24), extrapolate=(30,), batch=8)
STACKABLE = [name for name, classes in sorted(all_models().items()) if classes[0].tiny().stackable]


def runs_of(model: str, *, task: str = "cycle_nav", precision: str = "fp64", count: int = 3) -> list[Run]:
    train = Train(steps=20, batch=4, lengths=(3, 12), lr=1e-2, precision=precision)
    made = Run(task=find_task(task)(), model=find_model(model).tiny(), train=train, eval=EVAL)
    return [replace(made, seed=seed) for seed in range(count)]


def pack_of(runs: list[Run], *, steps: int = 2, device: torch.device = CPU) -> Pack:
    pack = Pack(runs, device=device, backend="auto")
    for _ in range(steps):
        pack.advance(12)
    return pack


def alone(pack: Pack, row: int) -> Evaluator:
    return Evaluator(pack.run, pack.models[row], device=pack.device, backend="auto")


def assert_equal(one: Score, other: Score, *, rel: float = 1e-9) -> None:
    counts, expected = one.plain(), other.plain()
    assert counts.pop("nats") == pytest.approx(expected.pop("nats"), rel=rel)
    assert counts == expected


@pytest.mark.full
@pytest.mark.parametrize("model", some(STACKABLE, always=("lstm", "xlstm", "encoder_decoder")))
def test_scores_at_once_are_the_scores_of_each(model: str) -> None:
    pack = pack_of(runs_of(model))
    together = PackEvaluator(pack, backend="auto")
    for row, found in enumerate(together.scores_apart()):
        expected = alone(pack, row).scores()
        for one, other in zip(found[:3], expected[:3], strict=True):
            assert_equal(one, other)
        assert found.extrapolation.keys() == expected.extrapolation.keys() == {30}
        assert_equal(found.extrapolation[30], expected.extrapolation[30])
    accuracies = {score.nats for score in together.validation()}
    assert len(accuracies) == 3, "each its own"


@pytest.mark.parametrize("task", ["flip_flop", "dyck", "othello", "in_context_automata", "binary_addition"])
def test_several_right_answers_metrics_and_slots(task: str) -> None:
    pack = pack_of(runs_of("lstm", task=task))
    for row, found in enumerate(PackEvaluator(pack, backend="auto").validation()):
        assert_equal(found, alone(pack, row).validation())


def test_models_are_as_they_were_and_nothing_is_dropped() -> None:
    runs = [replace(run, model=replace(run.model, dropout=0.5)) for run in runs_of("transformer")]
    pack = pack_of(runs)
    together = PackEvaluator(pack, backend="auto")
    assert together.validation() == together.validation()
    assert all(model.training for model in pack.models)


def test_strings_are_drawn_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, drawn = runs_of("lstm", count=4), []
    sample = type(runs[0].task).sample

    def counted(self: Any, *arguments: Any) -> Any:
        drawn.append(1)
        return sample(self, *arguments)

    pack = pack_of(runs)
    monkeypatch.setattr(type(runs[0].task), "sample", counted)
    PackEvaluator(pack, backend="auto").validation()
    once = len(drawn)
    alone(pack, 0).validation()
    assert len(drawn) == 2 * once == 2 * -(-12 // 8)


def test_weights_are_those_of_now() -> None:
    pack = pack_of(runs_of("gru"))
    together = PackEvaluator(pack, backend="auto")
    before = together.validation()
    pack.advance(12)
    after = together.validation()
    assert [one.nats for one in before] != [one.nats for one in after]
    assert_equal(after[1], alone(pack, 1).validation())


def test_rounded_weights_are_what_is_scored() -> None:
    runs = [replace(run, train=replace(run.train, qat=4)) for run in runs_of("lstm")]
    pack = pack_of(runs)
    for row, found in enumerate(PackEvaluator(pack, backend="auto").validation()):
        assert_equal(found, alone(pack, row).validation())


def test_a_loop_that_scores_together_leaves_the_records_of_one_that_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, results = runs_of("lstm"), {}
    for name, pays in (("alone", False), ("together", True)):
        monkeypatch.setattr(evaluate_pack, "pays", lambda pack, pays=pays: pays)
        settings = Exec(results=tmp_path / name, device="cpu", log_every=10)
        results[name] = execute_together(runs, settings, quiet=True)
    for run, one, other in zip(runs, results["alone"], results["together"], strict=True):
        assert one["validation"]["accuracy"] == other["validation"]["accuracy"]
        assert one["test"]["counts"]["correct"] == other["test"]["counts"]["correct"]
        assert one["extrapolation"].keys() == other["extrapolation"].keys()
        assert other["test"]["loss"] == pytest.approx(one["test"]["loss"], rel=1e-9)
        assert other["seconds"]["validate"] > 0 and other["seconds"]["score"] > 0
        lines = [(RunFolder(tmp_path / name, run.run_id).path / "metrics.jsonl").read_text() for name in results]
        assert lines[0].count('"validation"') == lines[1].count('"validation"') == 2


def test_where_it_does_not_pay_or_fit_each_is_asked_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pack = pack_of(runs_of("lstm"))
    assert Together(pack, Exec()).of(3, PackEvaluator.validation) is None, "on a CPU"
    monkeypatch.setattr(evaluate_pack, "pays", lambda pack: True)
    together = Together(pack, Exec(device="cpu"))
    assert together.of(1, PackEvaluator.validation) is None
    found = together.of(3, PackEvaluator.validation)
    assert found is not None and len(found) == 3

    def full(scoring: PackEvaluator) -> list[Score]:
        raise torch.OutOfMemoryError

    assert together.of(3, full) is None
    assert together.of(3, PackEvaluator.validation) is None, "it is not tried again"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("model", ["lstm", "transformer", "xlstm", "mamba"])
def test_replayed_scores_of_a_pack_are_those_of_each(model: str) -> None:
    pack = pack_of(runs_of(model, precision="fp32"), device=torch.device("cuda"))
    together = PackEvaluator(pack, backend="auto", replayed=True)
    for _ in range(4):
        for row, found in enumerate(together.validation()):
            expected = alone(pack, row).validation()
            assert found.correct == expected.correct and found.nats == pytest.approx(expected.nats, rel=1e-4)
        pack.advance(12)
    assert "replayed.scores" in together.backends


@pytest.mark.parametrize("together", [False, True])
def test_a_run_may_be_validated_at_its_training_lengths(together: bool) -> None:
    pack = pack_of([replace(run, eval=replace(run.eval, validate="training")) for run in runs_of("lstm")])
    found = PackEvaluator(pack, backend="auto").scores_apart()[0] if together else alone(pack, 0).scores()
    usual = alone(pack_of(runs_of("lstm")), 0).scores()
    assert_equal(found.validation, usual.in_distribution)
    assert found.validation == found.in_distribution
    assert_equal(found.test, usual.test)
