"""A model whose task asks once: its end makes one position's output, the same as among all."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.backbone import Backbone
from chomsky_ladder.models.block import Context, gathered, summed
from chomsky_ladder.models.encoder_decoder import EncoderDecoderConfig
from chomsky_ladder.models.layers.residual import Layer, Residual
from chomsky_ladder.models.lstm_block import LSTMBlockConfig
from chomsky_ladder.models.rwkv6 import RWKV6Config
from chomsky_ladder.models.slice import SLiCEConfig
from chomsky_ladder.models.transformer import TransformerConfig
from chomsky_ladder.tasks.draw import Draw
from support.small_backbones import VOCAB, close

torch.set_num_threads(1)

LENGTHS_B = torch.tensor([7, 1, 4])
TOKENS_BL = torch.randint(1, VOCAB, (3, 7), generator=torch.Generator().manual_seed(0))
ASKED = Context(valid_BL=torch.arange(7) < LENGTHS_B[:, None], prompt_B=LENGTHS_B, asked_B=LENGTHS_B - 1)
ALL = replace(ASKED, asked_B=None)


class Counting(Layer):
    """Twice what it is given, position by position; it remembers how many it saw."""

    each_alone = True

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        self.seen = x.shape[1]
        return 2 * x


class Sums(Layer):
    """Sums over the past, of which no more is made than is asked for if it heeds that."""

    heeds_asked = True

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        self.made = ctx.wanted(x_BLD.cumsum(1))
        return self.made


class AllTheSame(Sums):
    """One that says it heeds what is asked, and does not."""

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return super().forward(x_BLD, replace(ctx, ends=False))


def at(x_BLX: Tensor) -> Tensor:
    return torch.stack([x_BLX[row, int(length) - 1] for row, length in enumerate(LENGTHS_B)])[:, None]


def test_what_is_asked_by_hand() -> None:
    x_BLHK = torch.randn(3, 7, 2, 5)
    close(ASKED.asked(x_BLHK), at(x_BLHK))
    close(ASKED.asked(x_BLHK.transpose(1, 2), along=2), at(x_BLHK).transpose(1, 2))
    close(ASKED.wanted(x_BLHK), x_BLHK)
    close(replace(ASKED, ends=True).wanted(x_BLHK), at(x_BLHK))


@pytest.mark.parametrize("along", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64])
def test_a_sum_takes_what_a_gather_takes(dtype: torch.dtype, along: int) -> None:
    x_BLHK = (9 * torch.randn(3, 7, 7, 5, dtype=torch.float64)).to(dtype).requires_grad_(dtype != torch.int64)
    with torch.no_grad():
        x_BLHK[0, 0, 1] = 77 if dtype == torch.int64 else float("nan")  # nobody asks for it
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        found = [take(x_BLHK, LENGTHS_B - 1, along) for take in (gathered, summed)]
    assert found[0].dtype == found[1].dtype == dtype
    assert torch.equal(*found)
    if x_BLHK.requires_grad:
        weight = torch.randn(found[0].shape, dtype=torch.float64).to(dtype)
        assert torch.equal(*(torch.autograd.grad((y * weight).sum(), x_BLHK)[0] for y in found))


@pytest.mark.parametrize("take", [gathered, summed])
def test_either_takes_each_replicas_own_places(take: Callable[[Tensor, Tensor, int], Tensor]) -> None:
    x_RBLD, place_RB = torch.randn(2, 3, 7, 5), torch.tensor([[6, 0, 3], [1, 5, 2]])
    found = torch.vmap(take, (0, 0, None))(x_RBLD, place_RB, 1)
    close(found, torch.stack([gathered(x_BLD, place_B, 1) for x_BLD, place_B in zip(x_RBLD, place_RB, strict=True)]))


@pytest.mark.parametrize("place", ["pre", "post"])
@pytest.mark.parametrize("mixing", [Sums, AllTheSame])
def test_layers_behind_the_last_that_mixes_see_what_is_asked_alone(place: str, mixing: type[Sums]) -> None:
    before, last, behind, end = Counting(), mixing(), Counting(), Counting()
    block = Residual(4, [before, last, behind, end], place=place)  # pyright: ignore[reportArgumentType]
    x_BLD = torch.randn(3, 7, 4)
    close(block.at_asked(x_BLD, ASKED), at(block(x_BLD, ALL)), 1e-6)
    block.at_asked(x_BLD, ASKED)
    assert (before.seen, behind.seen, end.seen) == (7, 1, 1)
    assert last.made.shape[1] == (1 if mixing is Sums else 7)


def test_a_block_that_changes_what_comes_in_is_taken_whole() -> None:
    class Doubled(Residual):
        def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
            return super().forward(2 * x_BLD, ctx)

    block, x_BLD = Doubled(4, [Sums(), Counting()]), torch.randn(3, 7, 4)
    close(block.at_asked(x_BLD, ASKED), at(block(x_BLD, ALL)), 1e-6)


@pytest.mark.parametrize("config", [LSTMBlockConfig, RWKV6Config, SLiCEConfig, TransformerConfig, EncoderDecoderConfig])
def test_dropout_takes_the_same_numbers(config: type) -> None:
    model = Backbone(replace(config.tiny(), dropout=0.4), VOCAB).double()
    whole, alone = (
        model(TOKENS_BL, replace(ctx, masks=Draw(seed=3, split="dropout", rows_B=torch.arange(3))))
        for ctx in (ALL, ASKED)
    )
    assert alone.shape == (3, 1, VOCAB)
    close(alone, at(whole))
    assert not torch.allclose(alone, model(TOKENS_BL, ASKED))


def test_who_reads_or_replaces_a_stream_has_all_of_it() -> None:
    model = Backbone(TransformerConfig.tiny(), VOCAB).double()
    whole = model(TOKENS_BL, ALL)
    ctx = replace(ASKED, taps=frozenset({0, 2}))
    close(model(TOKENS_BL, ctx), whole)
    assert ctx.tapped[2].shape[:2] == TOKENS_BL.shape
    close(model(TOKENS_BL, replace(ASKED, edits={2: lambda x_BLD: x_BLD.clone()})), whole)
