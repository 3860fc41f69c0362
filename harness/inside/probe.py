"""Test whether a model carries the state in its stream: probes read it from every layer, beside four baselines.

    model             each part of the state (for a square: mine, theirs or empty), from the stream after each block
    random_network    the same from a network of the same config that was never trained
    history           from the symbols read so far, without a network
    majority          the most common label of each part at each position
    shuffled          the model's stream again, fitted to the labels of other games and scored on such

Games are split in three: probes are fitted to the first part, the layer is chosen on the second, and the table shows
the third. After Li et al. 2023 (2210.13382) and, for mine/theirs, Nanda et al. 2023 (2309.00941).
"""

import json
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from chomsky_ladder.harness.config.exec import Exec
from chomsky_ladder.harness.config.parts import plain
from chomsky_ladder.harness.inside.probe_fit import KINDS, Fitted, History, Inputs, Kind, Probe, Stream, fit
from chomsky_ladder.harness.inside.probe_table import Reading, labels_of_others, majority, paired
from chomsky_ladder.harness.inside.probe_weights import WEIGHTS, Probes
from chomsky_ladder.harness.inside.probe_weights import load_probe as load_probe
from chomsky_ladder.harness.inside.settings import ProbeSettings
from chomsky_ladder.harness.inside.streams import (
    Strings,
    Trained,
    load_trained,
    stream_positions,
    strings_of,
    views_of,
)
from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.train.build import untrained
from chomsky_ladder.harness.train.machine import (
    avoid_faulty_tiles,
    find_device,
    keep_freed_memory,
    numerics,
    provenance,
)
from chomsky_ladder.harness.train.progress import Progress
from chomsky_ladder.models.base import Model
from chomsky_ladder.tasks._board import BoardGame

SCHEMA = 1
SPLITS = {"train": "probe/train", "validation": "probe/validation", "test": "probe/test"}
FILE = "probe.json"


class _Wanted(NamedTuple):
    """The description of one row of the table."""

    view: str
    source: str
    kind: Any  # a Kind, or "none" if nothing is fitted
    layer: int | None


def probe_run(
    folder: RunFolder, settings: ProbeSettings | None = None, *, device: str = "auto", quiet: bool = True
) -> dict[str, Any]:
    """Probe a finished run and write probe.json and probe.ckpt into its folder."""
    trained = load_trained(folder, device=find_device(device))
    with folder.locked():
        result, probes = probe(trained, settings, quiet=quiet)
        probes.save(folder.path / WEIGHTS)
        write_atomically(folder.path / FILE, (json.dumps(result, indent=1) + "\n").encode())
    return result


def probe(
    trained: Trained, settings: ProbeSettings | None = None, *, quiet: bool = True
) -> tuple[dict[str, Any], Probes]:
    """Return the table of everything that may read the state, and the probes of the model itself."""
    avoid_faulty_tiles()
    keep_freed_memory()
    settings = settings or ProbeSettings()
    return _Probing(trained, settings, quiet=quiet).result()


