"""PD-SSM against its equations in matrices, its straight-through gradient by differences, and automata it follows."""

from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.conform.suite import check
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.one_hot import reference as one_hot
from chomsky_ladder.models.operations.one_hot.reference import Form, one_hot_loop, one_hot_scan
from chomsky_ladder.models.pd_ssm import PDBlock, PDSSMConfig
from chomsky_ladder.models.scans import pairs
from support.cases import full
from support.layers import close, gradients, lively

torch.set_num_threads(1)

WIDTH, PLACES, MAPS = 6, 5, 3
FORMS = pytest.mark.parametrize("form", ["gather", "scatter"])
LENGTHS = pytest.mark.parametrize("length", [1, 2, 17, 64, 65, full(130)])


def sigmoid(x: Tensor) -> Tensor:
    return 1 / (1 + torch.exp(-x))


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / 2**0.5)) / 2


def by_hand(block: PDBlock, x_LD: Tensor) -> Tensor:
    """One row, a token at a time, with whole matrices."""

    def two_layers(part: Any, x: Tensor) -> Tensor:
        return part[2].weight @ gelu(part[0].weight @ x + part[0].bias) + part[2].bias

    h = torch.zeros(PLACES, dtype=torch.complex128)
    h[0] = 1
    outputs = []
    for x in x_LD:
        score = torch.exp(block.select.weight @ x)
        M = sum(share * A for share, A in zip(score / score.sum(), block.maps_KNN, strict=True))
        soft = torch.exp(M) / torch.exp(M).sum(1, keepdim=True)
        hard = torch.zeros_like(M)
        for row, place in enumerate(M.argmax(1)):
            hard[row, place] = 1
        P = (hard + soft - soft.detach()).to(h.dtype)
        d = sigmoid(two_layers(block.size, x)) * torch.exp(2j * torch.pi * sigmoid(two_layers(block.phase, x)))
        real, imaginary = (block.input.weight @ x).chunk(2)
        if block.form == "gather":
            h = torch.diag(d) @ P @ h + real + 1j * imaginary
        else:  # rows of M are columns of P
            h = P.T @ torch.diag(d) @ h + real + 1j * imaginary
        y = block.out.weight @ torch.cat([h.real, h.imag]) + block.out.bias + block.skip * x
        y = (y - y.mean()) / ((y - y.mean()).square().mean() + 1e-5).sqrt()
        outputs.append(y * block.norm.weight + block.norm.bias)
    return torch.stack(outputs)


def made(form: Form) -> PDBlock:
    return lively(PDBlock(PDSSMConfig(d_model=WIDTH, d_state=PLACES, num_maps=MAPS, form=form)))


@FORMS
@LENGTHS
def test_it_is_its_equations_in_value_and_gradient(form: Form, length: int) -> None:
    block, x_BLD = made(form), torch.randn(2, length, WIDTH, dtype=torch.float64, requires_grad=True)
    inputs = [x_BLD, *block.parameters()]
    found, expected = block(x_BLD, Context()), torch.stack([by_hand(block, x_LD) for x_LD in x_BLD])
    close(found, expected, 1e-11)
    for one, other in zip(gradients(found, inputs), gradients(expected, inputs), strict=True):
        close(one, other, 1e-9)


def drawn(length: int, *, places: int = PLACES) -> list[Tensor]:
    """Shares, maps, scales, inputs and a state."""

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, dtype=torch.float64)

    share_BLK, maps_KNN = torch.softmax(3 * normal(3, length, MAPS), -1), normal(MAPS, places, places)
    d_BLN2 = torch.nn.functional.normalize(normal(3, length, places, 2), dim=-1) * torch.rand(3, length, places, 1)
    numbers = (share_BLK, maps_KNN, d_BLN2, normal(3, length, places, 2), normal(3, places, 2))
    return [x.requires_grad_() for x in numbers]


