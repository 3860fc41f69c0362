"""Optional kernels: refused where they are missing, never taken silently, and on a GPU equal to their references."""

import pytest
import torch
from torch import Tensor

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.config.registry import all_models
from chomsky_ladder.models.block import Context
from chomsky_ladder.models.kernels import calls as _kernel_calls
from chomsky_ladder.models.kernels import kernel as _kernels
from chomsky_ladder.models.layers.convolution import ShortConvolution
from chomsky_ladder.models.layers.selective import selective_scan
from chomsky_ladder.models.scans.mlstm import mlstm_chunks, mlstm_start
from chomsky_ladder.models.scans.slstm import slstm_scan, slstm_start

CPU = torch.device("cpu")


def missing(name: str) -> str:
    return next(kernel.missing for kernel in _kernels.available() if kernel.name == name)


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(bool(missing(name)), reason=f"{name}: {missing(name)}")


def test_every_kernel_serves_registered_models() -> None:
    served = {model for kernel in _kernels.available() for model in kernel.serves}
    assert served <= set(all_models())
    assert len({kernel.name for kernel in _kernels.available()}) == len(_kernels.available())


def test_plain_backends_are_never_refused() -> None:
    for backend in ("auto", "reference"):
        _kernels.demand(backend, model="lstm", device=CPU)


@pytest.mark.parametrize("name", ["mamba_ssm", "causal_conv1d", "mlstm_kernels"])
def test_a_kernel_asked_for_by_name_is_refused_with_its_reason(name: str) -> None:
    with pytest.raises(ValueError, match=f"the backend {name} (cannot run here: .+|needs a CUDA device, not cpu)"):
        _kernels.demand(name, model="mamba", device=CPU)


def test_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("here a kernel may run")
    assert main(["run", "parity", "mamba", "--exec.backend", "mamba_ssm"]) == 2
    assert capsys.readouterr().err == "ladder: the backend mamba_ssm cannot run here: no CUDA device\n"


def test_no_kernel_for_cuda_is_taken_on_a_cpu() -> None:
    for name in ("mamba_ssm", "causal_conv1d", "mlstm_kernels"):
        assert not _kernels.usable(name, torch.zeros(2), Context())


@pytest.mark.parametrize("name", sorted({*all_models()} - {"hybrid"}))  # which takes what its parts take
def test_what_a_model_takes_is_known_to_serve_it(name: str) -> None:
    model, ctx = all_models()[name][0].tiny().build(7), Context()
    model(torch.ones(2, 9, dtype=torch.int64), ctx)
    by_name = {kernel.name: kernel for kernel in _kernels.available()}
    for taken in ctx.backends & by_name.keys():
        assert name in by_name[taken].serves and not by_name[taken].missing


def leaves(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).cuda().requires_grad_() for shape in shapes]


def agree(ours: torch.Tensor, theirs: torch.Tensor, inputs: list[torch.Tensor], *, tolerance: float) -> None:
    """Outputs and the gradients of a fixed weighting of them, relative to the largest entry."""
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1)).cuda()
    pairs = [(ours, theirs)]
    pairs += zip(*(torch.autograd.grad((y * weights).sum(), inputs) for y in (ours, theirs)), strict=True)
    for one, other in pairs:
        assert float((one - other).abs().max()) <= tolerance * max(1.0, float(other.abs().max()))


@pytest.mark.gpu
@needs("mamba_ssm")
@pytest.mark.parametrize("length", [1, 17, 64, 130])
def test_mamba_ssm_equals_the_scan(length: int) -> None:
    x, dt, A, B, C, D = leaves((3, length, 8), (3, length, 8), (8, 4), (3, length, 4), (3, length, 4), (8,))
    step, decay = torch.nn.functional.softplus(dt), -A.exp()
    theirs = _kernel_calls.mamba_scan(x, step, decay, B, C, D)
    ours = selective_scan(x, step, decay, B, C, D, None, signed=False, ctx=Context(backend="reference"))[0]
    agree(ours, theirs, [x, dt, A, B, C, D], tolerance=1e-4)


@pytest.mark.gpu
@needs("causal_conv1d")
@pytest.mark.parametrize("length", [1, 3, 64])
def test_causal_conv1d_equals_the_shifted_sums(length: int) -> None:
    layer = ShortConvolution(16).cuda()
    (x,) = leaves((3, length, 16))
    theirs = _kernel_calls.short_convolution(x, layer.weight, layer.bias)
    agree(layer(x), theirs, [x, layer.weight, layer.bias], tolerance=1e-5)


@pytest.mark.gpu
@needs("mlstm_kernels")
@pytest.mark.parametrize("length", [64, 130])
def test_mlstm_kernels_equal_the_chunks(length: int) -> None:
    q, k, v, i, f = leaves(*[(2, 2, length, 64)] * 3, *[(2, 2, length)] * 2)
    start = mlstm_start(2, 2, 64, 64, device=q.device, dtype=q.dtype)
    ours = mlstm_chunks(q, k / 8, v, i, f, start)[0]
    agree(
        ours, _kernel_calls.mlstm_scan(q, k / 8, v, i, f), [q, k, v, i, f], tolerance=2e-2
    )  # the kernel works in bf16


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
    monkeypatch.setattr(_kernels, "_xlstm_function", lambda batch, heads, inner: _PublishedCell)
    shapes = (3, 7, 2, 16), (2, 64, 16), (2, 64, 16), (2, 64)
    generator = torch.Generator().manual_seed(0)
    x, *weights = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    state = slstm_start(3, 2, 16, device=CPU, dtype=x.dtype)
    if begun:
        state = slstm_scan((x + 1,), state, tuple(weights))[1]
    ours, theirs = (scan((x,), state, tuple(weights)) for scan in (slstm_scan, _kernel_calls.xlstm_slstm_scan))
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
    ours, theirs = (scan((x,), state, tuple(weights)) for scan in (slstm_scan, _kernel_calls.xlstm_slstm_scan))
    agree(ours[0], theirs[0], [x, *weights], tolerance=1e-4)
    for one, other in zip(ours[1], theirs[1], strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5)
