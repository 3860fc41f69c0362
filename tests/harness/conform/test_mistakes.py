"""Common first mistakes in a user's model, each as a tiny plugin, and the message of `ladder check`."""

from pathlib import Path

import pytest

from chomsky_ladder.harness.cli.main import main

HEAD = """
from dataclasses import dataclass
import torch
from torch import nn
from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block

class Mean(Block):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.out = nn.Linear(width, width, bias=False)
        {init}

    def mean(self, x):
        return x.cumsum(1) / torch.arange(1, x.shape[1] + 1, device=x.device)[:, None]

    def forward(self, x, ctx):
        {forward}

{register}
@dataclass(frozen=True, kw_only=True)
class MeanConfig(ModelConfig):
    name, family, year, paper{declared}
    {field}

    def block(self, layer):
        return Mean(self.d_model)
"""
SOUND = {
    "init": "pass",
    "forward": "return x + self.out(self.mean(x))",
    "register": "@register",
    "declared": ', stepwise = "mistaken", "plain", 2026, "none", False',
    "field": "pass",
}
ATTENTION = (
    "q = self.out(x)[:, None]; return x + nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)[:, 0]"
)
MISTAKES = {  # what is changed of the sound one, and what is said of it
    "no step": (
        {"declared": ' = "mistaken", "plain", 2026, "none"'},
        "Mean has no init_state: write init_state and step, or declare `stepwise = False` in MeanConfig",
    ),
    "a plain list": (
        {"init": "self.more = [nn.Linear(width, width)]", "forward": "return x + self.more[0](self.out(self.mean(x)))"},
        "Mean.more (blocks.0) holds 1 modules that are not registered, so that nothing trains them: make it an "
        "nn.ModuleList",
    ),
    "nn.Dropout": (
        {"init": "self.drop = nn.Dropout(0.1)", "forward": "return x + self.drop(self.out(self.mean(x)))"},
        "Dropout at blocks.0.drop draws from torch's generator",
    ),
    "another width": (
        {"init": "self.out = nn.Linear(width, 2 * width)", "forward": "return self.out(self.mean(x))"},
        "block 1 (Mean) returns (3, 7, 32) for a stream of (3, 7, 16): [B, L, d_model] comes in and goes out",
    ),
    "a tuple": (
        {"forward": "return x + self.out(self.mean(x)), None"},
        "block 1 (Mean) returns a tuple, not the stream alone",
    ),
    "attention under vmap": ({"forward": ATTENTION}, "has no rule of its own: declare stackable = False"),
    "an unused weight": (
        {"init": "self.unused = nn.Parameter(torch.zeros(width))"},
        "no gradient reaches blocks.0.unused on 4 batches: use it in forward, or leave it out",
    ),
    "a range of the CPU": (
        {"forward": "return x + self.out(x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None])"},
        "make it with device=x.device, or register_buffer it (mistaken.py:",
    ),
    "a constant of the CPU in a product": (
        {"forward": "return x + self.out(self.mean(x)) @ torch.eye(self.width, dtype=x.dtype)"},
        "make it with device=x.device, or register_buffer it (mistaken.py:",
    ),
    "a constant that is no buffer": (
        {"init": "self.scale = torch.ones(width)", "forward": "return x + self.out(self.mean(x)) * self.scale"},
        "Mean.scale (blocks.0) is a tensor that is neither weight nor buffer, and stays on the CPU: "
        "self.register_buffer('scale', ..)",
    ),
    "a weight that is no parameter": (
        {"init": "self.w = torch.ones(width, requires_grad=True)", "forward": "return x + self.out(x) * self.w"},
        "Mean.w (blocks.0) is to be trained and is no nn.Parameter: self.w = nn.Parameter(..)",
    ),
    "a transition of no theory": (
        {"field": 'transition = "diagonals"'},
        "transition 'diagonals' is none that theory knows; did you mean diagonal",
    ),
    "a value that is read": (
        {"forward": "return x + self.out(self.mean(x)) if x.any() else x"},
        "reads a value of a tensor (`if tensor:`",
    ),
    "a way over the host": (
        {"forward": "return x + self.out(self.mean(x)).cpu().to(x.device)"},
        "takes values off the device (.cpu()",
    ),
    "a constant of float64": (
        {
            "forward": "return self.out(x) + x * torch.ones(1, 1, 1, dtype=torch.float64, device=x.device)",
        },
        "a constant of float64",
    ),
    "an overflow": (
        {"forward": "return x + self.out(torch.log(torch.exp(90 + self.mean(x)))) - 90"},
        "in fp32 outputs are not finite at length 40, in float64 they are",
    ),
    "a memory of the last pass": (
        {
            "init": "self.register_buffer('seen', torch.zeros(()))",
            "forward": "self.seen = self.seen + 1; return x + self.out(self.mean(x)) * self.seen",
        },
        "a pass over the same tokens: it remembers, or draws",
    ),
    "a cost that is not its own": (
        {"forward": "s = x @ x.mT; return x + self.out(s.tril() @ x) / x.shape[1] ** 2"},
        "declared is 'linear': set cost = 'quadratic' in the config if that is meant",
    ),
    "a change in place": (
        {"forward": "y = self.out(self.mean(x)).exp(); z = y * y; y += 1; return x + z"},
        "changes a tensor in place that the backward pass needs: write y = y + x, not y += x",
    ),
    "a weight that is complex": (
        {
            "init": "self.w = nn.Parameter(torch.ones(width, dtype=torch.complex64))",
            "forward": "return x + (self.out(self.mean(x)) * self.w).real",
        },
        "gradients are complex: store complex parameters as reals",
    ),
    "not a number": (
        {"forward": "return x + torch.log(self.out(self.mean(x)))"},
        "more fail, which may follow from the above: the future never changes the past",
    ),
    "one width alone": (
        {"init": "self.out = nn.Linear(16, width)"},
        "with d_model=8: RuntimeError: mat1 and mat2 shapes",
    ),
    "@register forgotten": (
        {"register": ""},
        "MeanConfig is called 'mistaken' but not registered: put @register on it",
    ),
    "a field that hides a method": (
        {"field": "block: int = 3"},
        "MeanConfig's field 'block' hides ModelConfig.block: call it otherwise",
    ),
}


