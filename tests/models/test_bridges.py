"""Models of other packages: they are what the package makes, want it when they are made, and say where they run.

flash-linear-attention needs a GPU, so a small module stands in for its documented interface: this tests our glue alone.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.config import origin
from chomsky_ladder.harness.config.registry import find_model, load_plugin
from chomsky_ladder.harness.conform import suite as conformance
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.bridges import needed

BRIDGES = "chomsky_ladder.models.bridges"
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _imported_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what a test registers, so that the next has to import it again."""
    for name in [name for name in sys.modules if name.startswith(f"{BRIDGES}.")]:
        monkeypatch.delitem(sys.modules, name)


def config_of(bridge: str, name: str) -> Any:
    load_plugin(f"{BRIDGES}.{bridge}")
    module = importlib.import_module(f"{BRIDGES}.{bridge}")
    return next(cls for cls in vars(module).values() if getattr(cls, "name", None) == name)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_a_model_of_transformers_is_the_librarys(kind: str) -> None:
    pytest.importorskip("transformers")
    cls = config_of("huggingface", "huggingface")
    x_BLD = torch.randn(2, 6, 16)
    (block,) = cls(kind=kind, d_model=16, num_heads=2, num_blocks=3).blocks()
    library = block.plain.module.model.eval()
    assert type(library).__name__.lower() == f"{kind}model" and library.config.num_hidden_layers == 3
    wanted = library(inputs_embeds=x_BLD).last_hidden_state
    assert torch.equal(block(x_BLD, Context()), wanted)
    changed = torch.cat([x_BLD[:, :4], torch.randn(2, 2, 16)], 1)
    assert torch.allclose(block(changed, Context())[:, :4], wanted[:, :4], atol=1e-5), "it is causal"
    assert all("embed_tokens" not in name and "wte" not in name for name, _ in block.named_parameters())


def test_settings_of_transformers_go_before_ours() -> None:
    pytest.importorskip("transformers")
    cls = config_of("huggingface", "huggingface")
    config = cls(d_model=16, num_heads=4, args='{"num_key_value_heads": 2, "max_position_embeddings": 64}')
    assert config.module().model.config.num_key_value_heads == 2 and config.longest_input == 64
    assert "transformers knows no kind 'lama'" in cls(kind="lama").unworkable()


def test_a_stack_of_the_xlstm_package_is_the_packages() -> None:
    xlstm = pytest.importorskip("xlstm")
    config = config_of("xlstm_package", "xlstm_package")(d_model=16, num_heads=2, num_blocks=2, context_length=16)
    (block,) = config.blocks()
    stack = block.plain.module
    assert isinstance(stack, xlstm.xLSTMBlockStack) and [type(each).__name__ for each in stack.blocks] == [
        "mLSTMBlock",
        "sLSTMBlock",
    ]
    x_BLD = torch.randn(2, 5, 16)
    assert torch.equal(block(x_BLD, Context()), stack(x_BLD)) and config.longest_input == 16
    with pytest.raises(ValueError, match="slstm_at=\\(5,\\), of 2 blocks"):
        config_of("xlstm_package", "xlstm_package")(slstm_at=(5,))


class GatedDeltaNet(nn.Module):
    """Stands for a layer of another package, with its documented arguments and results."""

    def __init__(self, hidden_size: int = 2048, head_dim: int = 256, num_heads: int = 6, layer_idx: int = 0) -> None:
        super().__init__()
        self.sizes, self.out = (hidden_size, head_dim, num_heads, layer_idx), nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden_states: Tensor, attention_mask: Any = None, use_cache: bool = False) -> tuple:
        return self.out(hidden_states), None, None


def test_a_layer_of_fla_is_made_and_called_as_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    layers: Any = ModuleType("fla.layers")
    layers.GatedDeltaNet = GatedDeltaNet
    for name, module in {"fla": ModuleType("fla"), "fla.layers": layers}.items():
        monkeypatch.setitem(sys.modules, name, module)
    cls = config_of("fla", "fla")
    config = cls(d_model=16, num_heads=2, args='{"layer_idx": 1}')
    layer = config.module()
    assert layer.layer.sizes == (16, 8, 2, 1)
    x_BLD = torch.randn(2, 5, 16)
    assert torch.equal(layer(x_BLD)[0], layer.layer.out(x_BLD))
    assert config.blocks()[0](x_BLD, Context()).shape == x_BLD.shape
    assert "fla.layers has no class 'GatedDelta'" in cls(layer="GatedDelta").unworkable()
    with pytest.raises(ValueError, match="MoM does not stand alone in a block"):
        cls(layer="MoM")


def test_what_needs_cuda_is_refused_on_a_cpu(capsys: Capture) -> None:
    words = ["fla", "--plugin", f"{BRIDGES}.fla"]
    assert main(["run", "parity", *words, "--exec.device", "cpu", "--quiet"]) == 2
    assert capsys.readouterr().err == "ladder: fla runs on a CUDA device alone, not on cpu\n"
    assert main(["check", *words]) == 1
    assert "fla: nothing of it could be checked here" in capsys.readouterr().out


def test_a_missing_package_is_one_line() -> None:
    with pytest.raises(ValueError, match=r"it needs no_such_package: pip install 'no-such-package>=1' \(No module"):
        needed("no_such_package.layers", install="no-such-package>=1")


def test_its_results_belong_to_a_release(monkeypatch: pytest.MonkeyPatch) -> None:
    cls = config_of("xlstm_package", "xlstm_package")
    assert cls is find_model("xlstm_package")
    found = origin.origin(cls)
    assert found is not None and found.called == "xlstm" and found.plain()["distribution"] == "xlstm"
    monkeypatch.setattr(origin.metadata, "version", lambda package: "9.9")
    other = origin._bridged.__wrapped__(cls)
    assert other.digest != found.digest, "another release is other code"
    assert list(origin.load_words([(cls.name, cls.__module__, "")])) == [f"{BRIDGES}.xlstm_package"]


def test_one_that_computes_in_fp32_is_held_to_that() -> None:
    pytest.importorskip("transformers")
    found = conformance.check(config_of("huggingface", "huggingface").tiny())
    assert not [one for one in found if one.verdict == "FAIL"]
    (device,) = [one for one in found if one.check == "stays on its device"]
    assert device.verdict == "skip" and device.reason.startswith(
        "transformers, which it calls, does not: it reads a value"
    )
