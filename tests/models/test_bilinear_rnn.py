"""The bilinear RNN against products of its matrices, its scale, a group that it follows by hand, and its extremes."""

from itertools import permutations

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.bilinear_rnn import BilinearRecurrence, BilinearRNNConfig, unit
from chomsky_ladder.models.block import Context
from support.attentions import WIDTH, hold_parts_to_the_whole, hold_to_the_loop, stays_finite
from support.layers import close, lively

torch.set_num_threads(1)


def by_hand(layer: BilinearRecurrence, x_LD: Tensor) -> Tensor:
    """One matrix for all blocks, and one length of a block at a time, after all products."""
    h_HK, rows = layer.start_HK, []
    weight_HKJD = layer.transition.weight.view(*h_HK.shape, h_HK.shape[1], WIDTH)
    for x in x_LD:
        h_HK = torch.stack([(weight_KJD @ x) @ h for weight_KJD, h in zip(weight_HKJD, h_HK, strict=True)])
        rows.append(layer.out.weight @ torch.cat([h / h.square().sum().sqrt() for h in h_HK]))
    return torch.stack(rows)


@pytest.mark.parametrize(("length", "block_size"), [(1, 3), (8, 1), (9, 12), (30, 3)])
def test_it_equals_products_of_matrices(length: int, block_size: int) -> None:
    hold_to_the_loop(lively(BilinearRecurrence(WIDTH, block_size)), by_hand, length, tolerance=1e-8)


def test_parts_equal_the_whole() -> None:
    hold_parts_to_the_whole(lively(BilinearRecurrence(WIDTH, 3)), 20, [[19], [3, 1, 10], [1] * 19])


def test_the_scale_of_a_token_and_of_the_start_change_nothing() -> None:
    layer = lively(BilinearRecurrence(WIDTH, 3))
    x_BLD = torch.randn(2, 20, WIDTH, dtype=torch.float64)
    found = layer(x_BLD, Context())
    layer.start_HK.data *= 1e9
    close(layer(torch.rand(2, 20, 1).double() * x_BLD, Context()), found, 1e-9)


def test_it_follows_permutations_of_four_things_by_hand() -> None:
    """Tokens are the 24 permutations of a block's numbers, in strings of 500."""
    moves = torch.tensor(list(permutations(range(4))))
    layer = BilinearRecurrence(24, 4).double()
    layer.transition.weight.data.view(6, 4, 4, 24)[:] = torch.nn.functional.one_hot(moves, 4).double().permute(1, 2, 0)
    layer.start_HK.data[:] = torch.arange(1.0, 5.0)
    layer.out.weight.data[:] = torch.eye(24)
    tokens_L = torch.randint(24, (500,))
    found_LK = layer(torch.nn.functional.one_hot(tokens_L, 24).double()[None], Context())[0, :, :4] * 30**0.5
    things = torch.arange(1.0, 5.0).double()
    for token, found_K in zip(tokens_L, found_LK, strict=True):
        things = things[moves[token]]
        close(found_K, things, 1e-9)


def test_tiny_and_large_vectors_have_length_1() -> None:
    for scale in (1e-35, 1.0, 1e35):
        close(unit(scale * torch.tensor([3.0, 4.0])), torch.tensor([0.6, 0.8]), 1e-6)
    assert not unit(torch.zeros(2)).any()


def test_extreme_inputs_stay_finite() -> None:
    stays_finite(BilinearRecurrence(WIDTH, 3), (1e-4, 1.0, 1e3), 90)


def test_what_is_proven_is_of_blocks() -> None:
    assert BilinearRNNConfig().transition == "dense blocks" and BilinearRNNConfig(block_size=1).transition == ""


def test_settings_are_refused_in_one_line() -> None:
    for setting, message in (
        ({"d_model": 10}, "^bilinear_rnn: d_model=10 does not split into blocks of 4$"),
        ({"d_inner": -1}, "^bilinear_rnn: d_inner must not be negative$"),
    ):
        with pytest.raises(ValueError, match=message):
            BilinearRNNConfig(**setting)
