"""The forms in which papers run shared architectures, against plain torch: embedding to logits, and every gradient."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.config.registry import all_models, find_model
from chomsky_ladder.harness.config.run import Eval, Run, Train
from chomsky_ladder.harness.conform.suite import check
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.encoder import EncoderConfig
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.models.rnn import RNNConfig
from chomsky_ladder.models.stack_rnn import StackRNNConfig
from chomsky_ladder.models.tape_rnn import TapeRNNConfig
from chomsky_ladder.tasks.reverse_string import ReverseString
from support.cases import some

torch.set_num_threads(1)
VOCAB = 7
VASWANI: dict[str, Any] = {
    "positions": "sinusoidal",
    "norm": "layer",
    "norm_place": "post",
    "feed_forward": "relu",
    "final_norm": "none",
}
ENCODER = EncoderConfig(d_model=16, num_blocks=3, num_heads=4, **VASWANI)
RECURRENT: list[ModelConfig] = [
    RNNConfig(d_model=6, num_blocks=1, activation="relu", before_head="relu"),
    LSTMConfig(d_model=6, num_blocks=1, forget_bias=1.0, before_head="relu"),
]


def equal_with_gradients(model: Any, theirs: Callable[[Tensor], Tensor], tokens_BL: Tensor) -> None:
    ours_BLV = model(tokens_BL, Context(backend="reference"))
    theirs_BLV = theirs(tokens_BL)
    torch.testing.assert_close(ours_BLV, theirs_BLV, rtol=1e-11, atol=1e-11)
    weights_BLV, parameters = torch.randn_like(ours_BLV), list(model.parameters())
    found, expected = (torch.autograd.grad((y_BLV * weights_BLV).sum(), parameters) for y_BLV in (ours_BLV, theirs_BLV))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def tokens(batch: int, length: int) -> Tensor:
    return torch.randint(0, VOCAB, (batch, length))


def vaswani(model: Any) -> Callable[[Tensor], Tensor]:
    """Vaswani et al. 2017: embedding plus sinusoids, then norm(x + layer(x)) twice a block, and the head."""

    def forward(tokens_BL: Tensor) -> Tensor:
        p = dict(model.named_parameters())
        width, heads = model.config.d_model, model.config.num_heads
        x = p["embedding.weight"][tokens_BL]
        position_L1 = torch.arange(tokens_BL.shape[1], dtype=torch.float64)[:, None]
        angle_LK = position_L1 / 10_000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
        x = x + torch.stack([angle_LK.sin(), angle_LK.cos()], -1).flatten(1)
        names = list(p)
        for layer in range(model.config.num_blocks):
            own = [p[name] for name in names if name.startswith(f"blocks.{layer}.")]
            norm1, qkv_out, norm2, mlp = own[:2], own[2:4], own[4:6], own[6:]
            q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (x @ qkv_out[0].T).chunk(3, -1))
            share = torch.softmax(q @ k.mT / (width // heads) ** 0.5, -1)
            x = nn.functional.layer_norm(
                x + (share @ v).transpose(1, 2).flatten(2) @ qkv_out[1].T, (width,), *norm1, eps=1e-5
            )
            hidden = torch.relu(x @ mlp[0].T + mlp[1])
            assert hidden.shape[-1] == 4 * width
            x = nn.functional.layer_norm(x + hidden @ mlp[2].T + mlp[3], (width,), *norm2, eps=1e-5)
        return x @ p["head.weight"].T

    return forward


def test_the_published_encoder_is_that_of_vaswani() -> None:
    model: Any = ENCODER.build(VOCAB).double()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) / 4)
    equal_with_gradients(model, vaswani(model), tokens(3, 9))


@pytest.mark.parametrize("config", RECURRENT, ids=lambda config: config.name)
def test_a_relu_stands_between_h_and_the_head(config: Any) -> None:
    """torch's own layer, its ReLU, and the head."""
    model: Any = config.build(VOCAB).double()
    cell = model.blocks[0].cell
    theirs = nn.RNN(6, 6, nonlinearity="relu", batch_first=True) if config.name == "rnn" else nn.LSTM(6, 6)
    theirs.batch_first = True

    def forward(tokens_BL: Tensor) -> Tensor:
        own = {
            "weight_ih_l0": cell.weight_ih,
            "weight_hh_l0": cell.weight_hh,
            "bias_ih_l0": cell.bias,
            "bias_hh_l0": torch.zeros_like(cell.bias),
        }
        x_BLD = model.embedding.weight[tokens_BL]
        h_BLD, _ = torch.func.functional_call(theirs.double(), own, (x_BLD,))
        return torch.relu(h_BLD) @ model.head.weight.T

    equal_with_gradients(model, forward, tokens(3, 9))


