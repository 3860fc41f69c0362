"""Kernels in Triton where numbers are none, extreme or equal: what no table of sizes and layouts has."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.kernels.choose import named
from support.cases import some
from support.triton_kernels import MISSING, print_failures, walled_rooms, weighted

if MISSING:
    pytest.skip("triton cannot be imported", allow_module_level=True)

from chomsky_ladder.models.operations.fast_weights import gpu as _fast_weights
from chomsky_ladder.models.operations.mesa.reference import mesa
from chomsky_ladder.models.operations.mlstm import gpu as _mlstm
from chomsky_ladder.models.operations.mlstm.reference import mlstm_heads
from support.triton_checks import Case, agree, inputs_of, small
from support.triton_tables import IN_TRITON

torch.set_num_threads(1)


def drawn(kernel: str, device: str, **sizes: int) -> list[Tensor]:
    return [x.detach() for x in inputs_of(IN_TRITON[kernel], Case(sizes), device)[0]]


def called(kernel: str, *given: Any, call: int = 0) -> Any:
    return IN_TRITON[kernel].table.calls[call](named(kernel).call, *given)


def held(kernel: str, given: list[Tensor], *, tolerance: float | None = None, call: int = 0) -> None:
    with small(IN_TRITON[kernel]):
        agree(IN_TRITON[kernel], [x.detach().requires_grad_() for x in given], Case({}, call), tolerance=tolerance)


def reflections(device: str) -> None:
    """Over 64 tokens that are hardly forgotten and mirrored each time."""
    r, f, _, k, v, _, state = drawn("triton_delta", device, L=64, K=16, V=16)
    f = torch.nn.functional.normalize(f, dim=-1)
    given = [r, 0.999 * f, 2 * f, k, v, torch.full_like(f, 0.999), state]
    reference = IN_TRITON["triton_delta"].table.operation.reference
    y, expected = called("triton_delta", *given)[0], reference(*(x.double() for x in given))[0]
    assert (y - expected).abs().max() <= 1e-5 * expected.abs().max()


def more_steps_than_a_chunk(device: str) -> None:
    """Five of each token, where a chunk is meant to hold four."""
    _, f, g, k, v, _, state = drawn("triton_delta", device, L=10)
    r, *_, decay, _ = drawn("triton_delta", device, L=2)
    held("triton_delta", [r, f, g, k, v, decay, state])


def decays_of_nothing(device: str) -> None:
    """A decay of 0 leaves the present alone, and is no NaN; one that is none is not taken for it."""
    q, k, v, decay = drawn("triton_decayed", device, L=9, K=16, V=32)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    y = called("triton_decayed", *leaves, torch.full_like(decay, -torch.inf))
    assert torch.allclose(y, (q * k).sum(-1, keepdim=True) * v, atol=1e-5)
    assert all(x.isfinite().all() for x in torch.autograd.grad(y.sum(), leaves))
    decay[..., 3] = torch.nan
    assert called("triton_decayed", q.detach(), k.detach(), v.detach(), decay)[:, :, 3:].isnan().all()


def exact_decays(device: str) -> None:
    """After a decay of 0 there is what came in, after decays of 1 the sum."""
    u, h = torch.randn(2, 20, 3, device=device), torch.ones(2, 3, device=device)
    assert torch.equal(called("triton_diagonal", torch.zeros_like(u), u, h)[0], u)
    halves = (u * 8).round() / 8
    assert torch.equal(called("triton_diagonal", torch.ones_like(u), halves, h)[0], halves.cumsum(1) + 1)


def parts_of_bf16(strided: bool, device: str) -> None:
    """The gates' gradients are fp32's if q, k and v need no rounding, and all else is off by its own rounding alone.

    Maps turn channels about, so that what they make has 8 bits where c and u do.
    """
    inputs = drawn("triton_mlstm", device, L=37, H=2, K=20)
    turn = torch.eye(4, device=device)[[2, 0, 3, 1]] * torch.tensor([1.0, -1.0, 0.5, -2.0], device=device)
    inputs[2:5] = (power * turn.expand_as(x) for power, x in zip((1.0, 0.5, 2.0), inputs[2:5], strict=True))
    if strided:  # as where c and u are parts of what one product made
        inputs[:2] = torch.cat(inputs[:2], -1).bfloat16().chunk(2, -1)
    inputs[:2] = [x.bfloat16() for x in inputs[:2]]
    inputs = [x.requires_grad_() for x in inputs]
    with walled_rooms(_mlstm):
        found = results_of_16_bits(named("triton_mlstm").call, inputs)
    wanted = results_of_16_bits(mlstm_heads, [x.detach().double().requires_grad_() for x in inputs])
    names = ("h", *IN_TRITON["triton_mlstm"].table.axes)
    for name, one, other in zip(names, found, wanted, strict=True):
        error, scale = (one - other).norm().item(), other.norm().item()
        assert error <= {"i": 2e-5, "f": 2e-5, "h": 4e-3}.get(name, 1e-2) * scale, f"{name}: {error:.1e} of {scale:.1e}"


def results_of_16_bits(scan: Callable[..., Tensor], given: list[Tensor]) -> list[Tensor]:
    """From a gradient of h that has 8 bits itself."""
    h_BLE = scan(*given)
    gh_BLE = torch.randn(h_BLE.shape, generator=torch.Generator().manual_seed(1)).bfloat16().to(h_BLE)
    return [x.detach() for x in (h_BLE, *torch.autograd.grad(h_BLE, given, gh_BLE))]


def closed_gates(device: str) -> None:
    """Behind gates that are as good as shut all is finite, as in the plain form."""
    *given, i, f = drawn("triton_mlstm", device, L=9, H=2, K=16)
    given = [x.requires_grad_() for x in (*given, i - 200, f - 1000)]
    exact = [x.detach().double().requires_grad_() for x in given]
    results = []
    for scan, leaves in ((named("triton_mlstm").call, given), (mlstm_heads, exact)):
        h = scan(*leaves)
        results.append([h, *torch.autograd.grad(weighted([h]), leaves)])
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one.double(), other, rtol=1e-4, atol=1e-30)


def forgets_exactly(device: str) -> None:
    """Behind a decay of 0 nothing is left of a state as large as there are."""
    *given, state = drawn("triton_slots", device, L=12)
    given[3][:, :, 7] = 0
    (y, last), (other, large) = (called("triton_slots", *given, scale * state) for scale in (0.0, 1e30))
    assert torch.equal(last, large) and torch.equal(y[:, :, 7:], other[:, :, 7:])


def few_steps(device: str) -> None:
    """The kernel takes the number of steps asked for: fewer leave larger errors, and 500 end at the solution."""
    given = drawn("triton_mesa", device, L=9, K=17, V=3)
    exact, errors = [x.double() for x in given], []
    for steps in (1, 2, 3, 0, 500):
        y, wanted = (
            form(*tensors[:5], tensors[5:], steps=steps)[0]
            for form, tensors in ((named("triton_mesa").call, given), (mesa, exact))
        )
        assert (y - wanted).abs().max() <= 1e-5 * wanted.abs().max()
        errors.append((y - mesa(*exact[:5], exact[5:], steps=0)[0]).abs().max().item())  # pyright: ignore[reportArgumentType]
    assert errors[0] > errors[1] > errors[2] > 100 * errors[3] and errors[4] < 1e-5


def nothing_asked(device: str) -> None:
    """Queries of 0 have solutions of 0."""
    q, *rest = drawn("triton_mesa", device, L=7, K=1, V=1)
    assert not called("triton_mesa", torch.zeros_like(q), *rest)[0].any()


def no_numbers(device: str) -> None:
    """A query that is not a number gives no number, and so does such a gradient: the solution is not taken for 0."""
    inputs = drawn("triton_mesa", device, L=8, K=16, V=16)
    for bad in (torch.nan, torch.inf, 1e25):
        q, *rest = (x.clone() for x in inputs)
        q[..., 3, :] = bad
        y = called("triton_mesa", q, *rest)[0]
        assert not y[..., 3, :].isfinite().any() and y[..., 4:, :].isfinite().all()
    y = called("triton_mesa", inputs[0].requires_grad_(), *inputs[1:])[0]
    d_y = torch.zeros_like(y)
    d_y[..., 3, :] = torch.nan
    assert torch.autograd.grad(y, inputs[0], d_y)[0][..., 3, :].isnan().all()


def room_for_one_state(device: str) -> None:
    """Without gradients a head has room for one M alone: otherwise those before each mini-batch are kept."""
    given = [x.requires_grad_() for x in drawn("triton_fast_weights", device, L=7, H=2, C=3)]
    with walled_rooms(_fast_weights) as kept:
        z = called("triton_fast_weights", *given)
    with walled_rooms(_fast_weights) as rooms, torch.no_grad():
        called("triton_fast_weights", *given)
    assert sum(x.numel() for x in rooms) == z.numel() + given[7].numel()
    assert sum(x.numel() for x in kept) == z.numel() + given[7].numel() * 3


def no_number_stays_in_its_row(device: str) -> None:
    inputs = drawn("triton_fast_weights", device, L=7, H=2, C=3)
    inputs[1][0, 1, 4] = torch.nan
    z = called("triton_fast_weights", *inputs)
    assert torch.isnan(z[0, 1, 6]).all() and torch.isfinite(z[0, 1, :3]).all()
    z[0, 1] = 0
    assert torch.isfinite(z).all()


def extremes(device: str) -> None:
    """Steps of nothing and beyond fp32's exponent stay finite."""
    for dt in (-1e4, -50.0, 1e4):
        given = drawn("triton_scan", device, L=9, E=5, N=3)
        given[1] = torch.full_like(given[1], dt)
        given = [x.requires_grad_() for x in given]
        outputs = called("triton_scan", *given, call=1)
        assert all(bool(x.isfinite().all()) for x in (*outputs, *torch.autograd.grad(weighted(outputs), given)))


