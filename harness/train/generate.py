"""Generate strings with a model's step form: greedily, by sampling at a temperature, or by beam search.

    prompt  a b         greedy   x_t = argmax p(. | a b x_1 .. x_{t-1})
                        sampled  x_t = the first x with p(1) + .. + p(x) > u_t, where p has a temperature
                        beam     keep the `width` best of all strings that are one token longer than the `width` best

Random draws are counter-based (tasks/draw.py), so row i gives the same string in any batch. The model carries its state
from token to token, and says what it would say if it read the whole string again. A beam that is as wide as the number
of strings finds the most probable one. A string's score is the sum of log p over the generated tokens, its stop
included.

Each block chooses the form of its state. So the batch axis of a state is found by comparison: it is the axis that is
longer in the state of three sequences than in that of two. A tensor without such an axis (a filter, a position) is
shared by all rows.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from chomsky_ladder.harness.config.parts import require
from chomsky_ladder.models.base import Model
from chomsky_ladder.models.block import Backend, Context, State
from chomsky_ladder.tasks.draw import Draw

Choose = Callable[[Tensor, int], Tensor]  # (logits [B, V], number of the new token) -> the next tokens [B]


class Generated(NamedTuple):
    """Generated strings, one for each prompt; after a stop, stops follow. A beam gives [B, W, ...], the best first."""

    tokens: Tensor  # [B, N]
    log_p: Tensor  # [B], float64: log probability of the generated tokens, up to the first stop


def fed_back(model: Model, tokens_BL: Tensor, free_BL: Tensor, *, backend: Backend) -> tuple[Tensor, Tensor]:
    """Read token by token: the given token, or, where `free`, the model's most probable one.

    Returns the logits [B, L, V] and the tokens that were read [B, L].
    """
    rows, width = tokens_BL.shape
    state = start(model, rows, max_length=width)
    heard, logits = [], []
    for position, token_B in enumerate(tokens_BL.unbind(1)):
        if position:
            token_B = torch.where(free_BL[:, position], logits[-1].argmax(-1), token_B)
        logits_BV, state = model.step(token_B, state, Context(backend=backend))
        heard.append(token_B)
        logits.append(logits_BV)
    return torch.stack(logits, 1), torch.stack(heard, 1)


def start(model: Model, rows: int, *, max_length: int) -> State:
    parameter = next(model.parameters())
    return model.init_state(rows, max_length=max_length, device=parameter.device, dtype=parameter.dtype)


def greedy(
    model: Model, prompt_BL: Tensor, *, new: int, stop: int | None = None, backend: Backend = "auto"
) -> Generated:
    """Choose the most probable token each time."""
    return _chain(model, prompt_BL, lambda logits_BV, _: logits_BV.argmax(-1), new=new, stop=stop, backend=backend)


def sampled(
    model: Model,
    prompt_BL: Tensor,
    *,
    new: int,
    seed: int,
    temperature: float = 1.0,
    rows_B: Tensor | None = None,
    stop: int | None = None,
    backend: Backend = "auto",
) -> Generated:
    """Sample tokens from softmax(logits / temperature).

    `rows_B` are the strings' rows in the random stream, from 0 by default.
    """
    require(math.isfinite(temperature) and temperature > 0, f"the temperature must be positive, not {temperature}")
    rows_B = torch.arange(len(prompt_BL), device=prompt_BL.device) if rows_B is None else rows_B
    uniform_BN = Draw(seed=seed, split="generate", rows_B=rows_B).uniform((new,)).double()

    def choose(logits_BV: Tensor, place: int) -> Tensor:
        return drawn(logits_BV.double() / temperature, uniform_BN[:, place])

    return _chain(model, prompt_BL, choose, new=new, stop=stop, backend=backend)


def drawn(logits_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """Return the token whose share of [0, 1) contains the uniform number; never one of probability 0."""
    ends_BV = logits_BV.double().softmax(-1).cumsum(-1)
    return (ends_BV <= uniform_B[:, None] * ends_BV[:, -1:]).sum(-1)


@torch.no_grad()
def _chain(
    model: Model, prompt_BL: Tensor, choose: Choose, *, new: int, stop: int | None, backend: Backend
) -> Generated:
    logits_BV, state = _read(model, prompt_BL, new=new, backend=backend)
    log_p_B = torch.zeros(len(prompt_BL), dtype=torch.float64, device=prompt_BL.device)
    over_B = torch.zeros(len(prompt_BL), dtype=torch.bool, device=prompt_BL.device)
    tokens = []
    for place in range(new):
        token_B = choose(logits_BV, place)
        token_B = token_B if stop is None else torch.where(over_B, stop, token_B)
        of_token_B = logits_BV.double().log_softmax(-1).gather(1, token_B[:, None])[:, 0]
        log_p_B = log_p_B + torch.where(over_B, 0.0, of_token_B)
        over_B = over_B if stop is None else over_B | (token_B == stop)
        tokens.append(token_B)
        if place + 1 < new:
            logits_BV, state = model.step(token_B, state, Context(backend=backend))
    return Generated(torch.stack(tokens, 1), log_p_B)


@torch.no_grad()
def beam(
    model: Model, prompt_BL: Tensor, *, new: int, width: int, stop: int | None = None, backend: Backend = "auto"
) -> Generated:
    """Return the `width` best strings found.

    If there are fewer strings, the last ones have a log p of minus infinity.
    """
    require(width >= 1, f"a beam is at least 1 wide, not {width}")
    rows, device = len(prompt_BL), prompt_BL.device
    logits_BV, state = _read(model, prompt_BL, new=new, backend=backend)
    axes = row_axes(model)
    first_X = torch.arange(rows, device=device).repeat_interleave(width)
    state, logits_XV = taken(state, axes, first_X), logits_BV[first_X]
    log_p_BW = torch.full((rows, width), -math.inf, dtype=torch.float64, device=device)
    log_p_BW[:, 0] = 0.0
    tokens_BWN = torch.zeros(rows, width, 0, dtype=torch.int64, device=device)
    for place in range(new):
        best = _best(log_p_BW, logits_XV.double().log_softmax(-1).unflatten(0, (rows, width)), tokens_BWN, stop)
        log_p_BW, from_BW, token_BW = best
        tokens_BWN = tokens_BWN.gather(1, from_BW[..., None].expand(-1, -1, place))
        tokens_BWN = torch.cat([tokens_BWN, token_BW[..., None]], 2)
        if place + 1 < new:
            from_X = (torch.arange(rows, device=device)[:, None] * width + from_BW).flatten()
            logits_XV, state = model.step(token_BW.flatten(), taken(state, axes, from_X), Context(backend=backend))
    return Generated(tokens_BWN, log_p_BW)


def _best(
    log_p_BW: Tensor, of_token_BWV: Tensor, tokens_BWN: Tensor, stop: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best continuations: their scores, the strings they continue and their last tokens.

    Ties keep the order.
    """
    count = of_token_BWV.shape[-1]
    if stop is not None and tokens_BWN.shape[2]:  # a finished string is only continued by its stop, at no cost
        over_BW = tokens_BWN[..., -1] == stop
        is_stop_V = torch.arange(count, device=log_p_BW.device) == stop
        of_token_BWV = torch.where(over_BW[..., None], torch.where(is_stop_V, 0.0, -math.inf), of_token_BWV)
    all_BX = (log_p_BW[..., None] + of_token_BWV).flatten(1)
    order_BW = all_BX.argsort(dim=1, descending=True, stable=True)[:, : log_p_BW.shape[1]]
    return all_BX.gather(1, order_BW), order_BW // count, order_BW % count


