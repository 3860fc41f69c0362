"""The conformance of a model on other devices and at other precisions than those of harness/conform/model.py.

The meta device has shapes and no values. A tensor made on the CPU, or a value that is read, would be wrong or slow on a
GPU. Here both raise. fp32 and bf16, in which runs train, are compared with float64.
"""

from dataclasses import fields, replace

import torch
from torch import Tensor

from chomsky_ladder.harness.conform.compare import Skip, same
from chomsky_ladder.harness.conform.meta import META, SHORT, OneDevice, growth, shapes_alone
from chomsky_ladder.harness.conform.model import VOCAB, _build, _context, _gradients, _state, _tokens, _weights
from chomsky_ladder.harness.conform.say import said_of
from chomsky_ladder.models.backbone import Model
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Context

TRAINED = 40  # the longest training string of most papers
WIDTHS = (8, 24, 64)
HEADS = (1, 2, 4)
PRECISE = {"fp32": 1e-3, "bf16": 0.3}  # allowed error, relative to the norm of the float64 result
# At the few lengths of a model with 256 positions a square shows only in part: values in between may be either.
EXPONENTS = {"linear": (0.0, 1.5), "n log n": (0.0, 1.5), "quadratic": (1.25, 9.0)}


def stays_on_its_device(config: ModelConfig) -> None:
    """Check a forward pass, and a step, on the meta device."""
    model = _build(config).to(META, torch.float32)
    length_B = torch.tensor([17, 8, 1])
    ctx = _context(length_B, 17, length_B)
    assert ctx.valid_BL is not None and ctx.prompt_B is not None
    ctx.valid_BL, ctx.prompt_B, ctx.backend = ctx.valid_BL.to(META), ctx.prompt_B.to(META), "reference"
    with shapes_alone(), OneDevice():
        model(_tokens(3, 17).to(META), ctx).sum().backward()
        if config.stepwise:
            state = model.init_state(3, max_length=4, device=META, dtype=torch.float32)
            model.step(_tokens(3, 1)[:, 0].to(META), state, Context(backend="reference"))


def a_second_pass_equals_the_first(config: ModelConfig) -> None:
    model, tokens = _build(config), _tokens(3, 17)
    first = model(tokens, Context())
    model(_tokens(2, 9, seed=1), Context())
    same(model(tokens, Context()), first, "a pass over the same tokens: it remembers, or draws; outputs")


def fp32_and_bf16_are_close_to_float64(config: ModelConfig) -> None:
    """Compare forward and backward pass with float64, at a training length."""
    tokens, length_B = _tokens(4, TRAINED), torch.tensor([TRAINED, TRAINED, 30, 3])
    model = _build(config)
    wanted, weights = _passed(model, tokens, length_B), model.state_dict()
    for precision, tolerance in PRECISE.items():
        model = _build(config)
        model.load_state_dict(weights)  # also for models that ignore the seed
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            found = _passed(model.float(), tokens, length_B)
        for what, value in found.items():
            assert not value.is_complex(), f"{what} are complex: store complex parameters as reals"
            assert value.dtype == torch.float32, (
                f"in {precision} {what} come out as {str(value.dtype).removeprefix('torch.')}: a constant of float64 "
                "raises all that it meets; make it with dtype=x.dtype"
            )
            assert bool(torch.isfinite(value).all()), (
                f"in {precision} {what} are not finite at length {TRAINED}, in float64 they are: an exp, a product or "
                "a sum leaves its range; subtract the largest first, or keep logarithms"
            )
        for what in ("outputs", "gradients"):
            apart = float((found[what] - wanted[what]).norm() / wanted[what].norm().clamp(min=1e-12))
            assert apart <= tolerance, f"in {precision} {what} are {apart:.1%} from those in float64"


def other_widths_and_heads_work(config: ModelConfig) -> None:
    heads = [field.name for field in fields(config) if field.name in ("heads", "num_heads", "n_heads")]
    changes = [{"d_model": width} for width in WIDTHS] + [{name: count} for name in heads for count in HEADS]
    worked, refused = 0, ""
    for change in changes:
        try:
            other = replace(config, **change)
            model = _build(other)
        except ValueError as error:  # a config may refuse this
            refused = str(error)
            continue
        said = " and ".join(f"{name}={value}" for name, value in change.items())
        try:
            logits = model(_tokens(2, 9), Context())
            logits.sum().backward()
            if config.stepwise:
                model.step(_tokens(2, 1)[:, 0], _state(model, 2, 9), Context())
        except (RuntimeError, IndexError, AssertionError, TypeError) as error:
            raise AssertionError(f"with {said}: {said_of(error)}") from error
        assert logits.shape == (2, 9, VOCAB), f"with {said}: logits {tuple(logits.shape)}"
        assert bool(torch.isfinite(logits).all()), f"with {said}: logits are not finite"
        worked += 1
    assert worked, f"none of {len(changes)} widths and head counts is allowed: {refused}"


def its_cost_grows_as_declared(config: ModelConfig) -> None:
    """Compare the declared cost with the work of operations, counted on the meta device at three lengths."""
    try:
        found, lengths = growth(config)
    except (RuntimeError, NotImplementedError):  # stays_on_its_device explains it
        raise Skip("it does not pass on the meta device") from None
    if config.cost == "unknown":
        raise Skip(f"it declares no cost; its work grows with the {found:.1f}th power of the length")
    low, high = EXPONENTS[config.cost]
    if found < low and lengths == SHORT:
        raise Skip("of what goes token by token, lengths are counted at which no square shows")
    assert low <= found <= high, (
        f"work grows with the {found:.1f}th power of the length from {lengths[0]} to {lengths[-1]}, declared is "
        f"{config.cost!r}: set cost = {'quadratic' if found > high else 'linear'!r} in the config if that is meant"
    )


def _passed(model: Model, tokens: Tensor, length_B: Tensor) -> dict[str, Tensor]:
    ctx = _context(length_B, tokens.shape[1], length_B)
    valid_BL = ctx.valid_BL
    assert valid_BL is not None
    ctx.backend, ctx.taps = "reference", frozenset(range(model.num_layers + 1))
    logits = model(tokens, ctx)[valid_BL]
    widest = max((x.dtype for x in ctx.tapped.values()), key=lambda kind: kind.itemsize)
    loss = (logits.double() * _weights(*tokens.shape)[valid_BL]).sum() / len(logits)
    gradients = torch.cat([each.flatten() for each in _gradients(model, loss).values()])
    return {"outputs": logits.detach().to(torch.promote_types(logits.dtype, widest)), "gradients": gradients}
