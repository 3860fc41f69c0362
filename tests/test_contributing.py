"""The examples of CONTRIBUTING.md are found as plugins, each under the name it registers."""

import json
import re
from pathlib import Path

from support.faults import Child

ROOT = Path(__file__).parents[1]
GUIDES = (ROOT / "CONTRIBUTING.md").read_text()
FOUND = """
import json
from chomsky_ladder.harness.config import registry
from chomsky_ladder.harness.figures.plot import ROOM as figures
from chomsky_ladder.harness.sweep.engines.base import ROOM as engines
from chomsky_ladder.harness.tables.kind import ROOM as tables
from chomsky_ladder.harness.train.metric import ROOM as metrics
from chomsky_ladder.models.kernels.kernel import KERNELS

for path in files:
    registry.load_plugin(path)
names = [name for room in (tables, figures, engines, metrics) for name in room.names()]
print(json.dumps([*names, *(kernel.name for kernel in KERNELS), *registry.problems()]))
"""


def test_every_example_is_found(tmp_path: Path) -> None:
    """Runs in its own process, because registered classes stay."""
    sources = [block for block in re.findall(r"```python\n(.*?)```", GUIDES, flags=re.DOTALL) if "register" in block]
    names = [re.findall(r'name="(\w+)"', source)[-1] for source in sources]
    assert len(names) == 5
    for name, source in zip(names, sources, strict=True):
        (tmp_path / f"{name}.py").write_text(source)
    files = [str(tmp_path / f"{name}.py") for name in names]
    found = Child(tmp_path / "notes", exec, FOUND, {"files": files})
    assert found.ended() == 0, found.said
    assert set(names) <= set(json.loads(found.said))


def test_every_file_it_names_is_there() -> None:
    named = re.findall(r"\]\(([\w./]+)(?:#[\w-]+)?\)", GUIDES)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []
