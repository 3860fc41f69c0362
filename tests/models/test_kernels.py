"""Kernels: how one is chosen, that none is taken silently, and on a GPU that they equal their references."""

import pkgutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.config.registry import all_models
from chomsky_ladder.harness.train.compiled import unwarned
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels import choose as _choose
from chomsky_ladder.models.kernels.kernel import KERNELS, Kernel, cuda_module, register
from chomsky_ladder.models.layers.convolution import ShortConvolution
from chomsky_ladder.models.operations.mlstm.mlstm_kernels_package import mlstm_scan
from chomsky_ladder.models.operations.mlstm.reference import mlstm_chunks, mlstm_start
from chomsky_ladder.models.operations.scan import selective_scan
from chomsky_ladder.models.operations.scan.mamba_ssm_package import mamba_scan
from chomsky_ladder.models.operations.slstm import xlstm_package as _xlstm_slstm
from chomsky_ladder.models.operations.slstm.reference import slstm_scan, slstm_start
from chomsky_ladder.models.transformer import TransformerConfig

CPU = torch.device("cpu")


def missing(name: str) -> str:
    return _choose.named(name).missing()


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(bool(missing(name)), reason=f"{name}: {missing(name)}")


def test_every_kernel_serves_registered_models() -> None:
    assert {model for kernel in _choose.available() for model in kernel.serves} <= set(all_models())


def test_their_order_is_that_of_the_fingerprints_of_records() -> None:
    assert [kernel.name for kernel in _choose.available()] == [
        *("torch.lstm", "torch.rnn", "torch.gru", "torch.sdpa", "fused_mlstm", "fused_slstm", "fused_scan"),
        *(
            "native_adamw",
            "native_linked",
            "native_moves",
            "native_turing",
            "native_long_conv",
            "native_fast_weights",
            "native_path",
            "native_momentum",
            "native_slots",
            "native_block_steps",
            "native_matrix_rnn",
            "native_rnn",
            "native_gru",
            "native_lstm",
            "native_deltaformer",
            "native_token_shifts",
            "native_squared_relu",
            "native_sticks",
            "native_gate",
            "native_norm",
            "native_scan",
            "native_conv",
            "native_silu_conv",
            "native_mlstm",
            "native_slstm",
            "native_delta",
            "native_unit_delta",
            "native_goose",
            "native_space",
        ),
        *("native_one_hot", "native_ssd", "native_attention", "native_mesa"),
        *("mamba_ssm", "triton_lstm", "triton_slstm", "triton_delta", "xlstm_slstm", "triton_scan", "causal_conv1d"),
        *("mlstm_kernels", "triton_diagonal", "triton_one_hot", "triton_rnn", "triton_gru"),
        *(
            "triton_matrix_rnn",
            "triton_mlstm",
            "triton_silu_conv",
            "triton_wkv",
            "triton_mesa",
            "triton_decayed",
            "triton_block_steps",
            "triton_slots",
            "triton_momentum",
            "triton_fast_weights",
            "triton_turing",
            "triton_linked",
            "triton_turing_machine",
            "triton_linked_machine",
            "triton_path",
            "triton_stack_machine",
            "triton_tape_machine",
        ),
    ]


def test_every_kernel_is_held_to_one_reference_of_its_operation() -> None:
    references: dict[str, object] = {}
    for kernel in KERNELS:
        form = pkgutil.resolve_name(kernel.reference)
        assert callable(form) and references.setdefault(kernel.computes, form) is form


def test_models_find_their_kernels_without_the_harness() -> None:
    code = "import sys, torch; from chomsky_ladder.models.mamba import MambaConfig as Config\n"
    code += "from chomsky_ladder.models.block import Context; ctx = Context(backend='fused_scan')\n"
    code += "Config.tiny().build(5)(torch.zeros(1, 3, dtype=torch.int64), ctx)\n"
    code += "print(*ctx.backends, *(name for name in sys.modules if name == 'triton' or 'harness' in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "fused_scan\n"


def test_plain_backends_are_never_refused() -> None:
    for backend in ("auto", "reference"):
        _choose.demand(backend, model="lstm", device=CPU)


@pytest.mark.parametrize("name", ["mamba_ssm", "causal_conv1d", "mlstm_kernels"])
def test_a_kernel_asked_for_by_name_is_refused_with_its_reason(name: str) -> None:
    with pytest.raises(ValueError, match=f"the backend {name} (cannot run here: .+|needs a CUDA device, not cpu)"):
        _choose.demand(name, model="mamba", device=CPU)


