"""Products in fp32 on a CPU by each library beside those of float64, all gradients, and where they are torch's."""

import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels.native import missing
from chomsky_ladder.models.layers.linear import in_parts, take_over
from chomsky_ladder.models.operations.product import native_product
from chomsky_ladder.models.scans import products
from chomsky_ladder.models.scans.products import (
    LIBRARIES,
    Library,
    by_torch,
    library,
    matmul,
    product,
    product_in_parts,
    put_product,
    torch_is_as_fast,
)
from chomsky_ladder.models.transformer import TransformerConfig
from support.layers import near

SIZES = [(1, 1, 1), (3, 7, 5), (65, 33, 17), (40, 128, 64), (50, 24, 16), (13, 300, 49)]

STACKS = [(2, 3, 5, 6, 7), (1, 2, 25, 260, 17), (2, 1, 12, 16, 32), (1, 1, 1, 1, 1), (3, 2, 97, 9, 40)]


@dataclass
class Asked:
    """A library that is asked for products of any size, and how often it was."""

    library: Library
    calls: int = 0

    def multiply(self, *given: Any, **options: Any) -> Tensor:
        self.calls += 1
        return self.library.multiply(*given, **options)


@pytest.fixture(params=[library.name for library in LIBRARIES])
def asked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked(next(library for library in LIBRARIES if library.name == request.param))
    if not asked.library.ready(1, asked.library.most_dimensions):
        pytest.skip(f"{request.param} multiplies nothing on this machine")
    only(monkeypatch, replace(of_one_thread(asked.library), least=0, multiply=asked.multiply))
    return asked


def of_one_thread(library: Library) -> Library:
    """Taken for matrices too, where torch is as fast with them."""
    return replace(library, ready=lambda threads, dimensions: threads == 1)


def only(monkeypatch: pytest.MonkeyPatch, library: Library) -> None:
    monkeypatch.setattr(products, "LIBRARIES", [library])
    monkeypatch.setattr(products, "torch_is_as_fast", lambda: False)


def given(rows: int, inside: int, columns: int) -> list[Tensor]:
    x, weight, bias = torch.randn(2, rows, inside), torch.randn(columns, inside), torch.randn(columns)
    return [z.requires_grad_() for z in (x, weight, bias)]


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_products_and_their_gradients_are_those_of_float64(
    asked: Asked, size: tuple[int, int, int], has_bias: bool
) -> None:
    inputs = given(*size)[: 2 + has_bias]
    exact = [z.detach().double().requires_grad_() for z in inputs]
    direction = torch.randn(2, size[0], size[2])
    y = product(*inputs)
    found = torch.autograd.grad(y, inputs, direction)
    assert asked.calls == 3, "the product, and the gradients of x and W"
    expected = linear(*exact)
    near(y, expected)
    for one, other in zip(found, torch.autograd.grad(expected, exact, direction.double()), strict=True):
        near(one, other)


def test_inputs_in_any_order_of_memory(asked: Asked) -> None:
    x, weight, _ = given(40, 24, 16)
    with torch.no_grad():
        turned = x.permute(2, 1, 0).contiguous().permute(2, 1, 0)
        for of_x, of_weight in ((turned, weight), (x, weight.mT.contiguous().mT), (x.repeat(1, 2, 1)[:, ::2], weight)):
            near(product(of_x, of_weight), linear(of_x.double(), of_weight.double()))


def test_only_what_is_asked_for_is_multiplied(asked: Asked) -> None:
    x, weight, bias = given(9, 8, 7)
    product(x.detach(), weight, bias).sum().backward()
    assert asked.calls == 2
    product(x, weight.detach()).sum().backward()
    assert asked.calls == 4


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # torch's own, by what forward mode imports
def test_it_differentiates_twice_and_forward(asked: Asked) -> None:
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


