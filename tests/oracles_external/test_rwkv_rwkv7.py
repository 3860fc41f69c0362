"""RWKV-7 against the author's own inference package (PyPI: rwkv), weights copied: logits, in fp32."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.rwkv7 import RWKV7Config

VOCAB = 11


@pytest.fixture(scope="module")
def rwkv() -> Iterator[ModuleType]:
    """The package's file a second time, under a name of its own: the generation is chosen as it is imported."""
    package = importlib.util.find_spec("rwkv")
    if package is None:
        pytest.skip("rwkv cannot be imported")
    path = Path(package.submodule_search_locations[0]) / "model.py"
    spec = importlib.util.spec_from_file_location("rwkv_seventh", path)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("RWKV_V7_ON", "1"), ("RWKV_JIT_ON", "0"), ("RWKV_CUDA_ON", "0")):
            patch.setenv(name, value)
        # Compiled, it takes seconds to load, and no number would change.
        for name, plain in (("script_method", lambda f: f), ("script", lambda f: f), ("ScriptModule", nn.Module)):
            patch.setattr(torch.jit, name, plain)
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, "rwkv_seventh", module)
        spec.loader.exec_module(module)
        yield module


def published_names(model: nn.Module) -> dict[str, Tensor]:
    """The weights under the names and in the shapes of RWKV-LM's checkpoints."""
    names = {"emb.weight": model.embedding.weight, "head.weight": model.head.weight}
    norms = {"ln_out": model.norm, "blocks.0.ln0": model.blocks[0].entry}
    for number, block in enumerate(model.blocks):
        time, channel = block.layers
        att, ffn = f"blocks.{number}.att.", f"blocks.{number}.ffn."
        norms |= {f"blocks.{number}.ln{1 + place}": norm for place, norm in enumerate(block.norms)}
        norms[f"{att}ln_x"] = time.norm
        names |= {f"{att}{name}.weight": getattr(time, name).weight for name in ("receptance", "key", "value")}
        names |= {f"{att}output.weight": time.out.weight, f"{ffn}value.weight": channel.out.weight}
        names |= {f"{ffn}key.weight": channel.key.weight, f"{ffn}x_k": channel.mix_D}
        names |= {f"{att}x_{theirs}": share_D for theirs, share_D in zip("rkvwag", time.mix_6D, strict=True)}
        names |= {f"{att}k_k": time.out_key_D, f"{att}k_a": time.key_rate_D}
        names[f"{att}r_k"] = time.bonus_D.view(time.num_heads, -1)
        offsets = {"w": "decay_D", "a": "rate_D", "v": "share_D"}
        names |= {f"{att}{theirs}0": getattr(time, own) for theirs, own in offsets.items() if hasattr(time, own)}
        for theirs, own in {"w": "to_decay", "a": "to_rate", "v": "to_share", "g": "to_gate"}.items():
            if hasattr(time, own):
                names |= {f"{att}{theirs}1": getattr(time, own).down, f"{att}{theirs}2": getattr(time, own).up}
    for name, norm in norms.items():
        names |= {f"{name}.weight": norm.weight, f"{name}.bias": norm.bias}
    return {name: value.detach().clone() for name, value in names.items()}


def test_logits_of_a_sequence_and_of_steps_on_from_it(rwkv: ModuleType, tmp_path: Path) -> None:
    torch.manual_seed(0)
    ranks = {"decay_rank": 3, "rate_rank": 5, "value_rank": 2, "gate_rank": 6}
    model = RWKV7Config(d_model=32, d_inner=64, num_blocks=3, num_heads=4, **ranks).build(VOCAB)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    weights = published_names(model)
    assert sum(x.numel() for x in weights.values()) == sum(x.numel() for x in model.parameters())
    torch.save(weights, tmp_path / "model.pth")
    theirs = rwkv.RWKV(model=str(tmp_path / "model"), strategy="cpu fp32")

    tokens = torch.randint(VOCAB, (70,))
    with torch.no_grad():
        found = model(tokens[None], Context())[0]
        expected, state = theirs.forward(tokens[:60].tolist(), None, full_output=True)
        torch.testing.assert_close(found[:60], expected, rtol=2e-4, atol=2e-4)
        for position in range(60, 70):
            expected, state = theirs.forward([tokens[position].item()], state)
            torch.testing.assert_close(found[position], expected, rtol=2e-4, atol=2e-4)
    held = model.init_state(1, max_length=70, device=torch.device("cpu"), dtype=torch.float32)
    ours = [x for (last, S), channel in held for x in (last, S, channel)]
    assert [x.numel() for x in ours] == [x.numel() for x in state]
