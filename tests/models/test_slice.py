"""SLiCE against a loop with whole transition matrices, its forms against each other, and what its blocks can hold."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.conform.suite import check
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.block_steps.reference import by_halves, in_turn
from chomsky_ladder.models.slice import SLiCEBlock, SLiCEConfig
from support.machine_oracles import Weights, assert_equal_to, linear, sigmoid

torch.set_num_threads(1)

LENGTHS = (1, 2, 3, 4, 5, 7, 8, 17, 33, 64, 65)


def naive(p: Weights, x_LD: np.ndarray, *, config: SLiCEConfig) -> np.ndarray:
    """The whole [D, D] transition of each token, put together block by block."""
    width, size, outputs = config.d_model, config.block_size, []
    at_first = config.input_at == "first"
    h = np.zeros(width) if at_first else p["recurrence.start_HK"].flatten()
    for t, x in enumerate(x_LD):
        transition = np.eye(width)
        blocks = linear(p, "recurrence.transition", x).reshape(-1, size, size) / 40
        for k, block in enumerate(blocks):
            place = slice(k * size, (k + 1) * size)
            transition[place, place] += block
        if config.saturates_at:  # as in the authors' code
            bound = config.saturates_at
            moved = h + bound * np.tanh((transition - np.eye(width)) @ h / bound)
        else:
            moved = transition @ h
        h = linear(p, "recurrence.input", x) if at_first and t == 0 else moved
        if not at_first:
            h = h + linear(p, "recurrence.input", x)
        z = x + h
        mixed = linear(p, "mixer", z)
        z = z + (mixed[:width] * sigmoid(mixed[width:]) if config.mixer == "glu" else np.tanh(mixed))
        normed = (z - z.mean()) / np.sqrt(z.var() + 1e-5)
        outputs.append(p["norm.weight"] * normed + p["norm.bias"])
    return np.stack(outputs)


@pytest.mark.parametrize(("size", "mixer"), [(1, "glu"), (3, "glu"), (3, "tanh"), (6, "glu")])
@pytest.mark.parametrize("length", [1, 2, 9])
def test_outputs_and_gradients_are_those_of_the_equations(size: int, mixer: str, length: int) -> None:
    config = SLiCEConfig(d_model=6, block_size=size, mixer=mixer)
    assert_equal_to(lambda p, x: naive(p, x, config=config), SLiCEBlock(config).double(), length=length)


@pytest.mark.parametrize("length", [1, 2, 9])
def test_without_an_input_it_is_the_authors_recurrence(length: int) -> None:
    config = SLiCEConfig(d_model=6, block_size=3, mixer="tanh", input_at="first")
    assert_equal_to(lambda p, x: naive(p, x, config=config), SLiCEBlock(config).double(), length=length)


@pytest.mark.parametrize("input_at", ["every", "first"])
def test_what_a_token_adds_saturates_as_in_the_authors_code(input_at: Literal["every", "first"]) -> None:
    config = SLiCEConfig(d_model=6, block_size=3, input_at=input_at, saturates_at=0.02)
    assert_equal_to(lambda p, x: naive(p, x, config=config), SLiCEBlock(config).double(), length=9)


def test_a_state_that_grows_overflows_without_a_bound_and_not_with_the_authors() -> None:
    """Blocks of 40 double the state at every token: at 1e19 the norm's variance is infinite, its output lost."""
    for saturates_at, is_lost in ((0.0, True), (1e11, False)):
        block = SLiCEBlock(SLiCEConfig(d_model=8, saturates_at=saturates_at))
        with torch.no_grad():
            block.recurrence.transition.weight.zero_()
            block.recurrence.transition.bias.copy_(40 * torch.eye(4).flatten().repeat(2))
            y_BLD = block(torch.randn(2, 150, 8), Context())
        assert y_BLD[:, 40].abs().max() > 0.1
        assert (not bool(torch.isfinite(y_BLD[:, 140]).all())) == is_lost
        assert (float(y_BLD[:, 90].nan_to_num().abs().max()) == 0) == is_lost


@pytest.mark.full
@pytest.mark.parametrize(
    "settings", [{"input_at": "first"}, {"saturates_at": 1e11}, {"input_at": "first", "block_size": 1, "mixer": "tanh"}]
)
def test_without_an_input_it_conforms(settings: dict[str, Any]) -> None:
    config = replace(SLiCEConfig.tiny(), norm_penalty=0.001, **settings)
    assert [outcome for outcome in check(config) if outcome.verdict == "FAIL"] == []


def test_it_starts_from_the_first_token_as_theirs_does() -> None:
    """h_1 = W x_1 + b with weights and bias of standard deviation 0.5, and no parameter for a start."""
    recurrence = SLiCEBlock(SLiCEConfig(d_model=256, input_at="first")).recurrence
    assert "start_HK" not in dict(recurrence.named_parameters())
    for parameter in recurrence.input.parameters():
        assert abs(parameter.std().item() - 0.5) < 5 * 0.5 / (2 * parameter.numel()) ** 0.5
    assert abs(torch.cat([p.flatten() for p in recurrence.transition.parameters()]).std().item() - 0.25) < 0.002


