"""The fitted probes of a model, which read its state out of the stream, and their file in the run's folder.

probes = load_probe(folder)
probes.read(x_BLD, layer)                  the likeliest class of each part at each position, [B, L, S]
probes.directions(layer)                   the linear probe's rows, [S, C, D]
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chomsky_ladder.harness.inside.probe_fit import Kind, Probe
from chomsky_ladder.harness.store import checkpoint

WEIGHTS = "probe.ckpt"


class Probes:
    """The fitted probes of one model, with the names of parts and classes."""

    def __init__(
        self,
        *,
        run_id: str,
        step: int,
        cells: tuple[str, ...],
        classes: dict[str, tuple[str, ...]],
        sizes: tuple[int, ...],
        num_layers: int,
        fitted: dict[tuple[str, Kind, int], Probe],
        chosen: dict[tuple[str, Kind], int],
    ) -> None:
        self.run_id, self.step, self.cells, self.classes, self.sizes = run_id, step, cells, classes, sizes
        self.num_layers, self.fitted, self.chosen = num_layers, fitted, chosen

    @property
    def views(self) -> tuple[str, ...]:
        return tuple(self.classes)

    def probe(self, layer: int, *, view: str | None = None, kind: Kind = "linear") -> Probe:
        key = (view or self.views[0], kind, layer)
        if key not in self.fitted:
            raise ValueError(f"{self.run_id} has no {kind} probe of {key[0]} at layer {layer}")
        return self.fitted[key]

    def logits(
        self,
        x_LD: Tensor,
        layer: int,
        position_L: Tensor | None = None,
        *,
        view: str | None = None,
        kind: Kind = "linear",
    ) -> Tensor:
        """Return logits [.., L, S, C] of streams [.., L, D].

        Without `position_L` the positions count from the first.
        """
        position_L = torch.arange(x_LD.shape[-2], device=x_LD.device) if position_L is None else position_L
        return self.probe(layer, view=view, kind=kind).logits(x_LD.float(), position_L)

    def read(
        self,
        x_LD: Tensor,
        layer: int,
        position_L: Tensor | None = None,
        *,
        view: str | None = None,
        kind: Kind = "linear",
    ) -> Tensor:
        """Return the likeliest class of each part, int64 [.., L, S]."""
        return self.logits(x_LD, layer, position_L, view=view, kind=kind).argmax(-1)

    def directions(self, layer: int, *, view: str | None = None) -> Tensor:
        """Return the weight vector of each part and class, whose product with the stream is its logit, [S, C, D]."""
        return self.probe(layer, view=view).directions

    def to(self, device: torch.device | str) -> "Probes":
        moved = {key: Probe([t.to(device) for t in probe.tensors], probe.sizes) for key, probe in self.fitted.items()}
        return Probes(**{**vars(self), "fitted": moved})

    def save(self, path: Path) -> None:
        content = {key: value for key, value in vars(self).items() if key not in ("fitted", "chosen")}
        content["fitted"] = {"/".join(map(str, key)): probe.tensors for key, probe in self.fitted.items()}
        content["chosen"] = {"/".join(key): layer for key, layer in self.chosen.items()}
        checkpoint.write(path, content)


def load_probe(folder: Path) -> Probes:
    """Return the probes of a run's folder."""
    path = folder / WEIGHTS
    if not path.exists():
        raise ValueError(f"{folder.name} has not been probed: `ladder probe {folder.name}` first")
    try:
        content = checkpoint.read(path)
    except checkpoint.DamagedCheckpoint as damage:
        raise ValueError(f"{folder.name}: {damage}; `ladder probe {folder.name}` makes it anew") from None
    fitted, chosen = content.pop("fitted"), content.pop("chosen")
    if content["run_id"] != folder.name:
        raise ValueError(f"{path} holds the probes of {content['run_id']}")
    return Probes(
        fitted={_key(name): Probe(tensors, content["sizes"]) for name, tensors in fitted.items()},
        chosen={tuple(name.split("/")): layer for name, layer in chosen.items()},
        **content,
    )


def _key(name: str) -> tuple[str, Kind, int]:
    kind: Any
    view, kind, layer = name.split("/")
    return view, kind, int(layer)
