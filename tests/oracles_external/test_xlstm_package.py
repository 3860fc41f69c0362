"""xLSTM blocks against those of the authors' package, xlstm 2.0.6: same weights, then outputs and all gradients.

The package's sLSTM runs its backend for CPUs, "vanilla". Its modules `fgate` and `igate` are named crosswise: what
`fgate` gives is the first gate, which the recurrence reads as i.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.xlstm import XLSTMConfig

xlstm = pytest.importorskip("xlstm")

WIDTH, HEADS, LENGTHS = 32, 4, (1, 2, 17, 63, 64, 65, 130)

Pick = Callable[[nn.Parameter], Tensor]


def package_stack(slstm_at: list[int], *, num_blocks: int, conv: str = "none", init: str = "standard") -> nn.Module:
    slstm = xlstm.sLSTMLayerConfig(
        backend="vanilla",
        num_heads=HEADS,
        conv1d_kernel_size=4 if conv == "causal4" else 0,
        recurrent_weight_init=init,
        dtype="float32",
    )
    feed_forward = xlstm.FeedForwardConfig(proj_factor=4 / 3, act_fn="gelu")
    config = xlstm.xLSTMBlockStackConfig(
        mlstm_block=xlstm.mLSTMBlockConfig(mlstm=xlstm.mLSTMLayerConfig(num_heads=HEADS)),
        slstm_block=xlstm.sLSTMBlockConfig(slstm=slstm, feedforward=feed_forward),
        context_length=max(LENGTHS),
        num_blocks=num_blocks,
        embedding_dim=WIDTH,
        slstm_at=slstm_at,
    )
    return xlstm.xLSTMBlockStack(config)


def own_config(ratio: str, *, num_blocks: int, conv: str = "none", init: str = "standard") -> XLSTMConfig:
    return XLSTMConfig(
        d_model=WIDTH, num_heads=HEADS, num_blocks=num_blocks, ratio=ratio, conv=conv, recurrent_init=init
    )


class OwnStack(nn.Module):
    def __init__(self, config: XLSTMConfig) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(config.blocks())
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        for block in self.blocks:
            x_BLD = block(x_BLD, ctx)
        return self.norm(x_BLD)


def of_slstm(layer: nn.Module, pick: Pick) -> dict[str, Tensor]:
    gates = [pick(getattr(layer, name).weight) for name in ("fgate", "igate", "zgate", "ogate")]
    cell = layer.slstm_cell
    return {
        "weight_HGK": torch.cat(gates, 1),
        "recurrent_HGK": pick(cell._recurrent_kernel_),
        "bias": pick(cell._bias_).view(4, HEADS, -1).transpose(0, 1).flatten(),
        "norm.weight": pick(layer.group_norm.weight),
        **(of_convolution(layer.conv1d, pick) if hasattr(layer, "conv1d") else {}),
    }


def of_mlstm(layer: nn.Module, pick: Pick) -> dict[str, Tensor]:
    cell = layer.mlstm_cell
    return {
        "up.weight": pick(layer.proj_up.weight),
        **of_convolution(layer.conv1d, pick),
        **{f"{ours}.weight": pick(getattr(layer, f"{ours[0]}_proj").weight) for ours in ("query", "key", "value")},
        "gates.weight": torch.cat([pick(cell.igate.weight), pick(cell.fgate.weight)]),
        "gates.bias": torch.cat([pick(cell.igate.bias), pick(cell.fgate.bias)]),
        "norm.weight": pick(cell.outnorm.weight),
        "skip": pick(layer.learnable_skip),
        "down.weight": pick(layer.proj_down.weight),
    }


def of_convolution(module: nn.Module, pick: Pick) -> dict[str, Tensor]:
    return {"conv.weight": pick(module.conv.weight)[:, 0], "conv.bias": pick(module.conv.bias)}


def translated(stack: nn.Module, pick: Pick) -> dict[str, Tensor]:
    """Return what `pick` takes of the package's parameters, by our names and in our layouts."""
    found = {"norm.weight": pick(stack.post_blocks_norm.weight)}
    for number, block in enumerate(stack.blocks):
        layer = block.xlstm
        of_layer = of_slstm(layer, pick) if hasattr(layer, "slstm_cell") else of_mlstm(layer, pick)
        found |= {f"blocks.{number}.parts.1.{name}": value for name, value in of_layer.items()}
        found[f"blocks.{number}.parts.0.weight"] = pick(block.xlstm_norm.weight)
        if block.ffn is not None:
            gate, up = pick(block.ffn.proj_up.weight).chunk(2)
            of_ffn = {"gate.weight": gate, "up.weight": up, "out.weight": pick(block.ffn.proj_down.weight)}
            found |= {f"blocks.{number}.parts.3.{name}": value for name, value in of_ffn.items()}
            found[f"blocks.{number}.parts.2.weight"] = pick(block.ffn_norm.weight)
    return found


def is_norm(name: str) -> bool:
    """A block's parts are by turns a norm and what stands behind it."""
    return "norm" in name or name.endswith(("parts.0.weight", "parts.2.weight"))