def small_steps(device: str) -> None:
    """softplus(x) keeps its digits where it is as small as Mamba's steps are, and its slope too."""
    v, dt, bias, *others = drawn("triton_scan", device, B=1, L=9, E=16, N=4)
    dt = torch.linspace(-14, 14, dt.numel(), device=device).view_as(dt).requires_grad_()
    given, reference = [v, dt, torch.zeros_like(bias), *others], IN_TRITON["triton_scan"].table.operation.reference
    exact = [x.detach().double().requires_grad_() for x in given]
    found = torch.autograd.grad(called("triton_scan", *given)[1].sum(), dt)[0]
    expected = torch.autograd.grad(reference(*exact, False)[1].sum(), exact[1])[0]
    assert ((found - expected).abs() <= 1e-4 * expected.abs() + 1e-7 * expected.abs().max()).all()


def first_of_equals(device: str) -> None:
    """Maps whose rows are flat move every number from place 0, or to it."""
    share, _, *others = drawn("triton_one_hot", device, B=3, L=7, K=3)
    flat = torch.ones(3, 5, 5, device=device)
    reference = IN_TRITON["triton_one_hot"].table.operation.reference
    for form in ("gather", "scatter"):
        one, other = (scan(share, flat, *others, form) for scan in (named("triton_one_hot").call, reference))
        assert (one - other).abs().max() < 1e-5 * other.abs().max()