@FORMS
@pytest.mark.parametrize("cached", [1, 64, 1 << 17])
@LENGTHS
def test_the_scan_equals_the_loop_from_a_state(
    form: Form, cached: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(one_hot, "CACHED", cached)
    given = drawn(length)
    both = [scan(*given, form) for scan in (one_hot_scan, one_hot_loop)]
    close(*both)
    for found, expected in zip(*(gradients(h, given) for h in both), strict=True):
        close(found, expected, 1e-10)


@FORMS
def test_what_other_devices_do_is_what_a_cpu_does(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    given = drawn(9)
    expected = one_hot_loop(*given, form)
    monkeypatch.setattr(one_hot, "_on_cpu", lambda _: False)
    monkeypatch.setattr(pairs, "_is_joined", lambda _: False)
    found = one_hot_scan(*given, form)
    close(found, expected)
    for one, other in zip(gradients(found, given), gradients(expected, given), strict=True):
        close(one, other, 1e-10)


@FORMS
def test_the_gradient_of_a_map_is_that_of_its_softmax_in_its_place(form: Form) -> None:
    """Differences are taken with P plus the change of its softmax in place of P."""
    share_BLK, maps_KNN, d_BLN2, b_BLN2, h_BN2 = (x.detach() for x in drawn(4))
    weights_BLN2 = torch.randn(3, 4, PLACES, 2, dtype=torch.float64)
    d_BLN, b_BLN, h_BN, weights_BLN = (torch.view_as_complex(x) for x in (d_BLN2, b_BLN2, h_BN2, weights_BLN2))

    def scores(maps: Tensor) -> Tensor:
        return torch.einsum("blk,kmn->blmn", share_BLK, maps)

    hard = torch.nn.functional.one_hot(scores(maps_KNN).argmax(-1), PLACES)
    before = torch.softmax(scores(maps_KNN), -1)

    def loss(maps: Tensor) -> Tensor:
        P_BLNN, h, total = (hard + torch.softmax(scores(maps), -1) - before).to(h_BN.dtype), h_BN, 0.0
        for t in range(4):
            moved = P_BLNN[:, t] if form == "gather" else P_BLNN[:, t].mT
            scaled = h if form == "gather" else d_BLN[:, t] * h
            read = torch.einsum("bmn,bn->bm", moved, scaled)
            h = (d_BLN[:, t] * read if form == "gather" else read) + b_BLN[:, t]
            total = total + (h * weights_BLN[:, t].conj()).real.sum()
        return total

    asked = maps_KNN.clone().requires_grad_()
    h_BLN2 = one_hot_scan(share_BLK, asked, d_BLN2, b_BLN2, h_BN2, form)
    (found,) = torch.autograd.grad((h_BLN2 * weights_BLN2).sum(), asked)
    for at in [(0, 0, 0), (1, 2, 3), (2, 4, 1), (0, 3, 4)]:
        small = torch.zeros_like(maps_KNN)
        small[at] = 1e-5
        slope = (loss(maps_KNN + small) - loss(maps_KNN - small)) / 2e-5
        assert found[at].item() == pytest.approx(slope.item(), rel=1e-6, abs=1e-8)


@FORMS
def test_parts_equal_the_whole(form: Form) -> None:
    block, x_BLD = made(form), torch.randn(2, 40, WIDTH, dtype=torch.float64)
    for parts in ([1] * 40, [39, 1], [1, 3, 36]):
        state = block.init_state(2, max_length=40, device=x_BLD.device, dtype=x_BLD.dtype)
        outputs = []
        for part in x_BLD.split(parts, 1):
            y_BLD, state = block.extend(part, state, Context())
            outputs.append(y_BLD)
        close(torch.cat(outputs, 1), block(x_BLD, Context()))


@FORMS
def test_replicas_have_maps_of_their_own(form: Form) -> None:
    given = [[x.detach() for x in drawn(7)] for _ in range(3)]
    stacked = [torch.stack(x).requires_grad_() for x in zip(*given, strict=True)]
    h_RBLN2 = torch.vmap(lambda *x: one_hot_scan(*x, form))(*stacked)
    alone_RBLN2 = torch.stack([one_hot_loop(*(x[r] for x in stacked), form) for r in range(3)])
    close(h_RBLN2, alone_RBLN2)
    both = (gradients(h, stacked) for h in (h_RBLN2, alone_RBLN2))
    for found, expected in zip(*both, strict=True):
        close(found, expected, 1e-10)


def run(next_SQ: Tensor, symbols_L: Tensor, form: Form) -> Tensor:
    """The state after each symbol of the recurrence whose maps are an automaton's: [L, Q], h_0 its state 0."""
    num_symbols, states = next_SQ.shape
    maps_SQQ = torch.nn.functional.one_hot(next_SQ, states).double()
    share_1LS = torch.nn.functional.one_hot(symbols_L, num_symbols).double()[None]
    one_1LQ2 = torch.tensor([1.0, 0.0], dtype=torch.float64).expand(1, len(symbols_L), states, 2)
    start_1Q = torch.nn.functional.one_hot(torch.zeros(1, dtype=torch.int64), states)
    start_1Q2 = start_1Q[..., None] * one_1LQ2[:, 0]
    return one_hot_scan(share_1LS, maps_SQQ, one_1LQ2, 0 * one_1LQ2, start_1Q2, form)[0, ..., 0]


def test_the_scatter_follows_every_automaton() -> None:
    """One of 9 states and 4 symbols, most of which merge some of them."""
    next_SQ, symbols_L = torch.randint(9, (4, 9)), torch.randint(4, (200,))
    state, expected = 0, []
    for symbol in symbols_L:
        state = int(next_SQ[symbol, state])
        expected.append(state)
    h_LQ = run(next_SQ, symbols_L, "scatter")
    assert h_LQ.argmax(-1).tolist() == expected and bool((h_LQ.sum(-1) == 1).all())


def test_the_gather_follows_permutations_by_their_inverses() -> None:
    next_SQ, symbols_L = torch.stack([torch.randperm(9) for _ in range(4)]), torch.randint(4, (200,))
    assert torch.equal(run(next_SQ.argsort(-1), symbols_L, "gather"), run(next_SQ, symbols_L, "scatter"))


def test_the_first_of_equals_is_taken_and_nothing_breaks_at_the_ends() -> None:
    """Equal scores, as rounded weights have them; scores, inputs and gradients of any size, in fp32."""
    share_BLK, maps_KNN, *others = (x.detach() for x in drawn(9, places=7))
    flat = [share_BLK, maps_KNN.round(), *others]
    close(*(scan(*flat, "gather") for scan in (one_hot_scan, one_hot_loop)))
    block = PDBlock(PDSSMConfig(d_model=WIDTH))
    for scale in (1e-20, 1e4, 1e8):
        x_BLD = (scale * torch.randn(2, 70, WIDTH)).requires_grad_()
        block.zero_grad()
        y_BLD = block(x_BLD, Context())
        y_BLD.sum().backward()
        assert bool(torch.isfinite(y_BLD).all())
        assert all(bool(torch.isfinite(x.grad).all()) for x in (x_BLD, *block.parameters()))
    broken = one_hot_scan(share_BLK, maps_KNN * torch.nan, *others, "scatter")
    assert broken.shape == others[0].shape, "of a run that diverged there is a loss to see, not an index out of range"


@pytest.mark.full
def test_the_scatter_conforms() -> None:
    assert [outcome for outcome in check(PDSSMConfig(d_model=16, form="scatter")) if outcome.verdict == "FAIL"] == []


def test_initial_weights_and_the_state_at_the_start() -> None:
    block = PDBlock(PDSSMConfig(d_model=64, d_state=48))
    assert block.maps_KNN.shape == (8, 48, 48) and block.size[0].weight.shape == (96, 64)
    for weight, std in ((block.maps_KNN, 48**-0.5), (block.input.weight, 96**-0.5), (block.skip, 64**-0.5)):
        assert weight.std().item() == pytest.approx(std, rel=0.2)
    state = block.init_state(2, max_length=1, device=torch.device("cpu"), dtype=torch.float32)
    assert state.shape == (2, 48, 2) and state.sum() == 2 == state[:, 0, 0].sum()


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"d_state": -1}, "d_state must not be negative"), ({"num_maps": 0}, "num_maps must be at least 1, not 0")],
)
def test_what_is_refused(changes: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=f"pd_ssm: {said}"):
        PDSSMConfig(**changes)
