"""Linear layers of every model: which are ours, what several give of one input or of an input each."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from chomsky_ladder.models.backbone import Backbone
from chomsky_ladder.models.layers.linear import Linear, of_each, of_one, take_over
from chomsky_ladder.models.plain import plain_model
from chomsky_ladder.models.scans.products import (
    _one_stack,
    product_of_each,
    product_of_rows,
    product_of_stack,
    products_of_one,
)
from chomsky_ladder.models.transformer import TransformerConfig
from support.layers import near

torch.set_num_threads(1)


@pytest.mark.parametrize("biased", [False, True])
def test_products_of_each_one_by_one_and_as_a_stack(biased: bool) -> None:
    leaves = [torch.randn(3, 2, 9, 7), torch.randn(3, 24, 7), torch.randn(3, 24)]
    x_NBLI, weight_NOI, bias_NO = (z.requires_grad_() for z in leaves)
    given = (x_NBLI, weight_NOI, bias_NO if biased else None)
    biases = bias_NO.double() if biased else [None] * 3
    parts = zip(x_NBLI.double(), weight_NOI.double(), biases, strict=True)
    expected = torch.stack([linear(*each) for each in parts])
    found = [torch.stack(list(form(*given))) for form in (product_of_each, product_of_stack)]
    read = leaves[: 2 + biased]
    exact = torch.autograd.grad(expected.pow(2).sum(), read)
    for y_NBLO in found:
        near(y_NBLO, expected)
        for one, other in zip(torch.autograd.grad(y_NBLO.pow(2).sum(), read), exact, strict=True):
            near(one, other)
    twice = [None if z is None else torch.stack([z, 2 * z]) for z in given]
    together = torch.vmap(lambda *each: torch.stack(list(product_of_stack(*each))), (0, 0, 0 if biased else None))(
        *twice
    )
    near(together[0], expected)


def test_some_of_a_stack_have_a_bias() -> None:
    x_NBI, weight_NOI, bias_O = torch.randn(3, 9, 7), torch.randn(3, 5, 7), torch.randn(5)
    biases = [None, bias_O, None]
    doubled = [None if b_O is None else b_O.double() for b_O in biases]
    expected = list(map(linear, x_NBI.double(), weight_NOI.double(), doubled))
    for form in (product_of_each, product_of_stack):
        for y_BO, other in zip(form(x_NBI, weight_NOI, biases), expected, strict=True):
            near(y_BO, other)


def test_weights_of_a_stack_may_have_more_rows_than_others() -> None:
    x_NBI, bias_O = torch.randn(3, 9, 7).requires_grad_(), torch.randn(2).requires_grad_()
    weights = [torch.randn(rows, 7).requires_grad_() for rows in (5, 2, 1)]
    biases = [None, bias_O, None]
    doubled = [None if b_O is None else b_O.double() for b_O in biases]
    expected = list(map(linear, x_NBI.double(), [weight.double() for weight in weights], doubled))
    exact = torch.autograd.grad(sum(y.pow(2).sum() for y in expected), [x_NBI, bias_O, *weights])
    for form in (product_of_each, product_of_stack):
        found = form(x_NBI, weights, biases)
        for y_BO, other in zip(found, expected, strict=True):
            near(y_BO, other)
        gradients = torch.autograd.grad(sum(y.pow(2).sum() for y in found), [x_NBI, bias_O, *weights])
        for one, other in zip(gradients, exact, strict=True):
            near(one, other)


def test_what_is_stacked_is_in_the_precision_of_the_products() -> None:
    parts = [torch.randn(3, 4, requires_grad=True) for _ in range(2)]
    assert _one_stack(parts).dtype == torch.float32 and _one_stack(torch.stack(parts)).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        found = _one_stack(parts)
        assert _one_stack([part.double() for part in parts]).dtype == torch.float64  # autocast leaves those alone
    assert torch.equal(found, torch.stack(parts).bfloat16())
    assert all(grad.dtype == torch.float32 for grad in torch.autograd.grad(found.sum(), parts))


@pytest.mark.parametrize("biased", [False, True])
def test_products_of_one_input_by_themselves_and_by_the_rows_of_all(biased: bool) -> None:
    x, weights = torch.randn(2, 9, 7).requires_grad_(), [torch.randn(n, 7).requires_grad_() for n in (4, 1, 30)]
    biases = [torch.randn(n).requires_grad_() for n in (4, 1, 30)] if biased else None
    doubled = [bias.double() for bias in biases] if biases else [None] * 3
    expected = [linear(x.double(), weight.double(), bias) for weight, bias in zip(weights, doubled, strict=True)]
    read = [x, *weights, *(biases or [])]
    exact = torch.autograd.grad(sum(y.pow(2).sum() for y in expected), read)
    for form in (products_of_one, product_of_rows):
        found = form(x, weights, biases)
        for y, other in zip(found, expected, strict=True):
            near(y, other)
        gradients = torch.autograd.grad(sum(y.pow(2).sum() for y in found), read)
        for one, other in zip(gradients, exact, strict=True):
            near(one, other)


def test_layers_of_one_input() -> None:
    """Several layers of one input equal their calls, also where one is not ours or has a bias."""
    layers, x = [nn.Linear(7, width, bias=width == 3) for width in (5, 2, 3)], torch.randn(3, 4, 7)
    expected = [layer(x) for layer in layers]
    for ours in (layers[:0], layers[:2], layers):
        for layer in ours:
            layer.__class__ = Linear
        for count in (2, 3):
            for one, other in zip(of_one(layers[:count], x), expected, strict=False):
                near(one, other)
        near(of_one(layers[2:], x)[0], expected[2])


def test_layers_of_an_input_each() -> None:
    """Layers with an input each equal their calls, also where one is not ours."""
    layers, inputs = [nn.Linear(7, 5, bias=False) for _ in range(3)], torch.randn(3, 4, 7).unbind(0)
    expected = [layer(x) for layer, x in zip(layers, inputs, strict=True)]
    for ours in (layers[:0], layers[:2], layers):
        for layer in ours:
            layer.__class__ = Linear
        for one, other in zip(of_each(layers, inputs), expected, strict=True):
            near(one, other)
    weight_OI = torch.randn(2, 7)
    for last in (layers[1], nn.Linear(7, 5, bias=False)):  # all are their weights, or one is not
        found = of_each([layers[0], weight_OI, last], inputs)
        near(found[0], expected[0])
        near(found[1], linear(inputs[1], weight_OI))
        near(found[2], last(inputs[2]))


def test_a_models_linear_layers_are_these_whoever_wrote_it() -> None:
    config = plain_model("theirs", lambda d_model: nn.Sequential(nn.Linear(d_model, 8), nn.Linear(8, d_model)))
    for model in (config(d_model=16).build(5), TransformerConfig(d_model=16, num_heads=2).build(5)):
        assert isinstance(model, Backbone)
        layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
        assert len(layers) > 4 and {type(layer) for layer in layers} == {Linear}


def test_what_is_more_than_a_linear_layer_is_left_alone() -> None:
    class Doubled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
            return 2 * super().forward(x)

    model = nn.ModuleList([nn.Linear(4, 3), Doubled(4, 3)])
    names = list(model.state_dict())
    take_over(model)
    assert [type(module) for module in model] == [Linear, Doubled] and list(model.state_dict()) == names
