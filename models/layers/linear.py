"""Every linear layer of a model, a plugin's too, by the fastest product there is (models/scans/products.py)."""

from torch import Tensor, nn

from chomsky_ladder.models.scans.products import product


class Linear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return product(x, self.weight, self.bias)


def take_over(model: nn.Module) -> None:
    """Let torch's linear layers in a model be these: the same weights, names and values, to rounding."""
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = Linear
