"""Measure microseconds per token of a model's step form, against a loop written for that model alone.

    python scripts/benchmark.py decode [--context 256] [--tokens 60] [--batch 1] [--parameters 100000] [--repeats 9]
                                       [--json]

`ladder generate`, teacher decoding and `ladder horizon` use the step form: any architecture, any block, edits and taps
of the stream, a state that is never changed in place. The hand-written loop knows its one model: weights in local
names, precomputed frequencies, a cache that is written in place. Both start from the state of the same prompt, read the
same tokens and must give the same logits. They take turns, in process time on one thread. The results are medians, also
of their ratio turn by turn.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, rms_norm, silu, softplus

from chomsky_ladder.harness.config.registry import find_model
from chomsky_ladder.harness.config.sizing import sized
from chomsky_ladder.harness.train.machine import pinned, processor
from chomsky_ladder.models.base import Model
from chomsky_ladder.models.block import Context, State

VOCAB = 16
TOLERANCE = 1e-4

Loop = Callable[[Any, State, Tensor], Tensor]  # logits [T, B, V] of tokens [T, B] from a state


def lstm(model: Any, state: State, tokens_TB: Tensor) -> Tensor:
    cells = [block.cell for block in model.blocks]
    weights = [(torch.cat([cell.weight_ih, cell.weight_hh], 1), cell.bias) for cell in cells]
    held, outputs = [list(pair) for pair in state], []
    for tokens_B in tokens_TB.unbind(0):
        x = embedding(tokens_B, model.embedding.weight)
        for (weight, bias), pair in zip(weights, held, strict=True):
            i, f, g, o = linear(torch.cat([x, pair[0]], 1), weight, bias).chunk(4, 1)
            pair[1] = torch.addcmul(torch.sigmoid(f) * pair[1], torch.sigmoid(i), torch.tanh(g))
            pair[0] = x = torch.sigmoid(o) * torch.tanh(pair[1])
        outputs.append(linear(x, model.head.weight))
    return torch.stack(outputs)


def transformer(model: Any, state: State, tokens_TB: Tensor) -> Tensor:
    layers = [(*block.norms, *block.layers) for block in model.blocks]
    attention = layers[0][2]
    heads, width = attention.num_heads, attention.head_dim
    caches = [held[0][0].clone() for held in state]
    start, batch = int(state[0][0][1]), tokens_TB.shape[1]
    frequency = 10_000.0 ** (-torch.arange(width // 2) / (width // 2))
    angle = torch.arange(start, start + len(tokens_TB))[:, None] * frequency
    cos, sin = (torch.cat([part, part], 1) for part in (angle.cos(), angle.sin()))
    sin[:, : width // 2].neg_()
    outputs = []
    for t, tokens_B in enumerate(tokens_TB.unbind(0)):
        x = embedding(tokens_B, model.embedding.weight)
        for cache, (first, second, attend, forward) in zip(caches, layers, strict=True):
            u = rms_norm(x, x.shape[1:], first.weight, first.eps)
            q_k_v = linear(u, attend.query_key_value.weight).view(batch, 3, heads, width)
            q_k = q_k_v[:, :2]
            q_k = torch.addcmul(q_k * cos[t], q_k.roll(width // 2, -1), sin[t])
            cache[0, :, :, start + t], cache[1, :, :, start + t] = q_k[:, 1], q_k_v[:, 2]
            k, v = cache[:, :, :, : start + t + 1]
            share = torch.softmax(q_k[:, 0, :, None] @ k.mT * width**-0.5, -1)
            x = x + linear((share @ v).flatten(1), attend.out.weight)
            u = rms_norm(x, x.shape[1:], second.weight, second.eps)
            gate, up = linear(u, forward.gate_up.weight).chunk(2, 1)
            x = x + linear(silu(gate) * up, forward.out.weight)
        outputs.append(linear(rms_norm(x, x.shape[1:], model.norm.weight, model.norm.eps), model.head.weight))
    return torch.stack(outputs)


def mamba(model: Any, state: State, tokens_TB: Tensor) -> Tensor:
    layers = [(block.norms[0], block.layers[0], -block.layers[0].A_log.exp().T) for block in model.blocks]
    held, outputs = [list(layer[0]) for layer in state], []
    for tokens_B in tokens_TB.unbind(0):
        x = embedding(tokens_B, model.embedding.weight)
        for pair, (norm, ssm, A_NE) in zip(held, layers, strict=True):
            v, z = linear(rms_norm(x, x.shape[1:], norm.weight, norm.eps), ssm.value_gate.weight).chunk(2, 1)
            seen = torch.cat([pair[0], v[:, None]], 1)
            pair[0] = seen[:, 1:]
            v = silu(torch.einsum("bwe,ew->be", seen, ssm.convolution.weight) + ssm.convolution.bias)
            states = A_NE.shape[0]
            rank, B, C = linear(v, ssm.select.weight).split([ssm.dt.in_features, states, states], 1)
            dt = softplus(linear(rank, ssm.dt.weight, ssm.dt.bias))
            pair[1] = torch.exp(dt[:, None] * A_NE) * pair[1] + B[..., None] * (dt * v)[:, None]
            y = torch.addcmul((C[:, None] @ pair[1])[:, 0], ssm.D, v)
            x = x + linear(y * silu(z), ssm.out.weight)
        outputs.append(linear(rms_norm(x, x.shape[1:], model.norm.weight, model.norm.eps), model.head.weight))
    return torch.stack(outputs)


BY_HAND: dict[str, Loop] = {"lstm": lstm, "transformer": transformer, "mamba": mamba}


def by_steps(model: Model, state: State, tokens_TB: Tensor) -> Tensor:
    ctx, outputs = Context(), []
    for tokens_B in tokens_TB.unbind(0):
        y, state = model.step(tokens_B, state, ctx)
        outputs.append(y)
    return torch.stack(outputs)


def row_of(name: str, options: argparse.Namespace) -> dict[str, Any]:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = sized(find_model(name)(), vocab=VOCAB, target=options.parameters).build(VOCAB).eval()
        tokens_TB = torch.randint(VOCAB, (options.context + options.tokens, options.batch))
    prompt_TB, rest_TB = tokens_TB.split([options.context, options.tokens])
    cpu = torch.device("cpu")
    state = model.init_state(options.batch, max_length=len(tokens_TB), device=cpu, dtype=torch.float32)
    state = model.extend(prompt_TB.T, state, Context())[1]
    forms: dict[str, Loop] = {"by_steps": by_steps, "by_hand": BY_HAND[name]}
    said = [loop(model, state, rest_TB) for loop in forms.values()]
    assert torch.allclose(*said, rtol=TOLERANCE, atol=TOLERANCE), f"{name}: the loop by hand says something else"
    taken: dict[str, list[float]] = {form: [] for form in forms}
    for turn in range(options.repeats):
        for form in reversed(forms) if turn % 2 else forms:
            start = time.process_time()
            forms[form](model, state, rest_TB)
            taken[form].append(1e6 * (time.process_time() - start) / options.tokens)
    us = {form: np.array(values) for form, values in taken.items()}
    ratio = float(np.median(us["by_steps"] / us["by_hand"]))
    return {"model": name, **{form: round(float(np.median(values)), 1) for form, values in us.items()}, "ratio": ratio}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="benchmark.py decode", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = (("context", 256), ("tokens", 60), ("batch", 1), ("parameters", 100_000), ("repeats", 9))
    for name, value in sizes:
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(words)
    if min(getattr(options, name) for name, _ in sizes) < 1:
        parser.error("all numbers are at least 1")
    with pinned(1), torch.inference_mode():
        rows = [row_of(name, options) for name in BY_HAND]
    if options.json:
        told = {name: getattr(options, name) for name, _ in sizes}
        print(json.dumps({"processor": processor(), "torch": torch.__version__, **told, "rows": rows}))
        return 0
    print(f"microseconds a token on {processor()}, one thread, behind {options.context} tokens, batch {options.batch}")
    for row in rows:
        print(f"{row['model']:12} {row['by_steps']:8.1f} by steps  {row['by_hand']:8.1f} by hand  {row['ratio']:.2f} x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
