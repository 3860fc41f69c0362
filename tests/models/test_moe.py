"""The mixture of experts against a loop over tokens that runs the chosen experts only, and its losses by hand."""

import math
from itertools import pairwise
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.moe import Experts, MoEConfig
from support.layers import close

torch.set_num_threads(1)

VOCAB = 11
WIDTH, INNER, NUM_EXPERTS = 8, 6, 5


def make(*, top_k: int = 2, num_experts: int = NUM_EXPERTS, width: int = WIDTH, balance: float = 0.3) -> Experts:
    config = MoEConfig(d_model=width, num_heads=2, num_experts=num_experts, top_k=top_k, balance=balance, d_inner=INNER)
    experts = config.make_feed_forward().double()
    assert isinstance(experts, Experts)
    return experts


def run(experts: Experts, x_BLD: Tensor, valid_BL: Tensor | None = None) -> tuple[Tensor, Context]:
    ctx = Context(valid_BL=valid_BL)
    return experts(x_BLD, ctx), ctx


def tokens_with_a_one(batch: int, length: int) -> Tensor:
    """Their first coordinate lets one weight of the router send them all to an expert or keep them from it."""
    x_BLD = torch.randn(batch, length, WIDTH, dtype=torch.float64)
    x_BLD[..., 0] = 1
    return x_BLD


def one_expert(experts: Experts, number: int, x_D: Tensor) -> Tensor:
    both_I = x_D @ experts.gate_up[number]
    gate_I, up_I = both_I[:INNER], both_I[INNER:]
    return (gate_I / (1 + torch.exp(-gate_I)) * up_I) @ experts.out[number]


def best(scores: list[float], top_k: int) -> list[int]:
    return sorted(range(len(scores)), key=lambda number: scores[number], reverse=True)[:top_k]


def naive(experts: Experts, x_BLD: Tensor, top_k: int) -> Tensor:
    """Each token alone, through the experts it chose and no others."""
    rows = []
    for x_LD in x_BLD:
        outputs = []
        for x_D in x_LD:
            scores_E = experts.router.weight @ x_D
            chosen = best(scores_E.tolist(), top_k)
            total = sum(torch.exp(scores_E[number]) for number in chosen)
            outputs.append(
                sum(torch.exp(scores_E[number]) / total * one_expert(experts, number, x_D) for number in chosen)
            )
        rows.append(torch.stack(outputs))
    return torch.stack(rows)


class Report(NamedTuple):
    balance: float  # 1 when even
    load_max: float
    load_min: float


def report_by_hand(experts: Experts, x_BLD: Tensor, valid_BL: Tensor, top_k: int) -> Report:
    """E sum_e f_e P_e, and the extremes of E f_e, from one number at a time."""
    scores_BLE = (x_BLD @ experts.router.weight.T).tolist()
    num_experts = experts.router.weight.shape[0]
    sent, probability, tokens = [0] * num_experts, [0.0] * num_experts, 0
    for scores_LE, valid_L in zip(scores_BLE, valid_BL.tolist(), strict=True):
        for scores, valid in zip(scores_LE, valid_L, strict=True):
            if valid:
                tokens += 1
                total = sum(math.exp(score) for score in scores)
                for number in best(scores, top_k):
                    sent[number] += 1
                for number, score in enumerate(scores):
                    probability[number] += math.exp(score) / total
    share = [count / (tokens * top_k) for count in sent]
    balance = num_experts * sum(f * p / tokens for f, p in zip(share, probability, strict=True))
    return Report(balance, num_experts * max(share), num_experts * min(share))


def reported(ctx: Context, *, balance: float, layer: int = 0) -> Report:
    return Report(
        ctx.losses["balance"][layer].item() / balance,
        float(ctx.metrics["expert_load_max"][layer]),
        float(ctx.metrics["expert_load_min"][layer]),
    )


