"""Feedback at any model's mixers: what a token reads, which gradients pass, and what stays as ever."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.config.protocols import columns_of, find_protocol, matched, preset_run
from chomsky_ladder.harness.config.registry import all_models, find_model
from chomsky_ladder.harness.config.sizing import active_parameters
from chomsky_ladder.harness.conform.suite import check
from chomsky_ladder.models.block import Context, State
from chomsky_ladder.models.layers import feedback as layer
from chomsky_ladder.models.layers.feedback import Fed
from chomsky_ladder.models.layers.residual import OneForm
from support.around_layers import FORMS, SHAPES
from support.cases import full

VOCAB = 7
FEEDBACK = ("mixer", "block")
NOT_FED = {"autoencoder", "encoder", "encoder_decoder", "prefix_lm", "rwkv7"}
COUNTED_IN_A_CHUNK = {  # token by token short lengths are counted, and inside a chunk its work grows as the square
    "mesa_net": {"its cost grows as declared"}
}


class Sum(OneForm):
    """y_t = A (x_1 + .. + x_t)"""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = nn.Linear(width, width, bias=False)

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        return torch.zeros(batch, self.out.in_features, device=device, dtype=dtype)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        h_BLD = state[:, None] + x_BLD.cumsum(1)
        return self.out(h_BLD), h_BLD[:, -1]


def by_hand(fed: Fed, x_BLD: Tensor, *, through: bool) -> Tensor:
    """Compute the equations of models/layers/feedback.py token by token; gradients pass y only if `through`."""
    h_BD = y_BD = torch.zeros_like(x_BLD[:, 0])
    outputs = []
    for x_BD in x_BLD.unbind(1):
        y_BD = y_BD if through else y_BD.detach()
        unit_BD = y_BD / (y_BD.square().mean(-1, keepdim=True) + torch.finfo(y_BD.dtype).eps).sqrt()
        h_BD = h_BD + x_BD + unit_BD @ fed.read.weight.T
        y_BD = h_BD @ fed.inner.out.weight.T
        outputs.append(y_BD)
    return torch.stack(outputs, 1)


def test_a_token_reads_the_output_before_it_and_no_gradient_passes_that_output() -> None:
    torch.manual_seed(0)
    fed, x_BLD = Fed(Sum(3), 3).double(), torch.randn(2, 6, 3, dtype=torch.float64)
    nn.init.normal_(fed.read.weight)
    found, expected = fed(x_BLD, Context()), by_hand(fed, x_BLD, through=False)
    torch.testing.assert_close(found, expected)
    weights = list(fed.parameters())
    wanted, whole = (
        torch.autograd.grad(by_hand(fed, x_BLD, through=through).sum(), weights) for through in (False, True)
    )
    for own, other, too_much in zip(torch.autograd.grad(found.sum(), weights), wanted, whole, strict=True):
        torch.testing.assert_close(own, other)
        assert not torch.allclose(own, too_much)


def made(name: str, **settings: Any) -> nn.Module:
    torch.manual_seed(0)
    return replace(find_model(name).tiny(), **SHAPES[name], **settings).build(VOCAB).double()


def test_a_mixer_is_fed_behind_its_norm_and_a_block_as_a_whole() -> None:
    mixer, block = (made("transformer", feedback=of).get_submodule("blocks.0") for of in FEEDBACK)
    assert isinstance(mixer.get_submodule("parts.1"), Fed) and not isinstance(mixer.get_submodule("parts.3"), Fed)
    assert isinstance(block, Fed) and sum(isinstance(part, Fed) for part in block.modules()) == 1


@pytest.mark.parametrize("name", SHAPES)
def test_all_else_starts_as_without(name: str) -> None:
    without, fed = (dict(made(name, feedback=of).named_parameters()) for of in ("none", "mixer"))
    own = {key.replace(".inner", ""): value for key, value in fed.items() if ".read.weight" not in key}
    assert own.keys() == without.keys() and len(fed) > len(own)
    assert all(torch.equal(own[key], without[key]) for key in without)


@pytest.mark.parametrize("feedback", FEEDBACK)
@pytest.mark.parametrize("name", SHAPES)
def test_the_model_starts_as_without(name: str, feedback: str) -> None:
    x_BL = torch.randint(VOCAB, (2, 9), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(made(name, feedback=feedback)(x_BL), made(name)(x_BL))


@pytest.mark.parametrize("feedback", FEEDBACK)
@pytest.mark.parametrize("name", SHAPES)
def test_its_forms_agree_when_its_map_is_not_zero(name: str, feedback: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer, "zeros_", lambda weight: None)
    assert made(name, feedback=feedback)(torch.arange(VOCAB)[None]).ne(made(name)(torch.arange(VOCAB)[None])).any()
    for form in FORMS:
        form(replace(find_model(name).tiny(), **SHAPES[name], feedback=feedback))


@pytest.mark.parametrize("name", [full(name) for name in sorted(all_models())])
def test_every_model_conforms_with_it_or_refuses_it(name: str) -> None:
    usual = replace(find_model(name).tiny(), **SHAPES.get(name, {}))
    if name in NOT_FED:
        with pytest.raises(ValueError, match=f"{name}: feedback needs blocks that each read token after token"):
            replace(usual, feedback="mixer")
        return
    failed = {found.check for found in check(replace(usual, feedback="mixer")) if found.verdict == "FAIL"}
    assert failed == COUNTED_IN_A_CHUNK.get(name, set())


def test_a_hybrid_refuses_it_with_a_member_that_refuses_it() -> None:
    with pytest.raises(ValueError, match="hybrid: feedback needs blocks that each read token after token"):
        replace(find_model("hybrid").tiny(), pattern="rwkv7,lstm", feedback="mixer")


def test_a_model_that_reads_all_at_once_is_refused_before_any_work(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "mqar", "encoder", "--model.feedback", "mixer", "--train.steps", "1"]) == 2
    assert "ladder: encoder: feedback needs blocks that each read token after token" in capsys.readouterr().err


def test_its_map_counts_among_the_parameters_of_a_climber() -> None:
    protocol, usual = find_protocol("climb-v1"), preset_run("mqar", "mamba2", protocol="climb-v1").model
    fed = matched(replace(usual, feedback="mixer"), protocol)
    assert fed.d_model < usual.d_model
    assert abs(active_parameters(fed, 12) / active_parameters(usual, 12) - 1) < 0.1


def test_no_proof_about_a_linear_state_is_claimed_for_a_fed_one() -> None:
    usual = preset_run("mqar", "mamba2", protocol="climb-v1")
    fed = replace(usual, model=replace(usual.model, feedback="mixer"))
    assert [columns_of(run)["transition"] for run in (usual, fed)] == ["diagonal", ""]
