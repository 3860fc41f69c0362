"""D-LinOSS: oscillators with learnt damping, driven by the input and the same at every token.

    z_t = z_{t-1} + dt (-A p_{t-1} - G z_t + B u_t)        p_t = p_{t-1} + dt z_t        v = Re(C p) + D u
    x = x + (W gelu(v) + b) * sigmoid(W' gelu(v) + b')        u = RMSNorm(x)

Boyer et al. 2025 (2505.12171), after LinOSS (Rusch and Rus 2024), with the layer of the authors' code. It has `d_state`
oscillators of speed z and place p, complex because B and C are, and diagonal A, G >= 0 and dt = sigmoid(.). An update
of (z, p) has eigenvalues of size 1 / sqrt(1 + dt G), once A is clamped to where they are complex,

    A between (2 + dt G - 2 sqrt(1 + dt G)) / dt^2 and (2 + dt G + 2 sqrt(1 + dt G)) / dt^2

A and G start uniform in 0 .. 1 and dt's argument normal with deviation 1/2, of those draws where A lies there. B is
uniform in +-1/sqrt(D), C in +-1/sqrt(P), D normal. Theirs has a BatchNorm, which looks at other strings and at the
future; here the norm is RMSNorm. The recurrence is that of models/operations/block_steps, in blocks of two numbers.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, State, require
from chomsky_ladder.models.layers.linear import of_one
from chomsky_ladder.models.layers.residual import OneForm, Residual, scale_down
from chomsky_ladder.models.operations.block_steps import block_steps

TRIES = 32  # draws for each oscillator's A, G and dt


class Oscillators(OneForm):
    """The layer. Its state is (z, p) of the real parts, then of the imaginary ones: [B, 2 P, 2], in fp32 at least."""

    heeds_asked = True

    def __init__(self, width: int, oscillators: int) -> None:
        super().__init__()
        self.stiffness_P, self.damping_P, self.step_P = map(nn.Parameter, initial_oscillators(oscillators))
        self.drive = nn.Linear(width, 2 * oscillators, bias=False)  # B, real parts first
        self.read = nn.Linear(2 * oscillators, width, bias=False)  # Re C, then -Im C
        nn.init.uniform_(self.read.weight, -(oscillators**-0.5), oscillators**-0.5)
        self.past_D = nn.Parameter(torch.randn(width))
        self.gate, self.out = (nn.Linear(width, width) for _ in "go")

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        held = torch.promote_types(dtype, torch.float32)
        return torch.zeros(batch, self.drive.out_features, 2, device=device, dtype=held)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        transition_P22, enters_P2 = self.discrete(state.dtype)
        change_P22 = transition_P22 - torch.eye(2, device=x_BLD.device, dtype=state.dtype)
        change_BLX = change_P22.repeat(2, 1, 1).flatten().expand(*x_BLD.shape[:2], -1)
        drive_BLQ1 = self.drive(x_BLD).to(state.dtype)[..., None]
        h_BLX, state = block_steps(ctx, change_BLX, (drive_BLQ1 * enters_P2.repeat(2, 1)).flatten(2), state, steps=1)
        places_BLQ = ctx.wanted(h_BLX.unflatten(-1, (-1, 2))[..., 1]).to(self.read.weight.dtype)
        y_BLD = nn.functional.gelu(self.read(places_BLQ) + self.past_D * ctx.wanted(x_BLD))
        out_BLD, gate_BLD = of_one([self.out, self.gate], y_BLD)
        return out_BLD * torch.sigmoid(gate_BLD), state

    def discrete(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return the matrices of (z, p), and what a drive of 1 adds to them."""
        dt_P, G_P = torch.sigmoid(self.step_P.to(dtype)), torch.relu(self.damping_P.to(dtype))
        A_P = torch.minimum(torch.maximum(self.stiffness_P.to(dtype), lowest(dt_P, G_P)), highest(dt_P, G_P))
        less_P = 1 / (1 + dt_P * G_P)
        rows = [less_P, -dt_P * A_P * less_P, dt_P * less_P, 1 - dt_P.square() * A_P * less_P]
        return torch.stack(rows, -1).unflatten(-1, (2, 2)), torch.stack([dt_P * less_P, dt_P.square() * less_P], -1)


def lowest(dt_P: Tensor, G_P: Tensor) -> Tensor:
    """Return the least A at which an oscillator turns: (sqrt(1 + dt G) - 1)^2 / dt^2, without a difference."""
    return (G_P / (1 + torch.sqrt(1 + dt_P * G_P))).square()


def highest(dt_P: Tensor, G_P: Tensor) -> Tensor:
    return ((1 + torch.sqrt(1 + dt_P * G_P)) / dt_P.clamp_min(1e-3)).square()


def initial_oscillators(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return A, G and dt's argument: for each oscillator the first draw that turns."""
    A_TP, G_TP = torch.rand(2, TRIES, count, dtype=torch.float64)
    step_TP = 0.5 * torch.randn(TRIES, count, dtype=torch.float64)
    dt_TP = torch.sigmoid(step_TP)
    turns_TP = (lowest(dt_TP, G_TP) < A_TP) & (highest(dt_TP, G_TP) > A_TP)
    first_1P = turns_TP.int().argmax(0, keepdim=True)
    A_P, G_P, step_P = (x_TP.gather(0, first_1P)[0].float() for x_TP in (A_TP, G_TP, step_TP))
    return A_P, G_P, step_P


@register
@dataclass(frozen=True, kw_only=True)
class DLinOSSConfig(ModelConfig):
    name, family, year, paper = "d_linoss", "state space", 2025, "2505.12171"
    title = "D-LinOSS"
    transition = "fixed linear"

    d_state: int = 0
    """Oscillators of a layer; 0 for as many as channels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.d_state >= 0, f"{self.name}: d_state must not be negative")

    def block(self, layer: int) -> Block:
        mixer = Oscillators(self.d_model, self.d_state or self.d_model)
        scale_down(mixer.out, self.num_blocks)
        return Residual(self.d_model, [mixer], dropout=self.dropout)