def weights(stack: nn.Module) -> dict[str, Tensor]:
    """The package's norms keep their weights less 1."""
    found = translated(stack, lambda parameter: parameter.detach())
    return {name: value + 1 if is_norm(name) else value for name, value in found.items()}


def twins(ratio: str, slstm_at: list[int], *, num_blocks: int, **choices: str) -> tuple[OwnStack, nn.Module]:
    """Both stacks in float64 with the same weights, none of them special: neither the norms' 1 nor the gates' 0."""
    theirs = package_stack(slstm_at, num_blocks=num_blocks, **choices).double()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    ours = OwnStack(own_config(ratio, num_blocks=num_blocks, **choices)).double()
    missing, unexpected = ours.load_state_dict(weights(theirs), strict=False)
    assert not unexpected
    norms = [name.removesuffix("bias") + "weight" for name in missing if name.endswith("bias")]
    assert len(norms) == len(missing) and all(map(is_norm, norms)), "only LayerNorms have a bias of their own"
    return ours, theirs


STACKS = {
    "mLSTM": ("1:0", [], 1, "none"),
    "sLSTM": ("0:1", [0], 1, "none"),
    "sLSTM behind a convolution": ("0:1", [0], 1, "causal4"),
    "[1:1]": ("1:1", [1], 2, "none"),
    "[2:1] with a convolution": ("2:1", [2, 5], 6, "causal4"),
}


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("stack", STACKS)
def test_outputs_and_all_gradients(stack: str, backend: str) -> None:
    ratio, slstm_at, num_blocks, conv = STACKS[stack]
    ours, theirs = twins(ratio, slstm_at, num_blocks=num_blocks, conv=conv)
    for length in LENGTHS if num_blocks < 6 else (17,):
        x_BLD, direction_BLD = torch.randn(2, 3, length, WIDTH, dtype=torch.float64)
        x_BLD.requires_grad_()
        expected_BLD, found_BLD = theirs(x_BLD), ours(x_BLD, Context(backend=backend))
        torch.testing.assert_close(found_BLD, expected_BLD, rtol=1e-10, atol=1e-10)

        theirs.zero_grad()
        (expected,) = torch.autograd.grad((expected_BLD * direction_BLD).sum(), x_BLD, retain_graph=True)
        (expected_BLD * direction_BLD).sum().backward(inputs=list(theirs.parameters()))
        gradients = {"x": expected, **translated(theirs, lambda parameter: parameter.grad)}
        parameters = dict(ours.named_parameters())
        own = torch.autograd.grad(
            (found_BLD * direction_BLD).sum(), [x_BLD, *(parameters[name] for name in gradients if name != "x")]
        )
        for (name, gradient), found in zip(gradients.items(), own, strict=True):
            torch.testing.assert_close(found, gradient, rtol=1e-8, atol=1e-8, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.full
@pytest.mark.parametrize("stack", ["sLSTM", "sLSTM behind a convolution"])
def test_slstms_of_heads_that_no_mlstm_has(stack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three heads of eight channels, where the 64 channels of an mLSTM do not split in three."""
    for name, value in {"WIDTH": 24, "HEADS": 3}.items():
        monkeypatch.setitem(globals(), name, value)
    test_outputs_and_all_gradients(stack, "auto")


def test_steps() -> None:
    """The package's stabiliser starts at 0 in its steps, which moves what its eps counts for: hence the tolerance."""
    ours, theirs = twins("1:1", [1], num_blocks=2, conv="causal4")
    x_BLD = torch.randn(3, 17, WIDTH, dtype=torch.float64)
    states = [block.init_state(3, max_length=17, device=x_BLD.device, dtype=x_BLD.dtype) for block in ours.blocks]
    state = None
    for x_BD in x_BLD.unbind(1):
        with torch.no_grad():
            expected_BLD, state = theirs.step(x_BD[:, None], state)
        for number, block in enumerate(ours.blocks):
            x_BD, states[number] = block.step(x_BD, states[number], Context())
        torch.testing.assert_close(ours.norm(x_BD), expected_BLD[:, 0], rtol=1e-4, atol=1e-4)


def test_initial_weights() -> None:
    """Fixed initial weights are equal, drawn ones have the same standard deviation."""
    for init in ("standard", "zeros"):
        theirs = package_stack([1, 2], num_blocks=3, conv="causal4", init=init)
        ours = OwnStack(own_config("1:2", num_blocks=3, conv="causal4", init=init)).state_dict()
        for name, expected in weights(theirs).items():
            found = ours[name]
            assert found.shape == expected.shape
            if name.endswith(("parts.1.bias", "norm.weight", "skip", "gates.weight")) or is_norm(name):
                torch.testing.assert_close(found, expected, msg=lambda m, n=name: f"{n}: {m}")
            elif name.endswith("gates.bias"):
                torch.testing.assert_close(found[HEADS:], expected[HEADS:])
                assert 0 < found[:HEADS].abs().max() < 0.5
            else:
                assert found.std().item() == pytest.approx(
                    expected.std().item(), rel=0.2 if found.numel() > 500 else 0.5
                ), name
