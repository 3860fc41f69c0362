"""A model writes answers of test strings and prompts, and only where it has read its own answers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import chomsky_ladder
from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.config.run import Run, Train
from chomsky_ladder.harness.inside.settings import WrittenSettings
from chomsky_ladder.harness.inside.written import written
from chomsky_ladder.harness.train.build import build_model
from chomsky_ladder.harness.train.generate import beam
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.tasks.base import Task
from chomsky_ladder.tasks.mqar import Mqar
from chomsky_ladder.tasks.repetition import Repetition
from chomsky_ladder.tasks.reverse_string import ReverseString
from chomsky_ladder.tasks.text import Text

COPY = Repetition(num_symbols=2, decode="teacher")


class _Copier(torch.nn.Module):
    """A model that copies by rule; a shy one holds the wrong first symbol for a little likelier."""

    def __init__(self, config: ModelConfig, task: Task, *, shy: bool = False) -> None:
        super().__init__()
        self.config, self.task, self.shy = config, task, shy
        self.anchor = torch.nn.Parameter(torch.zeros(()))

    def init_state(self, batch: int, **_: object) -> torch.Tensor:
        return torch.zeros(batch, 0, dtype=torch.int64)

    def extend(self, tokens_BL: torch.Tensor, state: torch.Tensor, ctx: object) -> tuple[torch.Tensor, torch.Tensor]:
        logits = []
        for token_B in tokens_BL.unbind(1):
            logits_BV, state = self.step(token_B, state, ctx)
            logits.append(logits_BV)
        return torch.stack(logits, 1), state

    def step(self, token_B: torch.Tensor, state: torch.Tensor, ctx: object) -> tuple[torch.Tensor, torch.Tensor]:
        state = torch.cat([state, token_B[:, None]], 1)
        rows = []
        for row in state.tolist():
            act = row.index(1) if 1 in row else len(row)
            place = len(row) - act - 1
            logits = torch.full((len(self.task.vocab),), -9.0)
            if 0 <= place < act:
                logits[row[place]] = 0.0
                if self.shy and place == 0:
                    logits[2 + (row[place] == 2)] = 0.1
            rows.append(logits)
        return torch.stack(rows), state


def copier(run: Run, *, shy: bool = False) -> Any:
    return _Copier(run.model, run.task, shy=shy)


def run_of(task: Task, model: ModelConfig | None = None) -> Run:
    return Run(task=task, model=model or LSTMConfig(d_model=8), train=Train(steps=1, batch=4, lengths=(3, 21)))


def test_answers_of_test_strings_are_judged() -> None:
    run = run_of(COPY)
    found = written(run, copier(run), WrittenSettings(count=7, length=11))
    assert (found["strings"], found["right"], found["way"]) == (7, 7, "greedy")
    for string in found["written"]:
        assert string["said"][0]["said"] == string["answer"] == string["prompt"].removesuffix(" ACT")


def test_a_beam_finds_what_greedy_choice_loses() -> None:
    """The first symbol is slightly likelier wrong: whichever is said, the rest copies the prompt."""
    run = run_of(COPY)
    shy = copier(run, shy=True)
    greedy = written(run, shy, WrittenSettings(count=5, length=11))
    found = written(run, shy, WrittenSettings(count=5, length=11, beam=2))
    assert greedy["right"] == 0 and (found["right"], found["right_in_beam"]) == (0, 5)
    assert (greedy["symbols"], greedy["right_symbols"]) == (25, 20)
    assert all(len(string["said"]) == 2 for string in found["written"])


def test_a_temperature_draws_as_the_seed_says() -> None:
    run = run_of(Text())
    model = build_model(run, torch.device("cpu")).eval()
    how: dict[str, Any] = {"prompt": "abca", "count": 3, "temperature": 1.0, "new": 12}
    first, again, other = (written(run, model, WrittenSettings(**how, seed=seed)) for seed in (1, 1, 2))
    assert first == again != other
    said = [string["said"][0]["said"] for string in first["written"]]
    assert len(set(said)) == 3 and "strings" not in first


def test_a_prompt_is_closed_as_the_tasks_strings_are() -> None:
    run = run_of(COPY)
    model = copier(run)
    for prompt in ("0 1 1", "0 1 1 ACT"):
        (string,) = written(run, model, WrittenSettings(prompt=prompt))["written"]
        assert (string["prompt"], string["said"][0]["said"]) == ("0 1 1 ACT", "0 1 1")


def test_text_goes_on_from_half_of_a_test_string() -> None:
    run = run_of(Text())
    model = build_model(run, torch.device("cpu")).eval()
    (string,) = written(run, model, WrittenSettings(count=1, length=12, beam=3))["written"]
    assert (len(string["prompt"]), len(string["answer"]), len(string["said"])) == (6, 7, 3)
    best = beam(model, torch.tensor([run.task.read(string["prompt"])]), new=7, width=3)
    assert [one["said"] for one in string["said"]] == [run.task.spelled(row) for row in best.tokens[0].tolist()]


@pytest.mark.parametrize(
    ("task", "settings", "said"),
    [
        (ReverseString(), {}, "has not read its answers as inputs; train it with --task.decode teacher"),
        (Mqar(), {"length": 24}, "has not read its answers as inputs; they do not follow one another"),
        (COPY, {"prompt": "0 z"}, "repetition has no symbol 'z'; its symbols are ACT, 0, 1"),
        (COPY, {"prompt": " "}, "has no empty strings"),
        (COPY, {"length": 12}, "has no strings of length 12"),
        (COPY, {"beam": 2, "temperature": 1.0}, "choose one"),
        (COPY, {"prompt": "0", "length": 3}, "a prompt has its own"),
        (COPY, {"temperature": float("nan")}, "must be positive, not nan"),
    ],
)
def test_what_cannot_be_written_is_refused(task: Task, settings: dict[str, Any], said: str) -> None:
    run = run_of(task)
    with pytest.raises(ValueError, match=said):
        written(run, build_model(run, torch.device("cpu")).eval(), WrittenSettings(**settings))


def test_the_command_writes_what_the_function_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = "--train.steps 3 --train.batch 4 --train.stop-after 0 --eval.every 0 --eval.test 4 --eval.validation 4"
    where = ["--exec.results", str(tmp_path)]
    assert main(["run", "parity", "lstm", "--protocol", "quick", *small.split(), *where, "--quiet"]) == 0
    capsys.readouterr()
    asked = ["generate", "parity", "--count", "4", "--results", str(tmp_path)]
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(asked) == 0
    shown = capsys.readouterr().out
    assert f"{found['right']} of 4 whole strings are right" in shown and found["written"][0]["prompt"] in shown
    assert chomsky_ladder.generate("parity", count=4, results=tmp_path) == found
    assert main([*asked, "--beam", "0"]) == 2
    assert capsys.readouterr().err == "ladder: --beam must lie in 1..4096, not 0\n"