@pytest.mark.parametrize("in_dims", [(0, 0, 0), (0, None, None), (None, 0, 0), (0, 0, None)])
def test_it_stacks(asked: Asked, in_dims: tuple[int | None, ...]) -> None:
    inputs = [z.detach() for z in given(6, 5, 4)]
    stacked = [z if dim is None else torch.stack([z, 2 * z, -z]) for z, dim in zip(inputs, in_dims, strict=True)]
    twice = [z.double() for z in stacked]
    near(torch.vmap(product, in_dims)(*stacked), torch.vmap(linear, in_dims)(*twice))

    def gradients(call: Callable[..., Tensor], inputs: list[Tensor]) -> tuple[Tensor, ...]:
        wanted = [z.requires_grad_() for z in inputs]
        return torch.autograd.grad(torch.vmap(call, in_dims)(*wanted).pow(2).sum(), wanted)

    for one, other in zip(gradients(product, stacked), gradients(linear, twice), strict=True):
        near(one, other)
    twice_stacked = torch.vmap(torch.vmap(torch.vmap(product)))(*(z.detach().expand(2, 3, 2, *z.shape) for z in inputs))
    near(twice_stacked[1, 2, 1], linear(*(z.double() for z in inputs)))


def test_where_products_are_torchs_own(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, bias = (z.detach() for z in given(9, 8, 7))
    product(x.double(), weight.double(), bias.double())
    with torch.autocast("cpu", torch.bfloat16):
        assert product(x, weight, bias).dtype == torch.bfloat16
    with by_torch():
        assert torch.equal(product(x, weight, bias), linear(x, weight, bias))
    assert asked.calls == 0
    count = x.numel() * 7
    for least, calls in ((count + 1, 0), (count, 1)):
        only(monkeypatch, replace(of_one_thread(asked.library), least=least, multiply=asked.multiply))
        assert (library(1, count) is not None) == bool(calls)
        near(product(x, weight, bias), linear(x.double(), weight.double(), bias.double()))
        assert asked.calls == calls


@pytest.mark.parametrize("in_dims", [None, (0, 0), (0, None), (None, 0)])
def test_products_in_parts(asked: Asked, in_dims: tuple[int | None, ...] | None) -> None:
    """They equal one product that is split, also if some parts are not read."""
    sizes = (3, 20, 1)
    given = [torch.randn(2, 9, 7), torch.randn(24, 7)]
    if in_dims is not None:
        given = [z if dim is None else torch.stack([z, -z, 2 * z]) for z, dim in zip(given, in_dims, strict=True)]
    leaves, exact = [z.requires_grad_() for z in given], [z.detach().double().requires_grad_() for z in given]

    def of(x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        return product_in_parts(x, weight, sizes)

    def expected_of(x: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        return linear(x, weight).split(sizes, -1)

    both = (of, leaves), (expected_of, exact)
    found, expected = (call(*z) if in_dims is None else torch.vmap(call, in_dims)(*z) for call, z in both)
    for one, other in zip(found, expected, strict=True):
        near(one, other)
    if in_dims == (0, 0):
        thrice = torch.vmap(torch.vmap(torch.vmap(of)))(*(z[0].detach().expand(2, 3, 2, *z[0].shape) for z in leaves))
        near(thrice[1][1, 2, 0], expected[1][0])
    for read in ((0, 1, 2), (1,), (0, 2)):
        ours, theirs = (
            torch.autograd.grad(sum(parts[i].pow(2).sum() for i in read), z, retain_graph=True)
            for parts, z in ((found, leaves), (expected, exact))
        )
        for one, other in zip(ours, theirs, strict=True):
            near(one, other)


@pytest.mark.parametrize("lead", [(3,), (2, 3), (2, 1, 3), (2, 1, 3, 2)])
def test_products_of_stacks(asked: Asked, lead: tuple[int, ...]) -> None:
    a, b = torch.randn(*lead, 7, 5).requires_grad_(), torch.randn(*lead, 9, 5).mT.requires_grad_()
    exact = [z.detach().double().requires_grad_() for z in (a, b)]

    def gradients(y: Tensor, leaves: list[Tensor]) -> tuple[Tensor, ...]:
        first = torch.autograd.grad(y.pow(3).sum(), leaves, create_graph=True)
        return *first, *torch.autograd.grad(sum(z.pow(2).sum() for z in first), leaves)

    y, expected = matmul(a, b), exact[0] @ exact[1]
    near(y, expected)
    for one, other in zip(gradients(y, [a, b]), gradients(expected, exact), strict=True):
        near(one, other)
    near(torch.vmap(matmul)(a, b), expected)
    near(torch.vmap(matmul, (0, None))(a, b[0]), torch.vmap(torch.matmul, (0, None))(exact[0], exact[1][0]))
    assert (asked.calls > 0) == (asked.library.most_dimensions > 2)


@pytest.mark.parametrize("shared", [(1, 3), (2, 1), (1, 1)])
@pytest.mark.parametrize("more", [(), (4,)])
def test_stacks_of_which_one_is_shared(asked: Asked, shared: tuple[int, int], more: tuple[int, ...]) -> None:
    """Heads share keys like this: gradients are summed over them."""
    leaves = [torch.randn(*more, 2, 3, 7, 5).requires_grad_(), torch.randn(*more, *shared, 5, 6).requires_grad_()]
    exact = [z.detach().double().requires_grad_() for z in leaves]
    for turned in (False, True):
        y, expected = (
            form(z[1].mT, z[0].mT) if turned else form(*z) for form, z in ((matmul, leaves), (torch.matmul, exact))
        )
        near(y, expected)
        ours, theirs = (torch.autograd.grad(z.pow(2).sum(), of) for z, of in ((y, leaves), (expected, exact)))
        for one, other in zip(ours, theirs, strict=True):
            near(one, other)
    assert (asked.calls > 0) == (asked.library.most_dimensions > 2)


def test_what_is_no_pair_of_stacks_is_torchs(asked: Asked) -> None:
    a, b = torch.randn(2, 3, 4, 5), torch.randn(3, 5, 6)
    assert torch.equal(matmul(a, b), a @ b) and torch.equal(matmul(a[0, 0], b[0]), a[0, 0] @ b[0])
    assert asked.calls == 0


def test_of_two_libraries_the_first_that_is_ready_and_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "torch_is_as_fast", lambda: False)
    found = {work: library(1, 2**work) for work in (10, 24, 32)}
    of_matrices = {each.name: each for each in LIBRARIES if each.ready(1, 2)}
    of_stacks = {each.name: each for each in LIBRARIES if each.ready(1, 3)}
    assert found[10] is None
    assert found[24] is of_matrices.get("C", of_matrices.get("oneDNN"))
    assert found[32] is of_matrices.get("oneDNN")
    assert library(1, 2**32, 3) is of_stacks.get("C")


@pytest.mark.skipif(bool(missing()), reason="no kernels in C here")
@pytest.mark.parametrize("wide", [False, True])
def test_where_vectors_are_as_wide_as_mkls_single_products_are_torchs(
    wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "torch_is_as_fast", lambda: False)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512" if wide else "AVX2")
    of_matrices, of_stacks = library(1, 2**24, 2), library(1, 2**24, 3)
    assert (of_matrices is not None) == wide
    assert of_stacks is not None and of_stacks.name == "C"
    assert library(2, 2**24, 3) is None


@pytest.mark.parametrize("linux", [False, True])
@pytest.mark.parametrize(
    ("vendor", "mkl", "theirs"),
    [("AuthenticAMD", True, False), ("GenuineIntel", True, True), ("GenuineIntel", False, False)],
)
def test_where_mkl_takes_whole_vectors_products_are_torchs(
    vendor: str, mkl: bool, theirs: bool, linux: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_text(path: Path, *_: str, **__: str) -> str:
        if not linux:
            raise FileNotFoundError(path)
        return f"processor\t: 0\nvendor_id\t: {vendor}\n"

    monkeypatch.setattr(Path, "read_text", read_text)
    monkeypatch.setattr(platform, "processor", lambda: f"Family 6 Model 167, {vendor}")
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    monkeypatch.setattr(products, "LIBRARIES", [Library("any", torch.mm, 0, 2, ready=lambda threads, dimensions: True)])
    monkeypatch.setattr(products, "torch_is_as_fast", torch_is_as_fast.__wrapped__)
    assert (library(1, 2**24) is None) == theirs


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_in_a_place(asked: Asked, adds: bool, dtype: torch.dtype) -> None:
    a, b = torch.randn(70, 33), torch.randn(33, 40)
    turned = torch.randn(40, 70, dtype=dtype).mT
    expected = a.double() @ b.double() + (turned.double() if adds else 0)
    put_product(turned, a, b, adds=adds)
    assert (turned - expected).abs().max() <= 2e-6 * expected.abs().max()
    for apart in (1, 2):
        room = torch.randn(70, 40 * apart, dtype=dtype)
        place, rest = room[:, :40], room[:, 40:].clone()
        expected = a.double() @ b.double() + (place.double() if adds else 0)
        put_product(place, a, b, adds=adds)
        assert (place - expected).abs().max() <= 2e-6 * expected.abs().max()
        assert torch.equal(room[:, 40:], rest)
    assert asked.calls == 3


def orders(x: Tensor) -> list[Tensor]:
    """The same numbers as they may stand in memory."""
    dims = list(range(x.ndim))
    turned = [dims, [*dims[:-2], dims[-1], dims[-2]], dims[::-1], [*dims[1:], dims[0]]]
    found = [x.permute(order).contiguous().permute([order.index(dim) for dim in dims]) for order in turned]
    return [*found, torch.stack([x, -x], -1)[..., 0]]


@pytest.mark.skipif(bool(missing()), reason="no C compiler")
@pytest.mark.parametrize(
    "size", [(2, 3, 5, 6, 7), (1, 2, 25, 260, 17), (2, 1, 12, 16, 32), (1, 1, 1, 1, 1), (3, 2, 97, 9, 40)]
)
def test_in_c_stacks_in_any_order_of_memory(size: tuple[int, ...]) -> None:
    outer, inner, rows, depth, columns = size
    a, b = torch.randn(outer, inner, rows, depth), torch.randn(outer, inner, depth, columns)
    c = torch.randn(outer, inner, columns)
    expected = a.double() @ b.double()
    for one, other in zip(orders(a) * 5, [x for x in orders(b) for _ in range(5)], strict=True):
        near(native_product(one, other, None), expected)
    for bias in orders(c):
        near(native_product(a, b, bias), expected + c[..., None, :].double())
        near(native_product(a[0, 0], b[0, 0], bias[0, 0]), (expected + c[..., None, :].double())[0, 0])


@pytest.mark.skipif(bool(missing()), reason="no C compiler")
def test_in_c_a_row_is_the_same_beside_any_others() -> None:
    a, b = torch.randn(40, 300), torch.randn(300, 70)
    whole = native_product(a, b, None)
    for rows in (slice(0, 1), slice(3, 7), slice(5, 34)):
        assert torch.equal(native_product(a[rows], b, None), whole[rows])
    assert torch.equal(native_product(a, b[:, 5:38], None), whole[:, 5:38])


@pytest.mark.parametrize("has_bias", [True, False])
def test_a_layer_in_parts(asked: Asked, has_bias: bool) -> None:
    """One with a bias, or of another kind, is asked whole."""
    layers = nn.ModuleList([nn.Linear(7, 24, bias=has_bias), nn.Linear(7, 24, bias=has_bias)])
    take_over(layers[:1])
    x = torch.randn(2, 9, 7)
    for layer in layers:
        parts = in_parts(layer, x, [3, 20, 1])  # pyright: ignore[reportArgumentType]
        assert [part.shape[-1] for part in parts] == [3, 20, 1]
        torch.testing.assert_close(torch.cat(parts, -1), layer(x))


def test_a_model_multiplies_by_it(asked: Asked) -> None:
    model, tokens_BL = TransformerConfig(d_model=16, num_heads=2).build(5), torch.randint(5, (3, 9))
    y = model(tokens_BL, Context())
    assert asked.calls == 9, "four a block, and the head"
    with by_torch():
        torch.testing.assert_close(y, model(tokens_BL, Context()), rtol=1e-5, atol=1e-5)
    assert asked.calls == 9
