"""What can be seen to fail before a run begins: a kernel, a device, or a module that cannot be had here.

refuse_unworkable(FLAConfig(), backend="auto", device=torch.device("cpu"))
->  ValueError: fla runs on a CUDA device alone, not on cpu
"""

import torch

from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Backend, require
from chomsky_ladder.models.kernels.choose import demand


def refuse_unworkable(model: ModelConfig, *, backend: Backend, device: torch.device, stacked: bool = False) -> None:
    """Refuse, in one line, a model that cannot run so."""
    demand(backend, model=model.name, device=device, stacked=stacked)
    fits = model.device in ("any", device.type)
    require(fits, f"{model.name} runs on a CUDA device alone, not on {device}")
    why = model.unworkable()
    require(not why, why)
