"""RWKV-4 against transformers' RwkvForCausalLM on a CPU: logits, gradients of all weights, and the carried state."""

import pytest
import torch
from torch import Tensor, nn

transformers = pytest.importorskip("transformers")

from chomsky_ladder.models.block import Context  # noqa: E402
from chomsky_ladder.models.rwkv4 import RWKV4Config  # noqa: E402

VOCAB, WIDTH, INNER, BLOCKS = 11, 16, 40, 3
TOLERANCE = 2e-6  # of values of order 1 in float64: their keys and running maxima are rounded to fp32

Pairs = list[tuple[Tensor, Tensor, float]]  # ours, theirs, and the sign: their shifts are shares of the present token


def twins() -> tuple[nn.Module, nn.Module, Pairs]:
    torch.manual_seed(0)
    config = transformers.RwkvConfig(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=BLOCKS,
        rescale_every=0,
        tie_word_embeddings=False,
    )
    theirs = transformers.RwkvForCausalLM(config).double().train()
    for parameter in theirs.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    ours = RWKV4Config(d_model=WIDTH, d_inner=INNER, num_blocks=BLOCKS).build(VOCAB).double()
    pairs = matched(ours, theirs)
    with torch.no_grad():
        for own, other, sign in pairs:
            own.copy_(other.view_as(own) if sign > 0 else 1 - other.view_as(own))
    assert sum(own.numel() for own, _, _ in pairs) == sum(parameter.numel() for parameter in ours.parameters())
    assert len({other for _, other, _ in pairs}) == len(list(theirs.parameters()))
    return ours, theirs, pairs


def matched(ours: nn.Module, theirs: nn.Module) -> Pairs:
    body = theirs.rwkv
    norms = [(ours.norm, body.ln_out), (ours.blocks[0].entry, body.blocks[0].pre_ln)]
    pairs = [(ours.embedding.weight, body.embeddings.weight, 1), (ours.head.weight, theirs.head.weight, 1)]
    for own, other in zip(ours.blocks, body.blocks, strict=True):
        norms += [(own.norms[0], other.ln1), (own.norms[1], other.ln2)]
        (time, channel), attention, feed_forward = own.layers, other.attention, other.feed_forward
        pairs += [
            (time.log_rate_D, attention.time_decay, 1),
            (time.bonus_D, attention.time_first, 1),
            (time.mix_3D[0], attention.time_mix_receptance, -1),
            (time.mix_3D[1], attention.time_mix_key, -1),
            (time.mix_3D[2], attention.time_mix_value, -1),
            (time.receptance.weight, attention.receptance.weight, 1),
            (time.key.weight, attention.key.weight, 1),
            (time.value.weight, attention.value.weight, 1),
            (time.out.weight, attention.output.weight, 1),
            (channel.mix_2D[0], feed_forward.time_mix_receptance, -1),
            (channel.mix_2D[1], feed_forward.time_mix_key, -1),
            (channel.receptance.weight, feed_forward.receptance.weight, 1),
            (channel.key.weight, feed_forward.key.weight, 1),
            (channel.out.weight, feed_forward.value.weight, 1),
        ]
    return pairs + [pair for a, b in norms for pair in ((a.weight, b.weight, 1), (a.bias, b.bias, 1))]


def close(found: Tensor, expected: Tensor, name: str) -> None:
    scale = max(1.0, expected.abs().max().item())
    torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE * scale, msg=lambda text: f"{name}: {text}")


@pytest.mark.parametrize("length", [1, 2, 17, 63, 64, 65, 130])
def test_logits_and_gradients_of_all_weights(length: int) -> None:
    ours, theirs, _ = twins()
    tokens_BL = torch.randint(VOCAB, (3, length))
    weights_BLV = torch.randn(3, length, VOCAB, dtype=torch.float64)
    found, expected = ours(tokens_BL, Context()), theirs(tokens_BL).logits
    close(found, expected, "logits")
    (found * weights_BLV).sum().backward()
    (expected * weights_BLV).sum().backward()
    for parameter in ours.parameters():
        # So that slices of a parameter are slices of its gradient; a single token leaves the rates without one.
        parameter.data = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    for number, (own, other, sign) in enumerate(matched(ours, theirs)):
        gradient = torch.zeros_like(other) if other.grad is None else other.grad
        close(own, sign * gradient.view_as(own), f"gradient {number}")


def test_the_state_carried_on() -> None:
    ours, theirs, _ = twins()
    theirs.eval()
    tokens_BL = torch.randint(VOCAB, (1, 40))  # a single row: their step mixes the rows of a batch
    with torch.no_grad():
        expected = theirs(tokens_BL[:, :23], use_cache=True)
        state = ours.init_state(1, max_length=40, device=torch.device("cpu"), dtype=torch.float64)
        found, state = ours.extend(tokens_BL[:, :23], state, Context())
        close(found, expected.logits, "prefill")
        for token_B in tokens_BL[:, 23:].unbind(1):
            expected = theirs(token_B[:, None], state=expected.state, use_cache=True)
            found, state = ours.step(token_B, state, Context())
            close(found, expected.logits[:, 0], "a step")
