"""The preflight refuses what cannot run before a run begins."""

import pytest

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.train.workable import preflight
from chomsky_ladder.models.kernels import native
from support.small_runs import small


def test_a_kernel_that_does_not_stack_trains_runs_alone_and_no_pack() -> None:
    settings = Exec(backend="torch.lstm")
    assert preflight(small(), settings).type == "cpu"
    assert preflight(small(seeds=2), settings).type == "cpu", "two runs, one after the other"
    with pytest.raises(ValueError, match=r"^the backend torch\.lstm does not stack: leave exec\.pack at 1$"):
        preflight(small(seeds=2), settings, stacked=True)


def test_a_machine_without_a_compiler_says_once_that_it_is_slower(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(native, "missing", lambda: "RuntimeError: no C compiler on the PATH")
    for backend in ("reference", "auto", "auto"):
        preflight(small(), Exec(device="cpu", backend=backend))
    said = capsys.readouterr().err
    assert said == (
        "ladder: no kernels in C here (no C compiler on the PATH): plain torch does their work, more slowly\n"
    )
