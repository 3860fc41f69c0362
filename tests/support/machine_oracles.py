"""Shared code for tests of memory machines: their controllers in numpy, and a block compared with a naive loop."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn

from chomsky_ladder.models.block import Block, Context

Weights = dict[str, np.ndarray]
Naive = Callable[[Weights, np.ndarray], np.ndarray]  # from weights by name and one row's inputs [L, D] to its outputs


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softplus(x: np.ndarray) -> np.ndarray:
    return np.log(1 + np.exp(x))


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum()


def cosine(k: np.ndarray, m: np.ndarray) -> float:
    return float(k @ m / np.sqrt((k @ k + 1e-6) * (m @ m + 1e-6)))


def controller(p: Weights, x: np.ndarray, read: np.ndarray, state: list[np.ndarray], core: str) -> list[np.ndarray]:
    """The state after one token, h first."""
    W, V, b = (p[f"controller.{name}"] for name in ("weight_ih", "weight_rh", "bias"))
    total = W @ x + V @ read + b
    if core == "feed_forward":
        return [np.tanh(total)]
    total = total + p["controller.weight_hh"] @ state[0]
    if core == "lstm":
        i, f, g, o = np.split(total, 4)
        c = sigmoid(f) * state[1] + sigmoid(i) * np.tanh(g)
        return [sigmoid(o) * np.tanh(c), c]
    return [np.tanh(total) if core == "tanh" else np.maximum(total, 0)]


def linear(p: Weights, name: str, x: np.ndarray) -> np.ndarray:
    return p[f"{name}.weight"] @ x + p[f"{name}.bias"]


def weights_of(block: nn.Module) -> Weights:
    return {name: parameter.detach().numpy().copy() for name, parameter in block.named_parameters()}


def assert_equal_to(naive: Naive, block: Block, *, length: int, tolerance: float = 1e-11) -> None:
    """Outputs of three rows, and the derivative of a weighted sum of them in a random direction of each parameter."""
    width = block.controller.width if hasattr(block, "controller") else block.norm.normalized_shape[0]
    x_BLD = torch.randn(3, length, width, dtype=torch.float64)
    p = weights_of(block)
    y_BLD = block(x_BLD, Context())
    expected = np.stack([naive(p, x) for x in x_BLD.numpy()])
    np.testing.assert_allclose(y_BLD.detach().numpy(), expected, rtol=tolerance, atol=tolerance)

    mix = torch.randn(y_BLD.shape, dtype=torch.float64)
    names, parameters = zip(*block.named_parameters(), strict=True)
    gradients = torch.autograd.grad((y_BLD * mix).sum(), parameters, allow_unused=True, materialize_grads=True)
    for name, gradient in zip(names, gradients, strict=True):
        direction = torch.randn_like(gradient).sign()
        losses = []
        for step in (1e-6, -1e-6):
            moved = {**p, name: p[name] + step * direction.numpy()}
            rows = zip(x_BLD.numpy(), mix.numpy(), strict=True)
            losses.append(sum(float((naive(moved, x) * w).sum()) for x, w in rows))
        difference = (losses[0] - losses[1]) / 2e-6
        found = float((gradient * direction).sum())
        assert abs(found - difference) < 1e-6 * max(1.0, abs(difference)), (name, found, difference)


class Told(nn.Module):
    """Replaces a layer that asks something of a memory: each step gets its questions from a list, whatever h is."""

    def __init__(self, asked_TX: Sequence[Sequence[float] | torch.Tensor], *, width: int = 2) -> None:
        super().__init__()
        self.asked = iter(asked_TX)
        self.register_buffer("weight", torch.zeros(len(asked_TX[0]), width))

    @property
    def bias(self) -> torch.Tensor:
        return torch.as_tensor(next(self.asked)).to(self.weight)
