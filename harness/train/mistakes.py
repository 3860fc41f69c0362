"""Common mistakes that show in a model's modules, each reported as one line with its cure.

self.layers = [Layer(), Layer()]     M.layers (blocks.0) holds 2 modules that are not registered ..

A run of a plugin's model is refused if it has one. They are the first checks of `ladder check`.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn


def unregistered(model: nn.Module) -> Iterator[str]:
    """Yield modules, weights and tensors that torch does not know of.

    They are neither trained, nor moved, nor saved.
    """
    known, weights = set(model.modules()), set(model.parameters())
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name.startswith("_") and name in vars(nn.Module()):
                continue
            where = f"{type(module).__name__}.{name} ({path})"
            lost = [part for part in _inside(value) if isinstance(part, nn.Module) and part not in known]
            if lost:
                kind = "Dict" if isinstance(value, dict) else "List"
                yield (
                    f"{where} holds {len(lost)} modules that are not registered, so that nothing trains them: "
                    f"make it an nn.Module{kind}"
                )
            for part in _inside(value):
                if part in weights or isinstance(part, nn.Module):  # torch's recurrent layers list theirs twice
                    continue
                if isinstance(part, nn.Parameter):
                    yield f"{where} holds weights that are not registered: make it an nn.ParameterList"
                elif part.requires_grad:
                    yield f"{where} is to be trained and is no nn.Parameter: self.{name} = nn.Parameter(..)"
                else:
                    yield (
                        f"{where} is a tensor that is neither weight nor buffer, and stays on the CPU: "
                        f"self.register_buffer({name!r}, ..)"
                    )


def own_dropout(model: nn.Module) -> Iterator[str]:
    """Yield dropout modules whose masks do not depend on the run's seed."""
    kinds = (nn.modules.dropout._DropoutNd, nn.MultiheadAttention, nn.RNNBase)
    for path, module in model.named_modules():
        rate = getattr(module, "p", getattr(module, "dropout", 0)) if isinstance(module, kinds) else 0
        if rate:
            yield (
                f"{type(module).__name__} at {path} draws from torch's generator, which no seed of a run keys, in "
                "scoring too: take ctx.dropout(x, self.rate), which knows when to"
            )


def _inside(value: Any) -> Iterator[Tensor | nn.Module]:
    """Yield the tensors and modules in a value, also those inside plain lists, tuples and dicts."""
    if isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _inside(part)
    elif isinstance(value, torch.Tensor | nn.Module):
        yield value
