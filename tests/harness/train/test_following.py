"""The losses on what comes next, held against sums by hand."""

from dataclasses import replace
from math import exp, log
from typing import Any

import pytest
import torch

from chomsky_ladder.harness.config.protocols import identity_of, preset_run
from chomsky_ladder.harness.config.registry import find_model, find_task
from chomsky_ladder.harness.config.run import Run, Train
from chomsky_ladder.harness.train.distributed import make_pack
from chomsky_ladder.models.block import Context
from support.oracles_flare import ALPHABETS, is_in

CPU = torch.device("cpu")
TRAIN = Train(steps=20, batch=12, lengths=(2, 9), lr=1e-2, precision="fp64", warmup=0.0)
TASKS = (("flare_regular", "parity"), ("flare_context_free", "marked-reversal"), ("flare_regular", "dyck-2-3"))


def run_of(task: str, language: str, *, model: str = "gru", seed: int = 0, **train: Any) -> Run:
    made = find_task(task)(language=language, count="input")  # type: ignore[call-arg]
    return Run(task=made, model=find_model(model).tiny(), train=replace(TRAIN, **train), seed=seed)


@pytest.mark.parametrize(("task", "language"), TASKS)
@pytest.mark.parametrize("weights", [{"next_symbol": 0.7}, {"next_set": 0.3}, {"next_symbol": 2.0, "next_set": 0.5}])
def test_the_loss_is_the_sum_by_hand(task: str, language: str, weights: dict[str, float]) -> None:
    run = run_of(task, language, **weights)
    pack, plain = (make_pack([one], device=CPU, backend="auto") for one in (run, run_of(task, language)))
    step, symbols = torch.tensor(1), ALPHABETS[language].split()
    batch = pack.draw(step, 9)
    may_follow = run.task.may_follow(batch).tolist()
    _, (found,), metrics = pack.gradients(step, batch)
    _, (answers,), _ = plain.gradients(step, batch)
    logits = pack.models[0](batch.tokens_BL, Context()).tolist()
    each = {"next_symbol": [], "next_set": []}  # type: ignore[var-annotated]
    for row, (tokens, length) in enumerate(zip(batch.tokens_BL.tolist(), batch.length_B.tolist(), strict=True)):
        string = tokens[:length]
        if not is_in(language, [symbols[token - 1] for token in string]):
            continue
        one, sets = 0.0, 0.0
        for place in range(length):
            said = logits[row][place][: len(symbols) + 1]  # the end, then the symbols
            target = string[place + 1] if place + 1 < length else 0
            one -= said[target] - log(sum(map(exp, said)))
            for token, value in enumerate(said):
                chance = 1 / (1 + exp(-value))
                sets -= log(chance if may_follow[row][place][token] else 1 - chance)
        each["next_symbol"].append(one / length)
        each["next_set"].append(sets / length / (len(symbols) + 1))
    assert len(each["next_set"]) >= 2
    expected = {name: weight * sum(each[name]) / len(each[name]) for name, weight in weights.items()}
    assert {name: value.item() for name, value in metrics.items()} == pytest.approx(expected)
    assert found.item() == pytest.approx(answers.item() + sum(expected.values()))


def test_runs_of_a_pack_have_the_losses_of_runs_alone() -> None:
    runs = [run_of("flare_regular", "dyck-2-3", seed=seed, next_symbol=1.0, next_set=0.5) for seed in range(3)]
    together = make_pack(runs, device=CPU, backend="auto")
    alone = [make_pack([run], device=CPU, backend="auto") for run in runs]
    for pack in (together, *alone):
        for _ in range(4):
            pack.advance(9)
    for row, pack in enumerate(alone):
        torch.testing.assert_close(together.weight_RP[row], pack.weight_RP[0])


@pytest.mark.full
def test_a_language_is_learnt_as_its_strings_are_recognised() -> None:
    """The next symbol is certain in (ab)*, so the loss falls to that of the unknown end alone."""
    task = find_task("regular")(pattern="(ab)*", count="input")  # type: ignore[call-arg]
    train = Train(steps=150, batch=32, lengths=(2, 10), lr=1e-2, next_symbol=1.0)
    pack = make_pack([Run(task=task, model=find_model("gru")(d_model=16), train=train)], device=CPU, backend="auto")
    losses = []
    for _ in range(150):
        pack.advance(10)
        losses.append(pack.seen()[0].metrics["next_symbol"])
    assert losses[0] > 0.9 and losses[-1] < 0.45


def test_a_task_that_does_not_say_what_may_follow_is_refused() -> None:
    with pytest.raises(ValueError, match="reverse_string does not say what may follow in its strings"):
        Run(task=find_task("reverse_string")(), model=find_model("gru").tiny(), train=replace(TRAIN, next_set=1.0))
    with pytest.raises(ValueError, match=r"train\.next_symbol is a weight, not negative: -1"):
        replace(TRAIN, next_symbol=-1.0)


def test_the_weights_are_in_the_label() -> None:
    run = preset_run("flare_regular", "lstm", protocol="flare")
    run = replace(run, train=replace(run.train, next_symbol=0.5, next_set=2.0))
    assert identity_of(run).protocol == "flare (train.next_symbol=0.5, train.next_set=2.0)"
