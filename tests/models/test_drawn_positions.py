"""Positions drawn from a longer range: what is drawn, how it is spread in an evaluation, what attention makes of it.

The stream is the tasks' own, as in training.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.config.run import Run, Train
from chomsky_ladder.harness.conform.suite import check
from chomsky_ladder.harness.train.pack import Pack
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.encoder import EncoderConfig
from chomsky_ladder.models.layers.attention import Attention, biased, masked_attention
from chomsky_ladder.models.layers.positions import Positions, positions_of
from chomsky_ladder.models.prefix_lm import PrefixLMConfig
from chomsky_ladder.models.transformer import TransformerConfig
from chomsky_ladder.tasks.draw import Draw
from chomsky_ladder.tasks.parity import Parity
from support.cases import some
from support.layers import close, lively

torch.set_num_threads(1)

VOCAB, RANGE = 11, 50
KINDS = some(["rope", "alibi", "t5", "kerple", "sinusoidal", "learnt"], always=["rope", "t5", "learnt"])


def context(sizes: list[int], *, length: int, first_row: int = 0, drawn: bool = True) -> Context:
    valid_BL = torch.arange(length) < torch.tensor(sizes)[:, None]
    rows_B = torch.arange(first_row, first_row + len(sizes))
    return Context(valid_BL=valid_BL, masks=Draw(seed=3, split="dropout", rows_B=rows_B) if drawn else None)


def positions(sizes: list[int], *, length: int, among: int = RANGE, **others: Any) -> Tensor:
    ctx = context(sizes, length=length, **others)
    return positions_of(torch.zeros(len(sizes), length, 1), ctx, among=among)


def test_in_training_they_are_a_sample_in_order() -> None:
    sizes = [1, 7, 20, 50, 49]
    position_BL = positions(sizes, length=50)
    for size, position_L in zip(sizes, position_BL, strict=True):
        assert bool((position_L[:size].diff() > 0).all()) and position_L.min() >= 0 and position_L.max() < RANGE
    assert torch.equal(position_BL[3], torch.arange(50)), "a string as long as the range has all of it"
    assert torch.equal(positions(sizes[2:], length=50, first_row=2), position_BL[2:]), "a row has its own"
    assert torch.equal(positions(sizes[:3], length=20), position_BL[:3, :20]), "whatever it is padded to"


def test_every_sample_is_as_likely() -> None:
    rows = 6000
    found = Counter(map(tuple, positions([2] * rows, length=3, among=5)[:, :2].tolist()))
    assert len(found) == 10 and all(abs(count - rows / 10) < 5 * (rows / 10) ** 0.5 for count in found.values())


def test_in_an_evaluation_they_are_spread_by_the_strings_own_length() -> None:
    position_BL = positions([1, 4, 8], length=8, among=40, drawn=False)
    assert position_BL[0, 0] == 20 and position_BL[1, :4].tolist() == [5, 15, 25, 35]
    assert torch.equal(position_BL[2], 40 * (2 * torch.arange(8) + 1) // 16)
    wider_BL = positions([1, 4, 8], length=30, among=40, drawn=False)
    for size, one_L, other_L in zip((1, 4, 8), position_BL, wider_BL, strict=True):
        assert torch.equal(one_L[:size], other_L[:size])


def encoder(kind: Positions, *, among: int = 0) -> EncoderConfig:
    learnt = RANGE if kind == "learnt" else 0
    return EncoderConfig(d_model=16, num_heads=2, positions=kind, max_length=learnt, position_range=among)


@pytest.mark.parametrize("kind", KINDS)
def test_a_string_as_long_as_the_range_has_its_places(kind: Positions) -> None:
    drawn, plain = (lively(encoder(kind, among=among).build(VOCAB)) for among in (RANGE, 0))
    plain.load_state_dict(drawn.state_dict())
    tokens_BL = torch.randint(VOCAB, (3, RANGE))
    expected = plain(tokens_BL, Context())
    close(drawn(tokens_BL, Context()), expected)
    close(drawn(tokens_BL, context([RANGE] * 3, length=RANGE)), plain(tokens_BL, context([RANGE] * 3, length=RANGE)))
    far = plain(tokens_BL[:, :9], Context()) - drawn(tokens_BL[:, :9], Context())
    assert far.abs().max() > 1e-3, "a shorter one has others"


@pytest.mark.parametrize("kind", some(["rope", "alibi", "t5", "kerple"], always=["rope", "t5"]))
def test_attention_tells_every_strings_tokens_apart_by_its_own(kind: Positions) -> None:
    layer = lively(Attention(16, 2, sees="all", positions=kind, among=RANGE))
    x_BLD, ctx = torch.randn(4, 9, 16, dtype=torch.float64), context([9] * 4, length=9)
    found_BLD, position_BL = layer(x_BLD, ctx), ctx.shared["positions"]
    for row in range(4):
        x_1LD, position_L = x_BLD[row : row + 1], position_BL[row]
        q, k, v = layer._project(x_1LD, position_L)
        mask = biased(None, position_L, position_L, layer.bias, dtype=q.dtype)
        y_1HLK = masked_attention(q, k, v, mask, ctx=Context())
        close(found_BLD[row : row + 1], layer._written(x_1LD, y_1HLK.transpose(1, 2)))


def test_all_layers_have_the_same() -> None:
    """One draw a pass: dropout behind it is at the second."""
    ctx = context([9] * 4, length=9)
    model = lively(encoder("rope", among=RANGE).build(VOCAB))
    model(torch.randint(VOCAB, (4, 9)), ctx)
    assert isinstance(ctx.masks, Draw) and ctx.masks.calls == 1


@pytest.mark.parametrize("packed", [False, True])
def test_a_run_draws_them_in_training_and_repeats_itself(packed: bool) -> None:
    def losses(among: int, seeds: list[int]) -> list[float]:
        model = replace(EncoderConfig.tiny(), position_range=among)
        train = Train(steps=3, batch=4, lengths=(3, 9), lr=1e-2, precision="fp64")
        runs = [Run(task=Parity(), model=model, train=train, seed=seed) for seed in seeds]
        pack = Pack(runs, device=torch.device("cpu"), backend="auto")
        found = []
        for step in range(3):
            pack.advance(train.longest(step))
            found += [seen.loss for seen in pack.seen()]
        return found

    seeds = [0, 1] if packed else [0]
    first = losses(2048, seeds)
    assert first == losses(2048, seeds) and first != losses(0, seeds)
    if packed:
        assert first[::2] == pytest.approx(losses(2048, [0]), rel=1e-9)


@pytest.mark.full
@pytest.mark.parametrize("config", [EncoderConfig, PrefixLMConfig])
def test_models_with_drawn_positions_conform(config: type[TransformerConfig]) -> None:
    outcomes = check(replace(config.tiny(), position_range=2048))
    assert [outcome for outcome in outcomes if outcome.verdict == "FAIL"] == []


@pytest.mark.parametrize(
    ("config", "changes", "said"),
    [
        (TransformerConfig, {}, "transformer: position_range spreads a string's positions by its length"),
        (EncoderConfig, {"positions": "none"}, "encoder: position_range is how many positions there are"),
        (EncoderConfig, {"position_range": -1}, "encoder: position_range is how many positions there are"),
        (EncoderConfig, {"positions": "learnt", "max_length": 9}, "encoder: max_length=9 learnt positions are too few"),
    ],
)
def test_what_is_refused(config: type[TransformerConfig], changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        config(**({"position_range": 64} | changes))


def test_a_string_longer_than_the_range_is_refused() -> None:
    config = replace(EncoderConfig.tiny(), position_range=8)
    assert config.longest_input == 8
    with pytest.raises(ValueError, match=r"^position_range=8 has too few positions for length 9$"):
        config.build(VOCAB)(torch.zeros(1, 9, dtype=torch.int64), Context())