def test_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("here a kernel may run")
    assert main(["run", "parity", "mamba", "--exec.backend", "mamba_ssm"]) == 2
    assert capsys.readouterr().err == "ladder: the backend mamba_ssm cannot run here: no CUDA device\n"


def test_no_kernel_for_cuda_is_taken_on_a_cpu() -> None:
    for name in ("mamba_ssm", "causal_conv1d", "mlstm_kernels"):
        assert not _choose.usable(name, torch.zeros(2), Context())


def doubled(x: Tensor) -> Tensor:
    return 2 * x


def kernel(name: str, **settings: Any) -> Kernel:
    """One of an operation of this file's."""
    plain = {"computes": "doubling", "reference": doubled, "call": doubled, "serves": ("lstm",), "device": "any"}
    return register(Kernel(name=name, **{**plain, **settings}))


def taken(x: Tensor, backend: str = "auto", **settings: Any) -> str:
    ctx = Context(backend=backend, **settings)
    found = _choose.chosen("doubling", x, ctx)
    assert ctx.backends == ({found.name} if found else set())
    return found.name if found else ""


def test_an_operation_without_kernels_is_left_to_its_plain_form() -> None:
    assert taken(torch.zeros(2)) == ""


def test_the_highest_rank_that_takes_a_tensor_is_chosen() -> None:
    x = torch.zeros(2)
    kernel("plain", when="always", rank=0, stacks=True)
    kernel("small", rank=10, dtypes=(torch.float32,), takes=lambda x, ctx: len(x) < 3)
    assert taken(x) == "small"
    assert taken(torch.zeros(3)) == taken(x.double()) == taken(x, stacked=True) == "plain"
    kernel("elsewhere", device="cuda")
    kernel("absent", missing=lambda: "nobody has it")
    assert taken(x) == "small"
    kernel("mine")
    assert taken(x) == taken(x.double()) == "mine" and taken(x, stacked=True) == "plain"


def test_one_that_does_more_gives_way_to_a_part_of_higher_rank() -> None:
    x = torch.zeros(2)
    whole = kernel("whole", computes="doubling twice", rank=20)
    kernel("ours", rank=20)
    for part, found in ((None, whole), (30, None)):
        if part:
            kernel("a plugin's", rank=part)
        ctx = Context()
        assert _choose.chosen("doubling twice", x, ctx, inside=("doubling",)) is found
        assert ctx.backends == ({"whole"} if found else set())


def test_one_of_any_models_layers_is_not_to_be_named() -> None:
    """A model without such layers would run without it, and nobody would know."""
    kernel("everyones", serves=())
    assert taken(torch.zeros(2)) == "everyones"
    with pytest.raises(ValueError, match="everyones is taken by layers of any model under the backend auto"):
        _choose.demand("everyones", model="lstm", device=CPU)


def test_which_kernels_a_backend_admits() -> None:
    x = torch.zeros(2)
    kernel("plain", when="always", rank=0)
    kernel("slow", when="named", rank=20)
    kernel("fast", rank=10)
    backends = {"auto": "fast", "plain": "plain", "slow": "slow", "fast": "fast", "native_scan": "plain"}
    assert {backend: taken(x, backend) for backend in backends} == backends
    assert taken(x, "reference") == ""


def test_why_a_kernel_is_missing_is_asked_when_needed_and_once() -> None:
    asked = []
    found = kernel("absent", missing=lambda: asked.append(1) or "nobody has it")
    assert taken(torch.zeros(2), "reference") == "" and not asked
    for size in (2, 3):
        assert taken(torch.zeros(size)) == taken(torch.zeros(size).double()) == ""
    with pytest.raises(ValueError, match="the backend absent cannot run here: nobody has it"):
        _choose.demand("absent", model="lstm", device=CPU)
    assert found.missing() == "nobody has it" and asked == [1]


def test_a_kernel_whose_name_is_taken_is_passed_over() -> None:
    kernel("twin", call=abs)
    newer = kernel("twin", call=doubled)  # registered by the same module: the older one's newer self
    assert _choose.named("twin") is newer
    KERNELS.append(replace(newer, module="of_somebody_else"))
    assert _choose.named("twin") is newer and _choose.available().count(newer) == 1


@pytest.mark.parametrize("settings", [{"name": "auto"}, {"name": None}, {"call": "doubled"}, {"missing": ""}])
def test_a_kernel_that_nothing_could_take_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="kernel"):
        kernel(**{"name": "odd", **settings})


