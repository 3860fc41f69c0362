"""Views that read beyond their buffers are found in compiled code, and none in what is compiled here."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch._inductor.config
from torch._inductor.codecache import PyCodeCache

FOLDER = Path(__file__).parent
pytestmark = pytest.mark.full


@pytest.fixture
def compiled_views() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        import compiled_views

        yield compiled_views


MADE = "    buf8 = empty_strided_cuda((9, 256, 4, 39, 32), (1277952, 4992, 32, 128, 1), torch.bfloat16)\n"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (MADE + "    bmm(reinterpret_tensor(buf8, (9216, 39, 32), (1248, 32, 1), 0), x)", []),
        (
            MADE + "    bmm(reinterpret_tensor(buf8, (9216, 39, 32), (1280, 32, 1), 0), x)",
            ["buf8: 11,796,448 of 11,501,568"],
        ),
        (
            MADE + "    bmm(reinterpret_tensor(buf8, (9216, 39, 32), (1248, 32, 1), 1), x)",
            ["buf8: 11,501,569 of 11,501,568"],
        ),
        (
            MADE + "    buf9 = buf8; del buf8  # reuse\n    f(reinterpret_tensor(buf9, (2, 1), (11501568, 1), 0))",
            ["buf9: 11,501,569 of 11,501,568"],
        ),
        (
            MADE + "    buf9 = reinterpret_tensor(buf8, (9, 4), (4, 1), 0); del buf8  # reuse\n"
            "    f(reinterpret_tensor(buf9, (2, 1), (11501567, 1), 0))",
            [],
        ),
        (
            "    buf1 = empty_strided_cuda((0, 4), (4, 1), t)\n    f(reinterpret_tensor(buf1, (0, 8), (8, 1), 0))",
            [],
        ),
        ("    f(reinterpret_tensor(buf7, (9, 8), (8, 1), 0))", []),
    ],
)
def test_what_reads_too_far(compiled_views: ModuleType, code: str, found: list[str]) -> None:
    assert compiled_views.beyond(code) == found


def test_all_that_is_written_is_looked_at(compiled_views: ModuleType) -> None:
    code = MADE + "    bmm(reinterpret_tensor(buf8, (9216, 39, 32), (1280, 32, 1), 0), x)\n"
    with compiled_views.watched() as found:
        key, path = PyCodeCache.write(code)
        assert PyCodeCache.write("pass") != (key, path)
    PyCodeCache.write(code + " ")
    assert found == ["buf8: 11,796,448 of 11,501,568"] and Path(path).exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the compiler
def test_what_is_compiled_is_written_there(compiled_views: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    beyond = compiled_views.beyond
    monkeypatch.setattr(compiled_views, "beyond", lambda code: seen.append(code) or beyond(code))
    torch._dynamo.reset()
    x = torch.randn(3, 5, 7)
    with compiled_views.watched() as found, torch._inductor.config.patch(force_disable_caches=True):
        y = torch.compile(lambda x: (x.sin().transpose(1, 2) @ x.cos()).relu())(x)
    torch.testing.assert_close(y, (x.sin().transpose(1, 2) @ x.cos()).relu())
    assert found == [] and any("def call" in code for code in seen)
