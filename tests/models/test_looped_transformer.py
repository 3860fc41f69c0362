"""The looped Transformer against a stack of copies of its blocks, its injection by hand, and its state."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.conform.suite import check
from chomsky_ladder.models.backbone import count_parameters, state_bytes
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.looped_transformer import LoopedTransformerConfig
from chomsky_ladder.models.transformer import TransformerConfig
from support.cases import full
from support.layers import close, gradients, lively

torch.set_num_threads(1)

VOCAB, SIZE = 11, {"d_model": 16, "num_heads": 2}


def looped(**changes: Any) -> Any:
    return lively(LoopedTransformerConfig(**SIZE, **changes).build(VOCAB))


def tokens(length: int) -> Tensor:
    return torch.randint(VOCAB, (3, length))


@pytest.mark.parametrize("length", [1, 2, 17, 65, full(130)])
def test_without_injection_it_is_a_stack_of_copies(length: int) -> None:
    """The gradient of a weight is the sum over its copies."""
    ours = looped(num_blocks=2, loops=3, injection="none", positions="rope")
    stack: Any = TransformerConfig(**SIZE, num_blocks=6).build(VOCAB).double()
    shared = dict(ours.named_parameters())
    of = {
        name: re.sub(r"^blocks\.(\d+)", lambda found: f"blocks.0.blocks.{int(found[1]) % 2}", name)
        for name, _ in stack.named_parameters()
    }
    stack.load_state_dict({name: shared[ours_name].detach() for name, ours_name in of.items()})
    tokens_BL = tokens(length)
    found, expected = ours(tokens_BL, Context()), stack(tokens_BL, Context())
    close(found, expected)
    summed = {name: torch.zeros_like(x) for name, x in shared.items()}
    for name, gradient in zip(of, gradients(expected, list(stack.parameters())), strict=True):
        summed[of[name]] += gradient
    for name, gradient in zip(shared, gradients(found, list(shared.values())), strict=True):
        close(gradient, summed[name], 1e-10)


@pytest.mark.parametrize("loops", [1, 2, 5])
def test_the_input_is_added_before_every_turn_but_the_first(loops: int) -> None:
    model, tokens_BL = looped(num_blocks=2, loops=loops), tokens(9)
    x_BLD = z_BLD = model.embedding(tokens_BL)
    first, second = model.blocks[0].blocks
    for turn in range(loops):
        z_BLD = second(first(z_BLD + x_BLD if turn else x_BLD, Context()), Context())
    close(model(tokens_BL, Context()), model.head(model.norm(z_BLD)))


@pytest.mark.parametrize("changes", [{}, {"injection": "none"}, {"num_blocks": 1, "positions": "rope"}])
def test_a_growing_number_of_loops_is_that_of_the_tokens(changes: dict[str, Any]) -> None:
    """Every prefix by itself, through as many loops as it has tokens; outputs and gradients."""
    model, tokens_BL = looped(loops=0, **changes), tokens(7)
    whole, parameters = model(tokens_BL, Context()), list(model.parameters())
    each = []
    for length in range(1, 8):
        fixed = LoopedTransformerConfig(**SIZE, loops=length, **changes).build(VOCAB).double()
        names = [name for name, _ in fixed.named_parameters()]
        shared = dict(zip(names, parameters, strict=True))
        each.append(torch.func.functional_call(fixed, shared, (tokens_BL[:, :length], Context()))[:, -1])
    expected = torch.stack(each, 1)
    close(whole, expected)
    for one, other in zip(gradients(whole, parameters), gradients(expected, parameters), strict=True):
        close(one, other, 1e-10)


@pytest.mark.parametrize("changes", [{}, {"window": 7}, {"positions": "sinusoidal"}, {"injection": "none"}])
def test_steps_and_prefills_equal_the_whole_pass(changes: dict[str, Any]) -> None:
    model, tokens_BL = looped(loops=3, **changes), tokens(30)
    whole = model(tokens_BL, Context())
    for parts in ([1] * 30, [29, 1], [1, 4, 25]):
        state = model.init_state(3, max_length=30, device=torch.device("cpu"), dtype=torch.float64)
        logits = []
        for part in tokens_BL.split(parts, 1):
            found, state = model.extend(part, state, Context())
            logits.append(found)
        close(torch.cat(logits, 1), whole)


def test_depth_costs_state_and_no_parameters() -> None:
    plain, deep = (config.build(VOCAB) for config in (TransformerConfig(**SIZE), LoopedTransformerConfig(**SIZE)))
    assert count_parameters(plain) == count_parameters(deep)
    states = [
        state_bytes(model.init_state(2, max_length=8, device=torch.device("cpu"), dtype=torch.float32))
        for model in (plain, deep)
    ]
    assert states[1] == 3 * states[0]


def test_what_writes_into_the_stream_starts_as_in_a_stack_so_deep() -> None:
    def start(config: TransformerConfig) -> Tensor:
        torch.manual_seed(0)
        block: Any = config.blocks()[0]
        return (block.blocks[0] if isinstance(config, LoopedTransformerConfig) else block).layers[0].out.weight

    close(start(LoopedTransformerConfig(loops=4)), start(TransformerConfig(positions="none")) / 2, 1e-6)
    post = {"norm_place": "post", "positions": "none"}
    assert torch.equal(start(LoopedTransformerConfig(loops=4, **post)), start(TransformerConfig(**post)))


def test_what_bounds_it_is_declared() -> None:
    assert LoopedTransformerConfig().transition == "looped attention"
    assert LoopedTransformerConfig(window=4).transition == "window"
    growing = LoopedTransformerConfig(loops=0)
    assert (growing.stepwise, growing.transition, growing.cost) == (False, "", "unknown")
    with pytest.raises(ValueError, match="looped_transformer: loops must not be negative"):
        LoopedTransformerConfig(loops=-1)


@pytest.mark.full
@pytest.mark.parametrize(
    "changes", [{"injection": "none"}, full({"norm_place": "post"}), full({"window": 4}), full({"loops": 0})]
)
def test_its_variants_conform(changes: dict[str, Any]) -> None:
    outcomes = check(LoopedTransformerConfig(**SIZE, **changes))
    assert [outcome for outcome in outcomes if outcome.verdict == "FAIL"] == []
