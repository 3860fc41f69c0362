"""Any architecture as an encoder: every answer must be read from its last vector of the prompt alone.

    h = the member's stream at the prompt's last position          z_j = h + sinusoid(j)       of answer j = 0, 1 ..
    y_j = gelu(W_2 N(gelu(W_1 N(z_j) + b_1)) + b_2)                 with decoder=residual   y_j = z_j + mlp(N(z_j))

MAD (Poli et al. 2024, 2403.17844) uses this for its task `compression`, with an MLP that does not widen, as in its
code. `--model.member kda` chooses the architecture whose blocks read the string. `--model.settings 'kda:
eigenvalues=signed'` changes its defaults. Width, dropout, blocks and, where the member has them, heads are those given
here. The member must be a stack of blocks. It may see the past or the whole prompt, whose end is the string's end for
it. The head's norm (RMS, as N) is the published one before the logits. There are three differences. The head has no
bias. Sinusoids are those of the other models. Weights start at torch.nn.Linear's default, in the paper with a deviation
of 0.02. The residual MLP, of four times the width, is not in the paper.

The member's blocks run over all positions, so that the model has the shape of any other. Nobody sees their output at
answer slots, nor the input there. If a task asks several times in a string, nothing after the first question is seen.
Inside the prompt, each position is slot 0 of its own: the first answer if it were read there.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import Tensor, nn

from chomsky_ladder.models import _member_settings as member_settings
from chomsky_ladder.models.base import MODELS, ModelConfig, register
from chomsky_ladder.models.block import Block, Context, require
from chomsky_ladder.models.layers.feed_forward import MLP
from chomsky_ladder.models.layers.positions import sinusoids
from chomsky_ladder.models.layers.prompt import in_prompt, last_of_prompt, slots
from chomsky_ladder.models.layers.residual import Residual
from chomsky_ladder.models.lstm import LSTMConfig

Decoder = Literal["plain", "residual"]


class Encoder(Block):
    """A block of the member. For it, strings end where the prompt ends."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.block = block

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        return self.block(x_BLD, replace(ctx, valid_BL=in_prompt(x_BLD, ctx)))


class ReadOut(Block):
    """Map the stream's last vector of the prompt to a vector for each answer."""

    def __init__(self, width: int, *, decoder: Decoder, dropout: float) -> None:
        super().__init__()
        self.decoder = (
            Residual(width, [MLP(width, 4 * width, activation="gelu")], dropout=dropout)
            if decoder == "residual"
            else Plain(width, dropout=dropout)
        )

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        last_B1D = last_of_prompt(x_BLD, ctx)[..., None].expand(-1, -1, x_BLD.shape[-1])
        read_BLD = x_BLD.where(in_prompt(x_BLD, ctx)[..., None], x_BLD.gather(1, last_B1D))
        return self.decoder(read_BLD + sinusoids(slots(x_BLD, ctx), x_BLD.shape[-1], dtype=x_BLD.dtype), ctx)


class Plain(Block):
    """Two layers, each after a norm, without a residual connection."""

    def __init__(self, width: int, *, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.norms: Any = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.layers: Any = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, x_BLD: Tensor, ctx: Context) -> Tensor:
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x_BLD = nn.functional.gelu(layer(norm(x_BLD.to(layer.weight.dtype))))
        return ctx.dropout(x_BLD, self.dropout)


@register
@dataclass(frozen=True, kw_only=True)
class AutoencoderConfig(ModelConfig):
    name, family, year, paper = "autoencoder", "hybrid", 2024, "2403.17844"
    names_others = True
    title = "Autoencoder[{member}]"
    transition = "one vector"
    sees, stepwise = "prompt_alone", False
    convolves = False

    num_blocks: int = 2
    """Blocks of the member."""
    num_heads: int = 4
    """Heads of a member that has heads."""
    member: str = LSTMConfig.name
    """Name of the architecture whose blocks read the string."""
    settings: str = ""
    """Settings of the member that differ from its defaults, as 'kda: eigenvalues=signed, expand_v=2'."""
    decoder: Decoder = "plain"
    """The function from a vector and a place to an answer: the published two layers, or a residual MLP."""

    def __post_init__(self) -> None:
        super().__post_init__()
        known = {cls.name: cls for cls in MODELS}
        there = ", ".join(sorted(name for name, cls in known.items() if not _why_not(cls)))
        require(self.member in known, f"{self.name}: there is no member {self.member!r}; there are {there}")
        cls = known[self.member]
        require(not _why_not(cls), f"{self.name}: {self.member} {_why_not(cls)}; members may be {there}")
        one_form = member_settings.settled(self.settings, {self.member: cls}, of=self.name)
        object.__setattr__(self, "settings", one_form)
        assert self.encoder  # refuses what cannot be a member

    @property
    def encoder(self) -> ModelConfig:
        cls = {cls.name: cls for cls in MODELS}[self.member]
        own = member_settings.read(self.settings, {self.member: cls}).get(self.member, {})
        return member_settings.made(cls, own, stack=self, num_blocks=self.num_blocks)

    @property
    def stackable(self) -> bool:
        return self.encoder.stackable

    @property
    def exact(self) -> bool:
        return self.encoder.exact

    @property
    def state_growth(self) -> Literal["constant", "length", "unknown"]:
        return self.encoder.state_growth

    @property
    def cost(self) -> Literal["linear", "n log n", "quadratic", "unknown"]:
        return self.encoder.cost

    @property
    def longest_input(self) -> int | None:
        return self.encoder.longest_input

    @property
    def idle_parameters(self) -> int:
        return self.encoder.idle_parameters

    def unworkable(self) -> str:
        return self.encoder.unworkable()

    def block(self, layer: int) -> Block:
        return Encoder(self.encoder.block(layer))

    def blocks(self) -> list[Block]:
        """Return the member's blocks, then the read-out."""
        blocks = [Encoder(block) for block in self.encoder.blocks()]
        return [*blocks, ReadOut(self.d_model, decoder=self.decoder, dropout=self.dropout)]

    def common_module(self) -> nn.Module | None:
        return self.encoder.common_module()

    @classmethod
    def tiny(cls) -> "AutoencoderConfig":
        return cls(d_model=16, num_blocks=2, num_heads=2)


def _why_not(cls: type[Any]) -> str:
    """Return why a model cannot be the member; "" if it can."""
    if issubclass(cls, AutoencoderConfig):
        return "is a read-out itself"
    return "" if cls.build is ModelConfig.build else "is no stack of blocks"
