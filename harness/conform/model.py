"""The conformance of a model: each function takes a config, usually a `tiny()` one, and checks it in float64."""

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from chomsky_ladder.harness.config.parts import checked, from_plain, plain
from chomsky_ladder.harness.config.rooms import did_you_mean
from chomsky_ladder.harness.config.theory import JOIN, TRANSITIONS
from chomsky_ladder.harness.conform.compare import Skip, equal, same
from chomsky_ladder.harness.train.optim import declared
from chomsky_ladder.models.backbone import Model, state_bytes
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Context

VOCAB = 11
LENGTHS = (1, 2, 7, 33)
_BATCHES = 4  # every parameter must learn on one of these


def declares_itself(config: ModelConfig) -> None:
    cls = type(config)
    for name, kind in {"name": str, "family": str, "year": int, "paper": str, "version": int}.items():
        assert isinstance(getattr(cls, name, None), kind), f"{name} must be a class attribute of type {kind.__name__}"
    assert cls.name.isidentifier(), f"{cls.name!r} is no identifier"
    assert cls.name == cls.name.lower(), f"{cls.name!r} is not lower-case"
    made: Any = cls  # a dataclass by its own decorator or a base's
    for kind in config.transition.split(JOIN) if config.transition else ():
        assert kind in TRANSITIONS, (
            f"transition {kind!r} is none that theory knows{did_you_mean(kind, TRANSITIONS)}: {', '.join(TRANSITIONS)}"
        )
    assert made.__dataclass_params__.frozen, "the config must be a frozen dataclass"
    assert from_plain(cls, plain(checked(config, where="model")), where="model") == config, "config.json loses settings"
    assert cls().build(VOCAB).num_layers >= 1, "the model has no layers"


def is_built_from_the_seed_alone(config: ModelConfig) -> None:
    before = torch.get_rng_state()
    first = _build(config)
    nn.Linear(3, 3)
    for (name, one), other in zip(first.named_parameters(), _build(config).parameters(), strict=True):
        same(one.detach(), other.detach(), f"{name}, built twice from one seed")
    torch.set_rng_state(before)


def gives_logits_over_the_vocabulary(config: ModelConfig) -> None:
    model = _build(config)
    for length in LENGTHS:
        logits = model(_tokens(3, length), Context())
        assert logits.shape == (3, length, VOCAB), f"logits {tuple(logits.shape)}, not {(3, length, VOCAB)}"
        assert bool(torch.isfinite(logits).all()), f"logits are not finite at length {length}"


def the_future_never_changes_the_past(config: ModelConfig) -> None:
    if config.sees == "all":
        raise Skip("it sees every position")
    model, length, cut = _build(config), 33, 20
    tokens = _tokens(4, length)
    changed = torch.cat([tokens[:, :cut], _tokens(4, length - cut, seed=9)], dim=1)
    prompt_B = torch.full((4,), 12)
    first, second = (model(t, _context(torch.full((4,), length), length, prompt_B)) for t in (tokens, changed))
    start = 0 if config.sees == "past" else 11  # inside the prompt, everything may depend on all of it
    equal(second[:, start:cut], first[:, start:cut], "outputs before a change", tolerance=1e-12)
    if config.sees == "prompt_alone":
        equal(second[:, cut:], first[:, cut:], "outputs behind the prompt after a change there", tolerance=1e-12)
        first, second = (model(t, Context()) for t in (tokens, changed))  # all of it is prompt
    assert not torch.equal(second[:, cut:], first[:, cut:]), "outputs after a change do not depend on it"


def wider_padding_changes_nothing(config: ModelConfig) -> None:
    model = _build(config)
    length_B = torch.tensor([33, 1, 20, 7])
    narrow, wide = _tokens(4, 33), torch.zeros(4, 70, dtype=torch.int64)  # 70 crosses into long-sequence paths
    valid = torch.arange(33) < length_B[:, None]
    narrow = torch.where(valid, narrow, 0)
    wide[:, :33] = narrow
    prompt_B = (length_B + 1) // 2
    first = model(narrow, _context(length_B, 33, prompt_B))
    second = model(wide, _context(length_B, 70, prompt_B))
    what = "valid outputs of a batch padded wider (read no place where ctx.valid_BL is False)"
    equal(second[:, :33][valid], first[valid], what)


