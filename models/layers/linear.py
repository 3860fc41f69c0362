"""Every linear layer of a model, a plugin's too, by the fastest product there is (models/scans/products.py)."""

from collections.abc import Sequence

from torch import Tensor, nn

from chomsky_ladder.models.scans.products import product, product_in_parts, product_of_each, products_of_one


class Linear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return product(x, self.weight, self.bias)


def in_parts(layer: nn.Linear, x: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """What a layer without a bias gives, split along the last axis."""
    if type(layer) is not Linear or layer.bias is not None:
        return layer(x).split(list(sizes), -1)
    return product_in_parts(x, layer.weight, sizes)


def of_each(layers: Sequence[nn.Linear], inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """What layers of one size without a bias give of an input each."""
    if not all(type(layer) is Linear and layer.bias is None for layer in layers):
        return [layer(x) for layer, x in zip(layers, inputs, strict=True)]
    return product_of_each(inputs, [layer.weight for layer in layers])


def of_one(layers: Sequence[nn.Module], x: Tensor) -> Sequence[Tensor]:
    """What layers without a bias give of one input."""
    weights = [layer.weight for layer in layers if type(layer) is Linear and layer.bias is None]
    if len(weights) < len(layers):
        return [layer(x) for layer in layers]
    return products_of_one(x, weights)


def take_over(model: nn.Module) -> None:
    """Let torch's linear layers in a model be these: the same weights, names and values, to rounding."""
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = Linear
