"""torch's own recurrences off a CPU: what cuDNN says of a pack's weights, which are views, is not a run's to say."""

import warnings

import pytest
import torch
from torch import Tensor

from chomsky_ladder.models.operations.recurrent.torch_rnns import _called


def complaining(x: Tensor) -> Tensor:
    warnings.warn("RNN module weights are not part of single contiguous chunk of memory. This means ..", stacklevel=1)
    return x


def test_where_weights_lie_is_no_warning() -> None:
    x = torch.zeros(2, device="meta")  # stands for a GPU's
    assert _called(complaining, x) is x
    with pytest.warns(UserWarning, match="single contiguous chunk"):
        _called(complaining, torch.zeros(2))


def test_other_warnings_are_seen() -> None:
    def other(x: Tensor) -> Tensor:
        warnings.warn("something else", stacklevel=1)
        return x

    with pytest.warns(UserWarning, match="something else"):
        _called(other, torch.zeros(2, device="meta"))