def said(path: Path, changes: dict[str, str], capsys: pytest.CaptureFixture[str]) -> str:
    path.write_text(HEAD.format(**{**SOUND, **changes}))
    code = main(["check", "mistaken", "--plugin", str(path)])
    shown = capsys.readouterr()
    return f"{code} {shown.out}{shown.err}"


@pytest.mark.parametrize("name", ["a plain list", "nn.Dropout", "a weight that is no parameter"])
def test_a_run_is_refused_for_what_can_be_seen(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes, expected = MISTAKES[name]
    (tmp_path / "mistaken.py").write_text(HEAD.format(**{**SOUND, **changes}))
    words = ["run", "parity", "mistaken", "--plugin", str(tmp_path / "mistaken.py"), "--protocol", "quick"]
    assert main([*words, "--exec.results", str(tmp_path / "results"), "--quiet"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("ladder: mistaken: ") and expected in said and said.count("\n") == 1
    assert not list(tmp_path.glob("results/runs/*"))


def test_what_follows_from_a_mistake_stands_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes, expected = MISTAKES["a plain list"]
    shown = said(tmp_path / "mistaken.py", changes, capsys)
    lines = [line for line in shown.splitlines() if " FAIL " in f" {line} "]
    assert len(lines) <= 3 and expected in lines[0] and "more fail, which may follow from the above: " in lines[-1]


def test_the_sound_one_conforms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(tmp_path / "mistaken.py", {}, capsys).endswith("mistaken: conforms\n")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_and_its_cure(mistake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes, message = MISTAKES[mistake]
    shown = said(tmp_path / "mistaken.py", changes, capsys)
    assert shown[0] in "12" and message in shown, shown
