"""The process in which Triton interprets says what a file printed, and what stopped one."""

from pathlib import Path

import pytest

from support.triton_kernels import interpreted, needs_triton

pytestmark = needs_triton


def test_a_file_that_fails_is_quoted_and_stops_no_other(tmp_path: Path) -> None:
    fails, passes = tmp_path / "fails.py", tmp_path / "passes.py"
    fails.write_text("raise ZeroDivisionError('in this file')\n")
    passes.write_text("import json, os, sys\nprint(json.dumps({sys.argv[1]: os.environ['TRITON_INTERPRET']}))\n")
    for _ in range(2):
        with pytest.raises(AssertionError, match="ZeroDivisionError: in this file"):
            interpreted(str(fails), [])
        assert interpreted(str(passes), ["one"]) == {"one": "1"}
