"""ParaRNN's cells against torch's GRU and a loop over numbers, its state, and the parallel solution it is made for."""

import pytest
import torch
from torch import Tensor, nn

from chomsky_ladder.models.block import Context
from chomsky_ladder.models.operations.diagonal import diagonal_scan
from chomsky_ladder.models.para_rnn import Cell, DiagonalCell, ParaRNNConfig, gru_step
from support.attentions import WIDTH, hold_parts_to_the_whole, hold_to_the_loop, stays_finite
from support.layers import close, gradients, lively

torch.set_num_threads(1)


def by_hand(layer: DiagonalCell, x_LD: Tensor) -> Tensor:
    """The LSTM as its equations stand."""
    a_f, a_c, a_o, p_f, p_o = layer.recurrent_ND
    h, c, rows = torch.zeros_like(x_LD[0]), torch.zeros_like(x_LD[0]), []
    for x in x_LD:
        u_f, u_c, u_o = (layer.read.weight @ x + layer.read.bias).chunk(3)
        f = 1 / (1 + torch.exp(-(a_f * h + p_f * c + u_f)))
        c = f * c + (1 - f) * torch.tanh(a_c * h + u_c)
        h = torch.tanh(c) / (1 + torch.exp(-(a_o * h + p_o * c + u_o)))
        rows.append(layer.out.weight @ h)
    return torch.stack(rows)


@pytest.mark.parametrize("length", [1, 17])
def test_the_lstm_is_its_equations(length: int) -> None:
    hold_to_the_loop(lively(DiagonalCell(WIDTH, "lstm")), by_hand, length, tolerance=1e-11)


def test_the_gru_is_torchs_with_diagonal_matrices() -> None:
    """Torch's gate z is the share that stays, and its reset stands after the matrix, which a diagonal one admits."""
    layer, theirs = lively(DiagonalCell(WIDTH, "gru")), nn.GRU(WIDTH, WIDTH, batch_first=True).double()
    (u_z, u_r, u_c), (b_z, b_r, b_c) = layer.read.weight.chunk(3), layer.read.bias.chunk(3)
    a_z, a_r, a_c = (torch.diag(a_D) for a_D in layer.recurrent_ND)
    weights = {
        "weight_ih_l0": torch.cat([u_r, -u_z, u_c]),
        "weight_hh_l0": torch.cat([a_r, -a_z, a_c]),
        "bias_ih_l0": torch.cat([b_r, -b_z, b_c]),
        "bias_hh_l0": torch.zeros(3 * WIDTH, dtype=torch.float64),
    }
    x_BLD = torch.randn(2, 17, WIDTH, dtype=torch.float64, requires_grad=True)
    expected_BLD = layer.out(torch.func.functional_call(theirs, weights, (x_BLD,))[0])
    found_BLD, inputs = layer(x_BLD, Context()), [x_BLD, *layer.parameters()]
    close(found_BLD, expected_BLD)
    for one, other in zip(gradients(found_BLD, inputs), gradients(expected_BLD, inputs), strict=True):
        close(one, other, 1e-10)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_parts_equal_the_whole(cell: Cell) -> None:
    hold_parts_to_the_whole(lively(DiagonalCell(WIDTH, cell)), 20, [[19], [3, 1, 10], [1] * 19])


def test_newtons_method_with_a_diagonal_scan_arrives_at_the_loops_states() -> None:
    layer, length = lively(DiagonalCell(WIDTH, "gru")).requires_grad_(requires_grad=False), 40
    gates_BL3D = layer.read(torch.randn(3, length, WIDTH, dtype=torch.float64)).unflatten(-1, (3, WIDTH))
    recurrent_N1D, state = layer.recurrent_ND[:, None], torch.zeros(3, 1, WIDTH, dtype=torch.float64)
    start_BD, expected, errors = state[:, 0], [], []
    for gates_B3D in gates_BL3D.unbind(1):
        state = gru_step(gates_B3D, state, recurrent_N1D)
        expected.append(state)
    h_BLD = torch.zeros(3, length, WIDTH, dtype=torch.float64)
    for _ in range(12):
        before_XD = torch.cat([start_BD[:, None], h_BLD[:, :-1]], 1).flatten(0, 1).requires_grad_()
        next_XD = gru_step(gates_BL3D.flatten(0, 1), before_XD[:, None], recurrent_N1D)[:, 0]
        (slope_XD,) = torch.autograd.grad(next_XD.sum(), before_XD)
        rest_XD = (next_XD - slope_XD * before_XD).detach()
        h_BLD, _ = diagonal_scan(slope_XD.view_as(h_BLD), rest_XD.view_as(h_BLD), start_BD, Context())
        errors.append(float((h_BLD - torch.cat(expected, 1)).abs().max()))
    assert errors[0] > 1e-2 and errors[-1] < 1e-12


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_extreme_inputs_stay_finite(cell: Cell) -> None:
    stays_finite(DiagonalCell(WIDTH, cell), (1e-20, 1.0, 1e4, 1e8), 20)


def test_settings_are_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^para_rnn: d_inner must not be negative$"):
        ParaRNNConfig(d_inner=-1)
