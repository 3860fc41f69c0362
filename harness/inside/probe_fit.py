"""Fit probes: multinomial logistic regression for every part of a state, directly or after one ReLU layer.

    linear      logits = x W + b_t                  for S parts of C classes each, b_t for position t
    two_layer   logits = relu(x V + c_t) W + b

Every probe has a bias for each position. So no probe is worse than the most common label of each position only because
it cannot count. With one bias for all positions, probes of a random network were worse by .02 on 6x6 Othello. Inputs
are centred and scaled by one number, so a direction of the fitted probe is a direction of the stream itself. The
optimiser is AdamW on minibatches, with a learning rate that falls linearly to zero. A linear probe starts from zero, a
two-layer probe from random weights. The same random stream orders the minibatches, so equal settings give equal probes.
The epoch with the best accuracy on the validation split is kept.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from chomsky_ladder.harness.inside.settings import ProbeSettings
from chomsky_ladder.tasks.base import PAD
from chomsky_ladder.tasks.draw import Draw

Kind = Literal["linear", "two_layer"]
KINDS: tuple[Kind, ...] = ("linear", "two_layer")
READ_AT_ONCE = 8192  # positions; more would not fit the cache


class Inputs(Protocol):
    """The inputs of probes: a row of input for each index, and the position it stands at."""

    width: int  # positions
    device: torch.device

    def __len__(self) -> int: ...
    def rows(self, index_N: Tensor) -> tuple[Tensor, Tensor]: ...


class Stream:
    """One layer of a model at the positions that count."""

    def __init__(self, x_ND: Tensor, position_N: Tensor, *, width: int) -> None:
        self.x_ND, self.position_N, self.width, self.device = x_ND, position_N, width, x_ND.device

    def __len__(self) -> int:
        return len(self.x_ND)

    def rows(self, index_N: Tensor) -> tuple[Tensor, Tensor]:
        return self.x_ND[index_N], self.position_N[index_N]


class History:
    """The symbols read so far: one input for each symbol, or for each mark of it (`Task.marks`), at each distance back.

    Inputs are by distance, not by place, because the owner of a move's stone depends on how long ago the move was.
    """

    def __init__(
        self, tokens_BL: Tensor, string_N: Tensor, position_N: Tensor, *, vocab: int, marks_VF: Tensor | None = None
    ) -> None:
        self.tokens_BL, self.string_N, self.position_N, self.vocab = tokens_BL, string_N, position_N, vocab
        self.marks_VF = marks_VF
        self.width, self.device = tokens_BL.shape[1], tokens_BL.device

    def __len__(self) -> int:
        return len(self.string_N)

    def rows(self, index_N: Tensor) -> tuple[Tensor, Tensor]:
        position_N = self.position_N[index_N]
        place_NL = position_N[:, None] - torch.arange(self.width, device=self.device)
        token_NL = self.tokens_BL[self.string_N[index_N, None], place_NL.clamp(min=0)]
        token_NL = torch.where(place_NL >= 0, token_NL, PAD)
        if self.marks_VF is not None:
            return self.marks_VF[token_NL].flatten(1).float(), position_N
        x_NLV = torch.zeros(*token_NL.shape, self.vocab, device=self.device).scatter_(2, token_NL[..., None], 1)
        return x_NLV[..., PAD + 1 :].flatten(1), position_N


class Probe:
    """A fitted probe for unscaled inputs: its weights and a bias for each position."""

    def __init__(self, tensors: Sequence[Tensor], sizes: Sequence[int]) -> None:
        self.tensors, self.sizes = tuple(tensors), tuple(sizes)

    def logits(self, x_ND: Tensor, position_N: Tensor) -> Tensor:
        """Return logits [.., S, C] of inputs [.., D]. Classes that a part does not have are at -inf."""
        first, bias_LX, *rest = self.tensors
        if int(position_N.max()) >= len(bias_LX):
            raise ValueError(f"probed up to position {len(bias_LX)}, not to {int(position_N.max()) + 1}")
        return _logits(x_ND @ first + bias_LX[position_N], rest, _impossible(self.sizes, x_ND.device)).mT

    @torch.no_grad()
    def read(self, inputs: Inputs) -> Tensor:
        """Return the likeliest class of each part, int64 [N, S]."""
        return torch.cat([self.logits(*rows).argmax(2) for rows in _in_parts(inputs)])

    @property
    def directions(self) -> Tensor:
        """Return a linear probe's weight vector for each logit, [S, C, D]."""
        assert len(self.tensors) == 2, "the logits of a two-layer probe have no direction"
        return self.tensors[0].unflatten(1, (max(self.sizes), len(self.sizes))).permute(2, 1, 0).contiguous()


