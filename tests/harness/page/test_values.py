"""Numbers of the page's script, computed by Node: it rounds as the tables do."""

import json
import shutil
import subprocess

import pytest

from chomsky_ladder.harness.page.html import ASSETS
from chomsky_ladder.harness.tables.sheets import two_digits

VALUES = [-0.125, 0.125, 0.375, 0.065, 0.145, -0.375, 0.625, 1.0, 0.5, -0.0, -0.001, 0.005]
DATA = "const data = { classes: {}, families: {} };"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
def test_it_rounds_as_the_tables_do() -> None:
    asked = f"console.log(JSON.stringify({json.dumps(VALUES)}.map((value) => rounded(value))));"
    code = "\n".join([DATA, (ASSETS / "values.js").read_text("utf-8"), asked])
    done = subprocess.run(["node", "-e", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [two_digits(value) for value in VALUES]
