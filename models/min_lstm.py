"""minLSTM: an LSTM whose gates and candidate only depend on the input, with its two gates divided by their sum.

    f = sigmoid(W_f x + b_f)        i = sigmoid(W_i x + b_i)        c = g(W_h x + b_h)
    h_t = f / (f + i) h_{t-1} + i / (f + i) c_t

The rest, including g and its two forms, is minGRU's. Feng et al. 2024 (2410.01201). The shares are the sigmoids of log
i - log f and of its negative, so two closed gates cause no division by 0.
"""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import logsigmoid

from chomsky_ladder.models.base import register
from chomsky_ladder.models.min_gru import MinGRUConfig, MinimalRNN


class MinLSTM(MinimalRNN):
    gates = 2

    def opening(self, gates_BLG: Tensor) -> Tensor:
        forget_BLE, input_BLE = gates_BLG.chunk(2, dim=-1)
        return logsigmoid(input_BLE) - logsigmoid(forget_BLE)


@register
@dataclass(frozen=True, kw_only=True)
class MinLSTMConfig(MinGRUConfig):
    name, family, year, paper = "min_lstm", "linear recurrence", 2024, "2410.01201"
    title = "minLSTM"
    transition = "diagonal"

    def mixer(self, layer: int) -> MinimalRNN:
        return MinLSTM(self)
