"""Somebody's own module as a model: where it stands, what it may take and return, what it declares."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.harness.config import sizing
from chomsky_ladder.harness.config.parts import replaced
from chomsky_ladder.harness.config.registry import find_model
from chomsky_ladder.harness.conform import suite as conformance
from chomsky_ladder.harness.conform.model_device import its_cost_grows_as_declared
from chomsky_ladder.models.backbone import Backbone
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.plain import plain_model, wrap


class Scaled(nn.Module):
    """The mean of everything so far, scaled."""

    def __init__(self, width: int, scale: float) -> None:
        super().__init__()
        self.out, self.scale = nn.Linear(width, width), scale

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.out(x.cumsum(1) / torch.arange(1, x.shape[1] + 1, device=x.device)[:, None])


class Both(nn.Module):
    """A GRU from either side that stops at padding, and a loss of its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.past = nn.GRU(width, width, batch_first=True)
        self.future = nn.GRU(width, width, batch_first=True)

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        valid = torch.ones_like(x[..., 0], dtype=torch.bool) if ctx.valid_BL is None else ctx.valid_BL
        length_B1 = valid.sum(1, keepdim=True)
        back_BL1 = ((length_B1 - 1 - torch.arange(x.shape[1], device=x.device)) % x.shape[1])[..., None]
        future = self.future(x.gather(1, back_BL1.expand_as(x)))[0].gather(1, back_BL1.expand_as(x))
        ctx.add_loss("length", 1e-3 * ctx.mean_valid(future.square()).mean())
        return self.past(x)[0] + future


def test_settings_are_fields() -> None:
    cls = wrap("scaled", lambda config: Scaled(config.d_model, config.scale), settings={"scale": 2.0})
    made: Any = replaced(cls(), {"scale": 3.0, "d_model": 8}, where="model")
    assert made.module().scale == 3.0 and cls.__module__ == __name__ and cls.__name__ == "ScaledConfig"
    with pytest.raises(ValueError, match="model has no setting 'scael'; did you mean scale"):
        replaced(cls(), {"scael": 3.0}, where="model")
    with pytest.raises(ValueError, match="a model has 'dropout' already"):
        wrap("scaled", nn.Identity, settings={"dropout": 0.5})
    with pytest.raises(ValueError, match="a layer, a block or a stack, not as 'heap'"):
        wrap("scaled", nn.Identity, stands="heap")  # pyright: ignore[reportArgumentType]


def test_what_is_wrapped_and_not_registered_is_said_so() -> None:
    cls = wrap("left_out", lambda config: Scaled(config.d_model, 1.0))
    with pytest.raises(
        ValueError, match=r"'left_out' is made by wrap\(\) but not registered: register\(wrap\('left_out'"
    ):
        find_model("left_out")
    assert cls.name == "left_out"


def test_where_it_stands() -> None:
    x_BLD, ctx = torch.randn(2, 5, 8), Context()
    blocks = {}
    for stands in ("layer", "block", "stack"):
        cls = wrap("scaled", lambda config: Scaled(config.d_model, 1.0), stands=stands, feed_forward=False)
        blocks[stands] = cls(d_model=8, num_blocks=3).blocks()
    assert {name: len(found) for name, found in blocks.items()} == {"layer": 3, "block": 3, "stack": 1}
    for name, (block, *_) in blocks.items():
        inner = next(module for module in block.modules() if isinstance(module, Scaled))
        wanted = x_BLD + inner(nn.functional.rms_norm(x_BLD, (8,))) if name == "layer" else inner(x_BLD)
        assert torch.allclose(block(x_BLD, ctx), wanted, atol=1e-6), name


def test_what_is_not_declared_is_unknown_and_measured() -> None:
    cls = wrap("scaled", lambda config: Scaled(config.d_model, 1.0))
    assert (cls.cost, cls.state_growth) == ("unknown", "unknown")
    outcome = conformance.run_check(its_cost_grows_as_declared, cls.tiny())
    assert outcome.verdict == "skip"
    assert re.search(r"no cost; its work grows with the (0\.9|1\.0)th power of the length$", outcome.reason), outcome


def test_a_stack_that_ignores_its_depth_has_none_to_set() -> None:
    flat = wrap("flat", lambda config: Scaled(config.d_model, 1.0), stands="stack")
    deep = wrap("deep", lambda c: nn.Sequential(*(Scaled(c.d_model, 1.0) for _ in range(c.num_blocks))), stands="stack")
    said = "flat is the same model with 4 blocks as with 2: it stands as a stack, so make it of config.num_blocks, or "
    assert flat(d_model=4, num_blocks=4).unworkable() == f"{said}leave that at 2"
    assert flat(d_model=4).unworkable() == deep(d_model=4, num_blocks=4).unworkable() == ""


def test_what_it_may_return() -> None:
    class Said:
        def __init__(self, stream: Tensor) -> None:
            self.last_hidden_state = stream

    class Returns(nn.Module):
        def __init__(self, change: Any) -> None:
            super().__init__()
            self.change = change

        def forward(self, x: Tensor) -> Any:
            return self.change(x)

    def tried(change: Any) -> str:
        return wrap("returns", lambda config: Returns(change), stands="block")(d_model=4).unworkable()

    assert tried(lambda x: x) == tried(lambda x: (x, None)) == tried(Said) == ""
    shape = "Returns must return a tensor of its input's shape (2, 8, 4), not"
    assert tried(lambda x: x[:, :1]).endswith(f"{shape} (2, 1, 4)") and tried(lambda x: {}).endswith(f"{shape} dict")
    assert tried(lambda x: x.nothing) == (
        "returns does not take a stream [2, 8, d_model]: AttributeError: 'Tensor' object has no attribute 'nothing'"
    )
    odd = wrap("odd", lambda config: 3)  # pyright: ignore[reportArgumentType]
    assert odd().unworkable() == "odd is no nn.Module and no function that makes one: at d_model=128 it made int"


def test_one_that_sees_all_and_adds_a_loss_conforms() -> None:
    cls = wrap("both", lambda config: Both(config.d_model), sees="all", stands="block")
    failed = [(found.check, found.reason) for found in conformance.check(cls.tiny()) if found.verdict == "FAIL"]
    assert failed == []
    ctx = Context()
    cls.tiny().build(5)(torch.ones(2, 3, dtype=torch.int64), ctx)
    assert len(ctx.losses["length"]) == 2


def test_it_is_brought_to_a_size_at_widths_its_module_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "WIDEST", 100)

    def heads(config: ModelConfig) -> nn.Module:
        return nn.MultiheadAttention(config.d_model, 4)  # an assertion of torch's refuses widths that 4 do not divide

    found = sizing.sized(wrap("heads", heads)(), vocab=10, target=20_000)
    assert found.d_model % 4 == 0
    with pytest.raises(ValueError, match="few cannot be made at d_model=128: ZeroDivisionError"):
        sizing.sized(wrap("few", lambda config: nn.Linear(config.d_model, 1 // 0))(), vocab=10, target=20_000)


def test_the_shorter_way_is_the_same_model() -> None:
    short = plain_model("scaled", lambda d_model: Scaled(d_model, 1.0))
    tokens, logits = torch.ones(1, 4, dtype=torch.int64), []
    for cls in (short, wrap("scaled", lambda config: Scaled(config.d_model, 1.0))):
        torch.manual_seed(0)
        logits.append(Backbone(cls.tiny(), 5)(tokens, Context()))
    assert torch.equal(*logits) and short.__module__ == __name__
    assert short.version == 1 and plain_model("scaled", lambda d_model: Scaled(d_model, 1.0), version=2).version == 2
