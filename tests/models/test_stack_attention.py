"""Stack attention against stacks cell by cell and against the authors' view of it: a mean over sequences of actions."""

from itertools import product

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.layers.attention import Attention
from chomsky_ladder.models.stack_attention import StackAttention, StackAttentionConfig
from support.attentions import WIDTH, hold_parts_to_the_whole, hold_to_the_loop, stays_finite
from support.layers import close, lively

torch.set_num_threads(1)

PUSH, POP, STAY = ([1e3 * (action == chosen) for action in range(3)] for chosen in range(3))


def by_hand(layer: StackAttention, x_LD: Tensor) -> Tensor:
    """Every stack is a list of cells, the top first."""
    rows = []
    stacks: list[list[Tensor]] = [[] for _ in range(layer.num_stacks)]
    for x in x_LD:
        tops = []
        for index, asked in enumerate((layer.action_value.weight @ x).chunk(layer.num_stacks)):
            push, pop, stay = asked[:3].softmax(0).unbind()
            value, old = asked[3:], stacks[index]
            nothing = torch.zeros_like(value)
            cells = [*old, nothing, nothing]
            above = [value, *cells]
            stacks[index] = [push * above[n] + pop * cells[n + 1] + stay * cells[n] for n in range(len(old) + 1)]
            tops.append(stacks[index][0])
        rows.append(layer.out.weight @ torch.cat(tops))
    return torch.stack(rows)


@pytest.mark.parametrize("length", [1, 2, 9, 30])
def test_it_equals_cells_one_by_one(length: int) -> None:
    layer = lively(StackAttention(WIDTH, num_stacks=2, cell=3))
    hold_to_the_loop(layer, by_hand, length, tolerance=1e-11)


def test_parts_equal_the_whole() -> None:
    layer = lively(StackAttention(WIDTH, num_stacks=2, cell=3))
    hold_parts_to_the_whole(layer, 20, [[19], [3, 1, 10], [1] * 19])


def test_the_output_is_the_mean_over_all_sequences_of_actions() -> None:
    """Each of 3^5 sequences moves one stack of whole values; what is on top counts by the sequence's probability."""
    layer = lively(StackAttention(WIDTH, num_stacks=1, cell=4))
    x_LD = torch.randn(5, WIDTH, dtype=torch.float64)
    asked_LX = layer.action_value(x_LD)
    share_L3, value_LW = asked_LX[:, :3].softmax(-1), asked_LX[:, 3:]
    expected = torch.zeros(4, dtype=torch.float64)
    for actions in product(range(3), repeat=5):
        stack: list[int] = []
        for token, action in enumerate(actions):
            stack = [[*stack, token], stack[:-1], stack][action]
        weight = torch.stack([share_L3[token, action] for token, action in enumerate(actions)]).prod()
        expected = expected + weight * value_LW[stack[-1]] if stack else expected
    close(layer(x_LD[None], Context())[0, -1], layer.out.weight @ expected)


def test_by_hand_last_in_first_out() -> None:
    told = [[*PUSH, 3], [*PUSH, 5], [*STAY, 9], [*POP, 9], [*PUSH, 7], [*POP, 9], [*POP, 9], [*POP, 9], [*PUSH, 2]]
    layer = StackAttention(2, num_stacks=1, cell=1)
    state = layer.init_state(1, max_length=9, device=torch.device("cpu"), dtype=torch.float32)
    tops_BLX, _ = layer.moved(torch.tensor([told]), state, Context())
    assert tops_BLX.flatten().tolist() == [3, 5, 5, 3, 7, 3, 0, 0, 2]


def test_extreme_inputs_stay_finite() -> None:
    stays_finite(StackAttention(WIDTH, num_stacks=2, cell=3), (1e-20, 1.0, 1e4, 1e8), 30)


def test_the_middle_block_has_the_stack_and_the_others_attention() -> None:
    for blocks, place in ((1, 0), (2, 1), (5, 2)):
        config = StackAttentionConfig(num_blocks=blocks)
        kinds = [type(config.make_mixer(layer)) for layer in range(blocks)]
        assert kinds == [StackAttention if layer == place else Attention for layer in range(blocks)]
    assert {name: tuple(x.shape) for name, x in StackAttentionConfig(d_model=32).make_mixer(1).named_parameters()} == {
        "action_value.weight": (35, 32),
        "out.weight": (32, 32),
    }


def test_settings_are_refused_in_one_line() -> None:
    for setting, message in (
        ({"num_stacks": 0}, "^stack_attention: num_stacks must be at least 1, not 0$"),
        ({"stack_cell": -1}, "^stack_attention: stack_cell must not be negative$"),
    ):
        with pytest.raises(ValueError, match=message):
            StackAttentionConfig(**setting)