def rows_do_not_see_each_other(config: ModelConfig) -> None:
    model, tokens, length_B = _build(config), _tokens(4, 33), torch.tensor([33, 5, 20, 12])
    prompt_B = (length_B + 1) // 2
    together = model(tokens, _context(length_B, 33, prompt_B))
    for row in range(4):
        alone = model(tokens[row : row + 1], _context(length_B[row : row + 1], 33, prompt_B[row : row + 1]))
        length = int(length_B[row])
        equal(together[row, :length], alone[0, :length], f"row {row} in a batch and alone")


def stepping_equals_forward(config: ModelConfig) -> None:
    if not config.stepwise:
        raise Skip("it declares no step")
    model = _build(config)
    for length in LENGTHS:
        tokens = _tokens(3, length)
        state = _state(model, 3, length)
        outputs = []
        for token_B in tokens.unbind(1):
            logits, state = model.step(token_B, state, Context())
            outputs.append(logits)
        equal(torch.stack(outputs, 1), model(tokens, Context()), f"steps at length {length}")


def steps_and_forward_have_equal_gradients(config: ModelConfig) -> None:
    if not config.stepwise:
        raise Skip("it declares no step")
    model, tokens = _build(config), _tokens(3, 7)
    state, loss = _state(model, 3, 7), torch.zeros((), dtype=torch.float64)
    for position, token_B in enumerate(tokens.unbind(1)):
        logits, state = model.step(token_B, state, Context())
        loss = loss + (logits * _weights(3, 7)[:, position]).sum()
    stepped = _gradients(model, loss)
    whole = _gradients(model, (model(tokens, Context()) * _weights(3, 7)).sum())
    for name in whole:
        equal(stepped[name], whole[name], f"the gradient of {name}", tolerance=1e-8)


def a_state_carries_over_a_split(config: ModelConfig) -> None:
    if not config.stepwise:
        raise Skip("it declares no step")
    model, tokens = _build(config), _tokens(3, 33)
    whole = model(tokens, Context())
    for cut in (1, 16, 32):
        head, state = model.extend(tokens[:, :cut], _state(model, 3, 33), Context())
        tail, _ = model.extend(tokens[:, cut:], state, Context())
        equal(torch.cat([head, tail], 1), whole, f"two parts cut at {cut}")


def a_step_leaves_its_state_as_it_was(config: ModelConfig) -> None:
    if not config.stepwise:
        raise Skip("it declares no step")
    model, tokens = _build(config), _tokens(3, 3)
    _, state = model.step(tokens[:, 0], _state(model, 3, 3), Context())
    first, _ = model.step(tokens[:, 1], state, Context())
    model.step(tokens[:, 2], state, Context())
    second, _ = model.step(tokens[:, 1], state, Context())
    same(second, first, "a step from a state already used")


def its_state_grows_as_declared(config: ModelConfig) -> None:
    if not config.stepwise:
        raise Skip("it declares no step")
    model = _build(config)
    lengths = (96, 176, 256)
    sizes = [state_bytes(_state(model, 1, length)) for length in lengths]
    found = f"{sizes} bytes at lengths {lengths}"
    grows = "length" if sizes[-1] > sizes[0] else "constant"
    assert grows == config.state_growth, f"{found}: declared {config.state_growth}"
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0], f"{found}: neither constant nor linear"


