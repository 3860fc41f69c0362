"""The fused LSTM and sLSTM equal their references: in Triton's interpreter, and on a GPU where there is one.

The interpreter works in a process of its own (tests/support/fused_recurrences.py); the tests read what that printed for
each case.
"""

import json
import os
import subprocess
import sys

import pytest
import torch

from support import fused_recurrences
from support.cases import asked_for, some
from support.fused_recurrences import CHECKED, CHECKS, Case, Cell, drawn, needs_triton, scan

pytestmark = needs_triton


@pytest.fixture(scope="module")
def interpreted(request: pytest.FixtureRequest) -> dict[str, str]:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-P", fused_recurrences.__file__, *asked_for(request, test_interpreted_on_a_cpu)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", some(CHECKS, always=CHECKED))
def test_interpreted_on_a_cpu(name: str, interpreted: dict[str, str]) -> None:
    assert interpreted[name] == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", CHECKS)
def test_on_a_gpu(name: str) -> None:
    check, *args = CHECKS[name]
    assert check(*args, "cuda") == ""


@pytest.mark.parametrize("cell", ["lstm", "slstm"])
def test_double_precision_is_refused(cell: Cell) -> None:
    with pytest.raises(AssertionError, match=r"float64 is the reference's"):
        scan(Case(cell=cell), *(x.double() for x in drawn(Case(cell=cell), 0)), fused=True)