@pytest.mark.parametrize("top_k", [1, 2, 3, NUM_EXPERTS])
def test_outputs_and_gradients_equal_the_loop_over_chosen_experts(top_k: int) -> None:
    experts = make(top_k=top_k)
    x_BLD = torch.randn(3, 7, WIDTH, dtype=torch.float64, requires_grad=True)
    y_BLD, expected_BLD = run(experts, x_BLD)[0], naive(experts, x_BLD, top_k)
    close(y_BLD, expected_BLD)
    close(experts(x_BLD[:, 0], Context()), expected_BLD[:, 0])  # a step has no time axis
    weights_BLD, inputs = torch.randn_like(y_BLD), (x_BLD, *experts.parameters())
    found = torch.autograd.grad((y_BLD * weights_BLD).sum(), inputs)
    expected = torch.autograd.grad((expected_BLD * weights_BLD).sum(), inputs, materialize_grads=True)
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-11)


def test_an_expert_nobody_chose_learns_nothing() -> None:
    experts = make(top_k=2)
    x_BLD = tokens_with_a_one(3, 7)
    with torch.no_grad():
        experts.router.weight[3, 0] = -100.0
    gradient_EDI, gradient_EID = torch.autograd.grad(run(experts, x_BLD)[0].sum(), (experts.gate_up, experts.out))
    for gradient in (gradient_EDI, gradient_EID):
        unmoved = [number for number in range(NUM_EXPERTS) if not gradient[number].any()]
        assert unmoved == [3]


def test_all_experts_chosen_are_the_mixture_under_the_whole_softmax() -> None:
    experts = make(top_k=NUM_EXPERTS)
    x_BLD = torch.randn(2, 5, WIDTH, dtype=torch.float64)
    share_BLE = torch.softmax(x_BLD @ experts.router.weight.T, dim=-1)
    expected_BLD = sum(
        share_BLE[..., number, None]
        * torch.stack([torch.stack([one_expert(experts, number, x_D) for x_D in x_LD]) for x_LD in x_BLD])
        for number in range(NUM_EXPERTS)
    )
    y_BLD, ctx = run(experts, x_BLD)
    close(y_BLD, expected_BLD)
    assert reported(ctx, balance=0.3) == pytest.approx((1, 1, 1))  # everyone is sent everything


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_the_balance_loss_and_the_loads_by_hand(top_k: int) -> None:
    experts = make(top_k=top_k, balance=0.3)
    x_BLD = 3 * torch.randn(4, 9, WIDTH, dtype=torch.float64)
    valid_BL = torch.arange(9) < torch.tensor([9, 1, 4, 6])[:, None]
    for mask_BL in (valid_BL, None):
        _, ctx = run(experts, x_BLD, mask_BL)
        expected = report_by_hand(experts, x_BLD, valid_BL if mask_BL is not None else valid_BL | True, top_k)
        assert reported(ctx, balance=0.3) == pytest.approx(expected, rel=1e-12)
    assert {name: len(values) for name, values in ctx.losses.items()} == {"balance": 1}
    assert {name: len(values) for name, values in ctx.metrics.items()} == {
        "expert_load_max": 1,
        "expert_load_min": 1,
    }


def test_loads_are_one_when_even_and_count_experts_when_not() -> None:
    experts = make(top_k=1, num_experts=4, width=4)
    with torch.no_grad():
        experts.router.weight.copy_(torch.eye(4))
    one_hot = 5 * torch.eye(4, dtype=torch.float64)
    for sent_to, load_max, load_min in (([0, 1, 2, 3], 1.0, 1.0), ([0, 0, 1, 2], 2.0, 0.0), ([3, 3, 3, 3], 4.0, 0.0)):
        _, ctx = run(experts, one_hot[sent_to][None])
        assert reported(ctx, balance=0.3)[1:] == pytest.approx((load_max, load_min))


def circulant_tokens() -> Tensor:
    """Four tokens; token t scores experts t, t + 1, t + 2 and t + 3 (modulo 4) with 3, 2, 1 and 0."""
    return torch.stack([torch.tensor([3.0, 2.0, 1.0, 0.0]).roll(shift) for shift in range(4)]).double()


