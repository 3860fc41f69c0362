"""The kinds of models that share the backbone, and how to start one and compare what it gives."""

import torch
from torch import Tensor

from models.backbone import Backbone
from models.base import ModelConfig
from models.block import State
from models.encoder import EncoderConfig
from models.lstm import LSTMConfig
from models.lstm_block import LSTMBlockConfig
from models.moe import MoEConfig
from models.transformer import TransformerConfig

VOCAB = 12
STEPWISE: tuple[type[ModelConfig], ...] = (LSTMConfig, LSTMBlockConfig, TransformerConfig, MoEConfig)
ALL = (*STEPWISE, EncoderConfig)


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def start(model: Backbone, batch: int, *, max_length: int = 8, dtype: torch.dtype = torch.float64) -> State:
    return model.init_state(batch, max_length=max_length, device=torch.device("cpu"), dtype=dtype)