FORMS: list[ModelConfig] = [
    *(replace(config, num_blocks=2) for config in RECURRENT),
    replace(ENCODER, d_model=8, num_blocks=2, num_heads=2),
    replace(StackRNNConfig.tiny(), before_head="relu"),
    replace(TapeRNNConfig.tiny(), before_head="relu", jump="input"),
    replace(find_model("gru").tiny(), before_head="relu", ends_init="small"),
]


@pytest.mark.full
@pytest.mark.parametrize("config", some(FORMS), ids=lambda config: config.name)
def test_the_published_forms_conform(config: ModelConfig) -> None:
    assert [outcome for outcome in check(config) if outcome.verdict == "FAIL"] == []


@pytest.mark.parametrize("config", some(FORMS), ids=lambda config: config.name)
def test_the_published_forms_train_in_packs(config: ModelConfig) -> None:
    """Three seeds together as one by one."""
    train = Train(steps=4, batch=4, lengths=(3, 8), precision="fp64", lr=1e-2, warmup=0.0, loss_over="slots")
    evaluated = Eval(lengths=(3, 8), bins=(3, 8), extrapolate=())
    task = ReverseString(num_symbols=2, count="input", query="token")
    runs = [Run(task=task, model=config, train=train, eval=evaluated, seed=seed) for seed in range(3)]
    together = Pack(runs, device=torch.device("cpu"), backend="reference")
    alone = [Pack([run], device=torch.device("cpu"), backend="reference") for run in runs]
    for step in range(4):
        for pack in (together, *alone):
            pack.advance(train.longest(step))
    found = [seen.loss for seen in together.seen()]
    assert found == pytest.approx([pack.seen()[0].loss for pack in alone], rel=1e-10)


@pytest.mark.parametrize("name", sorted(all_models()))
def test_ends_that_start_small_have_the_deviation_of_the_paper(name: str) -> None:
    config = find_model(name).tiny()
    small, usual = (replace(config, ends_init=kind).build(4096) for kind in ("small", "unit"))
    for model, deviations in ((small, [(2 / (5 * config.d_model)) ** 0.5] * 2), (usual, [1, config.d_model**-0.5])):
        for module, deviation in zip((model.embedding, model.head), deviations, strict=True):
            weight = module.weight.detach()
            assert abs(weight.std().item() / deviation - 1) < 5 / (2 * weight.numel()) ** 0.5
            assert abs(weight.mean().item()) < 5 * deviation / weight.numel() ** 0.5
    blocks = [dict(model.blocks.named_parameters()) for model in (small, usual)]
    assert blocks[0].keys() == blocks[1].keys()


@pytest.mark.parametrize("name", sorted(all_models()))
def test_a_relu_before_the_head_is_of_every_model(name: str) -> None:
    config = replace(find_model(name).tiny(), before_head="relu")
    torch.manual_seed(0)
    model: Any = config.build(VOCAB).double()
    seen = []
    model.head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(tokens(2, 6), Context(backend="reference"))
    assert bool((seen[0] >= 0).all()) and bool((seen[0] == 0).any())
