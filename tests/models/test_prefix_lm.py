"""The prefix language model: bidirectional over the prompt, causal after, and nothing else."""

from dataclasses import replace

import pytest
import torch

from chomsky_ladder.models.block import Backend, Context
from chomsky_ladder.models.encoder import EncoderConfig
from chomsky_ladder.models.prefix_lm import PrefixLMConfig
from chomsky_ladder.models.transformer import TransformerConfig
from support.layers import close

torch.set_num_threads(1)

VOCAB = 11
BACKENDS: tuple[Backend, ...] = ("auto", "reference")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("length", [9, 80])
def test_who_sees_whom(length: int, backend: Backend) -> None:
    """Through one block, a change of token s moves exactly the outputs that see it."""
    model = PrefixLMConfig(d_model=8, num_blocks=1, num_heads=2).build(VOCAB).double()
    prompt_B, valid_BL = torch.tensor([1, 4, length]), torch.ones(3, length, dtype=torch.bool)
    ctx = Context(prompt_B=prompt_B, valid_BL=valid_BL, backend=backend)
    tokens_BL = torch.randint(1, VOCAB, (3, length))
    before_BLV = model(tokens_BL, ctx)
    for changed in (0, 2, 3, 4, length - 1):
        other_BL = tokens_BL.clone()
        other_BL[:, changed] = 0
        moved_BL = (model(other_BL, ctx) != before_BLV).any(-1)
        for row, prompt in enumerate(prompt_B.tolist()):
            first = 0 if changed < prompt else changed
            assert moved_BL[row].nonzero().flatten().tolist() == list(range(first, length))


@pytest.mark.parametrize("backend", BACKENDS)
def test_its_extremes_are_the_transformer_and_the_encoder(backend: Backend) -> None:
    tokens_BL, valid_BL = torch.randint(VOCAB, (2, 70)), torch.arange(70) < torch.tensor([[70], [33]])
    model = PrefixLMConfig.tiny().build(VOCAB).double()
    for cls, prompt_B in (
        (TransformerConfig, torch.tensor([1, 1])),
        (EncoderConfig, torch.tensor([70, 33])),
        (EncoderConfig, None),
    ):
        other = cls.tiny().build(VOCAB).double()
        other.load_state_dict(model.state_dict())
        ctx = Context(valid_BL=valid_BL, backend=backend)
        found_BLV = model(tokens_BL, replace(ctx, prompt_B=prompt_B))
        close(found_BLV[valid_BL], other(tokens_BL, ctx)[valid_BL])


def test_past_the_prompt_an_answer_depends_on_the_answers_before() -> None:
    """Under teacher forcing each position equals the last one of the string cut there."""
    model = PrefixLMConfig.tiny().build(VOCAB).double()
    tokens_BL = torch.randint(VOCAB, (2, 20))
    prompt_B = torch.tensor([6, 9])
    whole_BLV = model(tokens_BL, Context(prompt_B=prompt_B))
    for end in range(9, 20):
        close(model(tokens_BL[:, :end], Context(prompt_B=prompt_B))[:, -1], whole_BLV[:, end - 1])