@pytest.mark.parametrize("top_k", [1, 2, 3, 4])
def test_an_even_router_pays_the_weight_itself(top_k: int) -> None:
    experts = make(top_k=top_k, num_experts=4, width=4, balance=0.07)
    with torch.no_grad():
        experts.router.weight.copy_(torch.eye(4))
    _, ctx = run(experts, circulant_tokens().repeat(3, 2, 1))
    assert ctx.losses["balance"][0].item() == pytest.approx(0.07, rel=1e-12)
    assert reported(ctx, balance=0.07) == pytest.approx((1, 1, 1), rel=1e-12)


@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_the_balance_loss_rises_as_routing_collapses(top_k: int) -> None:
    experts = make(top_k=top_k, num_experts=4, width=4, balance=0.07)
    with torch.no_grad():
        experts.router.weight.copy_(torch.eye(4))
    even = circulant_tokens()
    losses = []
    for collapsed in range(0, 41, 4):  # so many of forty tokens are alike
        x_1LD = torch.cat([even.repeat((40 - collapsed) // 4, 1), even[0].expand(collapsed, 4)])[None]
        losses.append(run(experts, x_1LD)[1].losses["balance"][0].item())
    assert losses[0] == pytest.approx(0.07)
    assert all(later > earlier * 1.001 for earlier, later in pairwise(losses))
    sharp = run(experts, 100 * even[:1].repeat(5, 1)[None])[1].losses["balance"][0].item()
    assert sharp == pytest.approx(0.07 * 4 / top_k)  # the most there is: every token whole to the same expert


def test_the_balance_loss_pulls_on_the_router_alone_through_its_probabilities() -> None:
    experts = make(top_k=2, balance=0.3)
    x_BLD = torch.randn(3, 7, WIDTH, dtype=torch.float64)
    _, ctx = run(experts, x_BLD)
    (found,) = torch.autograd.grad(ctx.losses["balance"][0], experts.router.weight)
    scores_TE = (x_BLD @ experts.router.weight.T).flatten(0, 1)
    load_E = torch.zeros(NUM_EXPERTS, dtype=torch.float64)
    for scores in scores_TE.tolist():
        load_E[best(scores, 2)] += 1 / (2 * len(scores_TE))
    probability_E = (scores_TE.exp() / scores_TE.exp().sum(-1, keepdim=True)).sum(0) / len(scores_TE)
    (expected,) = torch.autograd.grad(0.3 * NUM_EXPERTS * (load_E @ probability_E), experts.router.weight)
    close(found, expected)
    assert bool(found.any())
    assert torch.autograd.grad(run(experts, x_BLD)[1].losses["balance"][0], experts.out, allow_unused=True) == (None,)


def test_padding_changes_neither_loss_nor_metrics() -> None:
    experts = make(top_k=2)
    x_BLD, length_B = torch.randn(3, 6, WIDTH, dtype=torch.float64), torch.tensor([6, 2, 4])
    reports = []
    for width, seed in ((6, 1), (6, 2), (19, 3)):
        noise_BLD = 30 * torch.randn(
            3, width, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
        )
        valid_BL = torch.arange(width) < length_B[:, None]
        padded_BLD = torch.where(valid_BL[..., None], widened(x_BLD, width), noise_BLD)
        reports.append(reported(run(experts, padded_BLD, valid_BL)[1], balance=0.3))
        assert reported(run(experts, padded_BLD)[1], balance=0.3) != pytest.approx(reports[0])  # the noise is loud
    rows = torch.cat([x_BLD[row, :end] for row, end in enumerate(length_B)])
    alone = reported(run(experts, rows[None])[1], balance=0.3)
    assert all(report == pytest.approx(alone, rel=1e-12) for report in reports)


def widened(x_BLD: Tensor, width: int) -> Tensor:
    return nn.functional.pad(x_BLD, (0, 0, 0, width - x_BLD.shape[1]))


def test_padding_changes_nothing_in_the_whole_model() -> None:
    model = MoEConfig(d_model=16, num_blocks=3, num_heads=2, num_experts=4, balance=0.5).build(VOCAB).double()
    tokens_BL, length_B = torch.randint(VOCAB, (3, 9)), torch.tensor([9, 3, 5])
    reports = []
    for width in (9, 30):
        valid_BL = torch.arange(width) < length_B[:, None]
        padded_BL = torch.randint(VOCAB, (3, width))
        padded_BL[:, :9] = torch.where(valid_BL[:, :9], tokens_BL, padded_BL[:, :9])
        ctx = Context(valid_BL=valid_BL)
        model(padded_BL, ctx)
        assert {len(values) for values in (*ctx.losses.values(), *ctx.metrics.values())} == {3}  # one a block
        reports.append([reported(ctx, balance=0.5, layer=layer) for layer in range(3)])
    for narrow, wide in zip(*reports, strict=True):
        assert narrow == pytest.approx(wide, rel=1e-10)


@pytest.mark.parametrize("collapsed", [False, True])
def test_no_token_is_dropped_for_another(collapsed: bool) -> None:
    experts = make(top_k=1)
    x_BLD = tokens_with_a_one(2, 5)
    if collapsed:  # all to expert 2, far more than any capacity
        with torch.no_grad():
            experts.router.weight[2, 0] = 50.0
    y_BLD, ctx = run(experts, x_BLD)
    many_BLD, ctx_many = run(experts, x_BLD.repeat(40, 1, 1))
    assert (float(ctx.metrics["expert_load_max"][0]) == pytest.approx(NUM_EXPERTS)) == collapsed
    close(many_BLD, y_BLD.repeat(40, 1, 1))
    close(many_BLD[:2], naive(experts, x_BLD, 1))
    assert reported(ctx_many, balance=0.3) == pytest.approx(reported(ctx, balance=0.3), rel=1e-12)


def test_loss_and_metrics_are_reported_by_passes_over_strings_alone() -> None:
    model = MoEConfig.tiny().build(VOCAB).double()
    ctx, piece, tokens_BL = Context(), Context(), torch.randint(VOCAB, (2, 4))
    state = model.init_state(2, max_length=8, device=torch.device("cpu"), dtype=torch.float64)
    _, after = model.step(tokens_BL[:, 0], state, ctx)
    assert not ctx.losses and not ctx.metrics
    model.extend(tokens_BL, after, piece)  # a piece of a string is trained on (harness/train/carried.py)
    assert [*piece.losses] == ["balance"] and len(piece.losses["balance"]) == 2


def test_shares_and_losses_are_in_single_precision_when_the_model_is_in_half() -> None:
    experts = make(top_k=2, balance=0.3)
    x_BLD = torch.randn(4, 64, WIDTH).bfloat16()
    expected = run(experts.bfloat16().double(), x_BLD.double())[0]
    y_BLD, ctx = run(experts.bfloat16(), x_BLD)
    assert y_BLD.dtype == torch.bfloat16
    assert ctx.losses["balance"][0].dtype == torch.float32
    scores_BLE = experts.double().router(x_BLD.double())
    best_3BL = scores_BLE.topk(3).values
    clear_BL = best_3BL[..., 1] - best_3BL[..., 2] > 0.05  # where rounding cannot change the choice
    assert clear_BL.float().mean() > 0.5
    torch.testing.assert_close(y_BLD.double()[clear_BL], expected[clear_BL], rtol=0.1, atol=0.01)


def test_an_expert_chosen_with_next_to_no_weight_is_chosen() -> None:
    experts = make(top_k=2, num_experts=4, width=4, balance=0.3).float()
    with torch.no_grad():
        experts.router.weight.copy_(torch.eye(4))
    sharp_1LE = torch.stack([torch.tensor([200.0, 0.0, -9.0, -9.0]).roll(shift) for shift in range(4)])[None]
    assert reported(run(experts, sharp_1LE)[1], balance=0.3) == pytest.approx((1, 1, 1))
