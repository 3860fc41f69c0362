"""Queries read a block at a time give what all at once give, outputs and gradients, on either side of a block's end."""

from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.config.registry import find_model
from chomsky_ladder.models.block import Block, Context
from chomsky_ladder.models.operations.attention import reference as _attentions
from chomsky_ladder.models.operations.attention.reference import in_blocks
from chomsky_ladder.models.operations.path import reference as path_attention

CASES: list[tuple[str, dict[str, Any]]] = [
    ("fox", {}),
    ("fox", {"variant": "pro"}),
    ("stick_breaking", {}),
    ("deltaformer", {}),
    ("deltaformer", {"asks": "query"}),
    ("path_attention", {}),
    ("path_attention", {"gate": "forget"}),
    ("diff_transformer", {}),
]


def outputs_and_gradients(block: Block, x_BLD: Tensor) -> list[Tensor]:
    x_BLD = x_BLD.clone().requires_grad_()
    y_BLD = block(x_BLD, Context())
    return [y_BLD, *torch.autograd.grad(y_BLD.square().sum(), [x_BLD, *block.parameters()])]


@pytest.mark.parametrize("length", [1, 63, 64, 65, 130])
@pytest.mark.parametrize(("name", "changes"), CASES)
def test_blocks_give_what_all_queries_at_once_do(
    name: str, changes: dict[str, Any], length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(length)
    block = find_model(name)(d_model=16, num_heads=2, num_blocks=1, **changes).block(0).double()
    x_BLD = torch.randn(2, length, 16, dtype=torch.float64)
    found = outputs_and_gradients(block, x_BLD)
    monkeypatch.setattr(_attentions, "BLOCK", 1000)
    monkeypatch.setattr(path_attention, "CHUNK", 1000)
    for one, other in zip(found, outputs_and_gradients(block, x_BLD), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_every_query_is_read_once_over_all_it_may_see() -> None:
    asked: list[tuple[int, int, int]] = []

    def read(block: slice, seen: slice) -> Tensor:
        asked.append((block.start, block.stop, seen.stop))
        return torch.arange(block.start, block.stop)[None, None, :, None]

    assert in_blocks(read, 150).flatten().tolist() == list(range(150))
    assert asked == [(0, 64, 64), (64, 128, 128), (128, 150, 150)]
