"""Audit a model's parameters: how they start, how their class would start them, and which get no gradient.

    blocks.0.out.weight   [64, 64]   std .002   nn.Linear gives .072   overwritten by an initialisation further out
    blocks.0.bias         [64]       0          -                      no gradient at length 1

A remark is no fault: many published models scale what writes into the stream. It is what to look at when a module of
your own learns less than it should.
"""

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from chomsky_ladder.harness.conform.model import LENGTHS, _build, _tokens, _weights
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Context

FEW = 64  # elements, below which a deviation says little
FACTOR = 1.5  # between two deviations that are told apart


@dataclass(frozen=True)
class Start:
    """The start of one parameter, beside the usual one."""

    name: str
    shape: tuple[int, ...]
    std: float
    mean: float
    usual: str
    """The start that the parameter's class gives it; empty if torch has no such class."""
    remark: str


def audit(config: ModelConfig) -> list[Start]:
    """Return how each parameter of a freshly built model starts."""
    model = _build(config)
    usual, silent = _usual(model), _silent(model)
    found = []
    for name, parameter in model.named_parameters():
        values, own = parameter.detach(), usual.get(name)
        remarks = [_overwritten(values, *own)] if own else []
        lengths = silent.get(name, ())
        if len(lengths) == len(LENGTHS):
            remarks.append("no gradient at any length: it never moves")
        elif lengths:
            remarks.append(f"no gradient at length {', '.join(map(str, lengths))}")
        said = f"{own[1]} gives {_deviation(own[0]):.3g}" if own else ""
        about = "; ".join(filter(None, remarks))
        found.append(Start(name, tuple(values.shape), _deviation(values), float(values.mean()), said, about))
    return found


def _deviation(values: Tensor) -> float:
    return float(values.std(correction=0)) if values.numel() else 0.0


def _overwritten(values: Tensor, usual: Tensor, kind: str) -> str:
    """Say that a start is not its class's; empty if it is, or if there are too few values to tell."""
    ours, theirs = _deviation(values), _deviation(usual)
    if ours == theirs == 0.0:
        same = math.isclose(float(values.mean()), float(usual.mean()), abs_tol=1e-6)
        return "" if same else f"another constant than {kind} has"
    if values.numel() < FEW or (ours and theirs and 1 / FACTOR <= ours / theirs <= FACTOR):
        return ""
    return f"not as {kind} starts it: set by the model, or overwritten by an initialisation further out"


def _usual(model: nn.Module) -> dict[str, tuple[Tensor, str]]:
    """Return what torch's own classes start their parameters with, and their names, by parameter."""
    found: dict[str, tuple[Tensor, str]] = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for place, module in model.named_modules():
            kind = _of_torch(type(module))
            if kind is None:
                continue
            fresh = copy.deepcopy(module)
            kind.reset_parameters(fresh)
            for name, parameter in fresh.named_parameters(recurse=False):
                found[f"{place}.{name}" if place else name] = parameter.detach(), f"nn.{kind.__name__}"
    return found


def _of_torch(kind: type) -> Any:
    """Return the class of torch that a module is, or is made from, if that draws its own start."""
    bases = [base for base in kind.__mro__ if base.__module__.startswith("torch.nn.")]
    return next((base for base in bases if hasattr(base, "reset_parameters")), None)


def _silent(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the lengths at which no gradient reaches a parameter, by parameter."""
    silent: dict[str, list[int]] = {}
    parameters = dict(model.named_parameters())
    for length in LENGTHS:
        ctx = Context()
        loss = (model(_tokens(8, length), ctx) * _weights(8, length)).sum()
        loss = loss + sum(value for values in ctx.losses.values() for value in values)
        gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        for name, gradient in zip(parameters, gradients, strict=True):
            if gradient is None or not bool((gradient != 0).any()):
                silent.setdefault(name, []).append(length)
    return {name: tuple(lengths) for name, lengths in silent.items()}
