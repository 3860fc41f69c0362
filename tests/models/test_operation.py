"""An operation keeps its gradient and is looked into where torch.compile follows it under vmap."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd

from chomsky_ladder.models.operations.one_hot.reference import Form, one_hot_scan
from chomsky_ladder.models.scans.operation import operation
from support.layers import close, gradients

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore")  # of the tracer


@operation("passed_through", sources=(__file__,))
def passed_through(x: Tensor) -> Tensor:
    return x.sign()


passed_through.register_autograd(lambda _, g: 7 * g)
passed_through.register_vmap(lambda info, in_dims, x: (passed_through(x), in_dims[0]))


def test_the_gradient_is_ours_and_the_inside_is_seen() -> None:
    torch._dynamo.reset()
    seen: set[str] = set()

    def look(graph: Any, _: Any) -> Any:
        seen.update(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    x = torch.randn(3, 4, requires_grad=True)
    both = torch.vmap(lambda x: 2 * passed_through(x))
    found = torch.compile(both, fullgraph=True, backend=aot_autograd(fw_compiler=look))(x)
    for y in (found, both(x)):
        close(y, 2 * x.sign())
        assert bool((torch.autograd.grad(y.sum(), x)[0] == 14).all())
    assert "aten.sign.default" in seen and not any("passed_through" in name for name in seen)


@pytest.mark.full
@pytest.mark.parametrize("form", ["gather", "scatter"])
def test_the_maps_of_replicas_have_their_gradient(form: Form) -> None:
    """It is that of softmax in place of argmax. A compiler that follows the forward pass takes it for zero."""
    torch._dynamo.reset()
    share, maps = torch.softmax(torch.randn(3, 2, 9, 4).double(), -1), torch.randn(3, 4, 5, 5).double()
    others = (
        torch.randn(3, 2, 9, 5, 2).double(),
        torch.randn(3, 2, 9, 5, 2).double(),
        torch.randn(3, 2, 5, 2).double(),
    )
    leaves = [x.requires_grad_() for x in (share, maps, *others)]
    many = torch.vmap(lambda *given: one_hot_scan(*given, form))
    found, expected = torch.compile(many, fullgraph=True, backend="aot_eager")(*leaves), many(*leaves)
    close(found, expected)
    for one, other in zip(gradients(found, leaves), gradients(expected, leaves), strict=True):
        assert bool(one.abs().max() > 0)
        close(one, other, 1e-10)


def test_other_sources_are_another_name(tmp_path: Path) -> None:
    """Torch keeps what it has compiled of an operation by its name."""
    file, names = tmp_path / "inside.py", []
    for content in ("one", "two"):
        file.write_text(content)
        names.append(operation("named", sources=(str(file),))(passed_through._init_fn)._name)
    assert len(set(names)) == 2 and all(name.startswith("named_") for name in names)
