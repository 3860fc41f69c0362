"""xLSTM: blocks with an exponentially gated matrix memory (mLSTM) or scalar memories that mix (sLSTM), in a ratio a:b.

    mLSTM:  u, z = W_up norm(x)        c = silu(conv(u))        q, k, v = W_q c, W_k c, W_v u
            x = x + W_down ((norm(h) + skip * c) * silu(z))
    sLSTM:  x = x + norm(h)        x = x + W_3 (gelu(W_1 norm(x)) * W_2 norm(x))

Beck et al. 2024 (2405.04517). models/operations has h from q, k, v (mlstm) and from norm(x) (slstm).
Layers, widths (inner ones are rounded up to a multiple of 64), eps and initial values are those of the authors'
package, xlstm 2.0.6: W_q, W_k and W_v are block-diagonal in blocks of 4, the sLSTM's matrices in heads, and the norm of
h is over each head's channels. The package's LayerNorms before the layers have no bias; torch's here have one, starting
at 0.

Two defaults of the sLSTM are not the package's, which has a convolution of 4 before i and f (optional in the paper) and
R = 0 at the start. Here there is no convolution, and R is uniform, the package's other choice. So a stack of sLSTM
blocks sees neighbouring tokens through its state alone and mixes memories from the first step. `--model.conv causal4
--model.recurrent_init zeros` is the package's.

Of every a + b blocks the first a are mLSTM: the authors' parity experiment for [1:1] has its sLSTM at 1 of 0 and 1.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from torch import Tensor, nn

from chomsky_ladder.models.base import ModelConfig, register
from chomsky_ladder.models.block import Block, Context, Norm, State, require
from chomsky_ladder.models.layers.convolution import ShortConvolution
from chomsky_ladder.models.layers.gate import gated
from chomsky_ladder.models.layers.residual import Layer, Residual
from chomsky_ladder.models.operations.mlstm import by_exponential_gates, largest_part
from chomsky_ladder.models.operations.mlstm.projections import RowWeights
from chomsky_ladder.models.operations.mlstm.reference import by_blocks, mlstm_start, mlstm_step
from chomsky_ladder.models.operations.mlstm.rows import BLOCK
from chomsky_ladder.models.operations.slstm import slstm_scan
from chomsky_ladder.models.operations.slstm.reference import Carried, Read, Weights, slstm_start, slstm_step


class HeadNorm(nn.Module):
    """A LayerNorm over each head's channels, with a weight and no bias."""

    def __init__(self, width: int, num_heads: int, *, eps: float = 1e-5) -> None:
        super().__init__()
        self.num_heads, self.eps = num_heads, eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        heads = x.unflatten(-1, (self.num_heads, -1))
        return nn.functional.layer_norm(heads, heads.shape[-1:], eps=self.eps).flatten(-2) * self.weight