@pytest.mark.parametrize("name", sorted({*all_models()} - {"hybrid", "autoencoder"}))  # which take what others take
def test_what_a_model_takes_is_known_to_serve_it(name: str) -> None:
    model, ctx = all_models()[name][0].tiny().build(7), Context()
    model(torch.ones(2, 9, dtype=torch.int64), ctx)
    by_name = {kernel.name: kernel for kernel in _choose.available()}
    for taken in ctx.backends & by_name.keys():
        assert by_name[taken].serving([name]) and not by_name[taken].missing()


def leaves(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).cuda().requires_grad_() for shape in shapes]


def agree(ours: torch.Tensor, theirs: torch.Tensor, inputs: list[torch.Tensor], *, tolerance: float) -> None:
    """Outputs and the gradients of a fixed weighting of them, relative to the largest entry."""
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1)).cuda()
    pairs = [(ours, theirs)]
    pairs += zip(*(torch.autograd.grad((y * weights).sum(), inputs) for y in (ours, theirs)), strict=True)
    for one, other in pairs:
        one, other = one.detach(), other.detach()
        assert float((one - other).abs().max()) <= tolerance * max(1.0, float(other.abs().max()))


@pytest.mark.parametrize("name", ["mamba_ssm", "causal_conv1d", "mlstm_kernels", "xlstm_slstm"])
def test_packages_of_others_are_taken_by_name_alone(name: str) -> None:
    """They round otherwise than what packs train with, so that a run would be scored by another model."""
    kernel = _choose.named(name)
    assert kernel.when == "named" and (torch.float64 not in kernel.dtypes or name == "xlstm_slstm")


