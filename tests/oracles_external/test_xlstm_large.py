"""xLSTM large against the model of the authors' package, and its weights at the start against those of transformers."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Backend, Context
from chomsky_ladder.models.xlstm_large import XLSTMLargeConfig

pytest.importorskip("xlstm")
transformers = pytest.importorskip("transformers")

torch.set_num_threads(1)

VOCAB, WIDTH, HEADS, BLOCKS = 11, 48, 4, 2
SIZES = {"num_heads": HEADS, "num_blocks": BLOCKS, "vocab_size": VOCAB}
NATIVE = {"sequence_kernel": "native_sequence__native", "step_kernel": "native"}

Pick = Callable[[nn.Parameter], Tensor]


class Stateless(nn.Module):
    """The package's quadratic form, whose stabiliser starts as ours; its layer wants a state from it, too."""

    def __init__(self, backend: nn.Module) -> None:
        super().__init__()
        self.backend = backend

    def forward(self, q: Tensor, k: Tensor, v: Tensor, i: Tensor, f: Tensor, **state: None) -> tuple[Tensor, None]:
        assert not any(state.values())
        return self.backend(q=q, k=k, v=v, i=i, f=f), None


def translated(model: nn.Module, pick: Pick) -> dict[str, Tensor]:
    """Return what `pick` takes of the package's parameters, by our names and in our layouts."""
    stack = model.backbone
    found = {
        "embedding.weight": pick(model.embedding.weight),
        "norm.weight": pick(stack.out_norm.weight),
        "head.weight": pick(model.lm_head.weight),
    }
    for number, block in enumerate(stack.blocks):
        layer, behind = block.mlstm_layer, block.ffn
        of_block = {
            "0.weight": pick(block.norm_mlstm.weight),
            "1.query_key_value.weight": torch.cat([pick(part.weight) for part in (layer.q, layer.k, layer.v)]),
            "1.gates.weight": torch.cat([pick(gate.weight) for gate in (layer.igate_preact, layer.fgate_preact)]),
            "1.gates.bias": torch.cat([pick(gate.bias) for gate in (layer.igate_preact, layer.fgate_preact)]),
            "1.out_gate.weight": pick(layer.ogate_preact.weight),
            "1.norm.weight": pick(layer.multihead_norm.weight),
            "1.out.weight": pick(layer.out_proj.weight),
            "2.weight": pick(block.norm_ffn.weight),
            "3.gate_up.weight": torch.cat([pick(behind.proj_up_gate.weight), pick(behind.proj_up.weight)]),
            "3.out.weight": pick(behind.proj_down.weight),
        }
        found |= {f"blocks.{number}.parts.{name}": value for name, value in of_block.items()}
    return found


@pytest.fixture(scope="module")
def twins() -> tuple[nn.Module, nn.Module]:
    """Ours and the package's, in float64 with the same weights, none of them special."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what its kernels import
        from xlstm.xlstm_large.model import xLSTMLarge, xLSTMLargeConfig

        kernel = {"chunkwise_kernel": "parallel--native_autograd", "norm_reduction_force_float32": False}
        theirs = xLSTMLarge(xLSTMLargeConfig(embedding_dim=WIDTH, **SIZES, **NATIVE, **kernel)).double()
    for block in theirs.backbone.blocks:
        block.mlstm_layer.mlstm_backend = Stateless(block.mlstm_layer.mlstm_backend)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        for parameter in theirs.parameters():
            parameter += 0.5 * torch.randn_like(parameter)
    ours = XLSTMLargeConfig(d_model=WIDTH, num_heads=HEADS, num_blocks=BLOCKS).build(VOCAB).double()
    ours.load_state_dict(translated(theirs, lambda parameter: parameter.detach()))
    return ours, theirs


@pytest.mark.parametrize("length", [1, 2, 17, 64, 65, 130])
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_logits_and_the_gradients_of_all_weights(
    twins: tuple[nn.Module, nn.Module], backend: Backend, length: int
) -> None:
    ours, theirs = twins
    tokens_BL = torch.randint(VOCAB, (3, length))
    found_BLV, expected_BLV = ours(tokens_BL, Context(backend=backend)), theirs(tokens_BL)
    torch.testing.assert_close(found_BLV, expected_BLV, rtol=1e-10, atol=1e-10)
    weights_BLV = torch.randn_like(found_BLV)
    for model, logits_BLV in ((ours, found_BLV), (theirs, expected_BLV)):
        model.zero_grad()
        (logits_BLV * weights_BLV).sum().backward()
    gradients = {name: parameter.grad for name, parameter in ours.named_parameters()}
    for name, expected in translated(theirs, lambda parameter: parameter.grad).items():
        torch.testing.assert_close(gradients[name], expected, rtol=1e-8, atol=1e-8, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("width", [48, 96, 192, 256])
def test_widths_and_weights_at_the_start(width: int) -> None:
    """Fixed initial weights are equal, drawn ones have the same deviation. Their model has no vocabulary head."""
    settings = transformers.xLSTMConfig(
        vocab_size=VOCAB, hidden_size=width, num_hidden_layers=BLOCKS, num_heads=HEADS, **NATIVE
    )
    theirs = transformers.xLSTMModel(settings)
    theirs.embedding, theirs.backbone, theirs.lm_head = theirs.embeddings, theirs, theirs.embeddings
    ours = XLSTMLargeConfig(d_model=width, num_heads=HEADS, ends_init="small").build(VOCAB).state_dict()
    for name, expected in translated(theirs, lambda parameter: parameter.detach()).items():
        found = ours[name]
        assert found.shape == expected.shape
        if name.endswith("3.gate_up.weight"):
            found, expected = found.chunk(2)[1], expected.chunk(2)[1]
        if expected.unique().numel() <= HEADS + 1:
            if not name.endswith("out_gate.weight"):
                torch.testing.assert_close(found, expected, msg=lambda m, n=name: f"{n}: {m}")
        else:
            assert found.std().item() == pytest.approx(expected.std().item(), rel=0.2), name
