"""Kernels in C: compiled once, in any home, by whoever comes first; without a compiler the models do without."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from chomsky_ladder.models.base import ModelConfig
from chomsky_ladder.models.block import Backend, Context
from chomsky_ladder.models.comba import CombaConfig
from chomsky_ladder.models.delta_net import DeltaNetConfig
from chomsky_ladder.models.dnc import DNCConfig
from chomsky_ladder.models.fox import FoXConfig
from chomsky_ladder.models.gated_delta_net2 import GatedDeltaNet2Config
from chomsky_ladder.models.gated_delta_product import GatedDeltaProductConfig
from chomsky_ladder.models.gated_slot_attention import GatedSlotAttentionConfig
from chomsky_ladder.models.h3 import H3Config
from chomsky_ladder.models.hyena import HyenaConfig
from chomsky_ladder.models.kda import KDAConfig
from chomsky_ladder.models.kernels import choose as _choose
from chomsky_ladder.models.kernels import native as _native
from chomsky_ladder.models.kernels import native_library as _library
from chomsky_ladder.models.m2rnn import M2RNNConfig
from chomsky_ladder.models.mamba import MambaConfig
from chomsky_ladder.models.mamba2 import Mamba2Config
from chomsky_ladder.models.mamba3 import Mamba3Config
from chomsky_ladder.models.mesa_net import MesaNetConfig
from chomsky_ladder.models.min_gru import MinGRUConfig
from chomsky_ladder.models.ntm import NTMConfig
from chomsky_ladder.models.operations.scan import CHUNK
from chomsky_ladder.models.operations.slstm.in_c import native_slstm_scan
from chomsky_ladder.models.operations.slstm.reference import slstm_scan, slstm_start
from chomsky_ladder.models.path_attention import PaTHConfig
from chomsky_ladder.models.pd_ssm import PDSSMConfig
from chomsky_ladder.models.rwkv6 import RWKV6Config
from chomsky_ladder.models.rwkv7 import RWKV7Config
from chomsky_ladder.models.s4 import S4Config
from chomsky_ladder.models.slice import SLiCEConfig
from chomsky_ladder.models.stack_rnn import StackRNNConfig
from chomsky_ladder.models.tape_rnn import TapeRNNConfig
from chomsky_ladder.models.titans import TitansConfig
from chomsky_ladder.models.transformer import TransformerConfig
from chomsky_ladder.models.xlstm import XLSTMConfig
from chomsky_ladder.models.xlstm_large import XLSTMLargeConfig
from support.cases import full
from support.layers import close

torch.set_num_threads(1)

HURRIED = ("-O0", "-shared", "-fPIC")
NAMES = ("native_mlstm", "native_slstm")
IN_ANY = {"native_gate", "native_norm"}  # what layers of many models take
needs_a_compiler = pytest.mark.skipif(bool(_native.missing()), reason=_native.missing())


@pytest.fixture
def afresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a process that has not compiled anything yet, and in a hurry."""
    monkeypatch.setattr(_library, "FLAGS", HURRIED)
    caches = (_native.missing, _native.kernel, _native._library, _native.lanes)
    for cache in caches:
        cache.cache_clear()
    _choose._candidates.clear()
    yield
    for cache in caches:
        cache.cache_clear()
    _choose._candidates.clear()


def taken(ratio: str, backend: Backend = "auto") -> set[str]:
    ctx = Context(backend=backend)
    XLSTMConfig(d_model=16, num_blocks=2, ratio=ratio).build(5)(torch.zeros(1, 3, dtype=torch.int64), ctx)
    return ctx.backends


