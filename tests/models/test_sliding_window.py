"""A window of positions: what reaches a token and from how far, the rolling cache, and cost linear in the length."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from chomsky_ladder.harness.conform.suite import check
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.layers.attention import SMALLEST_BLOCK, attend, banded_attention, explicit_attention
from chomsky_ladder.models.sliding_window import SlidingWindowConfig
from chomsky_ladder.models.transformer import TransformerConfig
from support.layers import close

torch.set_num_threads(1)

VOCAB = 11


@pytest.mark.parametrize("num_blocks", [1, 3])
@pytest.mark.parametrize("window", [1, 2, 5, 16, 33])
def test_a_token_reaches_as_far_as_its_blocks_windows(window: int, num_blocks: int) -> None:
    config = SlidingWindowConfig(d_model=8, num_blocks=num_blocks, num_heads=2, window=window)
    model = config.build(VOCAB).double()
    for length in (17, 140):
        for changed in (0, 5, 16):
            tokens_BL = torch.randint(1, VOCAB, (1, length))
            other_BL = tokens_BL.clone()
            other_BL[0, changed] = 0
            for backend in ("auto", "reference"):
                ctx = Context(backend=backend)
                moved_L = (model(tokens_BL, ctx) != model(other_BL, ctx)).any(-1)[0]
                last = min(changed + num_blocks * (window - 1), length - 1)
                assert moved_L.nonzero().flatten().tolist() == list(range(changed, last + 1))


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 63, 64, 65, 130])
@pytest.mark.parametrize("window", [1, 3, SMALLEST_BLOCK, 23, 200])
def test_blocks_equal_the_mask(window: int, length: int) -> None:
    """The keys may begin at any position, before the start of the string too."""
    for first in (-window, -window + 1, -1, 7):
        q, k, v = (torch.randn(2, 2, size, 4, dtype=torch.float64) for size in (length, *[window + length] * 2))
        q, k, v = (x.requires_grad_() for x in (2 * q, k, v))
        position_S = first + torch.arange(window + length)
        ahead = position_S[window:, None] - position_S
        expected = explicit_attention(q, k, v, (ahead >= 0) & (ahead < window) & (position_S >= 0))
        found = banded_attention(q, k, v, window=window, bias=None, first=torch.tensor(first))
        close(found, expected)
        weights = torch.randn_like(expected)
        gradients = [torch.autograd.grad((y * weights).sum(), (q, k, v)) for y in (found, expected)]
        for one, other in zip(*gradients, strict=True):
            close(one, other, 1e-10)


def test_a_window_over_everything_is_the_transformer() -> None:
    tokens_BL = torch.randint(VOCAB, (2, 90))
    whole = TransformerConfig.tiny().build(VOCAB).double()
    for window in (90, 91, 1000):
        model = replace(SlidingWindowConfig.tiny(), window=window).build(VOCAB).double()
        model.load_state_dict(whole.state_dict())
        close(model(tokens_BL, Context()), whole(tokens_BL, Context()))
    model = replace(SlidingWindowConfig.tiny(), window=89).build(VOCAB).double()
    model.load_state_dict(whole.state_dict())
    assert not torch.allclose(model(tokens_BL, Context())[:, -1], whole(tokens_BL, Context())[:, -1])


def test_the_cache_never_grows_and_owns_its_memory() -> None:
    model = SlidingWindowConfig(d_model=8, num_blocks=1, num_heads=2, window=6).build(VOCAB)
    state = model.init_state(3, max_length=10_000, device=torch.device("cpu"), dtype=torch.float32)
    for tokens_BL in torch.randint(VOCAB, (3, 210)).split([1, 1, 200, 8], dim=1):
        _, state = model.extend(tokens_BL, state, Context())
        cache, position = state[0][0]
        assert cache.shape == (2, 3, 2, 6, 4)
        assert cache.untyped_storage().nbytes() == cache.nbytes
    assert int(position) == 210


def test_memory_of_a_long_sequence_is_linear_in_its_length() -> None:
    """The largest tensor that the backward pass needs."""
    sizes = []
    for length in (1024, 4096):
        kept = []
        q, k, v = torch.randn(3, 1, 1, length, 4, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(lambda x, kept=kept: kept.append(x.numel()), lambda x: x):
            attend(q, k, v, sees="past", window=16, ctx=Context())
        sizes.append(max(kept))
    assert sizes[1] <= 4 * sizes[0] <= 4 * 1024 * 2 * 16


def test_its_window_is_declared_and_must_be_one() -> None:
    config = SlidingWindowConfig()
    assert (config.window, config.state_growth, config.cost) == (16, "constant", "linear")
    for window in (0, -1):
        with pytest.raises(ValueError, match=r"^sliding_window: window must"):
            SlidingWindowConfig(window=window)


@pytest.mark.full
@pytest.mark.parametrize("window", [1, 2, 17, 34])
def test_other_windows_conform(window: int) -> None:
    outcomes = check(replace(SlidingWindowConfig.tiny(), window=window))
    assert [outcome for outcome in outcomes if outcome.verdict != "ok"] == []


def test_parameters_are_the_transformers() -> None:
    def shapes(model: nn.Module) -> dict[str, torch.Size]:
        return {name: parameter.shape for name, parameter in model.named_parameters()}

    assert shapes(SlidingWindowConfig().build(VOCAB)) == shapes(TransformerConfig().build(VOCAB))