def every_parameter_learns(config: ModelConfig) -> None:
    """Check that a gradient reaches every parameter on one of a few batches.

    A router may send nothing to an expert on the first batch.
    """
    model, unreached = _build(config), set[str]()
    for seed in range(_BATCHES):
        ctx = Context()
        loss = (model(_tokens(8, 33, seed=seed), ctx) * _weights(8, 33)).sum()
        gradients = _gradients(model, loss + sum(value for values in ctx.losses.values() for value in values))
        for name, gradient in gradients.items():
            assert bool(torch.isfinite(gradient).all()), f"the gradient of {name} is not finite"
        still = {name for name, gradient in gradients.items() if not bool((gradient != 0).any())}
        unreached = still if seed == 0 else unreached & still
        if not unreached:
            return
    name = min(unreached)
    raise AssertionError(
        f"no gradient reaches {name} on {_BATCHES} batches: use it in forward, or leave it out; "
        "of a router, start it so that every expert is chosen"
    )


def the_fast_path_equals_the_reference(config: ModelConfig) -> None:
    model = _build(config)
    for length in (*LENGTHS, 70):
        tokens, length_B = _tokens(3, length), torch.tensor([length, (length + 1) // 2, 1])
        found = {}
        for backend in ("auto", "reference"):
            ctx = _context(length_B, length, length_B)
            ctx.backend, valid_BL = backend, ctx.valid_BL
            assert valid_BL is not None
            logits = model(tokens, ctx)
            weights = torch.where(valid_BL[..., None], _weights(3, length), 0)
            found[backend] = logits, _gradients(model, (logits * weights).sum()), valid_BL
        logits, gradients, valid = found["auto"]
        equal(logits[valid], found["reference"][0][valid], f"outputs at length {length}")
        for name, gradient in gradients.items():
            equal(gradient, found["reference"][1][name], f"the gradient of {name} at length {length}", tolerance=1e-8)


def what_is_asked_alone_is_what_it_says_there(config: ModelConfig) -> None:
    """Check that a model computes the same answer when only that position is asked for."""
    model = _build(config)
    for length in (1, 33):
        tokens, length_B = _tokens(3, length), torch.tensor([length, (length + 1) // 2, 1])
        found = []
        for asked_B in (None, length_B - 1):
            ctx = _context(length_B, length, length_B)
            ctx.asked_B = asked_B
            logits = model(tokens, ctx)
            if logits.shape[1] == length:
                logits = logits.gather(1, (length_B - 1)[:, None, None].expand(-1, 1, VOCAB))
            losses = [value for values in ctx.losses.values() for value in values]
            found.append((logits, _gradients(model, (logits * _weights(3, 1)).sum() + sum(losses))))
        (whole, gradients), (alone, of_alone) = found
        equal(alone, whole, f"the outputs that are asked for, at length {length}")
        for name, gradient in of_alone.items():
            equal(gradient, gradients[name], f"the gradient of {name} at length {length}", tolerance=1e-8)


def a_step_never_waits_for_the_host(config: ModelConfig) -> None:
    """Check that a step reads no value and copies no constant to the device, so that CUDA graphs can capture it."""
    model, tokens, length_B = _build(config), _tokens(3, 17), torch.tensor([17, 8, 1])
    ctx = _context(length_B, 17, length_B)
    ctx.backend = "reference"
    model(tokens, ctx).sum().backward()  # constants are made here, once

    def forbidden(name: str) -> AssertionError:
        return AssertionError(f"a second pass of one shape calls {name}: make the constant once, decide by torch.where")

    with ExitStack() as stack:
        for place, names in {torch: ("tensor", "as_tensor", "from_numpy"), Tensor: ("item", "tolist")}.items():
            for name in names:
                fault = forbidden(f"torch.{name}" if place is torch else f".{name}()")
                stack.enter_context(patch.object(place, name, side_effect=fault))
        ctx = _context(length_B, 17, length_B)
        ctx.backend = "reference"
        model(tokens, ctx).sum().backward()


def stacked_replicas_equal_single_ones(config: ModelConfig) -> None:
    if not config.stackable:
        raise Skip("it declares itself unstackable")
    replicas = [_build(config, seed=seed) for seed in (1, 2)]
    parameters, buffers = stack_module_state(replicas)
    parameters = {name: value.detach().requires_grad_() for name, value in parameters.items()}
    tokens = torch.stack([_tokens(3, 17, seed=seed) for seed in (1, 2)])
    length_RB = torch.tensor([[17, 8, 1], [3, 17, 9]])

    def forward(parameters: dict, buffers: dict, tokens: Tensor, length_B: Tensor) -> tuple[Tensor, Tensor]:
        ctx = _context(length_B, 17, length_B)
        ctx.stacked = True
        logits = functional_call(replicas[0], (parameters, buffers), (tokens, ctx))
        losses = [value for values in ctx.losses.values() for value in values]
        return logits, sum(losses[1:], losses[0]) if losses else torch.zeros((), dtype=torch.float64)

    logits, losses = torch.vmap(forward)(parameters, buffers, tokens, length_RB)
    weights = torch.where((torch.arange(17) < length_RB[..., None])[..., None], _weights(3, 17), 0)
    ((logits * weights).sum() + losses.sum()).backward()
    for row, model in enumerate(replicas):
        ctx = _context(length_RB[row], 17, length_RB[row])
        ctx.stacked = True
        alone, loss = model(tokens[row], ctx), torch.zeros((), dtype=torch.float64)
        loss = loss + sum(value for values in ctx.losses.values() for value in values)
        valid = weights[row] != 0
        equal(torch.where(valid, logits[row], 0), torch.where(valid, alone, 0), f"replica {row}")
        for name, gradient in _gradients(model, (alone * weights[row]).sum() + loss).items():
            equal(parameters[name].grad[row], gradient, f"the gradient of {name}, replica {row}", tolerance=1e-8)


def layers_can_be_read_and_replaced(config: ModelConfig) -> None:
    model, tokens = _build(config), _tokens(3, 7)
    layers = range(model.num_layers + 1)
    ctx = Context(taps=frozenset(layers))
    plain_logits = model(tokens, ctx)
    assert sorted(ctx.tapped) == list(layers), f"taps of layers {sorted(ctx.tapped)}, not {list(layers)}"
    for layer in layers:
        assert ctx.tapped[layer].shape[:2] == (3, 7), f"layer {layer}'s stream is {tuple(ctx.tapped[layer].shape)}"
        edited = model(tokens, Context(edits={layer: lambda x: -x}))
        assert not torch.equal(edited, plain_logits), f"an edit of layer {layer} changes nothing"
    unchanged = model(tokens, Context(edits={layer: lambda x: x.clone() for layer in layers}))
    same(unchanged, plain_logits, "outputs under edits that change nothing")


def the_optimiser_understands_it(config: ModelConfig) -> None:
    model = _build(config)
    listed = list(declared(model))
    assert len(listed) == len(list(model.parameters())), "the decay groups leave out a parameter"
    for parameter, _, multiplier in listed:
        assert multiplier >= 0, f"a rate multiplier is {multiplier}"
        assert not parameter.is_complex(), "store complex parameters as reals: the fused optimiser refuses them"


def _build(config: ModelConfig, *, seed: int = 0) -> Model:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # the CPU's alone: other devices' generators take 1 ms
        return config.build(VOCAB).double()


def _tokens(batch: int, length: int, *, seed: int = 0) -> Tensor:
    return torch.randint(1, VOCAB, (batch, length), generator=torch.Generator().manual_seed(seed))


def _weights(batch: int, length: int) -> Tensor:
    """Return fixed weights for a weighted sum of logits, in which errors at two positions cannot cancel."""
    generator = torch.Generator().manual_seed(7)
    return torch.randn(batch, length, VOCAB, dtype=torch.float64, generator=generator)


def _context(length_B: Tensor, width: int, prompt_B: Tensor) -> Context:
    return Context(valid_BL=torch.arange(width) < length_B[:, None], prompt_B=prompt_B)


def _state(model: Model, batch: int, length: int) -> object:
    return model.init_state(batch, max_length=length, device=torch.device("cpu"), dtype=torch.float64)


def _gradients(model: Model, loss: Tensor) -> dict[str, Tensor]:
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    return {n: torch.zeros_like(p) if g is None else g for n, p, g in zip(names, parameters, found, strict=True)}