@dataclass(frozen=True)
class Fitted:
    probe: Probe
    epoch: int
    validation: float


def fit(
    train: tuple[Inputs, Tensor],
    validation: tuple[Inputs, Tensor],
    *,
    kind: Kind,
    sizes: Sequence[int],
    settings: ProbeSettings,
) -> Fitted:
    """Fit a probe of one kind from inputs to labels [N, S]."""
    (inputs, labels_NS), device = train, train[1].device
    mean_D, scale = _moments(inputs)
    parameters = [p.to(device).requires_grad_() for p in _start(kind, len(mean_D), inputs.width, sizes, settings)]
    weights, biases = [parameters[0], *parameters[2::2]], parameters[1::2]
    decayed = {"params": weights, "weight_decay": settings.weight_decay}
    optimiser = torch.optim.AdamW([decayed, {"params": biases, "weight_decay": 0.0}], lr=settings.lr)
    impossible_CS, where_L = _impossible(sizes, device), torch.arange(inputs.width, device=device)
    total, step, best = settings.epochs * -(-len(inputs) // settings.batch), 0, None
    for epoch in range(1, settings.epochs + 1):
        draw = Draw(seed=settings.seed, split="probe/order", rows_B=torch.tensor([epoch], device=device))
        for index_N in draw.permutation(len(inputs))[0].split(settings.batch):
            for group in optimiser.param_groups:
                group["lr"] = settings.lr * (1 - step / total)
            x_ND, position_N = inputs.rows(index_N)
            at_NL = (position_N[:, None] == where_L).float()  # as a product, its gradient is the same in every run
            first_NX = ((x_ND - mean_D) * scale) @ parameters[0] + at_NL @ parameters[1]
            loss = cross_entropy(_logits(first_NX, parameters[2:], impossible_CS), labels_NS[index_N]) * len(sizes)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            step += 1
        probe = Probe(_unscaled(parameters, mean_D, scale), sizes)
        accuracy = float((probe.read(validation[0]) == validation[1]).double().mean())
        if best is None or accuracy > best.validation:
            best = Fitted(probe, epoch, accuracy)
    assert best is not None
    return best


def _in_parts(inputs: Inputs) -> Iterator[tuple[Tensor, Tensor]]:
    for index_N in torch.arange(len(inputs), device=inputs.device).split(READ_AT_ONCE):
        yield inputs.rows(index_N)


def _moments(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Return the mean of the inputs, and the factor that scales the centred inputs to a root mean square of 1."""
    total, squares = torch.zeros((), device=inputs.device), torch.zeros((), device=inputs.device)
    for x_ND, _ in _in_parts(inputs):
        total, squares = total + x_ND.double().sum(0), squares + x_ND.double().square().sum(0)
    mean_D = total / len(inputs)
    variance = (squares / len(inputs) - mean_D**2).mean()
    return mean_D.float(), variance.clamp(min=1e-12).rsqrt().float()


def _start(kind: Kind, width: int, length: int, sizes: Sequence[int], settings: ProbeSettings) -> list[Tensor]:
    """Return the initial weights."""
    outputs = len(sizes) * max(sizes)
    if kind == "linear":
        return [torch.zeros(width, outputs), torch.zeros(length, outputs)]
    draw = Draw(seed=settings.seed, split="probe/weights", rows_B=torch.arange(width + length))
    first_XH = (draw.uniform((settings.hidden,)) - 0.5) * 12**0.5  # of variance 1
    first_DH, bias_LH = (first_XH * width**-0.5).split([width, length])
    return [first_DH, bias_LH, torch.zeros(settings.hidden, outputs), torch.zeros(outputs)]


def _logits(first_NX: Tensor, rest: Sequence[Tensor], impossible_CS: Tensor) -> Tensor:
    """Return logits [N, C, S]. In this order, because softmax over a last dimension of three is slow."""
    if rest:
        first_NX = first_NX.relu() @ rest[0] + rest[1]
    return first_NX.unflatten(-1, impossible_CS.shape) + impossible_CS


def _impossible(sizes: Sequence[int], device: torch.device) -> Tensor:
    """Return -inf for the classes that a part does not have, else 0; [C, S]."""
    beyond_CS = torch.arange(max(sizes), device=device)[:, None] >= torch.tensor(tuple(sizes), device=device)
    return torch.zeros(beyond_CS.shape, device=device).masked_fill(beyond_CS, -torch.inf)


def _unscaled(parameters: Sequence[Tensor], mean_D: Tensor, scale: Tensor) -> list[Tensor]:
    """Return the weights of the same probe for unscaled inputs."""
    first, bias_LX, *rest = (p.detach().clone() for p in parameters)
    first = first * scale
    return [first, bias_LX - mean_D @ first, *rest]