def test_the_penalty_is_the_norm_of_each_blocks_transition() -> None:
    """The authors compute this norm over the matrix and the column of time together."""
    config = SLiCEConfig(d_model=8, norm_penalty=0.25)
    model, ctx = config.build(5).double(), Context()
    model(torch.randint(1, 5, (3, 7)), ctx)
    theirs = [
        torch.cat([b.recurrence.transition.weight, b.recurrence.transition.bias[:, None]], 1) for b in model.blocks
    ]
    expected = 0.25 * sum(torch.sum(vf_A**2) ** 0.5 for vf_A in theirs)
    assert ctx.losses.keys() == {"norm_penalty"}
    torch.testing.assert_close(sum(ctx.losses["norm_penalty"]), expected)
    free = Context()
    replace(config, norm_penalty=0.0).build(5)(torch.randint(1, 5, (3, 7)), free)
    assert free.losses == {}


def test_a_negative_penalty_or_bound_is_refused() -> None:
    with pytest.raises(ValueError, match=r"slice: norm_penalty must not be negative: -1\.0"):
        SLiCEConfig(norm_penalty=-1.0)
    with pytest.raises(ValueError, match=r"slice: saturates_at must not be negative: -1\.0"):
        SLiCEConfig(saturates_at=-1.0)


def transitions(length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Far from the identity, but no larger: two rows of three blocks of 4."""
    a_BLHKK = torch.linalg.qr(torch.randn(2, length, 3, 4, 4, dtype=torch.float64)).Q
    b_BLHK, h_BHK = torch.randn(2, length, 3, 4, dtype=torch.float64), torch.randn(2, 3, 4, dtype=torch.float64)
    return tuple(x.requires_grad_() for x in (a_BLHKK, b_BLHK, h_BHK))


@pytest.mark.parametrize("length", LENGTHS)
def test_halves_equal_one_after_the_other(length: int) -> None:
    given = transitions(length)
    found_BLHK, expected_BLHK = by_halves(*given), in_turn(*given)
    torch.testing.assert_close(found_BLHK, expected_BLHK, rtol=1e-12, atol=1e-12)
    mix = torch.randn_like(expected_BLHK)
    gradients = (torch.autograd.grad((h_BLHK * mix).sum(), given) for h_BLHK in (found_BLHK, expected_BLHK))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


def test_halves_stack() -> None:
    replicas = [transitions(9) for _ in range(3)]
    found = torch.vmap(by_halves)(*(torch.stack(parts) for parts in zip(*replicas, strict=True)))
    torch.testing.assert_close(found, torch.stack([by_halves(*given) for given in replicas]))


def test_halves_of_a_long_sequence_lose_no_more_digits_than_the_loop() -> None:
    given = tuple(x.detach() for x in transitions(1000))
    exact = in_turn(*given)
    errors = [(form(*(x.float() for x in given)) - exact).abs().max().item() for form in (by_halves, in_turn)]
    assert max(errors) < 1e-3 and errors[0] < 4 * errors[1]


def test_permutations_of_five_are_composed_over_a_thousand_tokens() -> None:
    """A transition that permutes: what no diagonal one can do, and no commuting ones."""
    order_L5 = torch.stack([torch.randperm(5) for _ in range(1000)])
    a_BLHKK = torch.eye(5)[order_L5][None, :, None]
    h_BLHK = by_halves(a_BLHKK, torch.zeros(1, 1000, 1, 5), torch.arange(5.0)[None, None])
    expected = list(range(5))
    for order, h in zip(order_L5.tolist(), h_BLHK[0, :, 0].tolist(), strict=True):
        expected = [expected[place] for place in order]
        assert h == expected


def test_the_state_is_kept_in_single_precision_under_autocast() -> None:
    block, x_BLD = SLiCEBlock(SLiCEConfig(d_model=8)), torch.randn(2, 33, 8)
    state = block.init_state(2, max_length=9, device=torch.device("cpu"), dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y_BLD, state = block.extend(x_BLD, state, Context())
    assert state.dtype == torch.float32
    assert (y_BLD - block(x_BLD, Context())).abs().max() < 0.2


def test_the_first_block_is_of_the_learned_start() -> None:
    """All rows start from it, and a model of two blocks learns two."""
    model = SLiCEConfig(d_model=8, block_size=2).build(5)
    state = model.init_state(3, max_length=9, device=torch.device("cpu"), dtype=torch.float32)
    assert [tuple(part.shape) for part in state] == [(3, 4, 2)] * 2
    for part, block in zip(state, model.blocks, strict=True):
        assert torch.equal(part[2], block.recurrence.start_HK)


def test_a_width_that_does_not_split_is_refused() -> None:
    with pytest.raises(ValueError, match="slice: d_model=10 does not split into blocks of 4"):
        SLiCEConfig(d_model=10)
