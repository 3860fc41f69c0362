"""Compare other packages with ours, in turns: the xlstm package and transformers on any device, CUDA kernels on theirs.

Each is two blocks of width 64 and their last norm, forward and backward to the input and all weights, ours by its
default path and by its reference. The xlstm package runs its native, plain backends, and transformers' Mamba its plain
loop if the CUDA package is missing. tests/oracles_external checks that they compute the same.

A CUDA kernel is called in two ways on the shape of its own package's benchmark: as its package calls it, and through
our wiring (models/kernels/), whose transposes and casts may cost no more than three per cent.
"""

import importlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from chomsky_ladder.harness.throughput.measure import Act, Meter
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Backend, Context, make_norm
from chomsky_ladder.models.kernels.choose import available, named
from chomsky_ladder.models.mamba import MambaConfig
from chomsky_ladder.models.operations.scan.mamba_ssm_package import mamba_scan
from chomsky_ladder.models.xlstm import XLSTMConfig

WIDTH, NUM_BLOCKS, NUM_HEADS = 64, 2, 4
SHAPES = ((16, 40), (4, 128))  # batch and length
GOALS = {"xlstm package, mLSTM": 1.0, "xlstm package, sLSTM": 5.0, "transformers, Mamba": 1.0}
WIRED = 0.97
LONG = (8, 2048, 2048)  # batch, length and channels of the CUDA packages' own benchmarks

Row = dict[str, Any]


class Ours(nn.Module):
    def __init__(self, config: ModelConfig, backend: Backend) -> None:
        super().__init__()
        self.blocks, self.backend = nn.ModuleList(config.blocks()), backend
        self.norm = make_norm(config.final_norm, config.d_model)

    def forward(self, x_BLD: Tensor) -> Tensor:
        for block in self.blocks:
            x_BLD = block(x_BLD, Context(backend=self.backend))
        return self.norm(x_BLD)


def package_xlstm(kind: str, length: int) -> nn.Module:
    """Return the xlstm package's stack of mLSTM or sLSTM blocks. Raise ImportError without it."""
    import xlstm

    mlstm = xlstm.mLSTMBlockConfig(mlstm=xlstm.mLSTMLayerConfig(num_heads=NUM_HEADS))
    layer = xlstm.sLSTMLayerConfig(
        backend="vanilla",
        num_heads=NUM_HEADS,
        conv1d_kernel_size=0,
        recurrent_weight_init="standard",
        dtype="float32",
    )
    feed_forward = xlstm.FeedForwardConfig(proj_factor=4 / 3, act_fn="gelu")
    config = xlstm.xLSTMBlockStackConfig(
        mlstm_block=mlstm,
        slstm_block=xlstm.sLSTMBlockConfig(slstm=layer, feedforward=feed_forward),
        num_blocks=NUM_BLOCKS,
        embedding_dim=WIDTH,
        context_length=length,
        slstm_at="all" if kind == "sLSTM" else [],
    )
    return xlstm.xLSTMBlockStack(config)


class TransformersMamba(nn.Module):
    """transformers' Mamba without its embedding and head. Raises ImportError without the package."""

    def __init__(self) -> None:
        super().__init__()
        # By name: as an import, its list of all models costs the type checker 20 s.
        transformers = importlib.import_module("transformers")
        logging.getLogger("transformers").setLevel(logging.ERROR)  # it warns at every start that it is slow
        config = transformers.MambaConfig(
            vocab_size=2, hidden_size=WIDTH, num_hidden_layers=NUM_BLOCKS, state_size=16, use_cache=False
        )
        self.model = transformers.MambaModel(config)

    def forward(self, x_BLD: Tensor) -> Tensor:
        return self.model(inputs_embeds=x_BLD).last_hidden_state


def peer_rows(meter: Meter) -> list[Row]:
    return [*block_rows(meter), *wiring_rows(meter)]