class BlockDiagonal(nn.Module):
    def __init__(self, width: int, *, std: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width // BLOCK, BLOCK, BLOCK) * std)

    def forward(self, x: Tensor) -> Tensor:
        return by_blocks(x, self.weight)


class MLSTM(Layer):
    def __init__(self, config: "XLSTMConfig") -> None:
        super().__init__()
        width, inner, self.num_heads = config.d_model, config.mlstm_width, config.num_heads
        self.up = nn.Linear(width, 2 * inner, bias=False)
        self.conv = ShortConvolution(inner, width=config.conv_width, silu=True)
        self.query, self.key, self.value = (BlockDiagonal(inner, std=config.small) for _ in "qkv")
        self.gates = nn.Linear(3 * inner, 2 * self.num_heads)
        self.norm = HeadNorm(inner, self.num_heads)
        self.skip = nn.Parameter(torch.ones(inner))
        self.down = nn.Linear(inner, width, bias=False)
        nn.init.normal_(self.up.weight, std=config.small)
        nn.init.zeros_(self.gates.weight)
        with torch.no_grad():
            self.gates.bias[: self.num_heads].normal_(std=0.1)
            self.gates.bias[self.num_heads :] = torch.linspace(3, 6, self.num_heads)
        nn.init.normal_(self.down.weight, std=config.into_stream)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        # The parts differ in what is left to the layer: its projections, maps, gates and norm, or the memory's chunks.
        part = largest_part(
            x_BLD,
            ctx,
            has_whole_blocks=self.skip.shape[0] // self.num_heads % BLOCK == 0,
            in_one_precision=x_BLD.dtype == self.skip.dtype,
        )
        if part.rows:
            with torch.autocast(x_BLD.device.type, enabled=False):
                weights = self._row_weights()
            return part.rows(x_BLD, weights, heads=self.num_heads)
        if part.heads or part.memory:
            u_BLE, z_BLE = self.up(x_BLD).chunk(2, dim=-1)
            c_BLE = self.conv(u_BLE, ctx)
            if part.heads:
                c_BLE = c_BLE.to(u_BLE.dtype)
                maps = self.query.weight, self.key.weight, self.value.weight
                h_BLE = part.heads(c_BLE, u_BLE, *maps, *self._gates_of(u_BLE, c_BLE))
                return self._out(h_BLE, c_BLE, z_BLE)
            assert part.memory
            read = self._read(u_BLE, c_BLE)
            with torch.autocast(x_BLD.device.type, enabled=False):
                h_BHLV = part.memory(*read)
            return self._out(rearrange(h_BHLV, "b h l v -> b l (h v)"), c_BLE, z_BLE)
        state = self.init_state(x_BLD.shape[0], max_length=x_BLD.shape[1], device=x_BLD.device, dtype=x_BLD.dtype)
        return self.extend(x_BLD, state, ctx)[0]

    def _row_weights(self) -> RowWeights:
        head_dim = self.skip.shape[0] // self.num_heads
        query, key, value = (module.weight for module in (self.query, self.key, self.value))
        of_q, of_k, of_v = (
            torch.einsum("gni,nij->gnj", part.unflatten(-1, (-1, BLOCK)), weight).flatten(-2)
            for part, weight in zip(self.gates.weight.chunk(3, dim=-1), (query, key, value), strict=True)
        )
        return RowWeights(
            up_XD=self.up.weight,
            conv_WE=self.conv.weight.mT.contiguous(),
            conv_bias_E=self.conv.bias,  # pyright: ignore[reportArgumentType]
            query_key_IE=(query.mT @ key * head_dim**-0.5).transpose(0, 1).flatten(1),
            value_IE=value.permute(2, 0, 1).flatten(1),
            gates_c_GE=of_q + of_k,
            gates_u_GE=of_v,
            gates_bias_G=self.gates.bias,
            norm_E=self.norm.weight,
            skip_E=self.skip,
            down_DE=self.down.weight,
        )

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        head_dim = self.skip.shape[0] // self.num_heads
        held = torch.promote_types(dtype, torch.float32)
        memory = mlstm_start(batch, self.num_heads, head_dim, head_dim, device=device, dtype=held)
        return self.conv.init_state(batch, device=device, dtype=dtype), *memory

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        u_BE, z_BE = self.up(x_BD).chunk(2, dim=-1)
        c_BE, past_BWE = self.conv.step(u_BE, state[0])
        read = self._read(u_BE, c_BE)
        with torch.autocast(x_BD.device.type, enabled=False):
            h_BHV, memory = mlstm_step(*read, state=state[1:])
        return self._out(h_BHV.flatten(1), c_BE, z_BE), (past_BWE, *memory)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        u_BLE, z_BLE = self.up(x_BLD).chunk(2, dim=-1)
        c_BLE, past_BWE = self.conv.extend(u_BLE, state[0])
        read = self._read(u_BLE, c_BLE)
        with torch.autocast(x_BLD.device.type, enabled=False):
            h_BHLV, memory = by_exponential_gates(*read, state=state[1:], ctx=ctx)
        return self._out(rearrange(h_BHLV, "b h l v -> b l (h v)"), c_BLE, z_BLE), (past_BWE, *memory)

    def _read(self, u: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        """Return q, k and v [B, H, (L,) K] and the gates i and f [B, H, (L)], in at least fp32."""
        qkv = self.query(c), self.key(c), self.value(u)
        heads = [x.unflatten(-1, (self.num_heads, -1)).movedim(-2, 1) for x in qkv]
        gates = [x.movedim(-1, 1) for x in self.gates(torch.cat(qkv, -1)).chunk(2, dim=-1)]
        q, k, v, i, f = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (*heads, *gates))
        return q, k * k.shape[-1] ** -0.5, v, i, f

    def _gates_of(self, u_BLE: Tensor, c_BLE: Tensor) -> Sequence[Tensor]:
        """Return i and f [B, L, H] in fp32 directly from c and u. Successive maps are merged into one."""
        maps_PNIJ = torch.stack([self.query.weight, self.key.weight, self.value.weight])
        made_GPNJ = (self.gates.weight.unflatten(-1, (3, -1, BLOCK, 1)) * maps_PNIJ).sum(-2)
        of_q, of_k, of_v = made_GPNJ.flatten(2).unbind(1)
        of_both = nn.functional.linear(c_BLE, of_q + of_k).float() + nn.functional.linear(u_BLE, of_v).float()
        return (of_both + self.gates.bias).chunk(2, dim=-1)

    def _out(self, h: Tensor, c: Tensor, z: Tensor) -> Tensor:
        return self.down((self.norm(h) + self.skip * c) * nn.functional.silu(z))


class SLSTM(Layer):
    """The sLSTM layer. Its heads' norm writes into the stream directly, without a projection."""

    heeds_asked = True

    no_decay = frozenset({"recurrent_HGK"})  # as in the authors' code, where only parameters named "weight" decay

    def __init__(self, config: "XLSTMConfig", layer: int) -> None:
        super().__init__()
        width, self.num_heads = config.d_model, config.num_heads
        inner = width // self.num_heads
        self.conv = ShortConvolution(width) if config.conv == "causal4" else None
        self.weight_HGK = nn.Parameter(torch.randn(self.num_heads, 4 * inner, inner) * config.small)
        bound = width**-0.5 if config.recurrent_init == "standard" else 0.0
        self.recurrent_HGK = nn.Parameter(torch.empty(self.num_heads, 4 * inner, inner).uniform_(-bound, bound))
        # In a head the forget gate's bias falls from 5 to -7 along a power of the channel. The power rises from 0.3 in
        # the first block to 1.6 in the last: the deeper the block, the more channels remember long.
        depth = layer / max(1, config.num_blocks - 1)
        forget_K = 5 - 12 * (torch.arange(inner) / (inner - 1)) ** (0.3 + 1.3 * depth)
        zero_K = torch.zeros(inner)
        self.bias = nn.Parameter(torch.cat([zero_K, forget_K, zero_K, zero_K]).repeat(self.num_heads))
        self.norm = HeadNorm(width, self.num_heads)

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        state = self.init_state(x_BLD.shape[0], max_length=x_BLD.shape[1], device=x_BLD.device, dtype=x_BLD.dtype)
        c_BLD = None if self.conv is None else self.conv(x_BLD, ctx)
        return self._scan(x_BLD, c_BLD, state[1:], ctx)[0]

    def init_state(self, batch: int, *, max_length: int, device: torch.device, dtype: torch.dtype) -> State:
        held = torch.promote_types(dtype, torch.float32)
        inner = self.recurrent_HGK.shape[-1]
        memory = slstm_start(batch, self.num_heads, inner, device=device, dtype=held)
        past = None if self.conv is None else self.conv.init_state(batch, device=device, dtype=dtype)
        return past, *memory

    def step(self, x_BD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        past_BWD, memory = state[0], state[1:]
        c_BD = None
        if self.conv is not None:
            c_BD, past_BWD = self.conv.step(x_BD, past_BWD)
        read = self._read(x_BD, c_BD)
        with torch.autocast(x_BD.device.type, enabled=False):
            memory = slstm_step(read, memory, self._weights(read[0].dtype))
        return self.norm(memory[0].flatten(1)), (past_BWD, *memory)

    def extend(self, x_BLD: Tensor, state: State, ctx: Context) -> tuple[Tensor, State]:
        past_BWD, memory = state[0], state[1:]
        c_BLD = None
        if self.conv is not None:
            c_BLD, past_BWD = self.conv.extend(x_BLD, past_BWD)
        y_BLD, memory = self._scan(x_BLD, c_BLD, memory, ctx)
        return y_BLD, (past_BWD, *memory)

    def _scan(self, x_BLD: Tensor, c_BLD: Tensor | None, memory: Carried, ctx: Context) -> tuple[Tensor, Carried]:
        read = self._read(x_BLD, c_BLD)
        with torch.autocast(x_BLD.device.type, enabled=False):
            h_BLHK, memory = slstm_scan(ctx, read, memory, self._weights(read[0].dtype))
        return self.norm(ctx.wanted(h_BLHK).flatten(2)), memory

    def _read(self, x: Tensor, c: Tensor | None) -> Read:
        """Return by heads the layer's input and, for i and f, the output of the convolution if there is one."""
        dtype = torch.promote_types(torch.promote_types(x.dtype, torch.float32), self.bias.dtype)
        parts = [x] if c is None else [nn.functional.silu(c), x]
        return tuple(part.unflatten(-1, (self.num_heads, -1)).to(dtype) for part in parts)

    def _weights(self, dtype: torch.dtype) -> Weights:
        bias_HG = self.bias.unflatten(0, (self.num_heads, -1))
        return self.weight_HGK.to(dtype), self.recurrent_HGK.to(dtype), bias_HG.to(dtype)


class GatedGELU(Layer):
    """A gated GELU with two products. One product has strided halves and takes 25 ms for 20 ([256, 40, 64])."""

    each_alone = True

    def __init__(self, config: "XLSTMConfig") -> None:
        super().__init__()
        width, inner = config.d_model, config.slstm_width
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in "gu")
        self.out = nn.Linear(inner, width, bias=False)
        for projection in (self.gate, self.up):
            nn.init.normal_(projection.weight, std=config.small)
        nn.init.normal_(self.out.weight, std=config.into_stream)

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        return self.out(gated(self.gate(x), self.up(x), "gelu", ctx=ctx))


@register
@dataclass(frozen=True, kw_only=True)
class XLSTMConfig(ModelConfig):
    name, family, year, paper = "xlstm", "recurrent", 2024, "2405.04517"
    title = "xLSTM[{ratio}]"

    final_norm: Norm = "layer"
    """The norm between the last block and the head."""
    num_heads: int = 4
    """Heads of both kinds of block; they divide the width evenly."""
    ratio: str = "1:1"
    """a:b: of every a + b blocks the first a are mLSTM, the other b sLSTM. The last group may be cut short, but both
    kinds must occur, except in a model of one block, which is of the first kind.
    """
    conv: Literal["none", "causal4"] = "none"
    """The input of the sLSTM's input and forget gates: the block's input, or a causal convolution of 4 over it."""
    conv_width: int = 4
    """Width of the mLSTM's convolution, in tokens; 1 for only a factor on each channel."""
    recurrent_init: Literal["standard", "zeros"] = "standard"
    """The sLSTM's recurrent matrices at the start: uniform in +-1/sqrt(d_model), or 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        form = re.fullmatch(r"(\d+):(\d+)", self.ratio)
        require(
            form is not None and form[1] + form[2] != "00" and any(self.counts),
            f"{self.name}: ratio is a:b, mLSTM to sLSTM blocks, like 7:1; not {self.ratio!r}",
        )
        needed = min(self.counts[0] + 1, sum(self.counts)) if self.counts[0] else 1
        require(
            self.num_blocks in (1, *range(needed, self.num_blocks + 1)),
            f"{self.name}: with ratio {self.ratio} the first sLSTM is block {needed}; num_blocks={self.num_blocks}",
        )
        require(self.conv_width >= 1, f"{self.name}: conv_width must be at least 1, not {self.conv_width}")
        idle = self.conv_width != 4 and not self.counts[0]
        require(not idle, f"{self.name}: conv_width is the mLSTM's, of which ratio={self.ratio} has none")
        heads = self.num_heads
        require(
            heads >= 1 and self.d_model % heads == 0 and self.d_model > heads,
            f"{self.name}: d_model={self.d_model} does not split into {heads} heads of 2 channels or more",
        )
        require(
            self.counts[0] == 0 or self.mlstm_width % heads == 0,
            f"{self.name}: the {self.mlstm_width} channels of mLSTM do not split into {heads} heads; those of sLSTM do",
        )

    @property
    def counts(self) -> tuple[int, int]:
        """Return the numbers of mLSTM and of sLSTM blocks in a group."""
        mlstm, slstm = map(int, self.ratio.split(":"))
        return mlstm, slstm

    @property
    def transition(self) -> str:
        mlstm, slstm = self.counts
        kinds = {"diagonal": mlstm, "slstm": slstm and (not mlstm or self.num_blocks > 1)}
        return " + ".join(kind for kind, there in kinds.items() if there)

    @property
    def mlstm_width(self) -> int:
        """Return twice the model's width."""
        return -(-2 * self.d_model // 64) * 64

    @property
    def slstm_width(self) -> int:
        """Return 4/3 of the model's width, for inside the feed-forward."""
        return -(-4 * self.d_model // (3 * 64)) * 64

    @property
    def small(self) -> float:
        """Return the standard deviation of weights that read the stream (Nguyen and Salazar 2019, 1910.05895)."""
        return (2 / (5 * self.d_model)) ** 0.5

    @property
    def into_stream(self) -> float:
        """Return the standard deviation of weights that write into it (Wang and Komatsuzaki's, as in GPT-NeoX)."""
        return 2 / self.num_blocks / self.d_model**0.5

    def is_slstm(self, layer: int) -> bool:
        return layer % sum(self.counts) >= self.counts[0]

    def block(self, layer: int) -> Block:
        layers = [SLSTM(self, layer), GatedGELU(self)] if self.is_slstm(layer) else [MLSTM(self)]
        return Residual(self.d_model, layers, norm="layer", dropout=self.dropout)
