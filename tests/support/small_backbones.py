"""The kinds of models that share the backbone, and how to start one and compare what it gives."""

import torch
from torch import Tensor

from chomsky_ladder.models.backbone import Backbone
from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import State
from chomsky_ladder.models.encoder import EncoderConfig
from chomsky_ladder.models.lstm import LSTMConfig
from chomsky_ladder.models.lstm_block import LSTMBlockConfig
from chomsky_ladder.models.moe import MoEConfig
from chomsky_ladder.models.transformer import TransformerConfig

VOCAB = 12
STEPWISE: tuple[type[ModelConfig], ...] = (LSTMConfig, LSTMBlockConfig, TransformerConfig, MoEConfig)
ALL = (*STEPWISE, EncoderConfig)


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def start(model: Backbone, batch: int, *, max_length: int = 8, dtype: torch.dtype = torch.float64) -> State:
    return model.init_state(batch, max_length=max_length, device=torch.device("cpu"), dtype=dtype)