def block_rows(meter: Meter) -> Iterator[Row]:
    """Yield a row for each peer and shape."""
    xlstm: dict[str, Any] = {"d_model": WIDTH, "num_blocks": NUM_BLOCKS, "num_heads": NUM_HEADS}
    peers: dict[str, tuple[ModelConfig, Callable[[int], nn.Module]]] = {
        "xlstm package, mLSTM": (XLSTMConfig(**xlstm, ratio="1:0"), lambda length: package_xlstm("mLSTM", length)),
        "xlstm package, sLSTM": (XLSTMConfig(**xlstm, ratio="0:1"), lambda length: package_xlstm("sLSTM", length)),
        "transformers, Mamba": (
            MambaConfig(d_model=WIDTH, num_blocks=NUM_BLOCKS),
            lambda length: TransformersMamba(),
        ),
    }
    for name, (config, theirs) in peers.items():
        for batch, length in SHAPES:
            row: Row = {"peer": name, "shape": f"{batch} x {length}", "goal": GOALS[name]}
            try:
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(0)
                    x_BLD, direction_BLD = torch.randn(2, batch, length, WIDTH, device=meter.device)
                    models = {
                        "ours": Ours(config, "auto"),
                        "reference": Ours(config, "reference"),
                        "theirs": theirs(length),
                    }
            except ImportError as error:
                yield row | {"not_run": str(error)}
                continue
            acts = {key: _both_ways(model.to(meter.device), x_BLD, direction_BLD) for key, model in models.items()}
            yield row | _beside(meter, acts)


def _both_ways(model: nn.Module, x_BLD: Tensor, direction_BLD: Tensor) -> Act:
    x_BLD = x_BLD.clone().requires_grad_()

    def act() -> None:
        model.zero_grad()
        x_BLD.grad = None
        model(x_BLD).backward(direction_BLD)

    return act


def _beside(meter: Meter, acts: dict[str, Act]) -> Row:
    spreads = meter.turns(acts)
    row: Row = {key: value for name, spread in spreads.items() for key, value in spread.named(f"{name}_").items()}
    row["ratio"] = spreads["theirs"].ms / spreads["ours"].ms
    if "reference" in spreads:
        row["reference_ratio"] = spreads["theirs"].ms / spreads["reference"].ms
    return row


def wiring_rows(meter: Meter) -> Iterator[Row]:
    """Yield rows of CUDA kernels called by us and called directly, forward, at their packages' shapes."""
    batch, length, channels = LONG
    missing = {kernel.name: kernel.missing() for kernel in available()}
    for name, acts_of in {"mamba_ssm": _selective_scan, "causal_conv1d": _convolution}.items():
        row: Row = {"peer": f"{name}, its kernel", "shape": f"{batch} x {length} x {channels}", "goal": WIRED}
        if missing[name]:
            yield row | {"not_run": missing[name]}
        else:
            with torch.no_grad():
                yield row | _beside(meter, acts_of(meter.device))


def _selective_scan(device: torch.device) -> dict[str, Act]:
    scan = importlib.import_module("mamba_ssm.ops.selective_scan_interface").selective_scan_fn
    batch, length, channels = LONG
    x_BLE, dt_BLE = torch.rand(2, batch, length, channels, device=device)
    B_BLN, C_BLN = torch.rand(2, batch, length, 16, device=device)
    A_EN, D_E = -torch.rand(channels, 16, device=device), torch.rand(channels, device=device)
    turned = [z.mT.contiguous() for z in (x_BLE, dt_BLE)]
    states = [z.mT.contiguous() for z in (B_BLN, C_BLN)]
    return {
        "ours": lambda: mamba_scan(x_BLE, dt_BLE, A_EN, B_BLN, C_BLN, D_E),
        "theirs": lambda: scan(*turned, A_EN, *states, D_E),
    }


def _convolution(device: torch.device) -> dict[str, Act]:
    convolve = importlib.import_module("causal_conv1d").causal_conv1d_fn
    batch, length, channels = LONG
    x_BLE = torch.rand(batch, length, channels, device=device)
    weight_EW, bias_E = torch.rand(channels, 4, device=device), torch.rand(channels, device=device)
    turned_BEL = x_BLE.mT.contiguous()
    return {
        "ours": lambda: named("causal_conv1d").call(x_BLE, weight_EW, bias_E),
        "theirs": lambda: convolve(turned_BEL, weight_EW, bias_E),
    }
