"""The command that the page shows of a cell makes that very run, or says what it cannot."""

import shlex

import pytest

from chomsky_ladder.harness.cli.arguments import parse_run
from chomsky_ladder.harness.config.protocols import identity_of
from chomsky_ladder.harness.store.labels import Identity, reproduce
from support.pages import HOSTILE


@pytest.mark.parametrize(
    ("words", "is_told"),
    [
        ("parity lstm --protocol quick --train.lr 0.01 --seed 3", False),
        ("bucket_sort xlstm --protocol xlstm_20k --train.lr 1e-05 --seed 0 --model.ratio 0:1 --model.d-model 64", True),
        (
            "parity hybrid --protocol xlstm --train.lr 0.5 --model.pattern lstm,gru,mamba --model.num-blocks 3",
            True,
        ),
        (
            "parity lstm --protocol slice --train.lr 0.002 --seed 0 --task.supervision final --eval.bins 40 100 256",
            True,
        ),
        (
            "mod_arithmetic mamba --protocol mamba3 --train.lr 0.01 --seed 0 --train.curriculum --train.betas 0.5 0.9",
            True,
        ),
        ("regular lstm --protocol quick --train.lr 0.01 --seed 0 --task.pattern (ab|ba)*a?", True),
    ],
)
def test_the_command_makes_the_very_run(words: str, *, is_told: bool) -> None:
    run = parse_run(words.split())[0]
    command, notes = reproduce(identity_of(run), lr=run.train.lr)
    start, name, *rest = shlex.split(f"{command} --seed {run.seed}")
    assert (start, name) == ("ladder", "run") and parse_run(rest)[0].run_id == run.run_id
    told = [note for note in notes if ": another version of the code may have another" not in note]
    assert len(told) == is_told and all("the options say so" in note for note in told)


def of_labels(protocol: str, task: str, model: str) -> tuple[str, list[str]]:
    """Return the command of an old record, which only has labels."""
    return reproduce(Identity.of({"protocol": protocol, "task": task, "model": model}), lr=0.1)


def test_a_command_says_what_it_cannot() -> None:
    assert "version 2" in of_labels("quick", "parity v2", "lstm")[1][0]
    command, notes = of_labels("quick (eval.file=abc)", "parity", "lstm (d_model=8)")
    assert command == "ladder run parity lstm --protocol quick --train.lr 0.1 --model.d-model 8"
    assert notes == ["These labels deviate from the protocol in what is no plain option, so add it: eval.file=abc"]
    for name in HOSTILE:  # a name stays one word, whatever is in it
        command, notes = of_labels("quick", "parity", name)
        assert name.startswith(shlex.split(command)[3])
