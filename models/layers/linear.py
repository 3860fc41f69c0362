"""Linear layers of all models, a plugin's too, by the fastest product available (models/scans/products.py)."""

from collections.abc import Sequence

from torch import Tensor, nn

from chomsky_ladder.models.scans.products import product, product_in_parts, product_of_each, products_of_one


class Linear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return product(x, self.weight, self.bias)


def in_parts(layer: nn.Linear, x: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """Apply a layer without a bias, and split the output along the last axis."""
    if type(layer) is not Linear or layer.bias is not None:
        return layer(x).split(list(sizes), -1)
    return product_in_parts(x, layer.weight, sizes)


def of_each(layers: Sequence[nn.Linear | Tensor], inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """Apply layers of one width without a bias, or bare weights [O, I], to one input each."""
    maybe = [_weight_alone(layer) for layer in layers]
    weights = [weight for weight in maybe if weight is not None]
    if len(weights) < len(layers):
        pairs = zip(layers, inputs, strict=True)
        return [product(x, layer) if isinstance(layer, Tensor) else layer(x) for layer, x in pairs]
    return product_of_each(inputs, weights)


def of_one(layers: Sequence[nn.Module], x: Tensor) -> Sequence[Tensor]:
    """Apply several layers, all with a bias or all without, to one input."""
    ours = [layer for layer in layers if type(layer) is Linear]
    biases = [layer.bias for layer in ours if layer.bias is not None]
    if len(ours) < len(layers) or len(biases) not in (0, len(layers)):
        return [layer(x) for layer in layers]
    return products_of_one(x, [layer.weight for layer in ours], biases or None)


def _weight_alone(layer: nn.Module | Tensor) -> Tensor | None:
    """Return a layer's weight if it is a linear layer without a bias, else None."""
    if isinstance(layer, Tensor):
        return layer
    return layer.weight if type(layer) is Linear and layer.bias is None else None


def take_over(model: nn.Module) -> None:
    """Replace torch's linear layers in a model by these: the same weights, names and values, up to rounding."""
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = Linear