class _Probing:
    """The probing of one model."""

    def __init__(self, trained: Trained, settings: ProbeSettings, *, quiet: bool) -> None:
        self.run, self.model, self.settings, self.trained = trained.run, trained.model, settings, trained
        self.task, self.device = self.run.task, next(trained.model.parameters()).device
        self.classes, self.sizes = views_of(self.task), self.task.state_sizes
        lengths = self.run.train.lengths if settings.lengths == (0, 0) else settings.lengths
        self.strings: dict[str, Strings] = {
            name: strings_of(
                self.run, split, count=getattr(settings, f"games_{name}"), lengths=lengths, device=self.device
            )
            for name, split in SPLITS.items()
        }
        self.random_seed = (self.run.seed + 1) % 2**63
        self.rows: list[dict[str, Any]] = []
        self.by_game: dict[int, Tensor] = {}  # for each row
        self.fitted: dict[tuple[str, Kind, int], Probe] = {}
        self.chosen: dict[tuple[str, Kind], int] = {}
        fits = (self.model.num_layers + 1) * 2 * (1 + len(self.classes)) + 2 + 1 + len(self.classes)
        self.progress, self.done = Progress(f"probe {self.run.run_id}", fits, quiet=quiet), 0

    def result(self) -> tuple[dict[str, Any], Probes]:
        self._read_streams("model", self.model)
        self._read_streams("random_network", untrained(self.run, self.device, seed=self.random_seed))
        tokens = {name: strings.batch.tokens_BL for name, strings in self.strings.items()}
        vocab, marks_VF = len(self.task.vocab), self.task.marks(self.device)
        history: dict[str, Inputs] = {
            name: History(tokens[name], strings.string_N, strings.position_N, vocab=vocab, marks_VF=marks_VF)
            for name, strings in self.strings.items()
        }
        for view, kind in self._kinds():
            self._fit(_Wanted(view, "history", kind, None), history)
        for view, names in self.classes.items():
            said_NS = majority(self.strings["train"], view, self.strings["test"], num_classes=len(names))
            wanted = _Wanted(view, "majority", "none", None)
            self._add(wanted, said_NS, self.strings["test"].labels[view], {"epoch": None, "validation": None})
        for row in self.rows:
            row["chosen"] = row is self._best(row["view"], row["source"], row["probe"])
        self.progress.close(f"{self.done} probes, best cell accuracy {self._best(self._main, 'model')['cell']:.4f}")
        return self._plain(), self._probes()

    @property
    def _main(self) -> str:
        return next(iter(self.classes))

    def _kinds(self) -> Iterator[tuple[str, Kind]]:
        """Yield the probes to fit to a source: both kinds to the main view, linear ones to the others."""
        for view, kind in product(self.classes, KINDS):
            if kind == "linear" or view == self._main:
                yield view, kind

    def _read_streams(self, source: str, model: Model) -> None:
        """Probe every layer of a model. For the trained model also shuffled labels, at the best layers."""
        streams = {name: stream_positions(self.run, model, strings) for name, strings in self.strings.items()}
        for (view, kind), layer in product(self._kinds(), range(model.num_layers + 1)):
            inputs = self._layer(streams, layer)
            found = self._fit(_Wanted(view, source, kind, layer), inputs)
            if source == "model":
                self.fitted[view, kind, layer] = found.probe
        if source != "model":
            return
        for view, kind in self._kinds():
            self.chosen[view, kind] = self._best(view, source, kind)["layer"]
        others = {
            name: labels_of_others(strings, self._main, seed=self.settings.seed)
            for name, strings in self.strings.items()
        }
        for kind in KINDS:
            layer = self.chosen[self._main, kind]
            wanted = _Wanted(self._main, "shuffled", kind, layer)
            self._fit(wanted, self._layer(streams, layer), others)

    def _layer(self, streams: dict[str, list[Tensor]], layer: int) -> dict[str, Inputs]:
        found: dict[str, Inputs] = {}
        for name, strings in self.strings.items():
            width = strings.batch.tokens_BL.shape[1]
            found[name] = Stream(streams[name][layer], strings.position_N, width=width)
        return found

    def _fit(self, wanted: _Wanted, inputs: dict[str, Inputs], labels: dict[str, Tensor] | None = None) -> Fitted:
        labels = labels or {name: strings.labels[wanted.view] for name, strings in self.strings.items()}
        found = fit(
            (inputs["train"], labels["train"]),
            (inputs["validation"], labels["validation"]),
            kind=wanted.kind,
            sizes=self.sizes,
            settings=self.settings,
        )
        chosen_by = {"epoch": found.epoch, "validation": found.validation}
        self._add(wanted, found.probe.read(inputs["test"]), labels["test"], chosen_by)
        self.done += 1
        self.progress.update(self.done, f"{wanted.source} {wanted.kind} {self.rows[-1]['cell']:.4f}")
        return found

    def _add(self, wanted: _Wanted, said_NS: Tensor, labels_NS: Tensor, chosen_by: dict[str, Any]) -> None:
        reading = Reading(said_NS, labels_NS, self.strings["test"], is_board=isinstance(self.task, BoardGame))
        names = {"view": wanted.view, "source": wanted.source, "probe": wanted.kind, "layer": wanted.layer}
        self.by_game[len(self.rows)] = reading.by_game()
        self.rows.append({**names, "chosen": False, **chosen_by, **reading.accuracies()})

    def _best(self, view: str, source: str, probe: str | None = None) -> dict[str, Any]:
        """Return the row that validation chooses, the first of equal ones."""
        rows = [r for r in self.rows if (r["view"], r["source"]) == (view, source) and probe in (None, r["probe"])]
        return max(rows, key=lambda row: row["validation"] or 0.0)

    def _comparisons(self) -> list[dict[str, Any]]:
        """Compare the model's chosen rows with each baseline, read by the same kind of probe or by none."""
        found = []
        numbered = list(enumerate(self.rows))
        for (place, row), (other_place, other) in product(numbered, numbered):
            of_baseline = other["source"] != "model" and other["view"] == row["view"]
            alike = other["probe"] in (row["probe"], "none")
            if row["source"] == "model" and row["chosen"] and other["chosen"] and of_baseline and alike:
                names = {"view": row["view"], "probe": row["probe"], "against": other["source"]}
                differences = paired(self.by_game[place], self.by_game[other_place])
                count = self.strings["test"].count
                found.append({**names, "against_probe": other["probe"], "games": count, **differences})
        return found

    def _plain(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "kind": "probe",
            "run_id": self.run.run_id,
            "step": self.trained.step,
            "task": self.task.name,
            "model": self.run.model.name,
            "num_layers": self.model.num_layers,
            "board": self.task.size if isinstance(self.task, BoardGame) else None,
            "settings": plain(self.settings),
            "seeds": {
                "strings": self.run.eval.seed,
                "probe": self.settings.seed,
                "random_network": self.random_seed,
            },
            "splits": SPLITS,
            "games": {name: strings.count for name, strings in self.strings.items()},
            "positions": {name: len(strings.string_N) for name, strings in self.strings.items()},
            "cells": list(self.task.state_parts),
            "views": list(self.classes),
            "classes": {view: list(names) for view, names in self.classes.items()},
            "rows": self.rows,
            "comparisons": self._comparisons(),
            "numerics": numerics(Exec(threads=torch.get_num_threads()), self.device),
            "provenance": provenance(self.task, self.run.model),
        }

    def _probes(self) -> Probes:
        return Probes(
            run_id=self.run.run_id,
            step=self.trained.step,
            cells=self.task.state_parts,
            classes=self.classes,
            sizes=self.sizes,
            num_layers=self.model.num_layers,
            fitted=self.fitted,
            chosen=self.chosen,
        )
