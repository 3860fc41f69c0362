"""Steps that read strings in pieces and carry the state on: truncated backpropagation, and state passing.

    cut = 20     a a b .. b | b a .. a | a ..    gradients stop at each bar, the state is carried on
    passed = 1   b b a .. b ] a a b ..           this string starts from the state that another string left

With a cut, the memory of a step does not grow with the length (Williams and Peng 1990). A state from another string
teaches a model to overwrite what it finds, so that it still works on long strings (Buitrago and Gu 2025, 2507.02782).
They take that state from the previous batch, as computed with earlier weights. Here the current weights first read
`passed` other strings of the longest training length, drawn like any others. So a resumed run ends like one that never
stopped. This only makes sense for tasks whose strings contain all that their answers need. Parity does not: the answer
depends on where the string starts.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from chomsky_ladder.harness.config.run import Run
from chomsky_ladder.harness.train.forward import autocast
from chomsky_ladder.harness.train.pack import Pack, means
from chomsky_ladder.models.block import Backend, State
from chomsky_ladder.tasks.base import Batch


class CarryingPack(Pack):
    """A pack of one run that reads its strings in pieces."""

    def __init__(self, runs: Sequence[Run], *, device: torch.device, backend: Backend) -> None:
        assert len(runs) == 1, "a state is handed on in runs that train alone"
        super().__init__(runs, device=device, backend=backend)

    def gradients(self, step: Tensor, batch: Batch) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return the sum of the pieces' gradients, their summed loss and their averaged metrics."""
        train, length = self.run.train, batch.tokens_BL.shape[1]
        size = train.cut or length
        state = self._start(step, len(batch.tokens_BL), length)
        scored = batch.scored_BL.sum().clamp(min=1)
        total_RP, total_R, metrics = torch.zeros_like(self.weight_RP), self.weight_RP.new_zeros(1), []
        for start in range(0, length, size):
            tokens_BC, targets_BC, scored_BC = (field_BL[:, start : start + size] for field_BL in batch[:3])
            piece = Batch(tokens_BC, targets_BC, scored_BC, batch.length_B - start, batch.prompt_B - start)
            with autocast(self.run, self.device):
                loss, found, state = self._read(piece, state, length=length, scored=scored)
            total_RP = total_RP + self.gradient_of(loss[None])
            total_R = total_R + loss.detach()[None]
            metrics.append(found)
            state = detached(state)
        return total_RP, total_R, {name: torch.stack([found[name] for found in metrics]).mean(0) for name in metrics[0]}

    def _start(self, step: Tensor, rows: int, length: int) -> State:
        """Return the state after reading the `passed` strings that come first."""
        before = [self.stream.before(step, number) for number in range(self.run.train.passed)]
        most = length + sum(strings.tokens_BL.shape[1] for strings in before)
        weight = self._leaves[0]
        model = self.models[0]
        state = model.init_state(rows, max_length=most, device=weight.device, dtype=weight.dtype)
        with torch.no_grad(), autocast(self.run, self.device):
            for strings in before:
                _, state = model.extend(strings.tokens_BL, state, self.context(strings))
        return state

    def _read(
        self, piece: Batch, state: State, *, length: int, scored: Tensor
    ) -> tuple[Tensor, dict[str, Tensor], State]:
        """Return a piece's share of the loss, its metrics and its last state.

        Blocks' extra losses are weighted by length.
        """
        ctx = self.context(piece)
        logits_BLV, state = self.models[0].extend(piece.tokens_BL, state, ctx)
        targets_BL = torch.where(piece.scored_BL, piece.targets_BL, -100)
        nats = nn.functional.cross_entropy(
            logits_BLV.flatten(0, 1), targets_BL.flatten(), ignore_index=-100, reduction="sum"
        )
        share = piece.tokens_BL.shape[1] / length
        loss = nats / scored + share * sum(value for values in ctx.losses.values() for value in values)
        self.kernels |= ctx.backends
        return loss, {name: value[None] for name, value in means(ctx).items()}, state


def detached(state: State) -> State:
    """Return the same state, cut off from the gradient."""
    if isinstance(state, Tensor):
        return state.detach()
    if isinstance(state, dict):
        return {name: detached(value) for name, value in state.items()}
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return type(state)(*map(detached, state))
    if isinstance(state, list | tuple):
        return type(state)(map(detached, state))
    return state