def no_number_in_one_string(device: str) -> None:
    given = drawn("triton_one_hot", device, B=3, L=7, K=3)
    whole = called("triton_one_hot", *given)
    given[3][1, 2] = torch.nan
    broken = called("triton_one_hot", *given)
    assert torch.equal(broken[[0, 2]], whole[[0, 2]]) and torch.equal(broken[1, :2], whole[1, :2])
    assert broken[1, 2:].isnan().all()


def sure_heads(place: int, asked: float, device: str) -> None:
    """Powers that are 0 in single precision, where torch's are no nearer, and gates that are."""
    inputs = drawn("triton_turing", device, H=1, N=7)
    inputs[0][:, [place, place + 11]] = asked
    held("triton_turing", inputs, tolerance=1e-4 if asked == 300 else 4e-6)


def first_turn_of_a_machine(device: str) -> None:
    """Strings begin so: rows of nearly nothing, heads at row 0."""
    asked, weight, memory = drawn("triton_turing", device, H=2, N=9)
    at_0 = torch.eye(9, device=device)[0].expand_as(weight).clone()
    held("triton_turing", [asked, at_0, torch.full_like(memory, 1e-6)])


def used(usage: tuple[float, ...], rows: int, device: str) -> None:
    """Rows used alike are filled in their own order; and what is a product of 0 has a gradient."""
    inputs = drawn("triton_linked", device, H=1, N=rows, W=3)
    inputs[0][:, 4] = -1e3  # nothing is set free
    inputs[2] = torch.tensor(usage, device=device).repeat(rows)[:rows].repeat(2, 1)
    inputs[2][1, rows // 2 :] = 0.25
    inputs[3] = torch.zeros_like(inputs[3])
    held("triton_linked", inputs)


def first_turn_of_links(device: str) -> None:
    """Strings begin so: with nothing."""
    asked, *state = drawn("triton_linked", device, H=2, N=9)
    held("triton_linked", [asked, *map(torch.zeros_like, state)])


CHECKS: dict[str, tuple[Any, ...]] = {
    **{f"delta: {each.__name__}": (each,) for each in (reflections, more_steps_than_a_chunk)},
    "decayed: decays of nothing": (decays_of_nothing,),
    "diagonal: exact decays": (exact_decays,),
    "mlstm: bf16": (parts_of_bf16, False),
    "mlstm: bf16 of one product": (parts_of_bf16, True),
    "mlstm: closed gates": (closed_gates,),
    "slots: forgets exactly": (forgets_exactly,),
    **{f"mesa: {each.__name__}": (each,) for each in (few_steps, nothing_asked, no_numbers)},
    **{f"fast weights: {each.__name__}": (each,) for each in (room_for_one_state, no_number_stays_in_its_row)},
    **{f"scan: {each.__name__}": (each,) for each in (extremes, small_steps)},
    **{f"one-hot: {each.__name__}": (each,) for each in (first_of_equals, no_number_in_one_string)},
    "turing: no strength": (sure_heads, 5, -50.0),
    "turing: all strength": (sure_heads, 5, 50.0),
    "turing: sharp": (sure_heads, 6, 300.0),
    "turing: blunt": (sure_heads, 6, -50.0),
    "turing: gate open": (sure_heads, 7, 1e3),
    "turing: gate shut": (sure_heads, 7, -1e3),
    "turing: one shift": (sure_heads, 8, 300.0),
    "turing: first turn": (first_turn_of_a_machine,),
    "linked: nothing used": (used, (0.0,), 5),
    "linked: all used alike": (used, (0.5,), 16),
    "linked: all used up": (used, (1.0,), 7),
    "linked: one row free": (used, (0.5, 0.3, 0.0, 0.5, 0.7), 5),
    "linked: two rows free": (used, (0.5, 0.0, 0.7, 0.0, 0.5), 5),
    "linked: rows all but free": (used, (0.5, 1e-30, 0.7, 1e-12, 0.5, 1e-25), 6),
    "linked: first turn": (first_turn_of_links,),
}


@pytest.mark.each_time(1)
@pytest.mark.parametrize("name", some(CHECKS, always=["mesa: nothing_asked", "diagonal: exact decays"]))
def test_interpreted_on_a_cpu(failures: dict[str, str], name: str) -> None:
    assert failures.get(name, "") == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", CHECKS)
def test_on_a_gpu(name: str) -> None:
    check, *arguments = CHECKS[name]
    check(*arguments, "cuda")


if __name__ == "__main__":
    print_failures(CHECKS)
