"""S4 and S4D against dense systems in numpy, the published generating function, HiPPO's own matrices, and stepping."""

from typing import Any

import numpy as np
import pytest
import torch

from chomsky_ladder.harness.train.optim import declared
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.s4 import S4Config, StateSpace
from chomsky_ladder.models.scans.hippo import legs, legs_modes
from support.layers import close

torch.set_num_threads(1)

WAYS = (Context(backend="reference"), Context())  # by doubling, and the best there is here
LENGTHS = (1, 2, 17, 63, 64, 65, 130, 257)
FORMS: dict[str, dict[str, str]] = {
    "dplr": {},
    "legs": {"form": "diagonal"},
    "lin": {"form": "diagonal", "init": "lin"},
}


def layer(form: str, *, d_model: int = 3, d_state: int = 8, trained: bool = True, **settings: Any) -> StateSpace:
    """Return a layer in float64. `trained` moves every parameter, so that no two channels or states share one."""
    made = StateSpace(S4Config(d_model=d_model, d_state=d_state, **FORMS[form], **settings)).double()
    if trained:
        with torch.no_grad():
            for parameter in made.parameters():
                parameter += 0.3 * torch.randn_like(parameter)
    return made


def dense(made: StateSpace, channel: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Abar [N, N], Bbar [N] and C [N] of one channel in complex128, all conjugates written out, A never diagonal."""
    values = {name: value.detach()[channel].numpy() for name, value in made.named_parameters() if value.ndim > 1}

    def pairs(name: str) -> np.ndarray:
        half = values[name][:, 0] + 1j * values[name][:, 1]
        return np.concatenate([half, half.conj()])

    a = -np.exp(values["log_decay_HM"]) + 1j * values["frequency_HM"]
    A, B, C = np.diag(np.concatenate([a, a.conj()])), pairs("B_HM2"), pairs("C_HM2")
    dt, one = np.exp(made.log_dt_H[channel].item()), np.eye(len(A))
    if not made.is_diagonal:
        A = A - np.outer(pairs("P_HM2"), pairs("P_HM2").conj())
        inverse = np.linalg.inv(one - dt / 2 * A)
        return inverse @ (one + dt / 2 * A), inverse @ (dt * B), C
    Abar = np.diag(np.exp(dt * np.diag(A)))
    return Abar, np.linalg.inv(A) @ (Abar - one) @ B, C


@pytest.mark.parametrize("ctx", WAYS, ids=lambda ctx: ctx.backend)
@pytest.mark.parametrize("form", FORMS)
def test_the_kernel_is_that_of_the_dense_system_and_of_any_length_the_same(form: str, ctx: Context) -> None:
    made = layer(form)
    longest_HL = made.kernel(300, ctx)
    for channel in range(3):
        Abar, x, C = dense(made, channel)
        expected = []
        for _ in range(300):
            expected.append(C @ x)
            x = Abar @ x
        assert np.abs(np.imag(expected)).max() < 1e-12
        close(longest_HL[channel], torch.tensor(np.real(expected)), 1e-12)
    for length in LENGTHS:
        assert made.kernel(length, ctx).shape == (3, length)
        close(made.kernel(length, ctx), longest_HL[:, :length], 1e-13)


@pytest.mark.parametrize("ctx", WAYS, ids=lambda ctx: ctx.backend)
@pytest.mark.parametrize("length", [1, 2, 17, 64, 257])
def test_the_kernel_is_the_published_one_of_cauchy_sums_at_the_roots_of_unity(length: int, ctx: Context) -> None:
    made = layer("dplr")
    for channel in range(3):
        Abar, _, C = dense(made, channel)
        truncated = C @ (np.eye(8) - np.linalg.matrix_power(Abar, length))
        values = {name: value.detach()[channel].numpy() for name, value in made.named_parameters() if value.ndim > 1}
        a = -np.exp(values["log_decay_HM"]) + 1j * values["frequency_HM"]
        a = np.concatenate([a, a.conj()])
        P, B = (
            (h := v[:, 0] + 1j * v[:, 1], np.concatenate([h, h.conj()]))[1] for v in (values["P_HM2"], values["B_HM2"])
        )
        dt = np.exp(made.log_dt_H[channel].item())
        z = np.exp(-2j * np.pi * (np.arange(length) + 1e-9) / length)  # beside z = -1, where the formula has a pole
        g = 2 / dt * (1 - z) / (1 + z)

        def cauchy(v: np.ndarray, w: np.ndarray, g: np.ndarray = g, a: np.ndarray = a) -> np.ndarray:
            return (v * w / (g[:, None] - a)).sum(-1)

        low_rank = cauchy(truncated, P) * cauchy(P.conj(), B) / (1 + cauchy(P.conj(), P))
        spectrum = 2 / (1 + z) * (cauchy(truncated, B) - low_rank)
        close(made.kernel(length, ctx)[channel], torch.tensor(np.fft.ifft(spectrum).real), 1e-6)


@pytest.mark.parametrize("ctx", WAYS, ids=lambda ctx: ctx.backend)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("form", FORMS)
def test_forward_and_its_gradients_are_those_of_the_dense_recurrence(form: str, length: int, ctx: Context) -> None:
    made = layer(form)
    x_BLD = torch.randn(2, length, 3, dtype=torch.float64, requires_grad=True)
    y_BLD = made(x_BLD, ctx)

    systems = [dense(made, channel) for channel in range(3)]
    Abar, Bbar, C = (torch.tensor(np.stack(parts)) for parts in zip(*systems, strict=True))
    state, outputs = torch.zeros(2, 3, 8, dtype=torch.complex128), []
    for u_BH in x_BLD.unbind(1):
        state = torch.einsum("hnm,bhm->bhn", Abar, state) + Bbar * u_BH[..., None]
        y_BH = torch.nn.functional.gelu((C * state).sum(-1).real + made.D_H * u_BH)
        outputs.append((y_BH @ made.out.weight.T + made.out.bias) * torch.sigmoid(made.gate(y_BH)))
    expected_BLD = torch.stack(outputs, 1)
    close(y_BLD, expected_BLD, 1e-11)
    weights_BLD = torch.randn_like(y_BLD)
    found, expected = (torch.autograd.grad((y * weights_BLD).sum(), x_BLD)[0] for y in (y_BLD, expected_BLD))
    close(found, expected, 1e-10)

    parameters = list(made.parameters())
    found = torch.autograd.grad((made(x_BLD, ctx) * weights_BLD).sum(), parameters)
    state = made.init_state(2, max_length=length, device=torch.device("cpu"), dtype=torch.float64)
    first_BLD, state = made.extend(x_BLD[:, : length // 2], state, ctx) if length > 1 else (x_BLD[:, :0], state)
    second_BLD, state = made.extend(x_BLD[:, length // 2 :], state, ctx)
    stepped_BLD = torch.cat([first_BLD, second_BLD], 1)
    close(stepped_BLD, y_BLD, 1e-11)
    for one, other in zip(found, torch.autograd.grad((stepped_BLD * weights_BLD).sum(), parameters), strict=True):
        close(one, other, 1e-9)


@pytest.mark.parametrize("order", [2, 8, 64])
def test_the_start_of_dplr_is_hippo_legs(order: int) -> None:
    A, B, P = (x.numpy() for x in legs(order))
    assert A[0, 0] == -1 and A[1, 1] == -2 and A[0, 1] == 0 and A[1, 0] == pytest.approx(-(3**0.5))
    a, P_half = (x.numpy() for x in legs_modes(order))
    assert len(a) == order // 2 and (a.imag > 0).all() and (np.diff(a.imag) < 0).all() and (P_half > 0).all()
    a, P_modes = np.concatenate([a, a.conj()]), np.concatenate([P_half, P_half])
    modes = np.diag(a) - np.outer(P_modes, P_modes)

    # The same function of time whatever the basis: B^T exp(A t) B, here by the resolvent.
    for s in (0.1, 1.0, 3.0j, 40.0j):
        one = np.eye(order)
        expected = B @ np.linalg.solve(s * one - A, B)
        found = 2 * P_modes @ np.linalg.solve(s * one - modes, P_modes)
        assert found == pytest.approx(expected, rel=1e-8)
    assert np.abs(A + np.outer(P, P) + (A + np.outer(P, P)).T + np.eye(order)).max() < 1e-10


def test_the_starts_of_the_diagonal_forms_and_of_the_rest() -> None:
    lin, diagonal, dplr = (layer(form, d_model=256, d_state=64, trained=False) for form in ("lin", "legs", "dplr"))
    a_M, P_M = legs_modes(64)
    for made in (lin, diagonal, dplr):
        close(-made.log_decay_HM.exp(), torch.full((256, 32), -0.5).double(), 1e-6)
        assert made.C_HM2.std().item() == pytest.approx(0.5**0.5, rel=0.05)
        assert made.D_H.std().item() == pytest.approx(1, rel=0.2)
        log10 = made.log_dt_H.detach() / np.log(10)
        assert (
            -3 <= log10.min() < -2.9 and -1.1 < log10.max() <= -1 and log10.mean().item() == pytest.approx(-2, abs=0.1)
        )
    for made in (diagonal, dplr):
        close(made.frequency_HM, a_M.imag.expand(256, 32), 1e-6)
    close(lin.frequency_HM, (torch.pi * torch.arange(32).double()).expand(256, 32), 1e-6)
    for made in (lin, diagonal):
        close(made.B_HM2, torch.tensor([1.0, 0.0]).double().expand(256, 32, 2), 0)
        assert made.P_HM2 is None
    close(dplr.P_HM2, torch.stack([P_M, 0 * P_M], -1).expand(256, 32, 2), 1e-6)
    close(dplr.B_HM2, 2**0.5 * dplr.P_HM2, 1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_a_b_and_dt_learn_slowly_and_without_decay(form: str) -> None:
    model = S4Config(d_model=8, d_state=4, **FORMS[form]).build(5)
    names = {id(parameter): name.rpartition(".")[2] for name, parameter in model.named_parameters()}
    rates = {
        names[id(p)]: (decays, rate) for p, decays, rate in declared(model) if names[id(p)].endswith(("H", "HM", "HM2"))
    }
    slow = {"log_decay_HM", "frequency_HM", "B_HM2", "log_dt_H"} | ({"P_HM2"} if form == "dplr" else set())
    assert rates == {**dict.fromkeys(slow, (False, 0.1)), "C_HM2": (True, 1.0), "D_H": (False, 1.0)}


@pytest.mark.parametrize("form", FORMS)
def test_no_system_grows_whatever_is_learnt(form: str) -> None:
    made = layer(form, d_model=16)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(3 * torch.randn_like(parameter))
    for channel in range(16):
        Abar, _, _ = dense(made, channel)
        assert np.linalg.norm(Abar, 2) <= 1 + 1e-12


@pytest.mark.parametrize("scale", [0.0, 1e4])
@pytest.mark.parametrize("form", FORMS)
def test_extreme_inputs_and_time_steps_stay_finite(form: str, scale: float) -> None:
    made = layer(form, d_model=4, trained=False, dt_min=1e-6, dt_max=1e3).float()
    x_BLD = (scale * torch.randn(2, 130, 4)).requires_grad_()
    y_BLD = made(x_BLD, Context())
    assert bool(torch.isfinite(y_BLD).all())
    for gradient in torch.autograd.grad(y_BLD.sum(), (x_BLD, *made.parameters())):
        assert bool(torch.isfinite(gradient).all())


@pytest.mark.parametrize("form", FORMS)
def test_single_precision_and_autocast_are_near_double(form: str) -> None:
    made, x_BLD = layer(form, d_model=16, d_state=64, trained=False), torch.randn(2, 257, 16)
    expected_BLD, expected_HL = made(x_BLD.double(), Context()).float(), made.kernel(4096, Context()).float()
    made = made.float()
    close(made.kernel(4096, Context()), expected_HL, 1e-4)
    close(made(x_BLD, Context()), expected_BLD, 1e-4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        close(made(x_BLD, Context()).float(), expected_BLD, 0.1)


def test_at_the_start_outputs_are_of_the_order_of_inputs() -> None:
    for form in FORMS:
        made = layer(form, d_model=128, d_state=64, trained=False)
        energy_H = made.kernel(256, Context()).square().sum(1) + made.D_H.square()
        assert 0.5 < energy_H.mean().sqrt() < 3


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"d_state": 7}, "d_state"),
        ({"d_state": 0}, "d_state"),
        ({"init": "lin"}, "init"),
        ({"dt_min": 0.0}, "dt_min"),
        ({"dt_min": 0.2}, "dt_min"),
        ({"dt_max": float("inf")}, "dt_max"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=f"^s4: .*{field}"):
        S4Config(**settings)
