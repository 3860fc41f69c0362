"""MesaNet: linear attention that reads its memory through the best linear map from past keys to their values.

    G_t = a_t G_{t-1} + b_t k_t v_t^T        H_t = a_t H_{t-1} + b_t k_t k_t^T        y_t = G_t^T (H_t + L)^-1 q_t
    a_t = sigmoid(w x_t + c)        b_t = sigmoid(w' x_t + c')        q, k = silu(conv(W x)), of length 1
    x = x + W_o RMSNorm(y)        x = x + SwiGLU(x)        each behind an RMSNorm

in each head, with v = W_v x and L a diagonal of softplus(l) + 1/4. Von Oswald et al. 2025 (2506.05233): a ridge
regression over a fading past, solved at every token, where the delta rules take one step of descent. As in their code L
starts at 1 and l does not decay. Everything else starts as torch.nn.Linear and Conv1d do, so that a and b start near
1/2.

The paper stops conjugate gradients after 30 steps for keys of 128 channels. Here the exact solution is read, unless
`steps` says otherwise (models/operations/mesa). L is not added there but divided out: with queries and keys divided by
its root, and H and G of such keys, 1 takes its place, and all eigenvalues are closer together.
"""

from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models._mixers import HeadsConfig
from chomsky_ladder.models.base import register
from chomsky_ladder.models.block import Context, State, require
from chomsky_ladder.models.gla import in_heads
from chomsky_ladder.models.layers.convolution import ShortConvolution
from chomsky_ladder.models.layers.residual import Layer, OneForm
from chomsky_ladder.models.operations.mesa import Held, mesa
from chomsky_ladder.models.operations.norm import normed
from chomsky_ladder.models.scans.delta import of_length_1

SMALLEST = 0.25  # of L
START = 1.0


class MesaLayer(OneForm):
    """The layer.

    Its state is the convolution's and H and G, with keys divided by the root of L, kept in fp32 at least.
    """

    heeds_asked = True

    no_decay = frozenset({"ridge"})

    def __init__(self, config: "MesaNetConfig") -> None:
        super().__init__()
        width, self.num_heads, self.steps = config.d_model, config.num_heads, config.steps
        self.query_key, self.value = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, width, bias=False)
        self.convolution = ShortConvolution(2 * width, width=config.conv_width, bias=False, silu=True)
        self.decay, self.write = nn.Linear(width, self.num_heads), nn.Linear(width, self.num_heads)
        start = torch.tensor(START - SMALLEST, dtype=torch.float64).expm1().log().item()
        self.ridge = nn.Parameter(torch.full((width,), start))
        self.norm = nn.RMSNorm(width // self.num_heads, eps=1e-5)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        _, held = self.init_state(x_BLD.shape[0], max_length=0, device=x_BLD.device, dtype=x_BLD.dtype)
        return self.read(x_BLD, self.convolution(self.query_key(x_BLD), ctx), held, ctx)[0]

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        dim, exact = self.out.in_features // self.num_heads, torch.promote_types(dtype, torch.float32)
        H_BHKK, G_BHKV = (torch.zeros(batch, self.num_heads, dim, dim, device=device, dtype=exact) for _ in "HG")
        return self.convolution.init_state(batch, device=device, dtype=dtype), (H_BHKK, G_BHKV)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        past_BWE, held = state
        mixed_BLE, past_BWE = self.convolution.extend(self.query_key(x_BLD), past_BWE)
        y_BLD, held = self.read(x_BLD, mixed_BLE, held, ctx)
        return y_BLD, (past_BWE, held)

    def read(self, x_BLD: Tensor, mixed_BLE: Tensor, held: Held, ctx: Context) -> tuple[Tensor, Held]:
        q_BHLK, k_BHLK = (in_heads(x, self.num_heads) for x in mixed_BLE.chunk(2, -1))
        beta_BHL = torch.sigmoid(in_heads(self.write(x_BLD), self.num_heads)[..., 0])
        log_decay_BHL = nn.functional.logsigmoid(in_heads(self.decay(x_BLD), self.num_heads)[..., 0])
        root_H1K = torch.rsqrt(nn.functional.softplus(self.ridge.to(q_BHLK.dtype)) + SMALLEST)
        root_H1K = root_H1K.view(self.num_heads, 1, -1)
        y_BHLV, held = mesa(
            ctx,
            root_H1K * of_length_1(q_BHLK),
            root_H1K * of_length_1(k_BHLK),
            in_heads(self.value(x_BLD), self.num_heads),
            beta_BHL,
            log_decay_BHL,
            held,
            steps=self.steps,
        )
        y_BHLV = normed(ctx.wanted(y_BHLV, along=2).to(self.norm.weight.dtype), self.norm, ctx)
        return self.out(rearrange(y_BHLV, "b h l v -> b l (h v)")), held


@register
@dataclass(frozen=True, kw_only=True)
class MesaNetConfig(HeadsConfig):
    name, family, year, paper = "mesa_net", "linear attention", 2025, "2506.05233"
    title = "MesaNet"
    transition = "diagonal"

    conv_width: int = 4
    """Width of the short convolutions of queries and keys, in tokens; 1 for only a factor on each channel."""
    steps: int = 0
    """Steps of conjugate gradients; as many as a head has channels are exact. 0 for the exact solution."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.conv_width >= 1, f"{self.name}: conv_width must be at least 1, not {self.conv_width}")
        require(self.steps >= 0, f"{self.name}: steps must not be negative")

    def mixer(self, layer: int) -> Layer:
        return MesaLayer(self)
