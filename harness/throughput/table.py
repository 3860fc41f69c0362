"""The tables of a throughput report: sheets like those of accuracy (harness/tables/sheets.py), and every row as CSV.

    training    tokens per second by length, the parts of a step      scaling   exponents of time and memory in length
    generation  time to first token, milliseconds per decoded token   work      state, memory, operations, bytes
    ways        every way to run a model, fp32 and bf16               state     models with equal bytes of state
    peers       other packages beside ours, measured in turns

Below a median stand its 20th and 80th percentile. A missing entry says why: OOM, no step form, refused.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from chomsky_ladder.harness.store.files import write_atomically
from chomsky_ladder.harness.store.harmless import csv_of
from chomsky_ladder.harness.tables import formats as table_formats
from chomsky_ladder.harness.tables.latex import latex
from chomsky_ladder.harness.tables.sheets import DASH, Column, Entry, Line, Sheet
from chomsky_ladder.harness.throughput.bench import COLUMNS, Row
from chomsky_ladder.harness.throughput.entries import integer, listed, number, quotient, rate, share, timed
from chomsky_ladder.harness.throughput.fit import Power, power_law

FORMATS = {"md": table_formats.markdown, "html": table_formats.html_fragment, "tex": latex}


class Found:
    """The rows of a report by their place."""

    def __init__(self, report: Row) -> None:
        self.report, self.grid = report, report["grid"]
        self.precision = self.grid["precisions"][0]
        self._by_place = {_place(row): row for row in report["rows"] if row.get("what")}
        self.models = list(dict.fromkeys(row["model"] for row in report["rows"]))
        self.unmeasured = [row for row in report["rows"] if not row.get("what")]

    def row(self, model: str, what: str, *, length: int, batch: int, **other: str) -> Row | None:
        """Return a row; by default that of the first way at matched parameters."""
        place = {"match": "parameters", "way": "auto", "precision": self.precision} | other
        return self._by_place.get((model, *place.values(), what, length, batch))

    def any_of(self, model: str, match: str = "parameters") -> Row:
        """Return a row that has the model's sizes."""
        of_model = [row for row in self.report["rows"] if row["model"] == model and row.get("match") == match]
        return next((row for row in of_model if row.get("parameters")), {})

    def law(self, model: str, what: str, column: str) -> Power | None:
        lengths = self.grid["growing"] if what == "train" else self.grid["prefill"]
        rows = [self.row(model, what, length=length, batch=self.grid["batch"]) for length in lengths]
        whole = [row for row in rows if row is not None and row.get(column)]
        return power_law([row["length"] for row in whole], [row[column] for row in whole])


def _place(row: Row) -> tuple[Any, ...]:
    return tuple(row[key] for key in ("model", "match", "way", "precision", "what", "length", "batch"))


def sheets(report: Row) -> tuple[Sheet, ...]:
    found = Found(report)
    made = [_training(found), _generation(found), _scaling(found), _work(found), _state(found), _ways(found)]
    return tuple(made + ([_peers(report)] if report["peers"] else []))


def data(report: Row) -> pd.DataFrame:
    """Return every row, with the device and software of its measurement."""
    made = {"device": report["device"], "torch": report["torch"], "commit": report["provenance"]["commit"]}
    rows = [{key: row.get(key) for key in COLUMNS} | made for row in report["rows"]]
    whole = ("length", "batch", "d_model", "parameters", "state_bytes", "repeats", "peak_bytes", "reserved_bytes")
    return pd.DataFrame(rows, columns=[*COLUMNS, *made]).astype(dict.fromkeys((*whole, "bytes"), "Int64"))


