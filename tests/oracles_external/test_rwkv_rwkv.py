"""RWKV-4, -5 and -6 against the author's own inference package (PyPI: rwkv), weights copied: logits, in fp32."""

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

os.environ["RWKV_JIT_ON"] = os.environ["RWKV_CUDA_ON"] = os.environ["RWKV_V7_ON"] = "0"
rwkv = pytest.importorskip("rwkv.model")

from chomsky_ladder.models.base import ModelConfig  # noqa: E402
from chomsky_ladder.models.block import Context  # noqa: E402
from chomsky_ladder.models.rwkv4 import RWKV4Config  # noqa: E402
from chomsky_ladder.models.rwkv5 import RWKV5Config  # noqa: E402
from chomsky_ladder.models.rwkv6 import RWKV6Config  # noqa: E402

VOCAB, SIZE = 11, {"d_model": 32, "d_inner": 64, "num_blocks": 3}
CONFIGS = [
    RWKV4Config(**SIZE),
    RWKV5Config(**SIZE, num_heads=4),
    RWKV6Config(**SIZE, num_heads=4, mix_rank=3, decay_rank=5),
]


def published_names(model: nn.Module) -> dict[str, Tensor]:
    """The weights under the names and in the shapes of RWKV-LM's checkpoints."""
    names = {"emb.weight": model.embedding.weight, "head.weight": model.head.weight}
    norms = {"ln_out": model.norm, "blocks.0.ln0": model.blocks[0].entry}
    for number, block in enumerate(model.blocks):
        time, channel = block.layers
        att, ffn = f"blocks.{number}.att.", f"blocks.{number}.ffn."
        norms |= {f"blocks.{number}.ln1": block.norms[0], f"blocks.{number}.ln2": block.norms[1]}
        for theirs in ("receptance", "key", "value", "gate"):
            if hasattr(time, theirs):
                names[f"{att}{theirs}.weight"] = getattr(time, theirs).weight
        names[f"{att}output.weight"] = time.out.weight
        names |= {f"{ffn}{theirs}.weight": getattr(channel, theirs).weight for theirs in ("receptance", "key")}
        names[f"{ffn}value.weight"] = channel.out.weight
        for theirs, share_D in zip("rk", channel.mix_2D, strict=True):
            names |= shift(ffn, theirs, share_D, dynamic=hasattr(time, "mix_up"))
        if not hasattr(time, "norm"):
            names |= {f"{att}time_decay": time.log_rate_D, f"{att}time_first": time.bonus_D}
        else:
            norms[f"{att}ln_x"] = time.norm
            names[f"{att}time_decay"] = time.log_rate_D.view(time.num_heads, -1)
            names[f"{att}time_faaaa"] = time.bonus_D.view(time.num_heads, -1)
        for theirs, share_D in zip("rkvg", getattr(time, "mix_4D", getattr(time, "mix_3D", ())), strict=False):
            names |= shift(att, theirs, share_D, dynamic=hasattr(time, "mix_up"))
        if hasattr(time, "mix_up"):
            names |= {f"{att}time_maa_x": time.mix_x_D, f"{att}time_maa_w": time.mix_w_D}
            theirs_first = [4, 1, 2, 0, 3]  # w, k, v, r, g, of our r, k, v, g, w
            names[f"{att}time_maa_w1"] = time.mix_down.unflatten(1, (5, -1))[:, theirs_first].flatten(1)
            names[f"{att}time_maa_w2"] = time.mix_up[theirs_first]
            names |= {f"{att}time_decay_w1": time.rate_down, f"{att}time_decay_w2": time.rate_up}
            names[f"{att}time_decay"] = time.log_rate_D.view(1, 1, -1)
    for name, norm in norms.items():
        names |= {f"{name}.weight": norm.weight, f"{name}.bias": norm.bias}
    return {name: value.detach().clone() for name, value in names.items()}


def shift(prefix: str, name: str, share_D: Tensor, *, dynamic: bool) -> dict[str, Tensor]:
    return {f"{prefix}time_maa_{name}": share_D} if dynamic else {f"{prefix}time_mix_{name}": 1 - share_D}


@pytest.mark.full
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_logits_of_a_sequence_and_of_steps_on_from_it(config: ModelConfig, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = config.build(VOCAB)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    weights = published_names(model)
    assert sum(x.numel() for x in weights.values()) == sum(x.numel() for x in model.parameters())
    torch.save(weights, tmp_path / "model.pth")
    theirs = rwkv.RWKV(model=str(tmp_path / "model.pth"), strategy="cpu fp32", verbose=False)
    assert int(theirs.version) == int(config.name[-1])

    tokens = torch.randint(VOCAB, (70,))
    with torch.no_grad():
        found = model(tokens[None], Context())[0]
        expected, state = theirs.forward(tokens[:60].tolist(), None, full_output=True)
        torch.testing.assert_close(found[:60], expected, rtol=2e-4, atol=2e-4)
        for position in range(60, 70):
            expected, state = theirs.forward([tokens[position].item()], state)
            torch.testing.assert_close(found[position], expected, rtol=2e-4, atol=2e-4)
