"""The fused LSTM, sLSTM, GRU and RNN equal their references: in Triton's interpreter, and on a GPU where there is one.

The interpreter works in a process of its own (tests/support/fused_recurrences.py); the tests read what that wrote of
each case.
"""

import json

import pytest
import torch

from support.cases import asked_for, some
from support.faults import Child
from support.fused_recurrences import CHECKED, CHECKS, Case, Cell, drawn, interpret, scan
from support.triton_kernels import needs_triton

pytestmark = needs_triton


@pytest.fixture(scope="module")
def interpreted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("interpreted")
    child = Child(folder, interpret, asked_for(request, test_interpreted_on_a_cpu), folder / "results")
    assert child.ended(within=600) == 0, child.said
    return dict(json.loads(line) for line in (folder / "results").read_text().splitlines())


@pytest.mark.each_time(1)
@pytest.mark.parametrize("name", some(CHECKS, always=CHECKED))
def test_interpreted_on_a_cpu(name: str, interpreted: dict[str, str]) -> None:
    assert interpreted[name] == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", CHECKS)
def test_on_a_gpu(name: str) -> None:
    check, *args = CHECKS[name]
    assert check(*args, "cuda") == ""


@pytest.mark.parametrize("cell", ["lstm", "slstm", "gru", "tanh"])
def test_double_precision_is_refused(cell: Cell) -> None:
    with pytest.raises(AssertionError, match=r"float64 is the reference's"):
        scan(Case(cell=cell), *(x.double() for x in drawn(Case(cell=cell), 0)), fused=True)
