"""The prefix-scannable model: its folds against loops over trees, its counter, and a group that its operator holds."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.conform.suite import check
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.psm import Bound, LogDepthUnit, PSMConfig, TreeFold
from chomsky_ladder.models.scans.tree import empty_counter, fold_next, fold_prefixes
from support.attentions import WIDTH, hold_parts_to_the_whole, stays_finite
from support.layers import close, lively

torch.set_num_threads(1)

BOUNDS: tuple[Bound, ...] = ("norm", "tanh")
LENGTHS = (1, 2, 3, 7, 8, 23, 64, 100)


def tree(tokens: list[Tensor], operator: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return the fold of a power of two of tokens, half by half."""
    half = len(tokens) // 2
    return operator(tree(tokens[:half], operator), tree(tokens[half:], operator)) if half else tokens[0]


def prefix(tokens: list[Tensor], operator: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return the fold of complete trees, the longest first."""
    longest = 1 << len(tokens).bit_length() - 1
    fold, rest = tree(tokens[:longest], operator), tokens[longest:]
    while rest:
        longest = 1 << len(rest).bit_length() - 1
        fold, rest = operator(fold, tree(rest[:longest], operator)), rest[longest:]
    return fold


def uneven(earlier: Tensor, later: Tensor) -> Tensor:
    """Merge two parts so that the result depends on how they are bracketed."""
    return torch.sin(2 * earlier + 0.7 * later**2) + 0.1 * later


@pytest.mark.parametrize("length", LENGTHS)
def test_each_prefix_is_folded_by_complete_trees(length: int) -> None:
    x_BLD = torch.randn(2, length, 3, dtype=torch.float64)
    expected = torch.stack([prefix(list(x_BLD.unbind(1))[: t + 1], uneven) for t in range(length)], 1)
    close(fold_prefixes(x_BLD, uneven), expected, 1e-12)


def test_a_counter_gives_the_same_folds_token_by_token() -> None:
    x_BLD = torch.randn(2, 40, 3, dtype=torch.float64)
    counter, found = empty_counter(2, 40, 3, device=torch.device("cpu"), dtype=torch.float64), []
    for x_BD in x_BLD.unbind(1):
        fold_BD, counter = fold_next(x_BD, counter, uneven)
        found.append(fold_BD)
    close(torch.stack(found, 1), fold_prefixes(x_BLD, uneven), 1e-12)


def test_an_associative_operator_gives_a_plain_scan() -> None:
    matrices_BLX = torch.randn(2, 37, 9, dtype=torch.float64) / 2

    def product(earlier: Tensor, later: Tensor) -> Tensor:
        return (later.unflatten(-1, (3, 3)) @ earlier.unflatten(-1, (3, 3))).flatten(-2)

    expected = [matrices_BLX[:, 0]]
    for matrix_BX in matrices_BLX.unbind(1)[1:]:
        expected.append(product(expected[-1], matrix_BX))
    close(fold_prefixes(matrices_BLX, product), torch.stack(expected, 1), 1e-10)


@pytest.mark.parametrize("length", [40, 256])
def test_no_more_operations_than_said_and_no_deeper(length: int) -> None:
    merged: list[int] = []

    def counted(earlier: Tensor, later: Tensor) -> Tensor:
        merged.append(earlier.shape[1])
        return earlier + later

    x_BLD = torch.ones(1, length, 1)
    assert torch.equal(fold_prefixes(x_BLD, counted), x_BLD.cumsum(1))
    assert sum(merged) < 2 * length and len(merged) <= 2 * length.bit_length() - 2


@pytest.mark.parametrize("bound", BOUNDS)
def test_parts_equal_the_whole(bound: Bound) -> None:
    hold_parts_to_the_whole(lively(TreeFold(WIDTH, 2 * WIDTH, bound=bound)), 20, [[19], [3, 1, 10], [1] * 19])


@pytest.mark.parametrize("bound", BOUNDS)
def test_the_operator_is_its_equation(bound: Bound) -> None:
    layer = lively(TreeFold(WIDTH, 2 * WIDTH, bound=bound))
    gain_D = layer.gain_D

    def bounded(x_D: Tensor) -> Tensor:
        unit_D = x_D / x_D.square().mean().sqrt()
        return unit_D if gain_D is None else 1 - 2 / (torch.exp(2 * gain_D * unit_D) + 1)

    x_LD = torch.randn(2, WIDTH, dtype=torch.float64)
    leaves = [bounded(row) for row in layer.leaf(x_LD)]
    gate, up = layer.gate_up(torch.cat(leaves)).chunk(2)
    merged = bounded(leaves[0] + leaves[1] + layer.merge(gate * torch.sigmoid(gate) * up))
    expected = torch.stack([leaves[0], merged]) @ layer.out.weight.T
    close(layer(x_LD[None], Context())[0], expected, 1e-6)  # a norm adds a small number under its root


def test_tanh_forgets_a_small_error_where_a_norm_does_not() -> None:
    """Merged by a sum that saturates, copies of a state come back to it from a hundredth aside."""
    errors = {}
    for bound in BOUNDS:
        layer = TreeFold(WIDTH, 2 * WIDTH, bound=bound).double().requires_grad_(requires_grad=False)
        layer.merge.weight.zero_(), layer.merge.bias.zero_()
        if layer.gain_D is not None:
            layer.gain_D.fill_(3.0)
        layer.leaf.weight.copy_(torch.eye(WIDTH)), layer.leaf.bias.zero_(), layer.out.weight.copy_(torch.eye(WIDTH))
        signs_D = torch.randn(WIDTH, dtype=torch.float64).sign()
        x_BLD = signs_D.expand(2, 64, WIDTH).clone()
        x_BLD[1] += 0.01 * torch.randn(64, WIDTH, dtype=torch.float64).mean(0)
        y_BLD = layer(x_BLD, Context())
        errors[bound] = float((y_BLD[1, -1] - y_BLD[0, -1]).abs().max() / (x_BLD[1, -1] - x_BLD[0, -1]).abs().max())
    assert errors["tanh"] < 1e-6 < 0.5 < errors["norm"]


@pytest.mark.parametrize("bound", BOUNDS)
def test_extreme_inputs_stay_finite(bound: Bound) -> None:
    stays_finite(TreeFold(WIDTH, 2 * WIDTH, bound=bound), (1e-20, 1.0, 1e4, 1e8), 20)


@pytest.mark.parametrize("setting", ["d_inner", "merge_width"])
def test_settings_are_refused_in_one_line(setting: str) -> None:
    with pytest.raises(ValueError, match=rf"^psm: {setting} must not be negative$"):
        PSMConfig(**{setting: -1})  # pyright: ignore[reportArgumentType]


def test_the_operator_of_the_log_depth_unit_is_its_equations() -> None:
    unit: Any = lively(LogDepthUnit(5))
    a, b = torch.randn(2, 7, 5, dtype=torch.float64)
    first, second, third = unit.weigh[0], unit.weigh[2], unit.weigh[4]
    inner = torch.relu(torch.cat([a, b], -1) @ first.weight.T + first.bias)
    u, v = (torch.relu(inner @ second.weight.T + second.bias) @ third.weight.T + third.bias).split(5, -1)
    earlier, later, both = unit.earlier, unit.later, unit.both
    h = (u * a) @ earlier.weight.T + earlier.bias + (v * b) @ later.weight.T + later.bias
    h = h @ both.weight.T + both.bias
    wide, narrow = unit.rest[0], unit.rest[2]
    h = h + torch.relu(h @ wide.weight.T + wide.bias) @ narrow.weight.T + narrow.bias
    h = (h - h.mean(-1, keepdim=True)) / (h.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    close(unit(a, b), h * unit.norm.weight + unit.norm.bias, 1e-10)


def test_the_maps_of_the_log_depth_unit_start_as_the_identity() -> None:
    unit = LogDepthUnit(4)
    for each in (unit.earlier, unit.later, unit.both):
        assert torch.equal(each.weight, torch.eye(4)) and not each.bias.any()


def test_parts_equal_the_whole_with_the_log_depth_unit() -> None:
    layer = lively(TreeFold(WIDTH, 0, bound="norm", operator="ldru"))
    hold_parts_to_the_whole(layer, 20, [[19], [3, 1, 10], [1] * 19])


@pytest.mark.full
def test_the_log_depth_unit_conforms() -> None:
    config = replace(PSMConfig.tiny(), operator="ldru")
    assert [outcome for outcome in check(config) if outcome.verdict == "FAIL"] == []


def test_the_log_depth_unit_keeps_the_precision_of_its_weights() -> None:
    layer = lively(TreeFold(WIDTH, 0, bound="norm", operator="ldru")).float()
    a_XD, b_XD = torch.randn(2, 3, WIDTH).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        merged_XD = layer._merged(a_XD, b_XD, Context())
    assert torch.equal(merged_XD, layer._merged(a_XD.float(), b_XD.float(), Context()))
