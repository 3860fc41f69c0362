"""The audit of parameters finds a start that was overwritten and a parameter that no gradient reaches."""

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.conform.parameters import audit
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.models.plain import wrap


class Odd(nn.Module):
    """Reads the last token alone through `late`, never uses `unused`, and has an overwritten start."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.plain, self.small, self.late = (nn.Linear(d_model, d_model) for _ in range(3))
        self.unused = nn.Parameter(torch.zeros(d_model))
        self.ones = nn.LayerNorm(d_model)
        nn.init.normal_(self.small.weight, std=1e-4)
        nn.init.constant_(self.ones.weight, 2.0)

    def forward(self, x_BLD: Tensor) -> Tensor:
        past_BLD = torch.cat([torch.zeros_like(x_BLD[:, :1]), x_BLD[:, :-1]], 1)
        return self.plain(self.ones(x_BLD)) + self.small(x_BLD) + past_BLD @ self.late.weight


def test_each_remark_is_right() -> None:
    found = {each.name.rpartition("module.")[2]: each for each in audit(wrap("odd", lambda c: Odd(c.d_model)).tiny())}
    assert found["plain.weight"].remark == "" and found["plain.weight"].usual.startswith("nn.Linear gives 0.")
    assert found["small.weight"].remark.startswith("not as nn.Linear starts it")
    assert found["ones.weight"].remark == "another constant than nn.LayerNorm has"
    assert found["unused"].remark == "no gradient at any length: it never moves" and found["unused"].usual == ""
    assert found["late.weight"].remark == "no gradient at length 1"
    assert found["late.bias"].remark == "no gradient at any length: it never moves"


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "lstm", "--parameters"]) == 0
    said = capsys.readouterr().out
    assert "mean +- std" in said and "nn.Linear gives" in said and "none is a fault by itself" in said


def test_a_task_has_no_parameters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "parity", "--parameters"]) == 2
    assert "--parameters is for models, and parity is a task" in capsys.readouterr().err


def test_it_leaves_the_generator_alone() -> None:
    before = torch.get_rng_state()
    audit(LSTMConfig.tiny())
    assert torch.equal(before, torch.get_rng_state())