def write(report: Row, folder: Path) -> list[Path]:
    """Write the tables in every format, and the rows as CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    made = sheets(report)
    texts = {ending: form(made) for ending, form in FORMATS.items()}
    texts["csv"] = csv_of(data(report), float_format="%.6g")
    for ending, text in texts.items():
        write_atomically(folder / f"throughput.{ending}", text.encode())
    return [folder / f"throughput.{ending}" for ending in texts]


def _sheet(
    found: Found, title: str, lead: str, columns: Sequence[Column], lines: Sequence[Line], *, match: str = "parameters"
) -> Sheet:
    report, grid = found.report, found.grid
    where = f"{report['device']}, torch {report['torch']}"
    how = f"{grid['threads']} thread{'s' * (grid['threads'] > 1)}, " if report["clock"] != "CUDA events" else ""
    sittings = report.get("sittings", 1)
    pooled = f" in each of up to {sittings} sittings, whose median stands" if sittings > 1 else ""
    spread = "the lowest 20th and the highest 80th" if sittings > 1 else "the 20th and 80th"
    of = f"{where}, {how}{report['clock']}; medians of {grid['repeats']}{pooled}, below them {spread} percentile."
    return Sheet(title, (lead, of), "model", tuple(columns), tuple(lines), tuple(_refusals(found, match)))


def _refusals(found: Found, match: str = "") -> list[str]:
    """Return why models have no rows at all, or none for one kind of match."""
    return [f"{row['model']}: {row['not_run']}." for row in found.unmeasured if row.get("match", "") in ("", match)]


def _training(found: Found) -> Sheet:
    grid, at = found.grid, found.grid["at"]
    parts = ("forward", "backward", "update")
    columns = [Column("width"), Column("parameters")]
    columns += [Column(f"{length:,}", "tokens a second, by length") for length in grid["lengths"]]
    columns += [Column(part, f"ms of a step at length {at:,}") for part in (*parts, "whole", "wall clock")]
    lines = []
    for model in found.models:
        sizes = found.any_of(model)
        base = found.row(model, "train", length=at, batch=grid["tokens"] // at)
        entries = [integer(sizes.get("d_model")), integer(sizes.get("parameters"))]
        for length in grid["lengths"]:
            entries.append(rate(found.row(model, "train", length=length, batch=grid["tokens"] // length)))
        entries += [timed(base, stem) for stem in (*(f"{part}_" for part in parts), "")]
        lines.append(Line(model, (*entries, number(base, "wall_ms"))))
    lead = f"Training at matched parameters ({grid['parameters']:,}), {grid['tokens']:,} tokens a step, "
    return _sheet(found, "Training", f"{lead}{found.precision}.", columns, lines)


def _generation(found: Found) -> Sheet:
    grid = found.grid
    columns = [Column(f"{length:,}", "ms to first token, by prompt") for length in grid["prefill"]]
    columns += [Column("tokens a second", "longest prompt")]
    columns += [Column(f"{context:,}", "ms a decoded token, by context") for context in grid["contexts"]]
    columns += [Column(f"{batch:,}", f"the same at {grid['at']:,}, by batch") for batch in grid["batches"]]
    lines = []
    for model in found.models:
        prefills = [found.row(model, "prefill", length=length, batch=grid["batch"]) for length in grid["prefill"]]
        entries = [*map(timed, prefills), rate(prefills[-1])]
        entries += [timed(found.row(model, "decode", length=context, batch=1)) for context in grid["contexts"]]
        entries += [timed(found.row(model, "decode", length=grid["at"], batch=batch)) for batch in grid["batches"]]
        lines.append(Line(model, tuple(entries)))
    lead = (
        f"At matched parameters ({grid['parameters']:,}), {found.precision}. Prompts in a batch of {grid['batch']}; of "
        "a model without a step form, its forward pass. Decoding from a state made for the context, in a batch of 1."
    )
    return _sheet(found, "Generation", lead, columns, lines)


_LAWS = (("train", "ms", "training time"), ("train", "peak_bytes", "training memory"))
_LAWS += (("prefill", "ms", "prefill time"), ("prefill", "peak_bytes", "prefill memory"))


def _scaling(found: Found) -> Sheet:
    grid = found.grid
    columns = [Column(what, title) for *_, title in _LAWS for what in ("exponent", "last")]
    lines = []
    for model in found.models:
        entries = []
        for what, column, _ in _LAWS:
            law = found.law(model, what, column)
            shown = law and Entry((f"{law.exponent:.2f}", f"{law.low:.2f}..{law.high:.2f}"))
            entries += [shown or DASH, Entry((f"{law.last:.2f}",)) if law else DASH]
        lines.append(Line(model, tuple(entries)))
    lead = (
        f"Cost as a power of the length at a batch of {grid['batch']}: training over {listed(grid['growing'])}, "
        f"prefill over {listed(grid['prefill'])}. 1 is linear, 2 quadratic; below, the 95 % interval of the fit "
        "through the medians; `last` is the slope between the two longest."
    )
    return _sheet(found, "Scaling", lead, columns, lines)


def _work(found: Found) -> Sheet:
    grid, at, tops = found.grid, found.grid["at"], found.report["ceilings"][found.precision]
    columns = [Column(f"{context:,}", "state bytes, by context") for context in grid["contexts"]]
    columns += [Column(f"{length:,}", "MB at the peak of training") for length in grid["growing"]]
    columns += [Column("reserved", "MB at the peak of training"), Column("formula", "FLOP a token, forward")]
    columns += [Column("counter / formula", "FLOP a token, forward")]
    columns += [Column(name, what) for what in ("training", "decoding") for name in ("GFLOP/s", "GB/s")]
    lines = []
    for model in found.models:
        growing = [found.row(model, "train", length=length, batch=grid["batch"]) for length in grid["growing"]]
        base = found.row(model, "train", length=at, batch=grid["tokens"] // at)
        prefill = found.row(model, "prefill", length=at, batch=grid["batch"])
        decode = found.row(model, "decode", length=at, batch=1)
        entries = [
            number(found.row(model, "decode", length=context, batch=1), "state_bytes", form=",.0f")
            for context in grid["contexts"]
        ]
        entries += [number(row, "peak_bytes", scale=1e-6) for row in growing]
        entries += [
            number(growing[-1], "reserved_bytes", scale=1e-6),
            number(prefill, "flops_per_token", form=",.0f"),
        ]
        entries.append(quotient(prefill, "counted_per_token", "flops_per_token"))
        for row in (base, decode):
            entries += [share(row, "gflop_per_s", tops["product_gflop_per_s"])]
            entries += [share(row, "gb_per_s", tops["copy_gb_per_s"])]
        lines.append(Line(model, tuple(entries)))
    lead = (
        f"At matched parameters. Memory at a batch of {grid['batch']}, by length. Below rates, their share of what was "
        f"reached on the spot: {tops['product_gflop_per_s']:,.0f} GFLOP/s in a large product, "
        f"{tops['copy_gb_per_s']:,.1f} GB/s in a large copy. Operations are those of a formula (the counter sees "
        f"products alone), bytes the least there can be; rates at length {at:,}."
    )
    return _sheet(found, "Work", lead, columns, lines)


def _state(found: Found) -> Sheet:
    grid = found.grid
    columns = [Column(name) for name in ("width", "parameters", "state bytes", "training tokens a second")]
    columns += [Column("ms to first token"), Column("ms a decoded token")]
    lines = []
    for model in found.models:
        sizes = found.any_of(model, "state")
        train, prefill, decode = (
            found.row(model, what, length=grid["at"], batch=grid["batch"], match="state")
            for what in ("train", "prefill", "decode")
        )
        entries = [integer(sizes.get("d_model")), integer(sizes.get("parameters"))]
        entries += [number(decode, "state_bytes", form=",.0f"), rate(train), timed(prefill), timed(decode)]
        lines.append(Line(model, tuple(entries)))
    lead = (
        f"At matched state: widths whose state has nearest to {grid['state_bytes']:,} bytes a sequence after "
        f"{grid['state_context']:,} tokens; shown is the state after {grid['at']:,}. Lengths of {grid['at']:,} in a "
        f"batch of {grid['batch']}, {found.precision}."
    )
    return _sheet(found, "Matched state", lead, columns, lines, match="state")


def _ways(found: Found) -> Sheet:
    grid, at = found.grid, found.grid["at"]
    columns = [Column(name) for name in ("training tokens a second", "ms to first token", "ms a decoded token")]
    columns += [Column("first call, s"), Column("fast paths that ran")]
    rows = [row for row in found.report["rows"] if row.get("match") == "parameters" and row.get("way")]
    lines = []
    for model, way, precision in dict.fromkeys((row["model"], row["way"], row["precision"]) for row in rows):
        place = {"way": way, "precision": precision}
        train = found.row(model, "train", length=at, batch=grid["tokens"] // at, **place)
        prefill = found.row(model, "prefill", length=at, batch=grid["batch"], **place)
        decode = found.row(model, "decode", length=at, batch=1, **place)
        ran = Entry(((train or {}).get("backends") or "-",))
        entries = (rate(train), timed(prefill), timed(decode), number(train, "first_s"), ran)
        lines.append(Line(f"{model}, {way}, {precision}", entries))
    absent = [f"{name} ({why})" for name, why in found.report["kernels"].items() if why]
    lead = (
        f"Training at length {at:,} and {grid['tokens']:,} tokens a step, prompts of {at:,}, decoding at {at:,}. The "
        "first call of a training step compiles and tunes what is compiled or tuned; it is in no other number."
        + (f" Kernels that cannot run here: {', '.join(absent)}." if absent else "")
    )
    return _sheet(found, "Ways", lead, columns, lines)


def _peers(report: Row) -> Sheet:
    columns = [Column(name) for name in ("shape", "ours, ms", "reference, ms", "theirs, ms", "theirs / ours")]
    columns += [Column("theirs / reference"), Column("goal")]
    lines = []
    for row in report["peers"]:
        if row.get("not_run"):
            lines.append(Line(row["peer"], (Entry((row["not_run"],)), *[DASH] * 6)))
            continue
        times = [timed(row, f"{name}_") for name in _TURNS]
        ratios = [number(row, key, form=".2f") for key in ("ratio", "reference_ratio")]
        lines.append(Line(row["peer"], (Entry((row["shape"],)), *times, *ratios, Entry((f"{row['goal']:g}",)))))
    pooled = report.get("sittings", 1) > 1
    ratios_of = "the median of what the sittings had" if pooled else "of the medians"
    spread = (
        "medians of the sittings' with the lowest 20th and the highest 80th" if pooled else "medians with 20th and 80th"
    )
    lead = f"Forward and backward of blocks alone, turn by turn in one process; ratios are {ratios_of}."
    of = f"{report['device']}, torch {report['torch']}, {report['clock']}; {spread} percentile."
    return Sheet("Peers", (lead, of), "package", tuple(columns), tuple(lines))


_TURNS = ("ours", "reference", "theirs")
