"""Large products in fp32 on a CPU: oneDNN's beside those of float64, all gradients, and where they are torch's."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.utils._python_dispatch import TorchDispatchMode

from chomsky_ladder.models.backbone import Backbone
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.layers.linear import Linear, take_over
from chomsky_ladder.models.plain import plain_model
from chomsky_ladder.models.scans import products
from chomsky_ladder.models.scans.products import by_onednn, product
from chomsky_ladder.models.transformer import TransformerConfig

SIZES = [(1, 1, 1), (3, 7, 5), (65, 33, 17), (40, 128, 64)]

here = pytest.mark.skipif(not by_onednn(), reason="products are torch's own on this machine")


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "LARGE", 0)


class Asked(TorchDispatchMode):
    """How many products oneDNN is asked for."""

    calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += func is torch.ops.mkldnn._linear_pointwise.default
        return func(*args, **(kwargs or {}))


def given(rows: int, inside: int, columns: int) -> list[Tensor]:
    x, weight, bias = torch.randn(2, rows, inside), torch.randn(columns, inside), torch.randn(columns)
    return [z.requires_grad_() for z in (x, weight, bias)]


def near(one: Tensor, exact: Tensor) -> None:
    assert one.dtype == torch.float32 and one.shape == exact.shape
    assert (one - exact).abs().max() <= 2e-6 * exact.abs().max()


@here
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_products_and_their_gradients_are_those_of_float64(size: tuple[int, int, int], has_bias: bool) -> None:
    inputs = given(*size)[: 2 + has_bias]
    exact = [z.detach().double().requires_grad_() for z in inputs]
    direction = torch.randn(2, size[0], size[2])
    with Asked() as asked:
        y = product(*inputs)
        found = torch.autograd.grad(y, inputs, direction)
    assert asked.calls == 3, "the product, and the gradients of x and W"
    expected = linear(*exact)
    near(y, expected)
    for one, other in zip(found, torch.autograd.grad(expected, exact, direction.double()), strict=True):
        near(one, other)


@here
def test_inputs_in_any_order_of_memory() -> None:
    x, weight, _ = given(40, 24, 16)
    with torch.no_grad():
        turned = x.permute(2, 1, 0).contiguous().permute(2, 1, 0)
        for of_x, of_weight in ((turned, weight), (x, weight.mT.contiguous().mT), (x.repeat(1, 2, 1)[:, ::2], weight)):
            near(product(of_x, of_weight), linear(of_x.double(), of_weight.double()))


@here
def test_only_what_is_asked_for_is_multiplied() -> None:
    x, weight, bias = given(9, 8, 7)
    with Asked() as asked:
        product(x.detach(), weight, bias).sum().backward()
    assert asked.calls == 2
    with Asked() as asked:
        product(x, weight.detach()).sum().backward()
    assert asked.calls == 2


@here
@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own, by what forward mode imports
def test_it_differentiates_twice_and_forward() -> None:
    inputs = given(5, 4, 3)
    exact = [z.detach().double().requires_grad_() for z in inputs]

    def curvature(call: Callable[..., Tensor], inputs: list[Tensor]) -> tuple[Tensor, ...]:
        first = torch.autograd.grad(call(*inputs).pow(3).sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum(z.pow(2).sum() for z in first), inputs)

    for one, other in zip(curvature(product, inputs), curvature(linear, exact), strict=True):
        near(one, other)
    tangents = [torch.randn_like(z) for z in inputs]
    plain = [z.detach() for z in inputs]
    for count in (1, 2, 3):  # of x alone, of x and W, of all
        moved = tuple(tangents[:count])

        def of_first(*first: Tensor, count: int = count) -> Tensor:
            return product(*first, *plain[count:])

        def of_exact(*first: Tensor, count: int = count) -> Tensor:
            return linear(*first, *(z.double() for z in plain[count:]))

        _, found = torch.func.jvp(of_first, tuple(plain[:count]), moved)
        twice = [tuple(z.double() for z in part) for part in (plain[:count], moved)]
        near(found, torch.func.jvp(of_exact, *twice)[1])


@here
@pytest.mark.parametrize("in_dims", [(0, 0, 0), (0, None, None), (None, 0, 0), (0, 0, None)])
def test_it_stacks(in_dims: tuple[int | None, ...]) -> None:
    inputs = [z.detach() for z in given(6, 5, 4)]
    stacked = [z if dim is None else torch.stack([z, 2 * z, -z]) for z, dim in zip(inputs, in_dims, strict=True)]
    twice = [z.double() for z in stacked]
    near(torch.vmap(product, in_dims)(*stacked), torch.vmap(linear, in_dims)(*twice))


@here
def test_where_products_are_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, bias = (z.detach() for z in given(9, 8, 7))
    with Asked() as asked:
        product(x.double(), weight.double(), bias.double())
        with torch.autocast("cpu", torch.bfloat16):
            assert product(x, weight, bias).dtype == torch.bfloat16
        with monkeypatch.context() as patched:
            patched.setattr(torch.backends.mkldnn, "enabled", False)
            assert torch.equal(product(x, weight, bias), linear(x, weight, bias))
        monkeypatch.setattr(products, "LARGE", x.numel() * 7 + 1)
        assert torch.equal(product(x, weight, bias), linear(x, weight, bias))
    assert asked.calls == 0
    with Asked() as asked:
        monkeypatch.setattr(products, "LARGE", x.numel() * 7)
        product(x, weight, bias)
    assert asked.calls == 1


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


@here
def test_a_model_multiplies_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens_BL = TransformerConfig(d_model=16, num_heads=2).build(5), torch.randint(5, (3, 9))
    with Asked() as asked:
        y = model(tokens_BL, Context())
    assert asked.calls == 9, "four a block, and the head"
    monkeypatch.setattr(products, "LARGE", 2**60)
    torch.testing.assert_close(y, model(tokens_BL, Context()), rtol=1e-5, atol=1e-5)