@pytest.mark.parametrize("stacked", [False, True])
def test_one_kernel_trains_and_scores(stacked: bool) -> None:
    """Alone, stacked and in scoring the LSTM of a GPU is the same one."""
    assert _choose.named("triton_lstm").takes(torch.zeros(2, 3, 128), Context(stacked=stacked))
    assert not _choose.named("triton_lstm").takes(torch.zeros(2, 3, 512), Context(stacked=stacked))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([], "no nvcc"),
        (["bin/nvcc"], "no header of cuBLAS"),
        (["bin/nvcc", "include/cublas_v2.h"], "no libcublas.so"),
        (["bin/nvcc", "include/cublas_v2.h", "lib64/libcublas.so"], ""),
        (["bin/nvcc", "targets/x86_64-linux/include/cublas_v2.h", "targets/x86_64-linux/lib/libcublas.so"], ""),
    ],
)
def test_what_compiles_at_run_time_asks_for_a_whole_toolkit(
    files: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch(mode=0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    found = _xlstm_slstm.no_toolkit()
    assert found.startswith(said) and bool(found) == bool(said)


@pytest.mark.parametrize("built", [True, False])
def test_a_package_built_without_its_kernel_is_missing(built: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """mamba-ssm is such a package unless it is told to keep its CUDA: it imports, and the first step fails."""
    package = ModuleType("half_built")
    package.scan_cuda = (lambda: None) if built else None  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "half_built", package)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    said = cuda_module("half_built", needs="scan_cuda")()
    assert said == ("" if built else "half_built was built without scan_cuda")


def test_causal_conv1d_says_what_it_cannot_take() -> None:
    with pytest.raises(ValueError, match="takes a convolution of 2 to 4 positions, not 5"):
        _choose.named("causal_conv1d").call(torch.zeros(1, 3, 8), torch.zeros(8, 5), None)
    takes = _choose.named("causal_conv1d").takes
    assert takes(torch.zeros(1, 3, 16), Context()) and not takes(torch.zeros(1, 3, 12), Context())


@pytest.mark.gpu
@needs("mamba_ssm")
@pytest.mark.parametrize("length", [1, 17, 64, 130])
def test_mamba_ssm_equals_the_scan(length: int) -> None:
    x, dt, A, B, C, D = leaves((3, length, 8), (3, length, 8), (8, 4), (3, length, 4), (3, length, 4), (8,))
    step, decay = torch.nn.functional.softplus(dt), -A.exp()
    theirs = mamba_scan(x, step, decay, B, C, D)
    ours = selective_scan(x, step, decay, B, C, D, None, signed=False, ctx=Context(backend="reference"))[0]
    agree(ours, theirs, [x, dt, A, B, C, D], tolerance=1e-4)


@pytest.mark.gpu
@needs("causal_conv1d")
@pytest.mark.parametrize("length", [1, 3, 64])
def test_causal_conv1d_equals_the_shifted_sums(length: int) -> None:
    layer = ShortConvolution(16).cuda()
    (x,) = leaves((3, length, 16))
    theirs = _choose.named("causal_conv1d").call(x, layer.weight, layer.bias)
    agree(layer(x), theirs, [x, layer.weight, layer.bias], tolerance=1e-5)


@pytest.mark.gpu
@needs("mlstm_kernels")
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # of the package's own torch.compile
@pytest.mark.parametrize("length", [64, 130])
def test_mlstm_kernels_equal_the_chunks(length: int) -> None:
    """Behind a norm: what goes back through n . q, which only scales a head, the package leaves out."""
    q, k, v, i, f = given = leaves(*[(2, 2, length, 64)] * 3, *[(2, 2, length)] * 2)
    start = mlstm_start(2, 2, 64, 64, device=q.device, dtype=q.dtype)
    both = mlstm_chunks(q, k / 8, v, i, f, start)[0], mlstm_scan(q, k / 8, v, i, f)
    ours, theirs = (torch.nn.functional.rms_norm(y, (64,)) for y in both)
    agree(ours, theirs, given, tolerance=2e-2)  # the kernel works in bf16


class _PublishedCell:
    """The published recurrence in the layout of the package's extension: states h, c, n, m; R as [H, K, G]."""

    @staticmethod
    def apply(training: bool, gates_LBG: Tensor, states_4BD: Tensor, R_HKG: Tensor, b_G: Tensor) -> Tensor:
        heads, inner, _ = R_HKG.shape
        h, c, n, m = states_4BD
        states = [states_4BD]
        for gates_BG in gates_LBG:
            read = torch.einsum("bhk,hkg->bhg", h.unflatten(1, (heads, inner)), R_HKG).flatten(1)
            i, f, z, o = (x.flatten(1) for x in (gates_BG + read + b_G).unflatten(1, (heads, 4, inner)).unbind(2))
            kept = torch.nn.functional.logsigmoid(f) + m
            m = torch.where(n == 0, i, torch.maximum(i, kept))
            c, n = (torch.exp(kept - m) * old + torch.exp(i - m) * new for old, new in ((c, torch.tanh(z)), (n, 1)))
            h = torch.sigmoid(o) * c / n
            states.append(torch.stack([h, c, n, m]))
        return torch.stack(states, 1)


@pytest.mark.parametrize("begun", [False, True])
def test_states_are_translated_to_those_of_xlstms_extension(begun: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_xlstm_slstm, "_xlstm_function", lambda batch, heads, inner: _PublishedCell)
    shapes = (3, 7, 2, 16), (2, 64, 16), (2, 64, 16), (2, 64)
    generator = torch.Generator().manual_seed(0)
    x, *weights = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    state = slstm_start(3, 2, 16, device=CPU, dtype=x.dtype)
    if begun:
        state = slstm_scan((x + 1,), state, tuple(weights))[1]
    ours, theirs = (scan((x,), state, tuple(weights)) for scan in (slstm_scan, _xlstm_slstm.xlstm_slstm_scan))
    for one, other in zip((ours[0], *ours[1]), (theirs[0], *theirs[1]), strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-13)


@pytest.mark.gpu
@needs("xlstm_slstm")
@pytest.mark.parametrize("length", [1, 7, 33])
@pytest.mark.parametrize("begun", [False, True])
def test_xlstms_extension_equals_the_scan(length: int, begun: bool) -> None:
    heads, inner = 2, 16
    x, *weights = leaves((3, length, heads, inner), (heads, 4 * inner, inner), (heads, 4 * inner, inner), (heads, 64))
    state = slstm_start(3, heads, inner, device=x.device, dtype=x.dtype)
    if begun:
        state = slstm_scan((x.detach() + 1,), state, tuple(w.detach() for w in weights))[1]
    ours, theirs = (scan((x,), state, tuple(weights)) for scan in (slstm_scan, _xlstm_slstm.xlstm_slstm_scan))
    agree(ours[0], theirs[0], [x, *weights], tolerance=1e-4)
    for one, other in zip(ours[1], theirs[1], strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.full
def test_a_kernel_chosen_while_a_compiler_looks_on_is_no_reason_to_compile_again() -> None:
    made: list[object] = []

    def compiler(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        made.append(graph)
        return graph.forward

    model, tokens_BL = TransformerConfig.tiny().build(5), torch.zeros(2, 7, dtype=torch.int64)
    _choose._candidates.clear()
    model(tokens_BL, Context())  # has what it asks for where no compiler looks on
    compiled = torch.compile(lambda x_BL: model(x_BL, Context()), backend=compiler)
    with unwarned():
        first, graphs = compiled(tokens_BL), len(made)
        assert graphs and torch.equal(compiled(tokens_BL), first) and len(made) == graphs