@pytest.mark.parametrize(
    ("compiler", "said"),
    [
        ("", "no C compiler on the PATH"),
        ("no-such-compiler", "no-such-compiler"),
        ("false --really", "false failed"),
        ('cc "-O2', "No closing quotation"),
    ],
)
def test_without_a_compiler_that_works(
    compiler: str, said: str, afresh: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setattr(_library.shutil, "which", lambda name: None)
    assert said in _native.missing() and "\n" not in _native.missing()
    assert taken("1:1") == {"fused_mlstm", "fused_slstm"} and not _native.identity()
    for name in NAMES:
        with pytest.raises(ValueError, match=f"the backend {name} cannot run here: .*{said}"):
            _choose.demand(name, model="xlstm", device=torch.device("cpu"))


def test_a_compiler_that_fails_is_quoted(afresh: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "cc"
    script.write_text('#!/bin/sh\necho "cc: error: unrecognised option" >&2\nexit 1\n')
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    assert _native.missing() == f"RuntimeError: {script} failed: cc: error: unrecognised option"


@pytest.mark.parametrize(("needs", "serves"), [(set[str](), True), ({"what no processor has"}, False)])
def test_a_wheels_library_serves_where_no_compiler_is(
    needs: set[str], serves: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", "/bin/false")
    monkeypatch.setattr(_library, "PREBUILT", tmp_path)
    monkeypatch.setattr(_library, "KINDS", {platform.machine(): ("any", needs)})
    brought = tmp_path / f"{platform.machine()}-float-0123.so"
    brought.touch()
    (tmp_path / "vax-float-0123.so").touch()
    if serves:
        with _library.library("float") as file:
            assert file == brought
    else:
        with pytest.raises(RuntimeError, match="/bin/false failed"), _library.library("float"):
            pass


@pytest.mark.full
@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler on the PATH")
def test_libraries_for_a_wheel_give_what_those_of_this_processor_give(tmp_path: Path) -> None:
    """The cases of all operations pass with them, where the compiler fails."""
    room = tmp_path / "prebuilt"
    root = Path(_native.__file__).parents[3]
    subprocess.run([sys.executable, _library.__file__, str(room)], check=True, timeout=580)
    assert sorted(file.name.rpartition("-")[0] for file in room.iterdir()) == [
        f"{platform.machine()}-{real}" for real in sorted(_library.REALS)
    ]
    code = f"""
import sys, pytest
from pathlib import Path
from chomsky_ladder.models.kernels import native, native_library
native_library.PREBUILT = Path({str(room)!r})
assert native.missing() == "" and native.identity().startswith("{platform.machine()}-float-")
sys.exit(pytest.main(["-q", "-n0", "-p", "no:cacheprovider", "tests/models/operations/test_in_c.py"]))
"""
    environment = os.environ | {"CC": "/bin/false", "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler on the PATH")
def test_where_there_is_a_compiler_there_are_kernels() -> None:
    """All tests of kernels are left out where there are none: a source that does not compile must fail one."""
    assert _native.missing() == ""


@pytest.mark.full
@needs_a_compiler
def test_what_is_compiled_is_kept(
    afresh: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not" / "there"))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert not _native.missing()
    assert _native.identity()
    (kept,) = (tmp_path / "not" / "there" / "chomsky-ladder").iterdir()
    before = kept.stat()
    _native._library.cache_clear()
    _native.missing.cache_clear()
    assert not _native.missing() and kept.stat() == before
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1, "one line, which the bar grows in"
    count = len(_library.SOURCES)
    assert shown.split("\r")[-1] == f"{_library.SAYS}: [{'#' * 20}] {count}/{count}\n"
    monkeypatch.setattr(_library, "FLAGS", (*_library.FLAGS, "-DANOTHER"))
    _native._library.cache_clear()
    _native._library(torch.float32)
    assert len(list(kept.parent.iterdir())) == 2, "other flags make another library"
    assert _native.identity() != kept.stem


@pytest.mark.full
@needs_a_compiler
@pytest.mark.parametrize("home", ["a file", full("none")])
def test_a_home_that_keeps_nothing(home: str, afresh: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    if home == "none":
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert not _native.missing()
    assert "native_slstm" in taken("0:1")


def test_the_library_needs_nothing_but_python(tmp_path: Path) -> None:
    """What an environment begins before its packages are there: both precisions, under the names that are asked for."""
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\nwhile [ $# -gt 1 ]; do [ "$1" = -o ] && : > "$2"; shift; done\n')
    compiler.chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "CC": str(compiler), "XDG_CACHE_HOME": str(tmp_path)}
    words = [sys.executable, "-I", "-S", _library.__file__]
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and set(done.stderr.splitlines()) <= {_library.SAYS}
    made = {path.name for path in (tmp_path / "chomsky-ladder").iterdir()}
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CC", "XDG_CACHE_HOME"):
            patch.setenv(name, environment[name])
        patch.setattr(_library, "_compile", None)  # all there is to find
        for real in _library.REALS:
            with _library.library(real) as path:
                assert path.name in made
    assert len(made) == 2


@pytest.mark.full
@needs_a_compiler
def test_processes_that_compile_at_once(tmp_path: Path) -> None:
    """Each source is compiled once for either precision: who comes second waits."""
    compiler, made = tmp_path / "cc", tmp_path / "made"
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *" -c "*) echo "$*" >> {made};; esac\nexec cc "$@"\n')
    compiler.chmod(0o755)
    code = "import torch; from chomsky_ladder.models.kernels import native, native_library; "
    code += (
        f"native_library.FLAGS = {HURRIED}; assert not native.missing(); native.kernel('slstm_forward', torch.float64)"
    )
    environment = os.environ | {"CC": str(compiler), "XDG_CACHE_HOME": str(tmp_path)}
    environment |= {"PYTHONPATH": str(Path(_native.__file__).parents[3])}
    started = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(2)]
    assert [process.wait(timeout=120) for process in started] == [0, 0]
    assert len(list((tmp_path / "chomsky-ladder").iterdir())) == 2, "one library for float and one for double"
    assert len(made.read_text().splitlines()) == 2 * len(_library.SOURCES)


@needs_a_compiler
def test_tracing_compilers_and_other_precisions_go_without(monkeypatch: pytest.MonkeyPatch) -> None:
    x_BLD = torch.zeros(1, 2, 4)
    for name in NAMES:
        assert _choose.usable(name, x_BLD, Context())
        assert not _choose.usable(name, x_BLD.bfloat16(), Context())
        assert not _choose.usable(name, x_BLD.to("meta"), Context())
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not any(_choose.usable(name, x_BLD, Context()) for name in NAMES)


@needs_a_compiler
def test_a_kernel_by_name_is_the_only_one_taken() -> None:
    assert taken("1:1") == set(NAMES)
    assert taken("1:1", "native_slstm") == {"fused_mlstm", "native_slstm"}
    assert taken("1:1", "fused_slstm") == {"fused_mlstm", "fused_slstm"}
    with pytest.raises(ValueError, match="the backend native_slstm needs a CPU, not cuda"):
        _choose.demand("native_slstm", model="xlstm", device=torch.device("cuda"))


@needs_a_compiler
def test_single_precision_is_as_good_as_torchs() -> None:
    """Against the same in float64; gates of all sizes, so that every range of e^x and log(1 + x) is met."""
    torch.manual_seed(0)
    x, W = torch.randn(8, 50, 3, 5, dtype=torch.float64), torch.randn(3, 28, 5, dtype=torch.float64)
    R, b = torch.randn(3, 28, 7, dtype=torch.float64), 8 * torch.randn(3, 28, dtype=torch.float64)
    found = {}
    for name, scan, dtype in (
        ("exact", slstm_scan, torch.float64),
        ("torch", slstm_scan, torch.float32),
        ("ours", native_slstm_scan, torch.float32),
    ):
        inputs = [part.to(dtype).requires_grad_() for part in (x, W, R, b)]
        start = slstm_start(8, 3, 7, device=x.device, dtype=dtype)
        h_BLHK, _ = scan((inputs[0],), start, tuple(inputs[1:]))
        found[name] = [h_BLHK, *torch.autograd.grad(h_BLHK.square().sum(), inputs)]
    for exact, theirs, ours in zip(*found.values(), strict=True):
        assert (ours - exact).abs().max() < 3 * (theirs - exact).abs().max()
        assert (ours - exact).abs().mean() < 2 * (theirs - exact).abs().mean()


SHIFTS = ("native_token_shifts", "native_squared_relu")
MODELS: dict[str, tuple[ModelConfig, set[str]]] = {
    "xlstm[1:0]": (XLSTMConfig(d_model=20, num_heads=2, num_blocks=2, ratio="1:0"), {"native_mlstm"}),
    "xlstm[0:1]": (XLSTMConfig(d_model=22, num_heads=2, num_blocks=2, ratio="0:1"), {"native_slstm"}),
    "xlstm[0:1] convolved": (
        XLSTMConfig(d_model=22, num_heads=2, num_blocks=2, ratio="0:1", conv="causal4"),
        {"native_slstm", "native_conv"},
    ),
    "xlstm_large": (XLSTMLargeConfig(d_model=24, num_heads=2, num_blocks=2), {"native_delta"}),
    "mamba": (MambaConfig(d_model=11, num_blocks=2), {"native_scan", "native_silu_conv"}),
    "mamba signed": (MambaConfig(d_model=11, num_blocks=2, eigenvalues="signed"), {"native_scan", "native_silu_conv"}),
    "mamba2": (Mamba2Config(d_model=11, num_blocks=2, head_dim=11, d_state=5), {"native_ssd", "native_silu_conv"}),
    "mamba3": (Mamba3Config(d_model=11, num_blocks=2, head_dim=11, d_state=12), {"native_ssd"}),
    "mamba3 of rank 3": (
        Mamba3Config(d_model=11, num_blocks=2, head_dim=11, d_state=12, mimo_rank=3),
        {"native_ssd"},
    ),
    "m2rnn": (M2RNNConfig(d_model=22, num_heads=2, num_blocks=2), {"native_matrix_rnn", "native_silu_conv"}),
    "mesa_net": (MesaNetConfig(d_model=22, num_heads=2, num_blocks=2), {"native_mesa", "native_silu_conv"}),
    "min_gru": (MinGRUConfig(d_model=13, num_blocks=2), {"native_conv"}),
    "gated_slot_attention": (
        GatedSlotAttentionConfig(d_model=22, num_heads=2, num_slots=17, num_blocks=2),
        {"native_slots", "native_delta"},
    ),
    "kda": (KDAConfig(d_model=22, num_heads=2, num_blocks=2), {"native_unit_delta", "native_silu_conv"}),
    "gated_delta_product": (
        GatedDeltaProductConfig(d_model=22, num_heads=2, num_blocks=2, eigenvalues="signed"),
        {"native_unit_delta", "native_silu_conv"},
    ),
    "delta_net": (DeltaNetConfig(d_model=22, num_heads=2, num_blocks=2), {"native_unit_delta", "native_silu_conv"}),
    "gated_delta_net2": (
        GatedDeltaNet2Config(d_model=22, num_heads=2, num_blocks=2),
        {"native_unit_delta", "native_silu_conv"},
    ),
    "comba": (CombaConfig(d_model=22, num_heads=2, num_blocks=2), {"native_unit_delta", "native_silu_conv"}),
    "rwkv6": (RWKV6Config(d_model=22, num_heads=2, num_blocks=2), {"native_delta", *SHIFTS}),
    "rwkv7": (RWKV7Config(d_model=22, num_heads=2, num_blocks=2), {"native_goose", *SHIFTS}),
    "s4": (S4Config(d_model=13, d_state=10, num_blocks=2), {"native_space", "native_long_conv"}),
    "h3": (H3Config(d_model=13, d_state=6, num_blocks=2), {"native_space", "native_long_conv"}),
    "hyena": (HyenaConfig(d_model=13, num_blocks=2), {"native_conv", "native_long_conv"}),
    "stack_rnn": (StackRNNConfig(d_model=13, num_stacks=2, stack_cell=3, stack_depth=9), {"native_moves"}),
    "tape_rnn": (TapeRNNConfig(d_model=13, num_tapes=2, tape_cell=3, tape_cells=9), {"native_moves"}),
    "ntm": (NTMConfig(d_model=13, num_heads=2, memory_rows=9, memory_width=5), {"native_turing"}),
    "dnc": (DNCConfig(d_model=13, num_reads=2, memory_rows=9, memory_width=5), {"native_linked"}),
    "titans": (TitansConfig(d_model=22, num_heads=2, num_blocks=2), {"native_momentum", "native_silu_conv"}),
    "slice": (SLiCEConfig(d_model=12, num_blocks=2), {"native_block_steps"}),
    "transformer": (TransformerConfig(d_model=36, num_heads=2, num_blocks=2), {"native_attention"}),
    "fox": (FoXConfig(d_model=22, num_heads=2, num_blocks=2), {"native_attention"}),
    "path_attention": (PaTHConfig(d_model=22, num_heads=2, num_blocks=2), {"native_path", "native_silu_conv"}),
    "pd_ssm": (PDSSMConfig(d_model=13, d_state=11, num_blocks=2), {"native_one_hot"}),
    "pd_ssm scatter": (PDSSMConfig(d_model=13, d_state=11, num_blocks=2, form="scatter"), {"native_one_hot"}),
}


@needs_a_compiler
@pytest.mark.parametrize("name", MODELS)
def test_models_in_single_precision_are_as_good_as_torchs(name: str) -> None:
    as_good_as_torchs(name)


@pytest.mark.full
@needs_a_compiler
@pytest.mark.parametrize("lanes", [4, full(8), full(16)])
def test_with_vectors_of_any_processor(
    lanes: int, afresh: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Wider ones than there are here compilers take apart."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(_library, "FLAGS", (*HURRIED, f"-DLANES={lanes}"))
    assert _native.lanes(torch.float32) == _native.lanes(torch.float64) == lanes
    for name in MODELS:
        as_good_as_torchs(name)


@needs_a_compiler
def test_vectors_are_as_wide_as_the_processors() -> None:
    """Of wider ones a step takes up to nine times as long; of narrower ones twice."""
    bits = {"AVX512": 512, "AVX2": 256}.get(torch.backends.cpu.get_cpu_capability())
    if bits is None:
        pytest.skip("a processor whose vectors torch has no name for")
    assert [_native.lanes(dtype) for dtype in (torch.float32, torch.float64)] == [bits // 32, bits // 64]


def as_good_as_torchs(name: str) -> None:
    """Outputs and the gradients of all weights; the widths fill no vector, and the scan has more than one chunk."""
    config, kernels = MODELS[name]
    torch.manual_seed(0)
    length = 197 if kernels == {"native_mlstm"} else CHUNK + 6  # behind the sanitizers a thousand take minutes
    model, tokens_BL = config.build(5), torch.randint(5, (3, length))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    found = []
    for dtype, backend in ((torch.float64, "reference"), (torch.float32, "reference"), (torch.float32, "auto")):
        ctx = Context(backend=backend)
        logits_BLV = model.to(dtype)(tokens_BL, ctx)
        loss = (logits_BLV * torch.linspace(-1, 1, logits_BLV.numel(), dtype=dtype).view_as(logits_BLV)).sum()
        found.append([logits_BLV, *torch.autograd.grad(loss, list(model.parameters()))])
    assert ctx.backends - IN_ANY == kernels
    # Torch's own error in one small bias may be small by luck: its worst in the model counts, too.
    worst = max((theirs - exact).abs().max() / exact.abs().max() for exact, theirs, _ in zip(*found, strict=True))
    for exact, theirs, ours in zip(*found, strict=True):
        allowed = 4 * (theirs - exact).abs().max() + max(1e-6, 2 * float(worst)) * exact.abs().max()
        assert (ours - exact).abs().max() <= allowed


@needs_a_compiler
@pytest.mark.parametrize("ratio", ["1:0", "0:1"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_no_number_stays_none(ratio: str, dtype: torch.dtype) -> None:
    """From its position on, and, as in plain torch, before it where weights of 0 multiply it; not in other strings."""
    layer = XLSTMConfig(d_model=32, num_blocks=1, ratio=ratio).block(0).layers[0].to(dtype)
    x_BLD = torch.randn(3, 20, 32, dtype=dtype)
    whole = layer(x_BLD, Context(backend="reference"))
    x_BLD[1, 7] = torch.nan
    y_BLD = layer(x_BLD, Context())
    assert bool(y_BLD[1, 7:].isnan().all())
    close(y_BLD[0], whole[0], 1e-4)
    if ratio == "0:1":
        close(y_BLD[1, :7], whole[1, :7], 1e-4)