def _read(model: Model, prompt_BL: Tensor, *, new: int, backend: Backend) -> tuple[Tensor, State]:
    """Return the logits after a prompt, and the state after it."""
    config, length = model.config, prompt_BL.shape[1]
    require(config.stepwise, f"{config.name} has no step form, so it generates nothing")
    require(length >= 1 and new >= 1, "generation needs a prompt of a token or more, and a token or more to make")
    most = config.longest_input
    require(most is None or length + new <= most, f"{config.name} takes no more than {most} positions")
    state = start(model, len(prompt_BL), max_length=length + new)
    logits_BLV, state = model.extend(prompt_BL, state, Context(backend=backend))
    return logits_BLV[:, -1], state


def row_axes(model: Model) -> State:
    """Return a tree shaped like a state, with the batch axis of each tensor; -1 if it has none."""
    return _axes(start(model, 2, max_length=2), start(model, 3, max_length=2), model.config.name)


def _axes(two: State, three: State, name: str) -> State:
    if isinstance(two, Tensor):
        longer = [axis for axis, (a, b) in enumerate(zip(two.shape, three.shape, strict=True)) if a != b]
        is_row = len(longer) == 1 and two.shape[longer[0]] == 2
        require(is_row or not longer, f"{name}: a state of shape {tuple(two.shape)} has no axis of its two rows")
        return longer[0] if longer else -1
    if isinstance(two, dict):
        return {key: _axes(two[key], three[key], name) for key in two}
    if isinstance(two, list | tuple):
        return tuple(_axes(a, b, name) for a, b in zip(two, three, strict=True))
    return -1


def taken(state: State, axes: State, rows_X: Tensor) -> State:
    """Return the state of these rows in this order. A row may appear more than once."""
    if isinstance(state, Tensor):
        return state if axes < 0 else state.index_select(axes, rows_X)
    if isinstance(state, dict):
        return {key: taken(value, axes[key], rows_X) for key, value in state.items()}
    if isinstance(state, list | tuple):
        parts = [taken(part, axis, rows_X) for part, axis in zip(state, axes, strict=True)]
        return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)
    return state
