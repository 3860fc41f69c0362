"""torch.compile takes our Triton kernels whole, alone and stacked, with their backward pass: one operation each way.

The kernels are not launched here, so that no value means anything: that they are right is the interpreter's to say.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, fx

from chomsky_ladder.models.kernels.kernel import KERNELS, member
from chomsky_ladder.models.operations.fast_weights.reference import Norm
from support.cases import full, some
from support.triton_kernels import needs_triton

pytestmark = needs_triton

ROOM = "chomsky_ladder.models"
B, L, D, H, N = 3, 5, 16, 2, 4
SHAPES = {
    "triton_lstm": [(B, L, D), (B, D), (B, D), (4 * D, D), (4 * D, D), (4 * D,)],
    "triton_slstm": [(B, L, H, D), *[(B, H, D)] * 3, *[(H, 4 * D, D)] * 2, (H, 4 * D)],
    "triton_scan": [*[(B, L, D)] * 2, (D,), (N, D), *[(B, L, N)] * 2, (D,), (B, L, D), (B, N, D)],
    "triton_delta": [*[(B, H, L, N)] * 4, (B, H, L, D), (B, H, L, N), (B, H, N, D)],
    "triton_diagonal": [(B, L, D), (B, L, D), (B, D)],
    "triton_rnn": [(B, L, D), (B, D), (D, D), (D, D), (D,)],
    "triton_gru": [(B, L, D), (B, D), (3 * D, D), (3 * D, D), (3 * D,), (D,)],
    "triton_matrix_rnn": [*[(B, L, H, N)] * 2, (B, L, H, D), (B, L, H), (H, D, D), (B, H, N, D)],
    "triton_mlstm": [*[(B, L, H * D)] * 2, *[(H * D // 4, 4, 4)] * 3, *[(B, L, H)] * 2],
    "triton_silu_conv": [(B, L, D), (D, N), (D,)],
    "triton_wkv": [*[(B, L, D)] * 2, (D,), (D,), (B, 2, D)],
    "triton_mesa": [*[(B, H, L, N)] * 2, (B, H, L, D), *[(B, H, L)] * 2, (B, H, N, N), (B, H, N, D)],
    "triton_decayed": [*[(B, H, L, N)] * 2, (B, H, L, D), (B, H, L)],
    "triton_block_steps": [(B, L, H * N * N), (B, L, H * N), (B, H, N)],
    "triton_slots": [*[(B, H, L, N)] * 2, *[(B, H, L, D)] * 2, (B, H, N, D)],
    "triton_momentum": [*[(B, H, L, N)] * 2, (B, H, L, D), *[(B, H, L)] * 3, *[(B, H, N, D)] * 2],
    "triton_path": [*[(B, H, L, N)] * 4, (B, H, L)],
    "triton_fast_weights": [*[(B, H, L, N)] * 3, (B, H, L), (3,), *[(H, 1, N)] * 2, (B, H, N + 1, N)],
    "triton_turing": [(B, 2 * H * (2 * D + 3 + 3)), (B, 2 * H, N), (B, D, N)],
    "triton_linked": [(B, H * (D + 5) + 3 * D + 3), (B, D, N), *[(B, N)] * 3, (B, N, N), (B, H, N)],
    "triton_turing_machine": [
        *((B, L, 4 * D), (4 * D, D), (4 * D, H * N), (4 * H * (N + 3), D), (4 * H * (N + 3),)),
        *((B, D), (B, D), (B, N, L), (B, 2 * H, L), (B, H, N)),
    ],
    "triton_linked_machine": [
        *((B, L, 4 * D), (4 * D, D), (4 * D, H * N), (H * (N + 5) + 3 * N + 3, D), (H * (N + 5) + 3 * N + 3,)),
        *((B, D), (B, D), (B, N, L), (B, L), (B, L), (B, L), (B, L, L), (B, H, L), (B, H, N)),
    ],
    "triton_stack_machine": [
        *((B, L, D), (D, D), (D, H * N), (H * (3 + N), D), (H * (3 + N),), (B, D), (B, H, L, N)),
    ],
    "triton_tape_machine": [
        *((B, L, 4 * D), (4 * D, D), (4 * D, H * N), (H * 5, D), (H * 5,), (N, D), (N,), (N, N), (N,), (H * N, N)),
        *((H * N,), (B, D), (B, D), (B, H, L, N)),
    ],
    "triton_one_hot": [(B, L, 3), (3, N, N), (B, L, N, 2), (B, L, N, 2), (B, N, 2)],
}
LAUNCHED = {
    "triton_lstm": ("operations.recurrent.gpu_lstm", "_forward", "_backward"),
    "triton_slstm": ("operations.slstm.gpu", "_forward", "_backward"),
    "triton_scan": ("operations.scan.gpu", "forward_kernel", "backward_kernel"),
    "triton_delta": ("operations.delta.gpu", "forward_kernel", "backward_kernel"),
    "triton_diagonal": ("operations.diagonal.gpu", "forward_kernel", "backward_kernel"),
    "triton_rnn": ("operations.recurrent.gpu_rnn", "_forward", "_backward"),
    "triton_gru": ("operations.recurrent.gpu_gru", "_forward", "_backward"),
    "triton_matrix_rnn": ("operations.matrix_rnn.gpu", "forward_kernel", "backward_kernel"),
    "triton_mlstm": ("operations.mlstm.gpu", "forward_kernel", "backward_kernel"),
    "triton_silu_conv": ("operations.conv.gpu", "forward_kernel", "backward_kernel"),
    "triton_wkv": ("operations.wkv.gpu", "forward_kernel", "backward_kernel"),
    "triton_mesa": (
        "operations.mesa.gpu",
        *(f"{name}_kernel" for name in ("states", "read", "solve_back", "read_back", "write_back")),
    ),
    "triton_decayed": ("operations.decayed.gpu", "forward_kernel", "backward_kernel"),
    "triton_block_steps": ("operations.block_steps.gpu", "forward_kernel", "backward_kernel"),
    "triton_slots": ("operations.in_triton._Side", "launch"),
    "triton_momentum": ("operations.in_triton._Side", "launch"),
    "triton_path": ("operations.in_triton._Side", "launch"),
    "triton_fast_weights": ("operations.fast_weights.gpu", "forward_kernel", "backward_kernel"),
    "triton_turing": ("operations.turing.gpu", "forward_kernel", "backward_kernel"),
    "triton_linked": ("operations.linked.gpu", "forward_kernel", "backward_kernel"),
    "triton_turing_machine": ("operations.turing.gpu_machine", "forward_kernel", "backward_kernel"),
    "triton_linked_machine": ("operations.linked.gpu_machine", "forward_kernel", "backward_kernel"),
    "triton_stack_machine": ("operations.moves.gpu_machine", "forward_kernel", "backward_kernel"),
    "triton_tape_machine": ("operations.moves.gpu_machine", "forward_kernel", "backward_kernel"),
    "triton_one_hot": ("operations.one_hot.gpu", "places_kernel", "states_kernel", "back_kernel", "maps_kernel"),
}


class Silent:
    """In place of a kernel: a launch leaves what it was to write."""

    def __call__(self, *args: object) -> None: ...

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *args, **constants: None


def called(kernel: str) -> Callable[..., tuple[Tensor, ...]]:
    (call,) = (each.call for each in KERNELS if each.name == kernel)

    def slstm(x: Tensor, h: Tensor, y: Tensor, a: Tensor, W: Tensor, R: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        h_BLHK, state = call((x,), (h, y, a), (W, R, b))
        return h_BLHK, *state

    def scan(*inputs: Tensor) -> tuple[Tensor, ...]:
        return call(*inputs, False)

    def one_hot(*inputs: Tensor) -> tuple[Tensor, ...]:
        return (call(*inputs, "gather"),)

    def one_output(*inputs: Tensor) -> tuple[Tensor, ...]:
        return (call(*inputs),)

    def path(*inputs: Tensor) -> tuple[Tensor, ...]:
        return (call(*inputs, None),)

    def wkv(*inputs: Tensor) -> tuple[Tensor, ...]:
        y, (sums, _) = call(*inputs[:4], (inputs[4], torch.zeros_like(inputs[4][:, 0])))
        return y, sums

    def momentum(*inputs: Tensor) -> tuple[Tensor, ...]:
        y, state = call(*inputs[:6], inputs[6:])
        return y, *state

    def mesa(*inputs: Tensor) -> tuple[Tensor, ...]:
        y, state = call(*inputs[:5], inputs[5:])
        return y, *state

    def fast_weights(*inputs: Tensor) -> tuple[Tensor, ...]:
        return (call(*inputs[:5], Norm(*inputs[5:7]), inputs[7]),)

    def machine(*inputs: Tensor, **shifts: int) -> tuple[Tensor, ...]:
        y, state = call(inputs[0], inputs[1:5], inputs[5:], **shifts)
        return y, *state

    def stack_machine(*inputs: Tensor) -> tuple[Tensor, ...]:
        y, state = call(inputs[0], inputs[1:5], inputs[5:], core="relu")
        return y, *state

    def tape_machine(*inputs: Tensor) -> tuple[Tensor, ...]:
        y, state = call(inputs[0], inputs[1:11], inputs[11:], core="lstm", jump=0, grows=True)
        return y, *state

    own = {
        "triton_stack_machine": stack_machine,
        "triton_tape_machine": tape_machine,
        "triton_mesa": mesa,
        "triton_fast_weights": fast_weights,
        "triton_turing_machine": partial(machine, shifts=3),
        "triton_linked_machine": machine,
        "triton_momentum": momentum,
        "triton_path": path,
        "triton_wkv": wkv,
        "triton_slstm": slstm,
        "triton_scan": scan,
        "triton_one_hot": one_hot,
    }
    own |= dict.fromkeys(("triton_mlstm", "triton_silu_conv", "triton_decayed"), one_output)
    own |= {"triton_rnn": partial(call, activation="tanh"), "triton_block_steps": partial(call, steps=40)}
    own["triton_turing"] = partial(call, shifts=3)
    return own.get(kernel, call)


@pytest.mark.parametrize("kernel", some(SHAPES, always=("triton_lstm",)))
@pytest.mark.parametrize("replicas", [2, full(0)])
def test_one_operation_each_way(kernel: str, replicas: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    torch._dynamo.reset()
    file, *launched = LAUNCHED[kernel]
    for name in launched:
        monkeypatch.setattr(f"{ROOM}.{file}.{name}", Silent())
    shapes = [(replicas, *shape) if replicas else shape for shape in SHAPES[kernel]]
    inputs = [torch.zeros(shape).requires_grad_() for shape in shapes]
    scan = torch.vmap(called(kernel)) if replicas else called(kernel)
    scan(*inputs)  # as the first step is plain: it finds what is imported late
    seen: Counter[str] = Counter()

    def count(module: fx.GraphModule, inputs: Any) -> Any:
        seen.update(str(node.target) for node in module.graph.nodes if "chomsky_ladder" in str(node.target))
        return make_boxed_func(module.forward)

    backend = aot_autograd(fw_compiler=count)
    outputs = torch.compile(scan, fullgraph=True, dynamic=False, backend=backend)(*inputs)
    gradients = torch.autograd.grad([x.sum() for x in outputs], inputs)
    assert [x.shape for x in gradients] == [x.shape for x in inputs]
    assert seen.total() == len(seen) == 2, seen


def test_what_is_imported_late_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert member("json", "loads") is member("json", "loads")
    monkeypatch.setattr("importlib.import_module", None)
    assert member("json", "loads")("1") == 1
